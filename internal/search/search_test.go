package search

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// minimize runs a search for the minimum of f from start within the bounds ±far. The gradient
// comes from differences, and info is the average information. If see is not nil, it is called
// with the search after each step. The function returns the search and the number of evaluations.
func minimize(start []float64, far float64, info *mat.SymDense, f func(x []float64) float64,
	see func(s *Search)) (*Search, int) {
	n := len(start)
	s := &Search{Prec: mat.NewSymDense(n, nil), Goal: 1e-4, Exact: ExactPart, Longest: LongestStep,
		Part0: Part, Close: 1e-5}
	for range n {
		s.Lo, s.Hi = append(s.Lo, -far), append(s.Hi, far)
	}
	s.Begin(start)
	count := 0
	for ; !s.Done && count < 300; count++ {
		x := Point{Theta: s.Next, F: f(s.Next), Grad: make([]float64, n), Info: info,
			Slack: s.Slack}
		for i, v := range s.Next {
			const h = 1e-4
			at := append([]float64{}, s.Next...)
			at[i] = v + h
			x.Grad[i] = f(at)
			at[i] = v - h
			x.Grad[i] = (x.Grad[i] - f(at)) / (2 * h)
		}
		s.Tell(x)
		if see != nil {
			see(s)
		}
	}
	return s, count
}

// TestSearchEnds checks that a search does not end on a plateau or at a saddle, however small the
// predicted gain is there, and that it needs few evaluations if a coordinate is at its bound.
func TestSearchEnds(t *testing.T) {
	sym := func(n int, v ...float64) *mat.SymDense { return mat.NewSymDense(n, v) }
	for _, c := range []struct {
		name  string
		start []float64
		far   float64
		info  *mat.SymDense
		f     func(x []float64) float64
		least float64
		most  int // allowed evaluations
	}{
		{"a plateau", []float64{0}, 100, sym(1, 0), func(x []float64) float64 {
			return -5 * math.Exp(-(x[0]-4)*(x[0]-4))
		}, -5, 30},
		{"a plateau, and a step too long", []float64{0}, 100, sym(1, 0),
			func(x []float64) float64 {
				past := math.Max(0, x[0]-1)
				return -math.Exp(-40*(x[0]-0.7)*(x[0]-0.7)) + 0.4*past*past
			}, -1, 30},
		{"a saddle", []float64{0, 1e-4}, 100, sym(2, 20, 0, 0, 0.01), func(x []float64) float64 {
			v := x[1]*x[1] - 1
			return 10*x[0]*x[0] + 0.5*v*v
		}, 0, 30},
		{"a bound", []float64{9, 10}, 10, sym(2, 1, 0.03, 0.03, 0.00091),
			func(x []float64) float64 { return 0.5 * (x[0] + 3) * (x[0] + 3) }, 0, 40},
	} {
		s, count := minimize(c.start, c.far, c.info, c.f, nil)
		end := s.End()
		if !s.Done || end.Stuck || !(s.Cur.F < c.least+1e-3) || count > c.most {
			t.Errorf("%s: f = %v at %v after %d evaluations, want %v: %+v", c.name, s.Cur.F,
				s.Cur.Theta, count, c.least, end)
		}
	}
}

// TestSearchMeasured checks that a search with the measured curvature near its end takes few more
// steps, tries no flatter metric, and keeps that curvature.
func TestSearchMeasured(t *testing.T) {
	info := mat.NewSymDense(2, []float64{40, 0, 0, 2})
	f := func(x []float64) float64 {
		return 20*x[0]*x[0] + math.Exp(x[1]) - x[1] + 2*x[0]*x[1]
	}
	told := -1
	s, count := minimize([]float64{1, 1}, 100, info, f, func(s *Search) {
		if told++; !s.Near(0.03, math.Inf(1)) || s.measured != nil {
			return
		}
		b := mat.NewSymDense(2, []float64{40, 2, 2, math.Exp(s.Cur.Theta[1])})
		if predicted := s.Measure(b, false); !(predicted > s.Goal) || s.Done {
			t.Errorf("predicted gain %v at %v, done %v", predicted, s.Cur.Theta, s.Done)
		}
		told = 0
	})
	_, without := minimize([]float64{1, 1}, 100, info, f, nil)
	if end := s.End(); told > 2 || end.Left > s.Goal || end.Doubted || count >= without {
		t.Errorf("%d evaluations, %d since the curvature was told, %d without: %+v", count, told,
			without, end)
	}
	const tol = 0.1 // the curvature of exp changes by 0.2 on the way
	at := math.Exp(s.Cur.Theta[1])
	got, want := s.Curvature(1), mat.NewSymDense(2, []float64{40, 2, 2, at})
	if !mat.EqualApprox(got, want, tol) {
		t.Errorf("the curvature is %v, want %v", mat.Formatted(got), mat.Formatted(want))
	}
}

// TestSearchProposed checks that a search goes to a proposed minimum, keeps the curvature there, and
// finds the minimum itself if it lies elsewhere.
func TestSearchProposed(t *testing.T) {
	info := mat.NewSymDense(2, []float64{40, 0, 0, 2})
	f := func(x []float64) float64 {
		return 20*x[0]*x[0] + math.Exp(x[1]) - x[1] + 2*x[0]*x[1]
	}
	start := []float64{1, 4}
	best, without := minimize(start, 100, info, f, nil)
	least := best.Cur.Theta
	b := mat.NewSymDense(2, []float64{40, 2, 2, math.Exp(least[1])})
	for _, c := range []struct {
		name string
		to   []float64
		most int
	}{
		{"the minimum", least, 4},
		{"near it", []float64{least[0] + 0.01, least[1] - 0.1}, 6},
		{"beyond it", []float64{-8, -9}, 2 * without},
		{"uphill", []float64{2, 5}, without},
	} {
		told := false
		s, count := minimize(start, 100, info, f, func(s *Search) {
			if !told {
				told = true
				s.Propose(c.to, s.Cur.F-f(c.to), b)
			}
		})
		if end := s.End(); end.Stuck || !(s.Cur.F < best.Cur.F+s.Goal) || count > c.most {
			t.Errorf("%s: f = %v after %d evaluations, want %v: %+v", c.name, s.Cur.F, count,
				best.Cur.F, end)
		}
		if c.most < without && !mat.EqualApprox(s.Curvature(1), b, 0.15) {
			t.Errorf("%s: the curvature is %v, want %v", c.name,
				mat.Formatted(s.Curvature(1)), mat.Formatted(b))
		}
	}
}
