package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// curveRows are rows of a function of two inputs, with labels or counts.
func curveRows(n int, lik Likelihood) []Row {
	rng := rand.New(rand.NewPCG(3, 14))
	rows := make([]Row, n)
	for i := range rows {
		a, b := 4*rng.Float64()-2, 4*rng.Float64()-2
		f := math.Sin(2*a) + math.Cos(b)
		r := &rows[i]
		r.Val = []float64{a, b}
		switch lik.(type) {
		case Poisson:
			r.Y = math.Floor(math.Exp(f) + rng.Float64())
		case GaussianNoise:
			r.Y = f + 0.3*rng.NormFloat64()
		default:
			r.Y = plusMinus(f+rng.NormFloat64() > 0)
		}
	}
	return rows
}

// TestSparseGPRounds checks rounds of sparse GPs against a fit to rows in memory at the same
// inducing inputs, and that the posterior has the same bits on any number of shards.
func TestSparseGPRounds(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(8, 8))
	z := mat.NewDense(30, 2, nil)
	for i := range 30 {
		z.SetRow(i, []float64{4*rng.Float64() - 2, 4*rng.Float64() - 2})
	}
	for _, c := range few([]struct {
		lik Likelihood
		k   Kernel
	}{
		{BernoulliLogit{}, SquaredExp{Scale: 1.5, Length: 1}},
		{Poisson{}, Matern52{Scale: 1, Length: 1.3}},
		{GaussianNoise{Var: 0.1}, Sum{SquaredExp{Scale: 1, Length: 1}, Linear{Scale: 0.5}}},
		{BernoulliLogit{}, Linear{Scale: 1}},
	}, 2) {
		rows := curveRows(12_000, c.lik)
		blocks := blocksOf(t, each(rows), 1000)
		x, y := mat.NewDense(len(rows), 2, nil), make([]float64, len(rows))
		for i, r := range rows {
			x.SetRow(i, r.Val)
			y[i] = r.Y
		}
		g, err := NewSparseGP(x, y, c.k, c.lik, &SparseGPOptions{Inducing: z})
		if err != nil {
			t.Fatal(err)
		}
		memory, want, err := g.Fit(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		var first []byte
		for _, shards := range []int{1, 5} {
			r, err := NewSparseGPRounds(z, c.k, c.lik, nil)
			if err != nil {
				t.Fatal(err)
			}
			deal := rand.New(rand.NewPCG(uint64(shards), 1))
			var it Iteration
			for range 8 {
				all := make([]*Shard[Row], shards)
				for i := range all {
					all[i] = travel(t, r.Shard())
				}
				for _, b := range deal.Perm(len(blocks)) {
					if err := all[deal.IntN(shards)].Add(ctx, uint64(b), each(blocks[b])); err != nil {
						t.Fatal(err)
					}
				}
				for _, s := range all[1:] {
					if err := all[0].Merge(travel(t, s)); err != nil {
						t.Fatal(err)
					}
				}
				if it, err = r.Step(all[0]); err != nil {
					t.Fatal(err)
				}
				b, err := r.MarshalBinary()
				if err != nil {
					t.Fatal(err)
				}
				r = &Rounds[Row, *SparseGPPosterior]{}
				if err := r.UnmarshalBinary(b); err != nil {
					t.Fatal(err)
				}
				if it.GapBound <= 1e-3 {
					break
				}
			}
			p, err := r.Posterior()
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := p.Save(&out); err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = out.Bytes()
			} else if !bytes.Equal(first, out.Bytes()) {
				t.Errorf("%s on %d shards: other bits", typeName(c.lik), shards)
			}
			off := want.ELBO - it.ELBO
			if !(it.K <= 5 && it.GapBound <= 1e-3 && off <= it.GapBound+1e-6*math.Abs(want.ELBO) && off >= -1e-6*math.Abs(want.ELBO)) {
				t.Errorf("%s %T: after %d rounds ELBO %v, proved within %v; in memory %v", typeName(c.lik), c.k, it.K, it.ELBO, it.GapBound, want.ELBO)
			}
			at := x.Slice(0, 50, 0, 2)
			m, _ := p.At(at).Latent(nil, nil)
			m0, v0 := memory.At(at).Latent(nil, nil)
			for i := range m {
				if !(math.Abs(m[i]-m0[i]) <= 1e-2*math.Sqrt(v0[i])+1e-4) {
					t.Errorf("%s: latent mean %d is %v, in memory %v", typeName(c.lik), i, m[i], m0[i])
					break
				}
			}
		}
	}
	k := SquaredExp{Scale: 1, Length: 1}
	for i, c := range []struct {
		z    mat.Matrix
		k    Kernel
		lik  Likelihood
		opt  *SparseGPOptions
		want error
		text string
	}{
		{nil, k, nil, nil, ErrEmpty, "inducing inputs"},
		{z, nil, nil, nil, ErrParam, "nil Kernel"},
		{z, k, nil, &SparseGPOptions{Inducing: z}, ErrParam, "nil"},
		{z, k, nil, &SparseGPOptions{Rank: -1}, ErrParam, "Rank"},
		{z, k, nil, &SparseGPOptions{MaxMemory: 1000}, ErrMemory, "Rank"},
		{z, SquaredExp{Length: -1}, nil, nil, ErrParam, "Length"},
		{mat.NewDense(1, 1, []float64{math.NaN()}), k, nil, nil, ErrNotFinite, "row 0"},
		{z, k, StudentT{DF: -1}, nil, ErrParam, "DF"},
	} {
		_, err := NewSparseGPRounds(c.z, c.k, c.lik, c.opt)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || !prefixedOnce(err) {
			t.Errorf("%d: %v, want %q and %v", i, err, c.text, c.want)
		}
	}
	r, err := NewSparseGPRounds(z, k, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewSparseGPRounds(z, SquaredExp{Scale: 1, Length: 2}, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Shard().Merge(other.Shard()); !errors.Is(err, ErrParam) {
		t.Errorf("another kernel: %v", err)
	}
}
