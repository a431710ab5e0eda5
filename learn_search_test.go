package pgsvi

import (
	"context"
	"fmt"
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// A search over hyper-parameters that has converged is at a stationary point: small steps downhill from
// there, by fits of their own, gain nothing. Large counts among zeros, labels that are all the same and
// starts far off have slopes that change by orders of magnitude.
func TestLearnEndsStationary(t *testing.T) {
	t.Parallel()
	at := func(i int, v, rest float64) func(int) float64 {
		return func(j int) float64 {
			if i == j {
				return v
			}
			return rest
		}
	}
	zero := at(-1, 0, 0)
	for _, c := range []struct {
		name          string
		y             func(i int) float64
		lik           Likelihood
		scale, length float64 // of the start, 0 for the default
		n             int
		bare          bool // without priors
	}{
		{"zeros, start 1000", zero, Poisson{}, 1000, 3, 30, false},
		{"zeros, one row", zero, Poisson{}, 2112, 0, 1, true},
		{"one 1000, start 1", at(7, 1000, 0), Poisson{}, 1, 3, 30, true},
		{"one 1000, start 1000", at(7, 1000, 0), Poisson{}, 1000, 3, 30, false},
		{"one 10", at(7, 10, 0), Poisson{}, 0, 0, 60, false},
		{"one 100", at(7, 100, 0), Poisson{}, 0, 0, 60, false},
		{"one 1000", at(7, 1000, 0), Poisson{}, 0, 0, 60, false},
		{"all labels +1", at(-1, 0, 1), BernoulliLogit{}, 100, 3, 30, true},
		{"one 1e6 among ones", at(7, 1e6, 1), Exponential{}, 100, 3, 26, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			x, y := mat.NewDense(c.n, 1, nil), make([]float64, c.n)
			for i := range y {
				x.Set(i, 0, float64(i))
				y[i] = c.y(i)
			}
			opt := &LearnOptions{NoPrior: c.bare}
			if c.length > 0 {
				opt.Fixed = []string{"SquaredExp.Length"}
			}
			ctx := context.Background()
			_, _, l, err := mustGP(t, x, y, SquaredExp{Scale: c.scale, Length: c.length}, c.lik).Learn(ctx, nil, opt)
			if err != nil {
				t.Fatal(err)
			}
			objective := func(theta []float64) float64 {
				_, r, err := mustGP(t, x, y, SquaredExp{Scale: math.Exp(theta[0]), Length: math.Exp(theta[1])}, c.lik).Fit(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				f := -r.ELBO
				for i, p := range l.Params {
					if p.Prior.SD > 0 {
						d := (theta[i] - p.Prior.Mean) / p.Prior.SD
						f += 0.5 * d * d
					}
				}
				return f
			}
			theta := []float64{math.Log(l.Params[0].Value), math.Log(l.Params[1].Value)}
			f := objective(theta)
			if math.Abs(f-l.Objective) > 1e-3 {
				t.Errorf("objective %v, by a fit %v", l.Objective, f)
			}
			least := f
			for i := range l.Params {
				if l.Params[i].Fixed {
					continue
				}
				for _, h := range []float64{-0.2, -0.05, 0.05, 0.2} {
					v := theta[i]
					theta[i] = v + h
					least = min(least, objective(theta))
					theta[i] = v
				}
			}
			if l.Search.Status != Converged || f-least > 0.01 {
				t.Errorf("%v after %d evaluations, at %v ± %.2g with %v, and %.3g nats lower nearby", l.Search.Status, l.Evaluations, l.Params[0].Value, l.Params[0].SD, f, f-least)
			}
		})
	}
}

// A search whose slopes are wrong finds no way down: it has not converged, says how much its slope still
// promises, and warns.
func TestLearnStalls(t *testing.T) {
	t.Parallel()
	s := learnSearch{prec: mat.NewSymDense(1, nil), goal: learnTol, exact: exactPart, longest: longestStep, part0: searchPart}
	s.lo, s.hi = []float64{-100}, []float64{100}
	s.begin([]float64{1})
	for range mostEvaluations {
		if s.done {
			break
		}
		at := s.next[0]
		s.tell(learnPoint{theta: []float64{at}, f: at * at, grad: []float64{-2 * at}, info: mat.NewSymDense(1, []float64{2})})
	}
	end := s.end()
	if !s.done || !end.stuck || !(end.left > s.goal) {
		t.Errorf("done %v, %+v", s.done, end)
	}
	st := &learnStepper{space: &learnSpace{}, search: s, ended: end, done: true, n: 1}
	st.best.f, st.first.f = 1, math.Inf(1)
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
