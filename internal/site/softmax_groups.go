package site

import (
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
)

// This file fits softmax models with grouping factors. Each level of a factor has Q effects in each
// of K classes, u_gc ~ N(0, Σ) with Σ = LLᵀ. The engine of softmax.go needs a diagonal prior, so
// NewSoftmaxAlgebra replaces the effects by v_gc ~ N(0, I) with u_gc = Lv_gc, which turns the values
// z of a row into Lᵀz. SoftmaxAlgebra.Weights converts the result back.

// whitened returns l with a diagonal prior, and the blocks whose weights it replaces. There are no
// such blocks if the effects of each level are independent, because Prec is then the precision.
func (l *LinearModel) whitened() (*LinearModel, []gauss.Block) {
	blocks := l.Prior.Blocks()
	if !slices.ContainsFunc(blocks, correlated) {
		return l, nil
	}
	own := *l
	own.Prior = gauss.Prior{Mean: l.Prior.Mean, Prec: slices.Clone(l.Prior.Prec)}
	for i := range blocks {
		b := &blocks[i]
		for j := b.First; j < b.End(); j++ {
			own.Prior.Prec[j] = 1
		}
	}
	own.X = whitenedRows(l.X, blocks)
	return &own, blocks
}

// correlated reports whether the L of b has elements below the diagonal.
func correlated(b gauss.Block) bool {
	for i := range b.Q {
		for j := range i {
			if b.L[i*b.Q+j] != 0 {
				return true
			}
		}
	}
	return false
}

// whitenedRows returns a copy of x in which each z of a level is Lᵀz.
func whitenedRows(x *design.Matrix, blocks []gauss.Block) *design.Matrix {
	if x.Sparse == nil {
		own := *x
		own.Dense = slices.Clone(x.Dense)
		for i := range own.Rows {
			row := own.Dense[i*own.Cols : (i+1)*own.Cols]
			for k := range blocks {
				b := &blocks[k]
				for at := b.First; at < b.End(); at += b.Q {
					whiten(row[at:at+b.Q], b)
				}
			}
		}
		return &own
	}
	s := &design.Rows{Cols: x.Cols, Ptr: make([]int, 1, x.Rows+1)}
	var z [gauss.MostEffects]float64
	for i := range x.Rows {
		ind, val := x.Row(i)
		for k := 0; k < len(ind); {
			j := int(ind[k])
			at := slices.IndexFunc(blocks,
				func(b gauss.Block) bool { return b.First <= j && j < b.End() })
			if at < 0 {
				s.Ind, s.Val = append(s.Ind, ind[k]), append(s.Val, val[k])
				k++
				continue
			}
			b := &blocks[at]
			level := j - (j-b.First)%b.Q
			clear(z[:])
			for ; k < len(ind) && int(ind[k]) < level+b.Q; k++ {
				z[int(ind[k])-level] = val[k]
			}
			whiten(z[:b.Q], b)
			for e, v := range z[:b.Q] {
				s.Ind, s.Val = append(s.Ind, int32(level+e)), append(s.Val, v)
			}
		}
		s.Ptr = append(s.Ptr, len(s.Ind))
	}
	return design.NewSparse(s)
}

// whiten replaces z by Lᵀz.
func whiten(z []float64, b *gauss.Block) {
	for j := range z {
		sum := 0.0
		for i := j; i < b.Q; i++ {
			sum += b.L[i*b.Q+j] * z[i]
		}
		z[j] = sum
	}
}

// unwhiten converts the weights v of one class into w = Tv, where T has the L of all levels on its
// diagonal. The mean m becomes Tm, and the precision P, D×D with both triangles, becomes T⁻ᵀPT⁻¹.
func unwhiten(blocks []gauss.Block, mean, p []float64) {
	d := len(mean)
	var z [gauss.MostEffects]float64
	for k := range blocks {
		b := &blocks[k]
		for at := b.First; at < b.End(); at += b.Q {
			m := mean[at : at+b.Q]
			for i := b.Q - 1; i >= 0; i-- {
				sum := 0.0
				for j, l := range b.L[i*b.Q : i*b.Q+i+1] {
					sum += l * m[j]
				}
				m[i] = sum
			}
			for c := range d { // the columns of P
				for i := range b.Q {
					z[i] = p[(at+i)*d+c]
				}
				solveT(z[:b.Q], b)
				for i := range b.Q {
					p[(at+i)*d+c] = z[i]
				}
			}
			for r := range d { // the rows of P
				solveT(p[r*d+at:r*d+at+b.Q], b)
			}
		}
	}
	dense.FillUpper(p, d) // both triangles had their own rounding
}

// solveT replaces z by L⁻ᵀz.
func solveT(z []float64, b *gauss.Block) {
	for i := b.Q - 1; i >= 0; i-- {
		for j := i + 1; j < b.Q; j++ {
			z[i] -= b.L[j*b.Q+i] * z[j]
		}
		z[i] /= b.L[i*b.Q+i]
	}
}
