package pgsvi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sparse"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// A SparseGPPosterior is the approximate posterior q(w) = N(m, V) of a SparseGP, for predictions.
// It is immutable and safe for concurrent use. It keeps M inducing inputs and matrices of M²
// numbers, but no data.
//
// Its methods take new points as the rows of x, and panic if x has another number of columns than
// the training inputs. They work on blocks of rows in bounded memory and use all cores; the results
// do not depend on the blocks. A row with a NaN, an infinity or a covariance that overflows gets
// latent mean 0 and the largest prior variance of a training point.
type SparseGPPosterior struct {
	z          *sparse.Inducing
	lik        Likelihood
	mean       []float64
	q          *gauss.Gaussian // V⁻¹ and its factor
	maxPrior   float64
	rows       int
	workspaces *sync.Pool
	// posteriors of the classes of a Softmax, instead of mean and q
	classes []*SparseGPPosterior
	// mixture is the posterior over several hyperparameters, or nil. The other fields belong to the
	// best ones.
	mixture *mixedPosteriors[*SparseGPPosterior]
}

func newSparseGPPosterior(z *sparse.Inducing, lik Likelihood, mean []float64, q *gauss.Gaussian,
	maxPrior float64, rows int) *SparseGPPosterior {
	return &SparseGPPosterior{z: z, lik: lik, mean: mean, q: q, maxPrior: maxPrior, rows: rows,
		workspaces: &sync.Pool{New: func() any { return new(sparse.Work) }}}
}

// newSparseClassPosterior is newSparseGPPosterior for a Softmax. mean holds the means of the
// classes one after the other.
func newSparseClassPosterior(z *sparse.Inducing, lik Likelihood, mean []float64, q *gauss.Contrasts,
	maxPrior float64, rows int) *SparseGPPosterior {
	p := newSparseGPPosterior(z, lik, mean, nil, maxPrior, rows)
	m := z.Rank()
	for c, of := range q.Of {
		p.classes = append(p.classes, newSparseGPPosterior(z, lik, mean[c*m:(c+1)*m], of.S,
			maxPrior, rows))
	}
	return p
}

// contrasts returns the covariance of a Softmax.
func (p *SparseGPPosterior) contrasts() *gauss.Contrasts {
	q := &gauss.Contrasts{}
	for _, of := range p.classes {
		q.Of = append(q.Of, &gauss.Full{S: of.q})
	}
	return q
}

// latentClasses is latent for the scores of a Softmax, for one block of rows.
func (p *SparseGPPosterior) latentClasses(w *sparse.Work, m, v []float64, x mat.Matrix, lo int) {
	k := len(p.classes)
	n := len(m) / k
	mc, vc := latentSlices(n)
	left := make([]float64, n)
	p.unexplained(w, left, x, lo)
	var f mat.Dense
	for c, of := range p.classes {
		f.CloneFrom(w.F)
		copy(vc, left)
		sparse.Explain(mc, vc, f.RawMatrix(), of.mean, of.q.L)
		p.unknown(w, mc, vc)
		for i := range n {
			m[i*k+c], v[i*k+c] = mc[i], vc[i]
		}
	}
}

// String describes p in one line, such as "Poisson, 9000 rows, 3 columns, 100 inducing inputs".
func (p *SparseGPPosterior) String() string {
	m, _ := p.z.Inputs().Dims()
	return fmt.Sprintf("%s, %d inducing inputs", sizesText(p.lik, p.rows, p.Cols()), m)
}

// Len returns N, the number of training points.
func (p *SparseGPPosterior) Len() int { return p.rows }

// Cols returns the number of columns of x that predictions need.
func (p *SparseGPPosterior) Cols() int { return p.z.X.RawMatrix().Cols }

// At returns the prediction for each row of x. With the features x* = L⁻¹k(Z, x), the latent value
// z(x), without noise, has mean and variance
//
//	x*ᵀm,   x*ᵀVx* + k** − ‖x*‖².
//
// After Learn with LearnOptions.Integrate the prediction is the mixture of the predictions at several
// hyperparameters. Update and WithInducing continue from the best hyperparameters.
func (p *SparseGPPosterior) At(x mat.Matrix) *Prediction {
	q := predictAt(p, x)
	return &q
}

// Part returns the prediction of term i of a kernel that is a Sum, for each row of x, like
// GPPosterior.Part. With the features x_i* = L⁻¹k_i(Z, x) of the covariances of term i, where L is
// the factor for all terms, the mean and the variance are
//
//	x_i*ᵀm,   x_i*ᵀVx_i* + k_i** − ‖x_i*‖².
//
// Part panics if the kernel is not a Sum or has no term i.
func (p *SparseGPPosterior) Part(i int, x mat.Matrix) *Prediction {
	q := predictAt(p.part(i), x)
	return &q
}

// part returns the posterior of term i of the kernel.
func (p *SparseGPPosterior) part(i int) *SparseGPPosterior {
	part := *p
	part.z = termOf(p.z, i)
	part.maxPrior = floats.Max(PriorVar(nil, kernelIn(part.z.Kernel), p.z.X))
	part.mixture = p.mixture.each(func(q *SparseGPPosterior) *SparseGPPosterior { return q.part(i) })
	return &part
}

// Prob stores P(Y = y) for each row of x in dst. A nil dst allocates. Prob is short for
// At(x).Prob(dst, y). A row without a prediction gets NaN, and At(x).Err() returns the reason.
func (p *SparseGPPosterior) Prob(dst []float64, y float64, x mat.Matrix) []float64 {
	return p.At(x).Prob(dst, y)
}

// likelihood implements latents.
func (p *SparseGPPosterior) likelihood() Likelihood { return p.lik }

// components implements latents.
func (p *SparseGPPosterior) components() (prob []float64, parts []latents) { return p.mixture.all() }

// partsAt implements latents.
func (*SparseGPPosterior) partsAt(mat.Matrix, []float64, []float64) *predictionMix { return nil }

// latent implements latents.
func (p *SparseGPPosterior) latent(m, v []float64, x mat.Matrix) {
	if p.mixture != nil {
		p.mixture.latent(m, v, x)
		return
	}
	k := max(1, len(p.classes))
	parallel.For(len(m)/k, predictBlock, runtime.GOMAXPROCS(0), func(_, lo, hi int) {
		w := p.workspaces.Get().(*sparse.Work)
		defer p.workspaces.Put(w)
		if p.classes != nil {
			p.latentClasses(w, m[lo*k:hi*k], v[lo*k:hi*k], x, lo)
			return
		}
		m, v := m[lo:hi], v[lo:hi]
		p.unexplained(w, v, x, lo)
		sparse.Explain(m, v, w.F.RawMatrix(), p.mean, p.q.L)
		p.unknown(w, m, v)
	})
}

// unexplained computes the features of rows of x in w, and stores in v the prior variance that they
// do not explain.
func (p *SparseGPPosterior) unexplained(w *sparse.Work, v []float64, x mat.Matrix, lo int) {
	to := p.z.Room(w, len(v)).RawMatrix()
	copyRows(to.Data, to.Stride, x, lo, lo+len(v))
	p.z.Features(w)
	p.z.Left(w, v)
}

// unknown gives the prior moments to rows with a NaN or an infinity.
func (p *SparseGPPosterior) unknown(w *sparse.Work, m, v []float64) {
	for i, known := range w.Known {
		if sum := m[i] + v[i]; !known || math.IsNaN(sum) || math.IsInf(sum, 0) {
			m[i], v[i] = 0, p.maxPrior
		}
	}
}

// Update returns the posterior after more rows, and reads each row once (online learning). It
// does not change p. Each block B of rows moves q to
//
//	argmin_q₊ KL(q₊‖q) − Σ_{n∈B} w_n E_q₊[log p(y_n|z_n)],
//
// at the inducing inputs and hyperparameters of p (streaming variational Bayes; Broderick et al.
// 2013). Rows far from all inducing inputs do not change the latent function, so add inducing
// inputs with WithInducing first. Update returns the errors of Stream.AddAll; the posterior is then
// nil.
func (p *SparseGPPosterior) Update(ctx context.Context, rows iter.Seq2[Row,
	error]) (*SparseGPPosterior, error) {
	if err := oneLatent(p.lik, "Update of a SparseGP"); err != nil {
		return nil, err
	}
	var h parallel.Halt
	h.Watch(ctx)
	m, cols := p.z.Rank(), p.Cols()
	u := &SparseGPPosterior{z: p.z, lik: p.lik, maxPrior: p.maxPrior, rows: p.rows,
		workspaces: p.workspaces}
	q := &gauss.Gaussian{}
	q.CopyFrom(p.q)
	copy(q.Mean, p.mean)
	online := sparse.NewOnline(p.z, q, &h)
	size := max(updateRows, 2*m)
	x := mat.NewDense(size, cols, nil)
	terms := term.Terms{Lik: viewOf(p.lik)}
	seen := 0
	learn := func() error {
		n := len(terms.Y)
		if n == 0 {
			return nil
		}
		most, err := online.Learn(x.Slice(0, n, 0, cols).(*mat.Dense), &terms)
		if err != nil {
			return err
		}
		u.maxPrior = math.Max(u.maxPrior, most)
		u.rows += n
		terms = term.Terms{Lik: viewOf(p.lik), Y: terms.Y[:0], Offset: terms.Offset[:0],
			Weight: terms.Weight[:0], First: seen}
		return nil
	}
	for row, err := range rows {
		if err == nil && ctx.Err() != nil {
			err = fmt.Errorf("pgsvi: canceled after %d rows: %w", seen, context.Cause(ctx))
		}
		if err == nil {
			err = prefixed(checkRow(&row, cols, p.lik, seen))
		}
		if err != nil {
			return nil, err
		}
		denseRow(x.RawRowView(len(terms.Y)), &row)
		terms.Y, terms.Offset, terms.Weight = append(terms.Y, row.Y), append(terms.Offset,
			row.Offset), append(terms.Weight, weightOf(&row))
		if seen++; len(terms.Y) == size {
			if err := learn(); err != nil {
				return nil, prefixed(err)
			}
		}
	}
	if err := learn(); err != nil {
		return nil, prefixed(err)
	}
	if _, ok := dense.AllFinite(q.Mean); !ok {
		return nil, fmt.Errorf("pgsvi: the mean of the weights is not finite after %d rows: %w",
			seen, ErrNotFinite)
	}
	q.Halt = nil
	u.q, u.mean = q, slices.Clone(q.Mean)
	return u, nil
}

// Inducing returns a new M×D matrix of the inducing inputs, in the order of the factor.
func (p *SparseGPPosterior) Inducing() *mat.Dense { return mat.DenseCopyOf(p.z.Inputs()) }

// inducingInputs returns a copy of z, whose rows must have the given number of columns. Errors call
// it name.
func inducingInputs(name string, z mat.Matrix, cols int) (*mat.Dense, error) {
	if err := checkMatrix(name, z); err != nil {
		return nil, err
	}
	rows, d := z.Dims()
	if rows == 0 {
		return nil, fmt.Errorf("pgsvi: %s has no rows: %w", name, ErrEmpty)
	}
	if d != cols {
		return nil, fmt.Errorf("pgsvi: x has %d columns, but %s has %d: %w",
			cols, name, d, ErrShape)
	}
	zs := mat.DenseCopyOf(z)
	for i := range rows {
		if j, ok := dense.AllFinite(zs.RawRowView(i)); !ok {
			return nil, fmt.Errorf("pgsvi: row %d, column %d of %s is %v: %w", i, j, name,
				zs.At(i, j), ErrNotFinite)
		}
	}
	return zs, nil
}

// WithInducing returns the posterior at other inducing inputs, the rows of z, which are copied. It
// does not change p. To extend p to new regions, append rows to p.Inducing: predictions stay the
// same, and Update then learns near the new inputs.
//
// The information in p about the values f at its inducing inputs Z is kept as if it had been
// observed there. For the values g at z, with the prior p₀, the result is
//
//	argmax_q E_q[log p(f)/p₀(f)] − KL(q(g)‖p₀(g))
//
// (streaming sparse GPs; Bui, Nguyen and Turner 2017, at fixed hyperparameters). With K(z, z) =
// L_zL_zᵀ and V⁻¹ = P,
//
//	Ψ = L_z⁻¹K(z, Z)L⁻ᵀ,   P_z = I + Ψ(P − I)Ψᵀ,   P_zm_z = ΨPm.
//
// Nothing is lost if z contains Z. WithInducing takes on the order of M³ operations.
//
// The error wraps
//   - ErrEmpty if z has no rows;
//   - ErrShape if z and p have different numbers of columns;
//   - ErrNotFinite if a value of z is not finite;
//   - ErrParam if the likelihood is a Softmax;
//   - ErrNotPosDef if the covariance of z or P_z cannot be factorized.
func (p *SparseGPPosterior) WithInducing(z mat.Matrix) (*SparseGPPosterior, error) {
	if err := oneLatent(p.lik, "other inducing inputs of a SparseGP"); err != nil {
		return nil, err
	}
	var zs *mat.Dense
	if p.z.Open {
		var err error
		if zs, err = inducingInputs("the matrix of inducing inputs", z, p.Cols()); err != nil {
			return nil, err
		}
	}
	u := p.z.Again(p.z.Kernel).Factored(nil, zs)
	if u == nil {
		return nil, fmt.Errorf("pgsvi: the covariance of the inducing inputs cannot be "+
			"factorized; remove similar rows: %w", ErrNotPosDef)
	}
	q := p.z.Carry(u, p.mean, p.q)
	if q == nil {
		return nil, fmt.Errorf("pgsvi: the precision at the new inducing inputs cannot be "+
			"factorized: %w", ErrNotPosDef)
	}
	most := p.maxPrior
	if zs != nil {
		most = math.Max(most, floats.Max(PriorVar(nil, kernelIn(u.Kernel), zs)))
	}
	return newSparseGPPosterior(u, p.lik, slices.Clone(q.Mean), q, most, p.rows), nil
}

// updateRows is the number of rows per block of Update.
const updateRows = 1024

// sparseGPFile is the file of a SparseGPPosterior.
var sparseGPFile = save.Kind{Name: "SparseGPPosterior", Version: 1}

// savedSparseGP is a SparseGPPosterior as JSON.
type savedSparseGP struct {
	Rows int `json:"rows"`
	Rank int `json:"rank"`
	Cols int `json:"cols"`
	// number of inducing values whose kernel terms are represented exactly
	Whole      int                `json:"whole,omitempty"`
	Kernel     save.Value         `json:"kernel"`
	Likelihood save.Value         `json:"likelihood"`
	MaxPrior   float64            `json:"maxPrior"`
	Z          save.List[float64] `json:"z"`         // row by row
	L          save.List[float64] `json:"l"`         // lower triangle, row by row
	Mean       save.List[float64] `json:"mean"`      // means of the weights, class by class
	Precision  save.List[float64] `json:"precision"` // lower triangle, row by row, class by class
	// low-order digits of Precision, if it has twice the digits
	PrecisionLow save.List[float64] `json:"precisionLow,omitempty"`
	// Prob and Parts hold a mixture over hyperparameters.
	Prob  save.List[float64]        `json:"probabilities,omitempty"`
	Parts save.List[*savedSparseGP] `json:"parts,omitempty"`
}

// Save writes p to w. Load restores a posterior with exactly the same predictions. The file
// consists of a line that names its type, JSON, and a checksum. Save returns the errors of
// GPPosterior.Save.
func (p *SparseGPPosterior) Save(w io.Writer) error {
	s, err := p.saved()
	if err != nil {
		return err
	}
	return saveTo(w, sparseGPFile, s)
}

// saved returns p in the form that is saved.
func (p *SparseGPPosterior) saved() (*savedSparseGP, error) {
	m := p.z.Rank()
	s := &savedSparseGP{Rows: p.rows, Rank: m, Cols: p.Cols(), Whole: p.z.Wholes(),
		MaxPrior: p.maxPrior,
		Z:        p.z.X.RawMatrix().Data, L: dense.PackLower(p.z.L, m), Mean: p.mean}
	if p.classes != nil {
		s.Precision = p.contrasts().Pack()
	} else {
		s.Precision, s.PrecisionLow = dense.PackLower(p.q.P, m), p.q.PackLow()
	}
	var err error
	if s.Kernel, err = saveValue(kernelIn(p.z.Kernel)); err != nil {
		return nil, err
	}
	if s.Likelihood, err = saveValue(p.lik); err != nil {
		return nil, err
	}
	s.Prob, s.Parts, err = savedParts(p.mixture, (*SparseGPPosterior).saved)
	return s, err
}

// loadMixture returns the mixture of p, whose file is s.
func (s *savedSparseGP) loadMixture(p *SparseGPPosterior) error {
	if s.Parts == nil && s.Prob == nil {
		return nil
	}
	if len(s.Prob) != len(s.Parts) {
		return fmt.Errorf("%d probabilities for %d parts: %w", len(s.Prob), len(s.Parts), ErrShape)
	}
	if err := checkProbs(s.Prob); err != nil {
		return err
	}
	p.mixture = &mixedPosteriors[*SparseGPPosterior]{prob: s.Prob}
	for k, part := range s.Parts {
		if part == nil || part.Parts != nil || part.Cols != s.Cols {
			return fmt.Errorf("part %d does not fit the posterior: %w", k, ErrShape)
		}
		of, err := part.load()
		if err == nil && typeName(of.lik) != typeName(p.lik) {
			err = fmt.Errorf("its likelihood is %s and not %s: %w", typeName(of.lik),
				typeName(p.lik), ErrShape)
		}
		if err != nil {
			return fmt.Errorf("part %d: %w", k, err)
		}
		p.mixture.parts = append(p.mixture.parts, of)
	}
	return nil
}

// load reads a posterior from a file. It factorizes the covariance again, in about M³/3 operations.
func (*SparseGPPosterior) load(r io.Reader) (*SparseGPPosterior, error) {
	return loadFrom(r, sparseGPFile, (*savedSparseGP).load)
}

func (s *savedSparseGP) load() (*SparseGPPosterior, error) {
	lik, err := loadValue(s.Likelihood, checkLikelihood)
	if err != nil {
		return nil, err
	}
	k := latentsOf(lik)
	m, lower := len(s.Mean)/k, 0
	if m > 0 {
		lower = len(s.Precision) / k
	}
	if s.Rows < 1 || s.Rows > save.Most || m < 1 || s.Rank != m || len(s.Mean)%k != 0 ||
		len(s.Z)%m != 0 ||
		len(s.Z)/m != s.Cols || s.Cols < 1 || len(s.L) != m*(m+1)/2 || lower != m*(m+1)/2 ||
		len(s.Precision)%k != 0 {
		return nil, fmt.Errorf("rank %d, %d columns and %d rows do not fit %d inputs, %d and %d "+
			"elements of factor and precision and %d means: %w", s.Rank, s.Cols, s.Rows, len(s.Z),
			len(s.L), len(s.Precision), m, ErrShape)
	}
	kernel, err := loadValue(s.Kernel, func(k Kernel) error { return checkKernel(k, s.Cols) })
	if err != nil {
		return nil, err
	}
	v := sparse.Undivided(kernelOf(kernel))
	if s.Whole != 0 {
		v = divided(kernel, s.Cols)
	}
	if n := v.Wholes(); n != s.Whole || n > m || v.Open != (n < m) {
		return nil, fmt.Errorf("%d of %d weights belong to exact terms of the kernel, but these "+
			"have %d: %w", s.Whole, m, n, ErrShape)
	}
	z := &sparse.Inducing{Division: v, X: mat.NewDense(m, s.Cols, s.Z), L: dense.UnpackLower(s.L,
		m)}
	for j := range m {
		if !(z.L[j*m+j] > 0) {
			return nil, fmt.Errorf("diagonal element %d of the factor is %v: %w", j, z.L[j*m+j],
				ErrNotPosDef)
		}
	}
	if !(s.MaxPrior >= 0) {
		return nil, fmt.Errorf("the largest prior variance is %v: %w", s.MaxPrior, ErrParam)
	}
	if k > 1 {
		q, err := gauss.LoadContrasts(s.Precision, k, m)
		if err != nil {
			return nil, err
		}
		return newSparseClassPosterior(z, lik, s.Mean, q, s.MaxPrior, s.Rows), nil
	}
	q, err := gauss.LoadPrecision(s.Precision, s.PrecisionLow, m, "precision")
	if err != nil {
		return nil, err
	}
	p := newSparseGPPosterior(z, lik, s.Mean, q, s.MaxPrior, s.Rows)
	return p, s.loadMixture(p)
}

// savedPrior returns u and lik in the format of a posterior without data.
func savedPrior(u *sparse.Inducing, lik Likelihood, maxPrior float64) ([]byte, error) {
	m := u.Rank()
	var b bytes.Buffer
	err := newSparseGPPosterior(u, lik, make([]float64, m), gauss.Unit(m), maxPrior, 1).Save(&b)
	return b.Bytes(), err
}
