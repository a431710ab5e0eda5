package gp

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
)

// TestSparseConstantScale checks the interval of the scale of a constant. A mean is one draw of the
// constant, so the average information of the logarithm of its scale is 2 if many rows determine the
// mean: the standard deviation is nearly √½, however many rows there are.
func TestSparseConstantScale(t *testing.T) {
	t.Parallel()
	const n = 50_000 // enough for three stages
	rng := rand.New(rand.NewPCG(1, 2))
	x, y := mat.NewDense(n, 1, nil), make([]float64, n)
	for i := range y {
		x.Set(i, 0, 6*rng.Float64()-3)
		y[i] = 100 + math.Sin(2*x.At(i, 0)) + 0.3*rng.NormFloat64()
	}
	k := Sum{SquaredExp{Length: 1}, Constant{Scale: 10}}
	s, err := NewSparseGP(x, y, k, GaussianNoise{Var: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, l, err := s.Learn(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, p := range l.Params {
		sd := math.Log(p.Hi/p.Lo) / (2 * 1.96)
		switch p.Name {
		case "Sum[1].Constant.Scale":
			found = true
			if !(sd > 0.5 && sd < 0.71) { // the prior makes it less than √½
				t.Errorf("%s is in [%v, %v], sd %v of its logarithm", p.Name, p.Lo, p.Hi, sd)
			}
		case "Sum[0].SquaredExp.Scale": // a GP of 1000 rows has 0.5
			if !(sd > 0.2 && sd < 0.6) {
				t.Errorf("%s is in [%v, %v], sd %v of its logarithm", p.Name, p.Lo, p.Hi, sd)
			}
		}
	}
	if !found {
		t.Error("no scale of a constant")
	}
}
