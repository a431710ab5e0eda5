package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// TestLoadStreamErrors checks that a file of a stream with inconsistent contents is an error.
func TestLoadStreamErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	var dense, sparse, early, late bytes.Buffer
	x, y := mat.NewDense(3, 2, []float64{1, 2, 3, 0, 5, 6}), []float64{1, -1, 1}
	for _, c := range []struct {
		x    mat.Matrix
		file *bytes.Buffer
	}{{x, &dense}, {SparseOf(x), &sparse}} {
		s := newStream(t, 2, BernoulliLogit{}, nil)
		learnInBlocks(s, 2) // two rows are kept and one waits
		if err := errors.Join(s.AddAll(ctx, Rows(c.x, y)), s.Save(c.file)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := NewCTMStream(5, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.AddAll(ctx, documents(smallCorpus())), s.Save(&early)); err != nil {
		t.Fatal(err)
	}
	for range 256 {
		if err := s.Add(smallCorpus().Docs[0]); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Save(&late); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		file     *bytes.Buffer
		old, new string
		want     error
	}{
		{"names", &dense, `["x1",`, `["x0","x1",`, ErrShape},
		{"rows", &dense, `"rows":`, `"rows":-`, ErrShape},
		{"likelihood", &dense, `pgsvi.BernoulliLogit`, `pgsvi.Linear`, ErrParam},
		{"prior", &dense, `"diagonal":[1`, `"diagonal":[-1`, ErrNotPosDef},
		{"precision", &dense, `"precision":[`, `"precision":[-`, ErrNotPosDef},
		{"label", &dense, `"y":[1`, `"y":[2`, ErrLabel},
		{"offsets", &dense, `"offset":[0`, `"offset":[0,0`, ErrShape},
		{"weight", &dense, `"weight":[1`, `"weight":[-1`, ErrParam},
		{"dense rows", &dense, `"dense":[`, `"dense":[1,`, ErrShape},
		{"kept", &dense, `"gamma":[`, `"gamma":[1,`, ErrShape},
		{"sparse rows", &sparse, `"ptr":[0,`, `"ptr":[0,9,`, ErrShape},
		{"sparse columns", &sparse, `"ind":[0,`, `"ind":[7,`, ErrShape},
		{"terms", &early, `"terms":5`, `"terms":6`, ErrShape},
		{"topics", &early, `"topics":2`, `"topics":0`, ErrShape},
		{"docs", &early, `"docs":3`, `"docs":1`, ErrShape},
		{"items", &early, `"items":3`, `"items":2`, ErrShape},
		{"option", &early, `"Inner":0`, `"Inner":-1`, ErrParam},
		{"do not set Forget", &early, `"Forget":true`, `"Forget":false`, ErrParam},
		{"random numbers", &early, `"rng":"`, `"rng":"AAAA`, ErrFile},
		{"words", &early, `"Words":[0,2]`, `"Words":[0,7]`, ErrShape},
		{"no words", &early, `{"Words":[0,2],"Counts":[3,1]}`, `{}`, ErrEmpty},
		{"unseen", &early, `"Words":[0,2]`, `"Words":[0,3]`, ErrParam},
		{"nothing to start from", &early,
			`"buffer":[{"Words":[0,2],"Counts":[3,1]},{"Words":[0,1,4],"Counts":[2,12,1]}]`,
			`"buffer":[]`, ErrShape},
		{"start", &early, `"rng"`, `"start":[1],"rng"`, ErrShape},
		{"steps", &late, `"steps":`, `"steps":-`, ErrShape},
		{"mu", &late, `"mu":[`, `"mu":[0,`, ErrShape},
		{"sigma", &late, `"sigma":[`, `"sigma":[-`, ErrNotPosDef},
		{"scale", &late, `"scale":`, `"scale":-`, ErrParam},
		{"statistics", &late, `"stat":[`, `"stat":[-`, ErrParam},
		{"totals", &late, `"totals":[`, `"totals":[-`, ErrParam},
	} {
		var err error
		if c.file == &dense || c.file == &sparse {
			_, err = Load[*Stream[Row, *GLMPosterior]](
				strings.NewReader(changed(t, testkit.Kind("GLMStream"), c.file.String(), c.old,
					c.new)))
		} else {
			_, err = Load[*Stream[Document, *CTMPosterior]](
				strings.NewReader(changed(t, testkit.Kind("CTMStream"), c.file.String(), c.old,
					c.new)))
		}
		if !errors.Is(err, c.want) || !errors.Is(err, ErrFile) || !prefixedOnce(err) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// wholeCase is a GLM of n rows, with offsets, weights and a prior mean, dense or sparse.
type wholeCase struct {
	c      glmCase
	sparse bool
}

// model returns the GLM of rows lo … hi−1.
func (w *wholeCase) model(t *testing.T, lo, hi int) *GLM {
	t.Helper()
	_, cols := w.c.X.Dims()
	opt := *w.c.Opt
	opt.Offset, opt.Weights = opt.Offset[lo:hi], opt.Weights[lo:hi]
	var x mat.Matrix = NewSparse(cols)
	if lo < hi {
		x = w.c.X.Slice(lo, hi, 0, cols)
		if w.sparse {
			x = SparseOf(x)
		}
	}
	g, err := NewGLM(x, w.c.Y[lo:hi], w.c.Lik, &opt)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// rows returns rows lo … hi−1.
func (w *wholeCase) rows(lo, hi int) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		var x mat.Matrix = w.c.X
		if w.sparse {
			x = SparseOf(x)
		}
		i := 0
		for r, err := range Rows(x, w.c.Y) {
			r.Offset, r.Weight = w.c.Opt.Offset[i], w.c.Opt.Weights[i]
			if i >= lo && i < hi && !yield(r, err) {
				return
			}
			i++
		}
	}
}

// newWholeCase returns a case with n rows, in which the late rows contradict the early rows.
func newWholeCase(t *testing.T, n int, lik Likelihood, sparse bool) *wholeCase {
	t.Helper()
	prior, err := NewMeanField([]float64{0.5, -1, 2, 0.1}, []float64{4, 4, 4, 9})
	if err != nil {
		t.Fatal(err)
	}
	c := toyGLM("", n, 3, lik, 301, &GLMOptions{Intercept: true, Prior: prior})
	rng := testRand(302)
	c.Opt.Offset, c.Opt.Weights = make([]float64, n), make([]float64, n)
	for i := range n {
		c.Opt.Offset[i], c.Opt.Weights[i] = 0.3*rng.NormFloat64(), 0.5+rng.Float64()
		if i > n/2 && lik == (BernoulliLogit{}) {
			c.Y[i] = 1
		}
	}
	return &wholeCase{c, sparse}
}

// TestUpdateWhole checks that Update and Remove with few rows return exactly the posteriors of fits
// of these rows, also after saving and loading. Rounding can move them by 1e4 standard deviations
// otherwise.
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
				if !slices.Equal(got.Mean(nil), want.Mean(nil)) ||
					!slices.Equal(got.SD(nil), want.SD(nil)) {
					m, s := apart(got, want)
					t.Errorf("%s, %s: %v and %v apart from a fit", name, what, m, s)
				}
				if got.Len() != want.Len() {
					t.Errorf("%s, %s: %d rows, want %d", name, what, got.Len(), want.Len())
				}
			}
			for _, way := range []func(*GLMPosterior) *GLMPosterior{(*GLMPosterior).with,
				func(p *GLMPosterior) *GLMPosterior {
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
			// a stream that is saved and loaded on the way
			s := newStream(t, 3, lik, &GLMOptions{Intercept: true, Prior: w.c.Opt.Prior})
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
			s, err := Load[*Stream[Row, *GLMPosterior]](&file)
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

// TestSaveWithoutRows checks that a file has data only after WithRows, and that loading and
// updating keep these data.
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

// TestRemoveUnknown checks removing rows that the posterior does not contain, or more rows than it
// contains.
func TestRemoveUnknown(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := newWholeCase(t, 40, BernoulliLogit{}, false)
	all, _ := fitGLM(t, w.model(t, 0, 40), nil)
	if _, err := all.Remove(ctx, twice(w.rows(0, 40))); !errors.Is(err, ErrNotPosDef) {
		t.Errorf("%v, want %v", err, ErrNotPosDef)
	}
	// These are the same rows at twice the distance from the origin. No fit contains them, so their
	// contributions are removed.
	other := *w
	other.c.X = mat.DenseCopyOf(w.c.X)
	other.c.X.Scale(1.0001, other.c.X)
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

// TestUpdateBeyond checks that a posterior that exceeds the limit of its kept rows continues in
// blocks, with the kept rows and their sites.
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
		checkApart(t, fmt.Sprintf("beyond, from a %v covariance", c.p.opt.Covariance), got, all,
			c.tol)
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

// with returns p.
func (p *GLMPosterior) with() *GLMPosterior { return p }

// withoutRows returns p as Load returns it from a file without its rows.
func (p *GLMPosterior) withoutRows() *GLMPosterior {
	q := *p
	q.data = nil
	return &q
}
