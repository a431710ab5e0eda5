package search_test

import (
	"math"
	"testing"

	"github.com/pgsvi/pgsvi/internal/search"
	"gonum.org/v1/gonum/mat"
)

// TestSearchForgetsStiffSteps checks a function that is steep and curved at first and then almost
// linear, whose errors hide the change of the gradient along short steps. The metric of the first steps
// would make all later steps too short.
func TestSearchForgetsStiffSteps(t *testing.T) {
	// softened wall: curvature 1e4 at the start, and slope −50 from there on to the minimum at 10
	f := func(x float64) (f, slope float64) {
		w := math.Exp(-200 * x)
		return 0.25*w - 50*x + 2.5*x*x, -50*w - 50 + 5*x
	}
	s := search.Search{Prec: mat.NewSymDense(1, nil), Lo: []float64{-1}, Hi: []float64{100},
		Goal: 1e-4, Exact: search.ExactPart, Longest: search.LongestStep, Part0: search.Part}
	s.Begin([]float64{-0.01})
	n := 0
	for ; !s.Done && n < 200; n++ {
		x := search.Point{Theta: []float64{s.Next[0]}, Slack: 2e-3, Info: mat.NewSymDense(1, []float64{2e4})}
		if x.Theta[0] > 0.02 {
			x.Info.SetSym(0, 0, 5)
		}
		var g float64
		x.F, g = f(s.Next[0])
		x.Grad = []float64{g}
		s.Tell(x)
	}
	if !(math.Abs(s.Cur.Theta[0]-10) < 0.1) || n > 40 {
		t.Errorf("ended at %v after %d evaluations, want 10", s.Cur.Theta[0], n)
	}
}
