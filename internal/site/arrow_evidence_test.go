package site

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// newEvidence returns an evidence with 3 common columns and the given factors, and its space: the log
// noise, and log standard deviations of the first and of the second common column.
func newEvidence(t *testing.T, factors [][2]int, rng *rand.Rand) (*Evidence, *EvidenceSpace) {
	t.Helper()
	p := newArrowProblem(t, 60, factors, rng)
	l := p.a.lin
	l.Terms = &term.Terms{Y: p.b, Weight: p.delta}
	e, err := NewEvidence(l, term.Crew{})
	if err != nil {
		t.Fatal(err)
	}
	s := &EvidenceSpace{Noise: []float64{1, 0, 0}, Column: make([]int, l.X.Cols),
		Lo: []float64{-9, -9, -9}, Hi: []float64{9, 9, 9},
		Penalty: func(theta, grad []float64) float64 { return 0 }, Prec: mat.NewSymDense(3, nil)}
	for j := range s.Column {
		s.Column[j] = -1
	}
	s.Column[0], s.Column[1] = 1, 2
	s.At = func(theta []float64) (float64, []float64, bool) {
		prec := append([]float64(nil), l.Prior.Prec...)
		prec[0], prec[1] = math.Exp(-2*theta[1]), math.Exp(-2*theta[2])
		return math.Exp(theta[0]), prec, true
	}
	return e, s
}

// TestEvidenceCurve compares the derivatives of the evidence in L and θ with differences.
func TestEvidenceCurve(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, factors := range arrowFactors {
		const h = 1e-5
		e, s := newEvidence(t, factors, rng)
		theta := []float64{-0.3, 0.2, -0.4}
		n := len(e.a.sigma.coords)
		at := func(k int, h float64) (float64, *evidenceCurve) {
			old, to := gauss.CloneLists(e.t.by.L), append([]float64(nil), theta...)
			step := make([]float64, n+3)
			step[k] = h
			e.a.moveL(e.t.by.L, old, step[:n], 1)
			floats.Add(to, step[n:])
			z, c := e.curve(s, to)
			e.t.by.L = old
			return z, c
		}
		_, c := at(0, 0)
		for k := range n + 3 {
			up, upper := at(k, h)
			down, lower := at(k, -h)
			near := func(what string, got, want float64) {
				if !(math.Abs(got-want) <= 1e-5*(1+math.Abs(want))) {
					t.Errorf("%v, coordinate %d of %d: %s is %v, want %v", factors, k, n+3, what, got, want)
				}
			}
			near("slope", c.grad[k], (up-down)/(2*h))
			for j := range n + 3 {
				near(fmt.Sprint("second derivative ", j), -c.bend.At(k, j),
					(upper.grad[j]-lower.grad[j])/(2*h))
			}
		}
	}
}

// TestEvidenceMaximize checks that no near point has more evidence than the one that Maximize finds,
// and that it returns the information of θ if L follows.
func TestEvidenceMaximize(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for _, factors := range arrowFactors {
		e, s := newEvidence(t, factors, rng)
		s.Penalty = func(theta, grad []float64) (sum float64) {
			for i, x := range theta {
				sum += 0.5 * x * x
				if grad != nil {
					grad[i] += x
				}
			}
			return sum
		}
		for i := range 3 {
			s.Prec.SetSym(i, i, 1)
		}
		theta := make([]float64, 3)
		best, grad, info := e.Maximize(s, theta, true)
		for i, x := range theta {
			if math.Abs(grad[i]-x) > 1e-3 {
				t.Errorf("%v: slope %v in θ_%d = %v", factors, grad[i], i, x)
			}
		}
		l := gauss.CloneLists(e.L())
		for range 50 {
			to := append([]float64(nil), theta...)
			for i := range to {
				to[i] += 0.1 * rng.NormFloat64()
			}
			for f := range l {
				for i, x := range l[f] {
					e.L()[f][i] = x * (1 + 0.1*rng.NormFloat64())
				}
			}
			if z := e.value(s, to, nil) - s.Penalty(to, nil); z > best-s.Penalty(theta, nil)+1e-8 {
				t.Errorf("%v: %v has %v, which is above %v", factors, to, z, best)
			}
		}
		const h = 0.02
		for i := range 3 {
			var ends [2][]float64
			for k, x := range []float64{h, -h} {
				to := append([]float64(nil), theta...)
				to[i] += x
				_, ends[k], _ = e.Maximize(s, to, false)
			}
			for j := range 3 {
				want := -(ends[0][j] - ends[1][j]) / (2 * h)
				if got := info.At(i, j); !(math.Abs(got-want) <= 0.05*(1+math.Abs(want))) {
					t.Errorf("%v: information %d, %d is %v, want %v", factors, i, j, got, want)
				}
			}
		}
	}
}

// TestArrowAverage compares the average Hessian with half of the exact Hessian of ½hᵀm, and its slopes
// with the exact slopes, at regular and at singular L.
func TestArrowAverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	for _, factors := range arrowFactors {
		for _, singular := range []bool{false, true} {
			a := newArrowProblem(t, 60, factors, rng)
			if !a.a.shape.Crossed() {
				continue
			}
			at := func(b []float64) (average, exact []float64, slopes [2][][]float64) {
				s := &arrowState{}
				s.by.ArrowShape, s.by.L = a.a.shape, gauss.CloneLists(a.a.cur.by.L)
				for f, l := range s.by.L {
					a.a.sigma.scale[f] = nil
					if q := a.a.fac[f].Q; singular {
						clear(l[(q-1)*q:])
					}
				}
				a.a.sum(s, a.delta, b)
				a.a.logZ(s, gauss.CloneLists(s.by.L))
				_, average, slopes[0] = a.a.averageBend(s)
				average = append([]float64(nil), average...)
				_, exact, slopes[1] = a.a.crossBend(s)
				return average, append([]float64(nil), exact...), slopes
			}
			average, exact, slopes := at(a.b)
			_, none, _ := at(make([]float64, len(a.b)))
			_, n := a.a.firsts()
			for i := range n {
				for j := range i + 1 {
					want := 0.5 * (exact[i*n+j] - none[i*n+j])
					if got := average[i*n+j]; !(math.Abs(got-want) <= 1e-9*(1+math.Abs(want))) {
						t.Errorf("%v: element %d, %d is %v, want %v", factors, i, j, got, want)
					}
				}
			}
			for f := range slopes[0] {
				if !floats.EqualApprox(slopes[0][f], slopes[1][f], 1e-9) {
					t.Errorf("%v: slopes %v, want %v", factors, slopes[0][f], slopes[1][f])
				}
			}
		}
	}
}
