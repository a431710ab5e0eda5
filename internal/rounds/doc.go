// Package rounds fits models to items that are gone through again and again, on one machine or on
// many, by sums that do not depend on who adds them up.
//
// # Rounds
//
// A driver looks at a state of the model, or races up to three. A look is a sum over all items. It
// gives the exact ELBO of the state, a bound on the gap, and the next state. So a fit is a few
// rounds: looks at all items, and what the driver makes of them.
//
// # Blocks
//
// Items come in blocks, each with a number of its own. The items of a block are summed in their
// order, in float64. What blocks sum to is added by Sums, whose result depends neither on the order
// of the blocks nor on how they are grouped. A Part is what some blocks have summed to; it knows
// which blocks these are.
//
// # Linear models
//
// A Look is the sum of a linear model of weights, which a GLM is in its rows and a sparse GP in its
// features. Climb is the driver: natural steps, of which none lowers the ELBO. It starts from a fit
// of a Sample, which depends on the numbers of blocks and rows alone.
//
// # Topics
//
// Documents are Sums of an E-step at the topics of the moment, and the driver's M-step makes the
// next ones (internal/topic). It starts from a fit of Docs, a sample of documents.
package rounds
