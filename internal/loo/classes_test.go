package loo

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// TestClassWeights compares (C⁻¹ + H)⁻¹, computed from the factor of C, with the inverse of gonum.
// Some classes have the curvature 0.
func TestClassWeights(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const n, k = 37, 4
	c := make([]float64, n*n)
	inverse := mat.NewDense(n*k, n*k, nil)
	for i := range n {
		for j := range n {
			d := float64(i-j) / 3
			c[i*n+j] = 2 * math.Exp(-d*d/2)
		}
		c[i*n+i] += 0.01
	}
	var prior mat.Dense
	if err := prior.Inverse(mat.NewDense(n, n, c)); err != nil {
		t.Fatal(err)
	}
	h := make([]float64, n*k*k)
	for i := range n {
		p := make([]float64, k)
		for e := range p {
			p[e] = rng.ExpFloat64()
		}
		if i%5 == 0 {
			p[i%k] = 0
		}
		floats.Scale(1/floats.Sum(p), p)
		for e := range k {
			for f := range k {
				x := -p[e] * p[f]
				if e == f {
					x += p[e]
				}
				h[(i*k+e)*k+f] = x
				inverse.Set(i*k+e, i*k+f, x)
			}
		}
	}
	for i := range n {
		for j := range n {
			for e := range k {
				at := inverse.At(i*k+e, j*k+e)
				inverse.Set(i*k+e, j*k+e, at+prior.At(i, j))
			}
		}
	}
	var want mat.Dense
	if err := want.Inverse(inverse); err != nil {
		t.Fatal(err)
	}
	l, err := site.NewFactorModel(&term.Terms{Y: make([]float64, n), K: k}, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newClassWeights(context.Background(), l, nil, h)
	if err != nil {
		t.Fatal(err)
	}
	from, u, all := make([]float64, n*k), make([]float64, k),
		make([]float64, n*k)
	times, r := make([]float64, n*k), make([]float64, n*k)
	for i := range r {
		r[i] = rng.NormFloat64()
	}
	s.times(times, r)
	off := func(what string, got, want float64) {
		if !(math.Abs(got-want) < 1e-9*(1+math.Abs(want))) {
			t.Errorf("%s is %v, not %v", what, got, want)
		}
	}
	for i := range times {
		off("G r", times[i], mat.Dot(want.RowView(i), mat.NewVecDense(n*k, r)))
	}
	for i := range n {
		for e := range k {
			u[e] = rng.NormFloat64()
			for f := range k {
				off("a block", s.blocks[(i*k+e)*k+f], want.At(i*k+e, i*k+f))
			}
		}
		s.from(from, u, i)
		clear(all)
		copy(all[i*k:], u)
		for j, x := range from {
			off("G_·n u", x, mat.Dot(want.RowView(j), mat.NewVecDense(n*k, all)))
		}
	}
}
