package pgsvi_test

import (
	"context"
	"fmt"
	"log"
	"math"

	"github.com/pgsvi/pgsvi"
)

// mustGamma returns a Gamma distribution, or ends the program.
func mustGamma(shape, rate float64) pgsvi.ExpFamily {
	q, err := pgsvi.NewGamma(shape, rate)
	if err != nil {
		log.Fatal(err)
	}
	return q
}

// mustFit fits g, or ends the program.
func mustFit(g *pgsvi.Graph) (*pgsvi.Exp, *pgsvi.Result) {
	model, err := g.Objective()
	if err != nil {
		log.Fatal(err)
	}
	q, res, err := model.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	return q, res
}

// mustDirichlet returns the uniform distribution over the simplex of k parts, or ends the program.
func mustDirichlet(k int) pgsvi.ExpFamily {
	alpha := make([]float64, k)
	for i := range alpha {
		alpha[i] = 1
	}
	q, err := pgsvi.NewDirichlet(alpha)
	if err != nil {
		log.Fatal(err)
	}
	return q
}

// Eight schools (Rubin, 1981) measured the effect of coaching, each with a known standard error. The
// effects are similar: they have a common mean and a common precision, which are unknown.
func ExampleGraph() {
	effect := []float64{28, 8, -3, 7, -1, 1, 18, 12}
	se := []float64{15, 10, 16, 11, 9, 11, 10, 18}
	precision := make([]float64, len(se))
	for j, s := range se {
		precision[j] = 1 / (s * s)
	}

	// The unknowns have a name, a number of copies and a prior. The prior of theta is a factor.
	var g pgsvi.Graph
	mu := g.Block("mu", 1, pgsvi.NewIsotropic(1, 400))
	tau := g.Block("tau", 1, mustGamma(1, 25)) // a standard deviation of about 5 between schools
	theta := g.Block("theta", len(effect), nil, pgsvi.NewIsotropic(1, 100))

	// The factors of log p(y, z) have a row per school.
	g.Add(
		pgsvi.NormalFactor(theta, mu, tau),
		pgsvi.NormalFactor(pgsvi.Known(effect...), theta, pgsvi.Known(precision...)),
	)

	model, err := g.Objective() // reports all mistakes of the model at once
	if err != nil {
		log.Fatal(err)
	}
	q, res, err := model.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	psis, err := pgsvi.NewPSIS(context.Background(), nil, q, g.LogProb(), 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v, ELBO %.4f\n%v\n", res.Status, res.ELBO, psis)
	fmt.Println("first school:", theta.Of(q)[0])
	fmt.Println("precision of the schools:", tau.Of(q)[0])
	// Output:
	// converged, ELBO -33.3542
	// k̂ = 0.81 from 22000 draws (effective sample size 167): log evidence -32.2384 ± 0.077; not reliable: q misses part of the posterior, and no affordable number of draws makes up for that
	// first school: Gaussian, mean (9.801), sd (5.042)
	// precision of the schools: Gamma(5, 143.3)
}

// A factor of your own is a function of moments. This one is the bound of Jaakkola and Jordan (2000) on
// a logistic likelihood of y = ±1, at its best parameter c = √E[u²]. It needs only E[u] and E[u²],
// and so applies to products of unknowns: here the ability of a person times the weight of a question.
func ExampleNewFactor() {
	person := []int{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}
	question := []int{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}
	y := []float64{1, 1, -1, 1, 1, -1, -1, -1, 1, -1, 1, 1}

	var g pgsvi.Graph
	ability := g.Block("ability", 4, pgsvi.NewIsotropic(1, 1))
	weight := g.Block("weight", 3, pgsvi.NewIsotropic(1, 4))
	logit := pgsvi.NewFactor("logit", func(n int, m []pgsvi.Moments) float64 {
		c := math.Sqrt(m[0].Square)
		return y[n]*m[0].Mean/2 - c/2 - math.Log1p(math.Exp(-c))
	}, func(n int, d, m []pgsvi.Moments) {
		c := math.Sqrt(m[0].Square)
		d[0] = pgsvi.Moments{Mean: y[n] / 2, Square: -math.Tanh(c/2) / (4 * c)}
	}, ability.Copy(person...).Times(weight.Copy(question...)))
	g.Add(logit)

	q, res := mustFit(&g)
	fmt.Printf("check: %v\n%v, ELBO %.4f\n", pgsvi.CheckFactor(logit, q), res.Status, res.ELBO)
	m := ability.Moments(q)
	fmt.Println("persons 0 and 2 differ:", m[0].Mean*m[2].Mean < 0)
	// Output:
	// check: <nil>
	// converged, ELBO -9.8961
	// persons 0 and 2 differ: true
}

// A mixture of two lines. The component of each observation is summed out. The two copies of w start
// equal, so Objective moves them apart.
func ExampleMixtureFactor() {
	var x [][]float64
	var y []float64
	for i := range 20 { // the lines 1 + 2u and −1 − u in turn, with some noise
		u := float64(i)/10 - 1
		x = append(x, []float64{1, u})
		y = append(y, []float64{1 + 2*u, -1 - u}[i%2]+0.2*math.Sin(float64(5*i)))
	}

	var g pgsvi.Graph
	weights := g.Block("weights", 1, mustDirichlet(2))
	w := g.Block("w", 2, pgsvi.NewIsotropic(2, 4))
	noise := g.Block("noise", 2, mustGamma(1, 1))
	obs := pgsvi.Known(y...)
	g.Add(pgsvi.MixtureFactor(weights,
		pgsvi.NormalFactor(obs, w.Copy(0).Dot(x), noise.Copy(0)),
		pgsvi.NormalFactor(obs, w.Copy(1).Dot(x), noise.Copy(1))))

	q, res := mustFit(&g)
	fmt.Println(res.Status)
	for _, line := range w.Of(q) {
		m := line.(*pgsvi.Gaussian).Mean(nil)
		fmt.Printf("%.1f %+.1f x\n", m[0], m[1])
	}
	// Output:
	// converged
	// 1.0 +1.9 x
	// -1.0 -0.9 x
}

// A hidden Markov model of two sequences. The two states have different levels.
func ExampleChainFactor() {
	// a sequence of 8 times and a sequence of 6 times
	y := []float64{0.2, -0.1, 0.3, 5.1, 4.8, 5.2, 4.9, 0.1, 5.3, 5.0, 0.2, -0.3, 0.1, 0.0}

	var g pgsvi.Graph
	start, move := g.Block("start", 1, mustDirichlet(2)), g.Block("move", 2, mustDirichlet(2))
	level := g.Block("level", 2, pgsvi.NewIsotropic(1, 25))
	noise := g.Block("noise", 1, mustGamma(1, 1))
	obs := pgsvi.Known(y...)
	chain := pgsvi.ChainFactor(start, move,
		pgsvi.NormalFactor(obs, level.Copy(0), noise),
		pgsvi.NormalFactor(obs, level.Copy(1), noise)).Sequences(8, 6)
	g.Add(chain)

	q, res := mustFit(&g)
	m := level.Moments(q)
	fmt.Printf("%v, levels %.1f and %.1f\n", res.Status, m[0].Mean, m[1].Mean)
	fmt.Printf("states at time 3: %.2f\n", chain.Responsibilities(q)[3])
	// Output:
	// converged, levels 0.1 and 5.0
	// states at time 3: [0.00 1.00]
}

// A Poisson regression with an effect of each group, whose spread is unknown. No factor of the counts
// is conjugate.
func ExampleLikelihoodFactor() {
	x := [][]float64{{1, 0}, {1, 1}, {1, 2}, {1, 0}, {1, 1}, {1, 2}, {1, 0}, {1, 1}, {1, 2}}
	group := []int{0, 0, 0, 1, 1, 1, 2, 2, 2}
	y := []float64{2, 4, 9, 1, 2, 3, 3, 8, 17}

	var g pgsvi.Graph
	w := g.Block("w", 1, pgsvi.NewIsotropic(2, 10))
	tau := g.Block("tau", 1, mustGamma(1, 1))
	effect := g.Block("effect", 3, nil, pgsvi.NewIsotropic(1, 1))
	g.Add(
		pgsvi.NormalFactor(effect, pgsvi.Known(0), tau),
		pgsvi.LikelihoodFactor(y, w.Dot(x).Plus(effect.Copy(group...)), pgsvi.Poisson{}),
	)
	q, res := mustFit(&g)
	slope := w.Element(1).Moments(q)[0]
	fmt.Printf("%v, slope %.2f ± %.2f\n", res.Status, slope.Mean,
		math.Sqrt(slope.Square-slope.Mean*slope.Mean))
	for j, m := range effect.Moments(q) {
		fmt.Printf("group %d: %+.2f\n", j, m.Mean)
	}
	// Output:
	// converged, slope 0.79 ± 0.20
	// group 0: +0.06
	// group 1: -0.70
	// group 2: +0.67
}

// CheckFactor finds an expectation of a square that uses the square of the expectation.
func ExampleCheckFactor() {
	y := []float64{1, 2, 4}
	var g pgsvi.Graph
	m := g.Block("m", 1, pgsvi.NewIsotropic(1, 1))
	wrong := pgsvi.NewFactor("normal", func(n int, u []pgsvi.Moments) float64 {
		r := y[n] - u[0].Mean
		return -r * r / 2 // the variance of m is missing
	}, nil, m)
	fmt.Println(pgsvi.CheckFactor(wrong))
	right := pgsvi.NewFactor("normal", func(n int, u []pgsvi.Moments) float64 {
		return -(y[n]*y[n] - 2*y[n]*u[0].Mean + u[0].Square) / 2
	}, nil, m)
	fmt.Println(pgsvi.CheckFactor(right))
	// Output:
	// pgsvi: factor normal, row 0: the value is not affine in E[u] of m; give NewFactor a gradient: parameter out of range
	// <nil>
}
