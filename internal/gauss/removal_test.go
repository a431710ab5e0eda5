package gauss

import (
	"math"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
)

// diagonalState returns a Gaussian with the given mean and diagonal precisions.
func diagonalState(t *testing.T, mean, prec []float64) *Gaussian {
	t.Helper()
	s := &Gaussian{}
	s.Resize(len(prec))
	clear(s.P)
	copy(s.Mean, mean)
	for j, p := range prec {
		s.P[j*len(prec)+j] = p
	}
	if !s.Factor() {
		t.Fatal("no precision")
	}
	return s
}

// TestAmplification checks the largest ratio of variances.
func TestAmplification(t *testing.T) {
	w := diagonalState(t, []float64{0, 0}, []float64{8, 2})
	if a := w.Amplification(w); math.Abs(a-1) > 1e-12 {
		t.Errorf("%v of itself, want 1", a)
	}
	s := diagonalState(t, []float64{0, 0}, []float64{0.08, 1})
	if a := s.Amplification(w); math.Abs(a-100) > 1e-6 {
		t.Errorf("%v, want 100", a)
	}
}

// TestMeanRounding checks √(δᵀΛVΛδ), which does not depend on signs if all are diagonal.
func TestMeanRounding(t *testing.T) {
	w := diagonalState(t, []float64{3, 4}, []float64{8, 2})
	s := diagonalState(t, []float64{0, 0}, []float64{4, 1})
	want := dense.Epsilon * math.Sqrt(24*24/4+8*8)
	if r := s.MeanRounding(w); math.Abs(r-want) > 1e-12*want {
		t.Errorf("%v, want %v", r, want)
	}
}
