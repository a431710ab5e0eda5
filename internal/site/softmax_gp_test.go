package site

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
)

// repeatedRows returns a singular covariance of n rows in two dimensions, and labels of k classes. Half
// of the rows are copies of other rows. If linear is set, planes separate the classes and the functions
// are linear.
func repeatedRows(rng *rand.Rand, n, k int, linear bool) (c, y []float64) {
	c, y = make([]float64, n*n), make([]float64, n)
	x := make([][2]float64, n)
	for i := range x {
		if x[i] = [2]float64{rng.NormFloat64(), rng.NormFloat64()}; i >= n/2 {
			x[i] = x[rng.IntN(n/2)]
		}
		if y[i] = float64(rng.IntN(k)); linear {
			y[i] = math.Floor(float64(k) * (0.5 + math.Atan2(x[i][0], x[i][1])/(2.001*math.Pi)))
		}
	}
	for i, a := range x {
		for j, b := range x {
			d := math.Hypot(a[0]-b[0], a[1]-b[1])
			if c[i*n+j] = 60 * (a[0]*b[0] + a[1]*b[1]); !linear {
				c[i*n+j] = 600 * (math.Exp(-d) + a[0]*b[0])
			}
		}
	}
	return c, y
}

// TestFactorModel checks that the rows of the factor have the given covariance, also if it is
// singular or 0, and that other matrices are errors.
func TestFactorModel(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 4))
		n := 2 + rng.IntN(40)
		c, y := repeatedRows(rng, n, 3, seed%2 == 1)
		if seed == 0 {
			clear(c)
		}
		l, err := NewFactorModel(&term.Terms{Y: y, K: 3}, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		if most := max(1, n/2); l.X.Cols > most {
			t.Errorf("seed %d: %d weights for %d different rows", seed, l.X.Cols, most)
		}
		for i, x := range l.Gram() {
			if !(math.Abs(x-c[i]) <= 1e-12*math.Sqrt(c[i/n*(n+1)]*c[i%n*(n+1)])) {
				t.Fatalf("seed %d: covariance %v, want %v", seed, x, c[i])
			}
		}
	}
	for _, bad := range []struct {
		c    []float64
		want error
	}{
		{[]float64{1, 2, 2, 1}, sentinel.ErrNotPosDef},
		{[]float64{1, math.NaN(), math.NaN(), 1}, sentinel.ErrNotFinite},
	} {
		terms := &term.Terms{Y: []float64{0, 1}, Lik: softmax{}, K: 3}
		if _, err := NewSoftmaxGP(terms, bad.c, term.Crew{}); !errors.Is(err, bad.want) {
			t.Errorf("%v: %v, want %v", bad.c, err, bad.want)
		}
	}
}

// TestSoftmaxGPFlat fits wide priors over equal rows, and linear functions of many rows, whose
// precisions are flat. Without Newton's steps some runs stall 1e-3 nats from the optimum, and without
// the steps of precise others do. The means must equal Ca, and a must be contrasts.
func TestSoftmaxGPFlat(t *testing.T) {
	sharp := 0
	for seed := range uint64(17) {
		rng := rand.New(rand.NewPCG(seed, 5))
		const k = 3
		n, linear, goal := 8+rng.IntN(20), seed >= 12, 1e-7
		if linear {
			n, goal = 5*n, 1e-5
		}
		c, y := repeatedRows(rng, n, k, linear)
		s, err := NewSoftmaxGP(&term.Terms{Y: y, Lik: softmax{}, K: k}, c, term.Crew{})
		if err != nil {
			t.Fatal(err)
		}
		var e siteEvaluation
		passes := 0
		for e.Gap = math.Inf(1); e.Gap > goal && passes < 150; passes++ {
			if _, err = s.Ascend(); err == nil {
				e, err = s.Evaluate(goal)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if s.mover.sharp {
			sharp++
		}
		if e.Gap > goal {
			t.Errorf("seed %d: a gap of %v after %d passes", seed, e.Gap, passes)
		}
		for i := range n {
			sum := 0.0
			for j := range k {
				m := 0.0
				for at := range n {
					m += c[i*n+at] * s.Cur.A[at*k+j]
				}
				sum += s.Cur.A[i*k+j]
				if got := s.Cur.M[i*k+j]; !(math.Abs(got-m) < 1e-7*(1+math.Abs(m))) {
					t.Fatalf("seed %d: mean %v, want %v", seed, got, m)
				}
			}
			if !(math.Abs(sum) < 1e-9) {
				t.Fatalf("seed %d: a sum of %v over the classes", seed, sum)
			}
		}
	}
	if sharp < 3 {
		t.Errorf("the precisions of %d problems are flat", sharp)
	}
}
