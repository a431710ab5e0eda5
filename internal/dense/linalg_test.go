package dense_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/mat"
)

var sizes = []int{0, 1, 2, 3, 5, 8, 13, 27, 40, 63, 64, 65, 130}

// randomSPD draws XXᵀ/n + ridge I. Its upper triangle is NaN because no function may read it.
func randomSPD(rng *rand.Rand, n int, ridge float64) []float64 {
	x, a := make([]float64, n*n), make([]float64, n*n)
	for i := range x {
		x[i] = rng.NormFloat64()
	}
	for i := range n {
		for j := range n {
			a[i*n+j] = math.NaN()
			if j <= i {
				a[i*n+j] = 0
				for k := range n {
					a[i*n+j] += x[i*n+k] * x[j*n+k] / float64(n)
				}
			}
		}
		a[i*n+i] += ridge
	}
	return a
}

func symDense(a []float64, n int) *mat.SymDense {
	s := mat.NewSymDense(n, nil)
	for i := range n {
		for j := range i + 1 {
			s.SetSym(i, j, a[i*n+j])
		}
	}
	return s
}

func TestCholesky(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range sizes {
		for _, ridge := range []float64{0.5, 1e-9} {
			a := randomSPD(rng, n, ridge)
			l := slices.Clone(a)
			if !dense.Cholesky(l, n) {
				t.Fatalf("n = %d is refused", n)
			}
			if n == 0 {
				if dense.LogDet(l, 0) != 0 {
					t.Error("log det of nothing")
				}
				dense.Invert(l, 0)
				dense.Potrs(l, nil)
				continue
			}
			for i := range n {
				for j := range n {
					if j > i {
						if !math.IsNaN(l[i*n+j]) {
							t.Fatalf("n = %d: the upper triangle is written to", n)
						}
						continue
					}
					sum := 0.0
					for k := range j + 1 {
						sum += l[i*n+k] * l[j*n+k]
					}
					if !(math.Abs(sum-a[i*n+j]) < 1e-14*math.Sqrt(float64(n))*math.Sqrt(
						a[i*n+i]*a[j*n+j])) {
						t.Errorf("n = %d: (LLᵀ)[%d][%d] = %v, want %v", n, i, j, sum, a[i*n+j])
					}
				}
				if !(l[i*n+i] > 0) {
					t.Errorf("pivot %d is %v", i, l[i*n+i])
				}
			}
			var ch mat.Cholesky
			if !ch.Factorize(symDense(a, n)) {
				t.Fatal("gonum refuses")
			}
			if d := dense.LogDet(l,
				n); !(math.Abs(d-ch.LogDet()) < 1e-10*ridgeless(ridge)*(1+math.Abs(d))) {
				t.Errorf("n = %d: log det %v, want %v", n, d, ch.LogDet())
			}
			// Check (LLᵀ)⁻¹ and its products by multiplying with A, if A is well conditioned.
			if ridge < 0.1 {
				continue
			}
			r, b := make([]float64, n), make([]float64, n)
			for i := range r {
				r[i] = rng.NormFloat64()
			}
			copy(b, r)
			dense.Potrs(l, r)
			var want mat.VecDense
			if err := ch.SolveVecTo(&want, mat.NewVecDense(n, b)); err != nil {
				t.Fatal(err)
			}
			for i, x := range r {
				if !(math.Abs(x-want.AtVec(i)) < 1e-11) {
					t.Errorf("n = %d: Potrs gives %v at %d, want %v", n, x, i, want.AtVec(i))
				}
			}
			dense.Invert(l, n)
			var inv mat.SymDense
			if err := ch.InverseTo(&inv); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				for j := range n {
					if !(math.Abs(l[i*n+j]-inv.At(i, j)) < 1e-11) {
						t.Errorf("n = %d: inverse[%d][%d] = %v, want %v", n, i, j, l[i*n+j],
							inv.At(i, j))
					}
				}
			}
		}
	}
}

// ridgeless loosens a tolerance if the ridge is the smallest eigenvalue.
func ridgeless(ridge float64) float64 { return 1 + 1e-7/ridge }

// TestCholeskyRefuses checks that matrices are refused if they are not positive definite or not
// finite at any element.
func TestCholeskyRefuses(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(2, 2))
	for _, n := range []int{1, 2, 3, 7, 66} {
		a := randomSPD(rng, n, 1)
		for i := range n {
			for j := range i + 1 {
				if n > 10 && rng.IntN(40) > 0 {
					continue
				}
				bad := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1e3}
				if i != j {
					bad = append(bad, 1e3)
				} else {
					bad = append(bad, 0)
				}
				for _, x := range bad {
					l := slices.Clone(a)
					l[i*n+j] = x
					if dense.Cholesky(l, n) {
						t.Errorf("n = %d: %v at (%d, %d) is taken", n, x, i, j)
					}
				}
			}
		}
	}
	// Hilbert's matrix is positive definite, even numerically at n = 12. After subtracting 1e-9
	// from the diagonal, it is not.
	const n = 12
	h := make([]float64, n*n)
	for i := range h {
		h[i] = 1 / float64(i/n+i%n+1)
	}
	if !dense.Cholesky(slices.Clone(h), n) {
		t.Error("Hilbert's matrix is refused")
	}
	for i := range n {
		h[i*n+i] -= 1e-9
	}
	if dense.Cholesky(h, n) {
		t.Error("an indefinite matrix is taken")
	}
}

// TestCholeskyAllocs is not parallel because it counts allocations.
func TestCholeskyAllocs(t *testing.T) {
	const n = 200
	a := randomSPD(rand.New(rand.NewPCG(3, 3)), n, 1)
	l := make([]float64, n*n)
	if k := testing.AllocsPerRun(3, func() { copy(l, a); dense.Cholesky(l, n) }); k != 0 {
		t.Errorf("%v allocations", k)
	}
}

func TestPacking(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(4, 4))
	for _, n := range []int{1, 2, 5, 12} {
		a := make([]float64, n*n)
		for i := range a {
			a[i] = rng.NormFloat64()
		}
		low := dense.PackLower(a, n)
		if len(low) != n*(n+1)/2 {
			t.Fatalf("n = %d: %d packed elements", n, len(low))
		}
		square := dense.UnpackLower(low, n)
		packed, full := make([]float64, len(low)), make([]float64, n*n)
		dense.Pack(packed, a, n, 3, 7)
		dense.Unpack(full, low, n, 2, 5)
		sym, filled := dense.FullSym(a, n), slices.Clone(a)
		dense.FillUpper(filled, n)
		k := 0
		for i := range n {
			for j := range n {
				lower := a[max(i, j)*n+min(i, j)]
				want := 0.0
				if j <= i {
					want = lower
				}
				if square[i*n+j] != want {
					t.Errorf("UnpackLower: (%d, %d) is %v, want %v", i, j, square[i*n+j], want)
				}
				if filled[i*n+j] != lower || sym.At(i, j) != lower ||
					dense.SymmetricAt(a, n, i, j) != lower {
					t.Errorf("FillUpper, FullSym or SymmetricAt at (%d, %d)", i, j)
				}
				scale := 5.0
				if i == j {
					scale = 2
				}
				if full[i*n+j] != scale*lower {
					t.Errorf("Unpack: (%d, %d) is %v, want %v", i, j, full[i*n+j], scale*lower)
				}
				if j > i {
					continue
				}
				part := 3.5 * (a[i*n+j] + a[j*n+i])
				if i == j {
					part = 3 * a[i*n+i]
				}
				if low[k] != lower || math.Abs(packed[k]-part) > 1e-14 {
					t.Errorf("packed element %d is %v and %v, want %v and %v", k, low[k], packed[k],
						lower, part)
				}
				k++
			}
		}
		sym.SetSym(0, 0, 99)
		if a[0] == 99 {
			t.Error("FullSym is no copy")
		}
	}
}

func TestProducts(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 5))
	for _, n := range []int{1, 2, 7, 63, 64, 65, 130} {
		a, b := make([]float64, n*n), make([]float64, n*n)
		for i := range a {
			a[i], b[i] = rng.NormFloat64(), rng.NormFloat64()
		}
		lower := mat.NewDense(n, n, dense.UnpackLower(dense.PackLower(b, n), n))
		var al, ab mat.Dense
		al.Mul(mat.NewDense(n, n, a), lower)
		ab.Mul(mat.NewDense(n, n, a), mat.NewDense(n, n, b))
		p, c := make([]float64, n*(n+1)/2), make([]float64, n*n)
		dense.MulLower(p, a, b, n) // reads the lower triangle of b only
		dense.MulSquare(c, a, b, n)
		for i := range n {
			for j := range n {
				if !(math.Abs(c[i*n+j]-ab.At(i, j)) < 1e-12) {
					t.Fatalf("n = %d: (ab)[%d][%d] = %v, want %v", n, i, j, c[i*n+j], ab.At(i, j))
				}
				if j <= i && !(math.Abs(p[i*(i+1)/2+j]-al.At(i, j)) < 1e-12) {
					t.Fatalf("n = %d: (al)[%d][%d] = %v, want %v", n, i, j, p[i*(i+1)/2+j],
						al.At(i, j))
				}
			}
			if want := mat.Dot(mat.NewVecDense(n, a[i*n:(i+1)*n]),
				mat.NewVecDense(n, b[:n])); math.Abs(dense.DotRow(a, n, i, b[:n])-want) > 1e-12 {
				t.Errorf("DotRow of row %d", i)
			}
		}
	}
}

func TestSlices(t *testing.T) {
	t.Parallel()
	inf := math.Inf(1)
	for _, c := range []struct {
		x     []float64
		index int
		ok    bool
	}{{nil, 0, true}, {[]float64{0, math.MaxFloat64, -5e-324}, 0, true},
		{[]float64{1, inf, math.NaN()}, 1, false},
		{[]float64{math.NaN()}, 0, false}, {[]float64{1, 2, -inf}, 2, false}} {
		if i, ok := dense.AllFinite(c.x); i != c.index || ok != c.ok {
			t.Errorf("AllFinite(%v) = %d, %v", c.x, i, ok)
		}
	}
	s := make([]int, 3, 10)
	if r := dense.Resize(s, 10); len(r) != 10 || &r[0] != &s[0] {
		t.Error("Resize does not reuse what is long enough")
	}
	if r := dense.Resize(s, 11); len(r) != 11 || len(dense.Resize(s, 2)) != 2 {
		t.Error("Resize to another length")
	}
	d := []float64{1, 2}
	if r := dense.Dest(d, 2); &r[0] != &d[0] || len(dense.Dest(nil, 3)) != 3 {
		t.Error("Dest")
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Dest takes a wrong length")
			}
		}()
		dense.Dest(d, 3)
	}()
	rows := dense.NewRows(3, 2)
	for i, r := range rows {
		if len(r) != 2 || cap(r) != 2 {
			t.Fatalf("row %d has length %d, capacity %d", i, len(r), cap(r))
		}
		r[0], r[1] = float64(i), float64(-i)
	}
	for i, r := range rows {
		if r[0] != float64(i) || r[1] != float64(-i) {
			t.Errorf("row %d is %v", i, r)
		}
	}
	if dense.Index[int](nil, 4) != 4 || dense.Index([]int{7, 5}, 1) != 5 {
		t.Error("Index")
	}
}
