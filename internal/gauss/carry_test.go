package gauss

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// TestCarry compares Carry for w₀ = Aᵀw with the posterior of w under the same data, and checks
// that Times counts the data several times.
func TestCarry(t *testing.T) {
	const m, n = 2, 3
	a := mat.NewDense(n, m, []float64{0.5, -1, 2, 0.3, 0.7, 0.1})
	f := mat.NewDense(m, 4, []float64{1, 0.2, -0.4, 0.6, -0.3, 0.9, 0.8, 0.1})
	b := mat.NewVecDense(4, []float64{0.3, -0.2, 0.5, 0.4})
	// see returns the precision I + FFᵀ and the mean of weights under data with the design Fᵀ and
	// slopes b
	see := func(f mat.Matrix, times float64) (p *mat.SymDense, mean *mat.VecDense) {
		d, _ := f.Dims()
		p, mean = mat.NewSymDense(d, nil), mat.NewVecDense(d, nil)
		for j := range d {
			p.SetSym(j, j, 1)
		}
		p.SymRankK(p, times, f)
		var h mat.VecDense
		h.MulVec(f, b)
		var c mat.Cholesky
		if !c.Factorize(p) || c.SolveVecTo(mean, &h) != nil {
			t.Fatal("no precision")
		}
		return p, mean
	}
	p, mean := see(f, 1)
	s := Unit(m)
	for i := range m {
		for j := range i + 1 {
			s.P[i*m+j] = p.At(i, j)
		}
	}
	q := s.Carry(blas64.General(a.RawMatrix()), mean.RawVector().Data)
	var af mat.Dense
	af.Mul(a, f)
	same := func(times float64) {
		t.Helper()
		want, _ := see(&af, times)
		_, wantMean := see(&af, 1)
		for i := range n {
			if math.Abs(q.Mean[i]-wantMean.AtVec(i)) > 1e-14 {
				t.Errorf("mean %v, want %v", q.Mean[i], wantMean.AtVec(i))
			}
			for j := range i + 1 {
				if math.Abs(q.P[i*n+j]-want.At(i, j)) > 1e-14 {
					t.Errorf("precision %d, %d is %v, want %v", i, j, q.P[i*n+j], want.At(i, j))
				}
			}
		}
	}
	same(1)
	if !q.Times(3.5) {
		t.Fatal("no factor of more data")
	}
	same(3.5)
	if s.Carry(blas64.General(a.RawMatrix()), []float64{math.NaN(), 0}) != nil {
		t.Error("a mean that is not finite was carried")
	}
}
