package gauss

import (
	"slices"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/floats"
)

// This file holds products of an Arrow and sums of other rows, or of the same rows at other sites.
// Rounds over rows that are not kept compute KL divergences and predicted gains with them. Each B_g
// has all M columns of the border: the model has one factor, or its shape is Full.

// Trace returns tr(XᵀΓX V) for the covariance V of c and sums XᵀΓX. With P = S⁻¹ and T_g = E_gP, it
// is
//
//	tr(AP) + Σ_g tr(D_g(R_g + T_gE_gᵀ)) − 2 tr(B_gᵀT_g).
func (c *Arrow) Trace(s *Sums) float64 {
	f, d := &c.Blocks[0], len(c.Border)
	q, p := f.Q, c.Inverse()
	parts := make([]float64, (f.Levels+arrowLevels-1)/arrowLevels)
	parallel.For(f.Levels, arrowLevels, 1, func(_, lo, hi int) {
		t := make([]float64, q*d)
		sum := 0.0
		for g := lo; g < hi; g++ {
			e, b := c.E[g*q*d:(g+1)*q*d], s.B[g*q*d:(g+1)*q*d]
			clear(t)
			for i := range q {
				for k, x := range e[i*d : (i+1)*d] {
					AddTimes(t[i*d:(i+1)*d], x, p[k*d:(k+1)*d])
				}
			}
			sum -= 2 * floats.Dot(b, t)
			for i := range q {
				for j := range q {
					sum += s.D[(g*q+i)*q+j] *
						(c.R[(g*q+j)*q+i] + floats.Dot(t[j*d:(j+1)*d], e[i*d:(i+1)*d]))
				}
			}
		}
		parts[lo/arrowLevels] = sum
	})
	total := floats.Sum(parts)
	for i := range d {
		total += 2*floats.Dot(s.A[i*d:i*d+i], p[i*d:i*d+i]) + s.A[i*d+i]*p[i*d+i]
	}
	return total
}

// MulGram adds XᵀΓXm to hb and hg, for the mean m with the weights w of the border and the effects u
// of the first factor, which has Q effects per level.
func (s *Sums) MulGram(hb, hg, w, u []float64, q int) {
	d := len(w)
	for i := range d {
		a := s.A[i*d : i*d+i+1]
		AddTimes(hb[:i], w[i], a[:i])
		hb[i] += floats.Dot(a, w[:i+1])
	}
	for i, x := range u {
		b := s.B[i*d : (i+1)*d]
		AddTimes(hb, x, b)
		hg[i] += floats.Dot(b, w) + floats.Dot(s.D[i*q:(i+1)*q], u[i/q*q:i/q*q+q])
	}
}

// Compact returns c with the columns of each B_g that are not 0, for a Full shape. A posterior then
// takes no more memory than a posterior of rows that were kept. It reports false if h has stopped.
func (c *Arrow) Compact(h *parallel.Halt) (*Arrow, bool) {
	f, shape, m := &c.Blocks[0], *c.ArrowShape, len(c.Border)
	shape.Full, shape.Pat = false, make([][]int32, f.Levels)
	x := &Arrow{ArrowShape: &shape, L: CloneLists(c.L)}
	x.Sums.A, x.Sums.D = slices.Clone(c.Sums.A), slices.Clone(c.Sums.D)
	for g := range f.Levels {
		b := c.Sums.B[g*f.Q*m : (g+1)*f.Q*m]
		var pat []int32
		for j := c.Common; j < m; j++ {
			for i := range f.Q {
				if b[i*m+j] != 0 {
					pat = append(pat, int32(j))
					break
				}
			}
		}
		shape.Pat[g] = pat
		for i := range f.Q {
			row := b[i*m : (i+1)*m]
			x.Sums.B = append(x.Sums.B, row[:c.Common]...)
			for _, j := range pat {
				x.Sums.B = append(x.Sums.B, row[j])
			}
		}
	}
	shape.SetPtr()
	return x, x.Factor(h) && !h.Stopped()
}

// AddScaled adds x times o to s.
func (s *Sums) AddScaled(x float64, o *Sums) {
	floats.AddScaled(s.A, x, o.A)
	floats.AddScaled(s.B, x, o.B)
	floats.AddScaled(s.D, x, o.D)
}

// Scale multiplies s by x.
func (s *Sums) Scale(x float64) {
	for _, v := range [][]float64{s.A, s.B, s.D} {
		floats.Scale(x, v)
	}
}

// Clone returns a copy of s.
func (s *Sums) Clone() Sums {
	c := CloneLists([][]float64{s.A, s.B, s.D})
	return Sums{c[0], c[1], c[2]}
}
