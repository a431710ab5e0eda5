package pgsvi

import (
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/pgsvi/pgsvi/internal/parallel"
)

// A(η) that is computed only where it is asked for is that of the family, for concurrent readers and after every way to set η, and
// η is valid where it is finite.
func TestExpLogPartitionWorkers(t *testing.T) {
	rng := testRand(77)
	make3 := func(scale float64) *Exp {
		alpha := make([]float64, 5)
		for i := range alpha {
			alpha[i] = scale * rng.ExpFloat64()
		}
		a, err := NewDirichlet(alpha)
		if err != nil {
			t.Fatal(err)
		}
		b, err := NewBeta(alpha[0], alpha[1])
		if err != nil {
			t.Fatal(err)
		}
		g, err := NewGamma(alpha[2], alpha[3])
		if err != nil {
			t.Fatal(err)
		}
		q, err := ProductOf(a, b, g)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	for _, scale := range []float64{1e-3, 1, 1e6} {
		q, p := make3(scale), make3(scale)
		z := q.Rand(nil, rng)
		var done sync.WaitGroup
		got := make([]float64, 4)
		for i := range got {
			done.Add(1)
			go func() {
				defer done.Done()
				q.LogProb(z)
				got[i] = q.LogPartition()
			}()
		}
		done.Wait()
		check := func(what string, q *Exp, got float64) {
			t.Helper()
			if want := q.f.LogPartition(q.eta); got != want {
				t.Errorf("%s: A is %v, want %v", what, got, want)
			}
		}
		for _, a := range got {
			check("concurrent", q, a)
		}
		q.setState(p)
		check("setState", q, q.LogPartition())
		p.LogPartition()
		q.setState(p)
		check("setState of one that knows", q, q.LogPartition())
		if err := q.SetNatural(make3(scale).Natural(nil)); err != nil {
			t.Fatal(err)
		}
		check("SetNatural", q, q.LogPartition())
		if err := q.SetMeanParams(make3(scale).MeanParams(nil)); err != nil {
			t.Fatal(err)
		}
		check("SetMeanParams", q, q.LogPartition())
		for _, part := range q.Factors() {
			check("a factor", part.(*Exp), part.LogPartition())
		}
	}
	for _, eta := range [][]float64{{1, 2}, {0, 1}, {1, -1e-9}, {math.NaN(), 1}, {1e-300, 1}, {1e303, 1}, {1e306, 1e306}, {math.MaxFloat64, math.MaxFloat64}, {math.Inf(1), 1}} {
		f := dirichletFamily{2}
		if a := f.LogPartition(eta); f.valid(eta) != !(math.IsNaN(a) || math.IsInf(a, 0)) {
			t.Errorf("%v: valid is %v, A is %v", eta, f.valid(eta), a)
		}
	}
}

// TestSharedMean: μ of families that share it between goroutines has the bits of one, in a product and alone, and an Exp whose halt lends them has those of
// one without.
func TestSharedMean(t *testing.T) {
	t.Parallel()
	rng := testRand(11)
	draw := func(n int) *Exp {
		alpha := make([]float64, n)
		for k := range alpha {
			alpha[k] = 0.01 + 3*rng.ExpFloat64()
		}
		q, err := NewDirichlet(alpha)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	product, err := ProductOf(draw(4*digammasShared+3), NewIsotropic(2, 1), draw(5), draw(digammasShared+1))
	if err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]*Exp{"Dirichlet": draw(3*digammasShared + 1), "product": product} {
		f, ok := q.f.(sharedFamily)
		if !ok {
			t.Fatalf("%s does not share", name)
		}
		want := make([]float64, len(q.eta))
		q.f.Mean(want, q.eta)
		etaP := slices.Clone(q.eta)
		for i := range etaP {
			etaP[i] *= 1.5
		}
		kl := f.divergenceOn(1, q.eta, etaP)
		for _, workers := range []int{1, 2, 3, 7} {
			mu := make([]float64, len(want))
			if f.meanOn(workers, mu, q.eta); !slices.Equal(mu, want) {
				t.Errorf("%s, %d workers: other bits", name, workers)
			}
			if got := f.divergenceOn(workers, q.eta, etaP); got != kl || !(kl > 0) {
				t.Errorf("%s, %d workers: KL %v, want %v", name, workers, got, kl)
			}
			var h parallel.Halt
			h.Lend(workers)
			lent := q.Clone().(*Exp)
			haltDist(lent, &h)
			if err := lent.SetNatural(q.eta); err != nil || !slices.Equal(lent.mu, want) {
				t.Errorf("%s, a halt that lends %d: other bits, %v", name, workers, err)
			}
		}
	}
}
