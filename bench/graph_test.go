package bench

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/cputime"
)

// groupsGraph is y_j ~ N(θ_j, 1), θ_j ~ N(μ, 1/τ), for n groups.
func groupsGraph(n int) (*pgsvi.Graph, error) {
	rng := rand.New(rand.NewPCG(1, 7))
	y := make([]float64, n)
	for i := range y {
		y[i] = 2 + 1.5*rng.NormFloat64() + rng.NormFloat64()
	}
	gamma, err := pgsvi.NewGamma(1, 1)
	if err != nil {
		return nil, err
	}
	g := new(pgsvi.Graph)
	mu, tau := g.Block("mu", 1, pgsvi.NewIsotropic(1, 100)), g.Block("tau", 1, gamma)
	theta := g.Block("theta", n, nil, pgsvi.NewIsotropic(1, 1))
	g.Add(pgsvi.NormalFactor(theta, mu, tau),
		pgsvi.NormalFactor(pgsvi.Known(y...), theta, pgsvi.Known(1)))
	return g, nil
}

// cellsGraph is a 300×200 matrix of rank 3 with 18,000 known cells.
func cellsGraph() (*pgsvi.Graph, error) {
	rng := rand.New(rand.NewPCG(4, 7))
	gamma, err := pgsvi.NewGamma(1, 1)
	if err != nil {
		return nil, err
	}
	vectors := func(n int) (at [][3]float64, start []pgsvi.ExpFamily) {
		for range n {
			q := pgsvi.NewIsotropic(3, 1).In(pgsvi.MeanCov)
			l := q.Params(nil)
			var x [3]float64
			for k := range x {
				l[k], x[k] = 0.5*rng.NormFloat64(), rng.NormFloat64()
			}
			if err := q.SetParams(l); err != nil {
				panic(err)
			}
			at, start = append(at, x), append(start, q)
		}
		return at, start
	}
	a, startA := vectors(300)
	b, startB := vectors(200)
	var row, col []int
	var y []float64
	for range 18000 {
		i, j := rng.IntN(300), rng.IntN(200)
		row, col = append(row, i), append(col, j)
		y = append(y, a[i][0]*b[j][0]+a[i][1]*b[j][1]+a[i][2]*b[j][2]+0.5*rng.NormFloat64())
	}
	g := new(pgsvi.Graph)
	prior := pgsvi.NewIsotropic(3, 1)
	u, v := g.Block("u", 300, prior, startA...), g.Block("v", 200, prior, startB...)
	g.Add(pgsvi.NormalFactor(pgsvi.Known(y...), u.Copy(row...).Inner(v.Copy(col...)),
		g.Block("t", 1, gamma)))
	return g, nil
}

// BenchmarkGraph fits models with many blocks, and reports the CPU time, the passes and the nats
// that the fit may be below the best ELBO:
//
//	go test -run '^$' -bench Graph ./bench
func BenchmarkGraph(b *testing.B) {
	groups := func() (*pgsvi.Graph, error) { return groupsGraph(100000) }
	for _, c := range []struct {
		name  string
		graph func() (*pgsvi.Graph, error)
		s     pgsvi.Solver
	}{
		{"100000 groups", groups, pgsvi.Solver{Goal: 0.01}},
		{"100000 groups in batches of 500", groups, pgsvi.Solver{BatchSize: 500, MaxPasses: 20}},
		{"500 blocks of 3 dimensions", cellsGraph, pgsvi.Solver{Goal: 0.01}},
	} {
		b.Run(c.name, func(b *testing.B) {
			g, err := c.graph()
			if err != nil {
				b.Fatal(err)
			}
			var res *pgsvi.Result
			before := cputime.Seconds()
			for b.Loop() {
				o, err := g.Objective()
				if err != nil {
					b.Fatal(err)
				}
				if _, res, err = o.Fit(context.Background(), &c.s); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((cputime.Seconds()-before)/float64(b.N), "CPU-s/op")
			b.ReportMetric(res.Passes, "passes")
			b.ReportMetric(res.Gap, "nats-left")
		})
	}
}
