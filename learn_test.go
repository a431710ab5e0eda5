package pgsvi

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/mat"
)

// TestLearnStalls checks that a search with wrong slopes, which finds no descent, does not
// converge, reports the gain that its slope predicts, and warns.
func TestLearnStalls(t *testing.T) {
	t.Parallel()
	s := search.Search{Prec: mat.NewSymDense(1, nil), Goal: learn.DefaultTol,
		Exact: search.ExactPart, Longest: search.LongestStep, Part0: search.Part}
	s.Lo, s.Hi = []float64{-100}, []float64{100}
	s.Begin([]float64{1})
	for range 200 {
		if s.Done {
			break
		}
		at := s.Next[0]
		s.Tell(search.Point{Theta: []float64{at}, F: at * at, Grad: []float64{-2 * at},
			Info: mat.NewSymDense(1, []float64{2})})
	}
	end := s.End()
	if !s.Done || !end.Stuck || !(end.Left > s.Goal) {
		t.Errorf("done %v, %+v", s.Done, end)
	}
	st := &learnStepper{run: &learn.Run{Search: s, Ended: end, Done: true}, space: &learnSpace{},
		n: 1}
	st.run.Best.F = 1
	e, err := st.Evaluate(context.Background(), nil)
	if err != nil || !(e.Gap > e.Goal) || len(st.warnings(Stalled)) != 1 {
		t.Errorf("%+v, %v, %q", e, err, st.warnings(Stalled))
	}
	stall := DefaultConverger()
	stall.Init()
	status := NotTerminated
	for k := 0; k < 20 && status == NotTerminated; k++ {
		status = stall.Converged(Iteration{K: k, Evaluation: e})
	}
	if status != Stalled {
		t.Errorf("the run ended %v", fmt.Sprint(status))
	}
}

// TestClassGPLearnGradient checks the gradient of a GP with several classes against differences of
// the ELBO at the best q.
func TestClassGPLearnGradient(t *testing.T) {
	t.Parallel()
	for _, k := range []Kernel{
		SquaredExp{Scale: 1.5, Length: 0.8},
		Sum{Matern52{Scale: 1.5, Lengths: []float64{0.8, 1.4}}, Constant{Scale: 0.7}},
	} {
		for _, classes := range []int{2, 4} {
			g := classCase(k, classes).model(t, 24)
			l, err := learnerAs[*gpLearner](g.Learner(nil))
			if err != nil {
				t.Fatal(err)
			}
			m := l.learning()
			m.Use(term.Crew{Workers: 1})
			theta := make([]float64, len(l.space.free))
			for i, at := range l.space.free {
				c := &l.space.coords[at]
				theta[i] = c.theta(c.Value) + 0.1*math.Sin(float64(i))
			}
			value := func() float64 {
				x, err := m.Evaluate(theta, 1e-11, math.Inf(1), false)
				if err != nil || math.IsInf(x.F, 0) {
					t.Fatal(x.F, err)
				}
				m.Keep(false)
				return x.F
			}
			value()
			x, err := m.Evaluate(theta, 1e-11, math.Inf(1), true)
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range theta {
				const h = 2e-3
				diff := func(h float64) float64 {
					theta[i] = v + h
					up := value()
					theta[i] = v - h
					down := value()
					theta[i] = v
					return (up - down) / (2 * h)
				}
				want := (4*diff(h) - diff(2*h)) / 3
				if math.Abs(x.Grad[i]-want) > 1e-4*(1+math.Abs(want)) {
					t.Errorf("%s, %d classes: slope %v of parameter %d, by differences %v",
						kernelName(k), classes, x.Grad[i], i, want)
				}
			}
		}
	}
}

// TestClassGPLearnTwo checks that two classes learn the same as their logit, if a score has half of
// its prior variance.
func TestClassGPLearnTwo(t *testing.T) {
	t.Parallel()
	g := learnCases()[0].model(t, shorter(60, 40))
	y := make([]float64, g.Len())
	for i, s := range g.terms.Y {
		y[i] = (s + 1) / 2
	}
	opt := &LearnOptions{Tol: 1e-4, NoPrior: true}
	two, err := NewGP(g.x, y, SquaredExp{Scale: 1, Length: 1}, Softmax{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, got, err := two.Learn(context.Background(), nil, opt)
	if err != nil {
		t.Fatal(err)
	}
	_, _, want, err := g.Learn(context.Background(), nil, opt)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(got.Objective-want.Objective) > 1e-3 {
		t.Errorf("−ELBO %v, of the logit %v", got.Objective, want.Objective)
	}
	for i, scale := range []float64{math.Sqrt2, 1} {
		a, b := got.Params[i].Value*scale, want.Params[i].Value
		if math.Abs(a-b) > 0.02*b {
			t.Errorf("%s is %v, of the logit %v", got.Params[i].Name, a, b)
		}
	}
}
