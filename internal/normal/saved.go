package normal

// This file turns a Gaussian into numbers that are saved as JSON, and back to the same bits. The
// root package calls it for the files of a Gaussian. A run that has not ended saves a Form with
// Save instead.

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// Saved holds the numbers of a Gaussian. Triangles are packed row by row.
type Saved struct {
	Mean     save.List[float64] `json:"mean"`
	Variance save.List[float64] `json:"variance,omitempty"` // diagonal of V, for a Diagonal
	Factor   save.List[float64] `json:"factor,omitempty"`   // lower triangle of L, for a Full
	LogDet   float64            `json:"logdet,omitempty"`   // log|V|, for a Full
	// Cov and Precision are the lower triangles of V and V⁻¹. They differ from L by rounding. Both
	// are empty if the Full had not computed them.
	Cov       save.List[float64] `json:"cov,omitempty"`
	Precision save.List[float64] `json:"precision,omitempty"`
}

// SavedOf returns the numbers of q.
func SavedOf(q Form) *Saved {
	s := &Saved{Mean: slices.Clone(q.Mean())}
	switch q := q.(type) {
	case *Diagonal:
		s.Variance = slices.Clone(q.v)
	case *Full:
		s.LogDet = q.logV
		s.Factor = dense.PackLower(q.l, q.d)
		if q.Filled() {
			s.Cov, s.Precision = dense.PackLower(q.v, q.d), dense.PackLower(q.p, q.d)
		}
	}
	return s
}

// Form returns the Gaussian in the coordinates c. All numbers must be finite. The error wraps
// sentinel.ErrShape or sentinel.ErrNotPosDef.
func (s *Saved) Form(c Coords) (Form, error) {
	d := len(s.Mean)
	if len(s.Variance) > 0 {
		if len(s.Variance) != d || len(s.Factor)+len(s.Cov)+len(s.Precision) > 0 {
			return nil, fmt.Errorf("pgsvi: mean has %d elements, but variance has %d: %w", d,
				len(s.Variance), sentinel.ErrShape)
		}
		q := NewDiagonal(make([]float64, d), make([]float64, d))
		if err := q.setParamsIn(MeanCov, slices.Concat(s.Mean, s.Variance)); err != nil {
			return nil, err
		}
		return q.In(c), nil
	}
	lengths := []int{len(s.Factor), len(s.Cov), len(s.Precision)}
	n := d * (d + 1) / 2
	if without := []int{n, 0, 0}; d == 0 || !slices.Equal(lengths, []int{n, n, n}) &&
		!slices.Equal(lengths, without) {
		return nil, fmt.Errorf("pgsvi: mean has %d elements, but factor, cov and precision have "+
			"%d: %w", d, lengths, sentinel.ErrShape)
	}
	return s.full(c)
}

// savedRounding bounds the relative difference between V and LLᵀ on the diagonal.
const savedRounding = 1e-6

// full is Form for a full covariance.
func (s *Saved) full(c Coords) (Form, error) {
	d := len(s.Mean)
	q := NewFull(d)
	q.coords = c
	copy(q.next.m, s.Mean)
	k := 0
	for i := range d {
		k += copy(q.next.l[i*d:i*d+i+1], s.Factor[k:])
	}
	if err := q.commitCholesky(); err != nil {
		return nil, err
	}
	q.logV = s.LogDet
	if len(s.Cov) == 0 {
		return q, nil
	}
	dense.Unpack(q.v, s.Cov, d, 1, 1)
	dense.Unpack(q.p, s.Precision, d, 1, 1)
	for i := range d {
		v, p, want := q.v[i*d+i], q.p[i*d+i], q.variance(i)
		if !(math.Abs(v-want) <= savedRounding*want && p > 0) {
			return nil, fmt.Errorf("pgsvi: dimension %d has variance %v, precision %v and a "+
				"factor with variance %v: %w", i, v, p, want, sentinel.ErrNotPosDef)
		}
	}
	q.filled.Store(true)
	return q, nil
}
