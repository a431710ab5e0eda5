package gauss

import (
	"slices"

	"gonum.org/v1/gonum/floats"
)

// This file computes the covariance of a few weights, such as the weights of the rows that LOO
// leaves out together, and how well rows determine the effects of groups.

// Joint returns a function that returns the covariance of the weights at index under c. Several
// workers may call it.
func Joint(c Cov) func(index []int) []float64 {
	if a, ok := c.(*Arrow); ok {
		return a.joint
	}
	all := c.Sym()
	return func(index []int) []float64 {
		n := len(index)
		cov := make([]float64, n*n)
		for i, j := range index {
			for k, l := range index {
				cov[i*n+k] = all.At(j, l)
			}
		}
		return cov
	}
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

// Determined returns, for each effect of block k of p, how many of its levels the rows determine
// rather than the prior: Σ_g diag(Σ⁺Σ − Σ⁺V_g), where V_g is the posterior covariance of the effects
// of level g (MacKay 1992). Their sum is the effective degrees of freedom of the block. With several
// classes, c is the covariance of the weights of all classes minus their mean over the classes, whose
// prior covariance is (1 − 1/classes)Σ, and the sum is over classes too.
func (p *Prior) Determined(k int, c Cov, classes int) []float64 {
	b := &p.blocks[k]
	q, index := b.Q, make([]int, b.Q)
	sum, cov, joint := make([]float64, q), b.Covariance(), Joint(c)
	if classes > 1 {
		floats.Scale(1-1/float64(classes), cov)
	}
	for g := range b.Levels * classes {
		for j := range index {
			index[j] = g/b.Levels*len(p.Mean) + b.First + g%b.Levels*q + j
		}
		v := joint(index)
		for j := range q {
			for l := range q {
				sum[j] += b.prec[j*q+l] * (cov[l*q+j] - v[l*q+j])
			}
		}
	}
	for j, x := range sum {
		sum[j] = max(0, x)
	}
	return sum
}

// Filled returns the number of levels of b that have rows.
func (c *Arrow) Filled(b Block) (n int) {
	size, first := make([]float64, b.Levels), b.First
	for i := range c.Sums.D {
		if f := &c.Blocks[0]; f.First == first && c.Sums.D[i] != 0 {
			size[i/(f.Q*f.Q)]++
		}
	}
	m := len(c.Border)
	for i, j := range c.Border {
		if j >= first && j < b.End() && c.Sums.A[i*m+i] != 0 {
			size[(j-first)/b.Q]++
		}
	}
	for _, x := range size {
		if x > 0 {
			n++
		}
	}
	return n
}
