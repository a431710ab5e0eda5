package graph

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// plate is a model with a plate of n groups.
type plate struct {
	name   string
	build  func(n int) *pgsvi.Graph
	groups int
	batch  int
	passes float64
	short  float64 // nats after these passes that the nil Solver may miss
	units  int     // for mini-batches
}

func plates() []plate {
	return []plate{
		{"means", meansPlate, 1000, 100, 60, 0.01, 1000},
		{"means and precisions", subjectsPlate, 500, 50, 60, 0.05, 500},
		{"classes in schools", nestedPlate, 400, 5, 60, 0.05, 40},
		{"intercepts", interceptsPlate, 500, 50, 60, 0.05, 500},
		{"topics", topicsPlate, 200, 20, 30, 5, 200},
		{"cells", cellsPlate, 200, 20, 100, 1, 200},
	}
}

// meansPlate is y_j ~ N(θ_j, 1), θ_j ~ N(μ, 1/τ).
func meansPlate(n int) *pgsvi.Graph { return shiftedPlate(n, 0) }

// shiftedPlate is meansPlate with another number in row 7.
func shiftedPlate(n int, shift float64) *pgsvi.Graph {
	rng := testkit.Rand(401)
	y := make([]float64, n)
	for i := range y {
		y[i] = 2 + 1.5*rng.NormFloat64() + rng.NormFloat64()
	}
	y[7] += shift
	g := new(pgsvi.Graph)
	mu, tau := g.Block("mu", 1, pgsvi.NewIsotropic(1, 100)), g.Block("tau", 1, gamma(1, 1))
	theta := g.Block("theta", n, nil, pgsvi.NewIsotropic(1, 1))
	g.Add(pgsvi.NormalFactor(theta, mu, tau),
		pgsvi.NormalFactor(pgsvi.Known(y...), theta, pgsvi.Known(1)))
	return g
}

// groupRows returns the group of each row: 2 to 6 rows per group, in an order that mixes groups.
func groupRows(n int) (group []int) {
	for k := range 6 {
		for j := range n {
			if k < 2+j%5 {
				group = append(group, j)
			}
		}
	}
	return group
}

// subjectsPlate is y ~ N(θ_j, 1/t_j), θ_j ~ N(μ, 1), t_j ~ Gamma(2, b).
func subjectsPlate(n int) *pgsvi.Graph {
	rng := testkit.Rand(402)
	group := groupRows(n)
	y := make([]float64, len(group))
	for i, j := range group {
		y[i] = math.Sin(float64(j)) + (0.5+float64(j%3))*rng.NormFloat64()
	}
	g := new(pgsvi.Graph)
	mu, b := g.Block("mu", 1, pgsvi.NewIsotropic(1, 10)), g.Block("b", 1, gamma(1, 1))
	theta := g.Block("theta", n, nil, pgsvi.NewIsotropic(1, 1))
	t := g.Block("t", n, nil, gamma(2, 1))
	g.Add(pgsvi.NormalFactor(theta, mu, pgsvi.Known(1)), pgsvi.GammaFactor(t, 2, b),
		pgsvi.NormalFactor(pgsvi.Known(y...), theta.Copy(group...), t.Copy(group...)))
	return g
}

// nestedPlate has n classes in schools of ten classes, each with an effect.
func nestedPlate(n int) *pgsvi.Graph {
	rng := testkit.Rand(403)
	class := groupRows(n)
	school := make([]int, len(class))
	y := make([]float64, len(class))
	for i, c := range class {
		school[i] = c / 10
		y[i] = 1 + math.Sin(float64(c)) + math.Cos(float64(c/10)) + 0.5*rng.NormFloat64()
	}
	g := new(pgsvi.Graph)
	mu, tau := g.Block("mu", 1, pgsvi.NewIsotropic(1, 10)), g.Block("tau", 1, gamma(1, 1))
	a := g.Block("class", n, pgsvi.NewIsotropic(1, 0.5))
	b := g.Block("school", (n+9)/10, nil, pgsvi.NewIsotropic(1, 1))
	g.Add(pgsvi.NormalFactor(b, mu, pgsvi.Known(1)),
		pgsvi.NormalFactor(pgsvi.Known(y...), a.Copy(class...).Plus(b.Copy(school...)), tau))
	return g
}

// interceptsPlate is a logistic regression with an intercept per group.
func interceptsPlate(n int) *pgsvi.Graph {
	rng := testkit.Rand(404)
	group := groupRows(n)
	x, y := make([][]float64, len(group)), make([]float64, len(group))
	for i, j := range group {
		x[i] = []float64{1, rng.NormFloat64()}
		y[i] = -1
		if rng.Float64() < 1/(1+math.Exp(-math.Sin(float64(j))-x[i][1])) {
			y[i] = 1
		}
	}
	g := new(pgsvi.Graph)
	w, tau := g.Block("w", 1, pgsvi.NewIsotropic(2, 10)), g.Block("tau", 1, gamma(1, 1))
	a := g.Block("a", n, nil, pgsvi.NewIsotropic(1, 1))
	g.Add(pgsvi.NormalFactor(a, pgsvi.Known(0), tau), pgsvi.LikelihoodFactor(y,
		a.Copy(group...).Plus(w.Dot(x)), pgsvi.BernoulliLogit{}))
	return g
}

// topicsPlate is latent Dirichlet allocation with n documents of 40 words. Most words of a document come
// from one half of the vocabulary.
func topicsPlate(n int) *pgsvi.Graph {
	rng := testkit.Rand(405)
	const half = 6
	doc, word := make([]int, 40*n), make([]int, 40*n)
	for i := range doc {
		doc[i], word[i] = i%n, rng.IntN(half)
		if rng.Float64() < 0.1 || doc[i]%2 == 1 {
			word[i] += half
		}
	}
	g := new(pgsvi.Graph)
	theta := g.Block("theta", n, dirichlet(2, 0.5))
	alpha := slices.Repeat([]float64{1, 2}, half)
	slices.Sort(alpha)
	one := testkit.Must(pgsvi.NewDirichlet(alpha))
	slices.Reverse(alpha)
	phi := g.Block("phi", 2, dirichlet(2*half, 0.5), one, testkit.Must(pgsvi.NewDirichlet(alpha)))
	log := func(_ int, m []pgsvi.Moments) float64 { return m[0].Log }
	g.Add(pgsvi.MixtureFactor(theta.Copy(doc...),
		pgsvi.NewFactor("first topic", log, nil, phi.Copy(0).Element(word...)),
		pgsvi.NewFactor("second topic", log, nil, phi.Copy(1).Element(word...))))
	return g
}

// cellsPlate is a matrix of rank 2 with n rows and 30 columns. Most cells are known.
func cellsPlate(n int) *pgsvi.Graph {
	rng := testkit.Rand(406)
	vectors := func(n int) (s []pgsvi.ExpFamily) {
		for range n {
			s = append(s, gaussianAt(2, rng))
		}
		return s
	}
	const columns = 30
	a, b := vectors(n), vectors(columns)
	at := func(q pgsvi.ExpFamily) []float64 { return q.(*pgsvi.Gaussian).Mean(nil) }
	var row, col []int
	var y []float64
	for i := range n {
		for j := range columns {
			if rng.Float64() < 0.8 {
				u, v := at(a[i]), at(b[j])
				row, col = append(row, i), append(col, j)
				y = append(y, u[0]*v[0]+u[1]*v[1]+rng.NormFloat64())
			}
		}
	}
	g := new(pgsvi.Graph)
	u := g.Block("u", n, pgsvi.NewIsotropic(2, 1), vectors(n)...)
	v := g.Block("v", columns, pgsvi.NewIsotropic(2, 1), vectors(columns)...)
	t := g.Block("t", 1, gamma(1, 1))
	g.Add(pgsvi.NormalFactor(pgsvi.Known(y...), u.Copy(row...).Inner(v.Copy(col...)), t))
	return g
}

// elboOf returns the ELBO of q by all terms.
func elboOf(t *testing.T, o pgsvi.Objective[*pgsvi.Exp], q *pgsvi.Exp) float64 {
	t.Helper()
	v, _, err := o.F.Value(context.Background(), nil, q)
	if err != nil {
		t.Fatal(err)
	}
	return -v - o.H.Value(q)
}

// TestPlates checks that a fit with mini-batches and no other option ends near the optimum of a fit
// with all terms, and that the ELBO of the result belongs to its distribution.
func TestPlates(t *testing.T) {
	ctx := context.Background()
	for _, p := range plates() {
		o := testkit.Must(p.build(p.groups).Objective())
		_, best, err := o.Fit(ctx, nil)
		if err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
		q, res, err := o.Fit(ctx, &pgsvi.Solver{BatchSize: p.batch, MaxPasses: p.passes})
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		if n := res.Stepper.Len(); n != p.units {
			t.Errorf("%s: %d terms, want %d", p.name, n, p.units)
		}
		t.Logf("%s: all terms %v; batches %v, %.4f short", p.name, best, res, best.ELBO-res.ELBO)
		if short := best.ELBO - res.ELBO; !(short <= p.short) {
			t.Errorf("%s: %v nats short of %v, want %v", p.name, short, best.ELBO, p.short)
		}
		if elbo := elboOf(t, o, q); math.Abs(elbo-res.ELBO) > 1e-9*math.Abs(elbo) {
			t.Errorf("%s: the ELBO of the result is %v, but q has %v", p.name, res.ELBO, elbo)
		}
		if res.Status == pgsvi.Converged && best.ELBO-res.ELBO > 10*res.Gap {
			t.Errorf("%s: %v nats short, but the gap is %v", p.name, best.ELBO-res.ELBO, res.Gap)
		}
	}
}

// TestPlatesMany checks a plate of 100,000 groups after 20 passes.
func TestPlatesMany(t *testing.T) {
	n := testkit.Shorter(100000, 10000)
	o := testkit.Must(meansPlate(n).Objective())
	ctx := context.Background()
	_, best, err := o.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*pgsvi.Solver{{BatchSize: n / 200, MaxPasses: 20},
		{BatchSize: n / 200, MaxPasses: 20, StepSize: pgsvi.FractionStep(1, 0.7)}} {
		_, res, err := o.Fit(ctx, s)
		if short := best.ELBO - res.ELBO; err != nil || !(short <= 0.1) {
			t.Errorf("%v nats short of %v: %v, %v", short, best.ELBO, res, err)
		}
	}
}

// TestPlatesBits checks that a run with mini-batches has the same bits for any number of workers
// and after it is saved and resumed, and that it is refused for other data.
func TestPlatesBits(t *testing.T) {
	ctx := context.Background()
	for _, p := range plates() {
		model := func() pgsvi.Objective[*pgsvi.Exp] {
			return testkit.Must(p.build(p.groups / 4).Objective())
		}
		solver := func(workers int, passes float64) *pgsvi.Solver {
			return &pgsvi.Solver{Workers: workers, BatchSize: 3, MaxPasses: passes}
		}
		whole, err := solver(1, 2.5).Run(ctx, model())
		if err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
		want := testkit.Must(model().Posterior(whole.Stepper)).Natural(nil)
		check := func(what string, res *pgsvi.Result) {
			t.Helper()
			q := testkit.Must(model().Posterior(res.Stepper)).Natural(nil)
			if fmt.Sprintf("%b %b", q, res.ELBO) != fmt.Sprintf("%b %b", want, whole.ELBO) {
				t.Errorf("%s: %s: ELBO %v, want %v", p.name, what, res.ELBO, whole.ELBO)
			}
		}
		for _, workers := range []int{2, 5} {
			res := testkit.Must(solver(workers, 2.5).Run(ctx, model()))
			check(fmt.Sprintf("%d workers", workers), res)
		}
		part := testkit.Must(solver(1, 1.2).Run(ctx, model()))
		var file bytes.Buffer
		if err := part.Save(&file); err != nil {
			t.Fatal(err)
		}
		s := solver(1, 2.5)
		back, err := s.LoadResult(ctx, bytes.NewReader(file.Bytes()), model())
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		check("resumed", testkit.Must(s.Resume(ctx, back)))
		for _, g := range []*pgsvi.Graph{p.build(p.groups/4 - 10), shiftedPlate(p.groups/4, 1e-6)} {
			other := testkit.Must(g.Objective())
			if _, err := s.LoadResult(ctx, bytes.NewReader(file.Bytes()), other); !errors.Is(err,
				pgsvi.ErrFile) {
				t.Errorf("%s: other data: %v", p.name, err)
			}
		}
	}
}

// TestPlatesFullBatch checks that a run takes steps over all blocks if its batches hold all units,
// or if it has another divergence.
func TestPlatesFullBatch(t *testing.T) {
	ctx := context.Background()
	o := testkit.Must(meansPlate(100).Objective())
	want, err := (*pgsvi.Solver)(&pgsvi.Solver{MaxIter: 4}).Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*pgsvi.Solver{{MaxIter: 4, BatchSize: 200}, {MaxIter: 4, BatchSize: 1000}} {
		res, err := s.Run(ctx, o)
		if err != nil || res.ELBO != want.ELBO || res.Stepper.Len() != 200 {
			t.Errorf("batches of %d: %v with %d terms, %v; want %v", s.BatchSize, res,
				res.Stepper.Len(), err, want)
		}
	}
	res, err := (&pgsvi.Solver{MaxIter: 4, BatchSize: 10, Divergence: pgsvi.Euclidean(),
		StepSize: pgsvi.ConstantStep(1e-4)}).Run(ctx, o)
	if err != nil || res.Stepper.Len() != 200 {
		t.Errorf("another divergence: %v, %v", res, err)
	}
}

// TestPlatesStart checks that the copies of a plate start where Objective.Init is: the first state
// of a run from the optimum is the optimum.
func TestPlatesStart(t *testing.T) {
	ctx := context.Background()
	o := testkit.Must(interceptsPlate(100).Objective())
	best, full, err := o.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	o.Init = best
	s := &pgsvi.Solver{BatchSize: 10, MaxIter: 1, StepSize: pgsvi.ConstantStep(1e-9)}
	_, res, err := o.Fit(ctx, s)
	if short := full.ELBO - res.ELBO; err != nil || math.Abs(short) > 1e-4 {
		t.Errorf("%v nats from the optimum at which the run starts: %v", short, err)
	}
}

// TestPlatesPanic checks that a factor that panics or returns NaN in a later step ends the run
// with an error and a valid distribution.
func TestPlatesPanic(t *testing.T) {
	for name, c := range map[string]struct {
		fail func() float64
		want error
	}{
		"panic": {func() float64 { panic("boom") }, pgsvi.ErrPanic},
		"NaN":   {math.NaN, pgsvi.ErrDiverged},
	} {
		calls := 0
		var g pgsvi.Graph
		mu := g.Block("mu", 1, pgsvi.NewIsotropic(1, 1))
		theta := g.Block("theta", 100, pgsvi.NewIsotropic(1, 1))
		g.Add(pgsvi.NormalFactor(theta, mu, pgsvi.Known(1)),
			pgsvi.NewFactor("own", func(_ int, m []pgsvi.Moments) float64 {
				if calls++; calls > 5000 {
					return c.fail()
				}
				return -m[0].Square
			}, nil, theta))
		o := testkit.Must(g.Objective())
		calls = 0
		q, res, err := o.Fit(context.Background(), &pgsvi.Solver{BatchSize: 10, Recover: true})
		if !errors.Is(err, c.want) || q == nil || res == nil || calls <= 5000 {
			t.Errorf("%s: %v, %v, %v", name, q, res, err)
			continue
		}
		for i, x := range q.MeanParams(nil) {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				t.Errorf("%s: mean parameter %d is %v", name, i, x)
			}
		}
	}
}

// TestPlatesResume checks that a run with mini-batches continues with all terms to the optimum.
func TestPlatesResume(t *testing.T) {
	ctx := context.Background()
	o := testkit.Must(meansPlate(1000).Objective())
	_, best, err := o.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&pgsvi.Solver{BatchSize: 100, MaxIter: 15}).Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if res, err = new(pgsvi.Solver).Resume(ctx, res); err != nil || math.Abs(
		res.ELBO-best.ELBO) > 1e-6 || res.Passes > 20 {
		t.Errorf("%v, %v; want the ELBO %v", res, err, best.ELBO)
	}
}
