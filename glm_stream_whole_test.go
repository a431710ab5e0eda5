package pgsvi

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// wholeCase is a GLM of n rows, with offsets, weights and a prior mean, dense or sparse.
type wholeCase struct {
	c      glmCase
	sparse bool
}

// model returns the GLM of rows lo … hi−1.
func (w *wholeCase) model(t *testing.T, lo, hi int) *GLM {
	t.Helper()
	_, cols := w.c.x.Dims()
	opt := *w.c.opt
	opt.Offset, opt.Weights = opt.Offset[lo:hi], opt.Weights[lo:hi]
	var x mat.Matrix = NewSparse(cols)
	if lo < hi {
		x = w.c.x.Slice(lo, hi, 0, cols)
		if w.sparse {
			x = SparseOf(x)
		}
	}
	g, err := NewGLM(x, w.c.y[lo:hi], w.c.lik, &opt)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// rows returns rows lo … hi−1.
func (w *wholeCase) rows(lo, hi int) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		var x mat.Matrix = w.c.x
		if w.sparse {
			x = SparseOf(x)
		}
		i := 0
		for r, err := range Rows(x, w.c.y) {
			r.Offset, r.Weight = w.c.opt.Offset[i], w.c.opt.Weights[i]
			if i >= lo && i < hi && !yield(r, err) {
				return
			}
			i++
		}
	}
}

// newWholeCase returns a case of n rows, the late ones of which tell other than the early ones.
func newWholeCase(t *testing.T, n int, lik Likelihood, sparse bool) *wholeCase {
	t.Helper()
	prior, err := NewMeanField([]float64{0.5, -1, 2, 0.1}, []float64{4, 4, 4, 9})
	if err != nil {
		t.Fatal(err)
	}
	c := toyGLM("", n, 3, lik, 301, &GLMOptions{Intercept: true, Prior: prior})
	rng := testRand(302)
	c.opt.Offset, c.opt.Weights = make([]float64, n), make([]float64, n)
	for i := range n {
		c.opt.Offset[i], c.opt.Weights[i] = 0.3*rng.NormFloat64(), 0.5+rng.Float64()
		if i > n/2 && lik == (BernoulliLogit{}) {
			c.y[i] = 1
		}
	}
	return &wholeCase{c, sparse}
}

// TestUpdateWhole: of few rows the posteriors of Update and Remove are those of fits of the rows,
// to the last bit, also if they were saved and loaded. They were up to some 1e4 standard deviations
// off.
func TestUpdateWhole(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, lik := range []Likelihood{GaussianNoise{}, BernoulliLogit{}, Poisson{}} {
		for _, sparse := range []bool{false, true} {
			name := fmt.Sprintf("%T, sparse %t", lik, sparse)
			w := newWholeCase(t, 40, lik, sparse)
			early, _ := fitGLM(t, w.model(t, 0, 10), nil)
			late, _ := fitGLM(t, w.model(t, 10, 40), nil)
			all, _ := fitGLM(t, w.model(t, 0, 40), nil)
			none, _ := fitGLM(t, w.model(t, 0, 0), nil)
			same := func(what string, got, want *GLMPosterior, err error) {
				t.Helper()
				if err != nil {
					t.Errorf("%s, %s: %v", name, what, err)
					return
				}
				if !slices.Equal(got.Mean(nil), want.Mean(nil)) || !slices.Equal(got.SD(nil), want.SD(nil)) {
					m, s := apart(got, want)
					t.Errorf("%s, %s: %v and %v apart from a fit", name, what, m, s)
				}
				if got.Len() != want.Len() {
					t.Errorf("%s, %s: %d rows, want %d", name, what, got.Len(), want.Len())
				}
			}
			for _, way := range []func(*GLMPosterior) *GLMPosterior{(*GLMPosterior).with, func(p *GLMPosterior) *GLMPosterior {
				var file bytes.Buffer
				if err := p.WithRows().Save(&file); err != nil {
					t.Fatal(err)
				}
				q, err := Load[*GLMPosterior](&file)
				if err != nil {
					t.Fatal(err)
				}
				return q
			}} {
				p, err := way(early).Update(ctx, w.rows(10, 40))
				same("added", p, all, err)
				if p, err = way(none).Update(ctx, w.rows(0, 40)); err == nil {
					same("added to the prior", p, all, err)
				}
				p, err = way(all).Remove(ctx, w.rows(0, 10))
				same("removed", p, late, err)
				if p, err = p.Remove(ctx, w.rows(10, 40)); err == nil {
					same("all removed", p, none, err)
				}
				if p, err = way(early).Update(ctx, w.rows(10, 40)); err == nil {
					p, err = p.Remove(ctx, w.rows(0, 10))
				}
				same("moved on", p, late, err)
			}
			// A stream, saved and loaded meanwhile.
			s := newStream(t, 3, lik, &GLMOptions{Intercept: true, Prior: w.c.opt.Prior})
			if err := s.AddAll(ctx, w.rows(0, 25)); err != nil {
				t.Fatal(err)
			}
			if err := s.RemoveAll(ctx, w.rows(0, 10)); err != nil {
				t.Fatal(err)
			}
			var file bytes.Buffer
			if err := s.Save(&file); err != nil {
				t.Fatal(err)
			}
			s, err := Load[*GLMStream](&file)
			if err == nil {
				err = s.AddAll(ctx, w.rows(25, 40))
			}
			if err != nil {
				t.Fatal(err)
			}
			same("stream", streamPosterior(t, s), late, nil)
		}
	}
}

// TestSaveWithoutRows: a file has the data of WithRows alone, which loading and updating keep.
func TestSaveWithoutRows(t *testing.T) {
	t.Parallel()
	w := newWholeCase(t, 40, Poisson{}, false)
	p, _ := fitGLM(t, w.model(t, 0, 30), nil)
	saved := func(p *GLMPosterior) *GLMPosterior {
		t.Helper()
		var file bytes.Buffer
		if err := p.Save(&file); err != nil {
			t.Fatal(err)
		}
		q, err := Load[*GLMPosterior](&file)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	for _, with := range []bool{false, true} {
		p := p
		if with {
			p = saved(p.WithRows())
		}
		more, err := p.Update(t.Context(), w.rows(30, 40))
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range []*GLMPosterior{p, more} {
			if got := saved(q).data != nil; got != with {
				t.Errorf("%d rows in the file: %v, want %v", q.Len(), got, with)
			}
		}
	}
}

// Rows that the posterior has not seen, or more than it has.
func TestRemoveUnknown(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := newWholeCase(t, 40, BernoulliLogit{}, false)
	all, _ := fitGLM(t, w.model(t, 0, 40), nil)
	if _, err := all.Remove(ctx, twice(w.rows(0, 40))); !errors.Is(err, ErrNotPosDef) {
		t.Errorf("%v, want %v", err, ErrNotPosDef)
	}
	// The same rows twice as far from the origin as they were: no fit knows them, and what they
	// would have contributed is taken out.
	other := *w
	other.c.x = mat.DenseCopyOf(w.c.x)
	other.c.x.Scale(1.0001, other.c.x)
	got, err := all.Remove(ctx, other.rows(0, 5))
	if err != nil {
		t.Fatal(err)
	}
	want, _ := fitGLM(t, w.model(t, 5, 40), nil)
	checkApart(t, "other rows", got, want, 0.5)
	if got.Len() != 35 {
		t.Errorf("%d rows, want 35", got.Len())
	}
	plain, err := all.withoutRows().Remove(ctx, other.rows(0, 5))
	if err != nil {
		t.Fatal(err)
	}
	checkApart(t, "other rows, without rows", got, plain, 1e-6)
}

// twice returns a sequence two times.
func twice(rows iter.Seq2[Row, error]) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for range 2 {
			for r, err := range rows {
				if !yield(r, err) {
					return
				}
			}
		}
	}
}

// TestUpdateBeyond: a posterior with its rows that gets more than it may have goes on in blocks,
// the rows kept with their sites.
func TestUpdateBeyond(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := newWholeCase(t, mostKept+1000, Poisson{}, false)
	early, _ := fitGLM(t, w.model(t, 0, 300), nil)
	all, _ := fitGLM(t, w.model(t, 0, mostKept+1000), nil)
	diagonal := w.model(t, 0, 300)
	diagonal.opt.Covariance = DiagonalCovariance
	narrow, _ := fitGLM(t, diagonal, nil)
	for _, c := range []struct {
		p   *GLMPosterior
		tol float64
	}{{early, 0.05}, {narrow, 1}} {
		got, err := c.p.Update(ctx, w.rows(300, mostKept+1000))
		if err != nil {
			t.Fatal(err)
		}
		checkApart(t, fmt.Sprintf("beyond, from a %v covariance", c.p.opt.Covariance), got, all, c.tol)
		if got.data != nil || got.Len() != mostKept+1000 {
			t.Errorf("%d rows, of which it has %v", got.Len(), got.data)
		}
	}
	few, err := narrow.Update(ctx, w.rows(300, 310))
	if err != nil {
		t.Fatal(err)
	}
	if c := covarianceOf(few.cov); c != DiagonalCovariance {
		t.Errorf("a %v covariance, from a diagonal one", c)
	}
}
