package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// resumed hands the items to a stream that is saved, loaded and asked for its posterior at the
// given places on the way, and returns what it says at the end, and what one says that was left
// alone.
func resumed[R, P any](t *testing.T, fresh func() *Stream[R, P], load func(io.Reader) (*Stream[R, P], error), items []R, at []int, say func(P) string) (got, want string) {
	t.Helper()
	one, two := fresh(), fresh()
	for i, item := range items {
		for _, n := range at {
			if n != i {
				continue
			}
			two = again(t, fmt.Sprintf("after %d items", i), two, load)
			if _, err := two.Posterior(); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(one.Add(item), two.Add(item)); err != nil {
			t.Fatal(err)
		}
	}
	if one.Len() != two.Len() {
		t.Errorf("%d items, and %d where none was loaded", two.Len(), one.Len())
	}
	a, err := one.Posterior()
	if err != nil {
		t.Fatal(err)
	}
	b, err := again(t, "at the end", two, load).Posterior()
	if err != nil {
		t.Fatal(err)
	}
	return say(b), say(a)
}

func sayWeights(p *GLMPosterior) string {
	return fmt.Sprint(p.Len(), p.Mean(nil), p.SD(nil), p.Cov().RawSymmetric().Data)
}

// A stream of rows that was saved and loaded goes on to the same bits: dense or sparse, with
// offsets and weights, before a block, between blocks, and with rows kept.
func TestGLMStreamResume(t *testing.T) {
	notShort(t)
	t.Parallel()
	prior, err := NewGaussian([]float64{1, 0, -1, 0.3}, mat.NewSymDense(4, []float64{2, 0.3, 0, 0.1, 0.3, 1, 0.2, 0, 0, 0.2, 1, 0, 0.1, 0, 0, 3}))
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
		{"sparse", BernoulliLogit{}, &GLMOptions{Intercept: true, Names: []string{"a", "b", "ü"}}, true, false},
		{"counts", Poisson{}, &GLMOptions{Intercept: true, Prior: prior}, false, true},
		{"robust", StudentT{DF: 3}, nil, true, true},
	} {
		x, y := savedData(11000, 3, c.lik, 7)
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
		fresh := func() *GLMStream { return newStream(t, 3, c.lik, c.opt) }
		at := []int{0, 1, 1000, 1024, 3000, 7500, 10999}
		if got, want := resumed(t, fresh, Load[*GLMStream], rows, at, sayWeights); got != want {
			t.Errorf("%s: %.200s, want %.200s", c.name, got, want)
		}
	}
}

// So it does after rows were removed, and from the posterior of a fit.
func TestGLMStreamResumeRemove(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	x, y := savedData(3000, 3, BernoulliLogit{}, 8)
	g, err := NewGLM(x.Slice(0, 500, 0, 3), y[:500], BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	post, _ := fitGLM(t, g, nil)
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
				s = again(t, "resumed", s, Load)
			}
			if err := f(); err != nil {
				t.Fatal(err)
			}
		}
		say = append(say, sayWeights(streamPosterior(t, s)))
	}
	if say[0] != say[1] {
		t.Errorf("%s, want %s", say[1], say[0])
	}
}

func sayTopics(p *CTMPosterior) string {
	return fmt.Sprint(p.Topics().RawMatrix().Data, p.Mu(nil), p.Sigma().RawSymmetric().Data, p.seen)
}

// A stream of documents that was saved and loaded, and asked for its posterior on the way, goes on
// to the same bits.
func TestCTMStreamResume(t *testing.T) {
	notShort(t)
	t.Parallel()
	c := blockCorpus(340, 40)
	c.Docs[3], c.Docs[300] = Document{}, Document{}
	start := mat.NewDense(3, c.Terms, nil)
	for k := range 3 {
		for v := range c.Terms {
			start.Set(k, v, 1+float64((v+k)%3))
		}
	}
	for _, o := range []*CTMOptions{nil, {Expectation: CTMQuasi}, {Expectation: CTMLaplace}, {Expectation: CTMMeanField}, {Topics: start, Diagonal: true, FirstInner: 4}} {
		fresh := func() *CTMStream {
			s, err := NewCTMStream(c.Terms, 3, o)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		if got, want := resumed(t, fresh, Load[*CTMStream], c.Docs, []int{1, 100, 256, 258, 280, 333}, sayTopics); got != want {
			t.Errorf("%+v: %.300s, want %.300s", o, got, want)
		}
	}
}

// Documents cannot be removed, and errors have their number.
func TestCTMStreamErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, err := NewCTMStream(5, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AddAll(ctx, documents(smallCorpus())); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveAll(ctx, documents(smallCorpus())); !errors.Is(err, errors.ErrUnsupported) || !prefixedOnce(err) || s.Len() != 3 {
		t.Errorf("%v, %d documents", err, s.Len())
	}
	for i, c := range []struct {
		d    Document
		want error
	}{
		{Document{[]int{5}, []float64{1}}, ErrShape},
		{Document{[]int{1, 0}, []float64{1, 1}}, ErrShape},
		{Document{[]int{1}, nil}, ErrShape},
		{Document{[]int{1}, []float64{-1}}, ErrParam},
		{Document{[]int{1}, []float64{math.Inf(1)}}, ErrNotFinite},
	} {
		if err := s.Add(c.d); !errors.Is(err, c.want) || !prefixedOnce(err) || !strings.Contains(err.Error(), fmt.Sprintf("document %d ", 3+i)) {
			t.Errorf("%+v: %v, want %v", c.d, err, c.want)
		}
	}
	if s.Len() != 3 {
		t.Errorf("%d documents, want the 3 good ones", s.Len())
	}
	failure := errors.New("broken pipe")
	broken := func(yield func(Document, error) bool) { _ = yield(Document{}, nil) && yield(Document{}, failure) }
	if err := s.AddAll(ctx, broken); err != failure || s.Len() != 4 {
		t.Errorf("%v, %d documents", err, s.Len())
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.AddAll(canceled, iter.Seq2[Document, error](documents(smallCorpus()))); !errors.Is(err, context.Canceled) || s.Len() != 4 {
		t.Errorf("%v, %d documents", err, s.Len())
	}
}

// TestLoadStreamErrors: what is in the file of a stream must agree.
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
		learnInBlocks(s, 2) // so that two rows are kept and one waits
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
		{"forget", &early, `"Forget":true`, `"Forget":false`, ErrParam},
		{"random numbers", &early, `"rng":"`, `"rng":"AAAA`, ErrFile},
		{"words", &early, `"Words":[0,2]`, `"Words":[0,7]`, ErrShape},
		{"no words", &early, `{"Words":[0,2],"Counts":[3,1]}`, `{}`, ErrEmpty},
		{"unseen", &early, `"Words":[0,2]`, `"Words":[0,3]`, ErrParam},
		{"nothing to start from", &early, `"buffer":[{"Words":[0,2],"Counts":[3,1]},{"Words":[0,1,4],"Counts":[2,12,1]}]`, `"buffer":[]`, ErrShape},
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
			_, err = Load[*GLMStream](strings.NewReader(changed(t, glmStreamFile, c.file.String(), c.old, c.new)))
		} else {
			_, err = Load[*CTMStream](strings.NewReader(changed(t, ctmStreamFile, c.file.String(), c.old, c.new)))
		}
		if !errors.Is(err, c.want) || !errors.Is(err, ErrFile) || !prefixedOnce(err) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}
