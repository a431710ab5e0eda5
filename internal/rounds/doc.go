// Package rounds fits models whose rows or documents do not fit in memory, or are spread over many
// machines. It reads all items once per round. The result does not depend on the number of workers
// or machines, to the last bit.
//
// # Rounds
//
// A driver proposes a state q of the model, or up to three states that compete. A Look evaluates one
// state: it adds up the expectations and derivatives of all items. The sums give the exact ELBO of
// the state, a bound on its gap, and the next state. A fit takes a few rounds.
//
// # Blocks
//
// Items come in numbered blocks. The items of a block are added in their order, in float64. Sums
// adds the results of the blocks in fixed point, so the order and the grouping of the blocks do not
// matter. A Part is a partial sum, with the set of blocks in it; Part.Merge joins two of them.
//
// # Linear models
//
// Climb is the driver of GLMs, in the columns of their rows, and of sparse GPs, in their features.
// It takes natural-gradient steps (Khan and Lin, 2017) and accepts a step only if the ELBO does not
// fall. It starts from a fit to a Sample of rows, which depends only on the numbers of the blocks and
// rows.
//
// # Topics
//
// For topic models a round is an E-step of all documents at the current topics (internal/topic). The
// driver takes the M-step. It starts from a fit to Docs, a sample of documents.
//
// # Files
//
//	sums.go     exact, order-independent sums
//	blocks.go   sets of block numbers
//	part.go     partial sums of a round, and the checks before they are merged
//	look.go     the sums of a linear model at one state
//	rows.go     reads rows into looks, in chunks, on several goroutines
//	tilt.go     derivatives in the parameters of the likelihood
//	climb.go    the driver of linear models
//	groups.go   rows of mixed models, and the first round
//	arrow_look.go, arrow_climb.go  the sums and the driver of mixed models
//	sample.go   random samples of rows
//	docs.go     random samples of documents
package rounds
