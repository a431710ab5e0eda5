package estimate

import (
	"context"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/floats"
)

// Batch is a mini-batch of N terms.
type Batch struct {
	terms []int // nil for all terms
	N     int
	Scale float64 // number of all terms divided by N
	ctx   context.Context
}

// NewBatch returns a mini-batch of n terms, or all of them if terms is nil.
func NewBatch(terms []int, n int) Batch {
	if terms == nil {
		return Batch{N: n, Scale: 1}
	}
	return Batch{terms: terms, N: len(terms), Scale: float64(n) / float64(len(terms))}
}

// Index returns the index, among all terms, of term i of the batch.
func (b *Batch) Index(i int) int {
	if b.terms == nil {
		return i
	}
	return b.terms[i]
}

// Watcher is an Integrand whose values become NaN, and whose gradients become undefined, when its
// context is done.
type Watcher interface{ WatchContext(ctx context.Context) }

// WatchContext implements Watcher.
func (b *Batch) WatchContext(ctx context.Context) { b.ctx = ctx }

// stopped reports whether the context of the batch is done. It checks the context before every
// few terms only; i is the next term.
func (b *Batch) stopped(i int) bool { return i%every == 0 && b.ctx != nil && b.ctx.Err() != nil }

// TermBatch is the Integrand of a batch of terms that are functions of z.
type TermBatch struct {
	Batch
	D    int // dimension of z
	Log  func(n int, z []float64) float64
	Grad func(dst []float64, n int, z []float64) // adds to dst; nil if unknown
}

// SiteBatch is the Integrand of a batch of terms log p(y_n|x_nᵀz).
type SiteBatch struct {
	Batch
	X   [][]float64
	Y   []float64
	Lik Likelihood
}

var (
	_ Integrand = &TermBatch{}
	_ Explainer = &TermBatch{}
	_ Watcher   = &TermBatch{}
	_ Integrand = &SiteBatch{}
	_ Explainer = &SiteBatch{}
	_ Watcher   = &SiteBatch{}
	_ Rows      = &SiteBatch{}
)

// describe names a term of the batch.
func (b *TermBatch) describe(i int) string { return fmt.Sprintf("term %d", b.Index(i)) }

// ExplainTerm implements Explainer.
func (b *TermBatch) ExplainTerm(z []float64, grad bool) string {
	g := make([]float64, len(z))
	for i := range b.N {
		if grad {
			clear(g)
			b.Grad(g, b.Index(i), z)
			if j, ok := dense.AllFinite(g); !ok {
				return fmt.Sprintf("%s has %v as element %d of its gradient at z = %s",
					b.describe(i), g[j],
					j, Abridged(z))
			}
		} else if l := b.Log(b.Index(i), z); math.IsNaN(l) || math.IsInf(l, 0) {
			return fmt.Sprintf("%s has log-likelihood %v at z = %s", b.describe(i), l, Abridged(z))
		}
	}
	return ""
}

func (b *TermBatch) Dim() int { return b.D }

func (b *TermBatch) LogProb(z []float64) float64 {
	var s float64
	var i int
	defer parallel.At(&i, b.describe)
	for i = range b.N {
		if b.stopped(i) {
			return math.NaN()
		}
		s += b.Log(b.Index(i), z)
	}
	return b.Scale * s
}

func (b *TermBatch) GradLogProb(dst, z []float64) bool {
	if b.Grad == nil {
		return false
	}
	clear(dst)
	var i int
	defer parallel.At(&i, b.describe)
	for i = range b.N {
		if b.stopped(i) {
			break
		}
		b.Grad(dst, b.Index(i), z)
	}
	floats.Scale(b.Scale, dst)
	return true
}

// describe names a term of the batch.
func (b *SiteBatch) describe(i int) string {
	n := b.Index(i)
	return fmt.Sprintf("term %d, with label %v", n, b.Y[n])
}

// ExplainTerm implements Explainer.
func (b *SiteBatch) ExplainTerm(z []float64, grad bool) string {
	for i := range b.N {
		n := b.Index(i)
		eta := floats.Dot(b.X[n], z)
		if grad {
			d1, d2 := b.Lik.(Differentiable).Derivs(b.Y[n], eta)
			if sum := d1 + d2; math.IsNaN(sum) || math.IsInf(sum, 0) {
				return fmt.Sprintf("%s, has derivatives %v, %v at η = %.6g (z = %s)", b.describe(i),
					d1, d2,
					eta, Abridged(z))
			}
		} else if l := b.Lik.LogProb(b.Y[n], eta); math.IsNaN(l) || math.IsInf(l, 0) {
			return fmt.Sprintf("%s, has log-likelihood %v at η = %.6g (z = %s)", b.describe(i), l,
				eta,
				Abridged(z))
		}
	}
	return ""
}

func (b *SiteBatch) Dim() int { return len(b.X[0]) }

func (b *SiteBatch) Len() int { return b.N }

func (b *SiteBatch) Site(i int) (term int, x []float64, y, weight float64) {
	n := b.Index(i)
	return n, b.X[n], b.Y[n], b.Scale
}

func (b *SiteBatch) LogProb(z []float64) float64 {
	var s float64
	var i int
	defer parallel.At(&i, b.describe)
	for i = range b.N {
		if b.stopped(i) {
			return math.NaN()
		}
		n := b.Index(i)
		s += b.Lik.LogProb(b.Y[n], floats.Dot(b.X[n], z))
	}
	return b.Scale * s
}

// GradLogProb implements Integrand. It reports false unless the likelihood is Differentiable.
func (b *SiteBatch) GradLogProb(dst, z []float64) bool {
	lik, ok := b.Lik.(Differentiable)
	if !ok {
		return false
	}
	clear(dst)
	var i int
	defer parallel.At(&i, b.describe)
	for i = range b.N {
		if b.stopped(i) {
			break
		}
		n := b.Index(i)
		d1, _ := lik.Derivs(b.Y[n], floats.Dot(b.X[n], z))
		floats.AddScaled(dst, b.Scale*d1, b.X[n])
	}
	return true
}
