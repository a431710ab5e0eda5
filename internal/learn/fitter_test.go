package learn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/mat"
)

// TestJudge checks which fits have a value, which fits count as +Inf, and which errors end a search.
func TestJudge(t *testing.T) {
	nan := math.NaN()
	fault := errors.New("a fault")
	good := search.Point{F: 3, Grad: []float64{1, 2}, Info: mat.NewSymDense(2, nil)}
	with := func(change func(x *search.Point)) search.Point {
		x := good
		change(&x)
		return x
	}
	for name, c := range map[string]struct {
		x   search.Point
		err error
		f   float64
		end error
	}{
		"good":         {x: good, f: 3},
		"not finite":   {x: good, err: fmt.Errorf("x: %w", sentinel.ErrNotFinite), f: math.Inf(1)},
		"not positive": {x: good, err: fmt.Errorf("x: %w", sentinel.ErrNotPosDef), f: math.Inf(1)},
		"no value":     {x: good, err: errNoValue, f: math.Inf(1)},
		"fault":        {x: good, err: fault, f: math.Inf(1), end: fault},
		"NaN":          {x: with(func(x *search.Point) { x.F = nan }), f: math.Inf(1)},
		"-Inf":         {x: with(func(x *search.Point) { x.F = math.Inf(-1) }), f: math.Inf(1)},
		"slope": {x: with(func(x *search.Point) { x.Grad = []float64{1, math.Inf(1)} }),
			f: math.Inf(1)},
		"information": {x: with(func(x *search.Point) {
			x.Info = mat.NewSymDense(2, []float64{1, nan, nan, 1})
		}), f: math.Inf(1)},
	} {
		x, err := Judge(nil, c.x, c.err)
		if x.F != c.f || !errors.Is(err, c.end) {
			t.Errorf("%s: F is %v and the error %v, want %v and %v", name, x.F, err, c.f, c.end)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(fault)
	var h parallel.Halt
	h.Watch(ctx)
	defer h.Forget()
	if x, err := Judge(&h, good, sentinel.ErrNotFinite); !errors.Is(err, fault) || x.F != math.Inf(1) {
		t.Errorf("halted: F is %v and the error %v, want +Inf and the cause", x.F, err)
	}
}

// TestForeseen checks that sites whose log γ, a and m are linear in θ are extrapolated almost
// exactly, that the move of log γ is bounded, and that only the last pastSites θ count.
func TestForeseen(t *testing.T) {
	l := &fitter{n: 2}
	if l.foreseen([]float64{0, 0}) != nil {
		t.Error("sites without a past")
	}
	at := func(x, y float64) (gamma, a, m []float64) {
		return []float64{math.Exp(0.3*x - y), math.Exp(2 + y)}, []float64{x, 1 - y},
			[]float64{2 * y, x + y}
	}
	keep := func(x, y float64) {
		gamma, a, m := at(x, y)
		l.remember([]float64{x, y}, gamma, a, m)
		l.Keep(x == 0)
	}
	keep(100, 100) // forgotten after pastSites others
	for i := range pastSites {
		keep(0.1*float64(i), 0.05*float64(i*i))
	}
	if len(l.past) != pastSites || l.best.theta[0] != 0 {
		t.Fatalf("%d sites are remembered, the best at %v", len(l.past), l.best.theta)
	}
	near := func(x, y float64) float64 {
		gamma, a, m := at(x, y)
		s, off := l.foreseen([]float64{x, y}), 0.0
		for i := range gamma {
			off = max(off, math.Abs(math.Log(s.gamma[i]/gamma[i])), math.Abs(s.a[i]-a[i]),
				math.Abs(s.m[i]-m[i]))
		}
		return off
	}
	if off := near(0.4, 1); !(off < 1e-4) {
		t.Errorf("the sites near the past are off by %g", off)
	}
	from, _, _ := at(0, 0)
	gamma := l.foreseen([]float64{0, -9}).gamma[0]
	if move := math.Log(gamma / from[0]); math.Abs(move-mostSecant) > 1e-9 {
		t.Errorf("log γ moves by %v, want %v", move, mostSecant)
	}
}
