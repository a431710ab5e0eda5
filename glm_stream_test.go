package pgsvi

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/mat"
)

// rowStream is a stream of a GLM.
type rowStream = Stream[Row, *GLMPosterior]

func newStream(t testing.TB, cols int, lik Likelihood, opt *GLMOptions) *rowStream {
	t.Helper()
	s, err := NewGLMStream(cols, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// learnInBlocks makes a new stream s learn even its first rows in blocks of the given size, like
// rows after the first few thousand.
func learnInBlocks(s *rowStream, size int) {
	e := s.engine.(*glmStream)
	e.size, e.past = size, nil
}

func streamPosterior(t testing.TB, s *rowStream) *GLMPosterior {
	t.Helper()
	p, err := s.Posterior()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestStreamCorpus checks streams of the corpus in small blocks.
func TestStreamCorpus(t *testing.T) {
	for _, c := range glmCorpus() {
		if c.Opt != nil && c.Opt.Weights != nil {
			continue // offsets and weights belong to the rows
		}
		g := c.Glm(t, c.X)
		_, res := fitGLM(t, g, nil)
		_, cols := c.X.Dims()
		s := newStream(t, cols, c.Lik, c.Opt)
		learnInBlocks(s, 16)
		if err := s.AddAll(context.Background(), Rows(c.X, c.Y)); err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		tol := 0.005
		if c.Name == "separable" {
			tol = 0.5
		}
		if e := res.ELBO - elboAt(t, g, streamPosterior(t, s)); e > tol || e < -1e-5 {
			t.Errorf("%s: %v nats below the optimum, want at most %v", c.Name, e, tol)
		}
	}
}

// elboAt returns the ELBO of a posterior with a full covariance under the model g.
func elboAt(t testing.TB, g *GLM, p *GLMPosterior) float64 {
	t.Helper()
	st := overWeights(t, g)
	alg := algOf[*site.WeightAlgebra](st)
	var cov mat.Cholesky
	prec := mat.NewSymDense(p.Dim(), nil)
	if !cov.Factorize(p.Cov()) {
		t.Fatal("a covariance is not positive definite")
	}
	if err := cov.InverseTo(prec); err != nil {
		t.Fatal(err)
	}
	w := &gauss.Gaussian{}
	w.Resize(p.Dim())
	for i := range p.Dim() {
		for j := range i + 1 {
			w.P[i*p.Dim()+j] = prec.At(i, j)
		}
	}
	if !w.Factor() {
		t.Fatal("a precision is not positive definite")
	}
	w.Invert()
	alg.Run.CopyFrom(w)
	for j, m := range p.Mean(nil) {
		alg.Run.Mean[j] = m - alg.Lin.Prior.Mean[j]
	}
	alg.Free = true
	v, err := elboOf(st, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestStreamLastBlock checks that an incomplete block is solved to convergence for Posterior,
// whatever the pace of earlier blocks allows.
func TestStreamLastBlock(t *testing.T) {
	c := toyGLM("", 900, 4, BernoulliLogit{}, 105, nil)
	best, _ := fitGLM(t, c.Glm(t, c.X), nil)
	s := newStream(t, 4, c.Lik, nil)
	learnInBlocks(s, 1024)
	if err := s.AddAll(context.Background(), Rows(c.X, c.Y)); err != nil {
		t.Fatal(err)
	}
	// Set a pace as if earlier blocks had left nothing.
	s.engine.(*glmStream).block.Pace = site.Pace{Measured: true}
	checkApart(t, "one block", streamPosterior(t, s), best, 1e-3)
}

// TestStreamPace checks that blocks whose steps converge quickly are rarely checked, and that the
// posterior agrees with a stream that checks each block, even if rows become four times as long
// halfway.
func TestStreamPace(t *testing.T) {
	for _, unit := range few([]float64{4, 1}, 1) {
		const blocks, rows = 160, 1024
		c := toyGLM("", blocks*rows, 4, BernoulliLogit{}, 107, nil)
		late := c.X.Slice(blocks/2*rows, blocks*rows, 0, 4).(*mat.Dense)
		late.Scale(unit, late)
		s, all := newStream(t, 4, c.Lik, nil), newStream(t, 4, c.Lik, nil)
		checked := 0
		for i := range blocks {
			block := Rows(c.X.Slice(i*rows, (i+1)*rows, 0, 4), c.Y[i*rows:(i+1)*rows])
			for _, s := range []*rowStream{s, all} {
				if err := s.AddAll(context.Background(), block); err != nil {
					t.Fatal(err)
				}
			}
			checked += design.B2i(s.engine.(*glmStream).block.Pace.Age == 0)
			all.engine.(*glmStream).block.Pace = site.Pace{}
		}
		if checked > blocks/9 {
			t.Errorf("rows %v times as long: %d of %d blocks are checked", unit, checked, blocks)
		}
		checkApart(t, "each block checked", streamPosterior(t, s), streamPosterior(t, all), 1e-3)
	}
}

// TestStreamUnsolved checks that a stream that finds no q with a finite ELBO for a block returns an
// error that names a row.
func TestStreamUnsolved(t *testing.T) {
	for want, start := range map[error]func(*rowStream){
		ErrDiverged:  func(*rowStream) {}, // a fit of its rows
		ErrNotFinite: func(s *rowStream) { learnInBlocks(s, 1024) },
	} {
		s := newStream(t, 1, Poisson{}, nil)
		start(s)
		// The rate is e¹⁰⁰⁰ for any weight.
		for _, r := range []Row{{Val: []float64{1}, Y: 2}, {Val: []float64{0}, Y: 1,
			Offset: 1000}} {
			if err := s.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		if p, err := s.Posterior(); p != nil || !errors.Is(err, want) ||
			!strings.Contains(err.Error(), "row 1") {
			t.Errorf("%v, %v, want %v", p, err, want)
		}
	}
}

// TestStreamSalvage checks that one row without finite expectations does not spoil its block.
func TestStreamSalvage(t *testing.T) {
	s := newStream(t, 1, Poisson{}, nil)
	learnInBlocks(s, 1024)
	err := s.AddAll(context.Background(), func(yield func(Row, error) bool) {
		for i := range 1024 {
			r := Row{Val: []float64{1}, Y: 2}
			if i == 1000 {
				r.Offset = 1e5 // too far for the other rows to compensate
			}
			if !yield(r, nil) {
				return
			}
		}
	})
	if !errors.Is(err, ErrNotFinite) || s.Len() != 1023 {
		t.Errorf("%v, %d rows", err, s.Len())
	}
	if p := streamPosterior(t, s); math.Abs(p.Mean(nil)[0]-math.Log(2)) > 0.05 {
		t.Errorf("mean %v, want log 2", p.Mean(nil))
	}
}

// TestStreamNoiseAdd checks that rows that are taken back leave the sums and the kept responses of the
// other rows.
func TestStreamNoiseAdd(t *testing.T) {
	t.Parallel()
	buffer := func(rows ...int) *term.Buffer {
		b := term.NewBuffer(2)
		for _, i := range rows {
			b.Add([]int{0}, []float64{float64(i)}, float64(i*i%7), 0.5, float64(1+i%2), true)
		}
		return b
	}
	fill := func() *streamNoise {
		return &streamNoise{lik: GaussianNoise{Var: 1}, step: 1, x1: make([]float64, 2), x2: make([]float64, 2)}
	}
	got, want := fill(), fill()
	got.add(nil, buffer(0, 1, 2, 3, 4, 5, 6, 7), nil, 1)
	got.add(nil, buffer(6, 1, 3), nil, -1)
	want.add(nil, buffer(0, 2, 4, 5, 7), nil, 1)
	if got.square != want.square || got.weight != want.weight || !slices.Equal(got.x1, want.x1) ||
		!slices.Equal(got.x2, want.x2) {
		t.Errorf("sums %+v, want %+v", got, want)
	}
	// Σ w(y − o)², Σ w and Σ wx over the rows 0, 2, 4, 5 and 7
	if got.square != 39.75 || got.weight != 7 || got.x1[0] != 30 || got.x2[0] != 168 {
		t.Errorf("sums %+v", got)
	}
	for _, s := range []*streamNoise{got, want} {
		if slices.Sort(s.y); len(s.y) != 5 || len(s.w) != 5 {
			t.Errorf("%d responses with %d weights, want 5", len(s.y), len(s.w))
		}
	}
	if !slices.Equal(got.y, want.y) {
		t.Errorf("responses %v, want %v", got.y, want.y)
	}
}
