package graph

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/mathext"
)

// The tests of this file fit six models as a Graph, and compare each ELBO with coordinate ascent
// by hand, which updates one block at a time by its closed form and shares no code with the
// library.

// gamma returns a Gamma distribution for a model.
func gamma(shape, rate float64) pgsvi.ExpFamily { return testkit.Must(pgsvi.NewGamma(shape, rate)) }

// watch fails if the ELBO falls.
type watch struct {
	t    *testing.T
	last float64
}

func (w *watch) record(it pgsvi.Iteration) {
	if it.ELBO < w.last-1e-9*(1+math.Abs(w.last)) {
		w.t.Errorf("iteration %d: the ELBO falls from %.12g to %.12g", it.K, w.last, it.ELBO)
	}
	if !math.IsNaN(it.ELBO) {
		w.last = it.ELBO
	}
}

// fitGraph fits g to full accuracy. It fails if the ELBO falls or the run does not converge.
func fitGraph(t *testing.T, g *pgsvi.Graph) (*pgsvi.Exp, *pgsvi.Result) {
	t.Helper()
	o, err := g.Objective()
	if err != nil {
		t.Fatal(err)
	}
	q, res, err := o.Fit(context.Background(), &pgsvi.Solver{Goal: 1e-10,
		Record: (&watch{t, math.Inf(-1)}).record})
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != pgsvi.Converged {
		t.Errorf("the run ends with %v after %v passes", res.Status, res.Passes)
	}
	return q, res
}

// compareELBO compares a fit with the ELBO by hand.
func compareELBO(t *testing.T, res *pgsvi.Result, hand, mostPasses float64) {
	t.Helper()
	if !(math.Abs(res.ELBO-hand) <= 1e-6) {
		t.Errorf("the ELBO is %.9f, by hand %.9f", res.ELBO, hand)
	}
	if res.Passes > mostPasses {
		t.Errorf("the fit takes %v passes; want at most %v", res.Passes, mostPasses)
	}
	t.Logf("ELBO %.9f, by hand %.9f, %v passes", res.ELBO, hand, res.Passes)
}

// ascend repeats sweep, which returns the ELBO, until the ELBO does not rise.
func ascend(t *testing.T, sweep func() float64) float64 {
	last := math.Inf(-1)
	for range 20000 {
		elbo := sweep()
		if elbo < last-1e-8*(1+math.Abs(last)) {
			t.Fatalf("coordinate ascent by hand falls from %v to %v", last, elbo)
		}
		if elbo-last < 1e-12*math.Abs(elbo) {
			return elbo
		}
		last = elbo
	}
	t.Fatal("coordinate ascent by hand does not converge")
	return 0
}

// klGamma returns KL(Gamma(a, b) ‖ Gamma(a0, b0)).
func klGamma(a, b, a0, b0 float64) float64 {
	l, _ := math.Lgamma(a)
	l0, _ := math.Lgamma(a0)
	return (a-a0)*mathext.Digamma(a) - l + l0 + a0*(math.Log(b)-math.Log(b0)) + a*(b0-b)/b
}

// logGamma returns E[log z] under Gamma(a, b).
func logGamma(a, b float64) float64 { return mathext.Digamma(a) - math.Log(b) }

// klNormal returns KL(N(m, V) ‖ N(0, v0 I)).
func klNormal(m []float64, v *mat.SymDense, v0 float64) float64 {
	d := float64(len(m))
	return 0.5 * ((mat.Trace(v)+floats.Dot(m, m))/v0 - d + d*math.Log(v0) - logDet(v))
}

func logDet(v *mat.SymDense) float64 {
	var c mat.Cholesky
	if !c.Factorize(v) {
		return math.NaN()
	}
	return c.LogDet()
}

// solveNormal returns mean and covariance of a Gaussian with precision p and natural mean h.
func solveNormal(p *mat.SymDense, h []float64) ([]float64, *mat.SymDense) {
	var c mat.Cholesky
	if !c.Factorize(p) {
		panic("not positive definite")
	}
	v := mat.NewSymDense(len(h), nil)
	if err := c.InverseTo(v); err != nil {
		panic(err)
	}
	var m mat.VecDense
	m.MulVec(v, mat.NewVecDense(len(h), h))
	return m.RawVector().Data, v
}

// diagonal returns v I.
func diagonal(d int, v float64) *mat.SymDense {
	m := mat.NewSymDense(d, nil)
	for i := range d {
		m.SetSym(i, i, v)
	}
	return m
}

// quadratic returns E[(xᵀz)²] for z ~ N(m, v).
func quadratic(x, m []float64, v mat.Symmetric) float64 {
	u := mat.NewVecDense(len(x), x)
	e := floats.Dot(x, m)
	return mat.Inner(u, v, u) + e*e
}

// logSumExp and digammas are short names.
var logSumExp = floats.LogSumExp

// logDirichlet returns E[log z] under Dirichlet(a).
func logDirichlet(a []float64) []float64 {
	s := mathext.Digamma(floats.Sum(a))
	l := make([]float64, len(a))
	for k, x := range a {
		l[k] = mathext.Digamma(x) - s
	}
	return l
}

// klDirichlet returns KL(Dirichlet(a) ‖ Dirichlet(1, …, 1)).
func klDirichlet(a []float64) float64 {
	kl, _ := math.Lgamma(floats.Sum(a))
	l, _ := math.Lgamma(float64(len(a)))
	kl -= l
	for k, e := range logDirichlet(a) {
		l, _ := math.Lgamma(a[k])
		kl += (a[k]-1)*e - l
	}
	return kl
}

func randomDesign(rng *rand.Rand, n, d int) [][]float64 {
	x := make([][]float64, n)
	for i := range x {
		x[i] = make([]float64, d)
		for k := range x[i] {
			x[i][k] = rng.NormFloat64()
		}
		x[i][0] = 1
	}
	return x
}

const log2Pi = 1.8378770664093454836

func TestGraphGroups(t *testing.T) {
	rng := testkit.Rand(101)
	y, known := make([]float64, 25), make([]float64, 25)
	for j := range y {
		sd := 0.5 + rng.Float64()
		known[j] = 1 / (sd * sd)
		y[j] = -1 + 1.2*rng.NormFloat64() + sd*rng.NormFloat64()
	}
	// model
	var g pgsvi.Graph
	mu := g.Block("mu", 1, pgsvi.NewIsotropic(1, 100))
	tau := g.Block("tau", 1, gamma(2, 2))
	theta := g.Block("theta", len(y), nil, pgsvi.NewIsotropic(1, 1))
	g.Add(
		pgsvi.NormalFactor(theta, mu, tau),
		pgsvi.NormalFactor(pgsvi.Known(y...), theta, pgsvi.Known(known...)),
	)
	// end
	q, res := fitGraph(t, &g)

	n := float64(len(y))
	m, v, a, b := 0.0, 100.0, 2.0, 2.0
	mt, vt := make([]float64, len(y)), make([]float64, len(y))
	hand := ascend(t, func() float64 {
		e := a / b
		var sum, r float64
		for j := range y {
			vt[j] = 1 / (known[j] + e)
			mt[j] = (known[j]*y[j] + e*m) * vt[j]
			sum += mt[j]
		}
		v = 1 / (0.01 + n*e)
		m = v * e * sum
		for j := range y {
			r += (mt[j]-m)*(mt[j]-m) + vt[j] + v
		}
		a, b = 2+n/2, 2+r/2
		elbo := 0.5*n*(logGamma(a, b)-log2Pi) - 0.5*a/b*r - klGamma(a, b, 2, 2) -
			klNormal([]float64{m}, diagonal(1, v), 100)
		for j := range y {
			d := y[j] - mt[j]
			elbo += 0.5*(math.Log(known[j])-log2Pi-known[j]*(d*d+vt[j])) +
				0.5*(1+log2Pi+math.Log(vt[j]))
		}
		return elbo
	})
	compareELBO(t, res, hand, 20)
	if got := mu.Of(q)[0].(*pgsvi.Gaussian).Mean(nil)[0]; math.Abs(got-m) > 1e-5 {
		t.Errorf("E[mu] is %v, by hand %v", got, m)
	}
	if got := tau.Moments(q)[0]; math.Abs(got.Mean-a/b) > 1e-5 || math.Abs(got.Log-logGamma(a,
		b)) > 1e-5 {
		t.Errorf("the moments of tau are %+v, by hand %v and %v", got, a/b, logGamma(a, b))
	}
	if got := theta.Of(q)[3].(*pgsvi.Gaussian).Var(nil)[0]; math.Abs(got-vt[3]) > 1e-6 {
		t.Errorf("the variance of theta 3 is %v, by hand %v", got, vt[3])
	}
}

func TestGraphRelevance(t *testing.T) {
	rng := testkit.Rand(102)
	const d = 6
	x := randomDesign(rng, 150, d)
	y := make([]float64, len(x))
	for n := range y {
		y[n] = 2*x[n][0] - x[n][2] + 0.6*rng.NormFloat64()
	}
	// model
	var g pgsvi.Graph
	w := g.Block("w", 1, nil, pgsvi.NewIsotropic(d, 1))
	noise := g.Block("noise", 1, gamma(1, 1))
	alpha := g.Block("alpha", d, gamma(1, 1))
	g.Add(
		pgsvi.NormalFactor(w, pgsvi.Known(0), alpha),
		pgsvi.NormalFactor(pgsvi.Known(y...), w.Dot(x), noise),
	)
	// end
	_, res := fitGraph(t, &g)

	m, v := make([]float64, d), diagonal(d, 1)
	a, b, shape, rate := 1.0, 1.0, 1.5, make([]float64, d)
	floats.AddConst(1.5, rate)
	hand := ascend(t, func() float64 {
		p, h := mat.NewSymDense(d, nil), make([]float64, d)
		for n, r := range x {
			p.SymRankOne(p, a/b, mat.NewVecDense(d, r))
			floats.AddScaled(h, a/b*y[n], r)
		}
		for k := range d {
			p.SetSym(k, k, p.At(k, k)+shape/rate[k])
		}
		m, v = solveNormal(p, h)
		r := 0.0
		for n := range x {
			r += y[n]*y[n] - 2*y[n]*floats.Dot(x[n], m) + quadratic(x[n], m, v)
		}
		n := float64(len(y))
		a, b = 1+n/2, 1+r/2
		elbo := 0.5*n*(logGamma(a, b)-log2Pi) - 0.5*a/b*r - klGamma(a, b, 1, 1) +
			0.5*(d*(1+log2Pi)+logDet(v))
		for k := range d {
			s := m[k]*m[k] + v.At(k, k)
			rate[k] = 1 + 0.5*s
			elbo += 0.5*(logGamma(shape, rate[k])-log2Pi-shape/rate[k]*s) -
				klGamma(shape, rate[k], 1, 1)
		}
		return elbo
	})
	compareELBO(t, res, hand, 14)
}

// logitBound is the bound of Jaakkola and Jordan (2000) of a logistic likelihood of y = ±1, at
// its best parameter c = √E[u²]. It is convex in E[u²].
func logitBound(y []float64, u pgsvi.Term) pgsvi.Factor {
	return pgsvi.NewFactor("logit", func(n int, m []pgsvi.Moments) float64 {
		c := math.Sqrt(m[0].Square)
		return y[n]*m[0].Mean/2 - c/2 - math.Log1p(math.Exp(-c))
	}, func(n int, d, m []pgsvi.Moments) {
		c := math.Sqrt(m[0].Square)
		d[0] = pgsvi.Moments{Mean: y[n] / 2, Square: -math.Tanh(c/2) / (4 * c)}
	}, u)
}

func TestGraphFactorization(t *testing.T) {
	rng := testkit.Rand(103)
	const rows, columns, k = 40, 30, 2
	var at, of []int
	var y []float64
	truth := randomDesign(rng, rows+columns, k)
	for i := range rows {
		for j := range columns {
			if rng.Float64() > 0.5 {
				continue
			}
			p := 1 / (1 + math.Exp(-2*floats.Dot(truth[i], truth[rows+j])))
			at, of, y = append(at, i), append(of, j), append(y, -1)
			if rng.Float64() < p {
				y[len(y)-1] = 1
			}
		}
	}
	// model
	var g pgsvi.Graph
	one := pgsvi.NewIsotropic(k, 1)
	a, b := g.Block("rows", rows, one), g.Block("columns", columns, one)
	logit := logitBound(y, a.Copy(at...).Inner(b.Copy(of...)))
	g.Add(logit)
	// end
	if err := pgsvi.CheckFactor(logit); err != nil {
		t.Error(err)
	}
	_, res := fitGraph(t, &g)

	o := testkit.Must(g.Objective())
	m, v := make([][]float64, 0), make([]*mat.SymDense, 0)
	for _, term := range []pgsvi.Term{a, b} {
		for _, q := range term.Of(o.Init) {
			m, v = append(m, q.(*pgsvi.Gaussian).Mean(nil)), append(v, diagonal(k, 1))
		}
	}
	second := func(i int) *mat.SymDense {
		s := mat.NewSymDense(k, nil)
		s.SymRankOne(v[i], 1, mat.NewVecDense(k, m[i]))
		return s
	}
	bound := func(n int) float64 {
		var p mat.Dense
		p.Mul(second(at[n]), second(rows+of[n]))
		return math.Sqrt(mat.Trace(&p))
	}
	cells := make([][]int, rows+columns)
	for n := range y {
		cells[at[n]] = append(cells[at[n]], n)
		cells[rows+of[n]] = append(cells[rows+of[n]], n)
	}
	hand := ascend(t, func() float64 {
		for i := range cells {
			p, h := diagonal(k, 1), make([]float64, k)
			for _, n := range cells[i] {
				c, j := bound(n), at[n]
				if i < rows {
					j = rows + of[n]
				}
				s := second(j)
				s.ScaleSym(math.Tanh(c/2)/(2*c), s)
				p.AddSym(p, s)
				floats.AddScaled(h, y[n]/2, m[j])
			}
			m[i], v[i] = solveNormal(p, h)
		}
		elbo := 0.0
		for n := range y {
			c := bound(n)
			elbo += y[n]*floats.Dot(m[at[n]], m[rows+of[n]])/2 - c/2 - math.Log1p(math.Exp(-c))
		}
		for i := range m {
			elbo -= klNormal(m[i], v[i], 1)
		}
		return elbo
	})
	compareELBO(t, res, hand, 70)
}

func TestGraphMixture(t *testing.T) {
	rng := testkit.Rand(104)
	x := randomDesign(rng, 250, 2)
	y := make([]float64, len(x))
	for n := range y {
		k := rng.IntN(2)
		y[n] = []float64{1, -1}[k] + []float64{2, -1}[k]*x[n][1] + []float64{.4,
			.6}[k]*rng.NormFloat64()
	}
	// model
	var g pgsvi.Graph
	pi := g.Block("pi", 1, testkit.Must(pgsvi.NewDirichlet([]float64{1, 1})))
	w := g.Block("w", 2, pgsvi.NewIsotropic(2, 10))
	noise := g.Block("noise", 2, gamma(1, 1))
	obs := pgsvi.Known(y...)
	lines := pgsvi.MixtureFactor(pi,
		pgsvi.NormalFactor(obs, w.Copy(0).Dot(x), noise.Copy(0)),
		pgsvi.NormalFactor(obs, w.Copy(1).Dot(x), noise.Copy(1)))
	g.Add(lines)
	// end
	q, res := fitGraph(t, &g)

	var m [2][]float64
	var v [2]*mat.SymDense
	var a, b [2]float64
	alpha := pi.Of(q)[0].Natural(nil)
	for k := range 2 { // start at the fit, because another start may lead to another optimum
		m[k] = w.Of(q)[k].(*pgsvi.Gaussian).Mean(nil)
		v[k] = diagonal(2, 0.1)
		eta := noise.Of(q)[k].Natural(nil)
		a[k], b[k] = eta[0], -eta[1]
	}
	r := make([][2]float64, len(y))
	square := func(n, k int) float64 {
		return y[n]*y[n] - 2*y[n]*floats.Dot(x[n], m[k]) + quadratic(x[n], m[k], v[k])
	}
	local := func() (sum float64) {
		pi := logDirichlet(alpha)
		for n := range y {
			var l [2]float64
			for k := range 2 {
				l[k] = pi[k] + 0.5*(logGamma(a[k], b[k])-log2Pi-a[k]/b[k]*square(n, k))
			}
			s := logSumExp(l[:])
			r[n] = [2]float64{math.Exp(l[0] - s), math.Exp(l[1] - s)}
			sum += s
		}
		return sum
	}
	hand := ascend(t, func() float64 {
		local()
		for k := range 2 {
			p, h := diagonal(2, 0.1), make([]float64, 2)
			for n := range y {
				p.SymRankOne(p, r[n][k]*a[k]/b[k], mat.NewVecDense(2, x[n]))
				floats.AddScaled(h, r[n][k]*a[k]/b[k]*y[n], x[n])
			}
			m[k], v[k] = solveNormal(p, h)
		}
		local()
		for k := range 2 {
			a[k], b[k], alpha[k] = 1, 1, 1
			for n := range y {
				a[k] += r[n][k] / 2
				alpha[k] += r[n][k]
			}
		}
		for k := range 2 {
			for n := range y {
				b[k] += r[n][k] * square(n, k) / 2
			}
		}
		elbo := local() - klDirichlet(alpha)
		for k := range 2 {
			elbo -= klNormal(m[k], v[k], 10) + klGamma(a[k], b[k], 1, 1)
		}
		return elbo
	})
	compareELBO(t, res, hand, 60)
	for n, p := range lines.Responsibilities(q) {
		if math.Abs(p[0]-r[n][0]) > 1e-4 || math.Abs(p[1]-r[n][1]) > 1e-4 {
			t.Fatalf("row %d has the responsibilities %v, by hand %v", n, p, r[n])
		}
	}
}

func TestGraphHiddenMarkov(t *testing.T) {
	rng := testkit.Rand(105)
	y, state := make([]float64, 500), 0
	for i := range y {
		if rng.Float64() < 0.08 {
			state = rng.IntN(3)
		}
		y[i] = []float64{-2, 0, 3}[state] + rng.NormFloat64()
	}
	// model
	var g pgsvi.Graph
	flat := testkit.Must(pgsvi.NewDirichlet([]float64{1, 1, 1}))
	start, move := g.Block("start", 1, flat), g.Block("move", 3, flat)
	mean := g.Block("mean", 3, pgsvi.NewIsotropic(1, 10))
	noise := g.Block("noise", 3, gamma(1, 1))
	var emit []pgsvi.Factor
	for k := range 3 {
		emit = append(emit, pgsvi.NormalFactor(pgsvi.Known(y...), mean.Copy(k), noise.Copy(k)))
	}
	chain := pgsvi.ChainFactor(start, move, emit...)
	g.Add(chain)
	// end
	q, res := fitGraph(t, &g)

	h := markovByHand{y: y, first: start.Of(q)[0].Natural(nil)}
	for k := range 3 {
		eta := noise.Of(q)[k].Natural(nil)
		h.move[k] = move.Of(q)[k].Natural(nil)
		h.m[k], h.v[k], h.a[k], h.b[k] = mean.Moments(q)[k].Mean, 0.1, eta[0], -eta[1]
	}
	compareELBO(t, res, ascend(t, h.sweep), 60)
	p := chain.Responsibilities(q)
	if len(p) != len(y) {
		t.Fatalf("there are states of %d times; want %d", len(p), len(y))
	}
	for i := range p {
		for k := range 3 {
			if math.Abs(p[i][k]-h.share[i][k]) > 1e-4 {
				t.Fatalf("time %d has the states %v, by hand %v", i, p[i], h.share[i])
			}
		}
	}
	if emit[0].Responsibilities(q) != nil {
		t.Error("a NormalFactor has responsibilities")
	}
}

// markovByHand is coordinate ascent of a hidden Markov model of three states.
type markovByHand struct {
	y          []float64
	first      []float64
	move       [3][]float64
	m, v, a, b [3]float64
	share      [][3]float64  // probabilities of the states at each time
	moves      [3][3]float64 // expected numbers of moves
}

func (h *markovByHand) square(t, k int) float64 {
	d := h.y[t] - h.m[k]
	return d*d + h.v[k]
}

// local computes the probabilities of the states by sums that are scaled at each time (Rabiner
// 1989), and returns the logarithm of the total.
func (h *markovByHand) local() float64 {
	n, total := len(h.y), 0.0
	emit, alpha, beta := make([][3]float64, n), make([][3]float64, n), make([][3]float64, n)
	var step [3][3]float64
	for i := range 3 {
		for j, l := range logDirichlet(h.move[i]) {
			step[i][j] = math.Exp(l)
		}
	}
	scale := make([]float64, n)
	for t := range n {
		for k := range 3 {
			emit[t][k] = math.Exp(0.5 * (logGamma(h.a[k], h.b[k]) - log2Pi -
				h.a[k]/h.b[k]*h.square(t, k)))
			p := 0.0
			if t == 0 {
				p = math.Exp(logDirichlet(h.first)[k])
			} else {
				for j := range 3 {
					p += alpha[t-1][j] * step[j][k]
				}
			}
			alpha[t][k] = p * emit[t][k]
			scale[t] += alpha[t][k]
		}
		for k := range 3 {
			alpha[t][k] /= scale[t]
		}
		total += math.Log(scale[t])
	}
	h.share, h.moves = make([][3]float64, n), [3][3]float64{}
	beta[n-1] = [3]float64{1, 1, 1}
	for t := n - 1; t >= 0; t-- {
		for k := range 3 {
			h.share[t][k] = alpha[t][k] * beta[t][k]
			for j := 0; j < 3 && t > 0; j++ {
				p := step[j][k] * emit[t][k] * beta[t][k] / scale[t]
				beta[t-1][j] += p
				h.moves[j][k] += alpha[t-1][j] * p
			}
		}
	}
	return total
}

func (h *markovByHand) sweep() float64 {
	h.local()
	for k := range 3 {
		p, s := 0.1, 0.0
		for t, y := range h.y {
			p += h.share[t][k] * h.a[k] / h.b[k]
			s += h.share[t][k] * h.a[k] / h.b[k] * y
		}
		h.m[k], h.v[k] = s/p, 1/p
	}
	h.local()
	for k := range 3 {
		h.a[k], h.b[k], h.first[k] = 1, 1, 1+h.share[0][k]
		for t := range h.y {
			h.a[k] += h.share[t][k] / 2
			h.b[k] += h.share[t][k] * h.square(t, k) / 2
		}
		for j := range 3 {
			h.move[k][j] = 1 + h.moves[k][j]
		}
	}
	elbo := h.local() - klDirichlet(h.first)
	for k := range 3 {
		elbo -= klDirichlet(h.move[k]) + klGamma(h.a[k], h.b[k], 1, 1) +
			klNormal([]float64{h.m[k]}, diagonal(1, h.v[k]), 10)
	}
	return elbo
}

func TestGraphHorseshoe(t *testing.T) {
	rng := testkit.Rand(106)
	const d = 8
	x := randomDesign(rng, 120, d)
	y := make([]float64, len(x))
	for n := range y {
		y[n] = -1
		if rng.Float64() < 1/(1+math.Exp(-1.5*x[n][1]+2*x[n][2])) {
			y[n] = 1
		}
	}
	// model
	var g pgsvi.Graph
	half := gamma(0.5, 1)
	w := g.Block("w", 1, nil, pgsvi.NewIsotropic(d, 1))
	all := g.Block("all", 1, half)
	each := g.Block("each", d, nil, half)
	nu := g.Block("nu", d, half)
	g.Add(
		logitBound(y, w.Dot(x)),
		pgsvi.NormalFactor(w, pgsvi.Known(0), each.Times(all)),
		pgsvi.GammaFactor(each, 0.5, nu),
	)
	// end
	_, res := fitGraph(t, &g)

	m, v := make([]float64, d), diagonal(d, 1)
	a, b := 0.5+d/2., 1.0
	rate, rateNu, c := make([]float64, d), make([]float64, d), make([]float64, len(y))
	floats.AddConst(1, rate)
	floats.AddConst(1, rateNu)
	floats.AddConst(1, c)
	hand := ascend(t, func() float64 {
		p, h := mat.NewSymDense(d, nil), make([]float64, d)
		for n := range y {
			p.SymRankOne(p, math.Tanh(c[n]/2)/(2*c[n]), mat.NewVecDense(d, x[n]))
			floats.AddScaled(h, y[n]/2, x[n])
		}
		for k := range d {
			p.SetSym(k, k, p.At(k, k)+a/b/rate[k]) // each ~ Gamma(1, rate)
		}
		m, v = solveNormal(p, h)
		elbo := 0.5 * (d*(1+log2Pi) + logDet(v))
		for n := range y {
			c[n] = math.Sqrt(quadratic(x[n], m, v))
			elbo += y[n]*floats.Dot(x[n], m)/2 - c[n]/2 - math.Log1p(math.Exp(-c[n]))
		}
		b = 1
		for k := range d {
			b += 0.5 * (m[k]*m[k] + v.At(k, k)) / rate[k]
		}
		l, _ := math.Lgamma(0.5)
		elbo -= klGamma(a, b, 0.5, 1)
		for k := range d {
			s := m[k]*m[k] + v.At(k, k)
			rate[k] = 0.5*a/b*s + 1/rateNu[k] // nu ~ Gamma(1, rateNu)
			rateNu[k] = 1 + 1/rate[k]
			elbo += 0.5*(logGamma(1, rate[k])+logGamma(a, b)-log2Pi-a/b/rate[k]*s) -
				klGamma(1, rateNu[k], 0.5, 1)
			// log Gamma(each|½, nu), and the entropy of each
			elbo += 0.5*logGamma(1, rateNu[k]) - l - 0.5*logGamma(1, rate[k]) -
				1/(rateNu[k]*rate[k]) +
				1 - math.Log(rate[k])
		}
		return elbo
	})
	compareELBO(t, res, hand, 40)
}
