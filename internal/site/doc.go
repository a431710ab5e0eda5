// Package site fits models whose terms have one latent value each, or K latent values each: GP, GLM
// and SparseGP, and their softmax models.
//
// # Concepts
//
// A term is w log p(y|o + η + ε): a response y with offset o and weight w, and a likelihood.
// Package term stores the N terms of a model. It is the only place where a likelihood meets its
// responses.
//
// A site is the Gaussian factor exp(bη − ½γη²) that stands for a term. The approximation q is the
// prior times one site per term,
//
//	V⁻¹ = C⁻¹ + diag(γ),   V⁻¹m = C⁻¹m0 + b.
//
// At the optimum γ_n = −E[ℓ″] and b_n = E[ℓ′] + γ_n m_n, where ℓ is the log-likelihood of term n
// and the expectation is over its own marginal of q (Opper and Archambeau, 2009). Terms.Expect of
// package term computes both. They are the target of the site, because a step moves the site to
// them. With a = b − γm the two conditions are γ = γ̂ and a = α̂, where γ̂ = −E[ℓ″] and α̂ = E[ℓ′].
// The predicted gain is the ELBO that a step should add, in nats. Most engines compute it from the
// distance of the sites from their targets.
//
// A Mover represents a covariance C. Given changes of γ and b it computes variances and means. A
// Base is a Mover at the prior. Three methods are required; base.go lists the optional methods.
//
// A Problem minimizes KL(q‖cavity) − ΣE[ℓ] over the sites of some terms, with the others fixed:
// over all terms with the prior, or over a block with a cavity. It uses only the Mover.
//
// An Algebra is q with its updates, and the Solver drives it. BaseAlgebra is the Algebra of any
// Base. Five algebras build on it: DenseAlgebra for GPs, DualAlgebra for linear models with at
// least as many weights as rows, WeightAlgebra for linear models in their weights, SpanAlgebra for
// linear models in the span of few rows, and ArrowAlgebra for mixed models. Sites do not determine
// diagonal and low-rank covariances, so FactoredAlgebra optimizes means and factors by L-BFGS.
//
// A Proof bounds the gap: how many nats the ELBO of q is below the best ELBO of its family. It
// requires that ℓ is concave. By duality any γ ≥ 0 and a of a concave model give a bound, and the
// targets of q are such a pair. The gap bound is ½cᵀCc for the mean, with c = a − α̂, plus
// tr(Δ) − log|I + Δ| for the precisions, where Δ is the change from γ to γ̂ in units of V. See
// moveProof, and gap.go of package term for bounds by rows.
//
// # Softmax models
//
// A term of a softmax model has K latent values, the scores of its classes. Element n·K + k of a
// state is value k of term n. A batch lists terms, but a Mover works with elements. The sites have
// a diagonal precision, so they miss the curvature between the values of a term. The aim method of
// an aimer (base.go) adds it: it computes where the means should move, and may also replace the
// target precisions. Anderson acceleration then mixes (log γ, m), and steps that need a single
// latent value are skipped. A softmax model of two classes has the expectations of a logit.
//
// softmaxBase fits linear models by contrast mean field. A GP is a linear model in the pivoted factor
// of its covariance. softmaxGPBase (softmax_gp.go) embeds softmaxBase for it, and restricts the
// precisions to sites. The first step goes to the sites at the mode of the means, which L-BFGS
// finds without covariances (softmax_start.go). Expectations are coarse far from the optimum
// (coarse.go), and a proof waits until the gap is small (softmax_proof.go). If a fit of two classes
// is stuck, the logit of their difference is solved instead (softmax_two.go).
//
// # Steps
//
// A step with a given β is the step of the paper, in closed form, by Aim, Try, Halve and Take.
// Without a β, Problem.Stride tries several steps and accepts only those that raise the ELBO. On
// ordinary data it takes only steps of the first row of this table, for 4 to 15 passes. The other
// rows are for starts where exponentials overflow, and for slow convergence. The tables of moves in
// problem_stride.go list the steps in the order in which they are tried, with their conditions.
//
//	step        moves to                                     when
//	target      γ̂ and α̂, or part of the way there            always; first a mixture of the earlier
//	            (toTarget, halve)                            ones (Anderson acceleration, siteMix)
//	outerStep   the best mean for V, then V's own sites      a pass over V costs far more than one
//	                                                         over the means (weights)
//	ahead       Newton's L, and the sites that follow it     mixed models with few rows per level, or
//	                                                         whose L converges slowly
//	leap        Newton's step in (m, V)                      the predicted gain fell by less than a
//	                                                         factor of 3 in six passes
//	alone       the optimum of each site by itself           far away, where a target is only a
//	                                                         factor of e away
//	narrow      the same means, variances below 1            expectations overflow
//	stretch     twice the means and standard deviations      softmax models with slow steps
//	walk        the solution by rates, in the dual           likelihoods with one exponential, if the
//	                                                         others fail
//	mode        the mode of the means                        terms contradict each other by more nats
//	                                                         than float64 has digits for
//	escape      alone, or the mode                           the state predicts no gain at all
//
// Of 20,000 random problems 16,000 use this engine. All of them take targets, 11,700 a mixture,
// 2,240 leap, 1,630 (Iterate) and 720 (when slow) targets of single sites, 410 walk, 350 alone,
// 118 an outer step, 57 narrow, and 26 mode.
//
// The rarest two were tested by leaving them out, on 40,000 other problems. 248 of these try
// narrow. Without narrow, three more fits do not converge, and one of the three ends 1e10 nats from
// an optimum that narrow reaches. 69 try mode. Without mode, two problems with a known optimum
// return an error, four more fits do not converge, and one reports an infinite gap.
package site
