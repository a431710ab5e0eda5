package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/sparse"
	"github.com/pgsvi/pgsvi/internal/term"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// streamed returns the model of the rows of gp with inducing inputs z, which reads its rows in
// every pass.
func streamed(t testing.TB, gp *GP, z mat.Matrix) *SparseGP {
	t.Helper()
	_, d := gp.x.Dims()
	g, err := NewSparseGPRows(context.Background(), Rows(gp.x, gp.terms.Y), d, gp.kernel,
		likOf(gp.terms), &SparseGPOptions{Inducing: z})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestSparseRowsBits checks that the same rows give the same bits on any number of workers, from
// memory or not, and after a cancellation, save and resume. The proved gap must hold, and be near
// the gap from the third pass on.
func TestSparseRowsBits(t *testing.T) {
	t.Parallel()
	n := longer(sparse.SampleRows+1000, 400)
	x, y := testkit.LongRows(n)
	ctx := context.Background()
	g, err := NewSparseGPRows(ctx, Rows(x, y), 1, Matern52{Scale: 1.5, Length: 0.7},
		BernoulliLogit{}, &SparseGPOptions{Rank: 7})
	if err != nil {
		t.Fatal(err)
	}
	if g.Len() != n || g.Rank() != 7 || (g.rows.All == nil) != !testkit.IsLong() {
		t.Fatalf("%d rows, rank %d", g.Len(), g.Rank())
	}
	best, _, err := g.Fit(ctx, &Solver{Goal: 1e-7})
	if err != nil {
		t.Fatal(err)
	}
	top, err := (&sparse.Pass{Rows: g.rows, Z: g.z, Lik: viewOf(g.lik), Fit: fitFeatures,
		Workers: term.Crew{Workers: 1, Halt: nil}}).At(best.q)
	if err != nil {
		t.Fatal(err)
	}
	var want *SparseGPPosterior
	for _, workers := range []int{1, 3} {
		post, res, err := g.Fit(ctx, &Solver{Workers: workers, Goal: 1e-5})
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = post
			for k, it := range res.Trace {
				excess := top.ELBO - it.ELBO
				t.Logf("pass %v: excess %.3g, promised %.3g, bound %.3g", it.Passes, excess, it.Gap,
					it.GapBound)
				if it.Scope != OverQ || it.GapBound < excess-1e-7 ||
					k > 0 && it.GapBound > 3*excess+1e-6 {
					t.Errorf("pass %v: excess %g, bound %g %v", it.Passes, excess, it.GapBound,
						it.Scope)
				}
			}
		}
		if !slices.Equal(post.mean, want.mean) || !slices.Equal(post.q.P, want.q.P) {
			t.Errorf("%d workers: other bits", workers)
		}
	}
	for _, at := range []int{0, 1} {
		sub, cancel := context.WithCancel(ctx)
		s := &Solver{Goal: 1e-5, Workers: 2, Record: func(it Iteration) {
			if it.K == at {
				cancel()
			}
		}}
		res, err := s.Start(ctx, g)
		if err != nil {
			t.Fatal(err)
		}
		if at == 0 {
			cancel()
		}
		if res, err = s.Resume(sub, res); !errors.Is(err, context.Canceled) {
			t.Fatalf("canceled after %d: %v", at, err)
		}
		var file bytes.Buffer
		if err := res.Save(&file); err != nil {
			t.Fatal(err)
		}
		s = &Solver{Goal: 1e-5}
		if res, err = s.LoadResult(ctx, &file, g); err != nil {
			t.Fatal(err)
		}
		if res, err = s.Resume(ctx, res); err != nil {
			t.Fatal(err)
		}
		post, err := g.Posterior(res.Stepper)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(post.mean, want.mean) {
			t.Errorf("resumed after %d: other bits", at)
		}
	}
}

// TestSparseRowsGlance checks that a start by a Newton step of the mean, from a sample of the rows,
// ends at the same optimum as other starts. The step must be exact under Gaussian noise, must be
// undone if it lowers the ELBO, and must resume with the same bits from a save.
func TestSparseRowsGlance(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, GaussianNoise{Var: 0.04},
		StudentT{DF: 4, Scale: 0.3}} {
		_, counts := lik.(Poisson)
		n := shorter(900, 200)
		gp := toyGP(t, n, SquaredExp{Scale: 1.3, Length: 0.9}, lik, 5)
		if counts { // far from the sample, so that a step is much too long
			gp.x.SetRow(n-1, []float64{9, 9})
			gp.terms.Y[n-1] = 300
		}
		z := new(mat.Dense)
		z.Stack(gp.x.Slice(0, 12, 0, 2), gp.x.Slice(n-1, n, 0, 2))
		all := streamed(t, gp, z)
		want, _, err := all.Fit(ctx, &Solver{Goal: 1e-8})
		if err != nil {
			t.Fatal(err)
		}
		top, err := (&sparse.Pass{Rows: all.rows, Z: all.z, Lik: viewOf(lik), Fit: fitFeatures,
			Workers: term.Crew{Workers: 1, Halt: nil}}).At(want.q)
		if err != nil {
			t.Fatal(err)
		}
		g := streamed(t, gp, z)
		few := n / 4
		r := *g.rows
		r.All, r.X, r.Y = checkedRows(Rows(gp.x, gp.terms.Y), 2, lik), gp.x.Slice(0, few, 0,
			2).(*mat.Dense), gp.terms.Y[:few]
		g.rows = &r
		st, err := newSparseStepper(ctx, nil, g.z, g.rows, lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Step(ctx, nil, nil, math.Inf(1)); err != nil {
			t.Fatal(err)
		}
		if st.ascent.Try == st.ascent.At || math.IsInf(st.ascent.Gap(), 0) {
			t.Fatalf("%T: no step of the mean", lik)
		}
		file, err := st.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		again, err := newSparseStepper(ctx, nil, g.z, g.rows, lik, nil)
		if err == nil {
			err = again.UnmarshalBinary(file)
		}
		if err != nil {
			t.Fatal(err)
		}
		start, next, gain := st.ascent.At, st.ascent.Try, st.ascent.Gap()
		e, err := st.Evaluate(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if e2, err := again.Evaluate(ctx, nil); err != nil || e2.ELBO != e.ELBO ||
			!slices.Equal(again.current().Mean, st.current().Mean) {
			t.Errorf("%T: saved and resumed, ELBO %v, want %v: %v", lik, e2.ELBO, e.ELBO, err)
		}
		if counts {
			if st.current() != start {
				t.Errorf("a step that leads down is not undone: ELBO %v", e.ELBO)
			}
		} else if left := top.ELBO - e.ELBO; st.current() != next || !(left < 0.5*gain) {
			t.Errorf("%T: a step with predicted gain %v leaves a gain of %v", lik, gain, left)
		} else if _, exact := lik.(GaussianNoise); exact && !(left < 1e-8*math.Abs(top.ELBO)) {
			t.Errorf("a step under Gaussian noise leaves %v", left)
		}
		_, res, err := g.Fit(ctx, &Solver{Goal: 1e-6})
		if err != nil {
			t.Fatal(err)
		}
		if d := math.Abs(top.ELBO - res.ELBO); !(d < 1e-4+1e-9*math.Abs(top.ELBO)) {
			t.Errorf("%T: ELBO %v, of other starts %v", lik, res.ELBO, top.ELBO)
		}
	}
}

// TestSparseRowsProof checks the proved bounds at ten thousand random states, and that likelihoods
// that are not log-concave have no bound.
func TestSparseRowsProof(t *testing.T) {
	t.Parallel()
	rng := testRand(9)
	for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, BernoulliProbit{},
		StudentT{DF: 4}} {
		gp := toyGP(t, 60, SquaredExp{Scale: 1.2}, lik, 8)
		g := streamed(t, gp, gp.x.Slice(0, 6, 0, 2))
		post, res, err := g.Fit(context.Background(), &Solver{Goal: 1e-8})
		if err != nil {
			t.Fatal(err)
		}
		p := &sparse.Pass{Rows: g.rows, Z: g.z, Lik: viewOf(lik), Fit: fitFeatures,
			Workers: term.Crew{Workers: 1, Halt: nil}}
		const nearBest = 1e-3 // nats below the best, for a run after its third pass
		near, worst := 0, 0.0
		trials := longer(3400, 20)
		if factsOf(lik).selfBounded {
			trials = longer(12_000, 40)
		}
		for trial := range trials {
			q := &gauss.Gaussian{}
			q.CopyFrom(post.q)
			size := math.Exp(-6 + 7*rng.Float64())
			for j := range q.Mean {
				q.Mean[j] += size * rng.NormFloat64()
				for i := range j + 1 {
					q.P[j*6+i] *= 1 + 0.1*size*rng.Float64()
				}
				q.P[j*6+j] *= 1 + size*rng.Float64()
			}
			if !q.Factor() {
				continue
			}
			x, err := p.At(q)
			if err != nil {
				t.Fatal(err)
			}
			if lik == (StudentT{DF: 4}) {
				if x.Bound != 0 {
					t.Fatalf("%T has a proof", lik)
				}
				if trial == 20 {
					break
				}
				continue
			}
			excess := res.ELBO - x.ELBO
			if !(x.Bound >= excess-1e-7) {
				t.Errorf("%T, trial %d: %v nats proved, %v below the best", lik, trial, x.Bound,
					excess)
			}
			if factsOf(lik).selfBounded && excess < nearBest {
				near++
				worst = max(worst, x.Bound/(excess+1e-6))
			}
		}
		t.Logf("%T: %d states within %v nats of the best, proved at most %.3g times what they "+
			"are below it", lik, near, nearBest, worst)
		if factsOf(lik).selfBounded && (near == 0 && testkit.IsLong() || worst > 3) {
			t.Errorf("%T: %d states near the best, proved %v times what they are below it", lik,
				near, worst)
		}
	}
}

// TestSparseRowsProofFar checks that bounds hold at states so far off or so wide that expectations
// overflow or their derivatives are replaced.
func TestSparseRowsProofFar(t *testing.T) {
	t.Parallel()
	rng := testRand(9)
	for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}, Exponential{}} {
		gp := toyGP(t, 60, SquaredExp{Scale: 1.2}, Poisson{}, 8)
		for i, y := range gp.terms.Y {
			switch lik.(type) {
			case BernoulliLogit:
				gp.terms.Y[i] = 2*min(y, 1) - 1
			case Exponential:
				gp.terms.Y[i] += 0.1
			}
		}
		gp.terms.Lik = viewOf(lik)
		g := streamed(t, gp, gp.x.Slice(0, 6, 0, 2))
		post, res, err := g.Fit(t.Context(), &Solver{Goal: 1e-8})
		if err != nil {
			t.Fatal(err)
		}
		p := &sparse.Pass{Rows: g.rows, Z: g.z, Lik: viewOf(lik), Fit: fitFeatures,
			Workers: term.Crew{Workers: 1, Halt: nil}}
		proved, unproved := 0, 0
		for range shorter(2000, 300) {
			q := &gauss.Gaussian{}
			q.CopyFrom(post.q)
			size, narrow := math.Exp(-6+14*rng.Float64()), math.Exp(12*rng.NormFloat64())
			for j := range q.Mean {
				q.Mean[j] += size * rng.NormFloat64()
				floats.Scale(narrow, q.P[j*6:j*6+j+1])
			}
			if !q.Factor() {
				continue
			}
			x, err := p.At(q)
			if err != nil {
				continue // no expectation
			}
			if math.IsInf(x.Bound, 1) {
				unproved++
			} else {
				proved++
			}
			if excess := res.ELBO - x.ELBO; !(x.Bound >= excess*(1-1e-9)-1e-7) {
				t.Fatalf("%T: %v nats proved, %v below the best", lik, x.Bound, excess)
			}
		}
		if lik != (BernoulliLogit{}) && (proved < 50 || unproved < 50) {
			t.Errorf("%T: %d states with a proof, %d without", lik, proved, unproved)
		}
	}
}

// TestSparseUpdate checks that Update with more rows nearly equals a fit of all rows.
func TestSparseUpdate(t *testing.T) {
	t.Parallel()
	n := shorter(6000, 1500)
	x, y := testkit.LongRows(n)
	ctx := context.Background()
	k := Matern52{Scale: 1.5, Length: 0.7}
	z := x.Slice(0, 12, 0, 1)
	fit := func(x mat.Matrix, y []float64) (*SparseGPPosterior, *Result) {
		g, err := NewSparseGPRows(ctx, Rows(x, y), 1, k, BernoulliLogit{},
			&SparseGPOptions{Inducing: z})
		if err != nil {
			t.Fatal(err)
		}
		post, res, err := g.Fit(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		return post, res
	}
	_, all := fit(x, y)
	half, _ := fit(x.Slice(0, n/2, 0, 1), y[:n/2])
	post, err := half.Update(ctx, Rows(x.Slice(n/2, n, 0, 1), y[n/2:]))
	if err != nil {
		t.Fatal(err)
	}
	look, err := (&sparse.Pass{Rows: sparse.RowsOf(x, &term.Terms{Lik: viewOf(BernoulliLogit{}),
		Y: y}), Z: post.z, Lik: viewOf(BernoulliLogit{}), Fit: fitFeatures,
		Workers: term.Crew{Workers: 1, Halt: nil}}).At(post.q)
	if err != nil {
		t.Fatal(err)
	}
	if d := all.ELBO - look.ELBO; d > 0.2 || post.Len() != n || half.Len() != n/2 {
		t.Errorf("%v nats below a fit of all %d rows", d, post.Len())
	}
	var file bytes.Buffer
	if err := post.Save(&file); err != nil {
		t.Fatal(err)
	}
	if _, err := Load[*SparseGPPosterior](&file); err != nil {
		t.Error(err)
	}
	bad := mat.NewDense(1, 1, []float64{math.NaN()})
	if _, err := half.Update(ctx, Rows(bad, []float64{1})); !errors.Is(err, ErrNotFinite) {
		t.Error(err)
	}
}

// TestSparseWithInducing checks that more inducing inputs, in any order, leave the predictions
// unchanged, and that later rows then give the posterior of a fit of all rows. The result must be
// exact under Gaussian noise if the inducing inputs were there before, and nearly exact if they are
// added with the rows. The parts of a Sum must add up.
func TestSparseWithInducing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	n := shorter(3000, 600)
	x, y := testkit.LongRows(n)
	near, far := []int(nil), []int(nil)
	for i := range n {
		if x.At(i, 0) < 3 {
			near = append(near, i)
		} else {
			far = append(far, i)
		}
	}
	rows := func(index []int) iter.Seq2[Row, error] {
		x2, y2 := mat.NewDense(len(index), 1, nil), make([]float64, len(index))
		for i, at := range index {
			x2.Set(i, 0, x.At(at, 0))
			y2[i] = y[at]
		}
		return Rows(x2, y2)
	}
	k := Sum{Matern52{Scale: 1.5, Length: 0.7}, Constant{Scale: 0.5}}
	z := mat.NewDense(24, 1, nil)
	for i := range 24 {
		z.Set(i, 0, float64(i)/4)
	}
	old, back := z.Slice(0, 12, 0, 1), mat.NewDense(24, 1, nil)
	for i := range 24 {
		back.Set(i, 0, z.At(23-i, 0))
	}
	for _, lik := range []Likelihood{GaussianNoise{Var: 0.5}, BernoulliLogit{}} {
		fit := func(r iter.Seq2[Row, error], z mat.Matrix) *SparseGPPosterior {
			g, err := NewSparseGPRows(ctx, r, 1, k, lik, &SparseGPOptions{Inducing: z})
			if err != nil {
				t.Fatal(err)
			}
			post, _, err := g.Fit(ctx, &Solver{Goal: 1e-8})
			if err != nil {
				t.Fatal(err)
			}
			return post
		}
		apart := func(a, b *SparseGPPosterior) float64 {
			ma, va := a.At(x).Latent(nil, nil)
			mb, vb := b.At(x).Latent(nil, nil)
			most := 0.0
			for i := range ma {
				most = max(most, math.Abs(ma[i]-mb[i])/math.Sqrt(vb[i]),
					math.Abs(va[i]-vb[i])/vb[i])
			}
			return most
		}
		half := fit(rows(near), old)
		for _, to := range []mat.Matrix{old, z, back} {
			moved, err := half.WithInducing(to)
			if err != nil {
				t.Fatal(err)
			}
			if d := apart(moved, half); d > 1e-5 || moved.Len() != half.Len() {
				t.Errorf("%T: %d inducing inputs move predictions by %g", lik, moved.z.Rank(), d)
			}
		}
		wide := fit(rows(near), z)
		moved, err := half.WithInducing(back)
		if err != nil || !mat.Equal(moved.Inducing(), back) {
			t.Fatal(err)
		}
		all := fit(Rows(x, y), z)
		for _, c := range []struct {
			name  string
			from  *SparseGPPosterior
			exact bool
		}{{"the same inducing inputs", wide, true}, {"further ones", moved, false}} {
			post, err := c.from.Update(ctx, rows(far))
			if err != nil {
				t.Fatal(err)
			}
			if post.Len() != n {
				t.Errorf("%d rows", post.Len())
			}
			if _, gaussian := lik.(GaussianNoise); gaussian && c.exact {
				if d := apart(post, all); d > 1e-6 {
					t.Errorf("%T, %s: predictions are %g from those of all rows", lik, c.name, d)
				}
				continue
			}
			r := sparse.RowsOf(x, &term.Terms{Lik: viewOf(lik), Y: y})
			var elbo [2]float64
			for i, p := range [2]*SparseGPPosterior{post, all} {
				look, err := (&sparse.Pass{Rows: r, Z: p.z, Lik: viewOf(lik), Fit: fitFeatures,
					Workers: term.Crew{Workers: 1, Halt: nil}}).At(p.q)
				if err != nil {
					t.Fatal(err)
				}
				elbo[i] = look.ELBO
			}
			if d := elbo[1] - elbo[0]; d > 2 {
				t.Errorf("%T, %s: %g nats below a fit of all rows", lik, c.name, d)
			}
		}
		m, _ := all.At(x).Latent(nil, nil)
		a, va := all.Part(0, x).Latent(nil, nil)
		b, _ := all.Part(1, x).Latent(nil, nil)
		for i := range m {
			if d := math.Abs(a[i] + b[i] - m[i]); d > 1e-9 || !(va[i] > 0) {
				t.Fatalf("%T: the parts at row %d leave %g of the whole", lik, i, d)
			}
		}
	}
	g, err := NewSparseGPRows(ctx, Rows(x, y), 1, k, BernoulliLogit{},
		&SparseGPOptions{Inducing: old})
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := g.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		z    mat.Matrix
		want error
	}{{new(mat.Dense), ErrEmpty}, {mat.NewDense(2, 2, nil), ErrShape},
		{mat.NewDense(1, 1, []float64{math.NaN()}), ErrNotFinite}} {
		if _, err := post.WithInducing(c.z); !errors.Is(err, c.want) ||
			!strings.HasPrefix(err.Error(), "pgsvi: ") {
			t.Errorf("%v, want %v", err, c.want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("an unknown term")
		}
	}()
	post.Part(2, x)
}
