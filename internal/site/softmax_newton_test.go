package site

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// precisionsOf returns a contrast with random A_c: I/10, plus up to 1e4 in some directions, most
// of them different for each class.
func precisionsOf(rng *rand.Rand, k, d int) *softmaxBase {
	a := newSoftmaxBase(classProblem(rng, 1, d, k))
	dense.ResizeAll(k*d*d, &a.grams, &a.p, &a.next, &a.z, &a.try.p)
	dense.ResizeAll(k*d*(d+1)/2, &a.w, &a.mixed)
	dense.ResizeAll(d*d, &a.sum)
	x := make([]float64, d)
	for c := range k {
		g := a.class(a.grams, c)
		for j := range d {
			g[j*d+j] = 0.1
		}
		for range rng.IntN(2 * d) {
			size := math.Exp(9 * rng.Float64())
			for j := range x {
				x[j] = rng.NormFloat64()
			}
			for i := range d {
				floats.AddScaled(g[i*d:(i+1)*d], size*x[i], x)
			}
		}
	}
	floats.ScaleTo(a.p, float64(k)/float64(k-1), a.grams)
	return a
}

// TestContrastDescend checks that Newton's steps end when they predict no further gain, and not
// above the result of many rounds. Rounds alone must fall short of that result by far more than
// the size of the last round.
func TestContrastDescend(t *testing.T) {
	short := 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		a := precisionsOf(rng, 2+rng.IntN(5), 1+rng.IntN(4))
		if _, ok := a.rounds(contrastFirst); !ok {
			t.Fatalf("seed %d: no rounds", seed)
		}
		left := a.try.left
		before := a.divergence()
		gain := a.descend(1e-9)
		after := a.divergence()
		if fell := 0.5 * (before - after); !(math.Abs(fell-gain) < 1e-8) {
			t.Errorf("seed %d: a gain of %v, and the value fell by %v", seed, gain, fell)
		}
		if more := a.descend(1e-9); !(more < 1e-6) {
			t.Errorf("seed %d: then %v more", seed, more)
		}
		if gain > 10*left {
			short++
		}
		floats.ScaleTo(a.p, float64(a.k)/float64(a.k-1), a.grams)
		for range 1000 {
			if !a.rule() {
				t.Fatalf("seed %d: no round", seed)
			}
			copy(a.p, a.next)
		}
		if rounds := a.divergence(); !(after <= rounds+1e-6) {
			t.Errorf("seed %d: %v after Newton's steps, and %v after rounds", seed, after, rounds)
		}
	}
	if short < 20 {
		t.Errorf("rounds fall short in %d cases", short)
	}
}

// TestContrastDescentLimit checks that a small problem may take all solves of a descent, and that
// the work of a large problem is bounded.
func TestContrastDescentLimit(t *testing.T) {
	if got := descentLimit(10, 30); got != descentMost*descentSolves {
		t.Errorf("%d solves of 30 weights", got)
	}
	for _, d := range []int{100, 300, 3000} {
		work := float64(descentLimit(14, d)) * 14 * math.Pow(float64(d), 3)
		least := descentCalls * 14 * math.Pow(float64(d), 3)
		if !(work <= max(descentWork, least)) {
			t.Errorf("%d weights: work of %g", d, work)
		}
	}
}

// lateContext is canceled after some calls of Err, and counts those that follow.
type lateContext struct {
	context.Context
	left, after int
}

func (c *lateContext) Err() error {
	if c.left--; c.left >= 0 {
		return nil
	}
	c.after++
	return context.Canceled
}

// TestContrastSearchCanceled cancels a search at many places. The search must then end within a
// few operations on one class, because each operation checks the context.
func TestContrastSearchCanceled(t *testing.T) {
	for _, left := range []int{0, 1, 7, 30, 100, 300, 1000} {
		a := precisionsOf(rand.New(rand.NewPCG(3, 1)), 6, 4)
		ctx, halt := &lateContext{Context: context.Background(), left: left}, &parallel.Halt{}
		halt.Watch(ctx)
		a.crew.Halt = halt
		a.search(1e-9)
		if ctx.after == 0 && left < 1000 || ctx.after > 20 {
			t.Errorf("canceled after %d calls: %d more", left, ctx.after)
		}
	}
}

// TestContrastNewtonModel checks that the predicted gain of a step matches the second-order
// expansion.
func TestContrastNewtonModel(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		a := precisionsOf(rng, 2+rng.IntN(4), 1+rng.IntN(3))
		d := a.x.Cols
		if _, ok := a.rounds(2); !ok || !a.whiten() {
			t.Fatal("no start")
		}
		x, q := make([]float64, len(a.p)), make([]float64, len(a.p))
		for c := range a.k {
			for i := range d {
				for j := range i + 1 {
					x[c*d*d+i*d+j] = rng.NormFloat64()
					x[c*d*d+j*d+i] = x[c*d*d+i*d+j]
				}
			}
		}
		if !a.curve(q, x) {
			t.Fatal("no curvature")
		}
		slope, curve := 0.0, floats.Dot(x, q)
		for c := range a.k {
			slope += floats.Dot(a.class(x, c), a.class(a.newton.r, c)) /
				(1 + descentApart*math.Cos(float64(c)))
		}
		start := append([]float64{}, a.p...)
		value := a.divergence()
		at := func(h float64) float64 {
			copy(a.p, start)
			if !a.whiten() {
				t.Fatal("no units")
			}
			floats.ScaleTo(a.z, h, x)
			if !a.each(a.retract) {
				t.Fatal("no step")
			}
			return 0.5 * (value - a.divergence())
		}
		const h = 1e-3
		up, down := at(h), at(-h)
		if got, want := (up-down)/h, slope; !(math.Abs(got-want) < 1e-3*(1+math.Abs(want))) {
			t.Errorf("seed %d: slope %v, want %v", seed, want, got)
		}
		if got, want := -2*(up+down)/(h*h), curve; !(math.Abs(got-want) < 1e-3*(1+math.Abs(want))) {
			t.Errorf("seed %d: curvature %v, want %v", seed, want, got)
		}
	}
}

// TestContrastGPPromise checks that Newton's step of a softmax GP predicts about the remaining
// gap near the optimum.
func TestContrastGPPromise(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		n, k := 4+rng.IntN(4), 3
		c, y := make([]float64, n*n), make([]float64, n)
		for i := range n {
			y[i] = float64(rng.IntN(k))
			for j := range n {
				c[i*n+j] = 400 * math.Exp(-math.Abs(float64(i-j)))
			}
		}
		s, err := NewSoftmaxGP(&term.Terms{Y: y, Lik: softmax{}, K: k}, c, term.Crew{})
		if err != nil {
			t.Fatal(err)
		}
		type state struct{ elbo, gap float64 }
		var states []state
		for range 60 {
			if _, err := s.Ascend(); err != nil {
				t.Fatal(err)
			}
			e, err := s.Evaluate(0)
			if err != nil {
				t.Fatal(err)
			}
			states = append(states, state{e.ELBO, e.Gap})
		}
		best := states[len(states)-1].elbo
		for i, x := range states {
			if left := best - x.elbo; left > 1e-6 && x.gap < 1e-3 && !(x.gap > 0.3*left) {
				t.Errorf("seed %d, step %d: a gap of %v, and %v are left", seed, i, x.gap, left)
			}
		}
	}
}

// TestTrend checks that nine states determine the gap of a geometric series. A series that falls
// quickly, or fewer states, must give 0.
func TestTrend(t *testing.T) {
	for _, c := range []struct{ ratio, part float64 }{{0.9, 1}, {0.7, 1}, {0.5, 0}, {0.1, 0}} {
		var x trend
		for i := range 30 {
			left := math.Pow(c.ratio, float64(i))
			got := x.left(-5 - left)
			if want := c.part * left; i < 8 && got != 0 ||
				i >= 8 && c.ratio != 0.9 && !(math.Abs(got-want) < 1e-6*left+1e-12) ||
				i >= 8 && c.ratio == 0.9 && !(got > 0.5*want && got < 1.0001*want) {
				t.Errorf("ratio %v, state %d: %v, want %v", c.ratio, i, got, want)
			}
			if again := x.left(-5 - left); again != got {
				t.Errorf("asked again: %v, want %v", again, got)
			}
		}
	}
	var x trend
	for i := range 12 {
		if got := x.left(float64(i) - 20); i >= 8 && got != 4 {
			t.Errorf("of equal gains %v are left, want those of four", got)
		}
	}
}
