package site

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/special"
	"github.com/pgsvi/pgsvi/internal/term"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// softmax is the softmax likelihood.
type softmax struct{ poisson }

func (softmax) Identify(d *save.Digest) {}

func (softmax) ExpectSoftmax(y, tol float64, m, v, d1, d2 []float64) (value, err float64) {
	lse, err := expect.SoftmaxWithin(max(tol, 1e-11), m, v, d1, d2)
	for c := range d1 {
		d1[c], d2[c] = -d1[c], -d2[c]
	}
	d1[int(y)]++
	return m[int(y)] - lse, err
}

func (softmax) Curvature(m, v, h []float64) {
	k := len(m)
	expect.SoftmaxCross(m, v, nil, h)
	for i := range h {
		if i/k != i%k {
			h[i] = -h[i]
		}
	}
}

// classProblem returns a random linear model of n rows, d weights and k classes.
func classProblem(rng *rand.Rand, n, d, k int) *LinearModel {
	x, y := make([]float64, n*d), make([]float64, n)
	scale := math.Exp(rng.NormFloat64())
	for i := range x {
		x[i] = scale * rng.NormFloat64()
	}
	for i := range y {
		y[i] = float64(rng.IntN(k))
	}
	prec := make([]float64, d)
	for j := range prec {
		prec[j] = math.Exp(rng.NormFloat64())
	}
	return &LinearModel{
		Terms: &term.Terms{Y: y, Lik: softmax{}, K: k},
		X:     &design.Matrix{Rows: n, Cols: d, Dense: x},
		Prior: gauss.Prior{Prec: prec},
	}
}

// bestClasses returns the greatest ELBO of a Gaussian of three classes of one weight, with any
// covariance. It uses z of two orthonormal contrasts, V⁻¹ = λI + ΣxxB'HB and Newton's steps of
// the mean, with a product of Gauss–Hermite rules.
func bestClasses(l *LinearModel) float64 {
	b := [3][2]float64{{1 / math.Sqrt2, 1 / math.Sqrt(6)}, {-1 / math.Sqrt2, 1 / math.Sqrt(6)},
		{0, -2 / math.Sqrt(6)}}
	rule, prec := expect.Hermite(40), l.Prior.Prec[0]
	var m [2]float64
	v := [3]float64{1 / prec, 0, 1 / prec} // 00, 10, 11
	best := math.Inf(-1)
	for range 60 {
		l0 := math.Sqrt(v[0])
		l1 := v[1] / l0
		l2 := math.Sqrt(v[2] - l1*l1)
		g, p := [2]float64{-prec * m[0], -prec * m[1]}, [3]float64{prec, 0, prec}
		sum := 0.0
		for i, s := range rule.X {
			for j, t := range rule.X {
				w := rule.W[i] * rule.W[j]
				z := [2]float64{m[0] + l0*s, m[1] + l1*s + l2*t}
				for n, y := range l.Terms.Y {
					x := l.X.Dense[n]
					var eta, pi [3]float64
					for c := range eta {
						eta[c] = x * (b[c][0]*z[0] + b[c][1]*z[1])
					}
					most := max(eta[0], eta[1], eta[2])
					total := 0.0
					for c := range eta {
						pi[c] = math.Exp(eta[c] - most)
						total += pi[c]
					}
					sum += w * (eta[int(y)] - most - math.Log(total))
					var mean [2]float64
					for c := range pi {
						pi[c] /= total
						mean[0] += pi[c] * b[c][0]
						mean[1] += pi[c] * b[c][1]
					}
					for k := range g {
						g[k] += w * x * (b[int(y)][k] - mean[k])
					}
					for c := range pi {
						d0, d1 := b[c][0]-mean[0], b[c][1]-mean[1]
						p[0] += w * x * x * pi[c] * d0 * d0
						p[1] += w * x * x * pi[c] * d0 * d1
						p[2] += w * x * x * pi[c] * d1 * d1
					}
				}
			}
		}
		kl := 0.5 * (prec*(v[0]+v[2]+m[0]*m[0]+m[1]*m[1]) - 2 - 2*math.Log(prec) - math.Log(
			v[0]*v[2]-v[1]*v[1]))
		best = max(best, sum-kl)
		det := p[0]*p[2] - p[1]*p[1]
		v = [3]float64{p[2] / det, -p[1] / det, p[0] / det}
		m[0] += v[0]*g[0] + v[1]*g[1]
		m[1] += v[1]*g[0] + v[2]*g[1]
	}
	return best
}

// TestContrastProof checks that no Gaussian of any covariance has an ELBO above the gap bound, at
// any q. With two classes the mean field contains all Gaussians. With three classes and one
// weight bestClasses finds the best one.
func TestContrastProof(t *testing.T) {
	problems := testkit.Longer(50, testkit.Shorter(20, 4))
	states := testkit.Shorter(200, 120)
	near := 0
	for seed := range problems {
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		k := 2 + seed%2
		d := 1
		if k == 2 {
			d = 1 + rng.IntN(3)
		}
		l := classProblem(rng, 2+rng.IntN(12), d, k)
		s, err := NewSoftmaxAlgebra(l, term.Crew{})
		if err != nil {
			t.Fatal(err)
		}
		for range 60 {
			if _, err := s.Ascend(); err != nil {
				t.Fatal(err)
			}
		}
		x, err := s.Evaluate(0)
		if err != nil {
			t.Fatal(err)
		}
		best := x.ELBO
		if k == 3 {
			best = max(best, bestClasses(l)-1e-9)
		}
		g, a, m := make([]float64, s.N), make([]float64, s.N), make([]float64, s.N)
		at := s.Cur
		gamma, means, lin := append([]float64(nil), at.Gamma...), append([]float64(nil), at.M...),
			append([]float64(nil), at.A...)
		for range states {
			size := math.Pow(10, -4*rng.Float64())
			for i := range g {
				g[i] = gamma[i] * math.Exp(2*size*rng.NormFloat64())
				a[i] = lin[i] + size*rng.NormFloat64()
				m[i] = means[i]
			}
			s.StartAt(g, a, m)
			if err := s.Refresh(); err != nil {
				t.Fatal(err)
			}
			mean, rest, ok := s.mover.loss()
			if !ok {
				t.Fatalf("seed %d: no bound", seed)
			}
			elbo := s.elbo()
			if !(elbo+mean+rest+s.Cur.Err > best-special.Eps*8*math.Abs(best)) {
				t.Fatalf("seed %d: an ELBO of %v is bounded by %v more, and %v is the best", seed,
					elbo, mean+rest, best)
			}
			if lost := best - elbo; lost > 1e-4 && mean+rest < 4*lost {
				near++
			}
		}
	}
	if near*4 < problems*states { // the test would check too little
		t.Errorf("only %d of %d bounds are within a factor of 4", near, problems*states)
	}
}

// TestContrastCoarse checks that expectations are coarse far from the optimum but not at the end,
// where the ELBO and the predicted gain must match a run with fine expectations.
func TestContrastCoarse(t *testing.T) {
	l := classProblem(rand.New(rand.NewPCG(3, 1)), 300, 4, 4)
	s, err := NewSoftmaxAlgebra(l, term.Crew{})
	if err != nil {
		t.Fatal(err)
	}
	coarse := 0
	for range 30 {
		if _, err := s.Ascend(); err != nil {
			t.Fatal(err)
		}
		x, err := s.Evaluate(0)
		if err != nil {
			t.Fatal(err)
		}
		if s.Batch.Cur.Tol > 0 {
			coarse++
			if !(s.Batch.Cur.Err <= coarseAfter*x.Gap) {
				t.Errorf("errors of %v with a gap of %v", s.Batch.Cur.Err, x.Gap)
			}
		}
	}
	if coarse == 0 || s.Batch.Cur.Tol != 0 {
		t.Errorf("%d coarse evaluations, the last to %v", coarse, s.Batch.Cur.Tol)
	}
}

// TestCoupled checks that the curvature has the precisions as its diagonal, and that coupled
// returns the inverse sum of all δ.
func TestCoupled(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 5000 {
		k := 2 + rng.IntN(9)
		p, gamma, delta := make([]float64, k), make([]float64, k), make([]float64, k)
		sum, scale := 0.0, math.Exp(rng.NormFloat64())
		for c := range p {
			p[c] = math.Exp(5 * rng.NormFloat64())
			sum += p[c]
		}
		for c := range p {
			gamma[c] = scale * p[c] / sum * (1 - p[c]/sum)
		}
		if k == 2 { // which differ by rounding
			gamma[1] = gamma[0]
		}
		inv, total := coupled(delta, gamma), 0.0
		for c, d := range delta {
			if got := d - d*d*inv; !(math.Abs(got-gamma[c]) <= 1e-8*gamma[c]) {
				t.Fatalf("%v has γ %v, want %v", delta, got, gamma[c])
			}
			total += d
		}
		if !(math.Abs(total*inv-1) < 1e-6) {
			t.Fatalf("%v add up to %v", delta, 1/inv)
		}
	}
	delta := []float64{1, 1}
	if inv := coupled(delta, []float64{0, 0}); inv != 0 || delta[0] != 0 || delta[1] != 0 {
		t.Errorf("no curvature has δ %v and 1/Σδ %v", delta, inv)
	}
	for k := 2; k < 4; k++ { // 1/γ overflows
		delta, gamma := make([]float64, k), []float64{1e-310, 1e-310, 1e-310}
		if inv := coupled(delta, gamma[:k]); math.IsInf(inv, 0) || math.IsNaN(delta[0]) {
			t.Errorf("next to no curvature has δ %v and 1/Σδ %v", delta, inv)
		}
	}
}

// TestContrastMode checks that the mode has no slope, and a value above the value of the base.
func TestContrastMode(t *testing.T) {
	l := classProblem(rand.New(rand.NewPCG(5, 1)), 200, 4, 4)
	l.Terms.Weight = make([]float64, 200)
	for i := range l.Terms.Weight {
		l.Terms.Weight[i] = float64(i % 3)
	}
	s, err := NewSoftmaxAlgebra(l, term.Crew{})
	if err != nil {
		t.Fatal(err)
	}
	a, x := s.mover, &term.Marginals{}
	x.CopyFrom(&s.Cur)
	clear(x.V)
	looks := 0
	value := func() float64 { // with the weights of the means: x is of full rank
		sum := 0.0
		for _, e := range x.E {
			sum += e
		}
		return sum
	}
	expect := func(x *term.Marginals) bool {
		looks++
		return l.Terms.Expect(x, nil, term.Crew{}) == nil
	}
	expect(x)
	base := value()
	a.mode(x, expect)
	if !(value() > base) || looks > 30 {
		t.Errorf("log p of %v after %d looks, and %v at the base", value(), looks, base)
	}
	// At the mode XᵀD1 = Λw, and so ½‖XᵀD1 − Λw‖² over the Hessian, at least Λ, is small.
	d, k := l.X.Cols, l.Terms.K
	r, gram := make([]float64, k*d), make([]float64, d*d)
	a.gather(r, x.D1)
	one := make([]float64, 200)
	for i := range one {
		one[i] = 1
	}
	l.X.AddGram(gram, one, nil, &design.Work{})
	if !dense.Cholesky(gram, d) {
		t.Fatal("rows of less than full rank")
	}
	w := make([]float64, k*d)
	a.gather(w, x.M)
	slope := 0.0
	for c := range k {
		dense.Potrs(gram, w[c*d:(c+1)*d])
		for j, p := range l.Prior.Prec {
			g := r[c*d+j] - p*w[c*d+j]
			slope += 0.5 * g * g / p
		}
	}
	if gain := value() - base; !(slope < 0.5*gain) {
		t.Errorf("a slope of %v nats after a gain of %v", slope, gain)
	}
}

// TestContrastRounds checks that a round to the precisions of classes never raises their part of
// the divergence, from any start.
func TestContrastRounds(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 5))
		l := classProblem(rng, 12, 1+rng.IntN(4), 2+rng.IntN(5))
		s, err := NewSoftmaxAlgebra(l, term.Crew{})
		if err != nil {
			t.Fatal(err)
		}
		a, d := s.mover, l.X.Cols
		delta := make([]float64, s.N)
		for i := range delta {
			delta[i] = math.Exp(3 * rng.NormFloat64())
		}
		if _, ok := a.Cover(make([]float64, s.N), delta); !ok {
			t.Fatalf("seed %d: no cover", seed)
		}
		for c := range a.k {
			scale := math.Exp(2 * rng.NormFloat64())
			for i := range d * d {
				a.class(a.p, c)[i] *= scale
			}
		}
		before := a.divergence()
		for round := range 40 {
			if !a.rule() {
				t.Fatalf("seed %d: no round", seed)
			}
			copy(a.p, a.next)
			now := a.divergence()
			if !(now <= before+1e-11*(1+math.Abs(before))) {
				t.Errorf("seed %d, round %d: from %v to %v", seed, round, before, now)
			}
			before = now
		}
	}
}

// canceling is a softmax that counts its expectations and cancels a context at the third.
type canceling struct {
	softmax
	cancel func()
	asked  *int
}

func (l canceling) ExpectSoftmax(y, tol float64, m, v, d1, d2 []float64) (value, err float64) {
	if *l.asked++; *l.asked == 3 {
		l.cancel()
	}
	return l.softmax.ExpectSoftmax(y, tol, m, v, d1, d2)
}

// TestContrastCanceled checks that a canceled step ends before the next row, because a row of many
// classes takes long.
func TestContrastCanceled(t *testing.T) {
	l := classProblem(rand.New(rand.NewPCG(1, 9)), 20, 2, 300)
	ctx, cancel := context.WithCancel(context.Background())
	asked, halt := 0, &parallel.Halt{}
	halt.Watch(ctx)
	l.Terms.Lik = canceling{cancel: cancel, asked: &asked}
	s, err := NewSoftmaxAlgebra(l, term.Crew{Halt: halt})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Ascend(); !errors.Is(err, context.Canceled) || asked != 3 {
		t.Errorf("%d expectations, %v", asked, err)
	}
}

// TestContrastTwo checks that two classes share the covariance of their difference equally, also
// after many steps and from unequal starts. P = 2A holds without accumulating rounding.
func TestContrastTwo(t *testing.T) {
	l := classProblem(rand.New(rand.NewPCG(4, 2)), 20, 3, 2)
	for i := range l.X.Rows {
		l.X.Dense[3*i] = 1e4 + l.X.Dense[3*i+1] + 1e-3*l.X.Dense[3*i]
	}
	s, err := NewSoftmaxAlgebra(l, term.Crew{})
	if err != nil {
		t.Fatal(err)
	}
	a := s.mover
	for range 40 {
		if _, err := s.Ascend(); err != nil {
			t.Fatal(err)
		}
		for i, x := range a.class(a.cur.p, 0) {
			if y := a.class(a.cur.p, 1)[i]; x != y {
				t.Fatalf("precisions of %v and %v", x, y)
			}
		}
	}
	e, err := s.Evaluate(0)
	if err != nil || !(e.Gap < 1e-6) {
		t.Errorf("a gap of %v, %v", e.Gap, err)
	}
	delta := make([]float64, 2)
	if inv := coupled(delta, []float64{1e-9, 1e-9}); math.Abs(inv-2.5e8) > 1 ||
		delta[0] != delta[1] {
		t.Errorf("the curvature of %v and %v", delta, inv)
	}
}

// TestContrastFlat checks valleys of the precisions of three classes. Equal shares of each
// direction leave a curvature of 1/3. Directions that belong to one class or to two classes leave
// almost none. A zero gradient shows neither.
func TestContrastFlat(t *testing.T) {
	s, err := NewSoftmaxAlgebra(classProblem(rand.New(rand.NewPCG(1, 3)), 9, 3, 3), term.Crew{})
	if err != nil {
		t.Fatal(err)
	}
	a := s.mover
	a.sum = make([]float64, 9)
	units := []float64{1, 1e6, 1e-6}
	for _, c := range []struct {
		shares [3]float64 // for one direction; all classes share the others equally
		flat   bool
	}{
		{[3]float64{1, 1, 1}, false},
		{[3]float64{0.4, 0.35, 0.25}, false},
		{[3]float64{0.99, 0.005, 0.005}, true},
		{[3]float64{0.005, 0.005, 0.99}, true},
		{[3]float64{0.01, 0.495, 0.495}, true},
	} {
		p := make([]float64, 27)
		for k, share := range c.shares { // the direction (1, 1, 1) in units of the columns
			for i := range 3 {
				for j := range 3 {
					x := (share - 1) / 3
					if i == j {
						x++
					}
					p[9*k+3*i+j] = x * units[i] * units[j]
				}
			}
		}
		if got := a.flat(p); got != c.flat {
			t.Errorf("shares of %v are flat: %v, want %v", c.shares, got, c.flat)
		}
	}
}

// spanContrasts returns the contrasts of l, in the span of the rows or in all columns.
func spanContrasts(t *testing.T, l *LinearModel, span bool) *SoftmaxAlgebra {
	t.Helper()
	if span {
		s, err := NewSoftmaxAlgebra(l, term.Crew{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := &SoftmaxAlgebra{whole: l, mover: newSoftmaxBase(l)}
	s.mover.of = &s.BaseAlgebra
	if err := s.begin(l.Terms, s.mover, term.Crew{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestContrastSpan fits few rows of many columns over the span of the rows and over all columns.
// ELBO, means and variances must agree. Two rows are equal, and one is zero.
func TestContrastSpan(t *testing.T) {
	t.Parallel()
	const n, d, k = 8, spanWeights, 4
	l := classProblem(rand.New(rand.NewPCG(3, 1)), n, d, k)
	copy(l.X.Dense[d:2*d], l.X.Dense[:d])
	clear(l.X.Dense[2*d : 3*d])
	type fit struct {
		elbo           float64
		mean, variance []float64
	}
	var fits [2]fit
	for i := range fits {
		s := spanContrasts(t, l, i == 1)
		if want := []int{d, n - 2}[i]; s.mover.x.Cols != want {
			t.Errorf("%d dimensions, want %d", s.mover.x.Cols, want)
		}
		gap := math.Inf(1)
		for pass := 0; pass < 60 && gap > 1e-10; pass++ {
			if _, err := s.Ascend(); err != nil {
				t.Fatal(err)
			}
			e, err := s.Evaluate(0)
			if err != nil {
				t.Fatal(err)
			}
			gap, fits[i].elbo = e.Gap, e.ELBO
		}
		if !(gap < 1e-8) {
			t.Errorf("span %v: gap %v", i == 1, gap)
		}
		mean, cov, err := s.Weights()
		if err != nil {
			t.Fatal(err)
		}
		fits[i].mean, fits[i].variance = mean, make([]float64, k*d)
		cov.Diag(fits[i].variance)
	}
	if got, want := fits[1].elbo, fits[0].elbo; !(math.Abs(got-want) < 1e-8) {
		t.Errorf("ELBO %v, want %v", got, want)
	}
	for j, v := range fits[0].variance {
		if got := fits[1].variance[j]; !(math.Abs(got/v-1) < 1e-4) {
			t.Errorf("weight %d: variance %v, want %v", j, got, v)
		}
		got, want := fits[1].mean[j], fits[0].mean[j]
		if !(math.Abs(got-want) < 1e-4*math.Sqrt(v)) {
			t.Errorf("weight %d: mean %v, want %v, sd %v", j, got, want, math.Sqrt(v))
		}
	}
}
