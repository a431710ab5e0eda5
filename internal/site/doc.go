// Package site is the engine of GP, GLM and SparseGP: of models with one latent value for each
// term, or several.
//
// # Concepts
//
// A term is w log p(y|o + η + ε): a response y with offset o and weight w, and a likelihood.
// Package term stores the N terms of a model. It is the only place where a likelihood meets its
// responses.
//
// A site is the Gaussian factor exp(bη − ½γη²) that stands for a term. The approximation q is the
// prior times a site for each term,
//
//	V⁻¹ = C⁻¹ + diag(γ),   V⁻¹m = C⁻¹m0 + b.
//
// At the optimum γ_n = −E[ℓ″] and b_n = E[ℓ′] + γ_n m_n, where ℓ is the log-likelihood of term n
// and the expectation is under its own marginal of q (Opper and Archambeau, 2009). Terms.Expect
// of package term computes both; they are the target of the site. With a = b − γm the two
// conditions are γ = γ̂ and a = α̂, where E[ℓ′] = α̂.
//
// A Mover represents a covariance C. Given changes of γ and b it computes variances and means. A
// Base is a Mover at the prior. Three methods are required; base.go lists the optional ones.
//
// A Problem minimises KL(q‖cavity) − ΣE[ℓ] over the sites of some terms, with the others fixed:
// over all terms with the prior, or over a block with a cavity. It uses only the Mover.
//
// An Algebra is q with its updates, as the Solver drives it. Sites is the Algebra of any Base.
// Built on it are the GP (DenseAlgebra), linear models in as many variables as rows
// (DualAlgebra), in their weights (WeightAlgebra), and in the span of few rows (SpanAlgebra). For
// diagonal and low-rank covariances the sites do not determine q; FactoredAlgebra optimises means
// and factors by L-BFGS.
//
// A Proof bounds how many nats the ELBO of q is below that of the best q of its family. It
// requires that ℓ is concave. By duality any γ ≥ 0 and a of a concave model give a bound, and the
// targets of q are such a pair. The gap is ½cᵀCc for the mean, with c = a − α̂, plus tr(Δ) −
// log|I + Δ| for the precisions, where Δ is the change from γ to γ̂ in units of V. See moveProof,
// and gap.go of package term for bounds by rows.
//
// # Several latent values
//
// A term may have K latent values, such as the scores of classes. Element n·K + k of a state is
// then value k of term n; batches name terms, movers see elements. The covariance of the sites is
// diagonal, and so is what they say of the curvature of a term. An aimer knows the rest: it says
// where the means should go, and may say where the precisions should. Mixtures are then of
// (log γ, m), and steps that need one latent value are not taken. The two of a
// softmax of two classes have the expectations of a logit.
//
// There are two such bases, both contrast mean fields: contrast of a linear model, and contrastGP
// of functions. The first step of a linear model is to the sites at the mode of the means, found by
// L-BFGS without covariances (contrast_start.go). Expectations are coarse far from the optimum
// (coarse.go), and a proof waits until the gap is small (contrast_proof.go). If two classes are
// stuck, the logit of their difference is solved instead (contrast_two.go).
//
// # Steps
//
// A step with a given β is that of the paper, in closed form, by Aim, Try, Halve and Take.
// Without a β, Problem.Stride tries several kinds of steps and accepts only those that raise the
// ELBO. On ordinary data it takes steps of the first row only, for 4 to 15 passes. The other rows
// are for starts where exponentials overflow, and for slow convergence.
//
//	step        moves to                                     when
//	target      γ̂ and α̂, or part of the way there            always; first a mixture of the earlier
//	            (advance, halve)                             ones (Anderson acceleration, siteMix)
//	outerStep   the best mean for V, then V's own sites      a pass over V costs far more than one
//	                                                         over the means (weights)
//	leap        Newton's step in (m, V)                      the predicted gain fell by less than a
//	                                                         factor of 3 in six passes
//	alone       the optimum of each site by itself           far away: a target is only a factor of e
//	                                                         away
//	narrow      the same means, variances below 1            expectations overflow
//	stretch     twice the means and standard deviations      several latent values, where steps are
//	                                                         slow
//	walk        the solution by rates, in the dual           likelihoods of one exponential, where the
//	                                                         others fail
//	mode        the mode of the means                        terms contradict each other by more nats
//	                                                         than float64 has digits for
//	escape      alone, or the mode                           the state predicts no gain at all
//
// In 20,000 random problems, 16,000 of which use this engine, all take targets, 11,700 a mixture,
// 2,240 leap, 1,630 (advance) and 720 (when slow) targets of single sites, 410 walk, 350 alone,
// 118 an outer step, 57 narrow, and 26 mode.
package site
