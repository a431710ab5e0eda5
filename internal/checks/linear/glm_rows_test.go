package linear

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// fitRows fits a GLM by passes over rows.
func fitRows(t testing.TB, rows iter.Seq2[Row, error], cols int, lik Likelihood, opt *GLMOptions,
	s *Solver) (*GLMPosterior, *Result) {
	t.Helper()
	g, err := NewGLMRows(context.Background(), rows, cols, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	p, res, err := g.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p, res
}

// TestGLMRowsUnseen checks counts with features of a few rows that the sample misses.
func TestGLMRowsUnseen(t *testing.T) {
	t.Parallel()
	const n, d = 60000, 12
	rows := func(yield func(Row, error) bool) {
		rng := rand.New(rand.NewPCG(4, 4))
		for i := range n {
			row := Row{Ind: []int{0}, Val: []float64{1}, Y: float64(rng.IntN(4))}
			if i%20000 < d-1 {
				row.Ind, row.Val = append(row.Ind, 1+i%20000), append(row.Val, 3+float64(i%7))
				row.Y = float64(50 * (i % 3))
			}
			if !yield(row, nil) {
				return
			}
		}
	}
	for _, sd := range testkit.Few([]float64{1, 0.3, 3}, 1) {
		_, res := fitRows(t, rows, d, Poisson{}, &GLMOptions{PriorSD: sd}, nil)
		t.Log(sd, res)
		if res.Status != Converged || !(res.GapBound <= 0.02) {
			t.Errorf("prior sd %v: %v", sd, res)
		}
	}
}

// TestGLMRowsCollinear checks columns that are nearly multiples of one another, or of one value,
// against fits in memory: each kind of columns under each likelihood, with one prior or, with
// -long, with three.
func TestGLMRowsCollinear(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	n := testkit.Longer(20_000, 17_000)
	for a, columns := range testkit.Few([]func(x float64) []float64{
		func(x float64) []float64 { return []float64{x, 100*x + 1e-6*rng.NormFloat64(), 1e8 + x} },
		func(x float64) []float64 { return []float64{x, 100*x + 1e-6*rng.NormFloat64()} },
		func(x float64) []float64 { return []float64{x, 1e8 + x} },
		func(x float64) []float64 { return []float64{1, x, 1e4 + x, x} },
	}, 1) {
		for b, lik := range testkit.Few([]Likelihood{Poisson{}, BernoulliLogit{},
			GaussianNoise{Var: 1}},
			1) {
			rows := make([]Row, n)
			for i := range rows {
				x := rng.NormFloat64()
				r := &rows[i]
				r.Val = columns(x)
				switch eta := 0.5*x - 0.3; lik.(type) {
				case Poisson, NegativeBinomial:
					r.Y = math.Floor(math.Exp(eta) + rng.Float64())
				case GaussianNoise:
					r.Y = eta + rng.NormFloat64()
				default:
					r.Y = testkit.PlusMinus(eta+rng.NormFloat64() > 0)
				}
			}
			d := len(rows[0].Val)
			x, y := mat.NewDense(n, d, nil), make([]float64, n)
			for i, r := range rows {
				x.SetRow(i, r.Val)
				y[i] = r.Y
			}
			for c, sd := range []float64{1e3, 1, 1e-3} {
				if !testkit.IsLong() && c != (a+b)%3 {
					continue
				}
				opt := &GLMOptions{PriorSD: sd}
				_, res := fitRows(t, testkit.Each(rows), d, lik, opt, nil)
				g, err := NewGLM(x, y, lik, opt)
				if err != nil {
					t.Fatal(err)
				}
				_, want := kit.FitGLM(t, g, nil)
				off := want.ELBO - res.ELBO
				if res.Status != Converged || !(res.GapBound <= 0.01 && off <= res.GapBound) ||
					!(off >= -want.GapBound-res.ELBOErr) {
					t.Errorf("%s, prior sd %v, row %v: %v, and in memory %v",
						testkit.TypeName(lik), sd, rows[0].Val, res, want)
				}
			}
		}
	}
}

// TestApproachRest fits models of so many rows that blocks see a part of them, and one step the
// rest. The fit must be within its proved gap of a fit to the end, and have the same bits with any
// number of workers, also where the step of the mean fails or rows of the rest overflow.
func TestApproachRest(t *testing.T) {
	t.Parallel()
	const n, d = 2400, 5
	r := rand.New(rand.NewPCG(3, 5))
	for _, far := range []float64{0, 6, 300} { // value of a row that is in no block
		x, y := mat.NewDense(n, d, nil), make([]float64, n)
		signs := make([]float64, n)
		for i := range n {
			eta := 0.2
			for j := range d {
				x.Set(i, j, r.NormFloat64())
				eta += 0.3 * x.At(i, j)
			}
			y[i] = math.Floor(math.Exp(eta) + r.Float64())
			if signs[i] = -1; eta+r.NormFloat64() > 0 {
				signs[i] = 1
			}
		}
		for i := n / 2; far > 0 && i < n/2+3; i++ {
			x.Set(i, 0, far)
			y[i] = 0
		}
		for _, c := range []struct {
			lik Likelihood
			y   []float64
		}{{Poisson{}, y}, {BernoulliLogit{}, signs}, {NegativeBinomial{Shape: 2}, y}} {
			g, err := NewGLM(x, c.y, c.lik, nil)
			if err != nil {
				t.Fatal(err)
			}
			fit := func(by *Solver) (*GLMPosterior, *Result) {
				p, res, err := g.Fit(t.Context(), by)
				if err != nil || res.Status != Converged {
					t.Fatalf("%v, a row at %v: %v, %v", c.lik, far, err, res)
				}
				return p, res
			}
			post, res := fit(&Solver{Goal: 0.01, Workers: 1})
			_, end := fit(&Solver{Workers: 1})
			if lost := end.ELBO - res.ELBO; lost > res.GapBound || lost < -1e-6 {
				t.Errorf("%v, a row at %v: the fit lacks %v nats, proved are %v", c.lik, far, lost,
					res.GapBound)
			}
			other, _ := fit(&Solver{Goal: 0.01, Workers: 3})
			if !slices.Equal(post.Mean(nil), other.Mean(nil)) {
				t.Errorf("%v, a row at %v: three workers have other bits", c.lik, far)
			}
		}
	}
}

// TestGLMRowsA9a checks that a fit to the rows of a9a, in any order, reaches the optimum within its
// bound, and agrees with the fit to rows in memory.
func TestGLMRowsA9a(t *testing.T) {
	t.Parallel()
	x, y := readA9a(t)
	var truth struct {
		NegELBO float64 `json:"neg_elbo"`
	}
	testkit.ReadTruthJSON(t, "a9a.json", &truth)
	g, err := NewGLM(x, y, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, memory := kit.FitGLM(t, g, nil)
	for name, rows := range map[string]iter.Seq2[Row, error]{"file order": Rows(x, y),
		"sorted by label": sortedRows(x, y)} {
		_, res := fitRows(t, rows, 123, BernoulliLogit{}, nil, nil)
		off := res.ELBO + truth.NegELBO
		if !(res.Status == Converged && res.Passes <= 5 && res.GapBound <= 0.01 &&
			-off <= res.GapBound && off <= 1e-6) {
			t.Errorf("%s: %v, %v nats off", name, res, off)
		}
		_, res = fitRows(t, rows, 123, BernoulliLogit{}, nil, &Solver{Goal: 1e-6})
		if off := math.Abs(res.ELBO - memory.ELBO); !(off <= 1e-8*math.Abs(memory.ELBO) &&
			off <= res.GapBound+memory.GapBound) {
			t.Errorf("%s: %v, and in memory %v", name, res, memory)
		}
	}
}

// sortedRows returns the rows of x in the order of y.
func sortedRows(x *Sparse, y []float64) iter.Seq2[Row, error] {
	order := make([]int, len(y))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(y[a] - y[b]) })
	return func(yield func(Row, error) bool) {
		for _, i := range order {
			ind32, val := x.Row(i)
			ind := make([]int, len(ind32))
			for k, j := range ind32 {
				ind[k] = int(j)
			}
			if !yield(Row{Ind: ind, Val: val, Y: y[i]}, nil) {
				return
			}
		}
	}
}

// madeRows generates rows of a GLM. A few columns are indicators, the others are normal. Offsets
// and weights are optional.
type madeRows struct {
	lik       Likelihood
	n, d      int
	dense     int // number of columns that are not indicators
	plain     bool
	seed      uint64
	asSparse  bool
	intercept float64
}

// all yields the rows.
func (r madeRows) all(yield func(Row, error) bool) {
	rng := rand.New(rand.NewPCG(r.seed, 77))
	val := make([]float64, r.d)
	for range r.n {
		row := Row{Val: val}
		eta := r.intercept
		for j := range val {
			if val[j] = rng.NormFloat64(); j >= r.dense {
				val[j] = 0
				if rng.IntN(10) == 0 {
					val[j] = 1
				}
			}
			eta += val[j] * 0.6 * math.Cos(float64(3*j))
		}
		if !r.plain {
			row.Offset, row.Weight = 0.3*rng.NormFloat64(), float64(1+rng.IntN(3))
		}
		eta += row.Offset
		switch r.lik.(type) {
		case Poisson, NegativeBinomial:
			row.Y = math.Floor(math.Exp(eta) + rng.Float64())
		case GaussianNoise, StudentT, Laplace:
			row.Y = eta + rng.NormFloat64()
		default:
			row.Y = testkit.PlusMinus(eta+rng.NormFloat64() > 0)
		}
		if r.asSparse {
			row.Ind, row.Val = []int{}, nil
			for j, v := range val {
				if v != 0 {
					row.Ind, row.Val = append(row.Ind, j), append(row.Val, v)
				}
			}
		}
		if !yield(row, nil) {
			return
		}
	}
}

// kept returns the rows in memory, with their offsets and weights.
func (r madeRows) kept() (x *mat.Dense, y, offset, weight []float64) {
	x = mat.NewDense(r.n, r.d, nil)
	for row := range r.all {
		x.SetRow(len(y), row.Val)
		y, offset, weight = append(y, row.Y), append(offset, row.Offset),
			append(weight, max(1, row.Weight))
	}
	return x, y, offset, weight
}

// columnMeans returns the column means that p compares rows with. A feature that is 0 contributes
// minus its weight times its mean.
func columnMeans(t *testing.T, p *GLMPosterior) []float64 {
	t.Helper()
	e, err := p.Explain(make([]float64, p.Cols()), nil)
	if err != nil {
		t.Fatal(err)
	}
	means, weights := make([]float64, p.Cols()), p.Mean(nil)
	for _, r := range e.Rows {
		j := slices.Index(p.Names(), r.Name)
		means[j] = -r.Mean / weights[j]
	}
	return means
}

// rowsModel is the Model of a search that reads rows in passes.
type rowsModel interface{ Passes() (n float64, all bool) }

// TestGLMRowsMemory compares means, standard deviations and ELBO with a fit to the same rows in
// memory, and checks that no bound of a run is below the gap.
func TestGLMRowsMemory(t *testing.T) {
	t.Parallel()
	full, err := NewGaussian([]float64{0.5, -1, 0.2, 0, 1, 0}, mat.NewSymDense(6, []float64{
		2, 0.3, 0, 0, 0, 0.1, 0.3, 1, 0, 0, 0, 0, 0, 0, 3, 0.5, 0, 0, 0, 0, 0.5, 1, 0, 0, 0, 0, 0,
		0, 0.2, 0, 0.1, 0, 0, 0, 0, 4}))
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range testkit.Few([]struct {
		rows madeRows
		opt  GLMOptions
	}{
		{madeRows{lik: BernoulliLogit{}, n: 12000, d: 5, dense: 2}, GLMOptions{Intercept: true}},
		{madeRows{lik: BernoulliLogit{}, n: 12000, d: 5, dense: 5},
			GLMOptions{Prior: full, Intercept: true}},
		{madeRows{lik: BernoulliLogit{}, n: 300, d: 5, dense: 3, plain: true},
			GLMOptions{PriorSD: 3}},
		{madeRows{lik: BernoulliProbit{}, n: 9000, d: 4, dense: 4},
			GLMOptions{Intercept: true, InterceptSD: 2}},
		{madeRows{lik: Poisson{}, n: 20000, d: 8, dense: 1},
			GLMOptions{Autoscale: true, PriorSD: 0.3}},
		{madeRows{lik: Poisson{}, n: 20000, d: 8, dense: 8, intercept: 2},
			GLMOptions{Intercept: true, PriorSD: 3}},
		{madeRows{lik: GaussianNoise{}, n: 15000, d: 6, dense: 3},
			GLMOptions{Autoscale: true, Intercept: true}},
		{madeRows{lik: StudentT{DF: 4, Scale: 1}, n: 10000, d: 5, dense: 5}, GLMOptions{}},
		{madeRows{lik: Laplace{}, n: 9000, d: 3, dense: 3}, GLMOptions{}},
	}, 3) {
		name := fmt.Sprintf("%d %s", i, testkit.TypeName(c.rows.lik))
		c.rows.seed = uint64(i)
		p, res := fitRows(t, c.rows.all, c.rows.d, c.rows.lik, &c.opt, &Solver{Goal: 1e-8})
		x, y, offset, weight := c.rows.kept()
		opt := c.opt
		if !c.rows.plain {
			opt.Offset, opt.Weights = offset, weight
		}
		g, err := NewGLM(x, y, c.rows.lik, &opt)
		if err != nil {
			t.Fatal(name, err)
		}
		want, in := kit.FitGLM(t, g, &Solver{Goal: 1e-10})
		if off := math.Abs(res.ELBO - in.ELBO); !(off <= 1e-9*math.Abs(in.ELBO)) ||
			res.Status != Converged && res.Status != Stalled {
			t.Errorf("%s: %v, and in memory %v", name, res, in)
		}
		m0, s0, m, s := want.Mean(nil), want.SD(nil), p.Mean(nil), p.SD(nil)
		for j := range m {
			if !(math.Abs(m[j]-m0[j]) <= 1e-4*s0[j] && math.Abs(s[j]-s0[j]) <= 1e-4*s0[j]) {
				t.Errorf("%s: weight %d is %v ± %v, in memory %v ± %v", name, j, m[j], s[j], m0[j],
					s0[j])
			}
		}
		inMemory := columnMeans(t, want)
		for j, v := range columnMeans(t, p) {
			if !(math.Abs(v-inMemory[j]) <= 1e-12) {
				t.Errorf("%s: mean of column %d is %v, in memory %v", name, j, v, inMemory[j])
			}
		}
		for _, it := range res.Trace {
			if proved := kit.FactsOf(c.rows.lik).LogConcave; proved == math.IsInf(it.GapBound, 1) ||
				proved && it.ELBO+it.GapBound < in.ELBO-in.ELBOErr {
				t.Errorf("%s, step %d: ELBO %v is proved to be within %v of the best, %v", name,
					it.K, it.ELBO, it.GapBound, in.ELBO)
			}
			if it.ELBO > in.ELBO+in.Gap+1e-9*math.Abs(in.ELBO) {
				t.Errorf("%s, step %d: ELBO %v is above %v", name, it.K, it.ELBO, in.ELBO)
			}
		}
	}
}

// TestGLMRowsBits checks that the posterior has the same bits for any number of workers, for dense
// and sparse rows, and after a run is saved and resumed.
func TestGLMRowsBits(t *testing.T) {
	t.Parallel()
	for _, dense := range testkit.Few([]int{6, 0},
		1) { // rows that are stored as dense or as sparse
		r := madeRows{lik: BernoulliLogit{}, n: 18000, d: 12, dense: dense, seed: 5}
		opt := &GLMOptions{Intercept: true}
		p, _ := fitRows(t, r.all, r.d, r.lik, opt, &Solver{Workers: 1})
		want := testkit.Saved(t, p)
		for _, workers := range testkit.Few([]int{2, 5}, 1) {
			p, _ := fitRows(t, r.all, r.d, r.lik, opt, &Solver{Workers: workers})
			if !bytes.Equal(want, testkit.Saved(t, p)) {
				t.Errorf("%d dense columns: other bits with %d workers", dense, workers)
			}
		}
		sparse := r
		sparse.asSparse = true
		if p, _ := fitRows(t, sparse.all, r.d, r.lik, opt, nil); !bytes.Equal(want,
			testkit.Saved(t, p)) {
			t.Errorf("%d dense columns: other bits if rows come as sparse ones", dense)
		}
		g, err := NewGLMRows(context.Background(), r.all, r.d, r.lik, opt)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range testkit.Few([]int{2, 1, 3}, 1) {
			_, res, err := g.Fit(context.Background(), &Solver{MaxIter: k})
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := res.Save(&b); err != nil {
				t.Fatal(err)
			}
			s := &Solver{}
			if res, err = s.LoadResult(context.Background(), &b, g); err == nil {
				_, err = s.Resume(context.Background(), res)
			}
			if err != nil {
				t.Fatal(err)
			}
			p, err := g.Posterior(res.Stepper)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(want, testkit.Saved(t, p)) {
				t.Errorf("%d dense columns: other bits when resumed after step %d", dense, k)
			}
		}
	}
}

// TestGLMRowsCancel checks that a run ends with its context and then continues bit for bit.
func TestGLMRowsCancel(t *testing.T) {
	t.Parallel()
	r := madeRows{lik: Poisson{}, n: 20000, d: 4, dense: 4, seed: 3}
	all := r.all
	g, err := NewGLMRows(context.Background(), func(yield func(Row, error) bool) { all(yield) },
		r.d, r.lik, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := g.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	seen := 0
	all = func(yield func(Row, error) bool) {
		for row := range r.all {
			if seen++; seen == r.n+5000 {
				cancel(why)
			}
			if !yield(row, nil) {
				return
			}
		}
	}
	_, res, err := g.Fit(ctx, nil)
	if !errors.Is(err, why) || res.Status != Canceled ||
		seen > r.n+2*blockRows*runtime.GOMAXPROCS(0) {
		t.Fatalf("%v after %d rows, %v", err, seen, res)
	}
	if _, err := (&Solver{}).Resume(context.Background(), res); err != nil {
		t.Fatal(err)
	}
	q, err := g.Posterior(res.Stepper)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(testkit.Saved(t, p), testkit.Saved(t, q)) {
		t.Error("other bits after a run was canceled")
	}
	if _, err := NewGLMRows(ctx, r.all, r.d, r.lik, nil); !errors.Is(err, why) ||
		!testkit.PrefixedOnce(err) {
		t.Errorf("rows were counted although the context is done: %v", err)
	}
}

// TestGLMRowsErrors checks that invalid input is an error that names the row.
func TestGLMRowsErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	few := madeRows{lik: BernoulliLogit{}, n: 50, d: 3, dense: 3}
	bad := func(at int, change func(*Row)) iter.Seq2[Row, error] {
		return func(yield func(Row, error) bool) {
			i := 0
			for row := range few.all {
				if i == at {
					change(&row)
				}
				if i++; !yield(row, nil) {
					return
				}
			}
		}
	}
	broken := errors.New("broken pipe")
	for i, c := range []struct {
		rows iter.Seq2[Row, error]
		cols int
		lik  Likelihood
		opt  *GLMOptions
		want error
		text string
	}{
		{nil, 3, nil, nil, ErrEmpty, "rows is nil"},
		{func(func(Row, error) bool) {}, 3, nil, nil, ErrEmpty, "no rows"},
		{few.all, 0, nil, nil, ErrEmpty, "column"},
		{few.all, -1, nil, nil, ErrShape, "columns is -1"},
		{few.all, 4, few.lik, nil, ErrShape, "row 0 has 3 values"},
		{bad(7, func(r *Row) { r.Y = 3 }), 3, few.lik, nil, ErrLabel, "row 7"},
		{bad(8, func(r *Row) { r.Val[1] = math.NaN() }), 3, few.lik, nil, ErrNotFinite,
			"row 8, column 1"},
		{bad(9, func(r *Row) { r.Weight = -1 }), 3, few.lik, nil, ErrParam, "row 9"},
		{func(yield func(Row, error) bool) { yield(Row{}, broken) }, 3, nil, nil, broken,
			"broken pipe"},
		{few.all, 3, few.lik, &GLMOptions{Covariance: DiagonalCovariance}, ErrParam,
			"use FullCovariance"},
		{few.all, 3, few.lik, &GLMOptions{Covariance: LowRankCovariance}, ErrParam,
			"use FullCovariance"},
		{few.all, 3, few.lik, &GLMOptions{Weights: make([]float64, 50)}, ErrParam,
			"belong to the rows"},
		{few.all, 3, few.lik, &GLMOptions{PriorSD: -1}, ErrParam, "PriorSD"},
		{few.all, 3, few.lik, &GLMOptions{Names: []string{"a"}}, ErrShape, "Names"},
		{few.all, 3, few.lik, &GLMOptions{MaxMemory: 1000}, ErrMemory, "fewer columns"},
		{few.all, 3, StudentT{DF: -1}, nil, ErrParam, "DF"},
		{few.all, 3, Softmax{Classes: 3}, nil, ErrParam, "rows"},
	} {
		_, err := NewGLMRows(ctx, c.rows, c.cols, c.lik, c.opt)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) ||
			c.want != broken && !testkit.PrefixedOnce(err) {
			t.Errorf("%d: %v, want %q and %v", i, err, c.text, c.want)
		}
	}
	all := few.all
	g, err := NewGLMRows(ctx, func(yield func(Row, error) bool) { all(yield) }, 3, few.lik, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.Fit(ctx, &Solver{StepSize: ConstantStep(1)}); !errors.Is(err, ErrParam) {
		t.Errorf("a step size: %v", err)
	}
	if _, _, err := g.Fit(ctx, &Solver{BatchSize: 10}); !errors.Is(err, ErrParam) {
		t.Errorf("a batch: %v", err)
	}
	if _, _, err := g.Fit(ctx, &Solver{BatchSize: 50}); err != nil {
		t.Errorf("a batch of all rows: %v", err)
	}
	if _, _, err := g.Fit(ctx, &Solver{Divergence: Euclidean()}); !errors.Is(err, ErrNoProx) {
		t.Errorf("a divergence: %v", err)
	}
	p, _, err := g.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, loo := g.LOO(ctx, p)
	_, psis := g.PSIS(ctx, nil, p, 10)
	_, _, certify := g.CertifyScale(ctx, 0.1, 1, 1)
	_, objective := g.Objective()
	_, check := g.PredictiveCheck(ctx, nil, p, 10, nil)
	for _, err := range []error{loo, psis, certify, objective, check} {
		if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "NewGLM ") {
			t.Errorf("%v, want an error that says to use NewGLM", err)
		}
	}
	other, err := NewGLMRows(ctx, few.all, 3, few.lik, nil)
	if err != nil {
		t.Fatal(err)
	}
	st, err := other.NewStepper(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Posterior(st); !errors.Is(err, ErrParam) {
		t.Errorf("a state of another model: %v", err)
	}
	less := few
	less.n--
	all = less.all
	if _, _, err := g.Fit(ctx, nil); !errors.Is(err, ErrShape) ||
		!strings.Contains(err.Error(), "49 rows, but 50") {
		t.Errorf("fewer rows in a later pass: %v", err)
	}
}

// TestGLMRowsLimit checks that memory does not grow with the number of rows.
func TestGLMRowsLimit(t *testing.T) {
	d := testkit.Shorter(30, 12)
	fit := func(n int) uint64 {
		r := madeRows{lik: BernoulliLogit{}, n: n, d: d, dense: d, plain: true}
		return testkit.Allocated(
			func() { fitRows(t, r.all, r.d, r.lik, nil, &Solver{MaxIter: 2, Workers: 2}) })
	}
	fit(100)
	few, many := fit(testkit.Shorter(40_000, 20_000)), fit(testkit.Shorter(160_000, 70_000))
	if float64(many) > 1.2*float64(few)+1e6 {
		t.Errorf("few rows take %d bytes in all, and many rows %d", few, many)
	}
}

// TestGLMRowsLearn checks that learning gives the same prior standard deviations and parameters of
// the likelihood as for rows in memory, and that a search is resumed bit for bit.
func TestGLMRowsLearn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, c := range testkit.Few([]struct {
		lik    Likelihood
		fixed  []string
		blocks []int
		scale  bool
	}{
		{GaussianNoise{}, nil, nil, false},
		{Poisson{}, nil, []int{0, 0, 1, 1, 1}, true},
		{NegativeBinomial{}, nil, nil, true},
		{BernoulliLogit{}, nil, nil, false},
		{GaussianNoise{}, []string{"GaussianNoise.Var"}, nil, false},
		{StudentT{}, nil, nil, false},
	}[:testkit.Longer(6, 3)], 1) {
		r := madeRows{lik: c.lik, n: 12000, d: 5, dense: 3, seed: 21}
		opt := GLMOptions{Intercept: true, Blocks: c.blocks, Autoscale: c.scale}
		search := &LearnOptions{Fixed: c.fixed}
		g, err := NewGLMRows(ctx, r.all, r.d, r.lik, &opt)
		if err != nil {
			t.Fatal(err)
		}
		_, post, learned, err := g.Learn(ctx, nil, search)
		if err != nil {
			t.Fatal(err)
		}
		x, y, offset, weight := r.kept()
		opt.Offset, opt.Weights = offset, weight
		m, err := NewGLM(x, y, r.lik, &opt)
		if err != nil {
			t.Fatal(err)
		}
		_, want, in, err := m.Learn(ctx, nil, search)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range learned.Params {
			if q := in.Params[i]; p.Name != q.Name ||
				!(math.Abs(math.Log(p.Value/q.Value)) <= 0.05*max(q.SD, 0.01)) {
				t.Errorf("%s: %s is %v, in memory %v ± %v", testkit.TypeName(c.lik), p.Name,
					p.Value,
					q.Value, q.SD)
			}
		}
		if !(math.Abs(learned.Objective-in.Objective) <= 0.01) || learned.Fit == nil ||
			!(learned.Fit.Gap <= 0.01) ||
			kit.FactsOf(c.lik).LogConcave && !(learned.Fit.GapBound <= 0.01) {
			t.Errorf("%s: objective %v, in memory %v; fit %v", testkit.TypeName(c.lik),
				learned.Objective,
				in.Objective, learned.Fit)
		}
		t.Logf("%s: %d evaluations, %v passes; %v", testkit.TypeName(c.lik), learned.Evaluations,
			learned.Cholesky, learned.Fit)
		if off := math.Abs(post.Mean(nil)[0] - want.Mean(nil)[0]); !(off <= 0.01*want.SD(nil)[0]) {
			t.Errorf("%s: a mean is %v off", testkit.TypeName(c.lik), off)
		}
		passes, all := kit.RunOf(learned.Search.Stepper).Model.(rowsModel).Passes()
		if !all || passes > 6 || !(learned.Cholesky > passes) {
			t.Errorf("%s: %v passes, %v of them over all rows", testkit.TypeName(c.lik),
				learned.Cholesky, passes)
		}
		for _, iter := range []int{2, learned.Search.K - 1} { // on the sample, and on all rows
			again := kit.ResumedSearch(t, g, search, iter)
			if !bytes.Equal(testkit.Saved(t, again), testkit.Saved(t, post)) {
				t.Errorf("%s: other bits when the search was resumed after %d steps",
					testkit.TypeName(c.lik), iter)
			}
		}
	}
}

// TestGLMRowsMany compares a fit to 50 columns, of 100,000 rows with -long, with a fit in memory. A
// million rows are in bench/rounds.
func TestGLMRowsMany(t *testing.T) {
	testkit.NotShort(t)
	r := madeRows{lik: BernoulliLogit{}, n: testkit.Longer(100_000, 30_000), d: 50, dense: 50,
		plain: true}
	_, res := fitRows(t, r.all, r.d, r.lik, nil, &Solver{Goal: 1e-6})
	x, y, _, _ := r.kept()
	g, err := NewGLM(x, y, r.lik, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, want := kit.FitGLM(t, g, nil)
	if off := math.Abs(res.ELBO - want.ELBO); !(off <= 1e-8*math.Abs(want.ELBO)) || res.Passes > 5 {
		t.Errorf("%v, and in memory %v", res, want)
	}
	p, _ := fitRows(t, Rows(x, y), r.d, r.lik, nil, &Solver{Goal: 1e-6})
	q, _ := fitRows(t, r.all, r.d, r.lik, nil, &Solver{Goal: 1e-6, Workers: 1})
	if !bytes.Equal(testkit.Saved(t, p), testkit.Saved(t, q)) {
		t.Error("other bits from a matrix than from an iterator")
	}
	t.Log(res, want)
}

// TestApproachCanceled stops fits after more and more microseconds, and checks that each continues
// to the bits of an uninterrupted fit.
func TestApproachCanceled(t *testing.T) {
	t.Parallel()
	const n, d = 20000, 5
	r := rand.New(rand.NewPCG(8, 1))
	x, y := mat.NewDense(n, d, nil), make([]float64, n)
	for i := range n {
		eta := 0.0
		for j := range d {
			x.Set(i, j, r.NormFloat64())
			eta += 0.3 * x.At(i, j)
		}
		y[i] = math.Floor(math.Exp(eta) + r.Float64())
	}
	g, err := NewGLM(x, y, Poisson{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := g.Fit(t.Context(), &Solver{Goal: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	stopped := 0
	for k := 0; k < 60; k += testkit.Shorter(3, 15) {
		s := &Solver{Goal: 0.01}
		res, err := s.Start(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(k)*200*time.Microsecond)
		next, err := s.Resume(ctx, res)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			stopped++
			if next, err = s.Resume(t.Context(), next); err != nil {
				t.Fatal(err)
			}
		}
		post, err := g.Posterior(next.Stepper)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(post.Mean(nil), want.Mean(nil)) {
			t.Fatalf("stopped after %d us: other bits", 200*k)
		}
	}
	if stopped == 0 {
		t.Error("no fit was stopped")
	}
}
