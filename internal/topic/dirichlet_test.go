package topic

import (
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
)

// TestDirichletTiny checks words whose probability underflows in every topic unless logarithms
// are used.
func TestDirichletTiny(t *testing.T) {
	w, mu := new(localDirichlet), []float64{-900, -2000, -1000, -900}
	w.set(Doc{Words: []int{0, 1}, Counts: []float64{3, 2}}, mu, 2, 1e-3)
	w.ascend(true)
	// Word 0 is of topic 0 and word 1 of topic 1, or γ would be at its prior for one, whose E[log
	// θ] is −1000.
	near(t, "γ_0", w.gamma[0], 3.001, 1e-6)
	near(t, "γ_1", w.gamma[1], 2.001, 1e-6)
	if v := w.value(); math.IsNaN(v) || v > -4400 || v < -4700 {
		t.Errorf("value %v", v)
	}
	w.gamma[0], w.gamma[1] = 5.001, 1e-3 // where all that is left of word 1 is in logarithms
	w.b[1], w.b[3] = 0, 1
	w.weigh()
	if w.norm[1] >= tiniest {
		t.Fatalf("norm %v", w.norm[1])
	}
	if phi := w.lost(1); math.Abs(floats.Sum(phi)-1) > 1e-12 {
		t.Errorf("φ is %v", phi)
	}
	if v := w.value(); math.IsNaN(v) || math.IsInf(v, 0) {
		t.Errorf("value %v", v)
	}
}

// TestDirichletJump checks that Anderson mixing takes no γ that is far from the last one, not
// finite or 0, and takes one that is near.
func TestDirichletJump(t *testing.T) {
	w := new(localDirichlet)
	w.set(Doc{Words: []int{0, 1}, Counts: []float64{3, 2}}, []float64{-1, -2, -2, -1}, 2, 0.2)
	w.step()
	next := slices.Clone(w.next)
	for _, far := range []float64{2795, -1400, math.NaN(), math.Inf(1), 1.1 + math.Log(w.gamma[1])} {
		w.few[0], w.few[1] = math.Log(w.gamma[0]), far
		if w.jump(); !slices.Equal(w.next, next) {
			t.Errorf("log γ = %v: the next γ is %v, want %v", far, w.next, next)
		}
	}
	w.few[0], w.few[1] = math.Log(2.5), math.Log(3.5)
	w.jump()
	near(t, "γ_0", w.next[0], 2.5, 1e-12)
	near(t, "γ_1", w.next[1], 3.5, 1e-12)
}
