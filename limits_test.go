package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math"
	"testing"

	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// cancelData makes random data for cancelCases.
type cancelData struct{ testing.TB }

func (cancelData) table(n, d int) (*mat.Dense, []float64) {
	rng := testRand(64)
	x, y := mat.NewDense(n, d, nil), make([]float64, n)
	for i := range n {
		row := x.RawRowView(i)
		for j := range row {
			row[j] = rng.NormFloat64()
		}
		y[i] = plusMinus(row[0]+rng.NormFloat64() > 0)
	}
	return x, y
}

func (cancelData) corpus(docs, terms int) *Corpus {
	rng := testRand(66)
	c := &Corpus{Terms: terms}
	for range docs {
		var doc Document
		for v := rng.IntN(20); v < terms; v += 1 + rng.IntN(30) {
			doc.Words, doc.Counts = append(doc.Words, v), append(doc.Counts, float64(1+rng.IntN(5)))
		}
		c.Docs = append(c.Docs, doc)
	}
	return c
}

// TestStreamCanceled checks that a stream that is canceled at any check of its context has the same
// bits at its end as an uninterrupted stream.
func TestStreamCanceled(t *testing.T) {
	t.Parallel()
	times := 60
	if testing.Short() {
		times = 12
	}
	data := cancelData{t}
	x, y := data.table(200, 5)
	y[50] = math.NaN() // this row is left out
	canceledStream(t, "GLM", times, func() *Stream[Row, *GLMPosterior] {
		s := must(NewGLMStream(5, BernoulliLogit{}, nil))
		learnInBlocks(s, 16)
		return s
	}, func(i int) Row { return Row{Y: y[i], Val: x.RawRowView(i)} }, 200)
	c := data.corpus(300, 60)
	ctm := func() *Stream[Document, *CTMPosterior] { return must(NewCTMStream(60, 3, nil)) }
	canceledStream(t, "CTM", times/2, ctm,
		func(i int) Document { return c.Docs[i] }, 300)
}

// canceledStream compares streams of n items that are canceled now and then with an uninterrupted
// stream.
func canceledStream[R, P any](t *testing.T, name string, times int, start func() *Stream[R, P],
	item func(int) R, n int) {
	t.Helper()
	rng := testRand(67)
	from := func(i int) iter.Seq2[R, error] {
		return func(yield func(R, error) bool) {
			for ; i < n; i++ {
				if !yield(item(i), nil) {
					return
				}
			}
		}
	}
	// all adds all items under contexts that ctx makes
	all := func(s *Stream[R, P], ctx func() context.Context) (canceled int) {
		for {
			err := s.AddAll(ctx(), from(s.engine.given()))
			switch {
			case err == nil:
				return canceled
			case errors.Is(err, context.Canceled):
				canceled++
				if rng.IntN(4) == 0 { // reading the posterior changes nothing
					if _, err := s.Posterior(); err != nil && !errors.Is(err, ErrEmpty) {
						t.Fatal(err)
					}
				}
			case !errors.Is(err, ErrNotFinite):
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	bits := func(s *Stream[R, P]) string {
		var b bytes.Buffer
		if err := s.Save(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	whole, asked := start(), testkit.NewAsked(math.MaxInt64)
	all(whole, func() context.Context { return asked })
	want, total := bits(whole), 0
	for range times {
		s := start()
		total += all(s, func() context.Context {
			return testkit.NewAsked(
				rng.Int64N(asked.Asked.Load()))
		})
		if bits(s) != want {
			t.Fatalf("%s: another stream", name)
		}
	}
	if total < times/2 {
		t.Errorf("%s: %d cancellations of %d", name, total, times)
	}
	t.Logf("%s: %d cancellations", name, total)
}
