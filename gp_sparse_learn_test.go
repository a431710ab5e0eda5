package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/search"
	"github.com/pgsvi/pgsvi/internal/sparse"
	"github.com/pgsvi/pgsvi/internal/term"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// TestSparseLearnGradient checks the gradient at the best q against differences of the ELBO at the
// best q, for many kernels and likelihoods.
func TestSparseLearnGradient(t *testing.T) {
	t.Parallel()
	for _, c := range learnCases() {
		gp := c.model(t, shorter(60, 20))
		g := streamed(t, gp, gp.x.Slice(0, 6, 0, 2))
		l, err := learnerAs[*sparseGPLearner](g.Learner(nil))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		m := sparse.NewLearning(l.rows, l.sees(), sparse.Division{}, 0, fitFeatures)
		m.Fixed, m.Stages = g.z.X, []int{l.rows.N}
		m.Use(term.Crew{Workers: 1, Halt: nil})
		theta := make([]float64, len(l.space.free))
		for i, at := range l.space.free {
			c := &l.space.coords[at]
			theta[i] = c.theta(c.Value) + 0.1*math.Sin(float64(i))
		}
		at := func(theta []float64, slopes bool) search.Point {
			x, err := m.Evaluate(theta, 1e-12, math.Inf(1), slopes)
			if err != nil || math.IsInf(x.F, 0) {
				t.Fatalf("%s: at %v: %v, %v", c.name, theta, x.F, err)
			}
			return x
		}
		x := at(theta, true)
		m.Keep(false)
		for i := range theta {
			const h = 1e-4
			diff := func(h float64) float64 {
				v := theta[i]
				defer func() { theta[i] = v }()
				theta[i] = v + h
				up := at(theta, false).F
				theta[i] = v - h
				return (up - at(theta, false).F) / (2 * h)
			}
			want := (4*diff(h) - diff(2*h)) / 3
			if math.Abs(x.Grad[i]-want) > 1e-5*(1+floats.Norm(x.Grad, 2)) {
				t.Errorf("%s: derivative in %s is %v, by differences %v", c.name,
					l.space.coords[l.space.free[i]].Name, x.Grad[i], want)
			}
		}
		var e mat.EigenSym
		if !e.Factorize(x.Info, false) || e.Values(nil)[0] < -1e-6*e.Values(nil)[len(theta)-1] {
			t.Errorf("%s: the average information is not positive semidefinite", c.name)
		}
	}
}

// TestSparseCarried checks that a state carried to a nearby θ is close to the best state there. Its
// predicted gain must be a small part of the predicted gain of the uncarried weights. Under
// Gaussian noise it must be 0 if only the scale changes, because the sites are then the same.
func TestSparseCarried(t *testing.T) {
	t.Parallel()
	var all, stay float64
	k := SquaredExp{Scale: 1, Length: 1}
	for _, lik := range []Likelihood{GaussianNoise{Var: 0.2}, BernoulliLogit{}, Poisson{}} {
		// also for Gaussian noise
		response := func(f, u float64) float64 { return plusMinus(f+u > 0.5) }
		if lik == (Poisson{}) {
			response = func(f, u float64) float64 { return math.Floor(math.Exp(f) + 2*u) }
		}
		gp := learnCase{"", k, lik, response}.model(t, 300)
		g := streamed(t, gp, gp.x.Slice(0, 60, 0, 2))
		for _, to := range []SquaredExp{
			{Scale: 1.6, Length: 1}, {Scale: 1, Length: 1.2}, {Scale: 0.8, Length: 0.9},
		} {
			pass := sparse.Pass{Rows: g.rows, Z: g.z, Lik: viewOf(lik), Fit: fitFeatures,
				Workers: term.Crew{Workers: 1}}
			look := func(q *gauss.Gaussian) *sparse.Look {
				x, err := pass.At(q)
				if err != nil {
					t.Fatal(err)
				}
				return x
			}
			q := gauss.Unit(g.Rank())
			for range 30 {
				q = &look(q).Next
			}
			division := g.z.Division
			v := division.Again(kernelOf(to))
			u := v.Factored(nil, g.z.X)
			pass.Z = u
			as := look(q).Promise
			is := look(g.z.Carry(u, q.Mean, q)).Promise
			most := as
			if _, ok := lik.(GaussianNoise); ok && to.Length == k.Length {
				most = 1e-9 * as
			}
			all, stay = all+is, stay+as
			if !(is < most) {
				t.Errorf("%s to %+v: the predicted gain is %g nats, and %g if the weights stay",
					spell(lik), to, is, as)
			}
		}
	}
	if !(all < 0.15*stay) {
		t.Errorf("the total predicted gain is %g nats, and %g if the weights stay", all, stay)
	}
}

// TestSparseLearnScaleSlope checks the derivative with respect to the scale against the ELBO, also
// if K(Z, Z) is nearly singular.
func TestSparseLearnScaleSlope(t *testing.T) {
	t.Parallel()
	x, y := testkit.Wiggly(3000, 4, 1)
	g, err := NewSparseGPRows(context.Background(), Rows(x, y), 4, SquaredExp{}, BernoulliLogit{},
		&SparseGPOptions{Rank: 120})
	g = mustSparse(t, g, err)
	l, err := learnerAs[*sparseGPLearner](g.Learner(nil))
	if err != nil {
		t.Fatal(err)
	}
	m := sparse.NewLearning(l.rows, l.sees(), sparse.Division{}, 0, fitFeatures)
	m.Fixed, m.Stages = g.z.X, []int{l.rows.N}
	m.Use(term.Crew{Workers: 1})
	at := func(scale float64, slopes bool) search.Point {
		x, err := m.Evaluate([]float64{math.Log(scale), math.Log(10)}, 1e-9, math.Inf(1), slopes)
		if err != nil || math.IsInf(x.F, 0) {
			t.Fatalf("scale %v: %v, %v", scale, x.F, err)
		}
		return x
	}
	for _, scale := range []float64{10, 3000} {
		const h = 1e-2
		p := at(scale, true)
		m.Keep(false)
		want := (at(scale*math.Exp(h), false).F - at(scale*math.Exp(-h), false).F) / (2 * h)
		if math.Abs(p.Grad[0]-want) > 1e-3*(1+math.Abs(want)) {
			t.Errorf("scale %v: derivative %v, by differences %v", scale, p.Grad[0], want)
		}
	}
}

// TestSparseLearnAnything checks that learning returns an answer for any data: wide scales, equal
// rows, equal labels, inducing inputs that are equal or far outside, and fewer rows than inducing
// inputs.
func TestSparseLearnAnything(t *testing.T) {
	t.Parallel()
	rng := testRand(21)
	ctx := context.Background()
	liks := []Likelihood{BernoulliLogit{}, Poisson{}, GaussianNoise{}, StudentT{DF: 4}}
	for trial := range longer(60, 8) {
		n, d, m := 3+rng.IntN(40), 1+rng.IntN(3), 1+rng.IntN(12)
		lik := liks[trial%len(liks)]
		x, y, z := mat.NewDense(n, d, nil), make([]float64, n), mat.NewDense(m, d, nil)
		unit := math.Exp(12*rng.Float64() - 6)
		constant := rng.IntN(4) == 0
		for i := range n {
			for j := range d {
				x.Set(i, j, unit*rng.NormFloat64())
			}
			if i > 0 && rng.IntN(3) == 0 {
				x.SetRow(i, x.RawRowView(i-1))
			}
			f := math.Sin(2*x.At(i, 0)/unit) + 0.3*rng.NormFloat64()
			switch lik.(type) {
			case BernoulliLogit:
				y[i] = plusMinus(f > 0 || constant)
			case Poisson:
				y[i] = math.Floor(math.Exp(2*f) + 0.5)
			default:
				y[i] = f * math.Exp(6*rng.Float64()-3)
			}
			if constant {
				y[i] = 1
			}
		}
		for i := range m {
			for j := range d {
				z.Set(i, j, unit*float64(1+9*(trial%2))*rng.NormFloat64())
			}
			if i > 0 && rng.IntN(4) == 0 {
				z.SetRow(i, z.RawRowView(i-1))
			}
		}
		opt := &SparseGPOptions{Inducing: z}
		if trial%3 == 0 {
			opt = &SparseGPOptions{Rank: m}
		}
		var lengths []float64
		if trial%5 == 0 {
			lengths = make([]float64, d)
		}
		k := Matern52{Lengths: lengths}
		kept, err := NewSparseGP(x, y, k, lik, opt)
		kept = mustSparse(t, kept, err)
		rows, err := NewSparseGPRows(ctx, Rows(x, y), d, k, lik, opt)
		rows = mustSparse(t, rows, err)
		for _, g := range []*SparseGP{kept, rows} {
			_, post, learned, err := g.Learn(ctx, nil, nil)
			if err != nil {
				t.Errorf("trial %d, %T, %d×%d, %d inducing inputs, unit %.3g: %v", trial, lik, n, d,
					m, unit, err)
				continue
			}
			if learned.Fit == nil { // equal rows let the noise decrease forever
				if learned.Search.Status != PassLimit || testFacts(lik).LogConcave {
					t.Errorf("trial %d, %T: search ended as %v after %d evaluations", trial, lik,
						learned.Search.Status, learned.Evaluations)
				}
				continue
			}
			// Student's t has several optima, and the search may end at any of them.
			if diff := learned.Fit.ELBO + learned.LogPrior + learned.Objective; !(diff > -0.01) ||
				diff > 0.2 && testFacts(lik).LogConcave {
				t.Errorf("trial %d, %T: ELBO %v and log prior %v, objective %v: %v", trial, lik,
					learned.Fit.ELBO, learned.LogPrior, learned.Objective, diff)
			}
			m, v := post.At(x).Latent(nil, nil)
			for i := range m {
				if math.IsNaN(m[i]) || !(v[i] >= 0) {
					t.Fatalf("trial %d: row %d is %v ± %v", trial, i, m[i], v[i])
				}
			}
		}
	}
}

// moveCases returns kernels with and without derivatives in their inputs.
func moveCases() map[string]Kernel {
	return map[string]Kernel{
		"SquaredExp": SquaredExp{Scale: 1.2, Length: 0.8},
		"ARD":        Matern52{Scale: 1.1, Lengths: []float64{0.7, 1.4}},
		"sum":        Sum{RationalQuadratic{Length: 0.9}, Linear{}, White{Scale: 0.1}},
		"product":    Product{Matern32{Length: 2}, Periodic{Period: 3, Length: 1.5}},
	}
}

// TestMoveGradient checks the gradient in the inducing inputs at the best q against differences of
// the ELBO.
func TestMoveGradient(t *testing.T) {
	t.Parallel()
	for name, k := range moveCases() {
		for _, lik := range few([]Likelihood{StudentT{DF: 4, Scale: 0.5}, BernoulliLogit{}}, 1) {
			gp := toyGP(t, shorter(40, 15), k, lik, 4)
			g := streamed(t, gp, gp.x.Slice(0, 5, 0, 2))
			crew := term.Crew{Workers: 1}
			m := sparse.NewMove(g.rows, viewOf(g.lik), fitFeatures, crew,
				sparse.Undivided(kernelOf(k)))
			elbo := func(z *mat.Dense) float64 {
				p := &sparse.Pass{Rows: g.rows, Lik: viewOf(g.lik), Workers: crew}
				p.Z = sparse.Undivided(kernelOf(k)).Factored(nil, z)
				a := sparse.Ascent{Pass: p}
				a.Start(gauss.Unit(5))
				for range 200 {
					if err := a.Move(); err != nil {
						t.Fatal(err)
					}
					if a.Gap() < 1e-10 || a.Stuck() {
						break
					}
				}
				return a.Look.ELBO
			}
			z := mat.DenseCopyOf(g.z.X)
			x, err := m.At(z, gauss.Unit(5))
			if err != nil || x == nil {
				t.Fatalf("%s, %T: %v", name, lik, err)
			}
			for i := range x.Grad {
				const h = 1e-4
				up, down := mat.DenseCopyOf(z), mat.DenseCopyOf(z)
				up.Set(i/2, i%2, z.At(i/2, i%2)+h)
				down.Set(i/2, i%2, z.At(i/2, i%2)-h)
				want := (elbo(up) - elbo(down)) / (2 * h) * m.Unit[i%2]
				if math.Abs(x.Grad[i]-want) > 2e-2*(0.1+floats.Norm(x.Grad, math.Inf(1))) {
					t.Errorf("%s, %T: derivative in element %d is %v, by differences %v", name, lik,
						i, x.Grad[i], want)
				}
			}
		}
	}
}

// waves returns n rows in one dimension whose labels follow a smooth function.
func waves(n int) (x *mat.Dense, y []float64) {
	rng := testRand(2)
	x, y = mat.NewDense(n, 1, nil), make([]float64, n)
	for i := range y {
		at := 10 * rng.Float64()
		x.Set(i, 0, at)
		y[i] = plusMinus(rng.Float64() < 1/(1+math.Exp(-3*math.Sin(at))))
	}
	return x, y
}

// TestSparseGPNotKept checks that a SparseGP whose features exceed the memory limit reads its rows
// in every pass, that all its methods work, and that a model that keeps its features has the same
// answers.
func TestSparseGPNotKept(t *testing.T) {
	notShort(t)
	t.Parallel()
	ctx := context.Background()
	x, y := waves(30_000)
	k := SquaredExp{Scale: 3, Length: 1.5}
	kept, err := NewSparseGP(x, y, k, BernoulliLogit{}, &SparseGPOptions{Rank: 50})
	kept = mustSparse(t, kept, err)
	g, err := NewSparseGP(x, y, k, BernoulliLogit{}, &SparseGPOptions{Rank: 50, MaxMemory: 15e6})
	g = mustSparse(t, g, err)
	if kept.rows != nil || g.rows == nil || g.lin.X != nil {
		t.Fatal("the wrong model reads its rows in every pass")
	}
	if g.Len() != 30_000 || g.Rank() > 50 || math.Abs(g.Residual()-kept.Residual()) > 1e-3 {
		t.Errorf("%d rows, rank %d, residual %g, kept %g", g.Len(), g.Rank(), g.Residual(),
			kept.Residual())
	}
	want, a := fitSparse(t, kept, nil)
	post, b := fitSparse(t, g, nil)
	if d := a.ELBO - b.ELBO; math.Abs(d) > a.GapBound+b.GapBound+1e-3 {
		t.Errorf("ELBO %v, kept %v: bounds %g and %g", b.ELBO, a.ELBO, b.GapBound, a.GapBound)
	}
	at := mat.NewDense(5, 1, []float64{0, 2, 5, 9.9, 30})
	m, v := post.At(at).Latent(nil, nil)
	wm, wv := want.At(at).Latent(nil, nil)
	for i := range m {
		if math.Abs(m[i]-wm[i]) > 0.02*math.Sqrt(wv[i]) || math.Abs(math.Log(v[i]/wv[i])) > 0.02 {
			t.Errorf("row %d is %g ± %g, kept %g ± %g", i, m[i], v[i], wm[i], wv[i])
		}
	}
	if loo, err := g.LOO(ctx, post); err != nil || len(loo.Pointwise) != 30_000 {
		t.Errorf("LOO: %v", err)
	}
	for _, s := range []*Solver{{StepSize: ConstantStep(0.1), BatchSize: 100, MaxPasses: 1},
		{Divergence: ReverseKL()}} {
		if _, _, err := g.Fit(ctx, s); err == nil || !strings.Contains(err.Error(), "MaxMemory") {
			t.Errorf("%+v: %v", s, err)
		}
	}
	if testing.Short() {
		return
	}
	learned, _, l, err := g.Learn(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if learned.rows == nil || learned.x == nil || !(l.Fit.ELBO > b.ELBO) {
		t.Errorf("learned ELBO %v after %v", l.Fit.ELBO, b.ELBO)
	}
	if moved, err := g.MoveInducing(ctx, 3); err != nil || moved.x == nil {
		t.Errorf("moved: %v", err)
	}
}

// TestSparseGPNotKeptLOO checks that LOO of rows whose features are not kept equals LOO of rows
// with kept features.
func TestSparseGPNotKeptLOO(t *testing.T) {
	gp := toyGP(t, 60, SquaredExp{}, BernoulliLogit{}, 3)
	z := gp.x.Slice(0, 10, 0, 2)
	kept, err := NewSparseGP(gp.x, gp.terms.Y, gp.kernel, BernoulliLogit{},
		&SparseGPOptions{Inducing: z})
	kept = mustSparse(t, kept, err)
	g := &SparseGP{lik: kept.lik, opt: kept.opt, x: kept.x, terms: kept.terms,
		rows: sparse.RowsOf(kept.x, kept.terms)}
	if err := g.pass(nil, gp.kernel); err != nil {
		t.Fatal(err)
	}
	post, _ := fitSparse(t, kept, nil)
	a, err := kept.LOO(context.Background(), post)
	if err != nil {
		t.Fatal(err)
	}
	b, err := g.LOO(context.Background(), post)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.Pointwise, b.Pointwise) {
		t.Errorf("log-probabilities %v, kept %v", b.Pointwise, a.Pointwise)
	}
	if _, err := streamed(t, gp, z).LOO(context.Background(), post); !errors.Is(err, ErrParam) {
		t.Errorf("LOO of rows that are not kept: %v", err)
	}
}

// TestSparseGPManyRows checks that a SparseGP with many rows uses little memory by default, and is
// the same on any number of cores.
func TestSparseGPManyRows(t *testing.T) {
	if testing.Short() || testkit.Race {
		t.Skip("slow")
	}
	x, y := waves(80_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var elbo [2]float64
	for i, procs := range []int{1, 2} {
		func() {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			g, err := NewSparseGP(x, y, SquaredExp{Scale: 3, Length: 1.5}, BernoulliLogit{}, nil)
			g = mustSparse(t, g, err)
			_, res := fitSparse(t, g, nil)
			elbo[i] = res.ELBO
			if g.rows == nil || !(g.Residual() < 1e-2) {
				t.Errorf("rank %d, residual %g, kept: %v", g.Rank(), g.Residual(), g.rows == nil)
			}
		}()
	}
	runtime.ReadMemStats(&after)
	if elbo[0] != elbo[1] {
		t.Errorf("ELBO %v on one core, %v on two", elbo[0], elbo[1])
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 400e6 {
		t.Errorf("%d bytes for two fits", took)
	}
}

// dividedCases returns kernels with terms that are represented exactly.
func dividedCases() []Kernel {
	return []Kernel{
		Linear{Scales: []float64{0.7, 1.4}},
		Sum{Linear{Scale: 0.8}, Constant{Scale: 0.5}, White{Scale: 0.2}},
		Sum{SquaredExp{Scale: 1.2, Length: 0.8}, Linear{Scale: 0.8},
			Sum{Constant{Scale: 1.5}, Matern52{Length: 2}}, White{Scale: 0.2}},
	}
}

// TestDividedGradient compares the derivatives with respect to hyperparameters and inducing inputs
// with differences, for kernels with terms that are represented exactly.
func TestDividedGradient(t *testing.T) {
	t.Parallel()
	for _, k := range dividedCases() {
		for _, lik := range []Likelihood{BernoulliLogit{}, GaussianNoise{Var: 0.3}} {
			gp := toyGP(t, shorter(50, 20), k, lik, 4)
			g := streamed(t, gp, gp.x.Slice(0, 5, 0, 2))
			l, err := learnerAs[*sparseGPLearner](g.Learner(nil))
			if err != nil {
				t.Fatal(err)
			}
			z := mat.DenseCopyOf(gp.x.Slice(0, 5, 0, 2))
			m := sparse.NewLearning(l.rows, l.sees(), divided(k, 2), 0, fitFeatures)
			m.Fixed, m.Stages = z, []int{l.rows.N}
			m.Use(term.Crew{Workers: 1, Halt: nil})
			theta := make([]float64, len(l.space.free))
			for i, at := range l.space.free {
				c := &l.space.coords[at]
				theta[i] = c.theta(c.Value) + 0.1*math.Sin(float64(i))
			}
			at := func(theta []float64, slopes bool) search.Point {
				x, err := m.Evaluate(theta, 1e-12, math.Inf(1), slopes)
				if err != nil || math.IsInf(x.F, 0) {
					t.Fatalf("%v: at %v: %v, %v", k, theta, x.F, err)
				}
				return x
			}
			x := at(theta, true)
			m.Keep(false)
			for i := range theta {
				const h = 1e-3
				up, down := slices.Clone(theta), slices.Clone(theta)
				up[i] += h
				down[i] -= h
				want := (at(up, false).F - at(down, false).F) / (2 * h)
				if math.Abs(x.Grad[i]-want) > 1e-4*(1+floats.Norm(x.Grad, 2)) {
					t.Errorf("%v, %T: derivative %d is %v, by differences %v", k, lik, i, x.Grad[i],
						want)
				}
			}
			var e mat.EigenSym
			if !e.Factorize(x.Info, false) || e.Values(nil)[0] < -1e-6*e.Values(nil)[len(theta)-1] {
				t.Errorf("%v: the average information is not positive semidefinite", k)
			}
			v := divided(k, 2)
			if !v.Open {
				continue
			}
			move := sparse.NewMove(g.rows, viewOf(lik), fitFeatures, term.Crew{Workers: 1}, v)
			q := gauss.Unit(v.Wholes() + 5)
			p, err := move.At(z, q)
			if err != nil || p == nil {
				t.Fatalf("%v: %v", k, err)
			}
			for i := range p.Grad {
				const h = 1e-3
				elbo := func(h float64) float64 {
					to := mat.DenseCopyOf(z)
					to.Set(i/2, i%2, z.At(i/2, i%2)+h)
					x, err := move.At(to, gauss.Unit(v.Wholes()+5))
					if err != nil || x == nil {
						t.Fatalf("%v: %v", k, err)
					}
					return x.ELBO
				}
				if want := (elbo(h) - elbo(-h)) / (2 * h) * move.Unit[i%2]; math.Abs(
					p.Grad[i]-want) > 2e-2*(0.1+floats.Norm(p.Grad, math.Inf(1))) {
					t.Errorf("%v, %T: derivative in element %d is %v, by differences %v", k, lik, i,
						p.Grad[i], want)
				}
			}
		}
	}
}

// TestDividedPosterior checks posteriors whose kernel has terms that are represented exactly. With
// all rows as inducing inputs the posterior and its terms must equal the dense GP. A saved
// posterior must have the same bits. Other inducing inputs and later rows must change only the
// values that depend on them.
func TestDividedPosterior(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, k := range dividedCases() {
		if sum, ok := k.(Sum); ok { // noise is not part of q
			k = sum[:len(sum)-1]
		}
		gp := toyGP(t, 30, k, BernoulliLogit{}, 6)
		want, dense := mustFit(t, gp, nil)
		fit := func(gp *GP) *SparseGPPosterior {
			g := &SparseGP{lik: likOf(gp.terms), x: gp.x, terms: gp.terms}
			if err := g.keepAmong(nil, divided(k, 2), gp.x, gp.Len()); err != nil {
				t.Fatal(err)
			}
			p, res := fitSparse(t, g, &Solver{Goal: 1e-9})
			if gp.Len() == 30 && math.Abs(res.ELBO-dense.ELBO) > 1e-6 {
				t.Errorf("%v: ELBO %v, want %v", k, res.ELBO, dense.ELBO)
			}
			return p
		}
		p := fit(gp)
		at := mat.NewDense(4, 2, []float64{0, 0, 1, -1, 3, 2, 40, -40})
		same := func(name string, a, b *Prediction, tol float64) {
			t.Helper()
			m, v := a.Latent(nil, nil)
			wm, wv := b.Latent(nil, nil)
			for i := range m {
				if math.Abs(m[i]-wm[i]) > tol*(1+math.Abs(wm[i])) ||
					math.Abs(v[i]-wv[i]) > tol*(1+wv[i]) {
					t.Errorf("%v, %s: row %d is %g ± %g, want %g ± %g", k, name, i, m[i], v[i],
						wm[i], wv[i])
				}
			}
		}
		same("posterior", p.At(at), want.At(at), 1e-5)
		if sum, ok := k.(Sum); ok {
			for i := range sum {
				same(fmt.Sprint("term ", i), p.Part(i, at), want.Part(i, at), 1e-5)
			}
		}
		var file bytes.Buffer
		if err := p.Save(&file); err != nil {
			t.Fatal(err)
		}
		loaded, err := Load[*SparseGPPosterior](&file)
		if err != nil {
			t.Fatal(err)
		}
		same("file", loaded.At(at), p.At(at), 0)
		first := *gp
		first.x, first.terms = gp.x.Slice(0, 15, 0, 2).(*mat.Dense),
			gp.terms.Sub(slices.Collect(func(yield func(int) bool) {
				for i := range 15 {
					if !yield(i) {
						return
					}
				}
			}))
		half := fit(&first)
		other, err := half.WithInducing(gp.x)
		if err != nil {
			t.Fatal(err)
		}
		same("more inducing inputs", other.At(at), half.At(at), 1e-5)
		all, err := other.Update(ctx, Rows(gp.x.Slice(15, 30, 0, 2), gp.terms.Y[15:]))
		if err != nil {
			t.Fatal(err)
		}
		near := at.Slice(0, 3, 0, 2) // far away the order of rows matters
		same("rows later", all.At(near), want.At(near), 0.1)
	}
}

// TestSparseLearnRaw checks that hyperparameters can be learned next to a column in raw units. The
// ELBO must be the ELBO of the dense GP with the learned kernel.
func TestSparseLearnRaw(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	x, y := testkit.RawClassifier(60, 1e6)
	k := Sum{Linear{Scales: []float64{1e-6, 1, 1}}, Constant{}}
	kept, err := NewSparseGP(x, y, k, BernoulliLogit{}, nil)
	kept = mustSparse(t, kept, err)
	rows, err := NewSparseGPRows(ctx, Rows(x, y), 3, k, BernoulliLogit{}, nil)
	rows = mustSparse(t, rows, err)
	for i, g := range []*SparseGP{kept, rows} {
		learned, _, l, err := g.Learn(ctx, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		gp, err := NewGP(x, y, kernelIn(learned.z.Kernel), BernoulliLogit{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, want := mustFit(t, gp, nil)
		if short := want.ELBO - l.Fit.ELBO; math.Abs(short) > l.Fit.GapBound+1e-6 {
			t.Errorf("model %d: %.3g nats short of the dense GP, bound %.2g", i, short,
				l.Fit.GapBound)
		}
		if moved, err := learned.MoveInducing(ctx, 2); err != nil || moved != learned {
			t.Errorf("model %d: inducing inputs of a model without any are moved: %v", i, err)
		}
	}
}

// In a stage whose rows count for all rows, the gradient is that of the objective, by differences.
// Under Gaussian noise the curvatures do not change with the kernel, so that the slopes of the
// overfit are exact, too.
func TestSparseLearnSampleGradient(t *testing.T) {
	t.Parallel()
	gp := learnCase{"", SquaredExp{Scale: 1.2, Length: 0.8}, GaussianNoise{Var: 0.3},
		func(f, u float64) float64 { return f + u - 0.5 }}.model(t, 120)
	g := streamed(t, gp, gp.x.Slice(0, 12, 0, 2))
	l, err := learnerAs[*sparseGPLearner](g.Learner(nil))
	if err != nil {
		t.Fatal(err)
	}
	m := sparse.NewLearning(l.rows, l.sees(), sparse.Division{}, 0, fitFeatures)
	m.Fixed, m.Stages = g.z.X, []int{20, 40, l.rows.N}
	m.Use(term.Crew{Workers: 1})
	if same, ok := m.Advance(); same || !ok {
		t.Fatalf("the first stage is followed by one that is the same %v, if at all: %v", same, ok)
	}
	theta := []float64{0.1, -0.2, -1}
	at := func(theta []float64) search.Point {
		x, err := m.Evaluate(theta, 1e-12, math.Inf(1), true)
		if err != nil || math.IsInf(x.F, 0) {
			t.Fatalf("at %v: %v, %v", theta, x.F, err)
		}
		return x
	}
	x := at(theta)
	for i := range 2 { // of the kernel
		const h = 1e-4
		up, down := slices.Clone(theta), slices.Clone(theta)
		up[i] += h
		down[i] -= h
		want := (at(up).F - at(down).F) / (2 * h)
		if math.Abs(x.Grad[i]-want) > 1e-5*(1+floats.Norm(x.Grad, 2)) {
			t.Errorf("derivative %d is %v, by differences %v", i, x.Grad[i], want)
		}
	}
}

// The objective of rows that count for all rows, with the overfit, is on average over all such
// parts of the data, nearly that of all rows.
func TestSparseLearnSampleObjective(t *testing.T) {
	t.Parallel()
	const n, part = 4000, 800
	x, y := testkit.Wiggly(n, 2, 0.4)
	g, err := NewSparseGPRows(t.Context(), Rows(x, y), 2, SquaredExp{}, BernoulliLogit{},
		&SparseGPOptions{Inducing: x.Slice(0, 40, 0, 2)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := learnerAs[*sparseGPLearner](g.Learner(nil))
	if err != nil {
		t.Fatal(err)
	}
	var off, overfit float64
	for first := 0; first < n; first += part {
		rows := &sparse.Rows{N: n, Cols: 2, X: mat.NewDense(n, 2, nil)}
		for i := range n { // a part of the rows first
			from := (first + i) % n
			rows.X.SetRow(i, x.RawRowView(from))
			rows.Y = append(rows.Y, y[from])
		}
		m := sparse.NewLearning(rows, l.sees(), sparse.Division{}, 0, fitFeatures)
		m.Fixed, m.Stages = g.z.X, []int{400, part, n}
		m.Use(term.Crew{Workers: 1})
		var f [2]float64
		for i := range f {
			m.Advance()
			p, err := m.Evaluate([]float64{math.Log(3), math.Log(0.4)}, 1e-6, math.Inf(1), false)
			if err != nil {
				t.Fatal(err)
			}
			m.Keep(true)
			if f[i] = p.F; i == 0 {
				overfit += (p.F + m.Best.Look.ELBO) * part / n
			}
		}
		off += (f[0] - f[1]) * part / n
	}
	t.Logf("the objective is off by %.1f nats on average, of an overfit of %.1f", off, overfit)
	if !(overfit > 20 && math.Abs(off) < 0.4*overfit) {
		t.Errorf("the objective is off by %v nats, of an overfit of %v", off, overfit)
	}
}
