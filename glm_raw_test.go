package pgsvi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// bigPosterior is the exact posterior of a linear model with Gaussian noise, computed with 400
// bits.
type bigPosterior struct {
	mean, sd         []float64 // moments of the weights
	m, v             []float64 // moments of the linear predictors
	logDet, evidence float64   // log|V⁻¹|, log p(y)
}

func bigNum(x float64) *big.Float { return new(big.Float).SetPrec(400).SetFloat64(x) }

// bigDot returns Σ a_i b_i.
func bigDot(a, b []*big.Float) *big.Float {
	s, t := bigNum(0), bigNum(0)
	for i, x := range a {
		s.Add(s, t.Mul(x, b[i]))
	}
	return s
}

// bigSolve replaces b by L⁻¹b.
func bigSolve(l [][]*big.Float, b []*big.Float) {
	for i := range b {
		b[i] = new(big.Float).Sub(b[i], bigDot(l[i][:i], b[:i]))
		b[i].Quo(b[i], l[i][i])
	}
}

// newBigPosterior returns the posterior under a prior with mean zero and diagonal precision prec.
func newBigPosterior(x mat.Matrix, y, prec []float64, noise float64) *bigPosterior {
	n, d := x.Dims()
	rows := make([][]*big.Float, n)
	gram, h := make([][]*big.Float, d), make([]*big.Float, d)
	for j := range d {
		gram[j], h[j] = make([]*big.Float, j+1), bigNum(0)
		for k := range gram[j] {
			gram[j][k] = bigNum(0)
		}
		gram[j][j].SetFloat64(prec[j])
	}
	inv, t := new(big.Float).Quo(bigNum(1), bigNum(noise)), bigNum(0)
	squares := bigNum(0)
	for i := range n {
		rows[i] = make([]*big.Float, d)
		for j := range d {
			rows[i][j] = bigNum(x.At(i, j))
		}
		for j, a := range rows[i] {
			a := new(big.Float).Mul(a, inv)
			if a.Sign() == 0 {
				continue
			}
			for k := range j + 1 {
				gram[j][k].Add(gram[j][k], t.Mul(a, rows[i][k]))
			}
			h[j].Add(h[j], t.Mul(a, bigNum(y[i])))
		}
		squares.Add(squares, t.Mul(t.Mul(bigNum(y[i]), bigNum(y[i])), inv))
	}
	p := &bigPosterior{mean: make([]float64, d), sd: make([]float64, d), m: make([]float64, n),
		v: make([]float64, n)}
	var prior float64
	for j := range d {
		row := gram[j]
		bigSolve(gram, row[:j:j])
		row[j].Sub(row[j], bigDot(row[:j], row[:j])).Sqrt(row[j])
		l, _ := row[j].Float64()
		p.logDet += 2 * math.Log(l)
		prior += math.Log(prec[j])
	}
	bigSolve(gram, h) // L⁻¹Xᵀy/σ²
	squares.Sub(squares, bigDot(h, h))
	s, _ := squares.Float64()
	p.evidence = -0.5 * (float64(n)*math.Log(2*math.Pi*noise) + p.logDet - prior + s)
	moments := func(z []*big.Float) (m, v float64) {
		bigSolve(gram, z)
		m, _ = bigDot(z, h).Float64()
		v, _ = bigDot(z, z).Float64()
		return m, v
	}
	for i, z := range rows {
		p.m[i], p.v[i] = moments(z)
	}
	for j := range d {
		z := make([]*big.Float, d)
		for k := range z {
			z[k] = bigNum(0)
		}
		z[j].SetFloat64(1)
		var v float64
		p.mean[j], v = moments(z)
		p.sd[j] = math.Sqrt(v)
	}
	return p
}

// rawCase is a regression in raw units.
type rawCase struct {
	name string
	x    *mat.Dense
	y    []float64
	opt  GLMOptions
	lik  GaussianNoise
}

// rawMatrix returns n rows. The columns are functions of the row number and of a normal number that
// the columns share.
func rawMatrix(rng *rand.Rand, n int, column ...func(i int, z float64) float64) *mat.Dense {
	x := mat.NewDense(n, len(column), nil)
	for i := range n {
		z := rng.NormFloat64()
		for j, f := range column {
			x.Set(i, j, f(i, z))
		}
	}
	return x
}

// rawCases returns features in common raw units.
func rawCases() (cases []rawCase) {
	add := func(name string, x *mat.Dense, opt GLMOptions, noise float64) {
		rng := rand.New(rand.NewPCG(uint64(len(cases)), 3))
		n, _ := x.Dims()
		y := make([]float64, n)
		for i := range y {
			y[i] = math.Sqrt(noise) * rng.NormFloat64()
			if opt.Intercept {
				y[i] += 3
			}
		}
		cases = append(cases, rawCase{name, x, y, opt, GaussianNoise{Var: noise}})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	normal := func(scale float64) func(int, float64) float64 {
		return func(int, float64) float64 { return scale * rng.NormFloat64() }
	}
	times := func(c float64) func(int,
		float64) float64 {
		return func(_ int, z float64) float64 { return c * z }
	}
	stamp := func(spread float64) func(int, float64) float64 {
		return func(int, float64) float64 { return math.Round(1.7e9 + spread*rng.NormFloat64()) }
	}
	normals := func(d int, more ...func(int, float64) float64) []func(int, float64) float64 {
		for range d {
			more = append(more, normal(1))
		}
		return more
	}
	for _, c := range []float64{1, 1e4, 1e6, 1e8} {
		add(fmt.Sprintf("x and 100x, 2000 rows at %g", c),
			rawMatrix(rng, 2000, times(c), times(100*c)), GLMOptions{}, 1)
		add(fmt.Sprintf("duplicates, 50 rows at %g", c),
			rawMatrix(rng, 50, times(c), normal(c), times(c)),
			GLMOptions{Intercept: true, PriorSD: 10}, 1)
	}
	for _, spread := range []float64{1, 1e4, 1e7} {
		add(fmt.Sprintf("39 columns and a time stamp within %g s, 30 rows", spread),
			rawMatrix(rng, 30, normals(39, stamp(spread))...), GLMOptions{}, 1)
		add(fmt.Sprintf("time stamp within %g s and an intercept, 300 rows", spread),
			rawMatrix(rng, 300, normals(3, stamp(spread))...), GLMOptions{Intercept: true}, 1)
		add(fmt.Sprintf("two time stamps within %g s, wide prior", spread),
			rawMatrix(rng, 100, stamp(spread), stamp(spread), normal(1)),
			GLMOptions{Intercept: true, PriorSD: 1e3}, 0.01)
	}
	add("39 columns at 1 and one at 1e7, 40 rows", rawMatrix(rng, 40, normals(39, normal(1e7))...),
		GLMOptions{}, 1)
	for _, sd := range []float64{1e-3, 1, 1e3} {
		var mixed []func(int, float64) float64
		for e := -8.0; e <= 8; e++ {
			mixed = append(mixed, normal(math.Pow(10, e)))
		}
		add(fmt.Sprintf("columns from 1e-8 to 1e8, prior sd %g, 200 rows", sd),
			rawMatrix(rng, 200, mixed...), GLMOptions{Intercept: true, PriorSD: sd}, 1)
		add(fmt.Sprintf("columns from 1e-8 to 1e8, prior sd %g, 7 rows", sd),
			rawMatrix(rng, 7, mixed...), GLMOptions{Intercept: true, PriorSD: sd}, 1)
		add(fmt.Sprintf("little noise, prior sd %g, 10 rows", sd),
			rawMatrix(rng, 10, normals(20)...), GLMOptions{PriorSD: sd}, 1e-12)
	}
	a := func(_ int, z float64) float64 { return 1e5 * z }
	b := func(i int, z float64) float64 { return 1e5*z + math.Mod(float64(i), 3) }
	c := func(i int, _ float64) float64 { return math.Mod(float64(i), 3) }
	add("differences of columns", rawMatrix(rng, 90, a, b, c), GLMOptions{PriorSD: 100}, 1)
	one := mat.NewDense(1, 1, []float64{1e8})
	cases = append(cases,
		rawCase{"one strong row", one, []float64{3}, GLMOptions{}, GaussianNoise{}})
	cases = append(cases,
		rawCase{"one strong row of three columns", mat.NewDense(1, 3, []float64{1e8, 1, 1e-8}),
			[]float64{3}, GLMOptions{}, GaussianNoise{}})
	// Repeated rows, fewer than columns.
	repeated := rawMatrix(rng, 12, normals(30, stamp(1e4), normal(1e6))...)
	for i := 1; i < 12; i += 2 {
		repeated.SetRow(i, repeated.RawRowView(i-1))
	}
	add("repeated rows", repeated, GLMOptions{Intercept: true}, 1)
	return cases
}

// TestRawUnits checks features in raw units, collinear features, and features far from zero against
// the posterior computed with 400 bits. Standard deviations must agree to 1e−6, and means to 1e−6
// of a standard deviation or of the mean.
func TestRawUnits(t *testing.T) {
	t.Parallel()
	for i, c := range rawCases() {
		for _, sparse := range []bool{false, true} {
			if testing.Short() && (sparse == (i%2 == 0) || i%3 > 0) {
				continue // one way for each of the few
			}
			name := c.name
			var x mat.Matrix = c.x
			if sparse {
				x, name = SparseOf(c.x), name+", sparse"
			}
			t.Run(name, func(t *testing.T) { checkRaw(t, c, x) })
		}
	}
}

func checkRaw(t *testing.T, c rawCase, x mat.Matrix) {
	t.Helper()
	g := mustGLM(t, x, c.y, c.lik, c.opt)
	p, res, err := g.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := c.posterior(g)
	if res.Status != Converged || !(res.Gap < 1e-6) {
		t.Errorf("%v after %v passes, gap %v, proved %v", res.Status, res.Passes, res.Gap,
			res.GapBound)
	}
	if d := math.Abs(res.ELBO - want.evidence); !(d <= rawTol*math.Max(1, math.Abs(want.evidence))) {
		t.Errorf("ELBO %v, want %v", res.ELBO, want.evidence)
	}
	want.check(t, p, x)
}

// rawTol is the relative tolerance of results. It is larger after removing rows, which also removes
// the last-bit rounding of the means of the weights, times the variances of the prior. That is up
// to 1.6e-6 in any order of summation.
const (
	rawTol   = 1e-6
	rawTaken = 4 * rawTol
)

// posterior returns the exact posterior of g, a model of c.
func (c *rawCase) posterior(g *GLM) *bigPosterior {
	full := mat.NewDense(g.Len(), g.dim(), nil)
	for i := range g.Len() {
		g.lin.X.Dense1(full.RawRowView(i), i)
	}
	return newBigPosterior(full, c.y, g.lin.Prior.Prec, cmp.Or(c.lik.Var, 1))
}

// check compares p with q, and the predictions of p at the rows of x with the moments in q.
func (q *bigPosterior) check(t *testing.T, p *GLMPosterior, x mat.Matrix) {
	t.Helper()
	q.checkTo(t, p, x, rawTol)
}

// checkTo is check with a tolerance.
func (q *bigPosterior) checkTo(t *testing.T, p *GLMPosterior, x mat.Matrix, tol float64) {
	t.Helper()
	mean, sd := p.Mean(nil), p.SD(nil)
	m, v := p.At(x).Latent(nil, nil)
	seen := map[string]bool{}
	check := func(what string, i int, got, want, scale float64) {
		t.Helper()
		if !(math.Abs(got-want) <= tol*scale) && !seen[what] {
			t.Errorf("%s %d is %v, want %v", what, i, got, want)
			seen[what] = true
		}
	}
	for j, s := range q.sd {
		check("mean", j, mean[j], q.mean[j], s+math.Abs(q.mean[j]))
		check("sd", j, sd[j], s, s)
	}
	for i, s := range q.v {
		check("latent mean", i, m[i], q.m[i], math.Sqrt(s)+math.Abs(q.m[i]))
		check("latent variance", i, v[i], s, s)
	}
}

// TestRawStream checks the same for streams, for posteriors after updating, saving, loading and
// removing rows, and for the steps of the paper.
func TestRawStream(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for i, c := range rawCases() {
		if testing.Short() && i%3 != 1 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			g := mustGLM(t, c.x, c.y, c.lik, c.opt)
			want := c.posterior(g)
			n, d := c.x.Dims()
			s, err := NewGLMStream(d, c.lik, &c.opt)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.AddAll(ctx, Rows(c.x, c.y)); err != nil {
				t.Fatal(err)
			}
			p := streamPosterior(t, s)
			want.check(t, p, c.x)
			var file bytes.Buffer
			if err := p.Save(&file); err != nil {
				t.Fatal(err)
			}
			loaded, err := Load[*GLMPosterior](&file)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := p.SD(nil), loaded.SD(nil); !slices.Equal(a, b) {
				t.Errorf("sd %v, loaded %v", a, b)
			}

			if n < 2 {
				return
			}
			half := n / 2
			first := mat.DenseCopyOf(c.x.Slice(0, half, 0, d))
			g = mustGLM(t, first, c.y[:half], c.lik, c.opt)
			q, _ := fitGLM(t, g, nil)
			rest := Rows(c.x.Slice(half, n, 0, d), c.y[half:])
			all, err := q.Update(ctx, rest)
			if err != nil {
				t.Fatal(err)
			}
			want.check(t, all, c.x)
			back, err := all.Remove(ctx, rest)
			if errors.Is(err, ErrNotPosDef) {
				return // the error reports it
			}
			if err != nil {
				t.Fatal(err)
			}
			h := rawCase{x: first, y: c.y[:half], lik: c.lik}
			h.posterior(g).checkTo(t, back, first, rawTaken)
		})
	}
}

// TestRawSteps checks that the steps of the paper in raw units lead to the same posterior.
func TestRawSteps(t *testing.T) {
	t.Parallel()
	for i, c := range rawCases() {
		if testing.Short() && i%3 != 2 {
			continue
		}
		n, d := c.x.Dims()
		if n <= d {
			continue
		}
		g := mustGLM(t, c.x, c.y, c.lik, c.opt)
		p, res, err := g.Fit(context.Background(),
			&Solver{StepSize: ConstantStep(9), BatchSize: n, MaxPasses: 40, Converger: Never()})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		want := c.posterior(g)
		if !(math.Abs(res.ELBO-want.evidence) < 1e-6*math.Abs(want.evidence)) {
			t.Errorf("%s: %v after %v passes, ELBO %v, want %v", c.name, res.Status, res.Passes,
				res.ELBO, want.evidence)
		}
		t.Run(c.name, func(t *testing.T) { want.check(t, p, c.x) })
	}
}

// TestRawProof checks that the evidence computed with 400 bits never exceeds the proved bound if
// responses are large compared with the noise and columns are nearly equal. The mean of the weights
// then loses digits, which the bound must include.
func TestRawProof(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 19))
	for _, near := range []float64{1e-2, 1e-3, 3e-4, 1e-4, 1e-5} {
		for _, noise := range []float64{1, 1e-2, 1e-4} {
			const n = 40
			x, y := mat.NewDense(n, 3, nil), make([]float64, n)
			for i := range y {
				a := 1e3 * (10 + rng.NormFloat64())
				x.SetRow(i, []float64{a, a * (1 + near*rng.NormFloat64()), rng.NormFloat64()})
				y[i] = 30*a + math.Sqrt(noise)*rng.NormFloat64()
			}
			c := rawCase{x: x, y: y, opt: GLMOptions{PriorSD: 100}, lik: GaussianNoise{Var: noise}}
			g := mustGLM(t, x, y, c.lik, c.opt)
			_, res, err := g.Fit(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			evidence := c.posterior(g).evidence
			if gap := evidence - res.ELBO; res.Status != Converged || gap > res.GapBound+1e-9 ||
				-gap > res.ELBOErr+1e-9 || !(res.GapBound < 1e-6) {
				t.Errorf(
					"columns apart by %g, noise %g: %v, %.3g nats below the evidence of %.6g, "+
						"proved to be within %.3g, error %.3g", near, noise, res.Status, gap,
					evidence, res.GapBound, res.ELBOErr)
			}
		}
	}
}

// TestStreamHardBlocks checks that a stream of one block agrees with a fit even for difficult data,
// and that a stream of several blocks is close to it.
func TestStreamHardBlocks(t *testing.T) {
	t.Parallel()
	for _, lik := range []Likelihood{Exponential{}, Poisson{}} {
		for seed := range longer(20, shorter[uint64](5, 1)) {
			rng := rand.New(rand.NewPCG(seed, 5))
			x := normalMatrix(rng, shorter(1000, 500), 3)
			y := responses(rng, lik, testkit.Predictors(x, []float64{1, -1, 0.5}))
			o := &GLMOptions{PriorSD: 10, Intercept: true}
			g, err := NewGLM(x, y, lik, o)
			if err != nil {
				t.Fatal(err)
			}
			p, _ := fitGLM(t, g, nil)
			s := newStream(t, 3, lik, o)
			if err := s.AddAll(context.Background(), Rows(x, y)); err != nil {
				t.Fatal(err)
			}
			checkApart(t, "one block", streamPosterior(t, s), p, 0.01)
		}
	}
}

// TestStreamRemoveAll checks that removing nothing leaves the posterior unchanged, that removing
// all rows gives the prior, and that removing unknown rows is an error.
func TestStreamRemoveAll(t *testing.T) {
	ctx := context.Background()
	c := toyGLM("", 3000, 3, BernoulliLogit{}, 3, nil)
	s := newStream(t, 3, c.Lik, nil)
	if err := s.AddAll(ctx, Rows(c.X, c.Y)); err != nil {
		t.Fatal(err)
	}
	p := streamPosterior(t, s)
	if err := s.RemoveAll(ctx, func(func(Row, error) bool) {}); err != nil {
		t.Fatal(err)
	}
	checkApart(t, "nothing removed", streamPosterior(t, s), p, 0.02)

	for seed := range uint64(30) {
		c := toyGLM("", 50, 3, BernoulliLogit{}, seed, nil)
		s := newStream(t, 3, c.Lik, &GLMOptions{Intercept: true})
		prior := streamPosterior(t, s)
		if err := s.AddAll(ctx, Rows(c.X, c.Y)); err != nil {
			t.Fatal(err)
		}
		if err := s.RemoveAll(ctx, Rows(c.X, c.Y)); err != nil {
			t.Errorf("seed %d: %v", seed, err)
			continue
		}
		checkApart(t, "all removed", streamPosterior(t, s), prior, 0.05)
		if s.Len() != 0 {
			t.Errorf("%d rows", s.Len())
		}
	}
	empty := streamPosterior(t, newStream(t, 1, GaussianNoise{}, nil))
	if q, err := empty.Remove(ctx,
		Rows(mat.NewDense(1, 1, []float64{0.1}), []float64{1})); !errors.Is(err, ErrNotPosDef) {
		t.Errorf("a row that was never added: %v, %v", q, err)
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

// TestGLMRepeatedRow checks that a row that occurs twice in a block is one site.
func TestGLMRepeatedRow(t *testing.T) {
	c := toyGLM("", 500, 5, BernoulliLogit{}, 3, nil)
	g := c.Glm(t, c.X)
	st, err := g.NewStepper(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := algOf[*site.WeightAlgebra](st)
	if _, err := st.Step(context.Background(), nil, []int{0, 0, 0, 0, 1, 1, 1, 2, 2},
		math.Inf(1)); err != nil {
		t.Fatal(err)
	}
	var w gauss.Gaussian
	w.CopyFrom(s.Prior)
	g.lin.X.AddGram(w.P, s.Gamma, nil, new(design.Work))
	if math.Abs(w.P[0]-s.Run.P[0]) > 1e-9 {
		t.Errorf("precision %v, that of the sites %v", s.Run.P[0], w.P[0])
	}
	_, full := fitGLM(t, g, nil)
	if _, r := fitGLM(t, g,
		&Solver{BatchSize: 50, Sampler: WithReplacement(), EvalEvery: -1,
			MaxPasses: 200}); full.ELBO-r.ELBO > 1e-5 {
		t.Errorf("with replacement, after 200 passes %v nats below", full.ELBO-r.ELBO)
	}
}
