package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/site"
	"gonum.org/v1/gonum/mat"
)

func newStream(t testing.TB, cols int, lik Likelihood, opt *GLMOptions) *GLMStream {
	t.Helper()
	s, err := NewGLMStream(cols, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// learnInBlocks makes a new stream s learn even its first rows in blocks of the given size, like
// rows after the first few thousand.
func learnInBlocks(s *GLMStream, size int) {
	e := s.engine.(*glmStream)
	e.size, e.past = size, nil
}

func streamPosterior(t testing.TB, s *GLMStream) *GLMPosterior {
	t.Helper()
	p, err := s.Posterior()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// part returns rows lo … hi−1 of a sequence.
func part(rows iter.Seq2[Row, error], lo, hi int) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		i := 0
		for r, err := range rows {
			if i >= lo && i < hi && !yield(r, err) {
				return
			}
			i++
		}
	}
}

// TestStreamChunks checks that the bits do not depend on the grouping of the rows or on calls of
// Posterior.
func TestStreamChunks(t *testing.T) {
	t.Parallel()
	c := toyGLM("", 12000, 4, BernoulliLogit{}, 101, nil)
	ctx := context.Background()
	for _, x := range few([]mat.Matrix{c.X, SparseOf(c.X)}, 1) {
		rows := Rows(x, c.Y)
		one := newStream(t, 4, c.Lik, &GLMOptions{Intercept: true})
		if err := one.AddAll(ctx, rows); err != nil {
			t.Fatal(err)
		}
		want := streamPosterior(t, one)
		two := newStream(t, 4, c.Lik, &GLMOptions{Intercept: true})
		for lo := 0; lo < 12000; lo += 777 {
			if err := two.AddAll(ctx, part(rows, lo, lo+777)); err != nil {
				t.Fatal(err)
			}
			if p := streamPosterior(t, two); p.Len() != min(12000, lo+777) {
				t.Errorf("%d rows, want %d", p.Len(), min(12000, lo+777))
			}
		}
		if m, s := apart(streamPosterior(t, two), want); m != 0 || s != 0 {
			t.Errorf("%T in pieces: means %v, sds %v apart", x, m, s)
		}
	}
}

// TestStreamFit checks that one pass is close to the fit to all rows, for sparse and dense rows.
func TestStreamFit(t *testing.T) {
	t.Parallel()
	for _, lik := range few([]Likelihood{BernoulliLogit{}, GaussianNoise{}, Poisson{}, StudentT{}},
		2) {
		c := toyGLM("", 6000, 5, lik, 102, &GLMOptions{Intercept: true})
		g := c.Glm(t, c.X)
		best, res := fitGLM(t, g, nil)
		for _, x := range []mat.Matrix{c.X, SparseOf(c.X)} {
			s := newStream(t, 5, lik, c.Opt)
			if err := s.AddAll(context.Background(), Rows(x, c.Y)); err != nil {
				t.Fatal(err)
			}
			p := streamPosterior(t, s)
			tol := 0.03
			if lik == (GaussianNoise{}) {
				tol = 1e-9 // blocks are exact
			}
			checkApart(t, fmt.Sprintf("%T, %T", lik, x), p, best, tol)
			if e := res.ELBO - elboAt(t, g, p); e > 0.01 {
				t.Errorf("%T: %v nats below the optimum", lik, e)
			}
		}
	}
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

// TestStreamOffsets checks that offsets and weights of rows have the effect of GLMOptions.Offset
// and Weights.
func TestStreamOffsets(t *testing.T) {
	for _, c := range glmCorpus() {
		if c.Name != "weights and offsets" {
			continue
		}
		best, _ := fitGLM(t, c.Glm(t, c.X), nil)
		_, cols := c.X.Dims()
		s := newStream(t, cols, c.Lik, &GLMOptions{Intercept: true})
		for i, y := range c.Y {
			if c.Opt.Weights[i] == 0 {
				continue
			}
			if err := s.Add(Row{Val: c.X.RawRowView(i), Y: y, Offset: c.Opt.Offset[i],
				Weight: c.Opt.Weights[i]}); err != nil {
				t.Fatal(err)
			}
		}
		checkApart(t, c.Name, streamPosterior(t, s), best, 1e-3)
	}
}

// elboAt returns the ELBO of a posterior with a full covariance under the model g.
func elboAt(t testing.TB, g *GLM, p *GLMPosterior) float64 {
	t.Helper()
	st := overWeights(t, g)
	alg := algOf[*site.WeightAlgebra](st)
	w, err := p.cov.State(nil)
	if err != nil {
		t.Fatal(err)
	}
	alg.Run.CopyFrom(w)
	for j, m := range p.Mean(nil) {
		alg.Run.Mean[j] = m - g.lin.Prior.Mean[j]
	}
	alg.Free = true
	v, err := elboOf(st, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestStreamUpdateRemove compares Update(A then B) with Fit(A+B), and checks that Remove is its
// inverse, within tolerances in standard deviations.
func TestStreamUpdateRemove(t *testing.T) {
	ctx := context.Background()
	mean, err := NewMeanField([]float64{1, 2, 3, -1}, []float64{1, 1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		lik                    Likelihood
		update, remove, single float64
	}{
		{GaussianNoise{}, 1e-9, 1e-9, 1e-9},
		{BernoulliLogit{}, 0.08, 0.08, 2e-3},
		{Poisson{}, 0.1, 0.1, 2e-3},
	} {
		d := toyGLM("", 2000, 4, c.lik, 103, &GLMOptions{Prior: mean})
		all, _ := fitGLM(t, d.Glm(t, d.X), nil)
		a := glmCase{"", d.X.Slice(0, 1000, 0, 4).(*mat.Dense), d.Y[:1000], d.Lik, d.Opt}
		first, _ := fitGLM(t, a.Glm(t, a.X), nil)
		rest := part(Rows(d.X, d.Y), 1000, 2000)
		updated, err := first.Update(ctx, rest)
		if err != nil {
			t.Fatal(err)
		}
		checkApart(t, fmt.Sprintf("%T updated", c.lik), updated, all, c.update)
		removed, err := all.Remove(ctx, rest)
		if err != nil {
			t.Fatal(err)
		}
		checkApart(t, fmt.Sprintf("%T removed", c.lik), removed, first, c.remove)
		if updated.Len() != 2000 || removed.Len() != 1000 {
			t.Errorf("%d and %d rows", updated.Len(), removed.Len())
		}
		// Add twenty rows and remove them again.
		few := part(Rows(d.X, d.Y), 1000, 1020)
		plus, err := first.Update(ctx, few)
		if err != nil {
			t.Fatal(err)
		}
		minus, err := plus.Remove(ctx, few)
		if err != nil {
			t.Fatal(err)
		}
		checkApart(t, fmt.Sprintf("%T in and out", c.lik), minus, first, c.single)
		if m, _ := apart(plus, first); m < 1e-4 {
			t.Errorf("%T: twenty rows moved the mean by %v", c.lik, m)
		}
	}
}

// TestStreamFromPosterior checks streams that start from a posterior with any covariance.
func TestStreamFromPosterior(t *testing.T) {
	ctx := context.Background()
	c := toyGLM("", 30, 40, BernoulliLogit{}, 104, nil) // the dual
	p, _ := fitGLM(t, c.Glm(t, c.X), nil)
	q, err := p.Update(ctx, Rows(c.X, c.Y))
	if err != nil {
		t.Fatal(err)
	}
	if q.Len() != 60 || !(q.SD(nil)[0] < p.SD(nil)[0]) {
		t.Errorf("%d rows, sd %v from %v", q.Len(), q.SD(nil)[0], p.SD(nil)[0])
	}
	g, err := NewGLM(NewSparse(40), nil, BernoulliLogit{}, nil) // the prior
	if err != nil {
		t.Fatal(err)
	}
	prior, _ := fitGLM(t, g, nil)
	q, err = prior.Update(ctx, Rows(c.X, c.Y))
	if err != nil {
		t.Fatal(err)
	}
	checkApart(t, "from the prior", q, p, 0.1)
}

func TestStreamErrors(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		cols int
		lik  Likelihood
		opt  *GLMOptions
		want error
	}{
		{-1, nil, nil, ErrShape},
		{0, nil, nil, ErrEmpty},
		{2, GaussianNoise{Var: -1}, nil, ErrParam},
		{2, nil, &GLMOptions{Autoscale: true}, ErrParam},
		{2, nil, &GLMOptions{Covariance: DiagonalCovariance}, ErrParam},
		{2, nil, &GLMOptions{Offset: []float64{1}}, ErrParam},
	} {
		if _, err := NewGLMStream(c.cols, c.lik, c.opt); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c, err, c.want)
		}
	}
	good := Row{Val: []float64{1, 2}, Y: 1}
	s := newStream(t, 2, BernoulliLogit{}, nil)
	for _, c := range []struct {
		row  Row
		want error
	}{
		{Row{Val: []float64{1}, Y: 1}, ErrShape},
		{Row{Ind: []int{0}, Val: []float64{1, 2}, Y: 1}, ErrShape},
		{Row{Ind: []int{1, 0}, Val: []float64{1, 2}, Y: 1}, ErrShape},
		{Row{Ind: []int{0, 2}, Val: []float64{1, 2}, Y: 1}, ErrShape},
		{Row{Ind: []int{-1}, Val: []float64{1}, Y: 1}, ErrShape},
		{Row{Val: []float64{1, math.NaN()}, Y: 1}, ErrNotFinite},
		{Row{Val: []float64{1, 2}, Y: math.NaN()}, ErrNotFinite},
		{Row{Val: []float64{1, 2}, Y: 1, Offset: math.Inf(1)}, ErrNotFinite},
		{Row{Val: []float64{1, 2}, Y: 1, Weight: -1}, ErrParam},
		{Row{Val: []float64{1, 2}, Y: 0}, ErrLabel},
	} {
		if err := s.Add(good); err != nil {
			t.Fatal(err)
		}
		n := s.Len()
		err := s.Add(c.row)
		if !errors.Is(err, c.want) ||
			!strings.Contains(err.Error(), fmt.Sprintf("row %d", s.engine.given()-1)) {
			t.Errorf("%+v: %v, want %v", c.row, err, c.want)
		}
		if s.Len() != n {
			t.Errorf("%+v: a bad row was added", c.row)
		}
	}
	if p := streamPosterior(t, s); p.Len() != 10 {
		t.Errorf("%d rows, want the 10 good ones", p.Len())
	}
	failure := errors.New("broken pipe")
	broken := func(yield func(Row, error) bool) { _ = yield(good, nil) && yield(Row{}, failure) }
	if err := s.AddAll(ctx, broken); !errors.Is(err, failure) || s.Len() != 11 {
		t.Errorf("%v, %d rows", err, s.Len())
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	forever := func(yield func(Row, error) bool) {
		for yield(good, nil) {
		}
	}
	if err := s.AddAll(canceled, forever); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	if err := s.RemoveAll(canceled, forever); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	// Removing unknown rows fails, because their precision is missing.
	p, err := newStream(t, 2, GaussianNoise{}, nil).Posterior()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Remove(ctx, Rows(mat.NewDense(1, 2, []float64{3, 4}), nil)); !errors.Is(err,
		ErrNotPosDef) {
		t.Errorf("%v, want %v", err, ErrNotPosDef)
	}
}

// TestGLMa9a compares fits to a9a with the reference, which sets no options.
func TestGLMa9a(t *testing.T) {
	t.Parallel()
	dir := sharedData(t)
	x, y := readLIBSVM(t, open(t, filepath.Join(dir, "a9a", "a9a.gz")), 123)
	xt, yt := readLIBSVM(t, open(t, filepath.Join(dir, "a9a", "a9a.t.gz")), 123)
	var truth struct {
		NegELBO float64 `json:"neg_elbo"`
		Nats    float64 `json:"test_logloss_nats"`
		Err     float64 `json:"test_err"`
	}
	readTruthJSON(t, "a9a.json", &truth)
	optimum := readTruth(t, "a9a_optimum.csv")
	m0, s0 := optimum[0], optimum[1]
	g, err := NewGLM(x, y, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	worst := func(p *GLMPosterior) (mean, sd float64) {
		m, s := p.Mean(nil), p.SD(nil)
		for j := range m {
			mean = math.Max(mean, math.Abs(m[j]-m0[j])/s0[j])
			sd = math.Max(sd, math.Abs(s[j]/s0[j]-1))
		}
		return mean, sd
	}
	p, res := fitGLM(t, g, &Solver{Goal: 1e-10})
	mean, sd := worst(p)
	t.Logf("batch: −ELBO − reference %.1e nats, means within %.1e sd, sds within %.1e, %v "+
		"passes, gap %.0e", -res.ELBO-truth.NegELBO, mean, sd, res.Passes, res.Gap)
	if math.Abs(res.ELBO+truth.NegELBO) > 1e-9 || mean > 2e-5 || sd > 2e-5 ||
		res.Status != Converged || res.Passes > 10 {
		t.Errorf("batch fit: %v after %v passes, −ELBO %.12f, want %.12f; means %v, sds %v off",
			res.Status, res.Passes, -res.ELBO, truth.NegELBO, mean, sd)
	}
	two := math.NaN()
	for _, it := range res.Trace {
		if it.Passes == 2 {
			two = -it.ELBO - truth.NegELBO
		}
		if true := -it.ELBO - truth.NegELBO; it.Gap < true-1e-9 {
			t.Errorf("pass %v: gap %v reported, %v measured", it.Passes, it.Gap, true)
		}
	}
	t.Logf("two passes with memory: %.1e nats above the optimum", two)
	if !(two <= 0.01) {
		t.Errorf("after two passes −ELBO is %v nats above the optimum, want 0.01", two)
	}
	var nats, errs float64
	prob := p.At(xt).LogProb(nil, yt)
	for _, l := range prob {
		nats -= l / float64(len(yt))
		if l < math.Log(0.5) {
			errs += 1 / float64(len(yt))
		}
	}
	if math.Abs(nats-truth.Nats) > 1e-6 || math.Abs(errs-truth.Err) > 1e-5 {
		t.Errorf("test log loss %v nats, error %v, want %v, %v", nats, errs, truth.Nats, truth.Err)
	}
	s := newStream(t, 123, BernoulliLogit{}, nil)
	if err := s.AddAll(context.Background(), Rows(x, y)); err != nil {
		t.Fatal(err)
	}
	q := streamPosterior(t, s)
	mean, sd = worst(q)
	excess := -elboAt(t, g, q) - truth.NegELBO
	t.Logf("one streaming pass: %.3f nats above the optimum, means within %.3f sd, sds within %.3f",
		excess, mean, sd)
	if !(excess <= 0.1 && mean <= 0.1 && sd <= 0.05) {
		t.Errorf("one streaming pass: %v nats above the optimum, means %v sd off, sds %v", excess,
			mean, sd)
	}
}

// sparseRows returns the rows from lo up to hi.
func sparseRows(t testing.TB, x *Sparse, lo, hi int) *Sparse {
	t.Helper()
	_, d := x.Dims()
	part := NewSparse(d)
	for i := lo; i < hi; i++ {
		ind32, val := x.Row(i)
		ind := make([]int, len(ind32))
		for k, j := range ind32 {
			ind[k] = int(j)
		}
		if err := part.Append(ind, val); err != nil {
			t.Fatal(err)
		}
	}
	return part
}

// TestGLMa9aUpdate measures the distance from a fit to the final rows of a9a after adding and
// removing rows.
func TestGLMa9aUpdate(t *testing.T) {
	notShort(t)
	t.Parallel()
	x, y := readLIBSVM(t, open(t, filepath.Join(sharedData(t), "a9a", "a9a.gz")), 123)
	const first = 16000
	ctx := context.Background()
	begin, late := sparseRows(t, x, 0, first), Rows(sparseRows(t, x, first, len(y)), y[first:])
	half, all := mustGLM(t, begin, y[:first], BernoulliLogit{}, GLMOptions{}),
		mustGLM(t, x, y, BernoulliLogit{}, GLMOptions{})
	halfPost, halfRes := fitGLM(t, half, nil)
	allPost, allRes := fitGLM(t, all, nil)
	more, err := halfPost.Update(ctx, late)
	if err != nil {
		t.Fatal(err)
	}
	less, err := more.Remove(ctx, late)
	if err != nil {
		t.Fatal(err)
	}
	fewer, err := allPost.Remove(ctx, late)
	if err != nil {
		t.Fatal(err)
	}
	twenty := Rows(sparseRows(t, x, first, first+20), y[first:first+20])
	back, err := halfPost.Update(ctx, twenty)
	if err != nil {
		t.Fatal(err)
	}
	if back, err = back.Remove(ctx, twenty); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what            string
		g               *GLM
		got, want       *GLMPosterior
		res             *Result
		nats, mostNats  float64 // distance in the README, and the largest that passes
		means, mostMean float64
	}{
		{"16,561 rows added", all, more, allPost, allRes, 0.046, 0.15, 0.046, 0.15},
		{"and taken out again", half, less, halfPost, halfRes, 0.01, 0.05, 0.025, 0.1},
		{"16,561 rows taken out of a fit to all", half, fewer, halfPost, halfRes, 0.42, 1.2, 0.11,
			0.3},
		{"twenty rows in and out", half, back, halfPost, halfRes, 2e-8, 1e-6, 4e-5, 4e-4},
	} {
		excess := c.res.ELBO - elboAt(t, c.g, c.got)
		mean, sd := apart(c.got, c.want)
		t.Logf("%s: %.2g nats above the optimum, means within %.2g sd, sds within %.2g", c.what,
			excess, mean, sd)
		if !(excess > -1e-6 && excess <= c.mostNats && mean <= c.mostMean) {
			t.Errorf("%s: %v nats above the optimum, means %v sd off, want about %v and %v", c.what,
				excess, mean, c.nats, c.means)
		}
	}
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
			for _, s := range []*GLMStream{s, all} {
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
	for want, start := range map[error]func(*GLMStream){
		ErrDiverged:  func(*GLMStream) {}, // a fit of its rows
		ErrNotFinite: func(s *GLMStream) { learnInBlocks(s, 1024) },
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

// with returns p.
func (p *GLMPosterior) with() *GLMPosterior { return p }

// withoutRows returns p as Load returns it from a file without its rows.
func (p *GLMPosterior) withoutRows() *GLMPosterior {
	q := *p
	q.data = nil
	return &q
}
