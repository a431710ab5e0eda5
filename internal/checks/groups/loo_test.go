package groups

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat/distmv"
)

// withoutLevel returns the log density of the rows of a level of group k under a fit to the other
// rows. It draws weights from the fit q to all rows, and weights the draws.
func withoutLevel(t *testing.T, c *mixedCase, lik Likelihood, q *GLMPosterior, k, level,
	draws int) float64 {
	t.Helper()
	r := c.groups[k]
	_, cols := c.x.Dims()
	x := NewSparse(cols)
	var y []float64
	var out []int
	for i := range c.y {
		ind, val := c.x.Row(i)
		in := false
		columns := make([]int, len(ind))
		for a, j := range ind {
			columns[a] = int(j)
			in = in || int(j) >= r.First && (int(j)-r.First)/len(r.Effects) == level
		}
		if in {
			out = append(out, i)
			continue
		}
		if err := x.Append(columns, val); err != nil {
			t.Fatal(err)
		}
		y = append(y, c.y[i])
	}
	g, err := NewGLM(x, y, lik, &GLMOptions{Intercept: true, PriorSD: 2, InterceptSD: 5,
		Groups: c.groups})
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := g.Fit(context.Background(), &Solver{Goal: 1e-11})
	if err != nil {
		t.Fatal(err)
	}
	src := rand.NewPCG(1, 2)
	from, _ := distmv.NewNormal(q.Mean(nil), q.Cov(), src)
	to, _ := distmv.NewNormal(p.Mean(nil), p.Cov(), src)
	logs := make([]float64, draws)
	for s := range logs {
		w := from.Rand(nil)
		logs[s] = to.LogProb(w) - from.LogProb(w)
		for _, i := range out {
			ind, val := c.x.Row(i)
			eta := w[len(w)-1]
			for a, j := range ind {
				eta += val[a] * w[j]
			}
			logs[s] += lik.LogProb(c.y[i], eta)
		}
	}
	return floats.LogSumExp(logs) - math.Log(float64(draws))
}

// TestLOOGroup compares LOOGroup with fits to the rows of all other levels. The tolerance allows for
// the error of 4,000 draws, and for the sites of the other rows, which do not move.
func TestLOOGroup(t *testing.T) {
	cases := map[string]mixedOptions{
		"slopes": {rows: 120, common: 2, levels: []int{13}, sd: [][]float64{{0.7, 0.4}}, rho: 0.4},
		"three": {rows: 120, common: 2, levels: []int{9}, sd: [][]float64{{0.7, 0.4, 0.5}},
			rho: 0.4},
		"crossed": {rows: 120, common: 2, levels: []int{13, 6},
			sd: [][]float64{{0.7}, {0.5, 0.2}}, rho: -0.3},
	}
	if testing.Short() {
		cases = map[string]mixedOptions{"slopes": cases["slopes"]}
	}
	for name, o := range cases {
		for _, lik := range []Likelihood{BernoulliLogit{}, GaussianNoise{Var: 0.5}, Poisson{},
			StudentT{DF: 4, Scale: 0.6}} {
			c := newMixedCase(t, lik, o, 4)
			g, _, q, _ := fittedGroups(t, c, lik)
			each, all := 0.2, 0.2 // nats
			if _, exact := lik.(GaussianNoise); exact {
				each, all = 1e-10, 1e-10
			}
			for k, r := range q.Groups() {
				l, err := g.LOOGroup(context.Background(), q, r.Name)
				if err != nil {
					t.Fatal(err)
				}
				if len(l.Pointwise) != r.Levels-1 {
					t.Fatalf("%s: LOOGroup left out %d levels instead of the %d with rows", name,
						len(l.Pointwise), r.Levels-1)
				}
				var sum float64
				for i, p := range l.Pointwise {
					want := withoutLevel(t, c, lik, q, k, i, 4000)
					if sum += want; !(math.Abs(p-want) <= each) {
						t.Errorf("%s, %T: level %d of %s has log density %v, and %v by a refit", name,
							lik, i, r.Name, p, want)
					}
				}
				if !(math.Abs(l.ELPD-sum) <= all) || math.Abs(l.ELPD-floats.Sum(l.Pointwise)) > 1e-9 {
					t.Errorf("%s, %T: %s has ELPD %v, and %v by refits", name, lik, r.Name, l.ELPD, sum)
				}
			}
		}
	}
}

// TestLOOGroupSingular checks that a slope without variance changes nothing.
func TestLOOGroupSingular(t *testing.T) {
	var elpd [2]float64
	for i, sd := range []float64{0, 1e-7} {
		c := newMixedCase(t, Poisson{}, mixedOptions{rows: 120, common: 2, levels: []int{9},
			sd: [][]float64{{0.7, 0}}}, 4)
		c.groups[0].SD[1] = sd
		g, err := NewGLM(c.x, c.y, Poisson{}, &GLMOptions{Groups: c.groups})
		if err != nil {
			t.Fatal(err)
		}
		q, _, err := g.Fit(context.Background(), &Solver{Goal: 1e-11})
		if err != nil {
			t.Fatal(err)
		}
		l, err := g.LOOGroup(context.Background(), q, "group1")
		if err != nil {
			t.Fatal(err)
		}
		elpd[i] = l.ELPD
	}
	if !(math.Abs(elpd[0]-elpd[1]) < 1e-6) {
		t.Errorf("with a slope of standard deviation 0 the ELPD is %v, and with 1e-7 %v", elpd[0],
			elpd[1])
	}
}

// TestLOOGroupAlone checks that leaving out levels of one row each is LOO of the rows if the
// response has Gaussian noise, that the result has the same bits on any number of cores, and that
// mistakes are errors.
func TestLOOGroupAlone(t *testing.T) {
	x, y := NewSparse(42), []float64(nil)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 40 {
		z := rng.NormFloat64()
		if err := x.Append([]int{0, 1 + i}, []float64{z, 1}); err != nil {
			t.Fatal(err)
		}
		y = append(y, z+rng.NormFloat64())
	}
	g, err := NewGLM(x, y, GaussianNoise{Var: 0.7}, &GLMOptions{Intercept: true,
		Groups: []Group{{Name: "g", First: 1, Levels: 41, SD: []float64{0.8}, Fixed: true}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	q, _, err := g.Fit(ctx, &Solver{Goal: 1e-11})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := g.LOO(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	levels, err := g.LOOGroup(ctx, q, "g")
	if err != nil {
		t.Fatal(err)
	}
	for what, v := range map[string][2][]float64{"log density": {rows.Pointwise, levels.Pointwise},
		"influence": {rows.Influence, levels.Influence}, "leverage": {rows.Leverage, levels.Leverage}} {
		if !floats.EqualApprox(v[0], v[1], 1e-8) {
			t.Errorf("the %s of levels of one row is %v, and of rows %v", what, v[1], v[0])
		}
	}
	if !(math.Abs(rows.SE-levels.SE) < 1e-8) {
		t.Errorf("the standard error is %v for levels, and %v for rows", levels.SE, rows.SE)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	if again, err := g.LOOGroup(ctx, q, "g"); err != nil || again.ELPD != levels.ELPD {
		t.Errorf("on three cores the ELPD is %v, %v instead of %v", again.ELPD, err, levels.ELPD)
	}
	if _, err := g.LOOGroup(ctx, q, "h"); !errors.Is(err, ErrParam) ||
		!strings.Contains(err.Error(), `"g"`) {
		t.Errorf("an unknown group: %v", err)
	}
	if _, err := g.LOOGroup(ctx, nil, "g"); !errors.Is(err, ErrParam) {
		t.Errorf("no posterior: %v", err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := g.LOOGroup(canceled, q, "g"); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}
