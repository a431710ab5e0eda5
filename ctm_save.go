package pgsvi

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	"github.com/pgsvi/pgsvi/internal/dense"
)

// savedCTM is a CTMPosterior as JSON. Numbers round-trip to the last bit.
type savedCTM struct {
	Format      string         `json:"format"`
	Topics      int            `json:"topics"`
	Terms       int            `json:"terms"`
	Vocab       []string       `json:"vocab,omitempty"`
	Expectation CTMExpectation `json:"expectation"`
	Diagonal    bool           `json:"diagonal"`
	Samples     int            `json:"samples"`
	Beta        []float64      `json:"beta"` // term by term
	Mu          []float64      `json:"mu"`
	Sigma       []float64      `json:"sigma"` // row by row
	Seen        []bool         `json:"seen"`
	Docs        [][]float64    `json:"docs"` // m, and V⁻¹ row by row up to the diagonal, or its diagonal
}

const savedCTMFormat = "pgsvi CTM posterior 1"

// Save writes p as JSON, from which LoadCTM makes the same posterior. The error is that of w, or wraps
// ErrParam if a word of the vocabulary is not UTF-8, which JSON is.
func (p *CTMPosterior) Save(w io.Writer) error {
	for v, word := range p.vocab {
		if !utf8.ValidString(word) {
			return fmt.Errorf("pgsvi: %w: word %d of the vocabulary, %q, is not UTF-8", ErrParam, v, word)
		}
	}
	return json.NewEncoder(w).Encode(savedCTM{Format: savedCTMFormat, Topics: p.k, Terms: p.terms, Vocab: p.vocab,
		Expectation: p.opt.Expectation, Diagonal: p.opt.Diagonal, Samples: p.opt.Samples,
		Beta: p.beta, Mu: p.prior.mu, Sigma: p.prior.cov, Seen: p.seen, Docs: p.docs})
}

// LoadCTM reads what CTMPosterior.Save has written. The error wraps ErrParam if it is
// not such a file or an option or a probability is out of range, ErrShape if its lengths disagree,
// ErrNotFinite or ErrNotPosDef if its numbers make no posterior.
func LoadCTM(r io.Reader) (*CTMPosterior, error) {
	var s savedCTM
	if err := json.NewDecoder(r).Decode(&s); err != nil {
		return nil, fmt.Errorf("pgsvi: %w: not a saved topic model: %w", ErrParam, err)
	}
	if s.Format != savedCTMFormat {
		return nil, fmt.Errorf("pgsvi: %w: not a saved topic model: format %q, want %q", ErrParam, s.Format, savedCTMFormat)
	}
	k := s.Topics
	if k < 1 || s.Terms < 1 || len(s.Mu) != k || len(s.Sigma)%k != 0 || len(s.Sigma)/k != k ||
		len(s.Beta)%k != 0 || len(s.Beta)/k != s.Terms || len(s.Seen) != s.Terms || s.Vocab != nil && len(s.Vocab) != s.Terms {
		return nil, fmt.Errorf("pgsvi: %w: saved topic model of %d topics and %d terms has %d, %d, %d, %d and %d elements in beta, mu, sigma, seen and vocab", ErrShape, k, s.Terms, len(s.Beta), len(s.Mu), len(s.Sigma), len(s.Seen), len(s.Vocab))
	}
	opt := &CTMOptions{Expectation: s.Expectation, Diagonal: s.Diagonal, Samples: s.Samples}
	m, err := newCTM(s.Terms, k, opt)
	if err != nil {
		return nil, err
	}
	p := &CTMPosterior{k: k, terms: s.Terms, vocab: s.Vocab, opt: m.opt, beta: s.Beta, seen: s.Seen, docs: s.Docs}
	for name, x := range map[string][]float64{"beta": s.Beta, "mu": s.Mu, "sigma": s.Sigma} {
		if i, ok := dense.AllFinite(x); !ok { // JSON has no NaN, but 1e999
			return nil, fmt.Errorf("pgsvi: %w: saved %s %d is %v", ErrNotFinite, name, i, x[i])
		}
	}
	sum := make([]float64, k)
	for i, b := range s.Beta {
		if !(b > 0 && b <= 1) {
			return nil, fmt.Errorf("pgsvi: %w: saved probability of term %d in topic %d is %v", ErrParam, i/k, i%k, b)
		}
		sum[i%k] += b
	}
	for j, total := range sum {
		if math.Abs(total-1) > 1e-6 {
			return nil, fmt.Errorf("pgsvi: %w: the saved probabilities of topic %d add up to %v", ErrParam, j, total)
		}
	}
	for i := range k {
		for j := range i {
			if s.Sigma[i*k+j] != s.Sigma[j*k+i] {
				return nil, fmt.Errorf("pgsvi: saved sigma is not symmetric at (%d, %d): %w", i, j, ErrNotPosDef)
			}
		}
	}
	if !p.prior.set(s.Mu, s.Sigma, new([]float64)) {
		return nil, fmt.Errorf("pgsvi: saved sigma: %w", ErrNotPosDef)
	}
	w := newCTMWork(k, p.inferOptions(0))
	for n, d := range s.Docs {
		if d == nil {
			continue
		}
		if len(d) != ctmState(k, w.diag) {
			return nil, fmt.Errorf("pgsvi: %w: saved document %d has %d numbers, want %d", ErrShape, n, len(d), ctmState(k, w.diag))
		}
		if i, ok := dense.AllFinite(d); !ok {
			return nil, fmt.Errorf("pgsvi: %w: saved document %d has %v", ErrNotFinite, n, d[i])
		}
		if !w.load(d) {
			return nil, fmt.Errorf("pgsvi: saved document %d: %w", n, ErrNotPosDef)
		}
	}
	if math.IsInf(p.prior.logDet, 0) {
		return nil, fmt.Errorf("pgsvi: saved sigma: %w", ErrNotPosDef)
	}
	return p, nil
}
