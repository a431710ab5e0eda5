package pgsvi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// doses returns a small experiment: rows (1, dose) and whether there was a response.
func doses() (x [][]float64, y []float64) {
	response := []float64{-1, -1, -1, -1, 1, -1, -1, 1, -1, 1, 1, -1, 1, 1, 1, 1}
	for i := range response {
		x = append(x, []float64{1, float64(i)/4 - 2})
	}
	return x, response
}

// This custom model consists of its log-likelihood only. It is a logistic regression with a
// heavy-tailed third parameter, a lapse rate. It needs no derivatives and no tuning.
func Example() {
	x, y := doses()
	ll := pgsvi.LogLik{N: len(y), Dim: 3, LogProb: func(n int, z []float64) float64 {
		lapse := 0.5 / (1 + math.Exp(-z[2]))
		p := 1 / (1 + math.Exp(-y[n]*(z[0]*x[n][0]+z[1]*x[n][1])))
		return math.Log(0.5*lapse + (1-lapse)*p)
	}}
	m := pgsvi.Objective[*pgsvi.Gaussian]{
		F:    pgsvi.Expect(ll, pgsvi.ScoreFunction(200)),
		H:    pgsvi.KLTo(pgsvi.NewIsotropic(3, 4)),
		Init: pgsvi.NewIsotropic(3, 0.1),
	}
	s := pgsvi.Solver{BatchSize: 8, MaxPasses: 200}
	q, res, err := m.Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("slope %.1f, sd %.1f\n", q.Mean(nil)[1], math.Sqrt(q.Var(nil)[1]))
	fmt.Printf("ELBO %.0f\n", res.ELBO)
	// Output:
	// slope 2.2, sd 0.9
	// ELBO -10
}

// Each term depends on z through one number, so its expectations are exact, and the zero Solver
// runs to the optimum without noise.
func ExampleSites() {
	x, y := doses()
	prior := pgsvi.NewIsotropic(2, 4)
	m := pgsvi.Objective[*pgsvi.Gaussian]{
		F:    pgsvi.Expect(pgsvi.Sites{X: x, Y: y, Lik: pgsvi.BernoulliLogit{}}, nil),
		H:    pgsvi.KLTo(prior),
		Init: prior,
	}
	q, res, err := m.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Status)
	fmt.Printf("mean %.3f\n", q.Mean(nil))
	fmt.Printf("ELBO %.4f, gap below 1e-8: %v\n", res.ELBO, res.Gap < 1e-8)
	// Output:
	// converged
	// mean [0.189 1.710]
	// ELBO -9.6675, gap below 1e-8: true
}

// The zero Solver needs no tuning. Set a field to end earlier, to watch the run or to select another
// method. The other examples of Solver show the methods.
func ExampleSolver() {
	s := pgsvi.Solver{Goal: 0.001, MaxPasses: 50}
	_, res, err := doseModel().Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v, ELBO %.2f, gap below 0.001 nats: %t\n", res.Status, res.ELBO, res.Gap <= 0.001)
	// Output: converged, ELBO -9.67, gap below 0.001 nats: true
}

// A caller who decides when to stop runs the loop itself.
func ExampleSolver_Steps() {
	x, y := doses()
	prior := pgsvi.NewIsotropic(2, 4)
	m := pgsvi.Objective[*pgsvi.Gaussian]{
		F:    pgsvi.Expect(pgsvi.Sites{X: x, Y: y, Lik: pgsvi.BernoulliLogit{}}, nil),
		H:    pgsvi.KLTo(prior),
		Init: prior,
	}
	s := pgsvi.Solver{StepSize: pgsvi.ConstantStep(1)}
	run, err := s.Start(context.Background(), m)
	if err != nil {
		log.Fatal(err)
	}
	for it, err := range s.Steps(context.Background(), run) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d: %.3f\n", it.K, it.ELBO)
		if it.K == 4 {
			break
		}
	}
	// Output:
	// 1: -10.035
	// 2: -9.799
	// 3: -9.719
	// 4: -9.689
}

// A new divergence is one function.
func ExampleDivergenceFunc() {
	x, y := doses()
	prior := pgsvi.NewIsotropicMeanField(2, 4)
	m := pgsvi.Objective[*pgsvi.Gaussian]{
		F:    pgsvi.Expect(pgsvi.Sites{X: x, Y: y, Lik: pgsvi.BernoulliLogit{}}, nil),
		H:    pgsvi.KLTo(prior),
		Init: prior,
	}
	// the squared Hellinger distance of diagonal Gaussians
	hellinger := pgsvi.DivergenceFunc(func(q, q0 pgsvi.Dist) float64 {
		a, b := q.(*pgsvi.Gaussian), q0.(*pgsvi.Gaussian)
		ma, mb, va, vb := a.Mean(nil), b.Mean(nil), a.Var(nil), b.Var(nil)
		affinity := 1.0
		for i := range ma {
			v, d := va[i]+vb[i], ma[i]-mb[i]
			affinity *= math.Sqrt(2*math.Sqrt(va[i]*vb[i])/v) * math.Exp(-0.25*d*d/v)
		}
		return 1 - affinity
	})
	s := pgsvi.Solver{Divergence: hellinger}
	res, err := s.Run(context.Background(), m)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v, closed form: %v, ELBO %.3f\n", res.Status, res.ClosedForm, res.ELBO)
	// Output: converged, closed form: false, ELBO -9.674
}

// leastSquares is a custom function over a Point: ½ Σ_n (x_nᵀz − y_n)².
type leastSquares struct {
	x [][]float64
	y []float64
}

// smooth converts it to an f. Exact means that it does not use randomness.
func (l leastSquares) smooth() pgsvi.Smooth {
	return pgsvi.SmoothFunc(len(l.y), true, l.grad)
}

func (l leastSquares) grad(_ *pgsvi.Env, dst []float64, q pgsvi.Dist, batch []int) (float64,
	error) {
	z := q.Params(nil)
	clear(dst)
	var f float64
	term := func(n int, scale float64) {
		r := -l.y[n]
		for j, x := range l.x[n] {
			r += x * z[j]
		}
		for j, x := range l.x[n] {
			dst[j] += scale * r * x
		}
		f += 0.5 * scale * r * r
	}
	if batch == nil {
		for n := range l.y {
			term(n, 1)
		}
		return f, nil
	}
	for _, n := range batch {
		term(n, float64(len(l.y))/float64(len(batch)))
	}
	return f, nil
}

// The lasso by proximal gradient (ISTA) combines a Point, the Euclidean divergence and L1.
func ExampleL1() {
	f := leastSquares{
		x: [][]float64{{1, 0, 1}, {0, 1, 1}, {1, 1, 0}, {2, -1, 0}},
		y: []float64{2, 0, 2, 4},
	}
	m := pgsvi.Objective[*pgsvi.Point]{F: f.smooth(), H: pgsvi.L1(1, 0),
		Init: pgsvi.NewPoint(make([]float64, 3))}
	s := pgsvi.Solver{
		Divergence: pgsvi.Euclidean(),
		StepSize:   pgsvi.ConstantStep(0.1),
		Converger:  pgsvi.GradientMap(1e-9),
	}
	q, _, err := m.Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.4f\n", q.Params(nil))
	// Output: [1.8333 0.0000 0.0000]
}

// Mirror descent keeps the parameters positive.
func ExampleBregman() {
	f := leastSquares{x: [][]float64{{1, 0}, {0, 1}, {1, 1}}, y: []float64{3, 0.5, 3}}
	m := pgsvi.Objective[*pgsvi.Point]{F: f.smooth(), Init: pgsvi.NewPoint([]float64{1, 1})}
	s := pgsvi.Solver{
		Divergence: pgsvi.Bregman(pgsvi.NegEntropy()),
		StepSize:   pgsvi.ConstantStep(0.1),
		Converger:  pgsvi.GradientMap(1e-9),
	}
	q, res, err := m.Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v: %.4f\n", res.Status, q.Params(nil))
	// Output: converged: [2.8333 0.3333]
}

func ExampleCheckDivergence() {
	// This is not a divergence, because it is negative on one side.
	skew := pgsvi.DivergenceFunc(func(q, q0 pgsvi.Dist) float64 {
		d := q.Params(nil)[0] - q0.Params(nil)[0]
		return d * d * d
	})
	p, q := pgsvi.NewPoint([]float64{1}), pgsvi.NewPoint([]float64{2})
	_, err := pgsvi.CheckDivergence(skew, p, q)
	first, _, _ := strings.Cut(err.Error(), "\n")
	fmt.Println(errors.Is(err, pgsvi.ErrParam), first)
	alpha, err := pgsvi.CheckDivergence(pgsvi.Euclidean(), p, q)
	fmt.Println(alpha, err)
	// Output:
	// true pgsvi: DivergenceFunc of distributions 0 and 1: D is -1 for distinct arguments; it must be positive: parameter out of range
	// 1 <nil>
}

// One proximal step by hand. With a Gaussian likelihood and β = +Inf it gives the exact posterior.
func ExampleProx_Solve() {
	prior := pgsvi.NewIsotropic(1, 1)
	f := pgsvi.Expect(pgsvi.Sites{
		X: [][]float64{{1}, {1}, {1}}, Y: []float64{1, 2, 3}, Lik: pgsvi.GaussianNoise{Var: 1},
	}, nil)
	q := pgsvi.NewIsotropic(1, 1)
	g := make([]float64, q.NumParams())
	if _, err := f.Grad(context.Background(), nil, g, q, nil); err != nil {
		log.Fatal(err)
	}
	p := pgsvi.Prox{Grad: g, H: pgsvi.KLTo(prior), D: pgsvi.KL(), From: prior, Beta: math.Inf(1)}
	closed, err := p.Solve(q)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("mean %.4f, variance %.4f, closed form: %v\n", q.Mean(nil)[0], q.Var(nil)[0], closed)
	// Output: mean 1.5000, variance 0.2500, closed form: true
}

func ExampleGaussian_KL() {
	q, p := pgsvi.NewIsotropic(2, 1), pgsvi.NewIsotropicMeanField(2, 4)
	fmt.Printf("%.4f %.4f %.4f\n", q.KL(p), p.KL(q), q.KL(q))
	// Output: 0.6363 1.6137 0.0000
}

func ExampleTee() {
	x, y := doses()
	prior := pgsvi.NewIsotropic(2, 4)
	m := pgsvi.Objective[*pgsvi.Gaussian]{
		F:    pgsvi.Expect(pgsvi.Sites{X: x, Y: y, Lik: pgsvi.BernoulliLogit{}}, nil),
		H:    pgsvi.KLTo(prior),
		Init: prior,
	}
	var betas []float64
	s := pgsvi.Solver{
		MaxIter:  2,
		StepSize: pgsvi.RobbinsMonro(0, 0, 1),
		Record: pgsvi.Tee(
			func(it pgsvi.Iteration) { betas = append(betas, it.Beta) },
			func(it pgsvi.Iteration) { fmt.Printf("pass %.0f: %.2f\n", it.Passes, it.ELBO) },
		),
	}
	if _, err := s.Run(context.Background(), m); err != nil {
		log.Fatal(err)
	}
	fmt.Println(betas)
	// Output:
	// pass 1: -10.04
	// pass 2: -9.86
	// [1 0.5]
}

// A classifier without a step size, a batch size or any other tuning.
func ExampleGP() {
	x := mat.NewDense(6, 1, []float64{-3, -2, -1, 1, 2, 3})
	y := []float64{-1, -1, 1, -1, 1, 1}
	gp, err := pgsvi.NewGP(x, y, pgsvi.SquaredExp{Scale: 2, Length: 1.5}, pgsvi.BernoulliLogit{},
		nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	post, res, err := gp.Fit(context.Background(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%v, ELBO %.4f\n", res.Status, res.ELBO)
	fmt.Printf("%.3f\n", post.At(mat.NewDense(3, 1, []float64{-2.5, 0, 2.5})).Prob(nil, +1))
	// Output:
	// converged, ELBO -4.6718
	// [0.290 0.500 0.710]
}

// PG-SVI as published, for comparison. Its step size, batch size and number of samples are tuned to
// the data.
func ExampleGP_published() {
	x := mat.NewDense(6, 1, []float64{-3, -2, -1, 1, 2, 3})
	y := []float64{-1, -1, 1, -1, 1, 1}
	gp, err := pgsvi.NewGP(x, y, pgsvi.SquaredExp{Scale: 2, Length: 1.5}, pgsvi.BernoulliLogit{},
		&pgsvi.GPOptions{
			Estimator: pgsvi.ScoreFunctionPlain(500),
		})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, res, err := gp.Fit(context.Background(),
		&pgsvi.Solver{StepSize: pgsvi.ConstantStep(1. / 6), BatchSize: 2, MaxPasses: 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%v after %v passes, ELBO %.1f\n", res.Status, res.Passes, res.ELBO)
	// Output:
	// pass limit after 10 passes, ELBO -4.7
}

// zeroInflated is a custom likelihood: Poisson counts with a share of additional zeros.
type zeroInflated struct{ Share float64 }

func (z zeroInflated) LogProb(y, eta float64) float64 {
	g, _ := math.Lgamma(y + 1)
	p := y*eta - math.Exp(eta) - g
	if y > 0 {
		return math.Log(1-z.Share) + p
	}
	return math.Log(z.Share + (1-z.Share)*math.Exp(p))
}

func (zeroInflated) Facts() pgsvi.Facts { return pgsvi.Facts{Support: pgsvi.Counts} }

var _ pgsvi.Factual = zeroInflated{} // a misspelled method is an error here

// A likelihood needs only one method. Facts describes its responses: models reject all other
// responses, and predictions sum over the described responses.
func ExampleFactual() {
	x := mat.NewDense(10, 1, []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	y := []float64{0, 2, 3, 0, 4, 5, 0, 7, 0, 9}
	gp, err := pgsvi.NewGP(x, y, pgsvi.Matern52{Scale: 1, Length: 4}, zeroInflated{0.3}, nil)
	if err != nil {
		log.Fatal(err)
	}
	post, res, err := gp.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	p := post.At(mat.NewDense(2, 1, []float64{0, 9}))
	mean, _, err := p.Moments(nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v; P(0) %.2f, mean %.1f\n", res.Status, p.Prob(nil, 0), mean)
	// Output: converged; P(0) [0.48 0.30], mean [1.2 5.2]
}

// The posterior need not be Gaussian. This one is the rate of waiting times under a Gamma q, from a
// custom family. The exact posterior is Gamma(2 + 3, 1 + 2.3).
func ExampleNewExp() {
	prior, err := pgsvi.NewExp(testkit.GammaFamily{}, []float64{2, -1}) // η = (a, −b)
	if err != nil {
		log.Fatal(err)
	}
	waits := []float64{0.3, 1.2, 0.8}
	ll := pgsvi.LogLik{N: len(waits), Dim: 1, LogProb: func(n int, z []float64) float64 {
		return math.Log(z[0]) - z[0]*waits[n]
	}}
	o := pgsvi.Objective[*pgsvi.Exp]{F: pgsvi.Expect(ll, nil), H: pgsvi.KLTo(prior), Init: prior}
	q, res, err := o.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v: Gamma(%.1f, %.1f)\n", res.Status, q.Natural(nil)[0], -q.Natural(nil)[1])
	// Output: converged: Gamma(5.0, 3.3)
}

// Any number of rows may arrive. The stream reads each row once.
func ExampleNewGLMStream() {
	s, err := pgsvi.NewGLMStream(1, pgsvi.BernoulliLogit{}, &pgsvi.GLMOptions{Intercept: true})
	if err != nil {
		log.Fatal(err)
	}
	x := mat.NewDense(6, 1, []float64{-3, -2, -1, 1, 2, 3})
	if err := s.AddAll(context.Background(),
		pgsvi.Rows(x, []float64{-1, -1, 1, -1, 1, 1})); err != nil {
		log.Fatal(err)
	}
	post, err := s.Posterior()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d rows: %.3f\n", s.Len(), post.At(x).Prob(nil, +1))
	// Output: 6 rows: [0.179 0.246 0.354 0.646 0.754 0.821]
}

// Topics that occur together, from documents of two types. The Laplace approximation of a document
// is faster than draws.
func ExampleCTM() {
	c := &pgsvi.Corpus{Terms: 6, Vocab: []string{"ball", "goal", "team", "law", "party", "vote"}}
	for n := range 20 {
		k := 3 * (n % 2)
		c.Docs = append(c.Docs,
			pgsvi.Document{Words: []int{k, k + 1, k + 2}, Counts: []float64{6, 5, 4}})
	}
	ctm, err := pgsvi.NewCTM(c, 2, &pgsvi.CTMOptions{Expectation: pgsvi.CTMLaplace})
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := ctm.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	words, err := pgsvi.TopWords(post.Topics(), c, 3, pgsvi.ByProbability)
	if err != nil {
		log.Fatal(err)
	}
	for _, topic := range words {
		fmt.Println(topic)
	}
	// Unordered output:
	// [law party vote]
	// [ball goal team]
}

// A loaded posterior predicts exactly the same. The rows have three ordered classes.
func ExampleGPPosterior_Save() {
	x := mat.NewDense(6, 1, []float64{-3, -2, -1, 1, 2, 3})
	gp, err := pgsvi.NewGP(x, []float64{0, 0, 1, 1, 2, 2}, pgsvi.SquaredExp{Scale: 2, Length: 1.5},
		pgsvi.Ordinal{Cuts: []float64{-1, 1}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := gp.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer
	if err := post.Save(&file); err != nil {
		log.Fatal(err)
	}
	again, err := pgsvi.Load[*pgsvi.GPPosterior](&file)
	if err != nil {
		log.Fatal(err)
	}
	p, loaded := post.At(x).Prob(nil, 1), again.At(x).Prob(nil, 1)
	fmt.Printf("%.3f, the same: %v\n", p, slices.Equal(p, loaded))
	// Output: [0.231 0.265 0.345 0.345 0.265 0.231], the same: true
}

var ctx = context.Background()

// Logistic regression returns weights with their uncertainty.
func ExampleNewGLM() {
	x := mat.NewDense(8, 1, []float64{0, 1, 1.5, 2, 3, 3.5, 4, 5})
	y := []float64{-1, -1, 1, -1, 1, -1, 1, 1}
	glm, err := pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{},
		&pgsvi.GLMOptions{Intercept: true, Names: []string{"dose"}})
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := glm.Fit(ctx, nil) // no step size, no batch size, nothing to tune
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v %.2f ± %.2f\n", post.Names(), post.Mean(nil), post.SD(nil))
	fmt.Printf("P(y = +1 at a dose of 4) = %.2f\n",
		post.Prob(nil, +1, mat.NewDense(1, 1, []float64{4}))[0])
	// Output:
	// [dose (Intercept)] [0.81 -2.02] ± [0.52 1.55]
	// P(y = +1 at a dose of 4) = 0.73
}

// Classification by a Gaussian process.
func ExampleNewGP() {
	x := mat.NewDense(6, 1, []float64{-3, -2, -1, 1, 2, 3})
	y := []float64{-1, -1, 1, -1, 1, 1}
	gp, err := pgsvi.NewGP(x, y, pgsvi.SquaredExp{Scale: 2, Length: 1.5}, pgsvi.BernoulliLogit{},
		nil)
	if err != nil {
		log.Fatal(err)
	}
	post, res, err := gp.Fit(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ELBO %.4f, proved to be within 1e-9 nats of its maximum: %v\n", res.ELBO,
		res.GapBound < 1e-9)
	fmt.Printf("P(y = +1 at 2.5) = %.3f\n",
		post.Prob(nil, +1, mat.NewDense(1, 1, []float64{2.5}))[0])
	// Output:
	// ELBO -4.6718, proved to be within 1e-9 nats of its maximum: true
	// P(y = +1 at 2.5) = 0.710
}

// Topics of documents, and which topics occur together.
func ExampleNewCTM() {
	// Package data counts the words of texts.
	corpus := &pgsvi.Corpus{
		Terms: 7, Vocab: []string{"bird", "bonds", "cat", "dog", "fell", "rose", "stocks"},
		Docs: []pgsvi.Document{
			{Words: []int{2, 3}, Counts: []float64{5, 5}},
			{Words: []int{0, 3}, Counts: []float64{5, 5}},
			{Words: []int{1, 4, 6}, Counts: []float64{5, 5, 5}},
			{Words: []int{1, 4, 5, 6}, Counts: []float64{5, 5, 5, 5}},
		},
	}
	ctm, err := pgsvi.NewCTM(corpus, 2, nil)
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := ctm.Fit(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	words, _ := pgsvi.TopWords(post.Topics(), corpus, 3, pgsvi.ByProbability)
	topics, err := post.DocTopics(nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v\n%.1f\n", words, mat.Formatted(topics))
	doc, err := post.Infer(pgsvi.Document{Words: []int{0, 2, 4}, Counts: []float64{3, 2, 1}})
	if err != nil {
		log.Fatal(err)
	}
	mean, lo, hi := doc.Proportions(0.8)
	fmt.Printf("topic 0 of a new document: %.2f (%.2f to %.2f)\n", mean[0], lo[0], hi[0])
	// Output:
	// [[dog cat bird] [bonds fell stocks]]
	// ⎡0.9  0.1⎤
	// ⎢0.9  0.1⎥
	// ⎢0.1  0.9⎥
	// ⎣0.1  0.9⎦
	// topic 0 of a new document: 0.76 (0.56 to 0.92)
}

// PSIS checks a posterior by importance sampling.
func ExampleGLM_PSIS_trust() {
	x := mat.NewDense(8, 1, []float64{0, 1, 1.5, 2, 3, 3.5, 4, 5})
	y := []float64{-1, -1, 1, -1, 1, -1, 1, 1}
	glm, err := pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{},
		&pgsvi.GLMOptions{Intercept: true, Names: []string{"dose"}})
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := glm.Fit(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	psis, err := glm.PSIS(ctx, nil, post, 0) // draws of q, weighted by p(y, w)/q(w)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(psis)
	// Output:
	// k̂ = 0.48 from 2200 draws (effective sample size 2077): log evidence -7.6171 ± 0.0052
}

// Adam on −ELBO over the mean and the log-Cholesky factor of a dense Gaussian, compared with a fit
// without options.
func ExampleAdam() {
	x := mat.NewDense(8, 1, []float64{-3, -2, -1, -0.5, 0.5, 1, 2, 3})
	y := []float64{-1, -1, 1, -1, 1, -1, 1, 1}
	gp, err := pgsvi.NewGP(x, y, pgsvi.SquaredExp{Scale: 2, Length: 1}, pgsvi.BernoulliLogit{},
		&pgsvi.GPOptions{Jitter: 0.01})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	_, best, err := gp.Fit(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	o, err := gp.Objective()
	if err != nil {
		log.Fatal(err)
	}
	s := pgsvi.Solver{
		Divergence: pgsvi.Adam(0, 0, 0),
		StepSize:   pgsvi.RobbinsMonro(0.05, 100, 1),
		BatchSize:  2,
		MaxPasses:  500,
		Converger:  pgsvi.Never(),
	}
	o = o.Linearized()
	o.Init = o.Init.In(pgsvi.LogCholesky)
	res, err := s.Run(ctx, o)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.2f after %.0f passes; at the optimum %.2f\n", res.ELBO, res.Passes, best.ELBO)
	// Output: -6.40 after 500 passes; at the optimum -6.40
}

// A saved stream continues in another program or on another day as if it had never stopped.
func ExampleLoad() {
	ctx := context.Background()
	monday := pgsvi.Rows(mat.NewDense(3, 1, []float64{-2, 0.5, 1}), []float64{-1, -1, 1})
	tuesday := pgsvi.Rows(mat.NewDense(2, 1, []float64{-1, 2}), []float64{-1, 1})

	s, err := pgsvi.NewGLMStream(1, pgsvi.BernoulliLogit{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := s.AddAll(ctx, monday); err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer // or a file
	if err := s.Save(&file); err != nil {
		log.Fatal(err)
	}

	s, err = pgsvi.Load[*pgsvi.Stream[pgsvi.Row, *pgsvi.GLMPosterior]](&file)
	if err != nil {
		log.Fatal(err)
	}
	if err := s.AddAll(ctx, tuesday); err != nil {
		log.Fatal(err)
	}
	post, err := s.Posterior()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d rows, weight %.2f ± %.2f\n", post.Len(), post.Mean(nil)[0], post.SD(nil)[0])
	// Output:
	// 5 rows, weight 0.98 ± 0.65
}

// This is a classifier of 5000 points, whose covariance would have 25 million numbers. Points are
// added as inducing inputs until the prior variance that is left out is negligible. A nil Solver
// needs no tuning.
func ExampleSparseGP() {
	rng := rand.New(rand.NewPCG(1, 2))
	x, y := mat.NewDense(5000, 1, nil), make([]float64, 5000)
	for i := range y {
		at := 10 * rng.Float64()
		x.Set(i, 0, at)
		y[i] = -1
		if rng.Float64() < 1/(1+math.Exp(-3*math.Sin(at))) {
			y[i] = 1
		}
	}
	gp, err := pgsvi.NewSparseGP(x, y, pgsvi.SquaredExp{Scale: 3, Length: 1.5},
		pgsvi.BernoulliLogit{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	post, res, err := gp.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v, %d inducing inputs, %.0e of the variance left\n", res.Status, gp.Rank(),
		gp.Residual()/(9*5000))
	xnew := mat.NewDense(3, 1, []float64{math.Pi / 2, 3 * math.Pi / 2, 1000})
	for i, p := range post.At(xnew).Prob(nil, 1) {
		fmt.Printf("P(+1) at %.2f: %.2f\n", xnew.At(i, 0), p)
	}
	// Output:
	// converged, 17 inducing inputs, 5e-09 of the variance left
	// P(+1) at 1.57: 0.96
	// P(+1) at 4.71: 0.04
	// P(+1) at 1000.00: 0.50
}

// matern72 is the profile of the Matérn kernel with ν = 7/2, ρ = (1 + a + 2a²/5 + a³/15) exp(−a)
// with a = √7 r.
type matern72 struct{}

func (matern72) Values(r2 []float64) { pgsvi.PolyExp(r2, 7, 1, 1, 2./5, 1./15) }

// Slopes stores −2ρ′(r²) = 7/5 (1 + a + a²/3) exp(−a).
func (matern72) Slopes(dst, r2, _ []float64) {
	copy(dst, r2)
	pgsvi.PolyExp(dst, 7, 7./5, 7./5, 7./15)
}

var _ pgsvi.Profile = matern72{}

type Matern72 = pgsvi.Iso[matern72]

// A custom kernel whose length scales differ between columns.
func ExampleIso() {
	pgsvi.Register("example.Matern72", Matern72{})
	k := Matern72{Scale: 2, Lengths: []float64{1, 10}}
	x := mat.NewDense(3, 2, []float64{0, 0, 1, 0, 1, 20})
	fmt.Printf("%.3f\n", mat.Formatted(pgsvi.Gram(nil, k, x)))
	_, err := pgsvi.NewGP(x, []float64{1, 2, 3}, Matern72{Length: -1}, pgsvi.GaussianNoise{}, nil)
	fmt.Println(err)
	// Output:
	// ⎡4.000  2.180  0.374⎤
	// ⎢2.180  4.000  0.551⎥
	// ⎣0.374  0.551  4.000⎦
	// pgsvi: Matern72.Length is -1; it must be a positive number: parameter out of range
}

// How long may the steps of gradient descent be? The certificate accepts steps of 0.05. Steps of 2
// exceed the bound of the theory, and raise −ELBO.
func ExampleCertificate() {
	sites := pgsvi.Sites{X: [][]float64{{1, 0.5}, {0.3, -1.2}, {-2, 0.4}, {0.8, 1.1}, {-0.6, -0.2}},
		Y: []float64{1, 1, -1, 1, 1}, Lik: pgsvi.BernoulliLogit{}}
	prior := pgsvi.NewIsotropic(2, 4)
	o := pgsvi.Objective[*pgsvi.Gaussian]{F: pgsvi.Expect(sites, nil), H: pgsvi.KLTo(prior),
		Init: prior.In(pgsvi.Cholesky)}
	for _, beta := range []float64{0.05, 2} {
		var c pgsvi.Certificate
		s := pgsvi.Solver{Divergence: pgsvi.Euclidean(), StepSize: pgsvi.ConstantStep(beta),
			MaxIter: 20, Record: c.Record}
		if _, _, err := o.Linearized().Fit(context.Background(), &s); err != nil {
			log.Fatal(err)
		}
		if err := c.Err(); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("beta %v: at most %.1f, %d of %d steps too long, %d violations\n", beta,
			c.MaxStep, c.TooLong, c.Steps, c.Violations)
	}
	// Output:
	// beta 0.05: at most 1.5, 0 of 20 steps too long, 0 violations
	// beta 2: at most 1.2, 10 of 20 steps too long, 10 violations
}

// Clusters of rows, and the cluster of a new row.
func ExampleNewMixture() {
	// fifty rows near 0 and fifty near 10
	x := mat.NewDense(100, 1, nil)
	for n := range 100 {
		x.Set(n, 0, 10*float64(n%2)+math.Sin(float64(n)))
	}
	// A cluster without rows has a variance of 1, instead of the variance of all rows.
	m, err := pgsvi.NewMixture(x, 2, &pgsvi.MixtureOptions{Cov: mat.NewDiagDense(1, []float64{1})})
	if err != nil {
		fmt.Println(err)
		return
	}
	post, res, err := m.Fit(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Status)
	means := mat.Col(nil, 0, post.Means())
	slices.Sort(means)
	fmt.Printf("means %.1f\n", means)
	fmt.Printf("a row at 2: %.3f\n", slices.Max(post.Responsibilities(nil, []float64{2})))
	fmt.Printf("log density at 5 and 10: %.1f %.1f\n", post.LogProb([]float64{5}),
		post.LogProb([]float64{10}))
	// Output:
	// converged
	// means [0.1 9.9]
	// a row at 2: 1.000
	// log density at 5 and 10: -10.9 -1.6
}
