package checks

import (
	"context"
	"errors"
	"math"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// TestClassesLOORefits compares the predictions of left-out rows with fits without the rows, for
// the most influential rows and some others.
func TestClassesLOORefits(t *testing.T) {
	x, y := testkit.Longer(irisClasses, irisPart)(t)
	ctx := context.Background()
	models := map[string]func(x mat.Matrix, y []float64, loo bool) (probs, *LOO, error){
		"GLM": func(x mat.Matrix, y []float64, loo bool) (q probs, l *LOO, err error) {
			opt := &GLMOptions{Intercept: true, PriorSD: 1, InterceptSD: 10}
			g, err := NewGLM(x, y, Softmax{Classes: 3}, opt)
			if err != nil {
				return nil, nil, err
			}
			post, _, err := g.Fit(ctx, &Solver{Goal: 1e-7})
			if loo && err == nil {
				l, err = g.LOO(ctx, post)
			}
			return post, l, err
		},
		"GP": func(x mat.Matrix, y []float64, loo bool) (q probs, l *LOO, err error) {
			g, err := NewGP(x, y, SquaredExp{Scale: 2, Length: 1.5}, Softmax{Classes: 3}, nil)
			if err != nil {
				return nil, nil, err
			}
			post, _, err := g.Fit(ctx, nil)
			if loo && err == nil {
				l, err = g.LOO(ctx, post)
			}
			return post, l, err
		},
	}
	for name, fit := range models {
		t.Run(name, func(t *testing.T) {
			post, l, err := fit(x, y, true)
			if err != nil {
				t.Fatal(err)
			}
			inside := post.At(x).LogProb(nil, y)
			var sum, estimate, optimism float64
			for _, i := range testkit.Few(testkit.Influential(l.Influence), 3) {
				rest, labels := testkit.LeaveOut(x, y, i)
				p, _, err := fit(rest, labels, false)
				if err != nil {
					t.Fatal(err)
				}
				want := p.At(testkit.RowOf(x, i)).LogProb(nil, y[i:i+1])[0]
				diff := math.Abs(l.Pointwise[i] - want)
				if !(diff <= 2.5*l.PointErr[i]+1e-4) {
					t.Errorf("row %d of influence %.3g: %.5f ± %.2g, refitted %.5f", i,
						l.Influence[i],
						l.Pointwise[i], l.PointErr[i], want)
				}
				sum, estimate = sum+diff, estimate+l.PointErr[i]
				optimism += math.Abs(inside[i] - want)
			}
			t.Logf("%v; of 20 rows off by %.2g, estimated %.2g; in sample %.2g", l, sum, estimate,
				optimism)
			if !(sum <= 1.2*estimate) || !(sum < 0.1*optimism) {
				t.Errorf("off by %.3g, estimated %.3g, in sample %.3g", sum, estimate, optimism)
			}
			if !(l.Parameters > 3 && l.Parameters < 30) || len(l.Unresolved) > 0 {
				t.Errorf("%v, without %v", l, l.Unresolved)
			}
			// Calibrate each class with the probabilities of left-out rows.
			bins, err := l.Cavity.CalibrationOf(1, y, 5)
			if err != nil || len(bins.Rows) != 5 {
				t.Errorf("%v, %v", bins, err)
			}
		})
	}
}

// probs is a posterior that predicts probabilities.
type probs interface {
	At(x mat.Matrix) *Prediction
}

// twoClasses returns the rows of two classes of iris, with labels 0 and 1 and with labels −1 and
// +1.
func twoClasses(t *testing.T) (x mat.Matrix, labels, sign []float64) {
	all, y := irisClasses(t)
	var rows []int
	for i := 50; i < len(y); i += testkit.Longer(1, 2) {
		rows = append(rows, i)
	}
	x, labels = SelectRows(all, y, rows)
	for i := range labels {
		labels[i]--
		sign = append(sign, 2*labels[i]-1)
	}
	return x, labels, sign
}

// TestClassesLOOTwo checks that two classes have the cavities of BernoulliLogit with twice the
// prior variance. A row of weight w counts as w rows, and LOO leaves out one of them.
func TestClassesLOOTwo(t *testing.T) {
	ctx := context.Background()
	sub, labels, sign := twoClasses(t)
	weight := make([]float64, len(labels))
	for i := range weight {
		weight[i] = 1 + float64(i%3)
	}
	loo := func(y []float64, lik Likelihood, sd float64) *LOO {
		opt := &GLMOptions{Intercept: true, PriorSD: sd, InterceptSD: 10 * sd, Weights: weight}
		g, err := NewGLM(sub, y, lik, opt)
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := g.Fit(ctx, &Solver{Goal: 1e-9})
		if err != nil {
			t.Fatal(err)
		}
		l, err := g.LOO(ctx, post)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	two, one := loo(labels, Softmax{}, 1), loo(sign, BernoulliLogit{}, math.Sqrt2)
	for i := range labels {
		if !(math.Abs(two.Leverage[i]-one.Leverage[i]) < 1e-5) ||
			!(math.Abs(two.Influence[i]-one.Influence[i]) < 1e-5) ||
			!(math.Abs(two.Pointwise[i]-one.Pointwise[i]) < 2.5*(one.PointErr[i]+two.PointErr[i])) {
			t.Errorf("row %d: leverage %v, influence %v, log p %v; of the logit %v, %v, %v ± %v", i,
				two.Leverage[i], two.Influence[i], two.Pointwise[i],
				one.Leverage[i], one.Influence[i], one.Pointwise[i], one.PointErr[i])
		}
	}
	if !(math.Abs(two.ELPD-one.ELPD) < two.Err+one.Err && two.Err < 0.2) {
		t.Errorf("%v, of the logit %v", two, one)
	}
}

// TestClassGPLOOTwo checks that a GP of two classes has the cavities of the GP of BernoulliLogit
// with twice the prior variance.
func TestClassGPLOOTwo(t *testing.T) {
	ctx := context.Background()
	sub, labels, sign := twoClasses(t)
	loo := func(y []float64, lik Likelihood, scale float64) *LOO {
		g, err := NewGP(sub, y, SquaredExp{Scale: scale, Length: 1.5}, lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := g.Fit(ctx, &Solver{Goal: 1e-9})
		if err != nil {
			t.Fatal(err)
		}
		l, err := g.LOO(ctx, post)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	two, one := loo(labels, Softmax{}, 1), loo(sign, BernoulliLogit{}, math.Sqrt2)
	for i := range labels {
		if !(math.Abs(two.Leverage[i]-one.Leverage[i]) < 1e-3) ||
			!(math.Abs(two.Influence[i]-one.Influence[i]) < 1e-3) ||
			!(math.Abs(two.Pointwise[i]-one.Pointwise[i]) < 2.5*(one.PointErr[i]+two.PointErr[i])+
				1e-4) {
			t.Errorf("row %d: leverage %v, influence %v, log p %v; of the logit %v, %v, %v ± %v", i,
				two.Leverage[i], two.Influence[i], two.Pointwise[i],
				one.Leverage[i], one.Influence[i], one.Pointwise[i], one.PointErr[i])
		}
	}
	if !(math.Abs(two.ELPD-one.ELPD) < two.Err+one.Err && two.Err < 0.3) {
		t.Errorf("%v, of the logit %v", two, one)
	}
	t.Logf("%v, of the logit %v", two, one)
}

// TestClassesLOOAlone checks that leaving out the only row of a column gives the prior for this
// column.
func TestClassesLOOAlone(t *testing.T) {
	y := []float64{0, 1, 2, 0, 1, 2, 1}
	x := mat.NewDense(len(y), 2, nil)
	for i := range y {
		x.Set(i, 0, 1)
	}
	x.Set(6, 1, 30)
	ctx := context.Background()
	fit := func(x mat.Matrix, y []float64) (*GLM, *GLMPosterior) {
		g, err := NewGLM(x, y, Softmax{Classes: 3}, nil)
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := g.Fit(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		return g, post
	}
	g, post := fit(x, y)
	l, err := g.LOO(ctx, post)
	if err != nil || math.IsNaN(l.ELPD+l.Err) {
		t.Fatalf("%v, %v", l, err)
	}
	rest, labels := testkit.LeaveOut(x, y, 6)
	_, without := fit(rest, labels)
	want := math.Log(without.Prob(nil, y[6], testkit.RowOf(x, 6))[0])
	if !(math.Abs(l.Pointwise[6]-want) < 2.5*l.PointErr[6]+1e-3) {
		t.Errorf("log p %v ± %v, refitted %v", l.Pointwise[6], l.PointErr[6], want)
	}
}

// TestClassGPLOOErrors checks the errors of a softmax GP that cannot leave out rows.
func TestClassGPLOOErrors(t *testing.T) {
	x, y := irisClasses(t)
	ctx := context.Background()
	done, cancel := context.WithCancel(ctx)
	cancel()
	gp := func(scale float64, opt *GPOptions, s Softmax) *GP {
		g, err := NewGP(x, y, SquaredExp{Scale: scale, Length: 2}, s, opt)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	g := gp(1, nil, Softmax{})
	post, _, err := g.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	few := gp(1, &GPOptions{MaxMemory: 12e6}, Softmax{Classes: 10}) // enough memory for a fit
	ten, _, err := few.Fit(ctx, &Solver{MaxPasses: 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		g    *GP
		q    *GPPosterior
		ctx  context.Context
		want error
	}{
		"nil posterior":  {g, nil, ctx, ErrParam},
		"other classes":  {gp(1, nil, Softmax{Classes: 4}), post, ctx, ErrParam},
		"another kernel": {gp(2, nil, Softmax{}), post, ctx, ErrParam},
		"memory":         {few, ten, ctx, ErrMemory},
		"canceled":       {g, post, done, context.Canceled},
	} {
		if l, err := c.g.LOO(c.ctx, c.q); l != nil || !errors.Is(err, c.want) ||
			!testkit.PrefixedOnce(err) {
			t.Errorf("%s: %v, %v", name, l, err)
		}
	}
}
