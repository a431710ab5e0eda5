package gauss

import (
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
)

// Unit returns the state N(0, I) of m weights.
func Unit(m int) *Gaussian {
	s := &Gaussian{}
	s.Resize(m)
	clear(s.P)
	clear(s.Mean)
	for j := range m {
		s.P[j*m+j] = 1
	}
	s.Factor()
	return s
}

// Carry moves the data of s to other weights. The weights w₀ of s and the new weights w both have
// the prior N(0, I), and the data see w₀ = Aᵀw. The mean m of s is given:
//
//	P₊ = I + A(P − I)Aᵀ,   P₊m₊ = APm.
//
// It returns nil if P₊ has no factor, or m₊ is not finite.
func (s *Gaussian) Carry(a blas64.General, mean []float64) *Gaussian {
	m, n := a.Cols, a.Rows
	seen := slices.Clone(s.P) // P − I
	dense.FillUpper(seen, m)
	p, shift := dense.General(seen, m, m), dense.Vector(make([]float64, m))
	dense.Gemv(blas.NoTrans, 1, p, dense.Vector(mean), 0, shift)
	for j := range m {
		seen[j*m+j]--
	}
	q, half := Unit(n), dense.General(make([]float64, n*m), n, m)
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, a, p, 0, half)
	dense.Gemm(blas.NoTrans, blas.Trans, 1, half, a, 1, dense.General(q.P, n, n))
	dense.Gemv(blas.NoTrans, 1, a, shift, 0, dense.Vector(q.Mean))
	if !q.Factor() {
		return nil
	}
	dense.Potrs(q.L, q.Mean)
	if _, ok := dense.AllFinite(q.Mean); !ok {
		return nil
	}
	return q
}

// Times gives s the precision of t copies of its data, I + t(P − I), and keeps its mean, because
// the mean of t copies would fit the noise of the data. It returns false if there is no factor.
func (s *Gaussian) Times(t float64) bool {
	floats.Scale(t, s.P)
	for j, m := 0, len(s.Mean); j < m; j++ {
		s.P[j*m+j] += 1 - t
	}
	return s.Factor()
}
