// Package pgsvi fits Bayesian models by variational inference with proximal-gradient steps (PG-SVI):
// regression, classification, Gaussian processes, clustering, topic models and models of your own.
// To fit a standard model without tuning, call NewGLM, NewGP, NewMixture or NewCTM; see "Where to
// start" below.
//
// # The iteration
//
// The approximation q(z|λ) of a posterior maximizes the evidence lower bound (ELBO). The negative
// ELBO is the sum of a difficult part f and an easy convex part h. A step linearizes f with a
// gradient, which may be a Monte Carlo estimate from a mini-batch, and keeps h exact. A divergence D
// keeps the step short:
//
//	λ_{k+1} = argmin_λ  λᵀ∇̂f(λ_k) + h(λ) + D(λ‖λ_k)/β_k
//
// (Khan, Babanezhad, Lin, Schmidt and Sugiyama, "Faster Stochastic Variational Inference using
// Proximal-Gradient Methods with General Divergence Functions", UAI 2016.)
//
//	paper            this package
//	f + h = −ELBO    Objective{F, H, Init}; or GP.Objective, GLM.Objective
//	λ                Dist.Params, in the Coordinates of the family
//	f, ∇̂f            Smooth; from a log-likelihood by Expect and an Estimator, by Conjugate or Graph
//	h                Convex; KLTo, NaturalPrior, LaplacePrior, L1, Zero, SumOf
//	D                Divergence; KL, Euclidean, ReverseKL, SymKL, Bregman, DivergenceFunc; Adaptive
//	β_k, r           Schedule, Solver.StepSize; r = 1/(1+β)
//	−f − h           Evaluation.ELBO, Result.ELBO (natural logarithms: nats)
//	mini-batch       Solver.BatchSize, Sampler
//	G_k              Iteration.GradMap
//	γ̃_n, b̃_n         the site parameters of a GP or of the rows of a GLM; γ̃ is a precision
//	α_n, γ_n         −∂E/∂m and −∂²E/∂m² of Expectation (not the α of assumption A6)
//	A1–A6            CheckConvex, CheckDivergence; Certificate, also for Propositions 1 to 3
//
// Choices of (f, h, D) give gradient descent, mirror descent, natural gradients, trust regions and
// proximal methods; see the table at Prox. A divergence that changes from step to step gives AdaGrad,
// RMSprop, Adadelta and Adam; see Adaptive. The examples of Solver run each method, and docs/paper.md
// follows the paper section by section.
//
// # Where to start
//
//	you have                                     use
//	a file (CSV, JSON), columns of any type      package data: Table.Model, Predictor
//	no time to write Go                          the command cmd/pgsvi
//	rows of features (tabular data)              NewGLM: linear, logistic, Poisson regression
//	groups (random effects), curves (GAM)        package formula; data.Table.Model fits it
//	three classes or more (multi-class)          Softmax, in NewGLM, NewGP or NewSparseGP
//	labels, counts or values at points           NewGP; NewSparseGP above a few thousand rows
//	many zeros, durations, proportions           ZeroInflated, Hurdle, Weibull, LogNormal, Beta
//	more rows than memory                        NewGLMRows, NewSparseGPRows (out of core)
//	data on many machines (distributed)          NewGLMRounds, NewSparseGPRounds, NewCTMRounds
//	a data stream                                NewGLMStream, NewCTMStream (online learning)
//	documents                                    NewCTM, NewCTMStream, NewLDA (topic models)
//	rows to cluster                              NewMixture (Gaussian mixture)
//	unknown hyperparameters                      GP.Learn, GLM.Learn, SparseGP.Learn
//	models to compare or to check                CompareLOO, CrossValidate, PSIS, PredictiveCheck
//	predictions with intervals                   Prediction, made by the method At of a posterior
//	a prediction to explain                      GLMPosterior.Explain, MarginalEffects, Summary
//	your own log-likelihood                      Objective with Expect and LogLik
//	your own model with local variables          Objective with Conjugate
//	unknowns of several kinds that interact      Graph: blocks of unknowns and factors
//	a posterior that is not Gaussian             Objective with NewGamma and others, or a Family
//	your own divergence                          DivergenceFunc, Solver.Divergence
//
// # Fit a model
//
// NewGLM, NewGP and similar functions make a model. Its method Fit returns the posterior, which
// predicts new rows, and a Result, which reports how close the fit is to the optimum:
//
//	model, err := pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{}, nil)
//	...
//	post, res, err := model.Fit(ctx, nil) // a nil Solver needs no tuning
//	...
//	fmt.Print(res, "\n", post.Summary())
//	p := post.Prob(nil, +1, xnew) // P(y = +1) for each row of xnew
//
// Fit approximates the posterior by a simpler distribution, q, and maximizes the evidence lower
// bound (ELBO) over q. Result.ELBO is the bound in nats, and Result.GapBound is a proved limit on
// how far it is from its maximum. GLMs and GPs have a finite GapBound if the likelihood is
// log-concave, except for a GP with Softmax. Topic models have many local maxima, so their GapBound
// is +Inf, and Result.Gap estimates what further passes would add.
//
// Learn also finds the hyperparameters of the kernel, the prior and the likelihood (empirical
// Bayes, type-II maximum likelihood). It starts from the values in the model and chooses those
// that are zero from the data. It maximizes the ELBO plus weak default priors, and returns an
// interval for each hyperparameter:
//
//	gp, err := pgsvi.NewGP(x, y, pgsvi.SquaredExp{}, pgsvi.BernoulliLogit{}, nil)
//	...
//	gp, post, learned, err := gp.Learn(ctx, nil, nil)
//	...
//	fmt.Print(learned) // the hyperparameters, their intervals and their priors
//
// # Models, Steppers and Solvers
//
// A Model describes the data and the prior: GP, SparseGP, GLM, CTM, LDA, Mixture or Objective. A
// Stepper holds the current approximation and improves it step by step. A Solver runs the loop
// with mini-batches, step sizes, early stopping, recording and cancellation. The zero Solver lets
// the Stepper choose its own steps, and the Stepper accepts a step only if it makes progress.
//
// A Stream has no Solver, because it reads each row or document once.
//
// GP, SparseGP and GLM share one engine, package internal/site, and its documentation explains the
// algorithm. CONTRIBUTING.md lists all packages and explains how to add a kernel, a likelihood, a
// divergence or a covariance structure.
//
// # Errors
//
// Functions return an error if the data are bad or a computation fails. Each error wraps a
// sentinel of this package, which errors.Is matches, and names the row, the iteration or the step
// size. Functions panic only on mistakes of the caller that their doc comments warn of, such as a
// dst of the wrong length. A run that reaches a limit returns a Status and no error. An ELBO that
// was not evaluated is NaN.
//
// # Conventions
//
// Functions copy the slices and matrices passed to them, or do not keep them, unless a comment
// says otherwise. A function with an argument dst stores its result there and returns dst; a nil
// dst allocates.
//
// All random numbers come from Solver.Src, a source of math/rand/v2. Nil means a fixed seed. The
// same seed gives the same bits for any GOMAXPROCS and any Solver.Workers.
//
// Models and posteriors are immutable and safe for concurrent use. Steppers, Solvers, and
// distributions that are being changed are not.
//
// Posteriors, Streams, Exp and Gaussian have a method Save, and Load restores them to the same
// bits. Load returns an error that wraps ErrFile if the file is damaged, holds another type, or
// comes from a newer release. Register adds your own kernels, likelihoods and families.
// Result.Save and Solver.Checkpoint save a run in progress; Solver.LoadResult and Solver.Resume
// continue it to the same bits as a run without interruption.
//
// The package multiplies gradients of mini-batches by N/len(batch), for N rows.
package pgsvi
