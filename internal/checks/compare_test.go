package checks

import (
	"errors"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// TestCompareLOORefits compares the difference of two models with the difference of refits
// without each row. They must agree to within the Err of both models. It also checks the standard
// error against its formula.
func TestCompareLOORefits(t *testing.T) {
	t.Parallel()
	n := testkit.Longer(60, 30)
	rng := testkit.Rand(11)
	for name, c := range map[string]struct {
		lik Likelihood
		gp  bool
	}{"logit": {BernoulliLogit{}, false}, "poisson": {Poisson{}, false},
		"normal": {GaussianNoise{}, false}, "GP": {BernoulliLogit{}, true}} {
		if testing.Short() && name != "logit" {
			continue
		}
		x, y := mat.NewDense(n, 2, nil), make([]float64, n)
		for i := range n {
			x.SetRow(i, []float64{rng.NormFloat64(), rng.NormFloat64()})
			y[i] = quantile(t, c.lik, rng.Float64(), 0.3+0.9*x.At(i, 0)+0.2*x.At(i, 1), 0)
		}
		// fit returns the log-probability of the left-out row if there is one, and LOO.
		fit := func(x *mat.Dense, y []float64, of mat.Matrix, yi []float64) (float64, *LOO) {
			var p interface{ At(mat.Matrix) *Prediction }
			var l *LOO
			if c.gp {
				g, err := NewGP(x, y, SquaredExp{}, c.lik, nil)
				if err != nil {
					t.Fatal(err)
				}
				post, _, err := g.Fit(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if l, err = g.LOO(t.Context(), post); err != nil {
					t.Fatal(err)
				}
				p = post
			} else {
				g, err := NewGLM(x, y, c.lik, &GLMOptions{Intercept: true})
				if err != nil {
					t.Fatal(err)
				}
				post, _, err := g.Fit(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if l, err = g.LOO(t.Context(), post); err != nil {
					t.Fatal(err)
				}
				p = post
			}
			if of == nil {
				return 0, l
			}
			return p.At(of).LogProb(nil, yi)[0], l
		}
		full, less := x, mat.DenseCopyOf(x.Slice(0, n, 1, 2))
		_, a := fit(full, y, nil, nil)
		_, b := fit(less, y, nil, nil)
		b.Name = "without x1"
		cmp, err := CompareLOO(a, b)
		if err != nil {
			t.Fatal(err)
		}
		d := cmp.Rows[0]
		var want, sum, squares float64
		for i := range n {
			xa, yi := testkit.LeaveOut(full, y, i)
			xb, _ := testkit.LeaveOut(less, y, i)
			la, _ := fit(mat.DenseCopyOf(xa), yi, testkit.RowOf(full, i), y[i:i+1])
			lb, _ := fit(mat.DenseCopyOf(xb), yi, testkit.RowOf(less, i), y[i:i+1])
			want += lb - la
			diff := b.Pointwise[i] - a.Pointwise[i]
			sum += diff
			squares += diff * diff
		}
		rows := float64(n)
		se := math.Sqrt((rows*squares - sum*sum) / (rows - 1))
		if math.Abs(d.SE-se) > 1e-9*se || math.Abs(d.Diff-sum) > 1e-9 {
			t.Errorf("%s: %v ± %v, want %v ± %v", name, d.Diff, d.SE, sum, se)
		}
		t.Logf("%s: %.4f ± %.2f, error %.2g, by refits %.4f, %s", name, d.Diff, d.SE, d.Err, want,
			d.Verdict())
		if !(math.Abs(d.Diff-want) <= d.Err+1e-6) {
			t.Errorf("%s: difference %v with error %v, by refits %v", name, d.Diff, d.Err, want)
		}
		if d.Name != "without x1" || d.Err != a.Err+b.Err {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// TestCompareLOO checks verdicts, tables and errors.
func TestCompareLOO(t *testing.T) {
	for _, c := range []struct {
		diff, se, err float64
		want          string
	}{
		{-10, 3, 0, "worse"}, {10, 3, 0, "better"}, {-3.9, 0.1, 0, "about the same"},
		{-10, 6, 0, "about the same"},
		{-10, 3, 5, "about the same"}, {0, 0, 0, "about the same"},
		{-10, math.Inf(1), 0, "about the same"},
	} {
		if got := (LOODifference{Diff: c.diff, SE: c.se, Err: c.err}).Verdict(); got != c.want {
			t.Errorf("%+v is %q", c, got)
		}
	}
	x := mat.NewDense(4, 1, []float64{1, 2, 3, -1})
	loo := func(y []float64, lik Likelihood, opt *GLMOptions) *LOO {
		g, err := NewGLM(x, y, lik, opt)
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := g.Fit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		l, err := g.LOO(t.Context(), post)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	y := []float64{1, 0, 1, 1}
	a := loo(y, GaussianNoise{}, nil)
	few := loo(y, GaussianNoise{}, &GLMOptions{Weights: []float64{1, 1, 0, 1}})
	for name, c := range map[string]struct {
		b    *LOO
		want error
	}{
		"nil":        {nil, ErrParam},
		"fewer rows": {few, ErrShape},
		"responses":  {loo([]float64{1, 0, 0, 1}, GaussianNoise{}, nil), ErrShape},
		"weights": {loo(y, GaussianNoise{}, &GLMOptions{Weights: []float64{1, 1, 2, 1}}),
			ErrShape},
		"probabilities": {loo(y, Poisson{}, nil), ErrParam},
		"none left": {&LOO{Pointwise: make([]float64, 4), Unresolved: []int{0, 1, 2, 3}},
			ErrEmpty},
	} {
		if _, err := CompareLOO(a, c.b); !errors.Is(err, c.want) || !testkit.PrefixedOnce(err) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := CompareLOO(a); !errors.Is(err, ErrParam) {
		t.Errorf("nothing to compare with: %v", err)
	}
	// Neither sum contains an observation that LOO cannot leave out.
	b := loo(y, GaussianNoise{Var: 2}, nil)
	b.Unresolved = []int{1}
	cmp, err := CompareLOO(a, b, a)
	if err != nil {
		t.Fatal(err)
	}
	var want float64
	for _, n := range []int{0, 2, 3} {
		want += b.Pointwise[n] - a.Pointwise[n]
	}
	if math.Abs(cmp.Rows[0].Diff-want) > 1e-12 || cmp.Rows[1].Diff != 0 || cmp.Rows[1].SE != 0 {
		t.Errorf("%+v, want %v and 0", cmp.Rows, want)
	}
	c := &LOOComparison{Reference: "all columns", ELPD: -1234.5, Rows: []LOODifference{
		{Name: "without calls", Diff: -272.84, SE: 22.2},
		{Name: "without age", Diff: 1.04, SE: 1.5, Err: 2}}}
	text := "all columns    −1234.5         elpd\nwithout calls   −272.8 ± 22.2  worse\nwithout " +
		"age       +1.0  ± 2.5  about the same\n"
	if got := c.String(); got != text {
		t.Errorf("%s, want\n%s", got, text)
	}
}

// TestCalibration checks bins against hand calculations, and the results for calibrated and for
// wrong probabilities. It also checks errors.
func TestCalibration(t *testing.T) {
	const n = 4000
	rng := testkit.Rand(12)
	m, v, y := make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range n {
		m[i] = 2 * rng.NormFloat64()
		y[i] = testkit.PlusMinus(rng.Float64() < 1/(1+math.Exp(-m[i])))
	}
	c, err := NewPrediction(BernoulliLogit{}, m, v).Calibration(y, 8)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Rows) != 8 || math.Abs(c.Expected-8/(2*float64(n))) > 1e-15 || c.Nats > 3*c.Expected {
		t.Errorf("calibrated: %v", c)
	}
	last, rows := 0.0, 0
	for i, p := range c.Predicted {
		if c.Rows[i] != n/8 || p < last || !(c.Lo[i] < c.Observed[i] && c.Observed[i] < c.Hi[i]) {
			t.Errorf("bin %d of\n%v", i, c)
		}
		last, rows = p, rows+c.Rows[i]
	}
	if rows != n {
		t.Errorf("%d rows of %d", rows, n)
	}
	for i := range m {
		m[i] *= 3 // far too confident
	}
	if c, err = NewPrediction(BernoulliLogit{}, m, v).Calibration(y, 0); err != nil ||
		len(c.Rows) != 10 || c.Nats < 20*c.Expected || !strings.Contains(c.String(), "*") {
		t.Errorf("too sure: %v %v", c, err)
	}
	// By hand, there are two bins with probabilities ½ and σ(2), and the rows of the first are
	// tied.
	p := NewPrediction(BernoulliLogit{}, []float64{2, 0, 0, 2, 0}, make([]float64, 5))
	if c, err = p.Calibration([]float64{1, 1, -1, -1, -1}, 5); err != nil {
		t.Fatal(err)
	}
	high := 1 / (1 + math.Exp(-2))
	kl := func(o, p float64) float64 { return o*math.Log(o/p) + (1-o)*math.Log((1-o)/(1-p)) }
	want := (3*kl(1.0/3, 0.5) + 2*kl(0.5, high)) / 5
	if len(c.Rows) != 2 || c.Rows[0] != 3 || c.Rows[1] != 2 ||
		math.Abs(c.Nats-want) > 1e-12 || c.Observed[1] != 0.5 {
		t.Errorf("%v, want %v nats", c, want)
	}
	// If all labels of a bin are +1, the interval ends at 1.
	if c, err = NewPrediction(BernoulliLogit{}, []float64{1}, []float64{1}).Calibration(
		[]float64{1}, 0); err != nil || c.Hi[0] != 1 || c.Lo[0] <= 0 {
		t.Errorf("%v %v", c, err)
	}
	for name, c := range map[string]struct {
		p    *Prediction
		y    []float64
		bins int
		want error
	}{
		"lengths": {p, []float64{1}, 0, ErrShape},
		"bins":    {p, []float64{1, 1, 1, 1, 1}, -1, ErrParam},
		"a label": {p, []float64{1, 1, 1, 0, 1}, 0, ErrLabel},
		"a NaN":   {p, []float64{1, 1, 1, math.NaN(), 1}, 0, ErrLabel},
		"counts": {NewPrediction(Poisson{}, []float64{1}, []float64{1}), []float64{1}, 0,
			ErrParam},
		"a NaN row": {NewPrediction(BernoulliLogit{}, []float64{math.NaN()}, []float64{1}),
			[]float64{1}, 0, ErrNotFinite},
		"nothing": {NewPrediction(BernoulliLogit{}, nil, nil), nil, 0, ErrEmpty},
	} {
		if _, err := c.p.Calibration(c.y, c.bins); !errors.Is(err, c.want) ||
			!testkit.PrefixedOnce(err) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := new(LOO).Calibration(0); !errors.Is(err, ErrParam) {
		t.Errorf("a LOO of nothing: %v", err)
	}
}

// TestLOOCalibration checks that a row of weight w counts as w rows, and that observations that
// LOO cannot leave out do not count.
func TestLOOCalibration(t *testing.T) {
	x, y := mat.NewDense(4, 1, []float64{-1, 0.5, 1, 2}), []float64{-1, 1, -1, 1}
	g, err := NewGLM(x, y, BernoulliLogit{}, &GLMOptions{Weights: []float64{3, 1, 2, 1}})
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := g.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := g.LOO(t.Context(), post)
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Calibration(1)
	if err != nil {
		t.Fatal(err)
	}
	prob := l.Cavity.Prob(nil, 1)
	want := (3*prob[0] + prob[1] + 2*prob[2] + prob[3]) / 7
	if math.Abs(c.Predicted[0]-want) > 1e-12 || math.Abs(c.Observed[0]-2.0/7) > 1e-12 ||
		c.Rows[0] != 4 {
		t.Errorf("%v, want %v", c, want)
	}
	l.Unresolved = []int{1, 3}
	if c, err = l.Calibration(1); err != nil || c.Rows[0] != 2 || c.Observed[0] != 0 ||
		c.Lo[0] != 0 {
		t.Errorf("%v %v", c, err)
	}
}
