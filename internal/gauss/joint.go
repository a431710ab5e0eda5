package gauss

import (
	"slices"

	"gonum.org/v1/gonum/floats"
)

// This file computes the covariance of a few weights, such as the weights of the rows that LOO
// leaves out together.

// Joint returns the covariance of the weights at index under c, which has d weights.
func Joint(c Cov, d int, index []int) []float64 {
	if a, ok := c.(*Arrow); ok {
		return a.joint(index)
	}
	n := len(index)
	cov, x, y := make([]float64, n*n), make([]float64, d), make([]float64, d)
	for i, j := range index {
		x[j] = 1
		c.Mul(y, x)
		x[j] = 0
		for k, l := range index {
			cov[i*n+k] = y[l]
		}
	}
	return cov
}

// joint is Joint without vectors of all weights.
func (c *Arrow) joint(index []int) []float64 {
	p, m, n, f := c.Inverse(), len(c.Border), len(index), &c.Blocks[0]
	rows := make([]arrowRow, n)
	var used []int32 // columns of the border that are not zero in all rows
	for j := range c.Common {
		used = append(used, int32(j))
	}
	for i, j := range index {
		rows[i].r = make([]float64, m)
		rows[i].set(c, []int32{int32(j)}, []float64{1})
		used = append(used, rows[i].touched...)
	}
	slices.Sort(used)
	used = slices.Compact(used)
	u := len(used)
	packed, times, row := make([]float64, n*u), make([]float64, u), make([]float64, u)
	for i := range rows {
		for k, j := range used {
			packed[i*u+k] = rows[i].r[j]
		}
	}
	cov := make([]float64, n*n)
	for i := range n {
		for k, j := range used {
			for l, o := range used {
				row[l] = p[int(j)*m+int(o)]
			}
			times[k] = floats.Dot(row, packed[i*u:(i+1)*u])
		}
		for k := range i + 1 {
			v := floats.Dot(times, packed[k*u:(k+1)*u])
			if a, b := index[i]-f.First, index[k]-f.First; a >= 0 && b >= 0 && a < f.Levels*f.Q &&
				b < f.Levels*f.Q && a/f.Q == b/f.Q {
				v += c.R[a*f.Q+b%f.Q]
			}
			cov[i*n+k], cov[k*n+i] = v, v
		}
	}
	return cov
}
