package likelihoods

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// noMean is Gaussian noise whose moments do not exist and whose CDF never
// reaches ½ where η > 4.
type noMean struct{ GaussianNoise }

func (noMean) LogProb(y, eta float64) float64 { return GaussianNoise{}.LogProb(y, eta) }

func (noMean) Moments(eta float64) (mean, variance float64) {
	if eta > 4 {
		return math.NaN(), math.NaN()
	}
	return GaussianNoise{}.Moments(eta)
}

func (noMean) CDF(y, eta float64) float64 {
	if eta > 4 {
		return 0.25
	}
	return GaussianNoise{}.CDF(y, eta)
}

// responderOnly hides all but LogProb and Responder.
type responderOnly struct{ Responder }

// TestPredictionFailedRow checks that an error names the row, that the row is NaN, and that other
// rows do not change.
func TestPredictionFailedRow(t *testing.T) {
	lik := responderOnly{noMean{}}
	x := mat.NewDense(4, 1, []float64{0, 0.2, 9, 0.4})
	g, err := NewGLM(mat.NewDense(2, 1, []float64{1, 1}), []float64{1, 1}, lik, nil)
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := g.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, err error, outs ...[]float64) {
		t.Helper()
		if !errors.Is(err, ErrNotFinite) || !strings.HasPrefix(err.Error(), "pgsvi: row 2: ") {
			t.Errorf("%s: %v, want ErrNotFinite at row 2", what, err)
		}
		for _, out := range outs {
			for i, v := range out {
				if math.IsNaN(v) != (i == 2) {
					t.Errorf("%s: row %d is %v", what, i, v)
				}
			}
		}
	}
	mean, variance, err := post.At(x).Moments(nil, nil)
	check("Moments", err, mean, variance)
	q, err := post.At(x).Quantile(nil, 0.6)
	check("Quantile", err, q)
	// A row that has no latent value, where other rows are fine.
	x.Set(2, 0, math.NaN())
	p := post.At(x)
	check("Err", p.Err())
	mean, variance, err = p.Moments(nil, nil)
	check("Moments of NaN", err, mean, variance)
	q, err = p.Quantile(nil, 0.6)
	check("Quantile of NaN", err, q)
	for _, out := range [][]float64{p.Prob(nil, 1), p.LogProb(nil, make([]float64, 4))} {
		for i, v := range out {
			if math.IsNaN(v) != (i == 2) {
				t.Errorf("density %d is %v", i, v)
			}
		}
	}
}

// TestPredictionErrors checks the errors of invalid arguments of NewPrediction.
func TestPredictionErrors(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name string
		p    *Prediction
		want error
		text string
	}{
		{"parameter", NewPrediction(Laplace{Scale: -1}, []float64{0, 1}, []float64{1, 1}), ErrParam,
			"pgsvi: Laplace.Scale is -1"},
		{"negative variance", NewPrediction(Laplace{}, []float64{0, 1}, []float64{1, -1}), ErrParam,
			"pgsvi: row 1: the latent variance is -1"},
		{"NaN", NewPrediction(Poisson{}, []float64{0, nan}, []float64{1, 1}), ErrNotFinite,
			"pgsvi: row 1: the latent mean is NaN"},
		{"infinity", NewPrediction(nil, []float64{0, 1}, []float64{1, math.Inf(1)}), ErrNotFinite,
			"pgsvi: row 1: "},
	} {
		mean, variance, merr := c.p.Moments(nil, nil)
		q, qerr := c.p.Quantile(nil, 0.5)
		for _, err := range []error{c.p.Err(), c.p.Offset([]float64{0, 0}).Err(), merr, qerr} {
			if !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), c.text) ||
				!strings.HasSuffix(err.Error(), c.want.Error()) {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
		}
		for _, out := range [][]float64{mean, variance, q, c.p.Prob(nil, 1)} {
			if !math.IsNaN(out[1]) || math.IsNaN(out[0]) != (c.name == "parameter") {
				t.Errorf("%s: %v", c.name, out)
			}
		}
	}
	good := NewPrediction(nil, []float64{0.5}, []float64{2})
	if err := good.Err(); err != nil {
		t.Error(err)
	}
	for _, p := range []float64{0, 1, -0.1, nan} {
		if q, err := good.Quantile(nil, p); !errors.Is(err, ErrParam) || !math.IsNaN(q[0]) {
			t.Errorf("quantile at %v: %v, %v, want ErrParam", p, q, err)
		}
	}
	testkit.MustPanic(t, "lengths", func() { NewPrediction(nil, []float64{1}, nil) })
	testkit.MustPanic(t, "offsets", func() { good.Offset(nil) })
	testkit.MustPanic(t, "dst", func() { good.Prob(make([]float64, 2), 1) })
	testkit.MustPanic(t, "responses", func() { good.LogProb(nil, []float64{1, 2}) })
	testkit.MustPanic(t, "real line", func() { good.Probs() })
	testkit.MustPanic(t, "counts without end",
		func() { NewPrediction(Poisson{}, []float64{1}, []float64{1}).Probs() })
}

// TestPrediction checks that every method agrees with predictions of single rows, and that no
// slice is shared with the caller.
func TestPrediction(t *testing.T) {
	for _, c := range allCases(t) {
		mean, variance := []float64{0.4, -1, 0.7}, []float64{0.3, 0, 2}
		p := NewPrediction(c.l, mean, variance)
		mean[0], variance[0] = 9, 9
		m, v := p.Latent(nil, nil)
		m[0], v[0] = 8, 8
		if m, v = p.Latent(make([]float64, 3), make([]float64, 3)); m[0] != 0.4 || v[0] != 0.3 ||
			p.Len() != 3 {
			t.Fatalf("%#v: latent values %v, %v", c.l, m, v)
		}
		y := []float64{c.good[0], c.good[len(c.good)-1], c.good[0]}
		prob, lp := p.Prob(nil, y[0]), p.LogProb(nil, y)
		em, ev, err := p.Moments(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		q, err := p.Quantile(nil, 0.3)
		if err != nil {
			t.Fatal(err)
		}
		for i := range m {
			l0 := kit.PredictedLogProb(c.l, y[0], m[i], v[i])
			li := kit.PredictedLogProb(c.l, y[i], m[i], v[i])
			wm, wv, _ := kit.PredictedMoments(c.l, m[i], v[i])
			wq, _ := kit.PredictedQuantile(c.l, 0.3, m[i], v[i])
			if prob[i] != math.Exp(l0) || lp[i] != li || em[i] != wm || ev[i] != wv || q[i] != wq {
				t.Errorf("%#v row %d: %v, %v, %v, %v, %v", c.l, i, prob[i], lp[i], em[i], ev[i],
					q[i])
			}
		}
		if got := p.LogProb(y, y); !slices.Equal(got, lp) {
			t.Errorf("%#v: dst that is y: %v, want %v", c.l, got, lp)
		}
		for i := range m {
			m[i]++
		}
		moved, _ := p.Offset([]float64{1, 1, 1}).Latent(nil, nil)
		if first, _ := p.Latent(nil, nil); !slices.Equal(moved, m) || first[0] != 0.4 {
			t.Errorf("%#v: offset by 1: %v, want %v", c.l, moved, m)
		}
	}
}

// TestPredictionProbs checks that Probs agrees with Prob, and that probabilities add up to 1.
func TestPredictionProbs(t *testing.T) {
	for _, c := range []struct {
		l      Likelihood
		labels []float64
	}{
		{BernoulliLogit{}, []float64{-1, 1}},
		{BernoulliProbit{}, []float64{-1, 1}},
		{Binomial{Trials: 3}, []float64{0, 1, 2, 3}},
		{Ordinal{Cuts: []float64{-1, 0.5}}, []float64{0, 1, 2}},
	} {
		p := NewPrediction(c.l, []float64{0.4, -3}, []float64{0.3, 7})
		all := p.Probs()
		if r, k := all.Dims(); r != 2 || k != len(c.labels) {
			t.Fatalf("%#v: %d×%d probabilities", c.l, r, k)
		}
		for i := range 2 {
			var sum float64
			for j, y := range c.labels {
				if all.At(i, j) != p.Prob(nil, y)[i] {
					t.Errorf("%#v row %d: P(%v) = %v, want %v", c.l, i, y, all.At(i, j),
						p.Prob(nil, y)[i])
				}
				sum += all.At(i, j)
			}
			if math.Abs(sum-1) > 1e-12 {
				t.Errorf("%#v row %d: probabilities add up to %v", c.l, i, sum)
			}
		}
		if r, _ := NewPrediction(c.l, nil, nil).Probs().Dims(); r != 0 {
			t.Errorf("%#v: %d rows of none", c.l, r)
		}
	}
}

// TestPredictionAllocs checks that a Prediction allocates one slice, and its methods none.
func TestPredictionAllocs(t *testing.T) {
	g, err := NewGLM(mat.NewDense(3, 1, []float64{1, 2, -1}), []float64{1, 1, -1}, BernoulliLogit{},
		&GLMOptions{Covariance: DiagonalCovariance})
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := g.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	x := mat.NewDense(100, 1, nil)
	dst, v := make([]float64, 100), make([]float64, 100)
	if n := testing.AllocsPerRun(10, func() { post.At(x).Prob(dst, 1) }); n > 20 {
		t.Errorf("Prob of 100 rows: %v allocations", n)
	}
	p := post.At(x)
	for name, f := range map[string]func(){
		"Prob":     func() { p.Prob(dst, 1) },
		"LogProb":  func() { p.LogProb(v, dst) },
		"Moments":  func() { p.Moments(dst, v) },
		"Quantile": func() { p.Quantile(dst, 0.3) },
		"Latent":   func() { p.Latent(dst, v) },
		"Err":      func() { p.Err() },
	} {
		for i := range dst {
			dst[i] = 1
		}
		if n := testing.AllocsPerRun(10, f); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestPredictionWorkers checks for equal bits on any number of cores, and from many goroutines
// that share a posterior and a Prediction.
func TestPredictionWorkers(t *testing.T) {
	k := SquaredExp{Scale: 2, Length: 1}
	data, y := kit.ToyRows(40, BernoulliLogit{}, 31)
	dense, _ := kit.MustFit(t, testkit.Must(NewGP(data, y, k, BernoulliLogit{}, nil)), nil)
	g, err := NewSparseGP(data, y, k, BernoulliLogit{}, &SparseGPOptions{Rank: 10})
	if err != nil {
		t.Fatal(err)
	}
	lowRank, _, err := g.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	glm, err := NewGLM(data, y, BernoulliLogit{}, &GLMOptions{Intercept: true})
	if err != nil {
		t.Fatal(err)
	}
	linear, _, err := glm.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	rng := testkit.Rand(32)
	x := mat.NewDense(11*128+5, 2, nil)
	for i := range x.RawMatrix().Data {
		x.RawMatrix().Data[i] = rng.NormFloat64()
	}
	for _, post := range []interface {
		At(mat.Matrix) *Prediction
	}{dense, lowRank, linear} {
		for _, x := range []mat.Matrix{x, SparseOf(x)} {
			before := runtime.GOMAXPROCS(1)
			p := post.At(x)
			m, v := p.Latent(nil, nil)
			prob := p.Prob(nil, 1)
			runtime.GOMAXPROCS(5)
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					m5, v5 := post.At(x).Latent(nil, nil)
					if !slices.Equal(m, m5) || !slices.Equal(v, v5) ||
						!slices.Equal(prob, post.At(x).Prob(nil, 1)) ||
						!slices.Equal(prob, p.Prob(nil, 1)) {
						t.Errorf("%T of a %T: other bits on five cores", post, x)
					}
				})
			}
			wg.Wait()
			runtime.GOMAXPROCS(before)
		}
	}
}

// TestPredictionOutsideSupport checks that a number that is not a response has no probability.
func TestPredictionOutsideSupport(t *testing.T) {
	x, y := mat.NewDense(2, 1, []float64{1, -1}), []float64{1, 2}
	for _, c := range []struct {
		l    Likelihood
		y    []float64
		good float64
	}{
		{BernoulliLogit{}, []float64{0, 2, math.NaN()}, -1},
		{BernoulliProbit{}, []float64{0.5}, 1},
		{Poisson{}, []float64{-1, 0.5, math.Inf(1)}, 3},
		{Binomial{Trials: 4}, []float64{5}, 4},
		{Ordinal{}, []float64{2}, 0},
		{Gamma{}, []float64{0}, 1},
		{Exponential{}, []float64{-1}, 0},
		{GaussianNoise{}, []float64{math.NaN(), math.Inf(-1)}, 0},
	} {
		y[0], y[1] = c.good, c.good
		g, err := NewGLM(x, y, c.l, nil)
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := g.Fit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if p := post.At(x).Prob(nil, c.good)[0]; !(p > 0) {
			t.Errorf("%#v: P(%v) = %v", c.l, c.good, p)
		}
		for _, bad := range c.y {
			if p := post.At(x).Prob(nil, bad); !math.IsNaN(p[0]) || !math.IsNaN(p[1]) {
				t.Errorf("%#v: P(%v) = %v, want NaN", c.l, bad, p)
			}
			p := post.At(x).LogProb(nil, []float64{bad, c.good})
			if !math.IsNaN(p[0]) || math.IsNaN(p[1]) {
				t.Errorf("%#v: log P of %v and %v: %v, want NaN for the first", c.l, bad, c.good, p)
			}
		}
	}
}

// TestPredictEach checks that rows which are predicted together, in blocks shared by goroutines,
// have the bits of rows that are predicted one at a time. Invalid rows are included.
func TestPredictEach(t *testing.T) {
	t.Parallel()
	rng := testkit.Rand(13)
	y, m, v := testkit.SignRows(rng, 2100)
	type user struct{ BernoulliLogit }
	for _, lik := range []Likelihood{BernoulliLogit{}, BernoulliProbit{}, user{}} {
		all := NewPrediction(lik, m, v)
		logp, prob := all.LogProb(nil, y), all.Prob(nil, -1)
		for i := range y {
			one := NewPrediction(lik, m[i:i+1], v[i:i+1])
			for _, x := range [...][2]float64{{logp[i], one.LogProb(nil, y[i:i+1])[0]},
				{prob[i], one.Prob(nil, -1)[0]}} {
				if math.Float64bits(x[0]) != math.Float64bits(x[1]) &&
					!(x[0] != x[0] && x[1] != x[1]) {
					t.Errorf("%T of %v at m = %v, v = %v: %v, alone %v", lik, y[i], m[i], v[i],
						x[0], x[1])
				}
			}
			want := kit.PredictedLogProb(lik, y[i], m[i], v[i])
			if y[i] == 0 {
				want = math.NaN()
			}
			if math.Float64bits(want) != math.Float64bits(logp[i]) &&
				!(want != want && logp[i] != logp[i]) {
				t.Errorf("%T of %v at m = %v, v = %v: %v, want %v", lik, y[i], m[i], v[i], logp[i],
					want)
			}
		}
		own := slices.Clone(y)
		if got := all.LogProb(own, own); !slices.EqualFunc(got, logp,
			func(a, b float64) bool { return a == b || a != a && b != b }) {
			t.Errorf("%T: others where they go to the responses", lik)
		}
	}
}

// tailOracle is an independent P(Y ≤ y) and P(Y > y) for η ~ N(m, v): the conditional tails by
// power series and continued fractions, against φ by Gauss–Legendre on panels that are short where
// the tails change.
type tailOracle struct{ x, w []float64 }

func newTailOracle() *tailOracle {
	o := &tailOracle{make([]float64, 12), make([]float64, 12)}
	quad.Legendre{}.FixedLocations(o.x, o.w, -1, 1)
	return o
}

// lentz returns 1/(b0 + a1/(b1 + a2/(b2 + …))) by the modified method of Lentz.
func lentz(next func(i int) (a, b float64)) float64 {
	const tiny = 1e-300
	_, b := next(0)
	f := b
	c, d := f, 0.0
	for i := 1; i < 20000; i++ {
		a, b := next(i)
		if d = b + a*d; d == 0 {
			d = tiny
		}
		if c = b + a/c; c == 0 {
			c = tiny
		}
		d = 1 / d
		f *= c * d
		if math.Abs(c*d-1) < 1e-16 {
			break
		}
	}
	return 1 / f
}

// other returns log(1 − e^l).
func other(l float64) float64 {
	if l > -0.7 {
		return math.Log(-math.Expm1(l))
	}
	return math.Log1p(-math.Exp(l))
}

// gammaTails returns log P(G ≤ x) and log P(G > x) of a gamma variable of shape k, given log x.
func gammaTails(k, lx float64) (lower, upper float64) {
	x := math.Exp(lx)
	if math.IsInf(x, 1) {
		return 0, math.Inf(-1)
	}
	g, _ := math.Lgamma(k)
	front := k*lx - x - g
	if x < k+1 {
		sum, term := 1/k, 1/k
		for i := 1.0; term > 1e-17*sum; i++ {
			term *= x / (k + i)
			sum += term
		}
		lower = math.Min(0, front+math.Log(sum))
		return lower, other(lower)
	}
	upper = front + math.Log(lentz(func(i int) (float64, float64) {
		n := float64(i)
		return -n * (n - k), x + 2*n + 1 - k
	}))
	return other(upper), upper
}

// betaTails returns log P(B ≤ x) and log P(B > x) for B ~ Beta(a, b), given the log odds of x.
func betaTails(a, b, odds float64) (lower, upper float64) {
	if odds > math.Log(a/b) {
		upper, lower = betaTails(b, a, -odds)
		return lower, upper
	}
	lx, ly := -math.Log1p(math.Exp(-odds)), -math.Log1p(math.Exp(odds))
	if odds < -700 {
		lx = odds
	}
	x := math.Exp(lx)
	p, _ := math.Lgamma(a)
	q, _ := math.Lgamma(b)
	r, _ := math.Lgamma(a + b)
	lower = r - p - q + a*lx + b*ly - math.Log(a) + math.Log(lentz(func(i int) (float64, float64) {
		m := float64(i / 2)
		switch {
		case i == 0:
			return 1, 1
		case i%2 == 0:
			return m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m)), 1
		}
		return -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1)), 1
	}))
	lower = math.Min(0, lower)
	return lower, other(lower)
}

// conditional returns log P(Y ≤ y|η) and log P(Y > y|η), and the η about which they change, and
// over what distance.
func (o *tailOracle) conditional(l Likelihood,
	y float64) (tails func(eta float64) (below, above float64), centre, width float64) {
	swap := func(a, b float64) (float64, float64) { return b, a }
	switch l := l.(type) {
	case Poisson:
		c := math.Log(cmp.Or(l.Exposure, 1))
		return func(eta float64) (float64, float64) { return swap(gammaTails(y+1, eta+c)) },
			math.Log(y+1) - c, 1 / math.Sqrt(y+1)
	case Gamma:
		k := cmp.Or(l.Shape, 1)
		return func(eta float64) (float64, float64) { return gammaTails(k, math.Log(k*y)-eta) },
			math.Log(y), 1 / math.Sqrt(k)
	case Exponential:
		return func(eta float64) (float64, float64) {
			r := math.Exp(math.Log(y) - eta)
			return math.Log(-math.Expm1(-r)), -r
		}, math.Log(y), 1
	case Binomial:
		n := cmp.Or(l.Trials, 1)
		return func(eta float64) (float64, float64) { return swap(betaTails(y+1, n-y, eta)) },
			math.Log((y + 1) / (n - y)), math.Sqrt(1/(y+1) + 1/(n-y))
	case NegativeBinomial:
		r := cmp.Or(l.Shape, 1)
		return func(eta float64) (float64, float64) {
			return swap(betaTails(y+1, r, eta-math.Log(r)))
		}, math.Log(y + 1), math.Sqrt(1/(y+1) + 1/r)
	case BernoulliLogit:
		return func(eta float64) (float64, float64) {
			return -math.Log1p(math.Exp(eta)),
				-math.Log1p(math.Exp(-eta))
		}, 0, 1
	case BernoulliProbit:
		return func(eta float64) (float64, float64) {
			return math.Log(math.Erfc(eta/math.Sqrt2) / 2), math.Log(math.Erfc(-eta/math.Sqrt2) / 2)
		}, 0, 1
	case Ordinal:
		c := l.Cuts[int(y)]
		return func(eta float64) (float64, float64) {
			return -math.Log1p(math.Exp(eta - c)), -math.Log1p(math.Exp(c - eta))
		}, c, 1
	case GaussianNoise:
		s := math.Sqrt(2 * cmp.Or(l.Var, 1))
		return func(eta float64) (float64, float64) {
			return math.Log(math.Erfc((eta-y)/s) / 2), math.Log(math.Erfc((y-eta)/s) / 2)
		}, y, s
	case Laplace:
		b := cmp.Or(l.Scale, 1)
		return func(eta float64) (float64, float64) {
			p := -math.Abs(y-eta)/b - math.Ln2
			if y > eta {
				return other(p), p
			}
			return p, other(p)
		}, y, b
	case StudentT:
		nu, c := cmp.Or(l.DF, 4), cmp.Or(l.Scale, 1)
		return func(eta float64) (float64, float64) { // T²/(ν+T²) ~ Beta(½, ν/2)
			_, upper := betaTails(0.5, nu/2, 2*math.Log(math.Abs(y-eta)/c)-math.Log(nu))
			p := upper - math.Ln2
			if y > eta {
				return other(p), p
			}
			return p, other(p)
		}, y, c
	}
	panic(fmt.Sprintf("%T", l))
}

func (o *tailOracle) tails(l Likelihood, y, m, v float64) (below, above float64) {
	tails, centre, width := o.conditional(l, y)
	if v == 0 {
		return tails(m)
	}
	s := math.Sqrt(v)
	cuts := make([]float64, 0, 300)
	for u := -12.0; u <= 12; u += 1 {
		cuts = append(cuts, u)
	}
	for d := width / s / 8; d < 24; d *= 2 {
		if d > 1e-13 {
			cuts = append(cuts, (centre-m)/s-d, (centre-m)/s+d)
		}
	}
	cuts = append(cuts, (centre-m)/s)
	slices.Sort(cuts)
	for i := 1; i < len(cuts); i++ {
		a, b := math.Max(-12, math.Min(12, cuts[i-1])), math.Max(-12, math.Min(12, cuts[i]))
		if a == b {
			continue
		}
		for j, x := range o.x {
			u := (a + b + (b-a)*x) / 2
			w := o.w[j] * (b - a) / 2 * math.Exp(-u*u/2) / math.Sqrt(2*math.Pi)
			if w == 0 {
				continue
			}
			p, q := tails(m + s*u)
			below += w * math.Exp(p)
			above += w * math.Exp(q)
		}
	}
	return math.Log(below), math.Log(above)
}

// quantileCases are likelihoods with the tails of a tailOracle.
var quantileCases = []Likelihood{
	GaussianNoise{Var: 0.3}, Laplace{Scale: 0.7}, StudentT{}, StudentT{DF: 1.5, Scale: 3},
	Gamma{Shape: 0.3}, Gamma{Shape: 40}, Exponential{},
	Poisson{}, Poisson{Exposure: 1e-3}, NegativeBinomial{Shape: 0.05}, NegativeBinomial{Shape: 12},
	Binomial{Trials: 7}, Binomial{Trials: 5000},
	BernoulliLogit{}, BernoulliProbit{}, Ordinal{Cuts: []float64{-3, -1, 0.5, 9}},
}

// TestQuantileTails compares quantiles with an independent CDF of the mixture, at levels from
// 1e−12 to 1 − 1e−12 and for narrow to very wide latent values. A quantile may only be NaN or
// infinite with an error, and an error only occurs above the largest float64.
func TestQuantileTails(t *testing.T) {
	t.Parallel()
	o := newTailOracle()
	levels := []float64{1e-12, 1e-6, 0.025, 0.3, 0.5, 0.75, 0.99, 1 - 1e-6, 1 - 1e-12}
	means, variances := []float64{-1e3, -30, -4, 0, 1.3, 7, 1e3},
		[]float64{0, 1e-12, 1e-4, 0.2, 5, 400, 1e6}
	if !testkit.IsLong() {
		means, variances = []float64{0.7, 30},
			testkit.Shorter([]float64{1e-12, 0.2, 1e6}, []float64{0.2, 1e6})
	}
	for _, l := range quantileCases {
		facts := kit.FactsOf(l)
		for _, m := range means {
			for _, v := range variances {
				last := math.Inf(-1)
				for _, p := range levels {
					if !testkit.IsLong() && p != 1e-12 && p != 0.3 && p < 1-1e-12 {
						continue
					}
					q, err := kit.PredictedQuantile(l, p, m, v)
					name := fmt.Sprintf("%#v N(%v, %v) at %v: %v, %v", l, m, v, p, q, err)
					// reached reports whether log P(Y ≤ y) has reached log p, up to a relative
					// tol of the smaller tail.
					reached := func(y, tol float64) bool {
						below, above := o.tails(l, y, m, v)
						if p <= 0.5 {
							return below >= math.Log(p)+tol
						}
						return above <= math.Log(1-p)-tol
					}
					const tol = 1e-8
					if err != nil {
						if !errors.Is(err, ErrNotFinite) || facts.Support == RealLine ||
							facts.Most > 0 || m+math.Sqrt(v)*8 < 700 ||
							facts.Support != Counts && reached(math.MaxFloat64/1e10, tol) {
							t.Errorf("%s", name)
						}
						continue
					}
					if math.IsNaN(q) || math.IsInf(q, 0) || q < last {
						t.Errorf("%s, after %v", name, last)
						continue
					}
					last = q
					switch facts.Support {
					case SignLabels:
						if reached(-1, tol) && q == 1 || !reached(-1, -tol) && q == -1 {
							t.Errorf("%s", name)
						}
					case Counts:
						if q != math.Trunc(q) || q > 1e4 { // beyond the oracle
							continue
						}
						if (facts.Most == 0 || q < facts.Most) && !reached(q, -tol) ||
							q > 0 && reached(q-1, tol) {
							t.Errorf("%s", name)
						}
					default:
						if math.Abs(q) < 1e-300 {
							if facts.Support != RealLine && !reached(1e-300, -tol) {
								t.Errorf("%s", name)
							}
							continue
						}
						if d := 1e-9 * math.Abs(q); !reached(q+d, -tol) || reached(q-d, tol) {
							t.Errorf("%s", name)
						}
					}
				}
			}
		}
	}
}

// TestQuantileRows checks that a row without a quantile is NaN and has an error, and that the
// rows after it are right.
func TestQuantileRows(t *testing.T) {
	m, v := []float64{1, 1e3, 2, math.NaN(), -1e3, 0.5}, []float64{0.5, 1, 1, 1, 1e6, 2}
	for _, l := range []Likelihood{Poisson{}, Gamma{}, Exponential{}, NegativeBinomial{}} {
		p := NewPrediction(l, m, v)
		q, err := p.Quantile(nil, 0.9)
		if !errors.Is(err, ErrNotFinite) ||
			!strings.HasPrefix(err.Error(), "pgsvi: 2 of the rows failed; the first: row 1: ") {
			t.Errorf("%T: %v", l, err)
		}
		mean, variance, err := p.Moments(nil, nil)
		if !errors.Is(err, ErrNotFinite) ||
			!strings.HasPrefix(err.Error(), "pgsvi: 3 of the rows failed; the first: row 1: ") {
			t.Errorf("%T: %v", l, err)
		}
		for i := range m {
			want, werr := kit.PredictedQuantile(l, 0.9, m[i], v[i])
			bad := i == 1 || i == 3
			if bad != (werr != nil) || bad != math.IsNaN(q[i]) ||
				!bad && (q[i] != want || q[i] < 0) || math.IsInf(q[i], 0) {
				t.Errorf("%T row %d: %v, want %v, %v", l, i, q[i], want, werr)
			}
			bad = bad || i == 4
			if bad != math.IsNaN(mean[i]) || bad != math.IsNaN(variance[i]) {
				t.Errorf("%T row %d: moments %v, %v", l, i, mean[i], variance[i])
			}
		}
	}
}

// TestQuantileLargeCounts checks that counts above 2^53 have the quantiles of e^η.
func TestQuantileLargeCounts(t *testing.T) {
	for _, m := range []float64{40, 300, 700} {
		for _, l := range []Likelihood{Poisson{}, NegativeBinomial{Shape: 1e30}} {
			q, err := kit.PredictedQuantile(l, 0.975, m, 0.25)
			if want := math.Exp(m + 0.5*1.959963984540054); err != nil ||
				math.Abs(q/want-1) > 1e-10 {
				t.Errorf("%T at %v: %v, %v, want %v", l, m, q, err, want)
			}
		}
	}
	// Wide counts of few: the gamma passage is far wider than the Gaussian of η, or far narrower.
	q, err := kit.PredictedQuantile(Binomial{Trials: 1 << 53}, 0.5, 0, 1e-30)
	if err != nil || math.Abs(q-0x1p52) > 1 {
		t.Errorf("median of half of 2^53: %v, %v", q, err)
	}
}

// TestProbInterval checks that the interval of p(y|η) leaves the requested probability on each
// side, by draws of η. If p(y|η) is monotone, it must match the quantiles of η.
func TestProbInterval(t *testing.T) {
	t.Parallel()
	rng := testkit.Rand(3)
	const draws = 40000
	z := 1.959963984540054
	for i, c := range []struct {
		l    Likelihood
		y    float64
		rise float64 // ±1 where p(y|η) rises or falls
	}{
		{BernoulliLogit{}, 1, 1}, {BernoulliLogit{}, -1, -1}, {BernoulliProbit{}, 1, 1},
		{BernoulliProbit{}, -1, -1},
		{Binomial{Trials: 5}, 5, 1}, {Binomial{Trials: 5}, 0, -1}, {Binomial{Trials: 5}, 2, 0},
		{Poisson{}, 0, -1}, {Poisson{}, 3, 0},
		{NegativeBinomial{Shape: 2}, 1, 0}, {Ordinal{Cuts: []float64{-2, 0, 1}}, 0, -1},
		{Ordinal{Cuts: []float64{-2, 0, 1}}, 2, 0},
		{Ordinal{Cuts: []float64{-2, 0, 1}}, 3, 1}, {cauchit{}, 1, 1},
	} {
		for j, m := range []float64{-5, -0.4, 0, 1.5, 40} {
			for k, v := range []float64{0, 0.01, 1, 30, 1e6} {
				if testing.Short() && (i+j+k)%3 > 0 {
					continue
				}
				lo, hi, err := NewPrediction(c.l, []float64{m}, []float64{v}).ProbInterval(nil, nil,
					c.y, 0.95)
				name := fmt.Sprintf("%#v, y = %v, N(%v, %v): %v to %v", c.l, c.y, m, v, lo, hi)
				if err != nil || !(lo[0] >= 0 && lo[0] <= hi[0] && hi[0] <= 1) {
					t.Errorf("%s, %v", name, err)
					continue
				}
				s := math.Sqrt(v)
				if c.rise != 0 {
					a, b := math.Exp(c.l.LogProb(c.y, m-c.rise*z*s)),
						math.Exp(c.l.LogProb(c.y, m+c.rise*z*s))
					if math.Abs(lo[0]-a) > 1e-9*a || math.Abs(hi[0]-b) > 1e-9*b {
						t.Errorf("%s, want %v to %v", name, a, b)
					}
					continue
				}
				var below, above float64
				for range draws {
					p := math.Exp(c.l.LogProb(c.y, m+s*rng.NormFloat64()))
					if p < lo[0]*(1-1e-9) {
						below++
					}
					if p > hi[0]*(1+1e-9) {
						above++
					}
				}
				// Four standard errors; fewer are below where p(y|η) underflows.
				if v > 0 && (below/draws > 0.0285 || below/draws < 0.0215 && lo[0] > 0 ||
					above/draws > 0.0285 || above/draws < 0.0215 && hi[0] > 0) {
					t.Errorf("%s: %v below, %v above", name, below/draws, above/draws)
				}
			}
		}
	}
	good := NewPrediction(BernoulliLogit{}, []float64{0, math.NaN(), 1}, []float64{1, 1, 1})
	lo, hi, err := good.ProbInterval(nil, nil, 1, 0.9)
	if !errors.Is(err, ErrNotFinite) || !math.IsNaN(lo[1]+hi[1]) ||
		math.IsNaN(lo[0]+hi[0]+lo[2]+hi[2]) || !strings.HasPrefix(err.Error(), "pgsvi: row 1: ") {
		t.Errorf("%v to %v, %v", lo, hi, err)
	}
	for _, c := range []struct {
		p        *Prediction
		y, level float64
		want     error
	}{
		{good, 1, 0, ErrParam}, {good, 1, 1, ErrParam}, {good, 1, math.NaN(), ErrParam},
		{good, 0, 0.5, ErrLabel},
		{NewPrediction(nil, []float64{0}, []float64{1}), 0, 0.5, ErrParam},
		{NewPrediction(Gamma{}, []float64{0}, []float64{1}), 1, 0.5, ErrParam},
		{NewPrediction(Poisson{Exposure: -1}, []float64{0}, []float64{1}), 1, 0.5, ErrParam},
		{NewPrediction(Poisson{}, []float64{0}, []float64{1}), 0.5, 0.5, ErrLabel},
	} {
		lo, hi, err := c.p.ProbInterval(nil, nil, c.y, c.level)
		if !errors.Is(err, c.want) || !math.IsNaN(lo[0]) || !math.IsNaN(hi[0]) ||
			!testkit.PrefixedOnce(err) {
			t.Errorf("y = %v, level %v: %v to %v, %v", c.y, c.level, lo, hi, err)
		}
	}
}
