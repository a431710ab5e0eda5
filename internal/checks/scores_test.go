package checks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pgsvi/pgsvi/internal/score"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// namedScore is a score with its standard error.
type namedScore struct{ Value, SE float64 }

// scoreOf returns a score by name, or fails the test if it is missing.
func scoreOf(t *testing.T, m *Scores, name string) namedScore {
	t.Helper()
	i := slices.Index(m.Names, name)
	if i < 0 {
		t.Fatalf("no %q in %v", name, m)
	}
	if v, ok := m.Value(name); !ok || v != m.Values[i] {
		t.Errorf("Value of %q is %v", name, v)
	}
	return namedScore{m.Values[i], m.SE[i]}
}

// TestScoresLabels checks the scores of labels against their definitions, with ties.
func TestScoresLabels(t *testing.T) {
	rng := testkit.Rand(20)
	for _, n := range []int{1, 2, 7, 60} {
		m, v, y := make([]float64, n), make([]float64, n), make([]float64, n)
		for i := range n {
			m[i] = math.Round(4*rng.NormFloat64()) / 2 // produces ties
			v[i] = 0.3
			y[i] = testkit.PlusMinus(rng.Float64() < 1/(1+math.Exp(-m[i])))
		}
		p := NewPrediction(BernoulliLogit{}, m, v)
		s, err := p.Scores(y)
		if err != nil || s.Rows != n {
			t.Fatal(s, err)
		}
		prob := p.Prob(nil, 1)
		var loss, right, brier []float64
		var pairs, wins float64
		for i := range n {
			p, label := prob[i], (1+y[i])/2
			loss = append(loss, -math.Log(label*p+(1-label)*(1-p)))
			right = append(right, score.Indicator((p >= 0.5) == (label == 1) || p == 0.5))
			brier = append(brier, (p-label)*(p-label))
			for j := range n {
				if y[i] > y[j] {
					pairs++
					wins += score.Indicator(prob[i] > prob[j]) +
						score.Indicator(prob[i] == prob[j])/2
				}
			}
		}
		for name, want := range map[string][]float64{"log loss": loss, "accuracy": right,
			"Brier": brier} {
			got := scoreOf(t, s, name)
			se := stat.StdDev(want, nil) / math.Sqrt(float64(n))
			if n == 1 {
				se = math.Inf(1)
			}
			if math.Abs(got.Value-stat.Mean(want, nil)) > 1e-12 ||
				got.SE != se && math.Abs(got.SE-se) > 1e-12 {
				t.Errorf("%d rows, %s: %+v, want %v ± %v", n, name, got, stat.Mean(want, nil), se)
			}
		}
		if _, ok := s.Value("AUC"); ok != (pairs > 0) {
			t.Errorf("%d rows, %v pairs: AUC is there: %t", n, pairs, ok)
		}
		if pairs > 0 {
			if got := scoreOf(t, s, "AUC"); math.Abs(got.Value-wins/pairs) > 1e-12 {
				t.Errorf("%d rows: AUC %v, want %v", n, got.Value, wins/pairs)
			}
		}
	}
	// Compare the standard error with the standard deviation over data sets.
	var values, errors []float64
	for range 400 {
		var up, down []float64
		for range 40 {
			up, down = append(up, 1+rng.NormFloat64()), append(down, rng.NormFloat64())
		}
		value, se := score.AUC(up, down)
		values, errors = append(values, value), append(errors, se)
	}
	if sd, se := stat.StdDev(values, nil), stat.Mean(errors, nil); math.Abs(se/sd-1) > 0.12 {
		t.Errorf("the standard error of an AUC is %v, the deviation over samples %v", se, sd)
	}
}

// TestScoresNumbers checks the scores of counts and numbers against their definitions, and the
// standard errors of RMSE and R² against the standard deviation over data sets.
func TestScoresNumbers(t *testing.T) {
	t.Parallel()
	const n = 60
	rng := testkit.Rand(21)
	for _, lik := range testkit.Few([]Likelihood{GaussianNoise{Var: 2}, Poisson{}, Laplace{}}, 2) {
		var rmse, r2, rmseErr, r2Err []float64
		reps := testkit.Shorter(200, 60)
		if lik != (GaussianNoise{Var: 2}) { // the tails of other likelihoods take long
			reps = testkit.Longer(200, 1)
		}
		for rep := range reps {
			m, v, y := make([]float64, n), make([]float64, n), make([]float64, n)
			for i := range n {
				m[i], v[i] = 1+0.7*rng.NormFloat64(), 0.05
				y[i] = quantile(t, lik, rng.Float64(), m[i], v[i])
			}
			p := NewPrediction(lik, m, v)
			s, err := p.Scores(y)
			if err != nil {
				t.Fatal(err)
			}
			a, b := scoreOf(t, s, "RMSE"), scoreOf(t, s, "R²")
			rmse, r2 = append(rmse, a.Value), append(r2, b.Value)
			rmseErr, r2Err = append(rmseErr, a.SE), append(r2Err, b.SE)
			if rep > 0 {
				continue
			}
			mean, _, _ := p.Moments(nil, nil)
			median, _ := p.Quantile(nil, 0.5)
			var square, absolute float64
			for i := range y {
				square += (y[i] - mean[i]) * (y[i] - mean[i]) / n
				absolute += math.Abs(y[i]-median[i]) / n
			}
			want := map[string]float64{"RMSE": math.Sqrt(square), "MAE": absolute,
				"R²":       1 - square/(stat.Variance(y, nil)*(n-1)/n),
				"log loss": -stat.Mean(p.LogProb(nil, y), nil)}
			for _, level := range []float64{50, 90} {
				lo, hi, _ := p.Interval(nil, nil, level/100)
				name := fmt.Sprintf("coverage %v%%", level)
				for i := range y {
					want[name] += score.Indicator(lo[i] <= y[i] && y[i] <= hi[i]) / n
				}
				if math.Abs(want[name]-level/100) > 0.1 && kit.FactsOf(lik).Support == RealLine {
					t.Errorf("%T: %s is %v", lik, name, want[name])
				}
			}
			for name, x := range want {
				if got := scoreOf(t, s, name); math.Abs(got.Value-x) > 1e-12*(1+math.Abs(x)) {
					t.Errorf("%T, %s: %v, want %v", lik, name, got.Value, x)
				}
			}
		}
		for name, c := range map[string][2][]float64{"RMSE": {rmse, rmseErr}, "R²": {r2, r2Err}} {
			if len(rmse) == 1 {
				continue
			}
			if sd, se := stat.StdDev(c[0], nil), stat.Mean(c[1], nil); math.Abs(se/sd-1) > 0.3 {
				t.Errorf("%T: the standard error of %s is %v, the deviation over samples %v", lik,
					name, se, sd)
			}
		}
	}
}

// TestScoresFailedRows checks rows without a prediction, and errors.
func TestScoresFailedRows(t *testing.T) {
	nan := math.NaN()
	for _, lik := range []Likelihood{BernoulliLogit{}, GaussianNoise{}} {
		y := []float64{1, 1, -1, 1}
		s, err := NewPrediction(lik, []float64{0.5, nan, -0.2, 2}, []float64{1, 1, 1, nan}).Scores(
			y)
		if !errors.Is(err, ErrNotFinite) ||
			!strings.Contains(err.Error(), "2 of the rows failed; the first: row 1") {
			t.Errorf("%T: %v", lik, err)
		}
		want, err := NewPrediction(lik, []float64{0.5, -0.2},
			[]float64{1, 1}).Scores([]float64{1, -1})
		if err != nil || !reflect.DeepEqual(s, want) {
			t.Errorf("%T: %v, want %v (%v)", lik, s, want, err)
		}
	}
	for name, c := range map[string]struct {
		p    *Prediction
		y    []float64
		want error
	}{
		"lengths": {NewPrediction(nil, []float64{1}, []float64{1}), nil, ErrShape},
		"no rows": {NewPrediction(nil, nil, nil), nil, ErrEmpty},
		"a label": {NewPrediction(BernoulliLogit{}, []float64{1}, []float64{1}), []float64{0},
			ErrLabel},
		"a NaN": {NewPrediction(nil, []float64{1}, []float64{1}), []float64{nan}, ErrLabel},
		"no row": {NewPrediction(nil, []float64{nan}, []float64{1}), []float64{1},
			ErrNotFinite},
		"no mean": {NewPrediction(StudentT{DF: 1}, []float64{1}, []float64{1}), []float64{1},
			ErrNotFinite},
		"a likelihood": {NewPrediction(GaussianNoise{Var: -1}, []float64{1}, []float64{1}),
			[]float64{1}, ErrParam},
	} {
		if s, err := c.p.Scores(c.y); s != nil || !errors.Is(err, c.want) ||
			!testkit.PrefixedOnce(err) {
			t.Errorf("%s: %v %v, want %v", name, s, err, c.want)
		}
	}
	if s, err := NewPrediction(nil, []float64{1, 2},
		[]float64{1, 1}).Scores([]float64{3, 3}); err != nil {
		t.Error(err)
	} else if _, ok := s.Value("R²"); ok {
		t.Errorf("R² of responses that are the same: %v", s)
	}
}

// crossData returns rows for cross-validation.
func crossData(n int) (*mat.Dense, []float64) {
	rng := testkit.Rand(30)
	x, y := mat.NewDense(n, 2, nil), make([]float64, n)
	for i := range n {
		x.SetRow(i, []float64{rng.NormFloat64(), rng.NormFloat64()})
		y[i] = testkit.PlusMinus(rng.Float64() < 1/(1+math.Exp(1-1.5*x.At(i, 0))))
	}
	return x, y
}

// TestCrossValidateLOO checks that n folds of a GLM with Gaussian noise agree with LOO, which is
// exact for this model.
func TestCrossValidateLOO(t *testing.T) {
	x, y := crossData(25)
	g, err := NewGLM(x, y, nil, &GLMOptions{Intercept: true})
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
	p, _, err := CrossValidate(t.Context(), nil, y, len(y), glmFold(x, y, nil))
	if err != nil {
		t.Fatal(err)
	}
	for i, logp := range p.LogProb(nil, y) {
		if math.Abs(logp-l.Pointwise[i]) > 1e-9 {
			t.Errorf("row %d: %v, LOO has %v", i, logp, l.Pointwise[i])
		}
	}
	if got := scoreOf(t, testkit.Must(p.Scores(y)), "log loss"); math.Abs(got.Value+l.ELPD/25) > 1e-9 ||
		math.Abs(got.SE-l.SE/25) > 1e-9 {
		t.Errorf("%+v, LOO has %v ± %v", got, -l.ELPD/25, l.SE/25)
	}
}

// glmFold returns a function that fits a GLM to the rows of a fold.
func glmFold(x mat.Matrix, y []float64, lik Likelihood) func(ctx context.Context, train,
	test []int) (*Prediction, error) {
	return func(ctx context.Context, train, test []int) (*Prediction, error) {
		xs, ys := SelectRows(x, y, train)
		g, err := NewGLM(xs, ys, lik, &GLMOptions{Intercept: true})
		if err != nil {
			return nil, err
		}
		post, _, err := g.Fit(ctx, nil)
		if err != nil {
			return nil, err
		}
		rows, _ := SelectRows(x, nil, test)
		return post.At(rows), nil
	}
}

// TestCrossValidateWorkers checks that a seed gives the same bits for any number of workers, that
// at most this number of fits run at a time, and that folds contain their share of both labels.
func TestCrossValidateWorkers(t *testing.T) {
	const n = 103
	x, y := crossData(n)
	var first *Prediction
	var folds []int
	for _, workers := range []int{1, 2, 5} {
		var running, most atomic.Int64
		fit := glmFold(SparseOf(x), y, BernoulliLogit{})
		p, fold, err := CrossValidate(t.Context(), NewEnv(testkit.Rand(1), workers), y, 0,
			func(ctx context.Context, train, test []int) (*Prediction, error) {
				if now := running.Add(1); now > most.Load() {
					most.Store(now)
				}
				defer running.Add(-1)
				runtime.Gosched()
				if len(train)+len(test) != n || !slices.IsSorted(train) || !slices.IsSorted(test) {
					t.Errorf("%d and %d rows", len(train), len(test))
				}
				return fit(ctx, train, test)
			})
		if err != nil {
			t.Fatal(err)
		}
		if most.Load() > int64(workers) {
			t.Errorf("%d fits at a time with %d workers", most.Load(), workers)
		}
		if first == nil {
			first, folds = p, fold
		}
		if !reflect.DeepEqual(p, first) || !slices.Equal(fold, folds) {
			t.Errorf("%d workers: %v, want %v", workers, p, first)
		}
	}
	all := 0.0
	for _, v := range y {
		all += score.Indicator(v > 0)
	}
	for f := range 10 {
		rows, up := 0, 0
		for i, of := range folds {
			if of == f {
				rows++
				up += int(score.Indicator(y[i] > 0))
			}
		}
		if rows < n/10 || rows > n/10+1 || math.Abs(float64(up)-all/10) > 1 {
			t.Errorf("fold %d has %d rows, %d of +1", f, rows, up)
		}
	}
	_, other, err := CrossValidate(t.Context(), NewEnv(testkit.Rand(2), 1), y, 0,
		glmFold(x, y, BernoulliLogit{}))
	if err != nil || slices.Equal(other, folds) {
		t.Errorf("another seed deals the same folds: %v", err)
	}
	if first.Len() != n || slices.Max(folds) != 9 {
		t.Errorf("%d rows in %d folds", first.Len(), 1+slices.Max(folds))
	}
}

// TestCrossValidateModels checks GPs, sparse GPs, and likelihoods that differ between folds.
func TestCrossValidateModels(t *testing.T) {
	x, y := crossData(60)
	for name, fit := range map[string]func(ctx context.Context, xs mat.Matrix,
		ys []float64) (interface {
		At(x mat.Matrix) *Prediction
	}, error){
		"GP": func(ctx context.Context, xs mat.Matrix, ys []float64) (interface {
			At(x mat.Matrix) *Prediction
		}, error) {
			g, err := NewGP(xs, ys, SquaredExp{}, BernoulliLogit{}, nil)
			if err != nil {
				return nil, err
			}
			p, _, err := g.Fit(ctx, nil)
			return p, err
		},
		"sparse GP": func(ctx context.Context, xs mat.Matrix, ys []float64) (interface {
			At(x mat.Matrix) *Prediction
		}, error) {
			g, err := NewSparseGP(xs, ys, SquaredExp{}, BernoulliLogit{},
				&SparseGPOptions{Rank: 10})
			if err != nil {
				return nil, err
			}
			p, _, err := g.Fit(ctx, nil)
			return p, err
		},
	} {
		p, _, err := CrossValidate(t.Context(), NewEnv(nil, 2), y, 3,
			func(ctx context.Context, train, test []int) (*Prediction, error) {
				xs, ys := SelectRows(x, y, train)
				p, err := fit(ctx, xs, ys)
				if err != nil {
					return nil, err
				}
				rows, _ := SelectRows(x, nil, test)
				return p.At(rows), nil
			})
		if err != nil {
			t.Fatal(name, err)
		}
		if auc := scoreOf(t, testkit.Must(p.Scores(y)), "AUC"); auc.Value < 0.65 {
			t.Errorf("%s: %v", name, auc)
		}
	}
	// Each fold has noise with another variance.
	p, fold, err := CrossValidate(t.Context(), nil, y, 3,
		func(_ context.Context, _, test []int) (*Prediction, error) {
			return NewPrediction(GaussianNoise{Var: float64(1 + test[0])},
				make([]float64, len(test)),
				make([]float64, len(test))), nil
		})
	if err != nil {
		t.Fatal(err)
	}
	_, variance, err := p.Moments(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range variance {
		if want := float64(1 + slices.Index(fold, fold[i])); v != want {
			t.Errorf("row %d of fold %d: variance %v, want %v", i, fold[i], v, want)
		}
	}
}

// TestCrossValidateErrors checks errors of arguments and fits, and cancellation.
func TestCrossValidateErrors(t *testing.T) {
	x, y := crossData(12)
	fit := glmFold(x, y, BernoulliLogit{})
	failed := errors.New("no")
	ctx, cancel := context.WithCancel(t.Context())
	for name, c := range map[string]struct {
		ctx   context.Context
		y     []float64
		folds int
		fit   func(ctx context.Context, train, test []int) (*Prediction, error)
		want  error
	}{
		"no rows":  {t.Context(), nil, 0, fit, ErrEmpty},
		"one row":  {t.Context(), y[:1], 0, fit, ErrParam},
		"one fold": {t.Context(), y, 1, fit, ErrParam},
		"negative": {t.Context(), y, -2, fit, ErrParam},
		"too many": {t.Context(), y, 13, fit, ErrParam},
		"no fit":   {t.Context(), y, 3, nil, ErrParam},
		"a NaN":    {t.Context(), []float64{1, math.NaN()}, 2, fit, ErrNotFinite},
		"nil": {t.Context(), y, 3,
			func(context.Context, []int, []int) (*Prediction, error) { return nil, nil }, ErrParam},
		"an error": {t.Context(), y, 3, func(context.Context, []int, []int) (*Prediction, error) {
			return nil, failed
		}, failed},
		"few rows": {t.Context(), y, 3, func(context.Context, []int, []int) (*Prediction, error) {
			return NewPrediction(nil, nil, nil), nil
		}, ErrShape},
		"canceled": {ctx, y, 3, func(context.Context, []int, []int) (*Prediction, error) {
			cancel()
			return nil, ctx.Err()
		}, context.Canceled},
		"no matrix": {t.Context(), y, 3, func(context.Context, []int, []int) (*Prediction, error) {
			return new(GLMPosterior).At(nil), nil
		}, ErrEmpty},
		"mixed": {t.Context(), y, 3, func(_ context.Context, _, test []int) (*Prediction, error) {
			lik := []Likelihood{BernoulliLogit{},
				GaussianNoise{}}[int(score.Indicator(slices.Contains(test, 0)))]
			return NewPrediction(lik, make([]float64, len(test)), make([]float64, len(test))), nil
		}, ErrParam},
	} {
		if _, _, err := CrossValidate(c.ctx, nil, c.y, c.folds, c.fit); !errors.Is(err, c.want) ||
			!testkit.PrefixedOnce(err) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	// This row cannot be predicted.
	nan := mat.DenseCopyOf(x)
	nan.Set(4, 0, math.NaN())
	p, _, err := CrossValidate(t.Context(), nil, y, 3,
		func(ctx context.Context, train, test []int) (*Prediction, error) {
			p, err := fit(ctx, train, test)
			if i := slices.Index(test, 4); err == nil && i >= 0 {
				m, v := p.Latent(nil, nil)
				m[i] = math.NaN()
				p = NewPrediction(p.Likelihood(), m, v)
			}
			return p, err
		})
	if err != nil {
		t.Fatal(err)
	}
	scores, err := p.Scores(y)
	if !errors.Is(err, ErrNotFinite) || !strings.Contains(err.Error(), "row 4") ||
		!errors.Is(p.Err(), ErrNotFinite) || scores.Rows != 11 {
		t.Errorf("%v %v", scores, err)
	}
}

// TestSelectRows checks rows of dense, sparse and other matrices.
func TestSelectRows(t *testing.T) {
	x, y := crossData(5)
	index := []int{3, 0, 3}
	for _, m := range []mat.Matrix{x, SparseOf(x), mat.DenseCopyOf(x.T()).T()} {
		xs, ys := SelectRows(m, y, index)
		if r, c := xs.Dims(); r != 3 || c != 2 {
			t.Fatalf("%T: %d×%d", m, r, c)
		}
		for k, i := range index {
			if xs.At(k, 0) != x.At(i, 0) || xs.At(k, 1) != x.At(i, 1) || ys[k] != y[i] {
				t.Errorf("%T: row %d of %v", m, k, index)
			}
		}
		none, ys := SelectRows(m, nil, nil)
		if r, c := none.Dims(); r != 0 || c != 2 || ys != nil {
			t.Errorf("%T: no rows are %d×%d", m, r, c)
		}
		if _, sparse := m.(*Sparse); sparse != (fmt.Sprintf("%T", xs) == "*pgsvi.Sparse") {
			t.Errorf("rows of a %T are a %T", m, xs)
		}
		testkit.MustPanic(t, "row 5 of 5", func() { SelectRows(m, nil, []int{5}) })
	}
}

func ExampleNewConfusion() {
	y := []float64{0, 0, 0, 1, 1, 2, 2, 2}
	decided := []float64{0, 0, 1, 1, 1, 2, 2, 0}
	c, err := NewConfusion(y, decided, []string{"cat", "dog", "fox"})
	if err != nil {
		panic(err)
	}
	fmt.Print(c)
	// Output:
	//   is \ decided    cat    dog    fox  recall
	//            cat      2      1      0   0.667
	//            dog      0      2      0   1.000
	//            fox      1      0      2   0.667
	//      precision  0.667  0.667  1.000   0.750
}

// TestConfusion checks the labels −1 and +1, rows without a decision, and errors.
func TestConfusion(t *testing.T) {
	c, err := NewConfusion([]float64{-1, 1, 1, -1, 1}, []float64{-1, 1, -1, -1, math.NaN()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(c.Names, c.Counts) != "[-1 +1] [[2 0] [1 1]]" || c.Error() != 0.25 ||
		c.Recall(1) != 0.5 ||
		c.Precision(1) != 1 || c.Precision(0) != 2./3 {
		t.Errorf("%+v", c)
	}
	for _, bad := range []struct {
		y, decided []float64
		names      []string
		want       error
	}{
		{[]float64{0}, []float64{0, 1}, nil, ErrShape},
		{[]float64{0, 3}, []float64{0, 1}, []string{"a", "b"}, ErrLabel},
		{[]float64{0, 0.5}, []float64{0, 1}, nil, ErrLabel},
		{[]float64{-1, 0}, []float64{1, 1}, nil, ErrLabel},
		{[]float64{math.NaN(), 0}, []float64{1, 1}, nil, ErrLabel},
		{[]float64{1e300, 0}, []float64{1, 1}, nil, ErrLabel},
		{[]float64{-1, 1}, []float64{1, 1}, []string{"a", "b", "c"}, ErrShape},
		{[]float64{1}, []float64{math.NaN()}, nil, ErrEmpty},
		{nil, nil, nil, ErrEmpty},
	} {
		if _, err := NewConfusion(bad.y, bad.decided, bad.names); !errors.Is(err, bad.want) {
			t.Errorf("%v, %v, %q: %v, want %v", bad.y, bad.decided, bad.names, err, bad.want)
		}
	}
}

// TestDecide checks decisions against the probabilities, with and without costs.
func TestDecide(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 9))
	const n, k = 60, 3
	x, y := mat.NewDense(n, 2, nil), make([]float64, n)
	for i := range n {
		y[i] = float64(rng.IntN(k))
		x.SetRow(i, []float64{y[i] + rng.NormFloat64(), rng.NormFloat64()})
	}
	signs := make([]float64, n)
	for i, c := range y {
		signs[i] = 2*min(c, 1) - 1
	}
	cost := mat.NewDense(k, k, []float64{0, 1, 5, 2, 0, 1, 1, 1, -1})
	for _, c := range []struct {
		lik  Likelihood
		y    []float64
		cost mat.Matrix
	}{
		{Softmax{}, y, nil}, {Softmax{}, y, cost}, {BernoulliLogit{}, signs, nil},
		{BernoulliLogit{}, signs, mat.NewDense(2, 2, []float64{0, 1, 20, 0})},
	} {
		glm, err := NewGLM(x, c.y, c.lik, &GLMOptions{Intercept: true})
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := glm.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		at := post.At(x)
		decided, err := at.Decide(c.cost)
		if err != nil {
			t.Fatal(err)
		}
		probs := at.Probs()
		_, r := probs.Dims()
		for i, d := range decided {
			got := d
			if r == 2 {
				got = (d + 1) / 2
			}
			expected := func(d int) (sum float64) {
				for j := range r {
					switch {
					case c.cost != nil:
						sum += probs.At(i, j) * c.cost.At(j, d)
					case j != d:
						sum += probs.At(i, j)
					}
				}
				return sum
			}
			for other := range r {
				if expected(other) < expected(int(got))-1e-12 {
					t.Fatalf("%T row %d: decided %v, and %d costs less", c.lik, i, d, other)
				}
			}
		}
		for _, bad := range []struct {
			cost mat.Matrix
			want error
		}{
			{mat.NewDense(1, 1, nil), ErrShape},
			{mat.NewDense(r, r, append(make([]float64, r*r-1), math.Inf(1))), ErrNotFinite},
		} {
			if _, err := at.Decide(bad.cost); !errors.Is(err, bad.want) {
				t.Errorf("%v, want %v", err, bad.want)
			}
		}
	}
	glm, err := NewGLM(x, y, GaussianNoise{Var: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := post.At(x).Decide(nil); !errors.Is(err, ErrParam) {
		t.Errorf("decisions on real numbers: %v", err)
	}
}

// TestCalibrationOf compares CalibrationOf a label with Calibration, and CalibrationOf classes
// with counts.
func TestCalibrationOf(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 9))
	const n = 90
	x, y, signs := mat.NewDense(n, 1, nil), make([]float64, n), make([]float64, n)
	for i := range n {
		y[i] = float64(rng.IntN(3))
		signs[i] = 2*min(y[i], 1) - 1
		x.Set(i, 0, y[i]+rng.NormFloat64())
	}
	at := func(lik Likelihood, y []float64) *Prediction {
		glm, err := NewGLM(x, y, lik, &GLMOptions{Intercept: true})
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := glm.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return post.At(x)
	}
	two := at(BernoulliLogit{}, signs)
	a, err := two.Calibration(signs, 5)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := two.CalibrationOf(1, signs, 5); err != nil || fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("%v, %v, want %v", b, err, a)
	}
	three := at(Softmax{}, y)
	for c := range 3 {
		cal, err := three.CalibrationOf(float64(c), y, 4)
		if err != nil {
			t.Fatal(err)
		}
		rows, seen, want := 0, 0.0, 0.0
		for i, n := range cal.Rows {
			rows += n
			seen += float64(n) * cal.Observed[i]
		}
		for _, v := range y {
			want += score.Indicator(v == float64(c))
		}
		if rows != n || math.Abs(seen-want) > 1e-9 {
			t.Errorf("class %d: %d rows, %v of them, want %v", c, rows, seen, want)
		}
	}
	for _, bad := range []struct {
		response float64
		y        []float64
		bins     int
		want     error
	}{{3, y, 0, ErrLabel}, {0, y[1:], 0, ErrShape}, {0, signs, 0, ErrLabel}, {0, y, -1, ErrParam}} {
		if _, err := three.CalibrationOf(bad.response, bad.y, bad.bins); !errors.Is(err, bad.want) {
			t.Errorf("%v, %d bins: %v, want %v", bad.response, bad.bins, err, bad.want)
		}
	}
}
