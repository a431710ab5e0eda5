package checks

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// TestPosteriorString checks that printing a posterior shows a summary and not its fields.
func TestPosteriorString(t *testing.T) {
	t.Parallel()
	ctx, rng := context.Background(), testkit.Rand(1)
	const n = 30
	x, y := mat.NewDense(n, 2, nil), make([]float64, n)
	for i := range y {
		x.SetRow(i, []float64{rng.NormFloat64(), rng.NormFloat64()})
		y[i] = testkit.PlusMinus(x.At(i, 0)+rng.NormFloat64() > 0)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, linear := fittedGLM(t, x, y, BernoulliLogit{}, nil)
	_, process := fittedGP(t, x, y, Matern52{}, BernoulliLogit{}, nil)
	s, err := NewSparseGP(x, y, Matern52{}, BernoulliLogit{}, &SparseGPOptions{Rank: 5})
	must(err)
	sparse, _, err := s.Fit(ctx, nil)
	must(err)
	m, err := NewMixture(x, 2, nil)
	must(err)
	mixture, _, err := m.Fit(ctx, nil)
	must(err)
	corpus := &Corpus{Terms: 3}
	for range 4 {
		corpus.Docs = append(corpus.Docs, Document{Words: []int{0, 2}, Counts: []float64{2, 1}})
	}
	l, err := NewLDA(corpus, 2, nil)
	must(err)
	lda, _, err := l.Fit(ctx, nil)
	must(err)
	c, err := NewCTM(corpus, 2, nil)
	must(err)
	ctm, _, err := c.Fit(ctx, nil)
	must(err)
	for _, p := range []struct {
		of   fmt.Stringer
		want string
	}{
		{linear, linear.Summary().String()},
		{process, "BernoulliLogit, 30 rows, 2 columns, Matern52"},
		{sparse, "BernoulliLogit, 30 rows, 2 columns, 5 inducing inputs"},
		{mixture, "2 components in 2 dimensions, weights [0."},
		{lda, "LDA, 2 topics, 3 terms, 4 documents"},
		{ctm, "CTM, 2 topics, 3 terms, 4 documents"},
		{lda.Doc(1), "topic proportions [0."},
	} {
		if got := fmt.Sprint(p.of); !strings.HasPrefix(got, p.want) {
			t.Errorf("%T prints %q, want %q", p.of, got, p.want)
		}
	}
	var none *GLMPosterior
	if got := fmt.Sprint(none); got != "<nil>" {
		t.Errorf("a nil posterior prints %q", got)
	}
}
