// Package site is the engine of models of one latent value a term: GPs, GLMs and sparse GPs.
//
// # The words
//
// A term is w log p(y|o + η + ε): a response y, its offset o and weight w, and a likelihood.
// Package term has the N of a model. It is the one place where a likelihood meets its responses.
//
// A site stands for a term: the Gaussian factor exp(bη − ½γη²). The approximation q is the prior
// times a site for each term,
//
//	V⁻¹ = C⁻¹ + diag(γ),   V⁻¹m = C⁻¹m0 + b.
//
// Where q is best, γ_n = −E[ℓ″] and b_n = E[ℓ′] + γ_n m_n, of the log-likelihood ℓ of that term
// under its own marginal of q (Opper and Archambeau, 2009). Terms.Expect of package term finds
// both; they are the target of the site. With a = b − γm the two conditions are γ = γ̂ and a = α̂,
// for E[ℓ′] = α̂.
//
// A Mover knows a covariance C. Given changes of γ and b it finds the variances and the means. A
// Base is a Mover at the prior. Three methods are enough; base.go lists what else one may know.
//
// A Problem minimises KL(q‖cavity) − ΣE[ℓ] over the sites of some terms, the others held fixed: of
// all terms about the prior, or of a block about a cavity. It knows the Mover alone.
//
// An Algebra is q and what changes it, as the Solver drives it. Sites is that of any Base. The GP
// (DenseAlgebra), a linear model in as many variables as rows (DualAlgebra), in its weights
// (WeightAlgebra) and in the span of few rows (SpanAlgebra) stand on it. Of diagonal covariances
// and of low rank the sites do not tell q; FactoredAlgebra climbs in means and factors, by L-BFGS.
//
// A Proof bounds how many nats q is short of the best of its family. It holds where ℓ is concave.
// By duality any γ ≥ 0 and a of a concave model give a bound; q's own targets are such a pair, and
// what they leave is ½cᵀCc for the mean, c = a − α̂, and tr(Δ) − log|I + Δ| for the precisions,
// where Δ is the change from γ to γ̂ in units of V. See moveProof, and gap.go of package term for
// bounds by rows.
//
// # Which step comes when
//
// A step with a given β is the paper's, in closed form, by Aim, Try, Halve and Take. Without one,
// Problem.Stride takes what raises the ELBO: whatever it tries, it accepts only that. On ordinary
// data this is the first row of the table, for 4 to 15 passes. The others are for starts where
// exponentials overflow, and for ways on which the ELBO rises but slowly.
//
//	step        moves to                                     when
//	target      γ̂ and α̂, or part of the way there            always; first a mixture of those before
//	            (advance, halve)                             (Anderson acceleration, siteMix)
//	outerStep   the best mean for V, then V's own sites      a pass over V costs far more than one
//	                                                         over the means (weights)
//	leap        Newton's step in (m, V)                      in six passes the promise fell by
//	                                                         less than a factor of 3
//	alone       where each site would go by itself           from far off: a target is but a factor
//	                                                         of e away
//	narrow      the same means, variances below 1            expectations overflow
//	walk        the solution by rates, in the dual           likelihoods of one exponential, where
//	                                                         the others fail
//	mode        the mode of the means                        terms contradict each other by far more
//	                                                         nats than float64 has digits for
//	escape      alone, or the mode                           absurd: the state promises nothing
//
// Of 20,000 random problems, 16,000 of which come here, targets are taken in all, a mixture in
// 11,700, leap in 2,240, targets of single sites in 1,630 (advance) and 720 (when slow), walk in
// 410, alone in 350, an outer step in 118, narrow in 57 and mode in 26.
package site
