package beam

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
)

// TestGLMGroups compares a mixed model of two factors, whose sums are added up by shards, with the
// model in memory. It has the same bits in this process and on Prism.
func TestGLMGroups(t *testing.T) {
	const n, levels, days, cols = 3000, 120, 7, 1 + 2*120 + 7
	rng := rand.New(rand.NewPCG(5, 6))
	x, y := pgsvi.NewSparse(cols), make([]float64, n)
	effects := make([]float64, 2*levels)
	for g := range effects {
		effects[g] = 0.7 * rng.NormFloat64()
	}
	for i := range y {
		v, g := rng.NormFloat64(), rng.IntN(levels-1) // the last level is new
		day := rng.IntN(days)
		x.Append([]int{0, 1 + 2*g, 2 + 2*g, 1 + 2*levels + day}, []float64{v, 1, v, 1})
		eta := 0.5*v + 0.3*float64(day-3) + effects[2*g] + effects[2*g+1]*v
		y[i] = math.Copysign(1, 1/(1+math.Exp(-eta))-rng.Float64())
	}
	opt := &pgsvi.GLMOptions{Intercept: true, Groups: []pgsvi.Group{{Name: "shop", First: 1,
		Levels: levels, Effects: []string{"(Intercept)", "x"}},
		{Name: "day", First: 1 + 2*levels, Levels: days, NoPrior: true}}}
	g, err := pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{}, opt)
	if err != nil {
		t.Fatal(err)
	}
	want, in, err := g.Fit(context.Background(), &pgsvi.Solver{Goal: 1e-11})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := data.NewRowWriter(&b, cols, &data.RowOptions{Sparse: true})
	if _, err := data.CopyRows(w, pgsvi.Rows(x, y)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := writeTo(t, filepath.Join(t.TempDir(), "rows"), b.Bytes())
	var sums []string
	for _, job := range []*Job{{Shards: 1}, {Shards: 9}, {Shards: 5, Run: onPrism}} {
		job.Paths, job.Block, job.Goal, job.Rounds = []string{path}, 100, 1e-11, 40
		p, res, err := FitGLM(context.Background(), cols, pgsvi.BernoulliLogit{}, opt, job)
		if err != nil || !res.Converged {
			t.Fatal(err, res)
		}
		sums = append(sums, sumOf(t, p))
		if d := math.Abs(res.ELBO - in.ELBO); !(d <= 1e-8*math.Abs(in.ELBO)) {
			t.Errorf("ELBO %.10f, in memory %.10f", res.ELBO, in.ELBO)
		}
		for k, group := range want.Groups() {
			for i, e := range group.Effects {
				if own := p.Groups()[k].Effects[i]; !(math.Abs(own.SD-e.SD) <= 1e-5) {
					t.Errorf("%v, in memory %v", own, e)
				}
			}
		}
	}
	if sums[1] != sums[0] || sums[2] != sums[0] {
		t.Errorf("checksums %v", sums)
	}
}
