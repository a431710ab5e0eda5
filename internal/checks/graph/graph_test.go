package graph

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// graphMaker makes random models.
type graphMaker struct {
	rng  *rand.Rand
	g    *pgsvi.Graph
	rows int
}

func (r *graphMaker) numbers(positive bool) []float64 {
	x := make([]float64, r.rows)
	for i := range x {
		x[i] = r.rng.NormFloat64()
		if positive {
			x[i] = math.Exp(x[i])
		}
	}
	return x
}

func (r *graphMaker) indices(n int) []int {
	x := make([]int, r.rows)
	for i := range x {
		x[i] = r.rng.IntN(n)
	}
	return x
}

// name returns a new name.
func (r *graphMaker) name(kind string) string { return fmt.Sprint(kind, r.rng.IntN(1000)) }

// real returns a term that is Gaussian under q, or a product of such terms.
func (r *graphMaker) real(depth int) pgsvi.Term {
	n := 1 + r.rng.IntN(5)
	starts := func(d int) (s []pgsvi.ExpFamily) {
		for range n {
			s = append(s, gaussianAt(d, r.rng))
		}
		return s
	}
	switch k := r.rng.IntN(7); {
	case k == 0:
		return pgsvi.Known(r.numbers(false)...)
	case k == 1 && depth > 0:
		return r.real(depth - 1).Plus(r.real(depth - 1))
	case k == 2 && depth > 0:
		return r.real(depth - 1).Times(r.real(depth - 1))
	case k == 3:
		w := r.g.Block(r.name("w"), 1, nil, gaussianAt(3, r.rng))
		return w.Dot(sparseRows(r.rng, r.rows, 3, r.rng.Float64()))
	case k == 4:
		w := r.g.Block(r.name("w"), n, pgsvi.NewIsotropicMeanField(3, 2))
		return w.Copy(r.indices(n)...).Dot(sparseRows(r.rng, r.rows, 3, 1))
	case k == 5:
		d := 1 + r.rng.IntN(3)
		a := r.g.Block(r.name("a"), n, pgsvi.NewIsotropic(d, 1), starts(d)...)
		b := r.g.Block(r.name("b"), n, pgsvi.NewIsotropic(d, 1), starts(d)...)
		return a.Copy(r.indices(n)...).Inner(b.Copy(r.indices(n)...))
	}
	x := r.g.Block(r.name("x"), n, pgsvi.NewIsotropic(2, 1), starts(2)...)
	return x.Copy(r.indices(n)...).Element(r.indices(2)...)
}

// positive returns a term that can be a precision or rate.
func (r *graphMaker) positive(depth int) pgsvi.Term {
	n := 1 + r.rng.IntN(5)
	switch k := r.rng.IntN(4); {
	case k == 0:
		return pgsvi.Known(r.numbers(true)...)
	case k == 1 && depth > 0:
		return r.positive(depth - 1).Times(r.positive(depth - 1))
	}
	t := r.g.Block(r.name("t"), n, gamma(1+r.rng.Float64(), 1))
	return t.Copy(r.indices(n)...)
}

// factor returns a factor with r.rows rows.
func (r *graphMaker) factor(depth int) pgsvi.Factor {
	switch k := r.rng.IntN(7); {
	case k == 0:
		return pgsvi.GammaFactor(r.positive(1), 0.5+r.rng.Float64(), r.positive(1))
	case k == 1:
		x := r.g.Block(r.name("u"), 1, pgsvi.NewIsotropic(2, 1)).Dot(sparseRows(r.rng, r.rows, 2,
			1))
		return pgsvi.LikelihoodFactor(r.numbers(false), x, pgsvi.StudentT{DF: 4, Scale: 1})
	case k == 2 && depth > 0:
		pi := r.g.Block(r.name("pi"), 2, dirichlet(2, 2)).Copy(r.rng.IntN(2))
		return pgsvi.MixtureFactor(pi, r.factor(depth-1), r.factor(depth-1))
	case k == 3 && depth > 1: // a chain has a row per sequence, so it is no alternative
		first, move := r.g.Block(r.name("f"), 1, dirichlet(2, 1)), r.g.Block(r.name("m"), 2,
			dirichlet(2, 1))
		return pgsvi.ChainFactor(first, move, r.factor(depth-1), r.factor(depth-1)).Sequences(
			r.rows/3, r.rows-r.rows/3)
	case k == 4:
		z := r.g.Block(r.name("z"), 4, testkit.Must(pgsvi.NewCategorical([]float64{1, 2, 3})))
		p := r.g.Block(r.name("p"), 3, beta(2, 1))
		return pgsvi.NewFactor("edge", func(_ int, m []pgsvi.Moments) float64 {
			return m[0].Mean * m[1].Log
		}, nil, z.Copy(r.indices(4)...).Element(r.indices(3)...),
			p.Copy(r.indices(3)...).Element(1))
	case k == 5:
		y := make([]float64, r.rows)
		for i := range y {
			y[i] = 1 - 2*float64(r.rng.IntN(2))
		}
		x := r.g.Block(r.name("v"), 1, pgsvi.NewIsotropic(2, 1)).Dot(sparseRows(r.rng, r.rows, 2,
			1))
		return logitBound(y, x)
	}
	return pgsvi.NormalFactor(r.real(1), r.real(1), r.positive(1))
}

func gaussianAt(d int, rng *rand.Rand) *pgsvi.Gaussian {
	q := pgsvi.NewIsotropic(d, 0.5).In(pgsvi.MeanCov)
	l := q.Params(nil)
	for k := range d {
		l[k] = rng.NormFloat64()
	}
	if err := q.SetParams(l); err != nil {
		panic(err)
	}
	return q
}

func sparseRows(rng *rand.Rand, n, d int, share float64) [][]float64 {
	x := make([][]float64, n)
	for i := range x {
		x[i] = make([]float64, d)
		for k := range x[i] {
			if rng.Float64() < share {
				x[i][k] = rng.NormFloat64()
			}
		}
	}
	return x
}

// randomGraph returns a random model with the given seed. A factor of known numbers alone adds a
// constant.
func randomGraph(seed uint64) *pgsvi.Graph {
	r := &graphMaker{rng: testkit.Rand(seed), g: new(pgsvi.Graph)}
	for range 1 + r.rng.IntN(3) {
		r.rows = 4 + r.rng.IntN(300)
		r.g.Add(r.factor(2))
	}
	r.g.Block("one more", 1, gamma(1, 1))
	return r.g
}

// moved returns a member of the family of q near q.
func moved(q *pgsvi.Exp, rng *rand.Rand) *pgsvi.Exp {
	p := q.Clone().(*pgsvi.Exp)
	x := p.Chart(nil)
	for i := range x {
		x[i] += 0.2 * rng.NormFloat64()
	}
	if p.SetChart(x) != nil {
		return q
	}
	return p
}

// TestGraphRandom checks random models: the gradient is the derivative of the value, the gradient
// of batches averages to the gradient of all terms, bits do not depend on the workers, and steps
// do not lower the ELBO.
func TestGraphRandom(t *testing.T) {
	ctx := context.Background()
	for seed := range testkit.Longer(uint64(200), 40) {
		g := randomGraph(1000 + seed)
		o, err := g.Objective()
		if err != nil {
			t.Fatalf("seed %d: %v\n%v", seed, err, g)
		}
		rng := testkit.Rand(seed)
		q := moved(o.Init, rng)
		mu, grad := q.MeanParams(nil), make([]float64, q.NumParams())
		value, err := o.F.Grad(ctx, nil, grad, q, nil)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		again, _, err := o.F.Value(ctx, nil, q)
		if err != nil || math.Abs(again-value) > 1e-12*(1+math.Abs(value)) {
			t.Errorf("seed %d: Grad returns %v, Value %v, %v", seed, value, again, err)
		}
		for range 5 {
			along, other := 0.0, moved(q, rng).MeanParams(nil)
			at := func(h float64) float64 {
				x := make([]float64, len(mu))
				for i := range x {
					x[i] = mu[i] + h*(other[i]-mu[i])
				}
				p := q.Clone().(*pgsvi.Exp)
				if err := p.SetMeanParams(x); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				v, _, err := o.F.Value(ctx, nil, p)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				return v
			}
			for i := range mu {
				along += grad[i] * (other[i] - mu[i])
			}
			const h = 1e-3
			want := (8*(at(h)-at(-h)) - (at(2*h) - at(-2*h))) / (12 * h)
			if math.Abs(along-want) > 1e-6*(1+math.Abs(want)+1e-3*math.Abs(value)) {
				t.Errorf("seed %d: the derivative is %v, by differences %v\n%v", seed, along,
					want, g)
				break
			}
		}
		checkBatches(t, o, q, grad, value, fmt.Sprint("seed ", seed))
		_, err = (&pgsvi.Solver{MaxIter: 8, Record: (&watch{t, math.Inf(-1)}).record}).Run(ctx, o)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// checkBatches checks that gradients over halves of the terms average to the gradient over all
// terms, and that the order of a batch and the number of workers do not matter.
func checkBatches(t *testing.T, o pgsvi.Objective[*pgsvi.Exp], q *pgsvi.Exp, grad []float64,
	value float64, name string) {
	t.Helper()
	n, _, err := o.F.Setup(q)
	if err != nil {
		t.Fatal(err)
	}
	var batches [2][]int
	for i := range n {
		batches[i%2] = append(batches[i%2], i)
	}
	mean, v := make([]float64, len(grad)), 0.0
	for _, b := range batches {
		g := make([]float64, len(grad))
		x, err := o.F.Grad(context.Background(), nil, g, q, b)
		if err != nil {
			t.Fatal(err)
		}
		w := float64(len(b)) / float64(n)
		v += w * x
		for i := range g {
			mean[i] += w * g[i]
		}
	}
	if math.Abs(v-value) > 1e-10*(1+math.Abs(value)) {
		t.Errorf("%s: the values of batches average to %v; want %v", name, v, value)
	}
	for i := range mean {
		if math.Abs(mean[i]-grad[i]) > 1e-9*(1+math.Abs(grad[i])) {
			t.Errorf("%s: element %d of the gradients of batches averages to %v; want %v", name, i,
				mean[i], grad[i])
			return
		}
	}
}

// TestGraphWorkers checks that a fit has the same bits for any number of workers.
func TestGraphWorkers(t *testing.T) {
	for _, batch := range []int{0, 50} {
		var first []float64
		for _, workers := range []int{1, 2, 5} {
			o := testkit.Must(randomGraph(1016).Objective())
			s := &pgsvi.Solver{Workers: workers, MaxIter: 12, BatchSize: batch}
			q, _, err := o.Fit(context.Background(), s)
			if err != nil {
				t.Fatal(err)
			}
			eta := q.Natural(nil)
			if first == nil {
				first = eta
			}
			for i := range eta {
				if math.Float64bits(eta[i]) != math.Float64bits(first[i]) {
					t.Fatalf("batch %d, %d workers: element %d is %v; with one worker it is %v",
						batch,
						workers, i, eta[i], first[i])
				}
			}
		}
	}
}

// linearGraph returns a regression with unknown noise.
func linearGraph(y []float64) *pgsvi.Graph {
	x := randomDesign(testkit.Rand(301), len(y), 3)
	g := new(pgsvi.Graph)
	w, noise := g.Block("w", 1, pgsvi.NewIsotropic(3, 10)), g.Block("noise", 1, gamma(1, 1))
	g.Add(pgsvi.NormalFactor(pgsvi.Known(y...), w.Dot(x), noise))
	return g
}

// TestGraphResume checks that a saved run continues with the same bits, and that it is refused
// for other data.
func TestGraphResume(t *testing.T) {
	ctx := context.Background()
	rng := testkit.Rand(302)
	y := make([]float64, 400)
	for i := range y {
		y[i] = rng.NormFloat64()
	}
	model := func() pgsvi.Objective[*pgsvi.Exp] { return testkit.Must(linearGraph(y).Objective()) }
	whole, err := (&pgsvi.Solver{MaxIter: 30, BatchSize: 40}).Run(ctx, model())
	if err != nil {
		t.Fatal(err)
	}
	part, err := (&pgsvi.Solver{MaxIter: 11, BatchSize: 40}).Run(ctx, model())
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := part.Save(&file); err != nil {
		t.Fatal(err)
	}
	saved := file.Bytes()
	s := &pgsvi.Solver{MaxIter: 30, BatchSize: 40}
	back, err := s.LoadResult(ctx, bytes.NewReader(saved), model())
	if err != nil {
		t.Fatal(err)
	}
	if back, err = s.Resume(ctx, back); err != nil {
		t.Fatal(err)
	}
	if back.ELBO != whole.ELBO {
		t.Errorf("the resumed run ends at %v, the whole run at %v", back.ELBO, whole.ELBO)
	}
	for i := range 3 {
		y[7+100*i] += 1e-6
		if _, err := s.LoadResult(ctx, bytes.NewReader(saved), model()); !errors.Is(err,
			pgsvi.ErrFile) {
			t.Errorf("changed row %d: the error is %v; want ErrFile", 7+100*i, err)
		}
		y[7+100*i] -= 1e-6
	}
}

// TestGraphLogProb compares LogProb with the density by hand, and the evidence by PSIS with the
// exact one.
func TestGraphLogProb(t *testing.T) {
	y := []float64{0.5, -1, 2.5, 0.1}
	var g pgsvi.Graph
	tau := g.Block("tau", 1, gamma(3, 2))
	mu := g.Block("mu", 2, pgsvi.NewIsotropic(1, 1), gaussianAt(1, testkit.Rand(1)))
	pi := g.Block("pi", 1, nil, dirichlet(2, 2))
	g.Add(
		pgsvi.MixtureFactor(pi, pgsvi.NormalFactor(pgsvi.Known(y...), mu.Copy(0), tau),
			pgsvi.NormalFactor(pgsvi.Known(y...), mu.Copy(1), pgsvi.Known(1))),
		pgsvi.NewFactor("Dirichlet(1, 1)", func(int, []pgsvi.Moments) float64 { return 0 }, nil,
			pi.Element(0)),
	)
	normal := func(x, m, t float64) float64 { return 0.5 * (math.Log(t) - log2Pi - t*(x-m)*(x-m)) }
	z := []float64{1.5, 0.3, -0.4, 0.25, 0.75}
	want := 3*math.Log(2) - math.Log(2) + 2*math.Log(z[0]) - 2*z[0] + normal(z[1], 0, 1) +
		normal(z[2], 0, 1)
	for _, x := range y {
		want += math.Log(z[3]*math.Exp(normal(x, z[1], z[0])) + z[4]*math.Exp(normal(x, z[2], 1)))
	}
	if got := g.LogProb()(z); math.Abs(got-want) > 1e-12*math.Abs(want) {
		t.Errorf("LogProb is %v, by hand %v", got, want)
	}

	rng, n := testkit.Rand(303), 30
	data, sum, square := make([]float64, n), 0.0, 0.0
	for i := range data {
		data[i] = 1 + rng.NormFloat64()
		sum, square = sum+data[i], square+data[i]*data[i]
	}
	var h pgsvi.Graph
	m := h.Block("m", 1, pgsvi.NewIsotropic(1, 4))
	h.Add(pgsvi.NormalFactor(pgsvi.Known(data...), m, pgsvi.Known(1)))
	q, res := fitGraph(t, &h)
	p := 0.25 + float64(n)
	exact := -0.5*float64(n)*log2Pi - 0.5*square + 0.5*sum*sum/p - 0.5*math.Log(4*p)
	psis, err := pgsvi.NewPSIS(context.Background(), nil, q, h.LogProb(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(res.ELBO-exact) > 1e-9 || math.Abs(psis.LogZ-exact) > 1e-9 {
		t.Errorf("the ELBO is %v and the evidence by PSIS %v; want %v", res.ELBO, psis.LogZ, exact)
	}
	var broken pgsvi.Graph
	if v := broken.LogProb()(nil); !math.IsNaN(v) {
		t.Errorf("LogProb of an empty Graph is %v; want NaN", v)
	}
}

// TestGraphTerms checks the moments of expressions against draws and against known numbers.
func TestGraphTerms(t *testing.T) {
	var g pgsvi.Graph
	w := g.Block("w", 2, pgsvi.NewIsotropic(2, 1), gaussianAt(2, testkit.Rand(1)), gaussianAt(2,
		testkit.Rand(2)))
	z := g.Block("z", 3, testkit.Must(pgsvi.NewCategorical([]float64{1, 2, 5})))
	g.Add(pgsvi.NormalFactor(w, pgsvi.Known(0), pgsvi.Known(1)))
	q := testkit.Must(g.Objective()).Init
	rows := []struct {
		name       string
		term       pgsvi.Term
		row, count int
		want       pgsvi.Moments
	}{
		{"class 0", z, 3, 9, pgsvi.Moments{Mean: 1. / 8, Square: 1. / 8}},
		{"class 2", z.Copy(2, 1).Element(2), 1, 2, pgsvi.Moments{Mean: 5. / 8, Square: 5. / 8}},
		{"known", pgsvi.Known(2, 3).Times(pgsvi.Known(-2)), 1, 2, pgsvi.Moments{Mean: -6,
			Square: 36}},
		{"sum", pgsvi.Known(2).Plus(z.Element(1)), 2, 3, pgsvi.Moments{Mean: 2.25, Square: 5.25}},
	}
	for _, r := range rows {
		m := r.term.Moments(q)
		if len(m) != r.count {
			t.Fatalf("%s has %d rows; want %d", r.name, len(m), r.count)
		}
		if got := m[r.row]; math.Abs(got.Mean-r.want.Mean) > 1e-14 ||
			math.Abs(got.Square-r.want.Square) > 1e-14 {
			t.Errorf("%s is %+v; want %+v", r.name, got, r.want)
		}
	}
	inner := w.Copy(0).Inner(w.Copy(1)).Moments(q)[0]
	rng := testkit.Rand(304)
	var mean, square float64
	const draws = 200000
	a, b := w.Of(q)[0], w.Of(q)[1]
	for range draws {
		x, y := a.Rand(nil, rng), b.Rand(nil, rng)
		u := x[0]*y[0] + x[1]*y[1]
		mean, square = mean+u/draws, square+u*u/draws
	}
	if math.Abs(inner.Mean-mean) > 0.02 || math.Abs(inner.Square-square) > 0.05 {
		t.Errorf("the inner product has the moments %+v; draws have %v and %v", inner, mean, square)
	}
	if n := len(w.Copy(1).Element(0).Of(q)); n != 1 {
		t.Errorf("Of returns %d distributions; want 1", n)
	}
	if w.Dot([][]float64{{1, 2}, {3, 4}}).Of(q) != nil || pgsvi.Known(1).Of(q) != nil {
		t.Error("Of of an expression is not nil")
	}
	if !strings.Contains(g.String(), "block w: 2 × Gaussian of dimension 2") {
		t.Errorf("String is %q", g.String())
	}
}

// TestGraphMistakes checks the errors of a model: each names the block, the factor or the row,
// and all are reported at once.
func TestGraphMistakes(t *testing.T) {
	y, nan := []float64{1, 2, 3}, math.NaN()
	normal := func(d int) pgsvi.ExpFamily { return pgsvi.NewIsotropic(d, 1) }
	var other pgsvi.Graph
	foreign := other.Block("foreign", 3, normal(1))
	value := func(f func(m []pgsvi.Moments) float64, t ...pgsvi.Term) pgsvi.Factor {
		return pgsvi.NewFactor("own", func(_ int, m []pgsvi.Moments) float64 { return f(m) }, nil,
			t...)
	}
	known := pgsvi.Known
	cases := []struct {
		name  string
		add   func(g *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor
		want  error
		parts []string
	}{
		{"other Graph", func(_ *pgsvi.Graph, _, t pgsvi.Term) pgsvi.Factor {
			return pgsvi.NormalFactor(known(y...), foreign, t)
		}, pgsvi.ErrParam, []string{"factor normal(known, foreign, t)", "foreign belongs to " +
			"another Graph"}},
		{"mixed Graphs", func(_ *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			return pgsvi.NormalFactor(known(y...), foreign.Plus(w.Element(0)), t)
		}, pgsvi.ErrParam, []string{"foreign + w element 0", "different Graphs"}},
		{"Gaussian precision", func(_ *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			return pgsvi.NormalFactor(known(y...), w.Element(0), w.Element(1))
		}, pgsvi.ErrParam, []string{"row 0", "E[log u] of w element 1", "Gamma block"}},
		{"Gamma mean", func(_ *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			return pgsvi.NormalFactor(known(y...), t, known(1))
		}, pgsvi.ErrParam, []string{"E[u²] of t", "t knows only E[u] and E[log u]"}},
		{"negative precision", func(_ *pgsvi.Graph, w, _ pgsvi.Term) pgsvi.Factor {
			return pgsvi.NormalFactor(known(y...), w.Element(0), known(1, 2, -3))
		}, pgsvi.ErrParam, []string{"row 2", "E[log u] of known", "must be positive"}},
		{"zero precision", func(_ *pgsvi.Graph, w, _ pgsvi.Term) pgsvi.Factor {
			return pgsvi.NormalFactor(known(y...), w.Element(0), known(0))
		}, pgsvi.ErrParam, []string{"E[log u] of known is -Inf", "must be positive"}},
		{"NaN data", func(_ *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			return pgsvi.NormalFactor(known(1, nan, 3), w.Element(0), t)
		}, pgsvi.ErrNotFinite, []string{"row 1", "E[u] of known is NaN", "missing"}},
		{"infinite design", func(_ *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			return pgsvi.NormalFactor(known(y...), w.Dot([][]float64{{1, 2}, {1, math.Inf(1)}, {0,
				0}}), t)
		}, pgsvi.ErrNotFinite, []string{"row 1, column 1 of Dot is +Inf"}},
		{"rows", func(_ *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			return pgsvi.NormalFactor(known(1, 2), w.Dot([][]float64{{1, 2}, {1, 1}, {0, 0}}), t)
		}, pgsvi.ErrShape, []string{"has 3 rows, but term known has 2"}},
		{"columns", func(_ *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			return pgsvi.NormalFactor(known(1, 2), w.Dot([][]float64{{1, 2}, {1}}), t)
		}, pgsvi.ErrShape, []string{"term w", "row 1 of Dot has 1 columns"}},
		{"dependent terms", func(_ *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			return pgsvi.NormalFactor(w.Element(0), w.Element(1), t)
		}, pgsvi.ErrParam, []string{"row 0", "w element 0 and w element 1", "same copy"}},
		{"dependent operands", func(_ *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			return pgsvi.NormalFactor(w.Element(0).Plus(w.Element(1)), known(1), t)
		}, pgsvi.ErrParam, []string{"w element 0 + w element 1", "use Dot"}},
		{"dependent in one row", func(g *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			x := g.Block("x", 4, normal(1))
			return pgsvi.NormalFactor(x.Copy(0, 1, 2), x.Copy(1, 2, 2), t)
		}, pgsvi.ErrParam, []string{"row 2", "same copy"}},
		{"not Gaussian", func(_ *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			return pgsvi.LikelihoodFactor(y, t, pgsvi.Poisson{})
		}, pgsvi.ErrParam, []string{"t is not Gaussian"}},
		{"label", func(_ *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			return pgsvi.LikelihoodFactor([]float64{1, -1}, w.Element(0), pgsvi.Poisson{})
		}, pgsvi.ErrLabel, []string{"Poisson", "row 1"}},
		{"likelihood rows", func(_ *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			return pgsvi.LikelihoodFactor([]float64{1, 1}, w.Dot([][]float64{{1, 2}, {1, 1}, {0,
				0}}),
				pgsvi.Poisson{})
		}, pgsvi.ErrShape, []string{"2 responses for the 3 rows"}},
		{"NaN value", func(_ *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			return value(func(m []pgsvi.Moments) float64 { return m[0].Log }, w.Element(0))
		}, pgsvi.ErrNotFinite, []string{"factor own, row 0", "E[log u] of w element 0"}},
		{"panic", func(_ *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			return value(func(m []pgsvi.Moments) float64 { return m[1].Log }, w.Element(0))
		}, pgsvi.ErrPanic, []string{"factor own, row", "index out of range"}},
		{"mixture weights", func(g *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			f := pgsvi.NormalFactor(known(y...), w.Element(0), t)
			return pgsvi.MixtureFactor(g.Block("pi", 1, dirichlet(3, 1)), f, f)
		}, pgsvi.ErrShape, []string{"2 alternatives", "3 weights, the rows of pi"}},
		{"chain moves", func(g *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			f := pgsvi.NormalFactor(known(y...), w.Element(0), t)
			pi := g.Block("pi", 1, dirichlet(2, 1))
			return pgsvi.ChainFactor(pi, pi, f, f)
		}, pgsvi.ErrShape, []string{"2 states", "2 of move, pi"}},
		{"sequences", func(g *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			f := pgsvi.NormalFactor(known(y...), w.Element(0), t)
			return pgsvi.ChainFactor(g.Block("a", 1, dirichlet(2, 1)), g.Block("b", 2,
				dirichlet(2, 1)), f,
				f).Sequences(1, 1)
		}, pgsvi.ErrShape, []string{"2 times", "3 rows"}},
		{"shape", func(_ *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			return pgsvi.GammaFactor(t,
				0, known(1))
		},
			pgsvi.ErrParam, []string{"gamma(t, known)", "shape is 0"}},
		{"index", func(_ *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			return pgsvi.NormalFactor(known(y...), w.Copy(1).Element(0), t)
		}, pgsvi.ErrShape, []string{"copy 1 does not exist"}},
		{"element", func(_ *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			return pgsvi.NormalFactor(known(y...), w.Element(2), t)
		}, pgsvi.ErrShape, []string{"element 2 does not exist"}},
		{"block without prior and factor", func(g *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			g.Block("lonely", 2, nil, normal(1))
			return pgsvi.NormalFactor(known(y...), w.Element(0), t)
		}, pgsvi.ErrParam, []string{"block lonely", "no prior and no factor"}},
		{"block without prior and start", func(g *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			g.Block("lonely", 2, nil)
			return pgsvi.NormalFactor(known(y...), w.Element(0), t)
		}, pgsvi.ErrParam, []string{"block lonely", "neither a prior nor a start"}},
		{"block of two families", func(g *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			g.Block("mixed", 2, normal(1), normal(1), gamma(1, 1))
			return pgsvi.NormalFactor(known(y...), w.Element(0), t)
		}, pgsvi.ErrShape, []string{"block mixed", "copy 1"}},
		{"copies", func(g *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			return pgsvi.NormalFactor(known(y...), g.Block("none", 0, normal(1)), t)
		}, pgsvi.ErrParam, []string{"block none", "0 copies"}},
		{"zero Term", func(_ *pgsvi.Graph, w, t pgsvi.Term) pgsvi.Factor {
			return pgsvi.NormalFactor(known(y...), pgsvi.Term{}, t)
		}, pgsvi.ErrParam, []string{"a Term is empty"}},
		{"zero Factor", func(*pgsvi.Graph, pgsvi.Term,
			pgsvi.Term) pgsvi.Factor {
			return pgsvi.Factor{}
		},
			pgsvi.ErrParam, []string{"factor 0 is empty"}},
		{"no value", func(_ *pgsvi.Graph, w,
			t pgsvi.Term) pgsvi.Factor {
			return pgsvi.NewFactor("own", nil, nil, t)
		},
			pgsvi.ErrParam, []string{"factor own has no value"}},
	}
	for _, c := range cases {
		var g pgsvi.Graph
		w, tau := g.Block("w", 1, normal(2)), g.Block("t", 1, gamma(1, 1))
		g.Add(c.add(&g, w, tau))
		_, err := g.Objective()
		if !errors.Is(err, c.want) {
			t.Errorf("%s: the error is %v; want one that wraps %v", c.name, err, c.want)
			continue
		}
		for _, p := range c.parts {
			if !strings.Contains(err.Error(), p) {
				t.Errorf("%s: the error %q lacks %q", c.name, err, p)
			}
		}
		if !strings.HasPrefix(err.Error(), "pgsvi: ") || strings.Contains(err.Error(),
			"pgsvi: pgsvi") {
			t.Errorf("%s: the error %q has a wrong prefix", c.name, err)
		}
		if testing.Verbose() {
			t.Log(err)
		}
	}

	var g pgsvi.Graph
	w, tau := g.Block("w", 1, normal(2)), g.Block("t", 1, gamma(1, 1))
	for _, i := range []int{0, 2, 6, 9} {
		g.Add(cases[i].add(&g, w, tau))
	}
	_, err := g.Objective()
	if err == nil || strings.Count(err.Error(), "\n") < 1 {
		t.Errorf("several mistakes give the error %v", err)
	}
	if _, err := new(pgsvi.Graph).Objective(); !errors.Is(err, pgsvi.ErrEmpty) {
		t.Errorf("an empty Graph gives the error %v", err)
	}
}

// TestGraphNeverPanics builds models by random calls with arbitrary arguments. Objective must
// return a model or an error.
func TestGraphNeverPanics(t *testing.T) {
	valid := 0
	for seed := range testkit.Longer(uint64(20000), 2000) {
		rng := testkit.Rand(seed)
		var g pgsvi.Graph
		families := []pgsvi.ExpFamily{nil, pgsvi.NewIsotropic(1, 1), pgsvi.NewIsotropic(2, 1),
			gamma(1, 1),
			pgsvi.NewIsotropicMeanField(2, 1), beta(1, 1), dirichlet(2, 1), (*pgsvi.Exp)(nil),
			testkit.Must(pgsvi.NewCategorical([]float64{1, 1})), testkit.Must(pgsvi.NewPoisson(2)),
			testkit.Must(pgsvi.NewWishart(3, diagonal(2, 1)))}
		values := []float64{1, 2, 0.5, 3, 1, 0, -1, math.NaN(), math.Inf(1), 1e300}
		terms := []pgsvi.Term{{}, g.Block("x", 1, families[1]), g.Block("t", 1, families[3]),
			pgsvi.Known(1)}
		var factors []pgsvi.Factor
		any := func() pgsvi.Term { return terms[min(rng.IntN(20), 1+rng.IntN(len(terms)-1))] }
		vector := func() []float64 {
			x := make([]float64, rng.IntN(4))
			for i := range x {
				x[i] = values[rng.IntN(4+rng.IntN(7))]
			}
			return x
		}
		factor := func() pgsvi.Factor {
			if len(factors) == 0 {
				return pgsvi.Factor{}
			}
			return factors[rng.IntN(len(factors))]
		}
		for range 4 + rng.IntN(25) {
			i, j := rng.IntN(4)-1, rng.IntN(3)
			switch rng.IntN(16) {
			case 0, 1, 2:
				prior, n := families[1+rng.IntN(6)], 1+rng.IntN(2)
				var start []pgsvi.ExpFamily
				if rng.IntN(10) == 0 {
					prior, n = families[rng.IntN(len(families))], i+1
					start = []pgsvi.ExpFamily{families[rng.IntN(len(families))],
						families[1]}[:rng.IntN(3)]
				}
				terms = append(terms, g.Block("b", n, prior, start...))
			case 3:
				terms = append(terms, pgsvi.Known(vector()...))
			case 4:
				terms = append(terms, any().Copy([]int{i, j, 0}[:rng.IntN(4)]...))
			case 5:
				terms = append(terms, any().Element([]int{i, j}[:rng.IntN(3)]...))
			case 6:
				terms = append(terms, any().Dot([][]float64{vector(), {1, 2}, {0}}[:rng.IntN(4)]))
			case 7:
				terms = append(terms, any().Inner(any()))
			case 8:
				terms = append(terms, any().Plus(any()))
			case 9:
				terms = append(terms, any().Times(any()))
			case 10:
				factors = append(factors, pgsvi.NormalFactor(any(), any(), any()))
			case 11:
				factors = append(factors, pgsvi.GammaFactor(any(), values[rng.IntN(len(values))],
					any()))
			case 12:
				factors = append(factors, pgsvi.LikelihoodFactor(vector(), any(),
					[]pgsvi.Likelihood{nil, pgsvi.Poisson{}, pgsvi.BernoulliLogit{}}[j]))
			case 13:
				factors = append(factors, pgsvi.MixtureFactor(any(), []pgsvi.Factor{factor(),
					factor()}[:j]...))
			case 14:
				f := pgsvi.ChainFactor(any(), any(), []pgsvi.Factor{factor(), factor()}[:j]...)
				if i > 0 {
					f = f.Sequences(i, j)
				}
				factors = append(factors, f)
			case 15:
				k := rng.IntN(4)
				factors = append(factors, pgsvi.NewFactor("own", func(row int,
					m []pgsvi.Moments) float64 {
					return m[k].Mean * m[0].Square * values[row]
				}, nil, []pgsvi.Term{any(), any(), any()}[:rng.IntN(4)]...))
			}
		}
		f := factor()
		g.Add(f)
		_ = g.String()
		_ = pgsvi.CheckFactor(f)
		o, err := g.Objective()
		if err != nil {
			continue
		}
		valid++
		if _, err := (&pgsvi.Solver{MaxIter: 2}).Run(context.Background(), o); err != nil &&
			!errors.Is(err, pgsvi.ErrNotFinite) && !errors.Is(err, pgsvi.ErrDiverged) {
			t.Errorf("seed %d: %v\n%v", seed, err, &g)
		}
	}
	if valid < 20 {
		t.Errorf("only %d random models are valid", valid)
	}
	t.Logf("%d models are valid", valid)
}

// TestGraphSingleRows compares a model whose factors have one row each with the exact evidence.
func TestGraphSingleRows(t *testing.T) {
	var g pgsvi.Graph
	want := 0.0
	for _, y := range []float64{1, 2, -3} {
		x := g.Block(fmt.Sprint("x", y), 1, pgsvi.NewIsotropic(1, 1))
		g.Add(pgsvi.NormalFactor(pgsvi.Known(y), x, pgsvi.Known(1)))
		want += -0.5*log2Pi - 0.5*math.Log(2) - y*y/4
	}
	if _, res := fitGraph(t, &g); math.Abs(res.ELBO-want) > 1e-10 {
		t.Errorf("the ELBO is %v; the evidence is %v", res.ELBO, want)
	}
}
