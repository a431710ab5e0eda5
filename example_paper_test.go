package pgsvi_test

import (
	"context"
	"fmt"
	"log"

	"gonum.org/v1/gonum/mat"

	"github.com/pgsvi/pgsvi"
)

// The examples of this file run the algorithms of Khan et al. (2016) and the methods that they
// generalize, each on the logistic regression of doseModel. They reach the same ELBO, so each of
// them is a choice of how to get there. The page docs/paper.md has their equations.

// doseModel is the logistic regression of doses as an Objective: f is the sum of −E_q[log p(y_n|z)]
// with exact expectations, and h is KL(q‖p) to the prior p = N(0, 4I).
func doseModel() pgsvi.Objective[*pgsvi.Gaussian] { return doseModelBy(nil) }

// doseModelBy is doseModel with the expectations of e.
func doseModelBy(e pgsvi.Estimator) pgsvi.Objective[*pgsvi.Gaussian] {
	x, y := doses()
	prior := pgsvi.NewIsotropic(2, 4)
	return pgsvi.Objective[*pgsvi.Gaussian]{
		F:    pgsvi.Expect(pgsvi.Sites{X: x, Y: y, Lik: pgsvi.BernoulliLogit{}}, e),
		H:    pgsvi.KLTo(prior),
		Init: prior,
	}
}

// Gradient descent linearizes the whole negative ELBO (h = 0) and measures the step by the
// Euclidean distance, here between means and Cholesky factors.
func ExampleSolver_gradientDescent() {
	m := doseModel().Linearized()
	m.Init = m.Init.In(pgsvi.Cholesky)
	s := pgsvi.Solver{Divergence: pgsvi.Euclidean(), StepSize: pgsvi.ConstantStep(0.3)}
	_, res, err := m.Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ELBO %.3f\n", res.ELBO)
	// Output: ELBO -9.668
}

// Stochastic gradient descent (SGD) is gradient descent with mini-batches and decreasing steps.
func ExampleSolver_stochasticGradient() {
	m := doseModel().Linearized()
	m.Init = m.Init.In(pgsvi.Cholesky)
	s := pgsvi.Solver{
		Divergence: pgsvi.Euclidean(),
		BatchSize:  4,
		StepSize:   pgsvi.RobbinsMonro(0.1, 10, 0.7),
	}
	_, res, err := m.Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ELBO %.3f\n", res.ELBO)
	// Output: ELBO -9.668
}

// Mirror descent measures the step by a Bregman divergence. ReverseKL is the Bregman divergence of
// the log-partition function, so steps in natural parameters move the mean parameters.
func ExampleSolver_mirrorDescent() {
	m := doseModel().Linearized()
	m.Init = m.Init.In(pgsvi.Natural)
	s := pgsvi.Solver{Divergence: pgsvi.ReverseKL(), StepSize: pgsvi.ConstantStep(0.5)}
	_, res, err := m.Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ELBO %.3f\n", res.ELBO)
	// Output: ELBO -9.668
}

// Natural gradient descent linearizes the whole negative ELBO in mean parameters and measures the
// step by the KL divergence. Each step adds a multiple of the natural gradient to the natural
// parameters.
func ExampleSolver_naturalGradient() {
	m := doseModel().Linearized()
	s := pgsvi.Solver{Divergence: pgsvi.KL(), StepSize: pgsvi.ConstantStep(0.5)}
	_, res, err := m.Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ELBO %.3f\n", res.ELBO)
	// Output: ELBO -9.668
}

// Stochastic variational inference (SVI) takes natural gradient steps of decreasing size on
// mini-batches (Hoffman et al., 2013). FractionStep has their step sizes ρ_k = (delay + k)^−power.
func ExampleFractionStep() {
	s := pgsvi.Solver{BatchSize: 4, StepSize: pgsvi.FractionStep(10, 0.7)}
	_, res, err := doseModel().Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ELBO %.3f\n", res.ELBO)
	// Output: ELBO -9.668
}

// A trust-region step (Theis and Hoffman, 2015) linearizes f several times and keeps the distance
// to the start of the step, so it comes close to the exact minimum of −ELBO + KL/β. It also works
// with mini-batches.
func ExampleObjective_trustRegion() {
	m := doseModel()
	m.Inner = 5
	s := pgsvi.Solver{StepSize: pgsvi.ConstantStep(1)}
	_, res, err := m.Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ELBO %.3f\n", res.ELBO)
	// Output: ELBO -9.668
}

// A step of the proximal point method minimizes −ELBO + KL(q‖q_k)/β without any linearization.
func ExampleObjective_ProximalPoint() {
	m := doseModel()
	m.Init = m.Init.In(pgsvi.Cholesky) // in which f is convex
	s := pgsvi.Solver{StepSize: pgsvi.ConstantStep(10)}
	_, res, err := m.ProximalPoint().Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ELBO %.3f\n", res.ELBO)
	// Output: ELBO -9.668
}

// The proximal-gradient method (PG; Khan et al., 2015) linearizes f, the expected log-likelihood,
// and keeps h, the divergence from the prior, exact.
func ExampleSolver_proximalGradient() {
	s := pgsvi.Solver{Divergence: pgsvi.KL(), StepSize: pgsvi.ConstantStep(1)}
	_, res, err := doseModel().Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ELBO %.3f\n", res.ELBO)
	// Output: ELBO -9.668
}

// The proximal-gradient method with mini-batches and exact expectations.
func ExampleSolver_proximalGradientMiniBatch() {
	s := pgsvi.Solver{BatchSize: 4, StepSize: pgsvi.RobbinsMonro(0.3, 10, 0.7)}
	_, res, err := doseModel().Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ELBO %.3f\n", res.ELBO)
	// Output: ELBO -9.668
}

// PG-MC estimates the expectations of all rows by draws from q with the score function.
func ExampleSolver_proximalGradientMonteCarlo() {
	m := doseModelBy(pgsvi.ScoreFunction(100))
	s := pgsvi.Solver{StepSize: pgsvi.FractionStep(10, 0.7)}
	_, res, err := m.Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ELBO %.3f\n", res.ELBO)
	// Output: ELBO -9.668
}

// PG-SVI estimates the gradient of f from the draws of q and from a mini-batch. The steps in mean
// parameters, the default, are the updates of the main text.
func ExampleSolver_pgSVI() {
	m := doseModelBy(pgsvi.ScoreFunction(100))
	s := pgsvi.Solver{BatchSize: 4, StepSize: pgsvi.FractionStep(10, 0.7)}
	_, res, err := m.Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ELBO %.3f\n", res.ELBO)
	// Output: ELBO -9.668
}

// PG-SVI in the coordinates (m, V) has the updates of the paper's appendix.
func ExampleSolver_pgSVIAppendix() {
	m := doseModelBy(pgsvi.ScoreFunction(100))
	m.Init = m.Init.In(pgsvi.MeanCov)
	s := pgsvi.Solver{BatchSize: 4, StepSize: pgsvi.FractionStep(10, 0.7)}
	_, res, err := m.Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ELBO %.3f\n", res.ELBO)
	// Output: ELBO -9.668
}

// PG-SVI-MF is PG-SVI with a diagonal V (mean field). It reaches the best diagonal q, whose ELBO is
// lower because q ignores the correlation of the intercept and the slope.
func ExampleSolver_pgSVIMeanField() {
	m := doseModelBy(pgsvi.ScoreFunction(100))
	m.Init = pgsvi.NewIsotropicMeanField(2, 4)
	s := pgsvi.Solver{BatchSize: 4, StepSize: pgsvi.FractionStep(10, 0.7), MaxPasses: 200}
	_, res, err := m.Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	best := doseModel()
	best.Init = m.Init
	_, exact, err := best.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ELBO %.3f, best diagonal q %.3f\n", res.ELBO, exact.ELBO)
	// Output: ELBO -9.674, best diagonal q -9.674
}

// A GLM takes the steps of PG-SVI if the Solver has a step size. Coordinates selects the update of the
// mean in the main text or in the appendix, and Covariance selects a full or a diagonal V.
func ExampleGLM_published() {
	rows, y := doses()
	x := mat.NewDense(len(rows), 2, nil)
	for i, row := range rows {
		x.SetRow(i, row)
	}
	for _, update := range []pgsvi.Coordinates{pgsvi.MeanParams, pgsvi.MeanCov} {
		m, err := pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{}, &pgsvi.GLMOptions{PriorSD: 2,
			Estimator: pgsvi.ScoreFunction(100), Coordinates: update})
		if err != nil {
			log.Fatal(err)
		}
		s := pgsvi.Solver{BatchSize: 4, StepSize: pgsvi.FractionStep(10, 0.7), MaxPasses: 200}
		_, res, err := m.Fit(context.Background(), &s)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("ELBO %.3f\n", res.ELBO)
	}
	// Output:
	// ELBO -9.668
	// ELBO -9.668
}

// The topic-model experiment of the paper has two documents per batch and one step per visit with
// β = 0.001, so q(z) hardly moves in five passes. The default options take longer steps.
func ExampleCTM_published() {
	c := &pgsvi.Corpus{Terms: 6}
	for n := range 20 {
		first := 3 * (n % 2)
		c.Docs = append(c.Docs, pgsvi.Document{Words: []int{first, first + 1, first + 2},
			Counts: []float64{6, 4, float64(1 + n%3)}})
	}
	for _, opt := range []pgsvi.CTMOptions{{Paper: true}, {}} {
		m, err := pgsvi.NewCTM(c, 2, &opt)
		if err != nil {
			log.Fatal(err)
		}
		post, _, err := m.Fit(context.Background(), &pgsvi.Solver{MaxPasses: 5})
		if err != nil {
			log.Fatal(err)
		}
		share, _, _ := post.Doc(0).Proportions(0.95)
		fmt.Printf("topics of a document %.1f\n", share)
	}
	// Output:
	// topics of a document [0.4 0.6]
	// topics of a document [0.0 1.0]
}

// Three PG steps of a Gaussian process by hand, in the form of the main text. The site of row n is
// exp(b̃_n z − ½γ̃_n z²), so V⁻¹ = K⁻¹ + diag(γ̃) and m = V b̃. A step linearizes
// −E_q[log p(y_n|z_n)], whose derivatives in the mean are α_n and γ_n, and averages the sites.
func ExampleCoordinates() {
	x, y := mat.NewDense(3, 1, []float64{-1, 0, 2}), []float64{-1, 1, 1}
	kernel, lik := pgsvi.SquaredExp{Scale: 2, Length: 1}, pgsvi.BernoulliLogit{}
	const beta = 0.5
	const r = 1 / (1 + beta)

	k := pgsvi.Gram(nil, kernel, x)
	var kInv, v mat.Dense
	if err := kInv.Inverse(k); err != nil {
		log.Fatal(err)
	}
	v.CloneFrom(k)
	m, b, gamma := mat.NewVecDense(3, nil), mat.NewVecDense(3, nil), make([]float64, 3)
	for range 3 {
		p := mat.DenseCopyOf(&kInv) // V⁻¹
		for n := range y {
			e := pgsvi.ExpectLogProb(lik, y[n], m.AtVec(n), v.At(n, n))
			gamma[n] = r*gamma[n] + (1-r)*-e.D2
			b.SetVec(n, r*b.AtVec(n)+(1-r)*(-e.D2*m.AtVec(n)+e.D1)) // γm − α
			p.Set(n, n, p.At(n, n)+gamma[n])
		}
		if err := v.Inverse(p); err != nil {
			log.Fatal(err)
		}
		m.MulVec(&v, b)
	}
	fmt.Printf("by hand: γ̃ %.4f, m %.4f\n", gamma, m.RawVector().Data)

	gp, err := pgsvi.NewGP(x, y, kernel, lik, nil)
	if err != nil {
		log.Fatal(err)
	}
	s := pgsvi.Solver{StepSize: pgsvi.ConstantStep(beta), MaxIter: 3}
	post, _, err := gp.Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	gamma, _ = post.Sites(nil, nil)
	mean, _ := post.Train(nil, nil)
	fmt.Printf("GP.Fit:  γ̃ %.4f, m %.4f\n", gamma, mean)
	// Output:
	// by hand: γ̃ [0.1135 0.1132 0.1078], m [-0.4791 0.5582 1.0753]
	// GP.Fit:  γ̃ [0.1135 0.1132 0.1078], m [-0.4791 0.5582 1.0753]
}
