package mixed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/simulate"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/interp"
	"gonum.org/v1/gonum/mat"
)

// A fineGrid is a posterior of standard deviations and correlations by many fits with fixed values.
type fineGrid struct {
	logs   []float64
	values [][]float64 // one list per parameter
}

// add adds a point with the log density log.
func (f *fineGrid) add(log float64, values ...float64) {
	if f.values == nil {
		f.values = make([][]float64, len(values))
	}
	f.logs = append(f.logs, log)
	for i, v := range values {
		f.values[i] = append(f.values[i], v)
	}
}

// quantile returns the quantile of parameter i. The grid has equal steps in some coordinate of the
// parameter. Cubic splines interpolate the log density and the parameter between its points.
func (f *fineGrid) quantile(t *testing.T, i int, level float64) float64 {
	t.Helper()
	mass, best := map[float64]float64{}, slices.Max(f.logs)
	for k, log := range f.logs {
		mass[f.values[i][k]] += math.Exp(log - best)
	}
	var at, xs, logs []float64
	for _, x := range slices.Sorted(maps.Keys(mass)) {
		if m := mass[x]; m > 1e-30 {
			at, xs, logs = append(at, float64(len(at))), append(xs, x), append(logs, math.Log(m))
		}
	}
	var value, density interp.NotAKnotCubic
	if err := errors.Join(value.Fit(at, xs), density.Fit(at, logs)); err != nil {
		t.Fatal(err)
	}
	const parts = 40 // parts per step
	lo, n := -0.5, parts*len(at)
	cum := make([]float64, n+1)
	for k := range n {
		cum[k+1] = cum[k] + math.Exp(density.Predict(max(0, lo+(float64(k)+0.5)/parts)))
	}
	k, _ := slices.BinarySearch(cum, level*cum[n])
	return value.Predict(lo + float64(k)/parts)
}

// problem is a small model with the number of standard deviations and correlations that it has.
type problem struct {
	kind   string // "one", "crossed", "independent" or "correlated"
	lik    Likelihood
	levels int
}

// fixed returns the ELBO at the given standard deviations and correlation.
func (p problem) fixed(t *testing.T, x *Sparse, y []float64, groups []Group, sd []float64,
	rho float64) float64 {
	t.Helper()
	groups = slices.Clone(groups)
	for i := range groups {
		q := max(1, len(groups[i].Effects))
		groups[i].Fixed, groups[i].SD, sd = true, sd[:q], sd[q:]
		if q == 2 && rho != 0 {
			groups[i].Corr = mat.NewSymDense(2, []float64{1, rho, rho, 1})
		}
	}
	g, err := NewGLM(x, y, p.lik, &GLMOptions{Intercept: true, Groups: groups})
	if err != nil {
		t.Fatal(err)
	}
	_, res, err := g.Fit(context.Background(), &Solver{Goal: 1e-6})
	if err != nil {
		t.Fatal(err)
	}
	return res.ELBO
}

// data draws rows of p, and returns the groups and the root mean squares of the values of their
// effects.
func (p problem) data(seed uint64) (x *Sparse, y []float64, groups []Group, size []float64) {
	rng := testkit.Rand(seed)
	n := 8 * p.levels
	xs := testkit.Normals(rng, n)
	slope := p.kind == "independent" || p.kind == "correlated"
	second := 4 // levels of the second factor
	first := Group{First: 1, Levels: p.levels}
	size = []float64{1}
	switch {
	case slope:
		first.Effects, first.Independent = []string{"1", "x"}, p.kind == "independent"
		groups = []Group{first}
		size = append(size, floats.Norm(xs, 2)/math.Sqrt(float64(n)))
		x = NewSparse(1 + 2*p.levels)
	case p.kind == "crossed":
		groups = []Group{first, {First: 1 + p.levels, Levels: second}}
		size = append(size, 1)
		x = NewSparse(1 + p.levels + second)
	default:
		groups = []Group{first}
		x = NewSparse(1 + p.levels)
	}
	u, v := testkit.Normals(rng, p.levels), testkit.Normals(rng, max(p.levels, second))
	for i, z := range xs {
		g := i / 8
		eta := 0.3 + 0.5*z + 0.9*u[g]
		switch {
		case slope:
			eta += (0.3*u[g] + 0.5*v[g]) * z
			x.Append([]int{0, 1 + 2*g, 2 + 2*g}, []float64{z, 1, z})
		case p.kind == "crossed":
			eta += 0.4 * v[i%second]
			x.Append([]int{0, 1 + g, 1 + p.levels + i%second}, []float64{z, 1, 1})
		default:
			x.Append([]int{0, 1 + g}, []float64{z, 1})
		}
		y = append(y, simulate.Response(p.lik, eta, rng))
	}
	return x, y, groups, size
}

// fine returns the posterior on a grid whose standard deviations have equal distances in log sd, or
// in sd below the scale of the grid.
func (p problem) fine(t *testing.T, x *Sparse, y []float64, groups []Group,
	size []float64) *fineGrid {
	t.Helper()
	const scale = 0.25
	n := map[string]int{"one": 150, "crossed": 34, "independent": 34, "correlated": 20}[p.kind]
	most := math.Asinh(14 / scale)
	var sds, jac []float64
	for k := range n {
		at := most * (float64(k) + 0.5) / float64(n)
		sds, jac = append(sds, scale*math.Sinh(at)), append(jac, math.Log(math.Cosh(at)))
	}
	half := func(i int, sd float64) float64 {
		z := sd * size[i] / simulate.PriorScale
		return -0.5 * z * z
	}
	f := &fineGrid{}
	for i, a := range sds {
		if p.kind == "one" {
			f.add(jac[i]+half(0, a)+p.fixed(t, x, y, groups, []float64{a}, 0), a)
			continue
		}
		for j, b := range sds {
			log := jac[i] + jac[j] + half(0, a) + half(1, b)
			if p.kind != "correlated" {
				f.add(log+p.fixed(t, x, y, groups, []float64{a, b}, 0), a, b)
				continue
			}
			for u := -2.6; u < 2.7; u += 0.26 {
				rho := math.Tanh(u) // LKJ(2), and the derivative of ρ
				f.add(log+2*math.Log(1-rho*rho)+p.fixed(t, x, y, groups, []float64{a, b}, rho), a, b, rho)
			}
		}
	}
	return f
}

// TestIntervalsFine compares the 95% intervals of standard deviations and correlations with numerical
// integration over many fits.
func TestIntervalsFine(t *testing.T) {
	var worst float64
	for k, p := range testkit.Longer([]problem{{"one", BernoulliLogit{}, 6},
		{"one", Poisson{}, 5}, {"one", BernoulliLogit{}, 15}, {"crossed", BernoulliLogit{}, 8},
		{"crossed", Poisson{}, 6}, {"independent", BernoulliLogit{}, 10},
		{"independent", Poisson{}, 6}, {"correlated", Poisson{}, 8},
		{"correlated", BernoulliLogit{}, 12}, {"correlated", Poisson{}, 12},
		{"correlated", BernoulliLogit{}, 20}, {"correlated", BernoulliLogit{}, 8}},
		[]problem{{"one", BernoulliLogit{}, 6}, {"crossed", Poisson{}, 6}}) {
		x, y, groups, size := p.data(uint64(k + 1))
		g, err := NewGLM(x, y, p.lik, &GLMOptions{Intercept: true, Groups: groups})
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := g.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		f, at := p.fine(t, x, y, groups, size), 0
		text := ""
		for _, r := range post.Groups() {
			for _, e := range r.Effects {
				lo, hi := f.quantile(t, at, 0.025), f.quantile(t, at, 0.975)
				at++
				off := math.Abs(math.Log(e.Hi / hi))
				if lo > 0.1*hi { // otherwise relative errors of a value near 0 mean little
					off = max(off, math.Abs(math.Log(e.Lo/lo)))
				} else {
					off = max(off, math.Abs(min(lo, e.SD)-e.Lo)/hi)
				}
				worst = max(worst, off)
				text += fmt.Sprintf("; %.3f to %.3f, want %.3f to %.3f", e.Lo, e.Hi, lo, hi)
				if !(off <= 0.03) {
					t.Errorf("%+v: the interval %v to %v is off by %.3f from %v to %v", p, e.Lo, e.Hi, off,
						lo, hi)
				}
			}
			for _, c := range r.Corr {
				if p.kind == "independent" {
					continue // 0
				}
				lo, hi := f.quantile(t, at, 0.025), f.quantile(t, at, 0.975)
				text += fmt.Sprintf("; corr %.3f to %.3f, want %.3f to %.3f", c.Lo, c.Hi, lo, hi)
				if !(math.Abs(c.Lo-lo) <= 0.05 && math.Abs(c.Hi-hi) <= 0.05) {
					t.Errorf("%+v: the interval of the correlation is %v to %v, want %v to %v", p, c.Lo, c.Hi,
						lo, hi)
				}
			}
		}
		t.Logf("%+v%s", p, text)
	}
	t.Logf("standard deviations are off by up to %.3f", worst)
}
