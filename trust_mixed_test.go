package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// The models with local factors have several optima, and no reference: what holds of them is that the ELBO rises, that the
// numbering of topics and components, the number of workers and a file change nothing, and that all is finite.

// mixedSeeds is the number of problems of either test: that of -seeds, or so many.
func mixedSeeds(n int) uint64 {
	if testing.Short() {
		n /= 8
	}
	if *trustSeeds > 0 {
		n = *trustSeeds
	}
	return uint64(n)
}

// mixedRun runs m in steps of all terms, with so many workers, and returns the trace; ELBOs that fall are errors.
func mixedRun(t *testing.T, seed uint64, m Model, batch, workers int) *Result {
	t.Helper()
	last := math.Inf(-1)
	s := &Solver{Src: rand.NewPCG(seed, 0), BatchSize: batch, Workers: workers, MaxPasses: 12, EvalEvery: 1, Recorder: RecorderFunc(func(it Iteration) {
		if math.IsNaN(it.ELBO) || it.ELBO < last-1e-9*(1+math.Abs(last)) {
			t.Errorf("seed %d, step %d: ELBO from %v to %v", seed, it.K, last, it.ELBO)
		}
		last = it.ELBO
	})}
	res, err := s.Run(context.Background(), m)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	return res
}

// reread returns what load makes of the file of p.
func reread[P saver](t *testing.T, p P, load func(io.Reader) (P, error)) P {
	t.Helper()
	var b bytes.Buffer
	if err := p.Save(&b); err != nil {
		t.Fatal(err)
	}
	q, err := load(&b)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// permutedRows returns x with row perm[i] as row i.
func permutedRows(x mat.Matrix, perm []int) *mat.Dense {
	r, c := x.Dims()
	y := mat.NewDense(r, c, nil)
	for i, k := range perm {
		for j := range c {
			y.Set(i, j, x.At(k, j))
		}
	}
	return y
}

// allFinite reports whether the elements of x are finite.
func allFinite(x *mat.Dense) bool {
	return !slices.ContainsFunc(x.RawMatrix().Data, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
}

// sameELBO fails unless the first ELBOs of a and b agree to tol.
func sameELBO(t *testing.T, seed uint64, what string, tol float64, a, b *Result) {
	t.Helper()
	for i := range min(len(a.Trace), len(b.Trace), 5) {
		if x, y := a.Trace[i].ELBO, b.Trace[i].ELBO; !(math.Abs(x-y) <= tol*(1+math.Abs(x))) {
			t.Errorf("seed %d, %s: ELBO %v and %v at step %d", seed, what, x, y, i+1)
			return
		}
	}
}

// TestSeedsLDA fits random corpora, with empty documents, documents twice, counts to 1e6, and more topics than documents.
func TestSeedsLDA(t *testing.T) {
	t.Parallel()
	for seed := range mixedSeeds(24) {
		rng := rand.New(rand.NewPCG(seed, 21))
		c := &Corpus{Terms: 2 + rng.IntN(30)}
		wide := 1 + 2.5*rng.Float64()*float64(rng.IntN(2))
		for range 1 + rng.IntN(20) {
			count := map[int]float64{}
			for range rng.IntN(12) {
				count[rng.IntN(c.Terms)] += math.Min(1e6, math.Ceil(math.Exp(wide*rng.NormFloat64())))
			}
			c.Docs = append(c.Docs, sortedDoc(count))
			if rng.IntN(4) == 0 {
				c.Docs = append(c.Docs, c.Docs[rng.IntN(len(c.Docs))])
			}
		}
		k := 1 + rng.IntN(2*len(c.Docs))
		start := mat.NewDense(k, c.Terms, nil)
		for i := range k {
			for j := range c.Terms {
				start.Set(i, j, rng.ExpFloat64())
			}
		}
		opt := LDAOptions{DocPrior: math.Exp(3 * rng.NormFloat64()), TopicPrior: math.Exp(3 * rng.NormFloat64()), Topics: start}
		run := func(opt LDAOptions, workers int) (*LDAPosterior, *Result) {
			m, err := NewLDA(c, k, &opt)
			if errors.Is(err, ErrEmpty) && c.Tokens() == 0 {
				return nil, nil
			}
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			res := mixedRun(t, seed, m, len(c.Docs), workers)
			p, err := m.Posterior(res.State)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			return p, res
		}
		p, res := run(opt, 1)
		if p == nil {
			continue
		}
		if !allFinite(p.Lambda()) {
			t.Errorf("seed %d: topics %v", seed, mat.Formatted(p.Lambda()))
		}
		if q, _ := run(opt, 2); !mat.Equal(q.Lambda(), p.Lambda()) {
			t.Errorf("seed %d: other bits with two workers", seed)
		}
		if q := reread(t, p, LoadLDAPosterior); !mat.Equal(q.Lambda(), p.Lambda()) {
			t.Errorf("seed %d: other bits from a file", seed)
		}
		opt.Topics = permutedRows(start, rng.Perm(k))
		_, other := run(opt, 1)
		sameELBO(t, seed, "permuted topics", 1e-4, res, other) // a document has several optima, between which rounding may choose
	}
}

// TestSeedsMixture fits random rows, in columns of any units, with rows twice, and with up to as many components as rows.
func TestSeedsMixture(t *testing.T) {
	t.Parallel()
	for seed := range mixedSeeds(80) {
		rng := rand.New(rand.NewPCG(seed, 22))
		n, d := 2+rng.IntN(30), 1+rng.IntN(4)
		k := 1 + rng.IntN(n)
		x, cov := mat.NewDense(n, d, nil), mat.NewSymDense(d, nil)
		for j := range d {
			unit := logUniform(rng, -8, 8)
			cov.SetSym(j, j, unit*unit*logUniform(rng, -1, 2))
			for i := range n {
				x.Set(i, j, unit*(5*float64(rng.IntN(3))+rng.NormFloat64()))
			}
		}
		for i := 1; i < n; i++ {
			if rng.IntN(4) == 0 {
				x.SetRow(i, x.RawRowView(rng.IntN(i)))
			}
		}
		start := mat.NewDense(n, k, nil)
		for i := range n {
			for j := range k {
				start.Set(i, j, rng.ExpFloat64())
			}
		}
		opt := MixtureOptions{Weight: math.Exp(4 * rng.NormFloat64()), Kappa: math.Exp(4 * rng.NormFloat64()), DF: float64(d) - 1 + math.Exp(3*rng.NormFloat64()), Cov: cov, Start: start}
		run := func(opt MixtureOptions, workers int) (*MixturePosterior, *Result) {
			m, err := NewMixture(x, k, &opt)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			res := mixedRun(t, seed, m, 0, workers)
			p, err := m.Posterior(res.State)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			return p, res
		}
		p, res := run(opt, 1)
		for i := range k {
			if w := p.Weights(nil)[i]; !(w >= 0) || !allFinite(p.Means()) || !(p.Cov(i).At(0, 0) > 0) {
				t.Errorf("seed %d: component %d has weight %v, mean %v, covariance %v", seed, i, w, p.Means().RawRowView(i), p.Cov(i))
			}
		}
		if q, _ := run(opt, 2); !mat.Equal(q.Means(), p.Means()) || !slices.Equal(q.Weights(nil), p.Weights(nil)) {
			t.Errorf("seed %d: other bits with two workers", seed)
		}
		if q := reread(t, p, LoadMixturePosterior); !mat.Equal(q.Means(), p.Means()) || !slices.Equal(q.Weights(nil), p.Weights(nil)) {
			t.Errorf("seed %d: other bits from a file", seed)
		}
		opt.Start = mat.DenseCopyOf(permutedRows(start.T(), rng.Perm(k)).T())
		_, other := run(opt, 1)
		sameELBO(t, seed, "permuted components", 1e-7, res, other) // rounding that iterations multiply
	}
}
