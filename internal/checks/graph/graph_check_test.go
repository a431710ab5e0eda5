package graph

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// plantedFactor is a custom factor of the terms x, a Gaussian, and b, a Gamma.
type plantedFactor struct {
	name  string
	value func(row int, m []pgsvi.Moments) float64
	grad  func(row int, d, m []pgsvi.Moments)
	want  string // in the error; empty for a correct factor
}

// plantedFactors returns factors with a mistake each, and a few correct ones.
func plantedFactors() []plantedFactor {
	type slope = func(row int, d, m []pgsvi.Moments)
	y := []float64{0.3, -1, 2}
	// log N(y|x, 1/b)
	normal := func(n int, m []pgsvi.Moments) float64 {
		return 0.5 * (m[1].Log - m[1].Mean*(y[n]*y[n]-2*y[n]*m[0].Mean+m[0].Square))
	}
	grad := func(n int, d, m []pgsvi.Moments) {
		d[0] = pgsvi.Moments{Mean: m[1].Mean * y[n], Square: -0.5 * m[1].Mean}
		d[1] = pgsvi.Moments{Mean: -0.5 * (y[n]*y[n] - 2*y[n]*m[0].Mean + m[0].Square), Log: 0.5}
	}
	changed := func(change func(n int, d []pgsvi.Moments)) slope {
		return func(n int, d, m []pgsvi.Moments) {
			grad(n, d, m)
			change(n, d)
		}
	}
	calls := 0
	return []plantedFactor{
		{"correct", normal, grad, ""},
		{"correct, without grad", normal, nil, ""},
		{"bound", func(n int,
			m []pgsvi.Moments) float64 {
			return -math.Log1p(math.Exp(math.Sqrt(m[0].Square)))
		},
			func(n int, d, m []pgsvi.Moments) {
				c := math.Sqrt(m[0].Square)
				d[0].Square = -1 / (1 + math.Exp(-c)) / (2 * c)
			}, ""},
		{"Mean", normal, changed(func(n int, d []pgsvi.Moments) { d[0].Mean *= 0.999 }),
			"E[u] of x is"},
		{"Square", normal, changed(func(n int, d []pgsvi.Moments) { d[0].Square = 0 }),
			"E[u²] of x is"},
		{"Log", normal, changed(func(n int, d []pgsvi.Moments) { d[1].Log = 1 }),
			"E[log u] of b is 1"},
		{"sign of Mean", normal, changed(func(n int, d []pgsvi.Moments) { d[0].Mean *= -1 }),
			"E[u] of x is"},
		{"sign of Square", normal, changed(func(n int, d []pgsvi.Moments) { d[0].Square *= -1 }),
			"E[u²] of x is"},
		{"sign of the rate", normal, changed(func(n int, d []pgsvi.Moments) { d[1].Mean *= -1 }),
			"E[u] of b is"},
		{"terms swapped", normal, changed(func(n int, d []pgsvi.Moments) {
			d[0], d[1] = d[1],
				d[0]
		}), "of x is"},
		{"one row", normal, changed(func(n int, d []pgsvi.Moments) {
			if n == 2 {
				d[0].Mean += 0.01
			}
		}), "row 2: the derivative"},
		{"no derivative of b", normal, changed(func(n int,
			d []pgsvi.Moments) {
			d[1] = pgsvi.Moments{}
		}),
			"of b is 0"},
		{"NaN derivative", normal, changed(func(n int,
			d []pgsvi.Moments) {
			d[0].Mean = math.NaN()
		}),
			"of x is NaN"},
		{"not affine in Mean", func(n int,
			m []pgsvi.Moments) float64 {
			return -m[0].Mean * m[0].Mean
		}, nil,
			"not affine in E[u] of x"},
		{"not affine in Square", func(n int,
			m []pgsvi.Moments) float64 {
			return -math.Sqrt(m[0].Square)
		}, nil,
			"not affine in E[u²] of x"},
		{"log of a mean", func(n int, m []pgsvi.Moments) float64 { return math.Log(m[1].Mean) },
			func(n int, d, m []pgsvi.Moments) { d[1].Mean = 1 / m[1].Mean }, "neither E[log f]"},
		{"square of a mean", func(n int, m []pgsvi.Moments) float64 {
			return -m[1].Mean * (y[n] - m[0].Mean) * (y[n] - m[0].Mean)
		}, func(n int, d, m []pgsvi.Moments) {
			r := y[n] - m[0].Mean
			d[0].Mean, d[1].Mean = 2*m[1].Mean*r, -r*r
		}, "neither E[log f]"},
		{"concave in the precision", func(n int,
			m []pgsvi.Moments) float64 {
			return -m[1].Mean * m[1].Mean
		},
			func(n int, d, m []pgsvi.Moments) { d[1].Mean = -2 * m[1].Mean }, "neither E[log f]"},
		{"value is NaN", func(n int, m []pgsvi.Moments) float64 {
			return math.Log(m[0].Mean -
				9)
		}, grad,
			"the value is NaN"},
		{"unknown moment", func(n int, m []pgsvi.Moments) float64 { return m[0].Log }, nil,
			"E[log u] of x"},
		{"unknown square", func(n int, m []pgsvi.Moments) float64 { return m[1].Square }, nil,
			"E[u²] of b"},
		{"index", func(n int, m []pgsvi.Moments) float64 { return y[n+1] * m[0].Mean }, nil,
			"row 2: panic"},
		{"state", func(n int, m []pgsvi.Moments) float64 {
			calls++
			return m[0].Mean +
				float64(calls)
		}, grad,
			"for the same moments"},
		{"changes moments", func(n int,
			m []pgsvi.Moments) float64 {
			m[0].Mean++
			return m[0].Mean
		}, grad,
			"changes the moments of term 0"},
		{"negative root at a draw", func(n int, m []pgsvi.Moments) float64 {
			return math.Sqrt(m[0].Square - m[0].Mean*m[0].Mean - 0.1)
		}, func(n int, d, m []pgsvi.Moments) {
			r := math.Sqrt(m[0].Square - m[0].Mean*m[0].Mean - 0.1)
			d[0] = pgsvi.Moments{Mean: -m[0].Mean / r, Square: 0.5 / r}
		}, "NaN for known numbers"},
	}
}

// TestCheckFactor checks that CheckFactor finds each planted mistake and accepts correct factors.
func TestCheckFactor(t *testing.T) {
	var g pgsvi.Graph
	x := g.Block("x", 3, pgsvi.NewIsotropic(1, 1), gaussianAt(1, testkit.Rand(1)),
		gaussianAt(1, testkit.Rand(2)), gaussianAt(1, testkit.Rand(3)))
	b := g.Block("b", 1, gamma(2, 3))
	found := 0
	for _, c := range plantedFactors() {
		err := pgsvi.CheckFactor(pgsvi.NewFactor(c.name, c.value, c.grad, x, b))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: the error is %v; want one with %q", c.name, err, c.want)
		case c.want != "":
			found++
			if !errors.Is(err, pgsvi.ErrParam) && !errors.Is(err, pgsvi.ErrPanic) {
				t.Errorf("%s: the error %v wraps neither ErrParam nor ErrPanic", c.name, err)
			}
		}
	}
	t.Logf("%d mistakes found", found)
}

// TestCheckFactorParts checks dependent terms, parts of mixtures, and arguments of another Graph.
func TestCheckFactorParts(t *testing.T) {
	var g pgsvi.Graph
	y := []float64{0.3, -1, 2}
	x, b := g.Block("x", 3, pgsvi.NewIsotropic(1, 1)), g.Block("b", 1, gamma(2, 3))
	z := g.Block("z", 3, testkit.Must(pgsvi.NewCategorical([]float64{1, 2, 3})))
	pi := g.Block("pi", 1, dirichlet(2, 1))
	dependent := pgsvi.NewFactor("both", func(_ int, m []pgsvi.Moments) float64 {
		return m[0].Mean * m[1].Mean
	}, nil, z.Element(0), z.Element(1))
	if err := pgsvi.CheckFactor(dependent); err == nil || !strings.Contains(err.Error(),
		"same copy") {
		t.Errorf("a product of dependent terms gives the error %v", err)
	}
	good := pgsvi.NormalFactor(pgsvi.Known(y...), x, b)
	planted := plantedFactors()
	right := pgsvi.NewFactor("right", planted[0].value, planted[0].grad, x, b)
	wrong := pgsvi.NewFactor("wrong", planted[3].value, planted[3].grad, x, b)
	if err := pgsvi.CheckFactor(pgsvi.MixtureFactor(pi, good, right)); err != nil {
		t.Error(err)
	}
	err := pgsvi.CheckFactor(pgsvi.MixtureFactor(pi, good, wrong))
	if err == nil || !strings.Contains(err.Error(), "factor wrong") {
		t.Errorf("a mistake in a part of a mixture gives the error %v", err)
	}
	var other pgsvi.Graph
	other.Add(pgsvi.GammaFactor(other.Block("p", 1, gamma(1, 1)), 1, pgsvi.Known(1)))
	init := testkit.Must(other.Objective()).Init
	if err := pgsvi.CheckFactor(good, init); !errors.Is(err, pgsvi.ErrShape) {
		t.Errorf("a member of another Graph gives the error %v", err)
	}
	if err := pgsvi.CheckFactor(pgsvi.Factor{}); !errors.Is(err, pgsvi.ErrParam) {
		t.Errorf("the zero Factor gives the error %v", err)
	}
}
