package estimate

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/normal"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// square is l(z) = bᵀz − ½Σ a_i z_i² − z_0 z_1, whose expectations are known.
type square struct{ a, b [2]float64 }

func (l square) Dim() int { return 2 }

func (l square) LogProb(z []float64) float64 {
	return l.b[0]*z[0] + l.b[1]*z[1] - 0.5*l.a[0]*z[0]*z[0] - 0.5*l.a[1]*z[1]*z[1] - z[0]*z[1]
}

func (l square) GradLogProb(dst, z []float64) bool {
	dst[0], dst[1] = l.b[0]-l.a[0]*z[0]-z[1], l.b[1]-l.a[1]*z[1]-z[0]
	return true
}

type gaussian struct{ normal.Form }

func (g gaussian) Rand(dst []float64, rng *rand.Rand) []float64 {
	for i := range dst {
		dst[i] = rng.NormFloat64()
	}
	g.Transform(dst)
	return dst
}

// correlated returns a full Gaussian in the coordinates (m, V).
func correlated(t *testing.T) normal.Form {
	t.Helper()
	g := normal.NewFull(2)
	m, v := g.Next()
	copy(m, []float64{0.5, -2})
	copy(v, []float64{2, 0.6, 0.6, 0.5})
	if err := g.CommitMoments(); err != nil {
		t.Fatal(err)
	}
	return g.In(normal.MeanCov)
}

func near(t *testing.T, what string, got, want []float64, tol float64) {
	t.Helper()
	if e := floats.Distance(got, want, math.Inf(1)); !(e <= tol) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// If l is quadratic, the control variates remove all noise: draws must give the closed form to
// rounding, by scores and along paths.
func TestQuadraticIsExact(t *testing.T) {
	ctx := context.Background()
	l := square{a: [2]float64{3, 7}, b: [2]float64{1, -1}}
	q := correlated(t)
	m, v := []float64{0.5, -2}, []float64{2, 0.6, 0.5}
	value := l.LogProb(m) - 0.5*l.a[0]*v[0] - 0.5*l.a[1]*v[2] - v[1]
	grad := []float64{0, 0, -0.5 * l.a[0], -1, -0.5 * l.a[1]}
	l.GradLogProb(grad[:2], m)
	e := &Integral{Q: gaussian{q}, Form: q, L: l, Workers: 2}
	rng := rand.New(rand.NewPCG(1, 1))
	got, stderr, err := e.Value(ctx, 100, rng)
	if err != nil || math.Abs(got-value) > 1e-8 || !(stderr < 1e-8) {
		t.Errorf("value %v ± %v, want %v; %v", got, stderr, value, err)
	}
	for name, by := range map[string]func(dst, variance []float64) (float64, error){
		"score": func(dst, variance []float64) (float64, error) {
			return e.Score(ctx, dst, variance, 200, Quadratic, rng)
		},
		"path": func(dst, variance []float64) (float64, error) {
			return e.Path(ctx, dst, variance, 200,
				rng)
		},
	} {
		for _, variance := range [][]float64{nil, make([]float64, 5)} {
			dst := make([]float64, 5)
			if _, err := by(dst, variance); err != nil {
				t.Fatal(err)
			}
			near(t, name, dst, grad, 1e-7)
			if variance != nil && !(floats.Max(variance) < 1e-12) {
				t.Errorf("%s: variances %v", name, variance)
			}
		}
	}
	// Without a control variate the mean of many estimates is the gradient, to their error.
	for _, b := range []Baseline{LeaveOneOut, None} {
		dst, variance := make([]float64, 5), make([]float64, 5)
		if _, err := e.Score(ctx, dst, variance, 100000, b, rng); err != nil {
			t.Fatal(err)
		}
		again := make([]float64, 5)
		if _, err := e.Score(ctx, again, nil, 100000, b, rng); err != nil {
			t.Fatal(err)
		}
		for i, g := range dst {
			if se := math.Sqrt(variance[i]); !(math.Abs(g-grad[i]) < 5*se) || !(se > 0) {
				t.Errorf("baseline %v, element %d: %v ± %v, want %v", b, i, g, se, grad[i])
			} else if e := again[i] - grad[i]; !(math.Abs(e) < 5*se) {
				t.Errorf("baseline %v, element %d, without variances: off by %v ± %v", b, i, e, se)
			}
		}
	}
}

// linear is l(z) = cᵀT(z) of a Gamma distribution: c is its gradient with respect to μ.
type linear struct{ c [2]float64 }

func (l linear) Dim() int                    { return 1 }
func (l linear) LogProb(z []float64) float64 { return l.c[0]*math.Log(z[0]) + l.c[1]*z[0] }

func (l linear) GradLogProb(dst, z []float64) bool {
	dst[0] = l.c[0]/z[0] + l.c[1]
	return true
}

// member is a Member with λ = μ.
type member struct{ *expfam.Member }

func (q member) Rand(dst []float64, rng *rand.Rand) []float64 {
	q.F.Rand(dst, make([]float64, 2), q.Eta, rng)
	return dst
}

func (q member) FromMeanGrad(dst, g []float64) []float64 { return append(dst[:0], g...) }

func (q member) FromNaturalGrad(dst, g []float64) []float64 {
	dst = append(dst[:0], g...)
	q.FisherSolve(dst)
	return dst
}

// The same of an exponential family, where l is linear in its statistics, and by quadrature.
func TestLinearIsExact(t *testing.T) {
	ctx := context.Background()
	q := expfam.New(expfam.GammaFamily{})
	if err := q.SetNatural([]float64{2.5, -3}); err != nil {
		t.Fatal(err)
	}
	l := linear{[2]float64{0.7, -1.5}}
	value := floats.Dot(l.c[:], q.Mu)
	e := &Integral{Q: member{q}, Member: q, Coords: member{q}, L: l, Workers: 1}
	rng := rand.New(rand.NewPCG(2, 2))
	for name, by := range map[string]func(dst, variance []float64) (float64, error){
		"score": func(dst, variance []float64) (float64, error) {
			return e.Score(ctx, dst, variance, 200, Quadratic, rng)
		},
		"path": func(dst, variance []float64) (float64, error) {
			return e.Path(ctx, dst, variance, 200,
				rng)
		},
		"quadrature": func(dst, variance []float64) (float64, error) {
			clear(variance)
			v, bound, err := e.Quadrature(dst)
			near(t, "value", []float64{v}, []float64{value}, 1e-12+bound)
			return v, err
		},
	} {
		for _, variance := range [][]float64{nil, make([]float64, 2)} {
			dst := make([]float64, 2)
			if _, err := by(dst, variance); err != nil {
				t.Fatal(err)
			}
			near(t, name, dst, l.c[:], 1e-7)
		}
	}
}

// gauss is a Gaussian likelihood of variance 1, and hole one that is −Inf above 3.
type gauss struct{}

func (gauss) LogProb(y, eta float64) float64         { return -0.5 * (y - eta) * (y - eta) }
func (gauss) Derivs(y, eta float64) (d1, d2 float64) { return y - eta, -1 }
func (gauss) at(y, m, v float64) term.Expectation {
	return Hermite(expect.Hermite(20), gauss{}, y, m, v)
}

type hole struct{ gauss }

func (h hole) LogProb(y, eta float64) float64 {
	if eta > 3 {
		return math.Inf(-1)
	}
	return h.gauss.LogProb(y, eta)
}

// rows are sites of weight 2, of rows that are not the first.
type rows struct{ x [][]float64 }

func (r rows) Len() int { return len(r.x) }

func (r rows) Site(i int) (n int, x []float64, y, w float64) { return i + 10, r.x[i], 1.5, 2 }

// The integral of sites must be the sum of the integrals under their marginals, in value and
// gradient.
func TestSites(t *testing.T) {
	ctx := context.Background()
	q := correlated(t)
	s := &Terms{rows{[][]float64{{1, 0}, {0.5, -1}}}, gauss{}}
	value, grad := 0.0, make([]float64, 5)
	for i := range s.Len() {
		_, x, y, w := s.Site(i)
		m, v := q.Marginal(x)
		value += w * (-0.5*(y-m)*(y-m) - 0.5*v)
		want := []float64{x[0] * (y - m), x[1] * (y - m), -0.5 * x[0] * x[0], -x[0] * x[1],
			-0.5 * x[1] * x[1]}
		floats.AddScaled(grad, w, want)
	}
	got, _, err := s.Value(ctx, q, gauss{}.at)
	if err != nil || math.Abs(got-value) > 1e-12 {
		t.Errorf("value %v, want %v; %v", got, value, err)
	}
	dst := make([]float64, 5)
	if _, err := s.Grad(ctx, dst, q, gauss{}.at); err != nil {
		t.Fatal(err)
	}
	near(t, "gradient", dst, grad, 1e-10)
	h := &Terms{s.Rows, hole{}}
	at := func(y, m, v float64) term.Expectation {
		return Hermite(expect.Hermite(20), hole{}, y, m,
			v)
	}
	_, _, err = h.Value(ctx, q, at)
	if !errors.Is(err, sentinel.ErrNotFinite) || !strings.Contains(err.Error(),
		"term 10, with label 1.5") {
		t.Errorf("a hole: %v", err)
	}

	y, m, v := []float64{1.5, -1}, []float64{0.3, 2}, []float64{0.5, 4}
	e, d1, d2 := make([]float64, 2), make([]float64, 2), make([]float64, 2)
	rng := rand.New(rand.NewPCG(3, 3))
	for name, by := range map[string]func(){
		"score": func() { ScoreSites(e, d1, d2, gauss{}, y, m, v, 40, Quadratic, rng) },
		"path":  func() { PathSites(e, d1, d2, gauss{}, y, m, v, 100000, rng) },
	} {
		by()
		tol := map[string]float64{"score": 1e-7, "path": 0.1}[name]
		for i := range y {
			d := y[i] - m[i]
			near(t, name, []float64{e[i], d1[i], d2[i]}, []float64{-0.5 * (d*d + v[i]), d, -1}, tol)
		}
	}
}

// An error must name the place of a value that is not finite.
func TestNotFinite(t *testing.T) {
	q := correlated(t)
	e := &Integral{Q: gaussian{q}, Form: q, L: square{b: [2]float64{math.NaN(), 0}}, Workers: 1}
	rng := rand.New(rand.NewPCG(4, 4))
	if _, _, err := e.Value(context.Background(), 10, rng); !errors.Is(err,
		sentinel.ErrNotFinite) ||
		!strings.Contains(err.Error(), "at z = [") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("enough")
	cancel(cause)
	if _, err := e.Score(ctx, make([]float64, 5), nil, 10, None, rng); !errors.Is(err, cause) {
		t.Error(err)
	}
	if got := Abridged([]float64{1, 2, 3, 4, 5, 6, 7, 8}); got != "[1 2 3 4 5 6 … 2 more]" {
		t.Error(got)
	}
}

// A batch is its terms times N/M, in values, gradients and sites; a term that is not finite is
// named by its number in the data, and a context that is done ends the sums.
func TestBatches(t *testing.T) {
	x, y := [][]float64{{1, 2}, {-1, 0.5}, {0.3, -2}, {4, 1}}, []float64{1, 2, 3, 4}
	z, terms := []float64{0.4, -0.7}, []int{2, 0, 2}
	sites := &SiteBatch{Batch: NewBatch(terms, 4), X: x, Y: y, Lik: gauss{}}
	own := &TermBatch{Batch: NewBatch(terms, 4), D: 2,
		Log: func(n int, z []float64) float64 { return gauss{}.LogProb(y[n], floats.Dot(x[n], z)) },
		Grad: func(dst []float64, n int, z []float64) {
			floats.AddScaled(dst, y[n]-floats.Dot(x[n], z), x[n])
		}}
	want, grad := 0.0, make([]float64, 2)
	for i, n := range terms {
		r := y[n] - floats.Dot(x[n], z)
		want -= 4. / 3 * 0.5 * r * r
		floats.AddScaled(grad, 4./3*r, x[n])
		if at, row, label, w := sites.Site(i); at != n || &row[0] != &x[n][0] || label != y[n] ||
			w != 4./3 {
			t.Errorf("site %d is %d, %v, %v, %v", i, at, row, label, w)
		}
	}
	for _, l := range []Integrand{sites, own} {
		g := make([]float64, 2)
		if got := l.LogProb(z); math.Abs(got-want) > 1e-14 || !l.GradLogProb(g, z) || l.Dim() != 2 {
			t.Errorf("%T: %v, want %v", l, got, want)
		}
		near(t, "gradient", g, grad, 1e-14)
		if what := l.(Explainer).ExplainTerm(z, false) + l.(Explainer).ExplainTerm(z,
			true); what != "" {
			t.Errorf("%T: %s", l, what)
		}
		y[2] = math.NaN()
		for _, grad := range []bool{false, true} {
			if what := l.(Explainer).ExplainTerm(z, grad); !strings.HasPrefix(what, "term 2") {
				t.Errorf("%T: %s", l, what)
			}
		}
		y[2] = 3
		ctx, cancel := context.WithCancel(context.Background())
		l.(Watcher).WatchContext(ctx)
		cancel()
		if v := l.LogProb(z); !math.IsNaN(v) {
			t.Errorf("%T: %v after the end", l, v)
		}
	}
	own.Grad = nil
	if own.GradLogProb(make([]float64, 2), z) {
		t.Error("a gradient that is not known")
	}
	if b := NewBatch(nil, 7); b.N != 7 || b.Scale != 1 || b.Index(3) != 3 {
		t.Error(b)
	}
}
