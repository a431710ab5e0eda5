package pgsvi

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/mat"
)

// logisticData is a small data set with labels −1 and +1.
func logisticData(seed uint64, n, d int) Sites {
	rng := testRand(seed)
	s := Sites{X: dense.NewRows(n, d), Y: make([]float64, n), Lik: BernoulliLogit{}}
	for i, x := range s.X {
		copy(x, normals(rng, d))
		s.Y[i] = 1
		if x[0]-0.5+rng.NormFloat64() < 0 {
			s.Y[i] = -1
		}
	}
	return s
}

// loadIris reads the flowers.
func loadIris(t testing.TB) (x *mat.Dense, species []float64) {
	t.Helper()
	return readCSV(t, open(t, filepath.Join("testdata", "iris", "iris.csv")))
}

// sameResumed compares a run of m with one that is saved after so many steps, and loaded.
func sameResumed(t *testing.T, m Model, steps int, passes float64) {
	t.Helper()
	ctx := context.Background()
	solver := func() *Solver { return &Solver{Src: rand.NewPCG(8, 9), MaxPasses: passes} }
	want, err := solver().Run(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	half := solver()
	half.MaxIter = steps - 1
	res, err := half.Run(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := res.Save(&file); err != nil {
		t.Fatal(err)
	}
	if res, err = solver().LoadResult(ctx, &file, m); err != nil {
		t.Fatal(err)
	}
	if res, err = solver().Resume(ctx, res); err != nil {
		t.Fatal(err)
	}
	if res.K != want.K || res.ELBO != want.ELBO ||
		!slices.Equal(reached[*Exp](res.Stepper).Params(nil),
			reached[*Exp](want.Stepper).Params(nil)) {
		t.Errorf("resumed after %d of %d steps: ELBO %v, want %v", steps-1, want.K, res.ELBO,
			want.ELBO)
	}
}

// checkLocalGrad compares a gradient times weight with differences of Local.
func checkLocalGrad(t *testing.T, m ConjugateModel, g, mu []float64, n int, weight float64) {
	t.Helper()
	at := slices.Clone(mu)
	scratch := make([]float64, len(mu))
	value := func(i int, v float64) float64 {
		at[i] = v
		l, err := m.Local(scratch, at, n, 1)
		if err != nil {
			t.Fatal(err)
		}
		at[i] = mu[i]
		return l
	}
	for i := range mu {
		h := 1e-5 * max(1, math.Abs(mu[i]))
		want := weight * (value(i, mu[i]+h) - value(i, mu[i]-h)) / (2 * h)
		if math.Abs(g[i]-want) > 1e-6*(1+math.Abs(want)) {
			t.Errorf("element %d of the gradient is %v, by differences %v", i, g[i], want)
		}
	}
}
