package pgsvi

import (
	"encoding/json"
	"fmt"
	"io"
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/pgsvi/pgsvi/internal/dense"
)

// savedGP is a GPPosterior as JSON: the inputs, what they were modelled with,
// and q in site form. Numbers round-trip to the last bit.
type savedGP struct {
	Format     string     `json:"format"`
	Rows       int        `json:"rows"`
	Cols       int        `json:"cols"`
	Kernel     savedValue `json:"kernel"`
	Likelihood savedValue `json:"likelihood"`
	Jitter     float64    `json:"jitter"`
	X          []float64  `json:"x"` // row by row
	Gamma      []float64  `json:"gamma"`
	A          []float64  `json:"a"` // K⁻¹m
	M          []float64  `json:"m"`
	V          []float64  `json:"v"`
}

const savedGPFormat = "pgsvi GP posterior 1"

// Save writes p as JSON, from which LoadGPPosterior makes a posterior with the
// same predictions. The error is that of w, or wraps ErrParam if the kernel or
// the likelihood is of a type that RegisterType was not told of.
func (p *GPPosterior) Save(w io.Writer) error {
	rows, cols := p.x.Dims()
	s := savedGP{Format: savedGPFormat, Rows: rows, Cols: cols, Jitter: p.jitter,
		X: p.x.RawMatrix().Data, Gamma: p.gamma, A: p.a, M: p.m, V: p.v}
	var err error
	if s.Kernel, err = saveValue(p.kernel); err != nil {
		return err
	}
	if s.Likelihood, err = saveValue(p.lik); err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(s)
}

// LoadGPPosterior reads what Save has written and factorises its covariance
// anew, in about N³/3 operations. The error wraps ErrParam if it is not such a
// file, ErrShape if its lengths disagree, ErrNotFinite or ErrNotPosDef if its
// numbers make no posterior.
func LoadGPPosterior(r io.Reader) (*GPPosterior, error) {
	var s savedGP
	if err := json.NewDecoder(r).Decode(&s); err != nil {
		return nil, fmt.Errorf("pgsvi: %w: not a saved posterior: %w", ErrParam, err)
	}
	if s.Format != savedGPFormat {
		return nil, fmt.Errorf("pgsvi: %w: not a saved posterior: format %q, want %q", ErrParam, s.Format, savedGPFormat)
	}
	n := s.Rows
	if n < 1 || s.Cols < 1 || len(s.X)%n != 0 || len(s.X)/n != s.Cols ||
		len(s.Gamma) != n || len(s.A) != n || len(s.M) != n || len(s.V) != n {
		return nil, fmt.Errorf("pgsvi: %w: saved posterior of %d rows and %d columns has %d inputs and %d, %d, %d, %d site parameters and marginals", ErrShape, n, s.Cols, len(s.X), len(s.Gamma), len(s.A), len(s.M), len(s.V))
	}
	kernel, err := loadValue(s.Kernel)
	if err != nil {
		return nil, err
	}
	lik, err := loadValue(s.Likelihood)
	if err != nil {
		return nil, err
	}
	g := &GP{Jitter: s.Jitter, x: mat.NewDense(n, s.Cols, s.X), y: make([]float64, n)}
	var isKernel, isLik bool
	g.kernel, isKernel = kernel.(Kernel)
	g.lik, isLik = lik.(Likelihood)
	if !isKernel || !isLik {
		return nil, fmt.Errorf("pgsvi: %w: saved posterior has a %s for a kernel and a %s for a likelihood", ErrParam, s.Kernel.Type, s.Likelihood.Type)
	}
	if err := ValidateKernel(g.kernel, s.Cols); err != nil {
		return nil, err
	}
	if v, ok := g.lik.(Validator); ok {
		if err := v.Validate(); err != nil {
			return nil, err
		}
	}
	for name, x := range map[string][]float64{"input": s.X, "gamma": s.Gamma, "a": s.A, "mean": s.M, "variance": s.V} {
		if i, ok := dense.AllFinite(x); !ok { // JSON has no NaN, but 1e999
			return nil, fmt.Errorf("pgsvi: %w: saved %s %d is %v", ErrNotFinite, name, i, x[i])
		}
	}
	for i, v := range s.V {
		if !(v >= 0) || math.IsInf(s.Gamma[i], 0) {
			return nil, fmt.Errorf("pgsvi: %w: saved variance %d is %v", ErrParam, i, v)
		}
	}
	k, err := g.gram()
	if err != nil {
		return nil, err
	}
	return newGPPosterior(g, k, &siteState{gamma: s.Gamma, a: s.A, m: s.M, v: s.V})
}
