package linear

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// TestStreamStrongRow checks the variance along one row that carries far more information than
// the prior, among many weights. It must match Bayesian linear regression, or there must be an
// error. Variances were once wrong by a factor of 1000.
func TestStreamStrongRow(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 19858))
	for _, d := range []int{1, 14, 100} {
		for _, noise := range []float64{1e-2, 1e-7, 1e-12} {
			for _, unit := range []float64{1, 1e4, 1e8} {
				s := testkit.Must(NewGLMStream(d, GaussianNoise{Var: noise},
					&GLMOptions{PriorSD: 60}))
				row := Row{Val: make([]float64, d), Y: 3}
				var square float64
				for j := range row.Val {
					row.Val[j] = unit * rng.NormFloat64()
					square += row.Val[j] * row.Val[j]
				}
				if err := s.Add(row); err != nil {
					t.Fatal(err)
				}
				post, err := s.Posterior()
				// a part of 10³¹ of the prior: more than the digits there are
				if errors.Is(err, ErrDiverged) && noise < 1e-9 && unit > 1e4 {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				_, v := post.At(mat.NewDense(1, d, row.Val)).Latent(nil, nil)
				want := 1 / (1/(3600*square) + 1/noise)
				if !(math.Abs(v[0]/want-1) <= 1e-5) {
					t.Errorf("%d weights, noise %g, unit %g: latent variance %g, want %g", d, noise,
						unit, v[0], want)
				}
			}
		}
	}
}

// Rows that are added and removed again must leave the earlier state. With Gaussian noise, where
// both are exact, the difference is at most 1e-6 standard deviations, in any units and for nearly
// collinear columns. With other noise it is the accuracy of one pass. If the digits do not
// suffice, there must be an error.
func TestRemoveCollinear(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	right := 0
	problems := testkit.Shorter(300, 40)
	for seed := range uint64(problems) {
		rng := testkit.Rand(seed)
		n := 20 + rng.IntN(100)
		power, kind := float64(2+2*rng.IntN(3)), rng.IntN(4)
		scale := []float64{1, 0.03, 4e-4}[rng.IntN(3)]
		x, y := mat.NewDense(n, 3, nil), make([]float64, n)
		for i := range n {
			v := []float64{
				rng.NormFloat64(), math.Pow(float64(i), power), 5e6 + float64(i),
				math.Round(math.Exp(10 + rng.NormFloat64())),
			}[kind]
			x.SetRow(i, []float64{v, 100*v + 1e-7*rng.NormFloat64(), 1e8 + v})
			y[i] = scale * rng.NormFloat64()
		}
		lik, most := Likelihood(GaussianNoise{Var: scale * scale}), 1e-6
		if seed%2 == 1 {
			lik, most = Laplace{Scale: scale}, 2
		}
		st := kit.NewStream(t, 3, lik, &GLMOptions{PriorSD: []float64{0.01, 1, 100, 1000}[rng.IntN(4)]})
		rows := func(lo, hi int) iter.Seq2[Row, error] {
			return Rows(x.Slice(lo, hi, 0, 3).(*mat.Dense), y[lo:hi])
		}
		if err := st.AddAll(ctx, rows(0, n/2)); err != nil {
			continue // no more digits than the rows need
		}
		p, err := st.Posterior()
		if err != nil {
			continue
		}
		if seed%4 < 2 {
			p = kit.WithoutRows(t, p)
		}
		more, err := p.Update(ctx, rows(n/2, n))
		if err != nil {
			continue
		}
		q, err := more.Remove(ctx, rows(n/2, n))
		if err != nil {
			if !errors.Is(err, ErrNotPosDef) {
				t.Errorf("seed %d: %v", seed, err)
			}
			continue
		}
		right++
		m, v := p.At(x).Latent(nil, nil)
		m1, v1 := q.At(x).Latent(nil, nil)
		for i := range m {
			off := max(math.Abs(m[i]-m1[i])/math.Sqrt(v[i]), 0.5*math.Abs(math.Log(v[i]/v1[i])))
			if !(off <= most) {
				t.Errorf("seed %d, %T, columns of kind %d: row %d is off by %.3g sd", seed, lik,
					kind, i, off)
				break
			}
		}
	}
	if right < problems/2 {
		t.Errorf("%d of %d problems have an answer", right, problems)
	}
	t.Logf("%d of %d problems have an answer", right, problems)
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
	c := kit.ToyGLM("", 12000, 4, BernoulliLogit{}, 101, nil)
	ctx := context.Background()
	for _, x := range testkit.Few([]mat.Matrix{c.X, SparseOf(c.X)}, 1) {
		rows := Rows(x, c.Y)
		one := kit.NewStream(t, 4, c.Lik, &GLMOptions{Intercept: true})
		if err := one.AddAll(ctx, rows); err != nil {
			t.Fatal(err)
		}
		want := kit.StreamPosterior(t, one)
		two := kit.NewStream(t, 4, c.Lik, &GLMOptions{Intercept: true})
		for lo := 0; lo < 12000; lo += 777 {
			if err := two.AddAll(ctx, part(rows, lo, lo+777)); err != nil {
				t.Fatal(err)
			}
			if p := kit.StreamPosterior(t, two); p.Len() != min(12000, lo+777) {
				t.Errorf("%d rows, want %d", p.Len(), min(12000, lo+777))
			}
		}
		if m, s := apart(kit.StreamPosterior(t, two), want); m != 0 || s != 0 {
			t.Errorf("%T in pieces: means %v, sds %v apart", x, m, s)
		}
	}
}

// TestStreamFit checks that one pass is close to the fit to all rows, for sparse and dense rows.
func TestStreamFit(t *testing.T) {
	t.Parallel()
	for _, lik := range testkit.Few([]Likelihood{BernoulliLogit{}, GaussianNoise{}, Poisson{},
		StudentT{}},
		2) {
		c := kit.ToyGLM("", 6000, 5, lik, 102, &GLMOptions{Intercept: true})
		g := c.Glm(t, c.X)
		best, res := kit.FitGLM(t, g, nil)
		for _, x := range []mat.Matrix{c.X, SparseOf(c.X)} {
			s := kit.NewStream(t, 5, lik, c.Opt)
			if err := s.AddAll(context.Background(), Rows(x, c.Y)); err != nil {
				t.Fatal(err)
			}
			p := kit.StreamPosterior(t, s)
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

// TestStreamOffsets checks that offsets and weights of rows have the effect of GLMOptions.Offset
// and Weights.
func TestStreamOffsets(t *testing.T) {
	for _, c := range glmCorpus() {
		if c.Name != "weights and offsets" {
			continue
		}
		best, _ := kit.FitGLM(t, c.Glm(t, c.X), nil)
		_, cols := c.X.Dims()
		s := kit.NewStream(t, cols, c.Lik, &GLMOptions{Intercept: true})
		for i, y := range c.Y {
			if c.Opt.Weights[i] == 0 {
				continue
			}
			if err := s.Add(Row{Val: c.X.RawRowView(i), Y: y, Offset: c.Opt.Offset[i],
				Weight: c.Opt.Weights[i]}); err != nil {
				t.Fatal(err)
			}
		}
		checkApart(t, c.Name, kit.StreamPosterior(t, s), best, 1e-3)
	}
}

// elboAt returns the ELBO of a posterior with a full covariance under the model g.
func elboAt(t testing.TB, g *GLM, p *GLMPosterior) float64 {
	t.Helper()
	st := kit.OverWeights(t, g)
	alg := kit.AlgOf[*site.WeightAlgebra](st)
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
	v, err := kit.ElboOf(st, nil)
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
		d := kit.ToyGLM("", 2000, 4, c.lik, 103, &GLMOptions{Prior: mean})
		all, _ := kit.FitGLM(t, d.Glm(t, d.X), nil)
		a := kit.GlmCase{Name: "", X: d.X.Slice(0, 1000, 0, 4).(*mat.Dense), Y: d.Y[:1000],
			Lik: d.Lik,
			Opt: d.Opt}
		first, _ := kit.FitGLM(t, a.Glm(t, a.X), nil)
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
	c := kit.ToyGLM("", 30, 40, BernoulliLogit{}, 104, nil) // the dual
	p, _ := kit.FitGLM(t, c.Glm(t, c.X), nil)
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
	prior, _ := kit.FitGLM(t, g, nil)
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
	s := kit.NewStream(t, 2, BernoulliLogit{}, nil)
	for i, c := range []struct {
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
			!strings.Contains(err.Error(), fmt.Sprintf("row %d", 2*i+1)) {
			t.Errorf("%+v: %v, want %v", c.row, err, c.want)
		}
		if s.Len() != n {
			t.Errorf("%+v: a bad row was added", c.row)
		}
	}
	if p := kit.StreamPosterior(t, s); p.Len() != 10 {
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
	p, err := kit.NewStream(t, 2, GaussianNoise{}, nil).Posterior()
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
	dir := testkit.SharedData(t)
	x, y := readLIBSVM(t, testkit.Open(t, filepath.Join(dir, "a9a", "a9a.gz")), 123)
	xt, yt := readLIBSVM(t, testkit.Open(t, filepath.Join(dir, "a9a", "a9a.t.gz")), 123)
	var truth struct {
		NegELBO float64 `json:"neg_elbo"`
		Nats    float64 `json:"test_logloss_nats"`
		Err     float64 `json:"test_err"`
	}
	testkit.ReadTruthJSON(t, "a9a.json", &truth)
	optimum := testkit.ReadTruth(t, "a9a_optimum.csv")
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
	p, res := kit.FitGLM(t, g, &Solver{Goal: 1e-10})
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
	s := kit.NewStream(t, 123, BernoulliLogit{}, nil)
	if err := s.AddAll(context.Background(), Rows(x, y)); err != nil {
		t.Fatal(err)
	}
	q := kit.StreamPosterior(t, s)
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
	testkit.NotShort(t)
	t.Parallel()
	x, y := readLIBSVM(t, testkit.Open(t, filepath.Join(testkit.SharedData(t), "a9a", "a9a.gz")),
		123)
	const first = 16000
	ctx := context.Background()
	begin, late := sparseRows(t, x, 0, first), Rows(sparseRows(t, x, first, len(y)), y[first:])
	half, all := kit.MustGLM(t, begin, y[:first], BernoulliLogit{}, GLMOptions{}),
		kit.MustGLM(t, x, y, BernoulliLogit{}, GLMOptions{})
	halfPost, halfRes := kit.FitGLM(t, half, nil)
	allPost, allRes := kit.FitGLM(t, all, nil)
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
