package gauss

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// This file holds the prior of the weights of a linear model, diagonal or full, and its saved form.

// Prior is N(μ0, Λ0⁻¹).
type Prior struct {
	Mean []float64
	Prec []float64 // Λ0 if it is diagonal, else nil
	// Each holds the diagonals Λ0 of K classes, one after the other, if they differ. Prec is then
	// Λ0 of the first class.
	Each []float64
	Full *Gaussian // Λ0 if it is not diagonal

	blocks []priorBlock // effects of grouping factors; see SetBlock
}

// UnitPrior returns N(0, I) of d weights.
func UnitPrior(d int) Prior {
	p := Prior{Mean: make([]float64, d), Prec: make([]float64, d)}
	for j := range p.Prec {
		p.Prec[j] = 1
	}
	return p
}

// State returns the prior as a new dense Gaussian about μ0.
func (p *Prior) State() (*Gaussian, error) { return p.StateUntil(nil) }

// StateUntil is State with the error of h if h has stopped.
func (p *Prior) StateUntil(h *parallel.Halt) (*Gaussian, error) {
	s := &Gaussian{Halt: h}
	defer func() { s.Halt = nil }()
	if p.Full != nil {
		s.CopyFrom(p.Full)
		return s, nil
	}
	d := len(p.Prec)
	s.Resize(d)
	for j, l := range p.Prec {
		s.P[j*d+j] = l
	}
	if err := p.addBlocks(s.P); err != nil {
		return nil, err
	}
	ok := false
	if p.blocks == nil {
		ok = s.factorDiagonal()
	} else {
		ok = s.Factor()
	}
	if err := h.Err(); err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("pgsvi: precision of the prior: %w", sentinel.ErrNotPosDef)
	}
	return s, nil
}

// DiagTo stores the diagonal of Λ0 in dst.
func (p *Prior) DiagTo(dst []float64) {
	copy(dst, p.Prec)
	for i := range p.blocks {
		b := &p.blocks[i]
		for j := b.First; j < b.End(); j++ {
			dst[j] = p.At(j)
		}
	}
	if p.Full != nil {
		for j := range dst {
			dst[j] = p.Full.P[j*len(dst)+j]
		}
	}
}

// At returns element j of the diagonal of Λ0.
func (p *Prior) At(j int) float64 {
	if p.Full != nil {
		return p.Full.P[j*len(p.Mean)+j]
	}
	if b := p.blockOf(j); b != nil {
		return b.prec[(j-b.First)%b.Q*(b.Q+1)]
	}
	return p.Prec[j]
}

// Mul stores Λ0z in dst. Both are D×k.
func (p *Prior) Mul(dst, z []float64, k int) {
	d := len(p.Mean)
	switch {
	case p.blocks != nil:
		p.mulBlocks(dst, z, k)
	case p.Full == nil:
		for j, l := range p.Prec {
			floats.ScaleTo(dst[j*k:(j+1)*k], l, z[j*k:(j+1)*k])
		}
	case k == 1:
		dense.Symv(1, dense.Symmetric(p.Full.P, d), dense.Vector(z), 0, dense.Vector(dst))
	default:
		clear(dst[:d*k])
		for i := range d {
			di, zi := dst[i*k:(i+1)*k], z[i*k:(i+1)*k]
			for j, l := range p.Full.P[i*d : i*d+i] {
				floats.AddScaled(di, l, z[j*k:(j+1)*k])
				floats.AddScaled(dst[j*k:(j+1)*k], l, zi)
			}
			floats.AddScaled(di, p.Full.P[i*d+i], zi)
		}
	}
}

// LogDet returns log|Λ0|.
func (p *Prior) LogDet() (s float64) {
	if p.Full != nil {
		return p.Full.LogDet
	}
	for j, l := range p.Prec {
		if p.blockOf(j) == nil {
			s += math.Log(l)
		}
	}
	for _, b := range p.blocks {
		s += float64(b.Levels) * b.logDet
	}
	return s
}

// Solve stores Λ0⁻¹x in dst.
func (p *Prior) Solve(dst, x []float64) {
	copy(dst, x)
	if p.Full != nil {
		dense.Potrs(p.Full.L, dst)
		return
	}
	for j, l := range p.Prec {
		dst[j] /= l
	}
	for i := range p.blocks {
		p.blocks[i].Solve(dst, x)
	}
}

// Residual stores Xᵀu − Λ0w in r, computed with twice the digits. Buf is scratch.
func (p *Prior) Residual(r dense.Double, w []float64, x *design.Matrix, u dense.Double,
	buf *design.Work) {
	if p.Full != nil {
		p.Full.Residual(r, &Gaussian{Mean: w}, x, u.Hi, buf)
	} else {
		r.Clear()
		x.AddMulTDouble(r, u.Hi, nil, buf)
		for j, l := range p.Prec {
			if b := p.blockOf(j); b != nil {
				i := (j - b.First) % b.Q
				for k, l := range b.prec[i*b.Q : (i+1)*b.Q] {
					r.AddAt(j, -l, w[j-i+k])
				}
				continue
			}
			r.AddAt(j, -l, w[j])
		}
	}
	x.AddMulT(r.Lo, u.Lo, nil)
	r.Round()
}

// Variances stores x_nᵀΛ0⁻¹x_n for all rows of x in dst.
func (p *Prior) Variances(dst []float64, x *design.Matrix) {
	if p.Full != nil {
		p.Full.Variances(dst, x, nil, &design.Work{})
		return
	}
	if p.blocks != nil {
		row, z := make([]float64, x.Cols), make([]float64, x.Cols)
		for i := range dst {
			x.Dense1(row, i)
			p.Solve(z, row)
			dst[i] = floats.Dot(row, z)
		}
		return
	}
	v := make([]float64, len(p.Prec))
	for j, l := range p.Prec {
		v[j] = 1 / l
	}
	x.QuadDiag(dst, v, nil)
}

// draw returns a draw of N(0, Λ0⁻¹).
func (p *Prior) draw(rng *rand.Rand) []float64 {
	z := make([]float64, len(p.Mean))
	for j := range z {
		z[j] = rng.NormFloat64()
		if p.Full == nil && p.blockOf(j) == nil {
			z[j] /= math.Sqrt(p.Prec[j])
		}
	}
	for i := range p.blocks {
		p.blocks[i].spread(z)
	}
	if p.Full != nil {
		dense.Trsv(blas.Trans, dense.LowerTriangle(p.Full.L, len(z)), dense.Vector(z))
	}
	return z
}

// SavedPrior is the saved form of a Prior.
type SavedPrior struct {
	Mean save.List[float64] `json:"mean"`
	Diag save.List[float64] `json:"diagonal,omitempty"`  // diagonal of Λ0, or
	Each save.List[float64] `json:"classes,omitempty"`   // diagonals of all classes, or
	Full save.List[float64] `json:"precision,omitempty"` // lower triangle of Λ0, row by row

	Groups *SavedBlocks `json:"groups,omitempty"`
}

// Classes returns the precisions of the weights of K classes, one class after the other.
func (p *Prior) Classes(k int) []float64 {
	if p.Each != nil {
		return p.Each
	}
	return slices.Repeat(p.Prec, k)
}

// Save returns the saved form of p.
func (p *Prior) Save() SavedPrior {
	s := SavedPrior{Mean: p.Mean, Diag: p.Prec, Each: p.Each}
	if p.Full != nil {
		s.Full = dense.PackLower(p.Full.P, len(p.Mean))
	}
	if p.blocks != nil {
		s.Diag = slices.Clone(p.Prec)
		s.Groups = p.saveBlocks(s.Diag)
	}
	return s
}

// Load returns the prior that Save saved.
func (s *SavedPrior) Load() (*Prior, error) {
	p := &Prior{Mean: s.Mean}
	if s.Full != nil {
		w, err := LoadPrecision(s.Full, nil, len(s.Mean), "prior precision")
		p.Full = w
		return p, err
	}
	p.Prec, p.Each = s.Diag, s.Each
	if s.Each != nil {
		if err := CheckDiagonal(s.Each, len(s.Each), "prior precision of a class"); err != nil {
			return nil, err
		}
	}
	if err := CheckDiagonal(s.Diag, len(s.Mean), "prior precision"); err != nil {
		return nil, err
	}
	if s.Groups == nil {
		return p, nil
	}
	p.Prec = slices.Clone(s.Diag)
	return p, p.loadBlocks(s.Groups)
}

// LoadPrecision returns the Gaussian about 0 with the precision that dense.PackLower packed, and
// the low part that PackLow packed. The name appears in errors.
func LoadPrecision(l, low []float64, d int, name string) (*Gaussian, error) {
	if len(l) != d*(d+1)/2 || low != nil && len(low) != len(l) {
		return nil, fmt.Errorf("%s of %d weights with %d numbers and %d more digits, want %d: %w",
			name, d, len(l), len(low), d*(d+1)/2, sentinel.ErrShape)
	}
	w := &Gaussian{}
	w.Resize(d)
	w.P = dense.UnpackLower(l, d)
	if low != nil {
		w.Widen()
		w.pLow = dense.UnpackLower(low, d)
	}
	if !w.Factor() {
		return nil, fmt.Errorf("%s: %w", name, sentinel.ErrNotPosDef)
	}
	return w, nil
}

// CheckDiagonal returns an error unless v is the diagonal of a positive definite
// matrix of dimension d.
func CheckDiagonal(v []float64, d int, name string) error {
	if len(v) != d {
		return fmt.Errorf("%s of %d weights with %d numbers: %w", name, d, len(v),
			sentinel.ErrShape)
	}
	for j, x := range v {
		if !(x > 0) {
			return fmt.Errorf("%s of weight %d is %v: %w", name, j, x, sentinel.ErrNotPosDef)
		}
	}
	return nil
}

// Equal reports whether p and o have the same bits.
func (p *Prior) Equal(o *Prior) bool {
	if p.Full == nil || o.Full == nil {
		return p.Full == o.Full && slices.EqualFunc(p.blocks, o.blocks, sameBlock) && slices.Equal(p.Mean, o.Mean) && slices.Equal(p.Prec, o.Prec)
	}
	d := len(p.Mean)
	return slices.Equal(p.Mean, o.Mean) && slices.Equal(dense.PackLower(p.Full.P, d),
		dense.PackLower(o.Full.P, d))
}
