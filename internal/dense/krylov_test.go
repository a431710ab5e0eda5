package dense

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/mat"
)

// TestLeading compares Ritz values and vectors with eigenvalues and eigenvectors. The spectra
// fall, are flat, have one huge value, repeat a value, or have few nonzero values. Ritz values
// must never exceed the eigenvalues, even if the space has more vectors than dimensions.
func TestLeading(t *testing.T) {
	var rng *rand.Rand // starts again for each case, so that the order does not matter
	for name, spectrum := range map[string]func(j int) float64{
		"falling": func(j int) float64 { return math.Exp(-0.3 * float64(j)) },
		"flat":    func(j int) float64 { return 1 + 0.2*rng.Float64() },
		"huge": func(j int) float64 {
			return []float64{1e12,
				1 + math.Exp(-0.3*float64(j))}[min(j, 1)]
		},
		"identity": func(int) float64 { return 3 },
		"few":      func(j int) float64 { return math.Max(0, float64(3-j)) },
		"nothing":  func(int) float64 { return 0 },
	} {
		for _, n := range []int{1, 5, 12, 100} {
			rng = rand.New(rand.NewPCG(uint64(n), 9))
			k := min(n, 11)
			r := min(k, 3)
			x := make([]float64, n*n)
			for i := range x {
				x[i] = rng.NormFloat64()
			}
			var qr mat.QR
			qr.Factorize(mat.NewDense(n, n, x))
			var of, s mat.Dense
			qr.QTo(&of)
			values := make([]float64, n)
			for j := range values {
				values[j] = spectrum(j)
			}
			s.Mul(&of, mat.NewDiagDense(n, values))
			s.Mul(mat.DenseCopyOf(&s), of.T())
			var eig mat.EigenSym
			sym := mat.NewSymDense(n, nil)
			for i := range n {
				for j := range i + 1 {
					sym.SetSym(i, j, s.At(i, j))
				}
			}
			if !eig.Factorize(sym, false) {
				t.Fatal(name)
			}
			want := eig.Values(nil)
			start := make([]float64, n*k)
			for i := range start {
				start[i] = rng.NormFloat64()
			}
			mul := func(dst, x []float64) {
				Gemm(blas.NoTrans, blas.NoTrans, 1, General(s.RawMatrix().Data, n, n),
					General(x, n, k), 0, General(dst, n, k))
			}
			got, vectors := Leading(nil, append([]float64(nil), start...), k, r, 5, mul)
			v := mat.NewDense(n, r, vectors)
			var sv, gram mat.Dense
			sv.Mul(&s, v)
			gram.Mul(v.T(), v)
			size := math.Max(want[n-1], 1e-300)
			for c, value := range got {
				lambda := want[n-1-c]
				tol := 1e-9
				if name == "flat" {
					tol = 0.02 // few products cannot find these
				}
				if value > lambda+1e-12*size || value < lambda-tol*size {
					t.Errorf("%s, %d: value %d is %v, not %v", name, n, c, value, lambda)
				}
				for i := range r {
					one := 0.0
					if i == c {
						one = 1
					}
					if off := math.Abs(gram.At(i, c) - one); off > 1e-9 && lambda > 1e-12*size {
						t.Errorf("%s, %d: vectors %d and %d have the product %v", name, n, i, c,
							gram.At(i, c))
					}
				}
				ray := mat.Dot(v.ColView(c), sv.ColView(c))
				if math.Abs(ray-value) > 1e-9*size {
					t.Errorf("%s, %d: vector %d has the Rayleigh quotient %v, not %v", name, n, c,
						ray, value)
				}
			}
			var halt parallel.Halt
			halt.Lend(3)
			again, _ := Leading(&halt, append([]float64(nil), start...), k, r, 5, mul)
			for c := range got {
				if again[c] != got[c] {
					t.Errorf("%s, %d: other bits with three workers", name, n)
				}
			}
		}
	}
}
