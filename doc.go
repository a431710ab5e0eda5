// Package pgsvi fits Bayesian models by proximal-gradient stochastic
// variational inference (Khan, Babanezhad, Lin, Schmidt and Sugiyama, "Faster
// Stochastic Variational Inference using Proximal-Gradient Methods with General
// Divergence Functions", UAI 2016).
//
// # Where to start
//
//	you have                                       use
//	labels, counts or values at points             NewGP, and NewSparseGP beyond some thousands
//	rows of features, dense or sparse              NewGLM
//	more rows than memory holds, or a stream       NewGLMStream
//	documents                                      NewCTM, NewCTMStream; NewLDA
//	rows of several kinds that nobody has told     NewMixture
//	a model of your own with local variables       Objective with Conjugate
//	a log-likelihood of your own                   Objective with Expect and LogLik
//	posteriors that are not Gaussian               Objective with a Family of yours and NewExp
//	a divergence of your own                       DivergenceFunc, Solver.Divergence
//	a file                                         package data
//	hyper-parameters that nobody has told you      GP.Learn, GLM.Learn or GLMOptions.Learn
//	doubts of a posterior                          PSIS and LOO of its GP, GLM or Objective
//
// Fit with a nil Solver needs no tuning and says how close to the optimum it got:
//
//	gp, err := pgsvi.NewGP(x, y, pgsvi.SquaredExp{Scale: 2, Length: 1.5}, pgsvi.BernoulliLogit{}, nil)
//	post, res, err := gp.Fit(ctx, nil) // res.ELBO, res.GapBound in nats
//	p := post.Prob(nil, +1, xnew) // post.At(xnew) says more
//
// Learn with nil options needs no hyper-parameters either: it finds those of kernel, prior and
// likelihood with the greatest ELBO under weak priors, from where their fields are set or the data
// suggest, and says how sure it is of each:
//
//	gp, err = pgsvi.NewGP(x, y, pgsvi.SquaredExp{}, pgsvi.BernoulliLogit{}, nil)
//	gp, post, learned, err := gp.Learn(ctx, nil, nil) // learned.Params
//
// # The iteration
//
// An approximation q(z|λ) of a posterior maximises the evidence lower bound
// (ELBO). Its negative is split into a difficult part f, which is linearised
// with a gradient that may be a Monte Carlo estimate from a mini-batch, and an
// easy convex part h, which is kept exact; a divergence D keeps the step close:
//
//	λ_{k+1} = argmin_λ  λᵀ∇̂f(λ_k) + h(λ) + D(λ‖λ_k)/β_k
//
// Choices of (f, h, D) give gradient descent, mirror descent, natural
// gradients, trust regions and proximal methods; see the table at Prox. With a D
// that changes from step to step they give AdaGrad, RMSprop, Adadelta and Adam; see Adaptive.
//
//	paper            here
//	λ                Dist.Params; its coordinates are a property of the family (Coordinates)
//	f, ∇̂f            Smooth; made from a log-likelihood by Expect and an Estimator, or by Conjugate
//	h                Convex; KLTo, L1, Zero
//	D                Divergence; KL, Euclidean, Diagonal, ReverseKL, SymKL, Bregman, DivergenceFunc; Adaptive
//	β_k, r           Schedule, Solver.StepSize; r = 1/(1+β)
//	the ELBO, −f−h   Evaluation.ELBO, Result.ELBO (natural logarithms: nats)
//	γ̃_n, b_n         the site parameters of a GP and of the rows of a GLM; γ̃ is a precision
//	α_n, γ_n         −∂E/∂m and −∂²E/∂m² of Expectation (this α is not that of A6)
//	G_k              Iteration.GradMap
//	mini-batch       Sampler, Solver.BatchSize
//
// # Three nouns
//
// A Model says how to begin: an Objective, a GP, a SparseGP, a GLM, a CTM, an LDA or a Mixture. A
// Stepper holds λ_k and takes steps. A Solver owns the one loop of the package: mini-batches, step
// sizes, stopping, recording, cancellation. The zero Solver needs no tuning: with a nil StepSize
// the Stepper chooses its steps and accepts only those that it can answer for.
//
// Rows that arrive one at a time, and more of them than memory holds, need no
// Solver: GLMStream sees each of them once, and CTMStream each document.
//
// # Inside
//
// Models of one latent value a term (GP, SparseGP, GLM) share one engine, internal/site, whose
// documentation says what its terms, sites, movers and proofs are, and which step comes when.
// CONTRIBUTING.md has the map of all packages, and says how to add a kernel, a likelihood, a
// divergence or a structure of covariance.
//
// # Contracts
//
// Errors. Bad data and numerical failure are errors that wrap a sentinel of this
// package, matched by errors.Is, and name the datum, the iteration and the
// step size. A panic means a mistake that the doc comment warns of, such as a
// dst of the wrong length. A limit that was reached is a Status and no error. An
// ELBO that was not evaluated is NaN.
//
// Ownership. Slices and matrices that are passed in are copied or not kept,
// unless a comment says otherwise. A result stored in dst is dst; a nil dst allocates.
//
// Randomness. All of it comes from Solver.Src, a source of math/rand/v2; nil
// means a fixed seed. The same seed gives the same bits for any GOMAXPROCS and
// any Solver.Workers.
//
// Concurrency. A Model and a posterior are immutable and safe to share; a
// Stepper, a Solver and a Dist that is being changed are not.
//
// Files. A posterior and a Stream have Save, and Load reads what Save has
// written, to the same bits. A file that is not one, is damaged, or is of a newer
// release is an error that wraps ErrFile. See Register for kernels and likelihoods of
// your own. A run that is under way is saved by Result.Save, or as it goes by
// Solver.Checkpoint, and goes on from Solver.LoadResult to the bits that it would have had.
//
// Scale. N belongs to the data: gradients of mini-batches are scaled by
// N/len(batch) inside, and there is no scale argument.
package pgsvi
