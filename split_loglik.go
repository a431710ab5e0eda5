package pgsvi

import (
	"fmt"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
)

// LogLikelihood is a sum of N log-likelihood terms over z ∈ R^Dim: a LogLik,
// a Sites, or a user type.
type LogLikelihood interface {
	// Len returns N.
	Len() int
	// Batch returns Σ_n log p(y_n|z) over the terms in batch, scaled by
	// N/len(batch); a nil batch means all terms. It may keep batch.
	Batch(batch []int) Integrand
	// Validate is called at set-up.
	Validate() error
}

// Integrand is the function of z whose expectation an Estimator takes. It may
// also be a SiteIntegrand.
type Integrand interface {
	// Dim returns the dimension of z.
	Dim() int
	// LogProb returns the value at z, in nats; it must not keep or change z. It
	// is called concurrently where there are several workers.
	LogProb(z []float64) float64
	// GradLogProb stores the gradient at z in dst. It returns false, having
	// stored nothing, if the gradient is not known.
	GradLogProb(dst, z []float64) bool
}

// SiteIntegrand is an Integrand of the form Σ_i w_i log p(y_i|x_iᵀz).
type SiteIntegrand interface {
	Integrand
	// Len returns the number of sites.
	Len() int
	// Site returns the term of the data that site i is, which errors name, x_i, which must not be changed, y_i and w_i.
	Site(i int) (term int, x []float64, y, weight float64)
	// Likelihood returns p.
	Likelihood() Likelihood
}

// LogLik is a log-likelihood of N terms over z ∈ R^Dim, written by the user.
// LogProb alone is enough; with it Expect needs an estimator that samples.
type LogLik struct {
	// N is the number of terms and Dim the dimension of z.
	N, Dim int
	// LogProb returns log p(y_n|z) in nats. It must not keep or change z, and
	// is called concurrently where Solver.Workers is above 1.
	LogProb func(n int, z []float64) float64
	// Grad, where not nil, adds ∇_z log p(y_n|z) to dst. Pathwise needs it.
	Grad func(dst []float64, n int, z []float64)
}

// Len implements LogLikelihood.
func (l LogLik) Len() int { return l.N }

// Batch implements LogLikelihood.
func (l LogLik) Batch(batch []int) Integrand {
	return &logLikBatch{LogLik: l, batchTerms: newBatch(batch, l.N)}
}

// Validate returns an error wrapping ErrParam if LogProb is nil, or ErrEmpty if
// N or Dim is not positive.
func (l LogLik) Validate() error {
	switch {
	case l.LogProb == nil:
		return fmt.Errorf("pgsvi: LogLik.LogProb is nil: %w", ErrParam)
	case l.N < 1 || l.Dim < 1:
		return fmt.Errorf("pgsvi: LogLik has N = %d and Dim = %d: %w", l.N, l.Dim, ErrEmpty)
	}
	return nil
}

// batchTerms is a mini-batch of n terms; a nil batch means all.
type batchTerms struct {
	batch []int
	n     int
	scale float64 // N/len(batch)
}

func newBatch(batch []int, n int) batchTerms {
	if batch == nil {
		return batchTerms{nil, n, 1}
	}
	return batchTerms{batch, len(batch), float64(n) / float64(len(batch))}
}

func (t batchTerms) index(i int) int {
	if t.batch == nil {
		return i
	}
	return t.batch[i]
}

type logLikBatch struct {
	LogLik
	batchTerms
}

func (b *logLikBatch) Dim() int { return b.LogLik.Dim }

func (b *logLikBatch) LogProb(z []float64) float64 {
	var s float64
	for i := range b.n {
		s += b.LogLik.LogProb(b.index(i), z)
	}
	return b.scale * s
}

func (b *logLikBatch) GradLogProb(dst, z []float64) bool {
	if b.Grad == nil {
		return false
	}
	clear(dst)
	for i := range b.n {
		b.Grad(dst, b.index(i), z)
	}
	floats.Scale(b.scale, dst)
	return true
}

// Sites is a log-likelihood of terms that see z through one number each,
// log p(y_n|η_n) with η_n = x_nᵀz, as in a generalised linear model.
// Expectations under a Gaussian q are then one-dimensional, and Exact applies.
// The data are not copied and must not change.
type Sites struct {
	X   [][]float64 // x_n, one row a term
	Y   []float64   // y_n
	Lik Likelihood
}

// Len implements LogLikelihood.
func (s Sites) Len() int { return len(s.Y) }

// Batch implements LogLikelihood.
func (s Sites) Batch(batch []int) Integrand {
	return &siteBatch{Sites: s, batchTerms: newBatch(batch, len(s.Y))}
}

// Validate returns an error wrapping ErrEmpty, ErrShape, ErrParam, ErrLabel or
// ErrNotFinite, with the index of the datum.
func (s Sites) Validate() error {
	if len(s.Y) == 0 || len(s.X) == 0 || len(s.X[0]) == 0 {
		return fmt.Errorf("pgsvi: Sites needs at least one row and one column: %w", ErrEmpty)
	}
	if len(s.X) != len(s.Y) {
		return fmt.Errorf("pgsvi: %d rows, %d labels: %w", len(s.X), len(s.Y), ErrShape)
	}
	for n, x := range s.X {
		if len(x) != len(s.X[0]) {
			return fmt.Errorf("pgsvi: row %d has %d columns, row 0 has %d: %w", n, len(x), len(s.X[0]), ErrShape)
		}
		if j, ok := dense.AllFinite(x); !ok {
			return fmt.Errorf("pgsvi: row %d, column %d is %v: %w", n, j, x[j], ErrNotFinite)
		}
	}
	return checkLabels(s.Lik, s.Y)
}

type siteBatch struct {
	Sites
	batchTerms
}

func (b *siteBatch) Dim() int { return len(b.X[0]) }

func (b *siteBatch) Len() int { return b.n }

func (b *siteBatch) Likelihood() Likelihood { return b.Lik }

func (b *siteBatch) Site(i int) (term int, x []float64, y, weight float64) {
	n := b.index(i)
	return n, b.X[n], b.Y[n], b.scale
}

func (b *siteBatch) LogProb(z []float64) float64 {
	var s float64
	for i := range b.n {
		n := b.index(i)
		s += b.Lik.LogProb(b.Y[n], floats.Dot(b.X[n], z))
	}
	return b.scale * s
}

// GradLogProb implements Integrand where the likelihood is Differentiable.
func (b *siteBatch) GradLogProb(dst, z []float64) bool {
	lik, ok := b.Lik.(Differentiable)
	if !ok {
		return false
	}
	clear(dst)
	for i := range b.n {
		n := b.index(i)
		d1, _ := lik.Derivs(b.Y[n], floats.Dot(b.X[n], z))
		floats.AddScaled(dst, b.scale*d1, b.X[n])
	}
	return true
}
