package bench

import (
	"fmt"
	"math"
	"testing"
	"time"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// matern72 is the profile of the Matérn kernel with ν = 7/2, (1 + a + 2a²/5 + a³/15) exp(−a) with a
// = √7 r.
type matern72 struct{}

func (matern72) Values(r2 []float64) { pgsvi.PolyExp(r2, 7, 1, 1, 2./5, 1./15) }

func (matern72) Slopes(dst, r2, _ []float64) {
	copy(dst, r2)
	pgsvi.PolyExp(dst, 7, 7./5, 7./5, 7./15)
}

// pairwise is a kernel that is computed for one pair of points at a time, because it has only the
// methods of a Kernel.
type pairwise struct{ pgsvi.Kernel }

// points returns n points with d independent normal coordinates of standard deviation ½.
func points(seed uint64, n, d int) *mat.Dense {
	x := testkit.NormalMatrix(testkit.Rand(seed), n, d)
	x.Scale(0.5, x)
	return x
}

// BenchmarkCrossCov reports the cost relative to the triangular solve that a prediction also needs.
func BenchmarkCrossCov(b *testing.B) {
	const rows = 1000
	for _, size := range [][2]int{{280, 34}, {767, 256}} {
		n, d := size[0], size[1]
		x, y := points(80, n, d), points(81, rows, d)
		length := math.Sqrt(float64(d)) / 2
		tri := blas64.Triangular{Uplo: blas.Lower, Diag: blas.NonUnit, N: n, Stride: n,
			Data: testkit.NormalMatrix(testkit.Rand(82), n, n).RawMatrix().Data}
		for i := range n {
			tri.Data[i*n+i] = float64(n)
		}
		rhs := pgsvi.CrossCov(nil, pgsvi.SquaredExp{}, x, y).RawMatrix()
		solve := time.Duration(math.MaxInt64)
		for range 7 {
			start := time.Now()
			blas64.Trsm(blas.Left, blas.NoTrans, 1, tri, rhs)
			solve = min(solve, time.Since(start))
		}
		for _, c := range []struct {
			name string
			k    pgsvi.Kernel
		}{
			{"SquaredExp", pgsvi.SquaredExp{Length: length}},
			{"Matern12", pgsvi.Matern12{Length: length}},
			{"Matern52", pgsvi.Matern52{Length: length}},
			{"RationalQuadratic", pgsvi.RationalQuadratic{Length: length}},
			{"Linear", pgsvi.Linear{}},
			{"Sum", pgsvi.Sum{pgsvi.SquaredExp{Length: length}, pgsvi.Constant{}}},
		} {
			b.Run(fmt.Sprintf("N=%d/D=%d/%s", n, d, c.name), func(b *testing.B) {
				dst := pgsvi.CrossCov(nil, c.k, x, y)
				b.ReportAllocs()
				for b.Loop() {
					pgsvi.CrossCov(dst, c.k, x, y)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(solve),
					"of-Trsm")
			})
		}
	}
}

// BenchmarkGram measures all covariances of n points.
func BenchmarkGram(b *testing.B) {
	for _, size := range [][2]int{{280, 34}, {767, 256}} {
		x := points(80, size[0], size[1])
		b.Run(fmt.Sprintf("N=%d/D=%d", size[0], size[1]), func(b *testing.B) {
			var k pgsvi.Kernel = pgsvi.SquaredExp{Length: math.Sqrt(float64(size[1])) / 2}
			dst := pgsvi.Gram(nil, k, x)
			b.ReportAllocs()
			for b.Loop() {
				pgsvi.Gram(dst, k, x)
			}
		})
	}
}

// BenchmarkGramProfile compares a custom Profile with a Profile of the package, and with the same
// kernel computed pair by pair.
func BenchmarkGramProfile(b *testing.B) {
	for _, d := range []int{3, 34} {
		x := points(80, 280, d)
		length := math.Sqrt(float64(d)) / 2
		for name, k := range map[string]pgsvi.Kernel{
			"Matern52": pgsvi.Matern52{Scale: 2, Length: length},
			"Matern72": pgsvi.Iso[matern72]{Scale: 2, Length: length},
			"pairs":    pairwise{pgsvi.Iso[matern72]{Scale: 2, Length: length}},
		} {
			b.Run(fmt.Sprintf("D=%d/%s", d, name), func(b *testing.B) {
				dst := pgsvi.Gram(nil, k, x)
				b.ReportAllocs()
				for b.Loop() {
					pgsvi.Gram(dst, k, x)
				}
			})
		}
	}
}

// BenchmarkGramGrad measures the gradient of a weighted sum of all covariances, with one length scale
// and with one for each column (ARD).
func BenchmarkGramGrad(b *testing.B) {
	for _, size := range [][2]int{{280, 34}, {767, 256}} {
		n, d := size[0], size[1]
		x := points(80, n, d)
		lengths := make([]float64, d)
		for i := range lengths {
			lengths[i] = math.Sqrt(float64(d)) / 2
		}
		for name, k := range map[string]pgsvi.Kernel{"one": pgsvi.SquaredExp{Length: lengths[0]},
			"ARD": pgsvi.SquaredExp{Lengths: lengths}} {
			b.Run(fmt.Sprintf("N=%d/D=%d/%s", n, d, name), func(b *testing.B) {
				w := pgsvi.Gram(nil, k, x)
				dst := pgsvi.GramGrad(nil, k, x, w)
				b.ReportAllocs()
				for b.Loop() {
					pgsvi.GramGrad(dst, k, x, w)
				}
			})
		}
	}
}
