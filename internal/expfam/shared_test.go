package expfam_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/parallel"
)

// at returns the member of f at eta.
func at(t *testing.T, f expfam.Family, eta ...float64) *expfam.Member {
	t.Helper()
	q := expfam.New(f)
	if err := q.SetNatural(eta); err != nil {
		t.Fatal(err)
	}
	return q
}

// An A(η) that is computed on demand must match the family, for concurrent readers and after each
// change of the member.
func TestLogPartitionWorkers(t *testing.T) {
	rng := rand.New(rand.NewPCG(77, 0))
	f := expfam.Product([]expfam.Family{expfam.DirichletFamily{K: 5}, expfam.BetaFamily{},
		expfam.GammaFamily{}})
	random := func(scale float64) *expfam.Member {
		eta := make([]float64, 9)
		for i := range eta {
			eta[i] = scale * (0.01 + rng.ExpFloat64())
		}
		eta[8] *= -1
		return at(t, f, eta...)
	}
	for _, scale := range []float64{1e-3, 1, 1e6} {
		q, p := random(scale), random(scale)
		z := make([]float64, q.Dim())
		f.Rand(z, make([]float64, 9), q.Eta, rng)
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
		check := func(what string, got float64) {
			t.Helper()
			if want := f.LogPartition(q.Eta); got != want {
				t.Errorf("%s: A is %v, want %v", what, got, want)
			}
		}
		for _, a := range got {
			check("concurrent", a)
		}
		q.Set(p)
		check("Set", q.LogPartition())
		p.LogPartition()
		q.Set(p)
		check("Set to one that knows", q.LogPartition())
		if err := q.SetNatural(random(scale).Eta); err != nil {
			t.Fatal(err)
		}
		check("SetNatural", q.LogPartition())
		if err := q.SetMeanParams(random(scale).Mu); err != nil {
			t.Fatal(err)
		}
		check("SetMeanParams", q.LogPartition())
	}
	inf, most := math.Inf(1), math.MaxFloat64
	for _, eta := range [][]float64{{1, 2}, {0, 1}, {1, -1e-9}, {math.NaN(), 1}, {1e-300, 1},
		{1e303,
			1}, {1e306, 1e306},
		{most, most}, {inf, 1}} {
		f := expfam.DirichletFamily{K: 2}
		if a := f.LogPartition(eta); f.Valid(eta) != !(math.IsNaN(a) || math.IsInf(a, 0)) {
			t.Errorf("%v: valid is %v, A is %v", eta, f.Valid(eta), a)
		}
	}
}

// sharedMean computes μ and KL on the given number of goroutines.
type sharedMean interface {
	MeanOn(workers int, dst, eta []float64)
	DivergenceOn(workers int, eta, etaP []float64) float64
}

// Families that use several goroutines must give the bits of one goroutine, alone and in a product.
func TestSharedMean(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 0))
	alpha := func(n int) []float64 {
		a := make([]float64, n)
		for k := range a {
			a[k] = 0.01 + 3*rng.ExpFloat64()
		}
		return a
	}
	dirichlet := func(n int) *expfam.Member {
		return at(t, expfam.DirichletFamily{K: n},
			alpha(n)...)
	}
	sizes := []int{4*expfam.DigammasShared + 3, 5, expfam.DigammasShared + 1}
	parts, eta := []expfam.Family{expfam.GammaFamily{}}, []float64{2, -3}
	for _, n := range sizes {
		parts, eta = append(parts, expfam.DirichletFamily{K: n}), append(eta, alpha(n)...)
	}
	product := at(t, expfam.Product(parts), eta...)
	parts, eta = nil, nil
	for k := range 13 { // several for each of up to four workers
		parts, eta = append(parts, expfam.DirichletFamily{K: 200 + k}), append(eta, alpha(200+k)...)
	}
	many := at(t, expfam.Product(parts), eta...)
	for name, q := range map[string]*expfam.Member{"Dirichlet": dirichlet(
		3*expfam.DigammasShared + 1),
		"product": product, "product of many": many} {
		f, ok := q.F.(sharedMean)
		if !ok {
			t.Fatalf("%s does not share", name)
		}
		want := make([]float64, len(q.Eta))
		q.F.Mean(want, q.Eta)
		etaP := slices.Clone(q.Eta)
		for i := range etaP {
			etaP[i] *= 1.5
		}
		kl := f.DivergenceOn(1, q.Eta, etaP)
		for _, workers := range []int{1, 2, 3, 7} {
			mu := make([]float64, len(want))
			if f.MeanOn(workers, mu, q.Eta); !slices.Equal(mu, want) {
				t.Errorf("%s, %d workers: other bits", name, workers)
			}
			if got := f.DivergenceOn(workers, q.Eta, etaP); got != kl || !(kl > 0) {
				t.Errorf("%s, %d workers: KL %v, want %v", name, workers, got, kl)
			}
			var h parallel.Halt
			h.Lend(workers)
			lent := expfam.New(q.F)
			lent.Use(&h)
			if err := lent.SetNatural(q.Eta); err != nil || !slices.Equal(lent.Mu, want) {
				t.Errorf("%s, a halt that lends %d: other bits, %v", name, workers, err)
			}
		}
	}
}
