package pgsvi_test

import (
	"context"
	"fmt"
	"log"
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/pgsvi/pgsvi"
)

// sech is the hyperbolic secant distribution about η: log p(y|η) = log sech(π(y − η)/2) − log 2. Its
// tails are heavier than Gaussian and lighter than Student's t.
type sech struct{}

// The interfaces that a likelihood may implement. The compiler checks the methods.
var (
	_ pgsvi.Differentiable = sech{}
	_ pgsvi.Responder      = sech{}
	_ pgsvi.Factual        = sech{}
)

// LogProb implements Likelihood.
func (sech) LogProb(y, eta float64) float64 {
	r := math.Pi / 2 * math.Abs(y-eta)
	return -r - math.Log1p(math.Exp(-2*r))
}

// Facts implements Factual. A log-concave likelihood has a proved gap bound.
func (sech) Facts() pgsvi.Facts { return pgsvi.Facts{LogConcave: true} }

// Derivs implements Differentiable. With derivatives a fit takes Newton steps.
func (sech) Derivs(y, eta float64) (d1, d2 float64) {
	t := math.Tanh(math.Pi / 2 * (y - eta))
	return math.Pi / 2 * t, -math.Pi * math.Pi / 4 * (1 - t*t)
}

// Moments implements Responder. Predictions need it.
func (sech) Moments(eta float64) (mean, variance float64) { return eta, 1 }

// CDF implements Responder. Intervals of responses need it.
func (sech) CDF(y, eta float64) float64 {
	return 2 / math.Pi * math.Atan(math.Exp(math.Pi/2*(y-eta)))
}

// exposed is a Poisson likelihood of counts during two hours, at the rate e^η per hour.
type exposed struct{}

var _ pgsvi.Expecter = exposed{}

// LogProb implements Likelihood.
func (exposed) LogProb(y, eta float64) float64 {
	lgamma, _ := math.Lgamma(y + 1)
	return y*(eta+math.Ln2) - 2*math.Exp(eta) - lgamma
}

// Facts implements Factual.
func (exposed) Facts() pgsvi.Facts { return pgsvi.Facts{Support: pgsvi.Counts, LogConcave: true} }

// ExpectLogProb implements Expecter, because E[e^η] = e^(m+v/2).
func (l exposed) ExpectLogProb(y, m, v float64) pgsvi.Expectation {
	rate := 2 * math.Exp(m+v/2)
	value := l.LogProb(y, m) + 2*math.Exp(m) - rate
	return pgsvi.Expectation{Value: value, D1: y - rate, D2: -rate, Err: 1e-14 * (1 + rate)}
}

// A closed form of the expectations replaces the quadrature of a likelihood.
func ExampleExpecter() {
	x := mat.NewDense(6, 1, []float64{0, 1, 2, 3, 4, 5})
	y := []float64{1, 0, 3, 4, 9, 12}
	fit := func(lik pgsvi.Likelihood, opt pgsvi.GLMOptions) *pgsvi.Result {
		m, err := pgsvi.NewGLM(x, y, lik, &opt)
		if err != nil {
			log.Fatal(err)
		}
		_, res, err := m.Fit(context.Background(), nil)
		if err != nil {
			log.Fatal(err)
		}
		return res
	}
	own := fit(exposed{}, pgsvi.GLMOptions{})
	hours := make([]float64, len(y)) // the same model with an offset
	for i := range hours {
		hours[i] = math.Ln2
	}
	want := fit(pgsvi.Poisson{}, pgsvi.GLMOptions{Offset: hours})
	fmt.Println("the same ELBO:", math.Abs(own.ELBO-want.ELBO) < 1e-6)
	fmt.Println("proved", own.Scope, "to 1e-6 nats:", own.GapBound < 1e-6)
	// Output:
	// the same ELBO: true
	// proved over q to 1e-6 nats: true
}

// A likelihood of your own needs LogProb. Optional methods make fits faster and add predictions.
func ExampleResponder() {
	x := mat.NewDense(6, 1, []float64{0, 1, 2, 3, 4, 5})
	y := []float64{1.1, 2.9, 5.2, 7.1, 8.8, 25} // the last one is an outlier
	m, err := pgsvi.NewGLM(x, y, sech{}, &pgsvi.GLMOptions{Intercept: true, PriorSD: 10})
	if err != nil {
		log.Fatal(err)
	}
	post, res, err := m.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	at := post.At(mat.NewDense(1, 1, []float64{2.5}))
	mean, variance, err := at.Moments(nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Status)
	fmt.Printf("prediction %.1f, sd %.1f\n", mean[0], math.Sqrt(variance[0]))
	// Output:
	// converged
	// prediction 6.5, sd 1.1
}
