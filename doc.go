// Package pgsvi fits Bayesian models by variational inference: regression, classification,
// Gaussian processes, clustering and topic models. A posterior distribution is approximated by a
// simpler one, q, and each fit says how close q is to the best choice. The method is that of
// Khan, Babanezhad, Lin, Schmidt and Sugiyama, "Faster Stochastic Variational Inference using
// Proximal-Gradient Methods with General Divergence Functions", UAI 2016.
//
// # Where to start
//
//	you have                                     use
//	a file (CSV, JSON), columns of any kind      package data: Table.Model, Predictor
//	no wish to write Go                          the command cmd/pgsvi
//	rows of features (tabular data)              NewGLM: linear, logistic, Poisson regression
//	groups (random effects), curves (GAM)        package formula; data.Table.Model fits it
//	three classes or more (multi-class)          Softmax, in NewGLM, NewGP or NewSparseGP
//	labels, counts or values at points           NewGP; NewSparseGP above a few thousand rows
//	counts with zeros, durations, proportions    ZeroInflated, Hurdle, Weibull, LogNormal, Beta
//	more rows than memory                        NewGLMRows, NewSparseGPRows (out of core)
//	data on many machines (distributed)          NewGLMRounds, NewSparseGPRounds, NewCTMRounds
//	a data stream                                NewGLMStream, NewCTMStream (online learning)
//	documents                                    NewCTM, NewCTMStream, NewLDA (topic models)
//	rows to cluster                              NewMixture (Gaussian mixture)
//	unknown hyper-parameters                     GP.Learn, GLM.Learn, SparseGP.Learn
//	models to compare or to check                CompareLOO, CrossValidate, PSIS, PredictiveCheck
//	a prediction to explain                      Prediction.ProbInterval, Interval; GLMPosterior's
//	                                             Explain, MarginalEffects, Summary
//	a log-likelihood of your own                 Objective with Expect and LogLik
//	a model of your own with local variables     Objective with Conjugate
//	a posterior that is not Gaussian             Objective with NewGamma and others, or a Family
//	a divergence of your own                     DivergenceFunc, Solver.Divergence
//
// Fit with a nil Solver needs no tuning. The Result says how close to the optimum the fit is:
//
//	k := pgsvi.SquaredExp{Scale: 2, Length: 1.5}
//	gp, err := pgsvi.NewGP(x, y, k, pgsvi.BernoulliLogit{}, nil)
//	post, res, err := gp.Fit(ctx, nil) // res.ELBO and res.GapBound are in nats
//	p := post.Prob(nil, +1, xnew)      // post.At(xnew) offers more kinds of predictions
//
// Topic models have many local maxima, and no fit proves how far it is from the best: GapBound is
// +Inf. The Gap of an LDA or a CTM estimates what further passes would gain.
//
// Learn finds the hyper-parameters of kernel, prior and likelihood (empirical Bayes, type-II
// maximum likelihood). It maximises the ELBO plus weak default priors, which it prints. It starts
// from the values in the model; zeros are chosen from the data. It also returns an interval for
// each of them:
//
//	gp, err = pgsvi.NewGP(x, y, pgsvi.SquaredExp{}, pgsvi.BernoulliLogit{}, nil)
//	gp, post, learned, err := gp.Learn(ctx, nil, nil) // learned.Params
//
// # Models, Steppers and Solvers
//
// A Model describes the data and the prior: GP, SparseGP, GLM, CTM, LDA, Mixture or Objective. A
// Stepper holds the current approximation and improves it by steps. A Solver runs the loop:
// mini-batches, step sizes, early stopping, recording and cancellation. The zero Solver lets the
// Stepper choose its own steps; the Stepper accepts a step only if it makes progress.
//
// A GLMStream or a CTMStream needs no Solver: it sees each row or document once.
//
// # The iteration
//
// An approximation q(z|λ) of a posterior maximises the evidence lower bound (ELBO). The negative
// ELBO is the sum of a difficult part f and an easy convex part h. A step linearises f with a
// gradient, which may be a Monte Carlo estimate from a mini-batch, and keeps h exact. A
// divergence D keeps the step short:
//
//	λ_{k+1} = argmin_λ  λᵀ∇̂f(λ_k) + h(λ) + D(λ‖λ_k)/β_k
//
// Choices of (f, h, D) give gradient descent, mirror descent, natural gradients, trust regions
// and proximal methods; see the table at Prox. A D that changes from step to step gives AdaGrad,
// RMSprop, Adadelta and Adam; see Adaptive.
//
//	paper            here
//	λ                Dist.Params; its coordinates are a property of the family (Coordinates)
//	f, ∇̂f            Smooth; from a log-likelihood by Expect and an Estimator, or by Conjugate
//	h                Convex; KLTo, L1, Zero
//	D                Divergence; KL, Euclidean, Diagonal, ReverseKL, SymKL, Bregman,
//	                 DivergenceFunc; Adaptive
//	β_k, r           Schedule, Solver.StepSize; r = 1/(1+β)
//	the ELBO, −f−h   Evaluation.ELBO, Result.ELBO (natural logarithms: nats)
//	γ̃_n, b_n         the site parameters of a GP and of the rows of a GLM; γ̃ is a precision
//	α_n, γ_n         −∂E/∂m and −∂²E/∂m² of Expectation (this α is not that of A6)
//	G_k              Iteration.GradMap
//	mini-batch       Sampler, Solver.BatchSize
//
// GP, SparseGP and GLM share one engine, package internal/site. Its documentation explains the
// algorithm. CONTRIBUTING.md lists all packages and says how to add a kernel, a likelihood, a
// divergence or a covariance structure.
//
// # Conventions
//
// Errors. Bad data and numerical failure are errors. Each wraps a sentinel of this package, to be
// matched by errors.Is, and names the datum, the iteration or the step size. A panic is a mistake
// of the caller that the doc comment warns of, such as a dst of the wrong length. Reaching a
// limit is a Status, not an error. An ELBO that was not evaluated is NaN.
//
// Ownership. Functions copy the slices and matrices passed to them, or do not keep them, unless a
// comment says otherwise. A function with an argument dst stores its result there and returns
// dst; a nil dst allocates.
//
// Randomness. All random numbers come from Solver.Src, a source of math/rand/v2. Nil means a
// fixed seed. The same seed gives the same bits for any GOMAXPROCS and any Solver.Workers.
//
// Concurrency. A Model and a posterior are immutable and safe for concurrent use. A Stepper, a
// Solver, and a Dist that is being changed are not.
//
// Files. Posteriors and Streams have a method Save. Load restores them to the same bits. A file
// that is of another kind, damaged, or of a newer release is an error that wraps ErrFile.
// Register adds kernels and likelihoods of your own. Result.Save and Solver.Checkpoint save a run
// in progress. Solver.LoadResult and Solver.Resume continue it to the same bits as without the
// interruption.
//
// Scaling. Gradients of mini-batches are multiplied by N/len(batch) inside the package, for N
// rows.
package pgsvi
