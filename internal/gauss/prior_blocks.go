package gauss

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file holds the prior of the effects of grouping factors, which is block diagonal. The
// methods of Prior call it for the weights of blocks.

// priorBlock is a Block with the precision of the effects of a level.
type priorBlock struct {
	Block
	prec     []float64 // Σ⁺, Q×Q: the pseudo-inverse, because Σ may be singular
	logDet   float64   // log of the product of the eigenvalues of Σ⁺ that are not 0
	singular bool
}

// SetBlock makes the weights of b the effects of levels. Their elements of Prec become the inverse
// variances, which are +Inf for a variance of 0.
func (p *Prior) SetBlock(b Block) {
	q := b.Q
	b.L = slices.Clone(b.L)
	cov := b.Covariance()
	x := priorBlock{Block: b, prec: make([]float64, q*q)}
	sd := make([]float64, q)
	for i := range sd {
		if sd[i] = math.Sqrt(cov[i*q+i]); sd[i] == 0 {
			x.singular = true
			sd[i] = 1
		}
	}
	corr := mat.NewSymDense(q, nil) // in units of the sds, so that they do not affect the rank
	for i := range q {
		for j := range i + 1 {
			corr.SetSym(i, j, cov[i*q+j]/(sd[i]*sd[j]))
		}
	}
	var e mat.EigenSym
	var v mat.Dense
	if e.Factorize(corr, true) {
		e.VectorsTo(&v)
	}
	for k, value := range e.Values(nil) {
		if !(value > singular) {
			x.singular = true
			continue
		}
		x.logDet -= math.Log(value)
		for i := range q {
			for j := range q {
				x.prec[i*q+j] += v.At(i, k) * v.At(j, k) / (value * sd[i] * sd[j])
			}
		}
	}
	for i, s := range sd {
		if cov[i*q+i] > 0 {
			x.logDet -= 2 * math.Log(s)
		}
	}
	for j := range b.Levels * q {
		p.Prec[b.First+j] = 1 / cov[j%q*(q+1)]
	}
	for i := range p.blocks {
		if p.blocks[i].First == b.First {
			p.blocks[i] = x
			return
		}
	}
	p.blocks = append(p.blocks, x)
}

// Blocks returns the blocks of p, whose L the caller must not change.
func (p *Prior) Blocks() []Block {
	var all []Block
	for _, b := range p.blocks {
		all = append(all, b.Block)
	}
	return all
}

// WithBlocks returns a copy of p that SetBlock can change.
func (p *Prior) WithBlocks() Prior {
	c := *p
	c.Prec, c.blocks = slices.Clone(p.Prec), slices.Clone(p.blocks)
	return c
}

// Grouped reports whether weight j is an effect of a grouping factor.
func (p *Prior) Grouped(j int) bool { return p.blockOf(j) != nil }

// blockOf returns the block of weight j, or nil.
func (p *Prior) blockOf(j int) *priorBlock {
	for i := range p.blocks {
		if b := &p.blocks[i]; b.First <= j && j < b.End() {
			return b
		}
	}
	return nil
}

// mul stores Λ0x of the weights of b in dst.
func (b *priorBlock) mul(dst, x []float64) {
	for at := b.First; at < b.End(); at += b.Q {
		for i := range b.Q {
			dst[at+i] = floats.Dot(b.prec[i*b.Q:(i+1)*b.Q], x[at:at+b.Q])
		}
	}
}

// spread replaces draws of N(0, I) in z by draws of the prior.
func (b *priorBlock) spread(z []float64) {
	for at := b.First; at < b.End(); at += b.Q {
		for i := b.Q - 1; i >= 0; i-- {
			z[at+i] = floats.Dot(b.L[i*b.Q:i*b.Q+i+1], z[at:at+i+1])
		}
	}
}

// addBlocks sets the blocks of the lower triangle of the precision a, D×D. The error wraps
// sentinel.ErrNotPosDef if a block has no precision.
func (p *Prior) addBlocks(a []float64) error {
	d := len(p.Mean)
	for k := range p.blocks {
		b := &p.blocks[k]
		if b.singular {
			return singularPrior(b)
		}
		for at := b.First; at < b.End(); at += b.Q {
			for i := range b.Q {
				copy(a[(at+i)*d+at:], b.prec[i*b.Q:i*b.Q+i+1])
			}
		}
	}
	return nil
}

// AddClasses adds the precisions of the weights of K classes to the lower triangle of a, KD×KD. The
// error wraps sentinel.ErrNotPosDef if a block has no precision.
func (p *Prior) AddClasses(a []float64, k int) error {
	d := len(p.Mean)
	for i, l := range p.Classes(k) {
		if !p.Grouped(i % d) {
			a[i*k*d+i] += l
		}
	}
	for i := range p.blocks {
		b := &p.blocks[i]
		if b.singular {
			return singularPrior(b)
		}
		for c := range k {
			for at := c*d + b.First; at < c*d+b.End(); at += b.Q {
				for j := range b.Q {
					floats.Add(a[(at+j)*k*d+at:(at+j)*k*d+at+j+1], b.prec[j*b.Q:j*b.Q+j+1])
				}
			}
		}
	}
	return nil
}

// singularPrior returns the error for a block without a precision.
func singularPrior(b *priorBlock) error {
	return fmt.Errorf("pgsvi: the effects of the levels at weight %d have a singular covariance (a "+
		"standard deviation of 0 or a correlation of ±1), so their prior has no density: %w", b.First,
		sentinel.ErrNotPosDef)
}

// SavedBlocks is the saved form of blocks: lists with one element per block, and the L of all blocks
// one after the other.
type SavedBlocks struct {
	First  save.List[int]     `json:"first"`
	Levels save.List[int]     `json:"levels"`
	Q      save.List[int]     `json:"effects"`
	L      save.List[float64] `json:"factors"`
}

// saveBlocks returns the saved blocks of p. It replaces their elements of diag, which may be
// infinite, by 1.
func (p *Prior) saveBlocks(diag []float64) *SavedBlocks {
	s := &SavedBlocks{}
	for _, b := range p.blocks {
		s.First, s.Levels, s.Q = append(s.First, b.First), append(s.Levels, b.Levels), append(s.Q, b.Q)
		s.L = append(s.L, b.L...)
		for j := b.First; j < b.End(); j++ {
			diag[j] = 1
		}
	}
	return s
}

// loadBlocks sets the blocks that saveBlocks saved.
func (p *Prior) loadBlocks(s *SavedBlocks) error {
	n := len(s.First)
	if len(s.Levels) != n || len(s.Q) != n {
		return fmt.Errorf("%d groups with %d numbers of levels and %d of effects: %w", n,
			len(s.Levels), len(s.Q), sentinel.ErrShape)
	}
	rest := []float64(s.L)
	for i, q := range s.Q {
		b := Block{First: s.First[i], Levels: s.Levels[i], Q: q}
		free := b.First >= 0 && b.First <= len(p.Mean) && q >= 1 && q <= MostEffects &&
			len(rest) >= q*q && b.Levels >= 1 && b.Levels <= (len(p.Mean)-b.First)/q
		for j := b.First; free && j < b.End(); j++ {
			free = !p.Grouped(j)
		}
		if free {
			_, free = dense.AllFinite(rest[:q*q])
		}
		if !free {
			return fmt.Errorf("group %d of %d levels with %d effects at weight %d of %d: %w", i,
				b.Levels, q, b.First, len(p.Mean), sentinel.ErrShape)
		}
		b.L, rest = slices.Clone(rest[:q*q]), rest[q*q:]
		for k := range q {
			clear(b.L[k*q+k+1 : (k+1)*q])
		}
		p.SetBlock(b)
	}
	if len(rest) > 0 {
		return fmt.Errorf("the factors of groups have %d more numbers: %w", len(rest),
			sentinel.ErrShape)
	}
	return nil
}

// mulBlocks is Mul for a prior with blocks.
func (p *Prior) mulBlocks(dst, z []float64, k int) {
	d := len(p.Mean)
	x, y := make([]float64, d), make([]float64, d)
	for c := range k {
		for j := range d {
			x[j] = z[j*k+c]
			y[j] = p.Prec[j] * x[j]
		}
		for i := range p.blocks {
			p.blocks[i].mul(y, x)
		}
		for j, v := range y {
			dst[j*k+c] = v
		}
	}
}

// sameBlock reports whether a and b have the same bits.
func sameBlock(a, b priorBlock) bool {
	return a.First == b.First && a.Levels == b.Levels && slices.Equal(a.L, b.L)
}
