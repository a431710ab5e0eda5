package linear

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/testkit"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"gonum.org/v1/gonum/mat"
)

// Documents cannot be removed, and errors have their number.
func TestCTMStreamErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, err := NewCTMStream(5, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AddAll(ctx, kit.Documents(kit.SmallCorpus())); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveAll(ctx, kit.Documents(kit.SmallCorpus())); !errors.Is(err,
		errors.ErrUnsupported) ||
		!testkit.PrefixedOnce(err) || s.Len() != 3 {
		t.Errorf("%v, %d documents", err, s.Len())
	}
	for i, c := range []struct {
		d    Document
		want error
	}{
		{Document{Words: []int{5}, Counts: []float64{1}}, ErrShape},
		{Document{Words: []int{1, 0}, Counts: []float64{1, 1}}, ErrShape},
		{Document{Words: []int{1}, Counts: nil}, ErrShape},
		{Document{Words: []int{1}, Counts: []float64{-1}}, ErrParam},
		{Document{Words: []int{1}, Counts: []float64{math.Inf(1)}}, ErrNotFinite},
	} {
		if err := s.Add(c.d); !errors.Is(err, c.want) || !testkit.PrefixedOnce(err) ||
			!strings.Contains(err.Error(), fmt.Sprintf("document %d ", 3+i)) {
			t.Errorf("%+v: %v, want %v", c.d, err, c.want)
		}
	}
	if s.Len() != 3 {
		t.Errorf("%d documents, want the 3 good ones", s.Len())
	}
	failure := errors.New("broken pipe")
	broken := func(yield func(Document, error) bool) {
		_ = yield(Document{}, nil) &&
			yield(Document{}, failure)
	}
	if err := s.AddAll(ctx, broken); err != failure || s.Len() != 4 {
		t.Errorf("%v, %d documents", err, s.Len())
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.AddAll(canceled,
		iter.Seq2[Document, error](kit.Documents(kit.SmallCorpus()))); !errors.Is(
		err, context.Canceled) || s.Len() != 4 {
		t.Errorf("%v, %d documents", err, s.Len())
	}
}

func sayWeights(p *GLMPosterior) string {
	return fmt.Sprint(p.Len(), p.Mean(nil), p.SD(nil), p.Cov().RawSymmetric().Data)
}

// TestGLMStreamResume checks that a saved and loaded stream of rows has the same bits at its end as
// an uninterrupted stream: dense or sparse, with offsets and weights, before a block, between
// blocks, and with rows kept.
func TestGLMStreamResume(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	prior, err := NewGaussian([]float64{1, 0, -1, 0.3},
		mat.NewSymDense(4, []float64{2, 0.3, 0, 0.1, 0.3, 1, 0.2, 0, 0, 0.2, 1, 0, 0.1, 0, 0, 3}))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		lik    Likelihood
		opt    *GLMOptions
		sparse bool
		odd    bool // offsets and weights
	}{
		{"logit", BernoulliLogit{}, &GLMOptions{Intercept: true}, false, false},
		{"sparse", BernoulliLogit{}, &GLMOptions{Intercept: true, Names: []string{"a", "b", "ü"}},
			true, false},
		{"counts", Poisson{}, &GLMOptions{Intercept: true, Prior: prior}, false, true},
		{"robust", StudentT{DF: 3}, nil, true, true},
	} {
		x, y := kit.SavedData(11000, 3, c.lik, 7)
		var from mat.Matrix = x
		if c.sparse {
			from = SparseOf(x)
		}
		rows, err := collectRows(Rows(from, y))
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			if c.odd {
				rows[i].Offset, rows[i].Weight = 0.1*float64(i%3), 0.5+float64(i%2)
			}
		}
		fresh := func() *kit.RowStream { return kit.NewStream(t, 3, c.lik, c.opt) }
		at := []int{0, 1, 1000, 1024, 3000, 7500, 10999}
		if got, want := kit.Resumed(t, fresh, Load[*kit.RowStream], rows, at, sayWeights); got != want {
			t.Errorf("%s: %.200s, want %.200s", c.name, got, want)
		}
	}
}

// TestGLMStreamResumeRemove checks the same after rows were removed, and from the posterior of a
// fit.
func TestGLMStreamResumeRemove(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	x, y := kit.SavedData(3000, 3, BernoulliLogit{}, 8)
	g, err := NewGLM(x.Slice(0, 500, 0, 3), y[:500], BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	post, _ := kit.FitGLM(t, g, nil)
	var say []string
	for _, load := range []bool{false, true} {
		s, err := post.Stream()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []func() error{
			func() error { return s.AddAll(ctx, part(Rows(x, y), 500, 2000)) },
			func() error { return s.RemoveAll(ctx, part(Rows(x, y), 100, 700)) },
			func() error { return s.AddAll(ctx, part(Rows(x, y), 2000, 3000)) },
		} {
			if load {
				s = testkit.Again(t, "resumed", s, Load)
			}
			if err := f(); err != nil {
				t.Fatal(err)
			}
		}
		say = append(say, sayWeights(kit.StreamPosterior(t, s)))
	}
	if say[0] != say[1] {
		t.Errorf("%s, want %s", say[1], say[0])
	}
}
