package pgsvi_test

import (
	"context"
	"fmt"
	"log"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/pgsvi/pgsvi"
)

// linearFit is leastSquares as a Smooth whose value is exact.
type linearFit struct{ leastSquares }

var _ pgsvi.Smooth = linearFit{}

// Setup implements Smooth.
func (l linearFit) Setup(pgsvi.Dist) (n int, exact bool, err error) {
	return len(l.y), true, nil
}

// Grad implements Smooth.
func (l linearFit) Grad(_ context.Context, env *pgsvi.Env, dst []float64, q pgsvi.Dist,
	batch []int) (value float64, err error) {
	return l.grad(env, dst, q, batch)
}

// Value implements Smooth.
func (l linearFit) Value(_ context.Context, env *pgsvi.Env, q pgsvi.Dist) (value, stderr float64,
	err error) {
	value, err = l.grad(env, make([]float64, q.NumParams()), q, nil)
	return value, 0, err
}

// groupLasso is h(λ) = weight·Σ_g ‖λ_g‖ over pairs of elements. It sets whole pairs to zero.
type groupLasso struct{ weight float64 }

// The compiler checks the methods of a Convex with a closed form.
var _ interface {
	pgsvi.Convex
	Prox(q pgsvi.Dist, p *pgsvi.Prox) (known bool, err error)
} = groupLasso{}

// Check implements Convex.
func (h groupLasso) Check(q pgsvi.Dist) error {
	if q.NumParams()%2 != 0 {
		return fmt.Errorf("%d elements do not form pairs: %w", q.NumParams(), pgsvi.ErrShape)
	}
	return nil
}

// Value implements Convex.
func (h groupLasso) Value(q pgsvi.Dist) (v float64) {
	lambda := q.Params(nil)
	for i := 0; i < len(lambda); i += 2 {
		v += h.weight * math.Hypot(lambda[i], lambda[i+1])
	}
	return v
}

// Grad implements Convex. At a pair of zeros it stores the subgradient 0.
func (h groupLasso) Grad(dst []float64, q pgsvi.Dist) []float64 {
	dst = q.Params(dst)
	for i := 0; i < len(dst); i += 2 {
		if norm := math.Hypot(dst[i], dst[i+1]); norm > 0 {
			floats.Scale(h.weight/norm, dst[i:i+2])
		}
	}
	return dst
}

// Prox is the closed form for the Euclidean divergence. It shortens each pair by β·weight.
func (h groupLasso) Prox(q pgsvi.Dist, p *pgsvi.Prox) (known bool, err error) {
	if p.D != pgsvi.Euclidean() {
		return false, nil
	}
	z := p.From.Params(nil)
	floats.AddScaled(z, -p.Beta, p.Grad)
	for i := 0; i < len(z); i += 2 {
		norm := math.Hypot(z[i], z[i+1])
		floats.Scale(math.Max(0, 1-p.Beta*h.weight/norm), z[i:i+2])
	}
	return true, q.SetParams(z)
}

// An f and an h of your own form an Objective. The closed form of the proximal step makes the group
// lasso set the second pair of coefficients to exactly zero.
func ExampleProx() {
	f := linearFit{leastSquares{y: []float64{2.1, -1.2, 3.9, 0.1, -1.8, 1.1}, x: [][]float64{
		{1, 1, 1, 0}, {-1, 0, 0, 1}, {2, 2, 0, -1}, {0, 0, 1, 1}, {-1, -1, 1, 0}, {0, 1, -1, 1}}}}
	m := pgsvi.Objective[*pgsvi.Point]{F: f, H: groupLasso{1},
		Init: pgsvi.NewPoint(make([]float64, 4))}
	q, res, err := m.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	lambda := q.Params(nil)
	fmt.Printf("%v: first pair %.3f\n", res.Status, lambda[:2])
	fmt.Println("second pair is zero:", lambda[2] == 0 && lambda[3] == 0)
	// Output:
	// converged: first pair [0.962 0.906]
	// second pair is zero: true
}

// laplace is the distribution q(z) = exp(−|z − m|/b)/(2b) with λ = (m, b).
type laplace struct{ m, b float64 }

// The chart (m, log b) makes the numeric proximal step possible.
var _ pgsvi.Charted = &laplace{}

func (q *laplace) Dim() int          { return 1 }
func (q *laplace) NumParams() int    { return 2 }
func (q *laplace) Clone() pgsvi.Dist { p := *q; return &p }

// Params implements Dist.
func (q *laplace) Params(dst []float64) []float64 { return append(dst[:0], q.m, q.b) }

// SetParams implements Dist.
func (q *laplace) SetParams(p []float64) error {
	switch sum := p[0] + p[1]; {
	case math.IsNaN(sum) || math.IsInf(sum, 0):
		return fmt.Errorf("λ is %v: %w", p, pgsvi.ErrNotFinite)
	case !(p[1] > 0):
		return fmt.Errorf("the scale is %v: %w", p[1], pgsvi.ErrNotPosDef)
	}
	q.m, q.b = p[0], p[1]
	return nil
}

// LogProb implements Dist.
func (q *laplace) LogProb(z []float64) float64 {
	return -math.Abs(z[0]-q.m)/q.b - math.Log(2*q.b)
}

// Score implements Dist.
func (q *laplace) Score(dst, z []float64) []float64 {
	d := z[0] - q.m
	return append(dst[:0], math.Copysign(1/q.b, d), math.Abs(d)/(q.b*q.b)-1/q.b)
}

// Rand implements Dist.
func (q *laplace) Rand(dst []float64, rng *rand.Rand) []float64 {
	return append(dst[:0], q.m+q.b*(rng.ExpFloat64()-rng.ExpFloat64()))
}

// Chart implements Charted.
func (q *laplace) Chart(dst []float64) []float64 { return append(dst[:0], q.m, math.Log(q.b)) }

// SetChart implements Charted.
func (q *laplace) SetChart(x []float64) error {
	return q.SetParams([]float64{x[0], math.Exp(x[1])})
}

// ChartGrad implements Charted.
func (q *laplace) ChartGrad(dst, g []float64) []float64 { return append(dst[:0], g[0], g[1]*q.b) }

// wideNormal is h = KL(q‖N(0, 10²)) for a laplace.
type wideNormal struct{}

// Check implements Convex.
func (wideNormal) Check(q pgsvi.Dist) error {
	if _, ok := q.(*laplace); !ok {
		return fmt.Errorf("q is a %T: %w", q, pgsvi.ErrShape)
	}
	return nil
}

// Value implements Convex.
func (wideNormal) Value(q pgsvi.Dist) float64 {
	l := q.(*laplace)
	return math.Log(10*math.Sqrt(2*math.Pi)) + (l.m*l.m+2*l.b*l.b)/200 - 1 - math.Log(2*l.b)
}

// Grad implements Convex.
func (wideNormal) Grad(dst []float64, q pgsvi.Dist) []float64 {
	l := q.(*laplace)
	return append(dst[:0], l.m/100, l.b/50-1/l.b)
}

// A q of your own implements Dist. The location of data with Laplace noise has a posterior with a
// sharp peak, which the Laplace distribution approximates well.
func ExampleCharted() {
	y := []float64{-0.3, 0.2, 0.4, 0.9, 7}
	f := pgsvi.SmoothFunc(1, true, func(_ *pgsvi.Env, dst []float64, q pgsvi.Dist, _ []int) (
		value float64, err error) {
		l := q.(*laplace)
		clear(dst)
		for _, yn := range y { // E|y − z| = |y − m| + b exp(−|y − m|/b)
			d := yn - l.m
			e := math.Exp(-math.Abs(d) / l.b)
			value += math.Abs(d) + l.b*e + math.Log(2)
			dst[0] -= math.Copysign(1-e, d)
			dst[1] += e * (1 + math.Abs(d)/l.b)
		}
		return value, nil
	})
	m := pgsvi.Objective[*laplace]{F: f, H: wideNormal{}, Init: &laplace{m: 0, b: 1}}
	q, res, err := m.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v: median %.2f, scale %.2f\n", res.Status, q.m, q.b)
	// Output:
	// converged: median 0.49, scale 0.36
}

// decay is a log-likelihood of concentrations that decay at an unknown rate exp(z). A simulation
// gives the values at all times at once, so a batch runs it once instead of once per observation.
type decay struct{ y []float64 }

var _ pgsvi.LogLikelihood = decay{}

// Len implements LogLikelihood.
func (d decay) Len() int { return len(d.y) }

// Validate implements LogLikelihood.
func (d decay) Validate() error { return nil }

// Batch implements LogLikelihood.
func (d decay) Batch(batch []int) pgsvi.Integrand {
	if batch == nil {
		for n := range d.y {
			batch = append(batch, n)
		}
	}
	return decayBatch{d, batch}
}

// decayBatch is the sum over a batch of observations.
type decayBatch struct {
	decay
	batch []int
}

// Dim implements Integrand.
func (decayBatch) Dim() int { return 1 }

// GradLogProb implements Integrand. The gradient is unknown.
func (decayBatch) GradLogProb(dst, z []float64) bool { return false }

// LogProb implements Integrand. The noise has standard deviation 0.1.
func (b decayBatch) LogProb(z []float64) (sum float64) {
	level, curve := 1.0, make([]float64, len(b.y))
	for n := range curve { // ten steps of Euler's method per unit of time
		curve[n] = level
		for range 10 {
			level -= 0.1 * math.Exp(z[0]) * level
		}
	}
	for _, n := range b.batch {
		r := (b.y[n] - curve[n]) / 0.1
		sum -= r*r/2 + math.Log(0.1*math.Sqrt(2*math.Pi))
	}
	return sum * float64(len(b.y)) / float64(len(b.batch))
}

// A LogLikelihood of your own shares work between the observations of a batch.
func ExampleLogLikelihood() {
	prior := pgsvi.NewIsotropic(1, 1)
	m := pgsvi.Objective[*pgsvi.Gaussian]{
		F:    pgsvi.Expect(decay{[]float64{1.02, 0.58, 0.41, 0.2, 0.11, 0.1}}, nil),
		H:    pgsvi.KLTo(prior),
		Init: prior,
	}
	q, res, err := m.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v: rate %.2f\n", res.Status, math.Exp(q.Mean(nil)[0]))
	// Output:
	// converged: rate 0.50
}

// amsGrad is the metric of AMSGrad, whose steps never grow (Reddi, Kale and Kumar, 2018).
type amsGrad struct{ square, most []float64 }

var _ pgsvi.Metric = amsGrad{}

// Next implements Metric.
func (a amsGrad) Next(s, g []float64, _ float64) {
	for i, x := range g {
		a.square[i] = 0.9*a.square[i] + 0.1*x*x
		a.most[i] = math.Max(a.most[i], a.square[i])
		s[i] = 1e-8 + math.Sqrt(a.most[i])
	}
}

// An adaptive method that the library does not have needs only its Metric.
func ExampleAdaptive() {
	m := doseModel()
	_, best, err := m.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	m = m.Linearized()
	m.Init = m.Init.In(pgsvi.LogCholesky)
	s := pgsvi.Solver{
		Divergence: pgsvi.Adaptive(func(n int) pgsvi.Metric {
			return amsGrad{make([]float64, n), make([]float64, n)}
		}),
		StepSize:  pgsvi.ConstantStep(0.05),
		MaxPasses: 200,
	}
	_, res, err := m.Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("within 0.01 nats of the best ELBO:", best.ELBO-res.ELBO < 0.01)
	// Output:
	// within 0.01 nats of the best ELBO: true
}

// meanAndPrecision is the model y_n ~ N(μ, 1/τ) with the priors μ ~ N(0, 100) and τ ~ Gamma(1, 1).
type meanAndPrecision struct{ y []float64 }

// NewStepper implements Model.
func (m meanAndPrecision) NewStepper(context.Context, *pgsvi.Env, pgsvi.Divergence) (
	pgsvi.Stepper, error) {
	return &ascent{y: m.y, v: 100, rate: 1}, nil
}

// ascent holds q(μ) = N(m, v) and q(τ) = Gamma(1 + N/2, rate).
type ascent struct {
	y          []float64
	m, v, rate float64
}

// Len implements Stepper. A step visits all rows, so they form one term.
func (s *ascent) Len() int { return 1 }

// Plan implements Stepper. The defaults of the Solver apply.
func (s *ascent) Plan() pgsvi.Plan { return pgsvi.Plan{MaxPasses: 100} }

func (s *ascent) shape() float64 { return 1 + float64(len(s.y))/2 }

// squares returns E[Σ_n (y_n − μ)²].
func (s *ascent) squares() (sum float64) {
	for _, y := range s.y {
		sum += (y-s.m)*(y-s.m) + s.v
	}
	return sum
}

// Step implements Stepper. It maximizes the ELBO over one factor of q after the other.
func (s *ascent) Step(_ context.Context, _ *pgsvi.Env, _ []int, beta float64) (pgsvi.Step, error) {
	tau := s.shape() / s.rate
	s.v = 1 / (0.01 + tau*float64(len(s.y)))
	s.m = s.v * tau * floats.Sum(s.y)
	s.rate = 1 + s.squares()/2
	return pgsvi.Step{Beta: beta, ClosedForm: true}, nil
}

// Evaluate implements Stepper.
func (s *ascent) Evaluate(context.Context, *pgsvi.Env) (pgsvi.Evaluation, error) {
	a := s.shape()
	gamma, _ := math.Lgamma(a)
	elbo := -float64(len(s.y))/2*math.Log(2*math.Pi) - a/s.rate*s.squares()/2 +
		math.Log(0.01)/2 - 0.01*(s.m*s.m+s.v)/2 + (1+math.Log(s.v))/2 -
		a/s.rate - a*math.Log(s.rate) + gamma + a
	return pgsvi.Evaluation{ELBO: elbo}, nil
}

// A Stepper of your own runs with every Sampler, Converger and Record of a Solver. This one is
// coordinate ascent for the mean and the precision of a Gaussian (Bishop, 2006, section 10.1.3).
func ExampleStepper() {
	y := []float64{4.9, 5.3, 6.1, 4.4, 5.0, 5.9, 5.2}
	s := pgsvi.Solver{Converger: pgsvi.ELBOChange(1e-12, 1)}
	res, err := s.Run(context.Background(), meanAndPrecision{y})
	if err != nil {
		log.Fatal(err)
	}
	q := res.State.(*ascent)
	fmt.Printf("%v after %d steps\n", res.Status, res.K)
	fmt.Printf("mean %.2f of data with mean %.2f\n", q.m, stat.Mean(y, nil))
	// Output:
	// converged after 8 steps
	// mean 5.25 of data with mean 5.26
}
