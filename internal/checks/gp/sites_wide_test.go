package gp

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/site"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// slowELBO maximizes, by Newton's method over all of μ and C, the ELBO of q(z) = N(μ, CCᵀ) under
// the prior N(0, I) with terms log p(y_n|o_n + f_nᵀz). The ELBO is concave in μ and C if the
// terms are (Challis and Barber, 2013). It uses only LogProb and Derivs of the library, with its
// own expectations.
type slowELBO struct {
	lik      Likelihood
	y, o     []float64
	f        *mat.Dense
	diagonal bool // C is diagonal
	mu       []float64
	c        *mat.Dense // lower triangle
}

// expect returns E[log p] under N(m, v) and its derivatives in m and v: first, second and mixed.
func (s *slowELBO) expect(y, m, v float64) (e [6]float64) {
	if a, r, sign, rest, ok := exponentialForm(s.lik, y); ok {
		t := r * math.Exp(sign*m+v/2)
		return [6]float64{a*m - t + rest, a - sign*t, -t / 2, -t, -sign * t / 2, -t / 4}
	}
	sd := math.Sqrt(v)
	nodes, weights := []float64{-0.9602898564975363, -0.7966664774136267, -0.5255324099163290,
		-0.1834346424956498, 0.1834346424956498, 0.5255324099163290, 0.7966664774136267,
		0.9602898564975363},
		[]float64{0.1012285362903763, 0.2223810344533745, 0.3137066458778873, 0.3626837833783620,
			0.3626837833783620, 0.3137066458778873, 0.2223810344533745, 0.1012285362903763}
	// Panels of a quarter of a standard deviation, and finer ones toward the kinks.
	var cuts []float64
	for u := -11.0; u <= 11; u += 0.25 {
		cuts = append(cuts, u)
	}
	for _, kink := range []float64{0, y} {
		at := (kink - m) / sd
		cuts = append(cuts, at)
		for d := 0.05; d < 60; d *= 1.4 {
			cuts = append(cuts, at-d/sd, at+d/sd)
		}
	}
	slices.Sort(cuts)
	for k, hi := range cuts[1:] {
		lo := cuts[k]
		if lo < -11 || hi > 11 || hi <= lo {
			continue
		}
		for j, t := range nodes {
			u := lo + (hi-lo)*(t+1)/2
			w := (hi - lo) / 2 * weights[j] * math.Exp(-u*u/2) / math.Sqrt(2*math.Pi)
			d1, d2 := s.lik.(Differentiable).Derivs(y, m+sd*u)
			e[0] += w * s.lik.LogProb(y, m+sd*u)
			e[1] += w * d1
			e[2] += w * d2 / 2
			e[3] += w * d2
			e[4] += w * d2 * u / sd / 2
			e[5] += w * d2 * (u*u - 1) / v / 4
		}
	}
	return e
}

// exponentialForm writes log p(y|η) as aη − re^{±η} + rest, if it has that form.
func exponentialForm(lik Likelihood, y float64) (a, r, sign, rest float64, ok bool) {
	switch l := lik.(type) {
	case Poisson:
		g, _ := math.Lgamma(y + 1)
		return y, 1, 1, -g, true
	case Gamma:
		g, _ := math.Lgamma(l.Shape)
		return -l.Shape, l.Shape * y, -1, l.Shape*math.Log(l.Shape) - g + (l.Shape-1)*math.Log(y),
			true
	case Exponential:
		return -1, y, -1, 0, true
	}
	return 0, 0, 0, 0, false
}

// value returns the ELBO. It stores its gradient and Hessian over (μ, columns of the lower
// triangle) unless h is nil.
func (s *slowELBO) value(mu []float64, c *mat.Dense, g []float64, h *mat.SymDense) float64 {
	r := len(mu)
	elbo := float64(r) / 2
	at := func(i, j int) int { return r + i*(i+1)/2 + j } // index of C_ij, j ≤ i
	size := r + r*(r+1)/2
	clear(g)
	if h != nil {
		h.Zero()
	}
	for i, m := range mu {
		elbo -= m * m / 2
		for j := range i + 1 {
			elbo -= c.At(i, j) * c.At(i, j) / 2
		}
		if !(c.At(i, i) > 0) {
			return math.Inf(-1)
		}
		elbo += math.Log(c.At(i, i))
		if h == nil {
			continue
		}
		g[i] -= m
		h.SetSym(i, i, -1)
		for j := range i + 1 {
			g[at(i, j)] -= c.At(i, j)
			h.SetSym(at(i, j), at(i, j), -1)
		}
		g[at(i, i)] += 1 / c.At(i, i)
		h.SetSym(at(i, i), at(i, i), -1-1/(c.At(i, i)*c.At(i, i)))
	}
	dm, dv, t := make([]float64, size), make([]float64, size), make([]float64, r)
	for n, y := range s.y {
		f := s.f.RawRowView(n)
		m, v := 0.0, 0.0
		if s.o != nil {
			m = s.o[n]
		}
		for j := range r {
			m += f[j] * mu[j]
			t[j] = 0
			for i := j; i < r; i++ {
				t[j] += c.At(i, j) * f[i]
			}
			v += t[j] * t[j]
		}
		e := s.expect(y, m, v)
		elbo += e[0]
		if h == nil {
			continue
		}
		clear(dm)
		clear(dv)
		copy(dm, f)
		for i := range r {
			for j := range i + 1 {
				dv[at(i, j)] = 2 * f[i] * t[j]
			}
		}
		for a := range size {
			g[a] += e[1]*dm[a] + e[2]*dv[a]
			for b := range a + 1 {
				if x := e[3]*dm[a]*dm[b] + e[4]*(dm[a]*dv[b]+dv[a]*dm[b]) +
					e[5]*dv[a]*dv[b]; x != 0 {
					h.SetSym(a, b, h.At(a, b)+x)
				}
			}
		}
		for j := range r {
			for i := j; i < r; i++ {
				for k := j; k <= i; k++ {
					h.SetSym(at(i, j), at(k, j), h.At(at(i, j), at(k, j))+2*e[2]*f[i]*f[k])
				}
			}
		}
	}
	return elbo
}

// run returns the ELBO at the optimum, starting from the current state, and half of the last
// decrement.
func (s *slowELBO) run(times int) (elbo, left float64) {
	r := len(s.mu)
	size := r + r*(r+1)/2
	g, h := make([]float64, size), mat.NewSymDense(size, nil)
	for range times {
		elbo = s.value(s.mu, s.c, g, h)
		h.ScaleSym(-1, h)
		for i := range r {
			for j := range i {
				if k := r + i*(i+1)/2 + j; s.diagonal {
					g[k] = 0
					for a := range size {
						h.SetSym(k, a, 0)
					}
					h.SetSym(k, k, 1)
				}
			}
		}
		var chol mat.Cholesky
		for ridge := 0.0; !chol.Factorize(h); ridge = math.Max(1e-10, 10*ridge) {
			for a := range size {
				h.SetSym(a, a, h.At(a, a)+ridge*(1+math.Abs(h.At(a, a))))
			}
		}
		var step mat.VecDense
		if err := chol.SolveVecTo(&step, mat.NewVecDense(size, g)); err != nil {
			if _, bad := err.(mat.Condition); !bad {
				return elbo, math.Inf(1)
			}
		}
		left = mat.Dot(&step, mat.NewVecDense(size, g)) / 2
		if left < 1e-11 {
			return elbo, left
		}
		moved := false
		for t := 1.0; t > 1e-9 && !moved; t /= 2 {
			mu, c := make([]float64, r), mat.NewDense(r, r, nil)
			for i := range r {
				mu[i] = s.mu[i] + t*step.AtVec(i)
				for j := range i + 1 {
					c.Set(i, j, s.c.At(i, j)+t*step.AtVec(r+i*(i+1)/2+j))
				}
			}
			if next := s.value(mu, c, nil, nil); next > elbo {
				s.mu, s.c, elbo, moved = mu, c, next, true
			}
		}
		if !moved {
			return elbo, left
		}
	}
	return elbo, left
}

// from sets the current state to the state of a Stepper over dense sites or over weights. The
// rows are those of X Λ0^−½ or of a factor of K.
func (s *slowELBO) from(t testing.TB, st Stepper) {
	t.Helper()
	var prec mat.SymDense
	var h []float64
	switch a := kit.AlgOf[site.Algebra](st).(type) {
	case *site.DualAlgebra:
		s.fromSites(a.DenseAlgebra, &prec, &h)
	case *site.DenseAlgebra:
		s.fromSites(a, &prec, &h)
	case *site.WeightAlgebra:
		d := len(a.Run.Mean)
		s.f = mat.NewDense(a.N, d, nil)
		prec = *mat.NewSymDense(d, nil)
		h = make([]float64, d)
		row := make([]float64, d)
		for i := range a.N {
			a.Lin.X.Dense1(row, i)
			for j, l := range a.Lin.Prior.Prec {
				row[j] /= math.Sqrt(l)
			}
			s.f.SetRow(i, row)
		}
		for i := range d {
			for j := range i + 1 {
				prec.SetSym(i, j, a.Run.P[i*d+j]/math.Sqrt(a.Lin.Prior.Prec[i]*a.Lin.Prior.Prec[j]))
			}
		}
		s.mu = make([]float64, d)
		for j, l := range a.Lin.Prior.Prec {
			s.mu[j] = a.Run.Mean[j] * math.Sqrt(l)
		}
	case *site.FactoredAlgebra:
		d := len(a.Cur.Mean)
		s.f, s.mu, s.c, s.diagonal = mat.NewDense(a.N, d, nil), make([]float64, d),
			mat.NewDense(d, d, nil), true
		row := make([]float64, d)
		for i := range a.N {
			a.Lin.X.Dense1(row, i)
			for j, l := range a.Lin.Prior.Prec {
				row[j] /= math.Sqrt(l)
			}
			s.f.SetRow(i, row)
		}
		for j, l := range a.Lin.Prior.Prec {
			s.mu[j] = a.Cur.Mean[j] * math.Sqrt(l)
			s.c.Set(j, j, math.Sqrt(l/a.Fam.(*site.DiagFamily).Cur[j]))
		}
		return
	default:
		t.Fatalf("%T", a)
	}
	var chol mat.Cholesky
	if !chol.Factorize(&prec) {
		t.Fatal("precision")
	}
	if s.mu == nil {
		var m mat.VecDense
		_ = chol.SolveVecTo(&m, mat.NewVecDense(len(h), h))
		s.mu = m.RawVector().Data
	}
	var cov mat.SymDense
	_ = chol.InverseTo(&cov)
	if !chol.Factorize(&cov) {
		t.Fatal("covariance")
	}
	var l mat.TriDense
	chol.LTo(&l)
	s.c = mat.DenseCopyOf(&l)
}

func (s *slowELBO) fromSites(a *site.DenseAlgebra, prec *mat.SymDense, h *[]float64) {
	var eig mat.EigenSym
	eig.Factorize(mat.NewSymDense(a.N, a.K), true)
	values := eig.Values(nil)
	var u mat.Dense
	eig.VectorsTo(&u)
	var cols []int
	for j, l := range values {
		if l > 1e-14*values[a.N-1] {
			cols = append(cols, j)
		}
	}
	r := len(cols)
	s.f = mat.NewDense(a.N, r, nil)
	for k, j := range cols {
		for i := range a.N {
			s.f.Set(i, k, u.At(i, j)*math.Sqrt(values[j]))
		}
	}
	*prec, *h = *mat.NewSymDense(r, nil), make([]float64, r)
	for i := range r {
		prec.SetSym(i, i, 1)
	}
	for n := range a.N {
		f := s.f.RawRowView(n)
		for i := range r {
			(*h)[i] += f[i] * (a.Cur.A[n] + a.Cur.Gamma[n]*a.Cur.M[n])
			for j := range i + 1 {
				prec.SetSym(i, j, prec.At(i, j)+a.Cur.Gamma[n]*f[i]*f[j])
			}
		}
	}
}

// wideProblem is a model whose terms slowELBO can compute.
type wideProblem struct {
	name  string
	model Model
	lik   Likelihood
	y, o  []float64
}

// solve runs the nil Solver and returns the optimum that slowELBO reaches from the result.
func (p *wideProblem) solve(t testing.TB) (res *Result, optimum float64, took time.Duration) {
	t.Helper()
	start := time.Now()
	res, err := (&Solver{Converger: AnyOf(DefaultConverger(), Deadline(5*time.Minute))}).Run(
		context.Background(), p.model)
	took = time.Since(start)
	if err != nil {
		t.Errorf("%s: %v", p.name, err)
		return nil, 0, took
	}
	s := &slowELBO{lik: p.lik, y: p.y, o: p.o}
	s.from(t, res.Stepper)
	optimum, _ = s.run(30)
	return res, optimum, took
}

// check reports the faults of a fit of p.
func (p *wideProblem) check(t testing.TB, passes float64) {
	t.Helper()
	res, optimum, took := p.solve(t)
	if res == nil {
		return
	}
	gap := optimum - res.ELBO
	tol := 2*res.Gap + 1e-6 + 1e-11*math.Abs(optimum) + 2*res.ELBOErr
	// If priors have variance 1e6 and counts are 1e6, rounding may hide a gap of 1e-10 nats.
	rounded := res.Status == Stalled && math.Abs(gap) < 1e-6*math.Abs(optimum)
	bad := !rounded && (res.Status != Converged || math.Abs(gap) > tol) || res.Passes > passes
	if text := fmt.Sprintf(
		"%s: %v after %v passes, ELBO %.9g, optimum %.9g: gap %.3g, said to be %.3g; %v", p.name,
		res.Status, res.Passes, res.ELBO, optimum, gap, res.Gap,
		took.Round(time.Millisecond)); bad {
		t.Error(text)
	} else {
		t.Log(text)
	}
}

// Counts of 0 and 1 under wide priors, with fewer rows than weights, have exponentials of
// variances in the thousands.
func TestPoissonWidePriorGLM(t *testing.T) {
	t.Parallel()
	rng := testkit.Rand(1)
	n, d := 21, 60
	x, y := mat.NewDense(n, d, nil), make([]float64, n)
	for i := range n {
		for j := range d {
			x.Set(i, j, rng.NormFloat64())
		}
		y[i] = float64(rng.IntN(2))
	}
	for _, sd := range []float64{1, 10, 100, 1000} {
		if testing.Short() && sd != 10 {
			continue
		}
		g, err := NewGLM(x, y, Poisson{}, &GLMOptions{PriorSD: sd})
		if err != nil {
			t.Fatal(err)
		}
		(&wideProblem{fmt.Sprintf("prior sd %g", sd), g, Poisson{}, y, nil}).check(t, 30)
	}
}

// A Gaussian process has the same difficulty, with correlated latent values.
func TestPoissonWidePriorGP(t *testing.T) {
	t.Parallel()
	n, scales := 30, []float64{10, 100, 300, 1000}
	if testing.Short() {
		n, scales = 20, scales[2:3]
	}
	rng := testkit.Rand(3)
	x, y := mat.NewDense(n, 1, nil), make([]float64, n)
	for i := range n {
		x.Set(i, 0, float64(i)/5)
		for p := rng.ExpFloat64(); p < 0.3*math.Exp(math.Sin(float64(i)/5)); p += rng.ExpFloat64() {
			y[i]++
		}
	}
	for _, scale := range scales {
		g, err := NewGP(x, y, Matern52{Scale: scale, Length: 1}, Poisson{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		(&wideProblem{fmt.Sprintf("scale %g", scale), g, Poisson{}, y, nil}).check(t, 80)
	}
}

// If the prior of a stream is so wide in the units of a column that expectations overflow, the
// stream must still move on.
func TestStreamPriorOverflows(t *testing.T) {
	x := mat.NewDense(2, 4, []float64{3e6, 1, 2e-3, 0, -2e6, 2, 5e-3, 0})
	y, o, lik := []float64{44434, 28630}, []float64{138, 336}, Gamma{Shape: 16}
	opt := &GLMOptions{PriorSD: 50}
	s, err := NewGLMStream(4, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	err = s.AddAll(context.Background(), func(yield func(Row, error) bool) {
		for i := range y {
			if !yield(Row{Val: x.RawRowView(i), Y: y[i], Offset: o[i]}, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	post, err := s.Posterior()
	if err != nil {
		t.Fatal(err)
	}
	g, err := NewGLM(x, y, lik, &GLMOptions{PriorSD: 50, Offset: o})
	if err != nil {
		t.Fatal(err)
	}
	fit, _, err := g.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	m, _ := post.At(x).Latent(nil, nil)
	want, v := fit.At(x).Latent(nil, nil)
	for i := range y {
		if d := math.Abs(m[i] - want[i]); !(d < 0.02*math.Sqrt(v[i])) {
			t.Errorf("row %d: latent mean %v in a stream, %v in a fit, whose sd is %v", i, m[i],
				want[i], math.Sqrt(v[i]))
		}
	}
}

// Newton steps are for slow convergence. Ordinary data must not need them.
func TestOrdinaryIsNotSlow(t *testing.T) {
	t.Parallel()
	for _, c := range gpCases[:2] {
		s := c.load(t)
		if a := kit.AlgOf[*site.DenseAlgebra](
			kit.Solve(t, Solver{}, c.model(t, s)).Stepper); a.Progress.Slow ||
			a.Progress.Passes == 0 {
			t.Errorf("a GP on %s: %+v", c.name, a.Progress)
		}
		g, err := NewGLM(s.x, s.y, BernoulliLogit{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if a := kit.AlgOf[*site.WeightAlgebra](
			kit.Solve(t, Solver{}, g).Stepper); a.Progress.Slow ||
			a.Progress.Passes == 0 {
			t.Errorf("a GLM on %s: %+v", c.name, a.Progress)
		}
	}
}

// wideRandom draws a problem: any likelihood that slowELBO can compute, a GP or a GLM of any
// shape, priors from narrow to so wide that exponentials overflow, counts of millions, offsets,
// repeated rows, separable labels.
func wideRandom(t testing.TB, seed uint64) *wideProblem {
	t.Helper()
	rng := testkit.Rand(seed)
	pick := func(x ...float64) float64 { return x[rng.IntN(len(x))] }
	sd := pick(1e-3, 1e-2, 0.1, 1, 3, 10, 30, 100, 300, 1000)
	n := 3 + rng.IntN(40)
	d := 1 + rng.IntN(6)
	dual, gp := rng.IntN(3) == 0, rng.IntN(3) == 0
	if dual {
		n, d = 3+rng.IntN(7), 10+rng.IntN(30)
	}
	if gp {
		n, d = 3+rng.IntN(12), 1
	}
	x := mat.NewDense(n, d, nil)
	for i := range n {
		for j := range d {
			x.Set(i, j, rng.NormFloat64())
		}
		if i > 0 && rng.IntN(6) == 0 {
			x.SetRow(i, x.RawRowView(rng.IntN(i)))
		}
	}
	size := pick(0.1, 1, 10, 1e3, 1e6)
	likes := []Likelihood{Poisson{}, NegativeBinomial{Shape: pick(0.3, 1, 10)},
		Gamma{Shape: pick(0.5, 2, 20)}, Exponential{}, Binomial{Trials: pick(2, 20, 1e3)},
		BernoulliLogit{}, BernoulliProbit{}, StudentT{DF: pick(3, 10), Scale: pick(0.3, 1)}}
	lik := likes[rng.IntN(len(likes))]
	separable := rng.IntN(3) == 0
	var o []float64
	if pick(0, 0, 1) == 1 {
		o = make([]float64, n)
		most := pick(1, 5, 30)
		switch lik.(type) {
		case BernoulliLogit, StudentT, Binomial:
			most *= pick(1, 30)
		}
		for i := range o {
			o[i] = most * (2*rng.Float64() - 1)
		}
	}
	y := make([]float64, n)
	for i := range y {
		up := x.At(i, 0) > 0
		if !separable {
			up = rng.IntN(2) == 0
		}
		switch l := lik.(type) {
		case Poisson, NegativeBinomial:
			y[i] = math.Floor(size * rng.ExpFloat64() * float64(rng.IntN(2)))
		case Gamma, Exponential:
			y[i] = size * rng.ExpFloat64()
		case Binomial:
			y[i] = float64(rng.IntN(int(l.Trials) + 1))
			if separable {
				y[i] = float64(design.B2i(up)) * l.Trials
			}
		case StudentT:
			y[i] = pick(1, 1, 1, 10) * rng.NormFloat64()
		default:
			y[i] = testkit.PlusMinus(up)
		}
	}
	shape := fmt.Sprintf("N = %d, D = %d", n, d)
	var m Model
	var err error
	if gp {
		k := []Kernel{Matern52{Scale: sd, Length: pick(0.3, 1, 3)},
			Matern32{Scale: sd, Length: pick(0.3, 1)},
			SquaredExp{Scale: sd, Length: pick(0.3, 1)}}[rng.IntN(3)]
		o, shape = nil, fmt.Sprintf("GP %T, N = %d", k, n)
		m, err = NewGP(x, y, k, lik, nil)
	} else {
		opt := &GLMOptions{PriorSD: sd, Offset: o}
		if rng.IntN(4) == 0 {
			opt.Covariance = DiagonalCovariance
			shape += ", diagonal"
		}
		m, err = NewGLM(x, y, lik, opt)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &wideProblem{fmt.Sprintf(
		"seed %d: %T%+v, %s, prior sd %g, size %g, offsets %v, separable %v", seed, lik, lik, shape,
		sd, size, o != nil, separable), m, lik, y, o}
}

var wideSeeds, wideFrom = flag.Int("wide", 0,
	"problems of TestWideRandom; 0 means 100, or 20 in short, and those that were hard"),
	flag.Int("widefrom", 0, "first seed of TestWideRandom")

// wideHard holds seeds of wideRandom that once ended far from the optimum: with a prior under
// which expectations overflow (885, and 897, which claimed to be the optimum), a diagonal V
// (929), targets that do not settle (308, 868, 140), and Newton steps that fail at first (719).
var wideHard = []int{885, 897, 929, 308, 868, 140, 719}

// TestWideRandom checks that the nil Solver reaches the optimum in few passes for any prior and
// data, and estimates its distance.
func TestWideRandom(t *testing.T) {
	t.Parallel()
	var seeds []int
	n := *wideSeeds
	switch {
	case n == 0 && testing.Short():
		n, seeds = 20, wideHard[:3]
	case n == 0:
		n, seeds = 100, wideHard
	}
	for seed := range n {
		seeds = append(seeds, *wideFrom+seed)
	}
	for _, seed := range seeds {
		most := 110.0
		if slices.Contains(wideHard, seed) {
			most = 250 // the number depends on rounding
		}
		wideRandom(t, uint64(seed)).check(t, most)
	}
}

// TestZeroCountsWidestPrior fits n counts of zero at x = 1 under N(0, k). The optimum has m =
// −nkg and v = k/(1 + nkg) with g = exp(m + v/2). The wider the prior, the flatter the ELBO is
// along constant m + v/2, compared with other directions.
func TestZeroCountsWidestPrior(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		n    int
		most float64 // largest error in standard deviations
		m    func(sd float64, x *mat.Dense, y []float64) (Model, error)
	}{
		{"one row", 1, 1e7, func(sd float64, x *mat.Dense, y []float64) (Model, error) {
			return NewGLM(x, y, Poisson{}, &GLMOptions{PriorSD: sd})
		}},
		{"two rows", 2, 1e7, func(sd float64, x *mat.Dense, y []float64) (Model, error) {
			return NewGLM(x, y, Poisson{}, &GLMOptions{PriorSD: sd})
		}},
		{"GP", 2, 1e6, func(sd float64, x *mat.Dense, y []float64) (Model, error) {
			return NewGP(x, y, Constant{Scale: sd}, Poisson{}, nil)
		}},
		{"diagonal", 2, 1e7, func(sd float64, x *mat.Dense, y []float64) (Model, error) {
			return NewGLM(x, y, Poisson{}, &GLMOptions{PriorSD: sd, Covariance: DiagonalCovariance})
		}},
		{"low rank", 2, 1e7, func(sd float64, x *mat.Dense, y []float64) (Model, error) {
			return NewGLM(x, y, Poisson{},
				&GLMOptions{PriorSD: sd, Covariance: LowRankCovariance, Rank: 1})
		}},
	} {
		for sd := 1e2; sd <= c.most; sd *= 10 {
			n, k := float64(c.n), sd*sd
			lo, hi := -80.0, 0.0 // range of log g
			for range 200 {
				if g := (lo + hi) / 2; -n*k*math.Exp(g)+0.5*k/(1+n*k*math.Exp(g)) > g {
					lo = g
				} else {
					hi = g
				}
			}
			g := math.Exp(lo)
			want := -n*g - 0.5*(n*n*k*g*g+1/(1+n*k*g)-1+math.Log1p(n*k*g))
			x := mat.NewDense(c.n, 1, nil)
			for i := range c.n {
				x.Set(i, 0, 1)
			}
			m, err := c.m(sd, x, make([]float64, c.n))
			if err != nil {
				t.Fatal(err)
			}
			res, err := new(Solver).Run(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			if res.Status != Converged || res.Passes > 40 || !(math.Abs(res.ELBO-want) < 1e-9) {
				t.Errorf("%s, prior sd %g: %v after %g passes at %.12g, want %.12g", c.name, sd,
					res.Status, res.Passes, res.ELBO, want)
			}
		}
	}
}

// TestSitesBeside checks problems whose exponentials overflow at the prior mean, for example
// under offsets of hundreds. The fit must go to the nearest mean with finite expectations and on
// to the optimum, where the gradient of the mean is zero.
func TestSitesBeside(t *testing.T) {
	ones := func(n int) *mat.Dense {
		x := mat.NewDense(n, 1, nil)
		for i := range n {
			x.Set(i, 0, 1)
		}
		return x
	}
	for _, c := range []struct {
		name string
		x    *mat.Dense
		lik  Likelihood
		o    []float64
		cov  Covariance
	}{
		{"exponential", ones(1), Exponential{}, []float64{-1000}, FullCovariance},
		{"gamma", ones(1), Gamma{Shape: 3}, []float64{-900}, DiagonalCovariance},
		{"poisson", ones(1), Poisson{}, []float64{900}, FullCovariance},
		{"more rows than weights", ones(4), Exponential{}, []float64{-1000, -730, 0, 300},
			FullCovariance},
		{"diagonal", mat.NewDense(3, 2, []float64{1, 0, 0, 1, 1, 1}), Exponential{},
			[]float64{-480, -700, -20}, DiagonalCovariance},
	} {
		y := make([]float64, len(c.o))
		for i := range y {
			y[i] = 1
		}
		g, err := NewGLM(c.x, y, c.lik, &GLMOptions{PriorSD: 1, Offset: c.o, Covariance: c.cov})
		if err != nil {
			t.Fatal(err)
		}
		q, r, err := g.Fit(context.Background(), nil)
		if err != nil || r.Status != Converged {
			t.Errorf("%s: %v, %v", c.name, r.Status, err)
			continue
		}
		if r.Passes > 300 || !(r.GapBound < 1e-6*math.Abs(r.ELBO)) {
			t.Errorf("%s: %v passes, GapBound %v", c.name, r.Passes, r.GapBound)
		}
		mean := q.Mean(nil)
		m, v := q.At(c.x).Latent(nil, nil)
		for j, w := range mean {
			sum := -w
			curve := 1.0
			for i := range m {
				e := ExpectLogProb(c.lik, y[i], m[i]+c.o[i], v[i])
				sum += e.D1 * c.x.At(i, j)
				curve -= e.D2 * c.x.At(i, j) * c.x.At(i, j)
			}
			if !(math.Abs(sum) < 1e-3*math.Sqrt(curve)) {
				t.Errorf("%s: gradient %v at mean %v, of curvature %v", c.name, sum, mean, curve)
			}
		}
	}
}

// TestWideStart checks rates with offsets under priors so wide that expectations overflow. A
// first step toward narrower marginals must not lead to a state from which no step returns.
func TestWideStart(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	for _, lik := range []Likelihood{Exponential{}, Gamma{Shape: 8}, Poisson{}} {
		for _, cov := range []Covariance{DiagonalCovariance, LowRankCovariance, FullCovariance} {
			for _, unit := range []float64{1, 1e2, 1e4} {
				rng := rand.New(rand.NewPCG(uint64(unit), 5))
				const n, d = 17, 33
				x, y, o := mat.NewDense(n, d, nil), make([]float64, n), make([]float64, n)
				for i := range y {
					for j := range d {
						x.Set(i, j, unit*rng.NormFloat64())
					}
					y[i], o[i] = math.Ceil(10*rng.ExpFloat64()), 100*rng.NormFloat64()
				}
				g := kit.MustGLM(t, x, y, lik,
					GLMOptions{PriorSD: 7, Covariance: cov, Rank: 2, Offset: o})
				_, res, err := g.Fit(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if res.Status != Converged || !(res.ELBO > -1e6) {
					t.Errorf("%T, %v, unit %g: %v after %g passes at %.6g, gap %.3g", lik, cov,
						unit, res.Status, res.Passes, res.ELBO, res.Gap)
				}
			}
		}
	}
}

// TestWideContradictions checks rates of rows whose offsets differ by hundreds, seen through
// fewer weights. A step gains only a factor of e of the exponentials, and their precisions hide
// all other digits. Such runs once ended at ELBOs of −1e200.
func TestWideContradictions(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	for _, lik := range []Likelihood{Exponential{}, Gamma{Shape: 40}, Poisson{}} {
		for _, cov := range []Covariance{DiagonalCovariance, LowRankCovariance, FullCovariance} {
			for _, far := range []float64{150, 220, 260, 300, 200, 250,
				280}[:testkit.Longer(7, 4)] {
				rng := rand.New(rand.NewPCG(uint64(far), 6))
				const n, d = 12, 4
				x, y, o := mat.NewDense(n, d, nil), make([]float64, n), make([]float64, n)
				for i := range y {
					for j := range d {
						x.Set(i, j, rng.NormFloat64())
					}
					y[i], o[i] = math.Ceil(10*rng.ExpFloat64()), far*rng.NormFloat64()
				}
				_, res, err := kit.MustGLM(t, x, y, lik,
					GLMOptions{PriorSD: 200, Covariance: cov, Rank: 2, Offset: o}).Fit(t.Context(),
					nil)
				want := Converged
				// the ELBO is −1e105, with a rounding error of 1e89 nats
				if res != nil && min(res.Gap, res.ELBOErr) > 1 {
					want = Stalled
				}
				if res != nil && res.Status == Stalled && math.Abs(res.ELBO) > 1e14 {
					want = Stalled // neighboring float64 of this size differ by at least 0.02 nats
				}
				if err != nil || res.Status != want || res.Passes > 200 {
					t.Errorf("%T, %v, offsets of %g: %v after %g passes at %.6g, gap %.3g, %v", lik,
						cov, far, res.Status, res.Passes, res.ELBO, res.Gap, err)
				}
			}
		}
	}
}
