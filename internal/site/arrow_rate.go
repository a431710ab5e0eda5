package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
)

// sigmaRate measures how fast L converges. A profile finds the best L at given sites, but the sites
// of the next step depend on L, so the error of L falls by a factor of ρ per step: 0.3 with ten
// binary responses per level, and 0.9 with one. It keeps the last L and how far the profile after it
// moved, in the coordinates of sigma.
type sigmaRate struct{ x, r, nextX, nextR []float64 }

// leastRate is the smallest estimate of 1 − ρ.
const leastRate = 0.02

// coordsOf returns the elements of l that are learned.
func (s *sigma) coordsOf(a *arrow, l [][]float64) []float64 {
	x := make([]float64, len(s.coords))
	for k, c := range s.coords {
		x[k] = l[c.f][c.row*a.fac[c.f].Q+c.col]
	}
	return x
}

// units returns a unit for each coordinate: the standard deviation of its row, but at least the given
// part of its start.
func (s *sigma) units(a *arrow, l [][]float64, least float64) []float64 {
	u := make([]float64, len(s.coords))
	for k, c := range s.coords {
		q := a.fac[c.f].Q
		u[k] = max(floats.Norm(l[c.f][c.row*q:(c.row+1)*q], 2), least*s.start[c.f][c.row*q+c.row])
	}
	return u
}

// propose notes that a profile moves the L of the present state to l.
func (m *sigmaRate) propose(a *arrow, l [][]float64) {
	m.nextX, m.nextR = a.sigma.coordsOf(a, a.cur.by.L), a.sigma.coordsOf(a, l)
	floats.Sub(m.nextR, m.nextX)
}

// accept makes that move the last one.
func (m *sigmaRate) accept() {
	if m.nextX != nil {
		m.x, m.r, m.nextX, m.nextR = m.nextX, m.nextR, nil, nil
	}
}

// estimate returns an estimate of 1 − ρ. The profile of the present state would move its L to l.
func (m *sigmaRate) estimate(a *arrow, l [][]float64) float64 {
	s := &a.sigma
	x, r := s.coordsOf(a, a.cur.by.L), s.coordsOf(a, l)
	if len(m.x) != len(x) {
		return 1
	}
	floats.Sub(r, x)
	var dx, dr float64
	for i, u := range s.units(a, l, sigmaTiny) {
		p, q := (x[i]-m.x[i])/u, (r[i]-m.r[i])/u
		dx, dr = dx+p*p, dr+q*q
	}
	if !(dx > 0) {
		return 1
	}
	return max(leastRate, min(1, math.Sqrt(dr/dx)))
}

// state writes or reads m, whose vectors have n numbers.
func (m *sigmaRate) state(c *save.Coder, n int) {
	known := m.x != nil
	c.Bool(&known)
	if known {
		c.Floats(n, &m.x)
		c.Floats(n, &m.r)
	}
}
