package graph

import (
	"fmt"
	"math"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// The tests of this file write models of the literature as a Graph and check that a fit finds the
// parameters that have generated the data.

func dirichlet(k int, alpha float64) pgsvi.ExpFamily {
	a := make([]float64, k)
	floats.AddConst(alpha, a)
	return testkit.Must(pgsvi.NewDirichlet(a))
}

func beta(a, b float64) pgsvi.ExpFamily { return testkit.Must(pgsvi.NewBeta(a, b)) }

func checkFactors(t *testing.T, f ...pgsvi.Factor) {
	t.Helper()
	for _, f := range f {
		if err := pgsvi.CheckFactor(f); err != nil {
			t.Error(err)
		}
	}
}

func TestGraphStochasticBlocks(t *testing.T) {
	rng := testkit.Rand(201)
	const n, k = 40, 2
	var from, to, linked []int
	for j := range n {
		for i := range j {
			p := 0.05
			if i%2 == j%2 {
				p = 0.6
			}
			from, to, linked = append(from, i), append(to, j), append(linked, 1)
			if rng.Float64() < p {
				linked[len(linked)-1] = 0 // element 0 of a Beta is p, element 1 is 1−p
			}
		}
	}
	// model
	var g pgsvi.Graph
	pi := g.Block("pi", 1, dirichlet(k, 1))
	z := g.Block("z", n, nil, testkit.Must(pgsvi.NewCategorical([]float64{1, 2})))
	p := g.Block("p", k*k, beta(1, 1), beta(2, 1), beta(1, 2), beta(1, 2), beta(2, 1))
	for a := range k {
		member := pgsvi.NewFactor("member", func(_ int, m []pgsvi.Moments) float64 {
			return m[0].Mean * m[1].Log
		}, nil, z.Element(a), pi.Element(a))
		g.Add(member)
		for b := range k {
			edge := pgsvi.NewFactor("edge", func(_ int, m []pgsvi.Moments) float64 {
				return m[0].Mean * m[1].Mean * m[2].Log
			}, nil, z.Copy(from...).Element(a), z.Copy(to...).Element(b),
				p.Copy(a*k+b).Element(linked...))
			checkFactors(t, edge, member)
			g.Add(edge)
		}
	}
	// end
	q, _ := fitGraph(t, &g)
	same := 0
	for i, m := range z.Element(1).Moments(q) {
		if (m.Mean > 0.5) == (i%2 == 0) {
			same++
		}
	}
	if same > n/2 {
		same = n - same
	}
	if same > 0 {
		t.Errorf("%d of %d nodes are in the wrong class", same, n)
	}
}

func TestGraphPoissonFactorization(t *testing.T) {
	rng := testkit.Rand(202)
	const rows, columns, k = 40, 30, 2
	truth := make([][]float64, rows+columns)
	for i := range truth {
		for range k {
			truth[i] = append(truth[i], distuv.Gamma{Alpha: 1, Beta: 1, Src: rng}.Rand())
		}
	}
	var at, of []int
	var y []float64
	for i := range rows {
		for j := range columns {
			at, of = append(at, i), append(of, j)
			y = append(y, distuv.Poisson{Lambda: floats.Dot(truth[i], truth[rows+j]),
				Src: rng}.Rand())
		}
	}
	// model
	var g pgsvi.Graph
	var rates []pgsvi.Term
	for c := range k {
		u := g.Block(fmt.Sprint("row", c), rows, gamma(1, 1), gamma(1, 1+0.2*float64(c)))
		v := g.Block(fmt.Sprint("column", c), columns, gamma(1, 1))
		rates = append(rates, u.Copy(at...).Times(v.Copy(of...)))
	}
	counts := pgsvi.NewFactor("counts", func(n int, m []pgsvi.Moments) float64 {
		var l [k]float64
		sum, _ := math.Lgamma(y[n] + 1)
		for c := range k {
			l[c], sum = m[c].Log, sum+m[c].Mean
		}
		return y[n]*floats.LogSumExp(l[:]) - sum
	}, func(n int, d, m []pgsvi.Moments) {
		all := math.Log(math.Exp(m[0].Log) + math.Exp(m[1].Log))
		for c := range k {
			d[c] = pgsvi.Moments{Mean: -1, Log: y[n] * math.Exp(m[c].Log-all)}
		}
	}, rates...)
	g.Add(counts)
	// end
	checkFactors(t, counts)
	q, _ := fitGraph(t, &g)
	var fitted, raw float64
	u, v := rates[0].Moments(q), rates[1].Moments(q)
	for n := range y {
		p := floats.Dot(truth[at[n]], truth[rows+of[n]])
		fitted += math.Abs(u[n].Mean + v[n].Mean - p)
		raw += math.Abs(y[n] - p)
	}
	if fitted > 0.6*raw {
		t.Errorf("the mean error of the fitted rates is %.3f, of the counts %.3f",
			fitted/rows/columns,
			raw/rows/columns)
	}
}

func TestGraphStudentT(t *testing.T) {
	rng := testkit.Rand(203)
	x := randomDesign(rng, 200, 3)
	y := make([]float64, len(x))
	for n := range y {
		y[n] = 1 - 2*x[n][1] + 0.5*distuv.StudentsT{Mu: 0, Sigma: 1, Nu: 2, Src: rng}.Rand()
	}
	// model
	var g pgsvi.Graph
	w := g.Block("w", 1, pgsvi.NewIsotropic(3, 100))
	tau := g.Block("tau", 1, gamma(1, 1))
	scale := g.Block("scale", len(y), gamma(1, 1)) // ν/2 = 1
	g.Add(pgsvi.NormalFactor(pgsvi.Known(y...), w.Dot(x), scale.Times(tau)))
	// end
	q, _ := fitGraph(t, &g)
	m := w.Of(q)[0].(*pgsvi.Gaussian).Mean(nil)
	for k, want := range []float64{1, -2, 0} {
		if math.Abs(m[k]-want) > 0.15 {
			t.Errorf("weight %d is %v; want %v", k, m[k], want)
		}
	}
}

func TestGraphProbitGroups(t *testing.T) {
	rng := testkit.Rand(204)
	const groups = 30
	x := randomDesign(rng, 900, 2)
	y, group, u := make([]float64, len(x)), make([]int, len(x)), make([]float64, groups)
	for j := range u {
		u[j] = rng.NormFloat64()
	}
	for n := range y {
		group[n], y[n] = n%groups, -1
		if rng.NormFloat64() < 0.5+x[n][1]+u[group[n]] {
			y[n] = 1
		}
	}
	// model
	var g pgsvi.Graph
	w := g.Block("w", 1, pgsvi.NewIsotropic(2, 25))
	tau := g.Block("tau", 1, gamma(1, 1))
	a := g.Block("a", groups, nil, pgsvi.NewIsotropic(1, 1))
	g.Add(
		pgsvi.LikelihoodFactor(y, w.Dot(x).Plus(a.Copy(group...)), pgsvi.BernoulliProbit{}),
		pgsvi.NormalFactor(a, pgsvi.Known(0), tau),
	)
	// end
	q, _ := fitGraph(t, &g)
	m := w.Of(q)[0].(*pgsvi.Gaussian).Mean(nil)
	if math.Abs(m[1]-1) > 0.2 {
		t.Errorf("the slope is %v; want 1", m[1])
	}
	var c float64
	for j, e := range a.Moments(q) {
		c += e.Mean * u[j]
	}
	if sd := 1 / math.Sqrt(tau.Moments(q)[0].Mean); c < 0.5*floats.Dot(u, u) ||
		math.Abs(sd-1) > 0.4 {
		t.Errorf("the groups have the regression %v on the truth and sd %v", c/floats.Dot(u, u), sd)
	}
}

func TestGraphWalk(t *testing.T) {
	rng := testkit.Rand(205)
	const n = 80
	y, path := make([]float64, n), make([]float64, n)
	for i := range y {
		if i > 0 {
			path[i] = path[i-1] + 0.3*rng.NormFloat64()
		}
		y[i] = path[i] + 0.5*rng.NormFloat64()
	}
	steps := make([][]float64, n-1)
	for i := range steps {
		steps[i] = make([]float64, n)
		steps[i][i], steps[i][i+1] = -1, 1
	}
	var seen []int // the rest is missing
	var obs []float64
	for i := range y {
		if i < 20 || i >= 25 {
			seen, obs = append(seen, i), append(obs, y[i])
		}
	}
	// model
	var g pgsvi.Graph
	x := g.Block("x", 1, pgsvi.NewIsotropic(n, 100))
	step, noise := g.Block("step", 1, gamma(1, 0.1)), g.Block("noise", 1, gamma(1, 0.1))
	g.Add(
		pgsvi.NormalFactor(x.Dot(steps), pgsvi.Known(0), step),
		pgsvi.NormalFactor(pgsvi.Known(obs...), x.Element(seen...), noise),
	)
	// end
	q, _ := fitGraph(t, &g)
	m := x.Of(q)[0].(*pgsvi.Gaussian)
	var s, raw float64
	for i, e := range m.Mean(nil) {
		s += (e - path[i]) * (e - path[i])
		raw += (y[i] - path[i]) * (y[i] - path[i])
	}
	if s > 0.7*raw {
		t.Errorf("the path has the mean squared error %v, the data %v", s/n, raw/n)
	}
	if v := m.Var(nil); v[22] < 1.2*v[40] {
		t.Errorf("the variance in the gap is %v, outside %v", v[22], v[40])
	}
}

func TestGraphMissing(t *testing.T) {
	rng := testkit.Rand(206)
	const n = 300
	var missing []int
	x, y := make([]float64, n), make([]float64, n)
	for i := range x {
		x[i] = 1 + rng.NormFloat64()
		y[i] = 2*x[i] + 0.5*rng.NormFloat64()
		if i%5 == 0 {
			missing = append(missing, i)
		}
	}
	var xSeen, ySeen, yMissing []float64
	for i := range x {
		if i%5 == 0 {
			yMissing = append(yMissing, y[i])
		} else {
			xSeen, ySeen = append(xSeen, x[i]), append(ySeen, y[i])
		}
	}
	// model
	var g pgsvi.Graph
	slope, center := g.Block("slope", 1, pgsvi.NewIsotropic(1, 100)), g.Block("center", 1,
		pgsvi.NewIsotropic(1, 100))
	noise, spread := g.Block("noise", 1, gamma(1, 1)), g.Block("spread", 1, gamma(1, 1))
	lost := g.Block("lost", len(missing), nil, pgsvi.NewIsotropic(1, 1))
	seen := pgsvi.Known(xSeen...)
	g.Add(
		pgsvi.NormalFactor(seen, center, spread),
		pgsvi.NormalFactor(lost, center, spread),
		pgsvi.NormalFactor(pgsvi.Known(ySeen...), seen.Times(slope), noise),
		pgsvi.NormalFactor(pgsvi.Known(yMissing...), lost.Times(slope), noise),
	)
	// end
	q, _ := fitGraph(t, &g)
	var s float64
	for i, m := range lost.Moments(q) {
		s += (m.Mean - x[missing[i]]) * (m.Mean - x[missing[i]])
	}
	if s /= float64(len(missing)); s > 0.12 { // 1/(1+16) of noise variance ¼ and slope 2
		t.Errorf("the mean squared error of the missing values is %v", s)
	}
}

func TestGraphTopics(t *testing.T) {
	rng := testkit.Rand(207)
	const docs, words, k = 30, 12, 2
	var doc, word []int
	for d := range docs {
		for range 40 {
			w := rng.IntN(words / 2)
			if (d%2 == 0) == (rng.Float64() < 0.1) {
				w += words / 2
			}
			doc, word = append(doc, d), append(word, w)
		}
	}
	// model
	var g pgsvi.Graph
	theta := g.Block("theta", docs, dirichlet(k, 0.5))
	phi := g.Block("phi", k, dirichlet(words, 0.5))
	var topics []pgsvi.Factor
	for c := range k {
		topics = append(topics, pgsvi.NewFactor("word", func(_ int, m []pgsvi.Moments) float64 {
			return m[0].Log
		}, nil, phi.Copy(c).Element(word...)))
	}
	g.Add(pgsvi.MixtureFactor(theta.Copy(doc...), topics...))
	// end
	checkFactors(t, topics...)
	q, _ := fitGraph(t, &g)
	eta := phi.Of(q)[0].Natural(nil)
	p := floats.Sum(eta[:words/2]) / floats.Sum(eta)
	if p > 0.5 {
		p = 1 - p
	}
	if p > 0.1 {
		t.Errorf("a topic has a share of %v of the words of the other topic", p)
	}
}

func TestGraphFactorAnalysis(t *testing.T) {
	rng := testkit.Rand(208)
	const n, d, k = 80, 8, 2
	load, score := randomDesign(rng, d, k), randomDesign(rng, n, k)
	var at, of []int
	var y []float64
	for i := range n {
		score[i][0] = rng.NormFloat64()
		for j := range d {
			if rng.Float64() < 0.2 {
				continue // missing
			}
			at, of = append(at, i), append(of, j)
			y = append(y, 3+floats.Dot(load[j], score[i])+0.4*rng.NormFloat64())
		}
	}
	// model
	var g pgsvi.Graph
	w, z := g.Block("w", d, pgsvi.NewIsotropic(k, 4)), g.Block("z", n, pgsvi.NewIsotropic(k, 1))
	mean := g.Block("mean", d, pgsvi.NewIsotropic(1, 100))
	noise := g.Block("noise", d, gamma(1, 1))
	g.Add(pgsvi.NormalFactor(pgsvi.Known(y...),
		w.Copy(of...).Inner(z.Copy(at...)).Plus(mean.Copy(of...)), noise.Copy(of...)))
	// end
	q, _ := fitGraph(t, &g)
	var off float64
	for _, m := range noise.Moments(q) {
		off += math.Abs(1/math.Sqrt(m.Mean)-0.4) / d
	}
	if off > 0.08 {
		t.Errorf("the noise of the columns is %v away from 0.4", off)
	}
}

func TestGraphBinomial(t *testing.T) {
	rng := testkit.Rand(209)
	const groups = 20
	y, n := make([]float64, groups), 50.0
	for j := range y {
		y[j] = distuv.Binomial{N: n, P: 0.1 + 0.04*float64(j), Src: rng}.Rand()
	}
	// model
	var g pgsvi.Graph
	p := g.Block("p", groups, beta(1, 1))
	count := pgsvi.NewFactor("count", func(j int, m []pgsvi.Moments) float64 {
		return y[j]*m[0].Log + (n-y[j])*m[1].Log
	}, nil, p.Element(0), p.Element(1))
	g.Add(count)
	// end
	checkFactors(t, count)
	q, _ := fitGraph(t, &g)
	for j, b := range p.Of(q) {
		if eta := b.Natural(nil); math.Abs(eta[0]-1-y[j]) > 1e-9 ||
			math.Abs(eta[1]-1-n+y[j]) > 1e-9 {
			t.Errorf("group %d: Beta(%v, %v) after %v of %v", j, eta[0], eta[1], y[j], n)
		}
	}
}

// TestGraphWishart writes the density of vectors with an unknown precision matrix from the
// statistics of a Wishart block.
func TestGraphWishart(t *testing.T) {
	rng := testkit.Rand(210)
	const n = 400
	y := make([][]float64, n)
	for i := range y {
		a, b := rng.NormFloat64(), rng.NormFloat64()
		y[i] = []float64{a, 0.8*a + 0.6*b}
	}
	// model
	var g pgsvi.Graph
	l := g.Block("precision", 1, testkit.Must(pgsvi.NewWishart(3, diagonal(2, 1./3))))
	rows := pgsvi.NewFactor("wishart", func(i int,
		m []pgsvi.Moments) float64 { // log|Λ|, Λ_11, Λ_21, Λ_22
		a, b := y[i][0], y[i][1]
		return 0.5*m[0].Mean - log2Pi - 0.5*(a*a*m[1].Mean+2*a*b*m[2].Mean+b*b*m[3].Mean)
	}, nil, l.Copy(make([]int, n)...).Element(0), l.Element(1), l.Element(2), l.Element(3))
	g.Add(rows)
	// end
	checkFactors(t, rows)
	q, _ := fitGraph(t, &g)
	e := l.Moments(q)
	v := mat.NewSymDense(2, []float64{e[1].Mean, e[2].Mean, e[2].Mean, e[3].Mean})
	var c mat.Cholesky
	if !c.Factorize(v) {
		t.Fatal("the precision is not positive definite")
	}
	if err := c.InverseTo(v); err != nil {
		t.Fatal(err)
	}
	for k, want := range []float64{1, 0.8, 1} {
		if got := v.At(max(0, k-1), min(k, 1)); math.Abs(got-want) > 0.15 {
			t.Errorf("element %d of the covariance is %v; want %v", k, got, want)
		}
	}
}
