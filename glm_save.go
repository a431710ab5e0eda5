package pgsvi

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
)

// savedGLM is a GLMPosterior as JSON: its weights with the prior that they
// had. Numbers round-trip to the last bit.
type savedGLM struct {
	Format     string     `json:"format"`
	Likelihood save.Value `json:"likelihood"`
	Names      []string   `json:"names"` // of the weights
	Intercept  bool       `json:"intercept"`
	Rows       int        `json:"rows"`
	Mean       []float64  `json:"mean"`
	Cov        savedCov   `json:"covariance"`
	Prior      savedPrior `json:"prior"`
}

// savedPrior is a weightPrior.
type savedPrior struct {
	Mean []float64 `json:"mean"`
	Diag []float64 `json:"diagonal,omitempty"`  // of Λ0, or
	Full []float64 `json:"precision,omitempty"` // its lower triangle, row by row
}

// savedCov is one of the forms of a weightCov.
type savedCov struct {
	Full     []float64     `json:"precision,omitempty"` // V⁻¹, lower triangle, row by row
	Diagonal []float64     `json:"variances,omitempty"` // a diagonal V
	Dual     *savedDual    `json:"dual,omitempty"`
	LowRank  *savedLowRank `json:"lowrank,omitempty"`
}

// savedLowRank is a lowRankCov.
type savedLowRank struct {
	Rank int       `json:"rank"`
	D    []float64 `json:"d"`
	U    []float64 `json:"u"` // row by row
}

// savedDual is a dualCov: the rows of the data and their sites.
type savedDual struct {
	Dense []float64 `json:"dense,omitempty"` // X row by row, or
	Ptr   []int     `json:"ptr,omitempty"`   // its sparse rows
	Ind   []int32   `json:"ind,omitempty"`
	Val   []float64 `json:"val,omitempty"`
	Gamma []float64 `json:"gamma"`
}

const savedGLMFormat = "pgsvi GLM posterior 1"

// Save writes p as JSON, from which LoadGLMPosterior makes a posterior with the
// same predictions, to the last bit, which can be updated as p can. A full
// covariance takes D²/2 numbers; that of more weights than rows, if there are more
// than 2000 weights, takes the data as well. The error is that of w, or wraps
// ErrParam if the likelihood is of a type that Register was not told of.
func (p *GLMPosterior) Save(w io.Writer) error {
	s := savedGLM{Format: savedGLMFormat, Names: p.names, Intercept: p.opt.Intercept, Rows: p.rows, Mean: p.mean}
	s.Prior = savedPrior{Mean: p.prior.mean, Diag: p.prior.prec}
	if p.prior.full != nil {
		s.Prior.Full = dense.PackLower(p.prior.full.p, p.Dim())
	}
	switch c := p.cov.(type) {
	case *fullCov:
		s.Cov.Full = dense.PackLower(c.s.p, p.Dim())
	case diagCov:
		s.Cov.Diagonal = c
	case *dualCov:
		d := &savedDual{Dense: c.x.dense, Gamma: c.gamma}
		if x := c.x.sparse; x != nil {
			end := x.ptr[c.x.rows]
			d.Ptr, d.Ind, d.Val = x.ptr[:c.x.rows+1], x.ind[:end], x.val[:end]
		}
		s.Cov.Dual = d
	case *lowRankCov:
		s.Cov.LowRank = &savedLowRank{c.rank, c.d, c.u}
	default:
		return fmt.Errorf("pgsvi: %w: a posterior with a %T cannot be saved", ErrParam, c)
	}
	var err error
	if s.Likelihood, err = saveValue(p.lik); err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(s)
}

// LoadGLMPosterior reads what GLMPosterior.Save has written and factorises its
// covariance anew, in about D³/3 operations for a full one. The error wraps ErrParam
// if it is not such a file, ErrShape if its lengths disagree, ErrNotFinite or
// ErrNotPosDef if its numbers make no posterior. A failure of r is wrapped as it is.
func LoadGLMPosterior(r io.Reader) (*GLMPosterior, error) {
	var s savedGLM
	if err := json.NewDecoder(r).Decode(&s); err != nil {
		return nil, fmt.Errorf("pgsvi: %w: not a saved posterior: %w", ErrParam, err)
	}
	if s.Format != savedGLMFormat {
		return nil, fmt.Errorf("pgsvi: %w: not a saved posterior: format %q, want %q", ErrParam, s.Format, savedGLMFormat)
	}
	d := len(s.Names)
	if d == 0 || len(s.Mean) != d || len(s.Prior.Mean) != d || s.Rows < 0 {
		return nil, fmt.Errorf("pgsvi: %w: saved posterior of %d weights and %d rows has means of %d and prior means of %d", ErrShape, d, s.Rows, len(s.Mean), len(s.Prior.Mean))
	}
	lik, err := loadValue(s.Likelihood)
	if err != nil {
		return nil, err
	}
	p := &GLMPosterior{names: s.Names, mean: s.Mean, rows: s.Rows, opt: GLMOptions{Intercept: s.Intercept}}
	var isLik bool
	if p.lik, isLik = lik.(Likelihood); !isLik {
		return nil, fmt.Errorf("pgsvi: %w: saved posterior has a %s for a likelihood", ErrParam, s.Likelihood.Type)
	}
	if err := checkLikelihood(p.lik); err != nil {
		return nil, err
	}
	for _, v := range [][]float64{s.Mean, s.Prior.Mean} { // JSON has no NaN, but 1e999
		if j, ok := dense.AllFinite(v); !ok {
			return nil, fmt.Errorf("pgsvi: %w: saved mean of weight %d (%s) is %v", ErrNotFinite, j, s.Names[j], v[j])
		}
	}
	if p.prior, err = s.Prior.load(); err != nil {
		return nil, err
	}
	if p.cov, err = s.Cov.load(p.prior); err != nil {
		return nil, err
	}
	p.opt.Covariance = covarianceOf(p.cov)
	return p, nil
}

func (s *savedPrior) load() (*weightPrior, error) {
	p := &weightPrior{mean: s.Mean}
	if s.Full != nil {
		w, err := loadPrecision(s.Full, len(s.Mean), "prior precision")
		p.full = w
		return p, err
	}
	p.prec = s.Diag
	return p, checkDiagonal(s.Diag, len(s.Mean), "prior precision")
}

func (s *savedCov) load(prior *weightPrior) (weightCov, error) {
	d := len(prior.mean)
	switch {
	case s.Full != nil:
		w, err := loadPrecision(s.Full, d, "precision")
		return &fullCov{s: w}, err
	case s.Dual != nil:
		return s.Dual.load(prior)
	case s.LowRank != nil:
		return s.LowRank.load(d)
	case s.Diagonal != nil:
		return diagCov(s.Diagonal), checkDiagonal(s.Diagonal, d, "variance")
	}
	return nil, fmt.Errorf("pgsvi: %w: saved posterior without a covariance", ErrParam)
}

func (s *savedDual) load(prior *weightPrior) (weightCov, error) {
	x := &design{rows: len(s.Gamma), cols: len(prior.mean), dense: s.Dense}
	shape := len(s.Dense)%x.cols != 0 || len(s.Dense)/x.cols != x.rows
	if s.Ptr != nil {
		x.sparse, x.dense = &Sparse{x.cols, s.Ptr, s.Ind, s.Val}, nil
		shape = !x.sparse.valid(x.rows)
	}
	if shape || x.rows == 0 {
		return nil, fmt.Errorf("pgsvi: %w: the data of a saved posterior are not %d rows of %d columns", ErrShape, x.rows, x.cols)
	}
	for name, v := range map[string][]float64{"value": s.Dense, "sparse value": s.Val, "gamma": s.Gamma} {
		if i, ok := dense.AllFinite(v); !ok {
			return nil, fmt.Errorf("pgsvi: %w: saved %s %d is %v", ErrNotFinite, name, i, v[i])
		}
	}
	l := &linear{x: x, prior: *prior, names: make([]string, x.cols)}
	c := &dualCov{x: x, gamma: s.Gamma, prior: prior, fac: new(dense.Sites)}
	if !c.fac.Factor(l.gram(), x.rows, s.Gamma) {
		return nil, fmt.Errorf("pgsvi: saved posterior covariance: %w", ErrNotPosDef)
	}
	c.fac.C = nil // K is not needed any more
	return c, nil
}

func (s *savedLowRank) load(d int) (weightCov, error) {
	if err := checkDiagonal(s.D, d, "unique precision"); err != nil {
		return nil, err
	}
	if s.Rank < 1 || s.Rank > d || len(s.U) != d*s.Rank {
		return nil, fmt.Errorf("pgsvi: %w: saved precision of %d weights and rank %d has %d factors", ErrShape, d, s.Rank, len(s.U))
	}
	if k, ok := dense.AllFinite(s.U); !ok {
		return nil, fmt.Errorf("pgsvi: %w: saved factor %d of the precision is %v", ErrNotFinite, k, s.U[k])
	}
	c := newLowRankCov(d, s.Rank)
	copy(c.d, s.D)
	copy(c.u, s.U)
	v := make([]float64, d)
	ok := c.factor()
	if c.diag(v); ok {
		_, ok = dense.AllFinite(v)
	}
	for _, x := range v {
		ok = ok && x >= 0
	}
	if !ok {
		return nil, fmt.Errorf("pgsvi: saved precision of low rank: %w", ErrNotPosDef)
	}
	return c, nil
}

// valid reports whether s is a matrix of so many rows.
func (s *Sparse) valid(rows int) bool {
	n := len(s.ind)
	if len(s.ptr) != rows+1 || len(s.val) != n || s.ptr[0] != 0 || s.ptr[rows] != n || !slices.IsSorted(s.ptr) {
		return false
	}
	for i := range rows {
		ind, _ := s.Row(i)
		for k, j := range ind {
			if j < 0 || int(j) >= s.cols || k > 0 && j <= ind[k-1] {
				return false
			}
		}
	}
	return true
}

// loadPrecision returns the Gaussian about 0 whose precision packLower has packed.
func loadPrecision(l []float64, d int, name string) (*weightState, error) {
	if len(l) != d*(d+1)/2 {
		return nil, fmt.Errorf("pgsvi: %w: saved %s of %d weights has %d numbers, want %d", ErrShape, name, d, len(l), d*(d+1)/2)
	}
	if k, ok := dense.AllFinite(l); !ok {
		return nil, fmt.Errorf("pgsvi: %w: number %d of the saved %s is %v", ErrNotFinite, k, name, l[k])
	}
	w := &weightState{}
	w.resize(d)
	w.p = dense.UnpackLower(l, d)
	if !w.factor() {
		return nil, fmt.Errorf("pgsvi: saved %s: %w", name, ErrNotPosDef)
	}
	return w, nil
}

// checkDiagonal returns an error unless v is the diagonal of a positive definite
// matrix of dimension d and that of its inverse is finite.
func checkDiagonal(v []float64, d int, name string) error {
	if len(v) != d {
		return fmt.Errorf("pgsvi: %w: saved %s of %d weights has %d numbers", ErrShape, name, d, len(v))
	}
	for j, x := range v {
		switch {
		case math.IsNaN(x) || math.IsInf(x, 0):
			return fmt.Errorf("pgsvi: %w: saved %s of weight %d is %v", ErrNotFinite, name, j, x)
		case !(x > 0):
			return fmt.Errorf("pgsvi: saved %s of weight %d is %v: %w", name, j, x, ErrNotPosDef)
		}
	}
	return nil
}
