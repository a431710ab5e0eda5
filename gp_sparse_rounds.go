package pgsvi

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/rounds"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/sparse"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/mat"
)

// NewSparseGPRounds returns the rounds that fit a sparse GP to rows on many machines. The rows of
// inducing are its inducing inputs, which are copied. The model is the GLM of NewGLMRounds in the M
// features x_n = L⁻¹k(Z, x_n), with residual variances c_n; see SparseGP. The GapBound covers all q
// of the weights, at these inducing inputs and hyperparameters.
//
// Learn hyperparameters and choose inducing inputs with NewSparseGPRows from a part of the rows.
// opt.Rank is the largest number of inducing inputs. If inducing has more rows, each inducing input
// is the row that the earlier inducing inputs determine least. opt.Inducing must be nil. A nil lik
// means GaussianNoise{}, and a nil opt means the zero SparseGPOptions. NewSparseGPRounds returns
// the errors of NewSparseGP.
func NewSparseGPRounds(inducing mat.Matrix, k Kernel, lik Likelihood,
	opt *SparseGPOptions) (*Rounds[Row, *SparseGPPosterior], error) {
	var o SparseGPOptions
	if opt != nil {
		o = *opt
	}
	if lik == nil {
		lik = GaussianNoise{}
	}
	if err := checkMatrix("the inducing inputs", inducing); err != nil {
		return nil, err
	}
	rows, cols := inducing.Dims()
	switch {
	case o.Inducing != nil:
		return nil, fmt.Errorf(
			"pgsvi: SparseGPOptions.Inducing is set, but NewSparseGPRounds has "+
				"an argument for the inducing inputs; leave it nil: %w", ErrParam)
	case k == nil:
		return nil, fmt.Errorf("pgsvi: the Kernel is nil; a SparseGP needs one: %w", ErrParam)
	case cols < 1:
		return nil, fmt.Errorf("pgsvi: inducing inputs with %d columns; a SparseGP needs at "+
			"least one column: %w", cols, ErrEmpty)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := checkKernel(k, cols); err != nil {
		return nil, err
	}
	if err := checkLikelihood(lik); err != nil {
		return nil, err
	}
	if err := oneLatent(lik, "a sparse GP that does not keep its features"); err != nil {
		return nil, err
	}
	z, err := inducingInputs("the inducing inputs", inducing, cols)
	if err != nil {
		return nil, err
	}
	rank := rows
	if o.Rank > 0 {
		rank = min(rank, o.Rank)
	}
	workers := float64(runtime.GOMAXPROCS(0))
	need := memory.Bytes(roundMatrices+roundLane*workers, rank, rank) + memory.Bytes(2*workers,
		rounds.Chunk(rank), rank) + memory.Bytes(3, sampleSize(max(rank, cols)), max(rank, cols))
	if err := checkMemory(o.MaxMemory, need,
		fmt.Sprintf("a SparseGP of up to %d inducing inputs", rank),
		"use a smaller SparseGPOptions.Rank, or raise SparseGPOptions.MaxMemory"); err != nil {
		return nil, err
	}
	v := divided(k, cols) // represents a kernel of few features exactly
	if v.Open || v.Wholes() == 0 {
		v = sparse.Undivided(kernelOf(k))
	}
	u, err := v.AmongAll(z, rank)
	if err != nil {
		return nil, prefixed(err)
	}
	return &Rounds[Row, *SparseGPPosterior]{newSparseRounds(sparseFeatures{u}, lik)}, nil
}

// sparseModel is the name of the model in the parts of a sparse GP.
const sparseModel = "SparseGP"

// sparseFeatures computes the features of rows from inducing values.
type sparseFeatures struct{ *sparse.Inducing }

var _ rowFeatures = sparseFeatures{}

func (sparseFeatures) model() string { return sparseModel }

func (z sparseFeatures) columns() int { return z.X.RawMatrix().Cols }

func (z sparseFeatures) rank() int { return z.Rank() }

func (z sparseFeatures) digest(d *save.Digest) { z.Digest(d) }

func (z sparseFeatures) bytes(lik Likelihood, widest float64) ([]byte, error) {
	return savedPrior(z.Inducing, lik, widest)
}

func (z sparseFeatures) features(h *parallel.Halt, x *design.Matrix, t *term.Terms) (
	lin *site.LinearModel, widest float64, err error) {
	rows := mat.NewDense(x.Rows, z.columns(), x.Dense)
	f := z.At(h, rows)
	if err := h.Err(); err != nil {
		return nil, 0, err
	}
	lin, _, widest, err = z.Linear(rows, t, f)
	if err != nil {
		return nil, 0, fmt.Errorf("rows from %d on: %w", t.First, err)
	}
	return lin, widest, nil
}

func (sparseFeatures) load(b []byte) (rowFeatures, Likelihood, float64, error) {
	p, err := Load[*SparseGPPosterior](bytes.NewReader(b))
	if err != nil {
		return nil, nil, 0, err
	}
	return sparseFeatures{p.z}, p.lik, p.maxPrior, nil
}

// sparseRounds is the engine of a Rounds of a sparse GP.
type sparseRounds struct{ linearRounds }

// newSparseRounds returns the engine before the first round.
func newSparseRounds(z sparseFeatures, lik Likelihood) *sparseRounds {
	m := z.Rank()
	lin := &site.LinearModel{Terms: &term.Terms{Lik: viewOf(lik)}, Prior: gauss.UnitPrior(m),
		Names: make([]string, m)}
	return &sparseRounds{linearRounds{lin: lin, rowAdder: rowAdder{cols: z.columns(), lik: lik,
		form: term.AsDense, z: z}}}
}

// step implements roundsEngine.
func (r *sparseRounds) step(p *rounds.Part) (Iteration, error) {
	return r.linearRounds.step(p, r.begin, r.start)
}

// posterior implements roundsEngine.
func (r *sparseRounds) posterior() (*SparseGPPosterior, error) {
	q, err := r.found()
	if err != nil {
		return nil, err
	}
	return newSparseGPPosterior(r.z.(sparseFeatures).Inducing, r.lik, slices.Clone(q.Mean), q,
		r.widest, r.Items), nil
}

// state implements roundsEngine.
func (r *sparseRounds) state(c *save.Coder) {
	var file []byte
	if !c.Reading() {
		var err error
		if file, err = r.z.bytes(r.lik, r.widest); err != nil {
			c.Fail(err)
			return
		}
	}
	if c.Bytes(&file); c.Reading() {
		z, lik, widest, err := sparseFeatures{}.load(file)
		if err != nil {
			c.Fail(err)
			return
		}
		*r = *newSparseRounds(z.(sparseFeatures), lik)
		r.widest = widest
	}
	r.progress(c)
}

// newRounds implements roundsPosterior.
func (*SparseGPPosterior) newRounds() roundsEngine[Row,
	*SparseGPPosterior] {
	return &sparseRounds{}
}

// newAdder implements addedItem.
func (Row) newAdder(model string) shardAdder[Row] {
	switch model {
	case glmModel:
		return &rowAdder{}
	case sparseModel:
		return &rowAdder{z: sparseFeatures{}}
	}
	return nil
}
