package pgsvi

import (
	"context"
	"math"
	"testing"

	"github.com/pgsvi/pgsvi/internal/graph"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
)

// platesModel returns the Smooth of the global blocks of a model with two plates, one of them
// inside the other, rows of two likelihoods, and rows without a plate.
func platesModel(t *testing.T) *plateTerms {
	t.Helper()
	rng := testkit.Rand(411)
	const classes, rows = 40, 200
	class, school := make([]int, rows), make([]int, rows)
	x, y, label := make([][]float64, rows), make([]float64, rows), make([]float64, rows)
	for i := range rows {
		class[i] = rng.IntN(classes - 2) // no row has the last two
		school[i] = class[i] / 2
		x[i] = []float64{1, rng.NormFloat64()}
		y[i] = x[i][1] + math.Sin(float64(class[i])) + rng.NormFloat64()
		label[i] = math.Copysign(1, y[i])
	}
	var g Graph
	tau := g.Block("tau", 1, must(NewGamma(1, 1)))
	a := g.Block("class", classes, NewIsotropic(1, 0.5), NewIsotropic(1, 0.2))
	w := g.Block("w", 1, NewIsotropic(2, 10))
	b := g.Block("school", classes/2, nil, NewIsotropic(1, 1))
	scale := g.Block("scale", 2, nil, must(NewGamma(2, 2)))
	effect := a.Copy(class...).Plus(b.Copy(school...))
	g.Add(NormalFactor(b, Known(0), tau), GammaFactor(scale, 2, Known(1)),
		NormalFactor(Known(y...), effect.Plus(w.Dot(x)), scale.Copy(0)),
		LikelihoodFactor(label, a.Copy(class...).Plus(w.Dot(x)), BernoulliLogit{}))
	f := must(g.smooth())
	p := graph.NewPlates(f.model)
	if p == nil {
		t.Fatal("the model has no plates")
	}
	return must(f.plates(p, f.prior, f.start))
}

// nearby returns t.init after a random move.
func (t *plateTerms) nearby(seed uint64) *Exp {
	rng := testkit.Rand(seed)
	q := t.init.Clone().(*Exp)
	x := q.Chart(nil)
	for i := range x {
		x[i] += 0.3 * rng.NormFloat64()
	}
	if err := q.SetChart(x); err != nil {
		panic(err)
	}
	return q
}

// TestProfileGrad compares the gradient over all units with differences, and with the mean of the
// gradients over single units.
func TestProfileGrad(t *testing.T) {
	ctx := context.Background()
	p := platesModel(t)
	if n := p.profile.Len(); n != 20 {
		t.Fatalf("%d units, want 20 schools", n) // the last has only a prior
	}
	q := p.nearby(1)
	n := q.NumParams()
	got, want, mean := make([]float64, n), make([]float64, n), make([]float64, n)
	value := must(p.Grad(ctx, nil, got, q, nil))
	gradientByDifferences(want, q, func(q Dist) float64 {
		v, _, err := p.Value(ctx, nil, q)
		if err != nil {
			t.Fatal(err)
		}
		return v
	})
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-4*(1+math.Abs(want[i])) {
			t.Errorf("element %d of the gradient is %v, by differences %v", i, got[i], want[i])
		}
	}
	sum, g := 0.0, make([]float64, n)
	for u := range p.profile.Len() {
		sum += must(p.Grad(ctx, nil, g, q, []int{u}))
		floats.Add(mean, g)
	}
	if sum /= 20; math.Abs(sum-value) > 1e-6*math.Abs(value) {
		t.Errorf("the values of units average to %v, want %v", sum, value)
	}
	for i := range got {
		if m := mean[i] / 20; math.Abs(m-got[i]) > 1e-3*(1+math.Abs(got[i])) {
			t.Errorf("element %d of the gradients of units averages to %v, want %v", i, m, got[i])
		}
	}
}

// TestProfileMinimum checks that the copies of plates are at their optimum for the given global
// blocks, and that the objective there is the objective of all blocks.
func TestProfileMinimum(t *testing.T) {
	ctx := context.Background()
	p := platesModel(t)
	for seed := range uint64(3) {
		q := p.nearby(10 + seed)
		all := must(p.whole(q))
		v, _, err := p.Value(ctx, nil, q)
		if err != nil {
			t.Fatal(err)
		}
		whole, _, err := p.full.Value(ctx, nil, all)
		if err != nil {
			t.Fatal(err)
		}
		v, whole = v+KLTo(p.prior).Value(q), whole+KLTo(p.full.prior).Value(all)
		if math.Abs(v-whole) > 1e-9*math.Abs(whole) {
			t.Errorf("the objective is %v, of all blocks %v", v, whole)
		}
		got := p.profile.Pack(nil, all.Natural(nil))
		if floats.Distance(got, q.Natural(nil), 2) > 0 {
			t.Errorf("the global blocks are %v, want %v", got, q.Natural(nil))
		}
		// The target of a step over all blocks differs from q only in the global blocks.
		g := make([]float64, all.NumParams())
		must(p.full.Grad(ctx, nil, g, all, nil))
		to := p.full.prior.Natural(nil)
		floats.Sub(to, g)
		p.profile.Unpack(to, q.Natural(nil))
		for i, x := range all.Natural(nil) {
			if math.Abs(to[i]-x) > 1e-3*(1+math.Abs(x)) {
				t.Errorf("%s: element %d is %v, but its optimum is %v",
					p.full.model.Layout.Describe(i), i, x, to[i])
			}
		}
	}
}
