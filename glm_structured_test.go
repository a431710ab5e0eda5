package pgsvi

import (
	"bufio"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// structuredFit fits g and returns the result. The fit must converge with an ELBO that never falls.
func structuredFit(t testing.TB, g *GLM, s *Solver) (*GLMPosterior, *Result) {
	t.Helper()
	p, res, err := g.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != Converged {
		t.Errorf("%v after %v passes, gap %v of %v", res.Status, res.Passes, res.Gap, res.ELBO)
	}
	for k := 1; k < len(res.Trace); k++ {
		if a, b := res.Trace[k-1].ELBO, res.Trace[k].ELBO; b < a-1e-13*math.Abs(a) {
			t.Errorf("ELBO fell from %v to %v at iteration %d", a, b, k+1)
		}
	}
	return p, res
}

func mustGLM(t testing.TB, x mat.Matrix, y []float64, lik Likelihood, opt GLMOptions) *GLM {
	t.Helper()
	g, err := NewGLM(x, y, lik, &opt)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// plainELBO computes the ELBO of a diagonal q directly.
func plainELBO(g *GLM, mean, v []float64) float64 {
	var s float64
	row := make([]float64, g.dim())
	for i := range g.Len() {
		g.lin.X.Dense1(row, i)
		var m, q float64
		for j, x := range row {
			m += x * mean[j]
			q += x * x * v[j]
		}
		s += g.lin.Terms.Expectation(i, m, q).Value
	}
	prior, err := g.lin.Prior.State()
	if err != nil {
		return math.NaN()
	}
	d := g.dim()
	kl := -prior.LogDet - float64(d)
	for i := range d {
		kl += prior.P[i*d+i]*v[i] - math.Log(v[i])
		for j := range d {
			kl += dense.SymmetricAt(prior.P, d, i, j) * mean[i] * mean[j]
		}
	}
	return s - 0.5*kl
}

func TestStructuredOptimum(t *testing.T) {
	x, y := testkit.StructuredData(40, 5, 1)
	prior, err := NewGaussian([]float64{1, 0, -1, 0, 2},
		mat.NewSymDense(5, []float64{2, .5, 0, 0, 0, .5, 1, 0, 0, 0, 0, 0, 3, 1, 0, 0, 0, 1, 1, 0,
			0, 0, 0, 0, 1}))
	if err != nil {
		t.Fatal(err)
	}
	for _, opt := range []GLMOptions{{}, {Prior: prior}, {PriorSD: 30}} {
		for _, lik := range []Likelihood{BernoulliLogit{}, StudentT{DF: 3}} {
			opt.Covariance = DiagonalCovariance
			g := mustGLM(t, x, y, lik, opt)
			_, res := structuredFit(t, g, &Solver{Converger: GapBelow(1e-15, 0)})
			mean, cov, _ := algOf[site.Weighted](res.Stepper).Weights()
			v := make([]float64, 5)
			cov.Diag(v)
			if e := plainELBO(g, mean, v); math.Abs(e-res.ELBO) > 1e-11*math.Abs(e) {
				t.Errorf("%T: ELBO %v, computed anew %v", lik, res.ELBO, e)
			}
			for j := range v {
				for _, p := range [][]float64{mean, v} {
					at, h := p[j], 1e-4*math.Sqrt(v[j])
					if &p[0] == &v[0] {
						h = 1e-4 * v[j]
					}
					p[j] = at + h
					up := plainELBO(g, mean, v)
					p[j] = at - h
					down := plainELBO(g, mean, v)
					p[j] = at
					// The tolerance is per standard deviation, or relative.
					if slope := (up - down) / 2e-4; math.Abs(slope) > 2e-6 {
						t.Errorf("%T: slope %v in weight %d", lik, slope, j)
					}
				}
			}
			if opt.Prior != nil {
				continue // the Objective has a full q
			}
			o, err := g.Objective()
			if err != nil {
				t.Fatal(err)
			}
			or, err := (&Solver{MaxPasses: 5000}).Run(context.Background(), o)
			if err != nil || math.Abs(or.ELBO-res.ELBO) > 1e-8*(1+math.Abs(res.ELBO)) {
				t.Errorf("%T: ELBO %v, of the Objective %v (%v, %v)", lik, res.ELBO, or.ELBO,
					or.Status, err)
			}
		}
	}
}

// TestMeanFieldPGStep computes the step of the paper with dense matrices.
func TestMeanFieldPGStep(t *testing.T) {
	x, y := testkit.StructuredData(30, 4, 9)
	for _, update := range []Coordinates{MeanParams, MeanCov} {
		g := mustGLM(t, x, y, BernoulliLogit{},
			GLMOptions{Covariance: DiagonalCovariance, Coordinates: update, PriorSD: 2})
		st, err := g.NewStepper(context.Background(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		m, prec := make([]float64, 4), []float64{.25, .25, .25, .25}
		const beta, prior = 0.3, 0.25
		const r = 1 / (1 + beta)
		for k, batch := range [][]int{{0, 1, 2}, {3, 17}, nil, {5}} {
			rows := batch
			if batch == nil {
				for i := range y {
					rows = append(rows, i)
				}
			}
			alpha, gamma := make([]float64, 4), make([]float64, 4)
			scale := float64(len(y)) / float64(len(rows))
			for _, i := range rows {
				var eta, v float64
				for j := range m {
					eta += x.At(i, j) * m[j]
					v += x.At(i, j) * x.At(i, j) / prec[j]
				}
				e := ExpectLogProb(BernoulliLogit{}, y[i], eta, v)
				for j := range m {
					alpha[j] -= scale * e.D1 * x.At(i, j)
					gamma[j] -= scale * e.D2 * x.At(i, j) * x.At(i, j)
				}
			}
			for j := range m {
				next := r*prec[j] + (1-r)*(prior+gamma[j])
				metric := next
				if update == MeanCov {
					metric = (1-r)*prior + r*prec[j]
				}
				m[j] -= (1 - r) / metric * (prior*m[j] + alpha[j])
				prec[j] = next
			}
			if _, err := st.Step(context.Background(), nil, batch, beta); err != nil {
				t.Fatal(err)
			}
			mean, cov, _ := algOf[site.Weighted](st).Weights()
			v := make([]float64, 4)
			cov.Diag(v)
			for j := range m {
				if math.Abs(mean[j]-m[j]) > 1e-12 || math.Abs(v[j]*prec[j]-1) > 1e-12 {
					t.Errorf("step %d, weight %d: N(%v, %v), want N(%v, %v)", k, j, mean[j], v[j],
						m[j], 1/prec[j])
				}
			}
			if e, _ := elboOf(st, nil); math.Abs(e-plainELBO(g, mean, v)) > 1e-11*math.Abs(e) {
				t.Errorf("ELBO %v, computed anew %v", e, plainELBO(g, mean, v))
			}
		}
		// A run with a step size approaches the optimum, and a run without one continues from
		// there.
		_, want := structuredFit(t, g, nil)
		res, err := (&Solver{StepSize: ConstantStep(0.5), MaxPasses: 100}).Resume(
			context.Background(), &Result{Stepper: st})
		if err != nil || math.Abs(res.ELBO-want.ELBO) > 1e-3 {
			t.Errorf("%v: ELBO %v with a step size, %v without (%v)", update, res.ELBO, want.ELBO,
				err)
		}
		if res, err = (&Solver{}).Resume(context.Background(), &Result{Stepper: st}); err != nil ||
			math.Abs(res.ELBO-want.ELBO) > 1e-9 || res.Status != Converged {
			t.Errorf("ELBO %v after both, %v at once (%v, %v)", res.ELBO, want.ELBO, res.Status,
				err)
		}
	}
}

// TestLowRankCov compares every method with a dense inverse.
func TestLowRankCov(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 11))
	const d, k = 7, 3
	c := gauss.NewLowRank(d, k)
	p := mat.NewSymDense(d, nil)
	for j := range c.D {
		c.D[j] = 0.5 + rng.Float64()
		for a := range k {
			c.U[j*k+a] = rng.NormFloat64()
		}
	}
	for i := range d {
		for j := range i + 1 {
			v := floats.Dot(c.U[i*k:(i+1)*k], c.U[j*k:(j+1)*k])
			if i == j {
				v += c.D[i]
			}
			p.SetSym(i, j, v)
		}
	}
	if !c.Factor() {
		t.Fatal("not positive definite")
	}
	var chol mat.Cholesky
	chol.Factorize(p)
	var want mat.SymDense
	if err := chol.InverseTo(&want); err != nil {
		t.Fatal(err)
	}
	if got := chol.LogDet(); math.Abs(got-c.LogDet) > 1e-12 {
		t.Errorf("log determinant %v, want %v", c.LogDet, got)
	}
	if !mat.EqualApprox(c.Sym(), &want, 1e-12) {
		t.Error("sym")
	}
	diag := make([]float64, d)
	c.Diag(diag)
	x, _ := testkit.StructuredData(9, d, 12)
	index := []int{4, 0, 8}
	for _, g := range []*design.Matrix{newDesign(x, false), newDesign(SparseOf(x), false)} {
		v := make([]float64, len(index))
		c.Variances(v, g, index)
		for a, i := range index {
			row := x.RowView(i)
			if q := mat.Inner(row, &want, row); math.Abs(v[a]-q) > 1e-12 {
				t.Errorf("variance of row %d is %v, want %v", i, v[a], q)
			}
		}
	}
	s, err := c.State(nil)
	if err != nil {
		t.Fatal(err)
	}
	if !mat.EqualApprox(dense.FullSym(s.P, d), p, 1e-12) || math.Abs(s.LogDet-c.LogDet) > 1e-12 {
		t.Error("state")
	}
	const draws = 200000
	sum := mat.NewSymDense(d, nil)
	for range draws {
		w := make([]float64, d)
		if err := c.Draw(w, rng); err != nil {
			t.Fatal(err)
		}
		sum.SymRankOne(sum, 1./draws, mat.NewVecDense(d, w))
	}
	for i := range d {
		if math.Abs(diag[i]-want.At(i, i)) > 1e-12 {
			t.Errorf("variance of weight %d is %v, want %v", i, diag[i], want.At(i, i))
		}
		for j := range i + 1 {
			e := math.Sqrt((want.At(i, i)*want.At(j, j) + want.At(i, j)*want.At(i, j)) / draws)
			if diff := sum.At(i, j) - want.At(i, j); math.Abs(diff) > 5*e {
				t.Errorf("covariance (%d, %d) of draws is off by %.1f standard errors", i, j,
					diff/e)
			}
		}
	}
}

// TestLowRankGradient compares the gradient in (log e, U) with differences.
func TestLowRankGradient(t *testing.T) {
	x, y := testkit.StructuredData(40, 6, 13)
	g := mustGLM(t, x, y, BernoulliLogit{}, GLMOptions{})
	f := site.NewLowRankFamily([]float64{1, 2, 3, 1, 2, 3}, 2)
	rng := rand.New(rand.NewPCG(1, 14))
	delta, w := make([]float64, f.Size()), make([]float64, len(y))
	for i := range delta {
		delta[i] = rng.NormFloat64()
	}
	for i := range w {
		w[i] = rng.Float64()
	}
	f.Move(1, delta)
	f.Accept()
	a := &site.WeightHessian{X: g.lin.X, Prior: &g.lin.Prior}
	a.Set(w)
	value := func(i int, h float64) float64 {
		e := make([]float64, f.Size())
		e[i] = h
		f.Move(1, e)
		v := make([]float64, len(y))
		f.Variances(v, g.lin.X, &design.Work{})
		return f.Divergence(&g.lin.Prior) + 0.5*floats.Dot(w, v)
	}
	grad := make([]float64, f.Size())
	f.Gradient(grad, a)
	for i, want := range grad {
		if got := (value(i, 1e-5) - value(i, -1e-5)) / 2e-5; math.Abs(got-want) > 1e-7*(1+math.Abs(want)) {
			t.Errorf("coordinate %d: %v, by differences %v", i, want, got)
		}
	}
}

func readA9a(t testing.TB) (*Sparse, []float64) {
	t.Helper()
	in := bufio.NewScanner(open(t, filepath.Join(sharedData(t), "a9a", "a9a.gz")))
	x := NewSparse(123)
	var y []float64
	for in.Scan() {
		fields := strings.Fields(in.Text())
		label, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			t.Fatal(err)
		}
		var ind []int
		var val []float64
		for _, f := range fields[1:] {
			a, b, _ := strings.Cut(f, ":")
			j, err1 := strconv.Atoi(a)
			v, err2 := strconv.ParseFloat(b, 64)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			ind, val = append(ind, j-1), append(val, v)
		}
		if err := x.Append(ind, val); err != nil {
			t.Fatal(err)
		}
		y = append(y, label)
	}
	return x, y
}

func TestStructuredA9a(t *testing.T) {
	t.Parallel()
	long(t)
	x, y := readA9a(t)
	full, _ := structuredFit(t, mustGLM(t, x, y, BernoulliLogit{}, GLMOptions{}), nil)
	const optimum = 10724.99614504753
	for _, c := range []struct {
		opt      GLMOptions
		gap, off float64 // nats below the full optimum, with tolerance
		ratio    float64 // mean ratio of the sds to the sds of the full fit, to 0.05
	}{
		{GLMOptions{Covariance: DiagonalCovariance}, 51.70, 0.05, 0.495},
		{GLMOptions{Covariance: LowRankCovariance}, 16.88, 0.5, 0.645}, // a local optimum
	} {
		start := time.Now()
		p, res := structuredFit(t, mustGLM(t, x, y, BernoulliLogit{}, c.opt), nil)
		var ratio, least float64 = 0, 1
		sd, fullSD := p.SD(nil), full.SD(nil)
		for j := range sd {
			ratio += sd[j] / fullSD[j] / float64(len(sd))
			least = math.Min(least, sd[j]/fullSD[j])
		}
		t.Logf("%v: %.4f nats below, sd ratio %.3f (least %.3f), %v passes, %v", c.opt.Covariance,
			-res.ELBO-optimum, ratio, least, res.Passes, time.Since(start))
		if gap := -res.ELBO - optimum; !(math.Abs(gap-c.gap) <= c.off &&
			math.Abs(ratio-c.ratio) <= 0.05) {
			t.Errorf("%v: %v nats below the full optimum, want %v; sd ratio %v, want %v",
				c.opt.Covariance, gap, c.gap, ratio, c.ratio)
		}
	}
	const n = 6000
	few := &Sparse{design.Rows{Cols: x.x.Cols, Ptr: x.x.Ptr[:n+1], Ind: x.x.Ind[:x.x.Ptr[n]],
		Val: x.x.Val[:x.x.Ptr[n]]}}
	_, res := structuredFit(t,
		mustGLM(t, few, y[:n], BernoulliLogit{},
			GLMOptions{Covariance: DiagonalCovariance, PriorSD: 1000}), nil)
	t.Logf("wide prior: %v passes, %v", res.Passes, res.Elapsed)
}

// TestDirectMetric checks that conjugate gradients with the factor, over the weights or over the
// rows, solve equations of nearly collinear columns in a handful of iterations.
func TestDirectMetric(t *testing.T) {
	for _, c := range []struct {
		rows, cols int
		dual       bool
	}{{50, 30, false}, {20, 40, false}, {20, 400, true}} {
		rng := rand.New(rand.NewPCG(11, uint64(c.cols)))
		x, y := mat.NewDense(c.rows, c.cols, nil), make([]float64, c.rows)
		for i := range c.rows {
			for j := range c.cols {
				x.Set(i, j, 1e4+rng.NormFloat64())
			}
		}
		g := mustGLM(t, x, y, GaussianNoise{},
			GLMOptions{PriorSD: 10, Covariance: DiagonalCovariance})
		w := make([]float64, c.rows)
		for i := range w {
			w[i] = math.Exp(2 * rng.NormFloat64())
		}
		a := &site.WeightHessian{X: g.lin.X, Prior: &g.lin.Prior}
		a.Set(w)
		want, r, got := make([]float64, c.cols), make([]float64, c.cols), make([]float64, c.cols)
		for j := range want {
			want[j] = rng.NormFloat64()
		}
		a.Mul(r, want, 1)
		if !a.Direct() || a.Dual != c.dual {
			t.Fatalf("%d×%d: factor: %v, over the rows: %v", c.rows, c.cols, a.Exact, a.Dual)
		}
		whole, left := 0.5*floats.Dot(want, r), 0.0
		// The factor over the rows has fewer digits, so the remainder is solved repeatedly. Each
		// time reduces it to a fortieth, also if products are fused.
		for range 7 {
			a.Solve(got, r)
			floats.Sub(want, got)
			a.Mul(r, want, 1)
			left = 0.5 * floats.Dot(r, want)
		}
		if !(math.Abs(left) < 1e-9*whole) {
			t.Errorf("%d×%d: %.3g nats left of %.3g", c.rows, c.cols, left, whole)
		}
	}
}

// TestCovMul compares Vx with V for each form of the covariance.
func TestCovMul(t *testing.T) {
	x := mat.NewDense(6, 2100, nil)
	rng := testRand(3)
	y := make([]float64, 6)
	for i := range y {
		y[i] = 3 * rng.NormFloat64()
		for j := range 2100 {
			x.Set(i, j, 0.1*rng.NormFloat64())
		}
	}
	dual := func(lik Likelihood, y []float64) *GLMPosterior {
		g, err := NewGLM(x, y, lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := g.Fit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return post
	}
	posts := map[string]*GLMPosterior{
		"dual":              dual(GaussianNoise{}, y),
		"dual, not concave": dual(StudentT{DF: 1, Scale: 0.05}, []float64{9, -9, 8, 1, 0, 5}),
	}
	few, labels := testkit.StructuredData(40, 5, 1)
	for _, c := range []Covariance{FullCovariance, DiagonalCovariance, LowRankCovariance} {
		g := mustGLM(t, few, labels, BernoulliLogit{}, GLMOptions{Covariance: c, Rank: 2})
		posts[c.String()], _ = structuredFit(t, g, nil)
	}
	for name, p := range posts {
		z := make([]float64, p.Dim())
		for j := range z {
			z[j] = rng.NormFloat64()
		}
		got, want := make([]float64, p.Dim()), mat.NewVecDense(p.Dim(), nil)
		p.cov.Mul(got, z)
		want.MulVec(p.Cov(), mat.NewVecDense(p.Dim(), z))
		if e := maxRel(got, want.RawVector().Data); !(e < 1e-10) {
			t.Errorf("%s: Vx is off by %v", name, e)
		}
	}
}
