package dense_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
)

func bigOf(x float64) *big.Float { return new(big.Float).SetPrec(400).SetFloat64(x) }

// TestDouble compares Double with arithmetic of 400 bits. P = DI + XᵀWX has a condition that
// exceeds float64. The test checks P, its factor, its inverse and solutions, for dense rows and
// for the same rows in sparse form.
func TestDouble(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 6))
	for trial := range 60 {
		n := 1 + rng.IntN(9)
		rows := 1 + rng.IntN(12)
		var p, q, b dense.Double
		p.Resize(n * n)
		p.Clear()
		want := make([][]*big.Float, n)
		for i := range n {
			p.Hi[i*n+i] = 1
			want[i] = make([]*big.Float, n)
			for j := range n {
				want[i][j] = bigOf(0)
			}
			want[i][i] = bigOf(1)
		}
		q.Resize(n * n)
		copy(q.Hi, p.Hi)
		copy(q.Lo, p.Lo)
		scale := math.Pow(10, 8*rng.Float64())
		for range rows {
			x, w := make([]float64, n), rng.ExpFloat64()
			common := scale * rng.NormFloat64()
			for j := range x {
				x[j] = common + math.Round(rng.NormFloat64())
			}
			x[rng.IntN(n)] = 0
			var ind []int32
			var val []float64
			for j, v := range x {
				if v != 0 {
					ind, val = append(ind, int32(j)), append(val, v)
				}
			}
			p.AddOuter(n, w, nil, x)
			q.AddOuter(n, w, ind, val)
			for i := range n {
				for j := range n {
					f := new(big.Float).Mul(bigOf(w), bigOf(x[i]))
					want[i][j].Add(want[i][j], f.Mul(f, bigOf(x[j])))
				}
			}
		}
		for i := range n {
			for j := range i + 1 {
				for _, a := range []dense.Double{p, q} {
					d := new(big.Float).Sub(want[i][j], bigOf(a.Hi[i*n+j]))
					f, _ := d.Sub(d, bigOf(a.Lo[i*n+j])).Float64()
					if size := math.Sqrt(p.Hi[i*n+i]) * math.Sqrt(p.Hi[j*n+j]); !(math.Abs(f) <= 1e-29*size) {
						t.Fatalf("trial %d: element (%d, %d) is off by %v of %v", trial, i, j, f,
							size)
					}
				}
			}
		}
		p.Round()
		var l dense.Double
		l.Resize(n * n)
		copy(l.Hi, p.Hi)
		copy(l.Lo, p.Lo)
		if least := l.Cholesky(n); !(least > 1e-24 && least <= 1) {
			t.Fatalf("trial %d: least part %v", trial, least)
		}
		b.Resize(n)
		for j := range n {
			b.Hi[j], b.Lo[j] = rng.NormFloat64(), 0
		}
		x := dense.Double{Hi: append([]float64(nil), b.Hi...), Lo: append([]float64(nil), b.Lo...)}
		l.Potrs(x)
		v := make([]float64, n*n)
		l.Inverse(v, n)
		inv := bigInverse(want)
		for i := range n {
			sum := bigOf(0)
			for j := range n {
				sum.Add(sum, new(big.Float).Mul(inv[i][j], bigOf(b.Hi[j])))
				ij, _ := inv[i][j].Float64()
				ii, _ := inv[i][i].Float64()
				jj, _ := inv[j][j].Float64()
				if j <= i && !(math.Abs(v[i*n+j]-ij) <= 1e-10*math.Sqrt(ii*jj)) {
					t.Errorf("trial %d: inverse (%d, %d) is %v, want %v", trial, i, j, v[i*n+j], ij)
				}
			}
			ii, _ := inv[i][i].Float64()
			if s, _ := sum.Float64(); !(math.Abs(x.Hi[i]-s) <= 1e-10*math.Sqrt(ii)) {
				t.Errorf("trial %d: solution %d is %v, want %v", trial, i, x.Hi[i], s)
			}
		}
		// The square of Lᵀ(LLᵀ)⁻¹b is bᵀP⁻¹b.
		square := 0.0
		for j := range n {
			square += b.Hi[j] * x.Hi[j]
		}
		l.MulTrans(x)
		got := 0.0
		for _, z := range x.Hi {
			got += z * z
		}
		if !(math.Abs(got-square) <= 1e-9*got) {
			t.Errorf("trial %d: square %v, want %v", trial, got, square)
		}
	}
	bad := dense.Double{Hi: []float64{1, 0, 2, 3}, Lo: make([]float64, 4)}
	if least := bad.Cholesky(2); least != 0 {
		t.Errorf("not positive definite: %v", least)
	}
}

// TestDoubleDot checks that a sum that cancels to the last of 53 bits is exact.
func TestDoubleDot(t *testing.T) {
	d := dense.Double{Hi: []float64{1e16, 1, -1e16}, Lo: []float64{0, 1e-17, 0.5}}
	x := []float64{3, 7, 3}
	if got, want := d.Dot(x), 8.5; got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := d.DotAt([]int32{0, 2}, []float64{3, 3}), 1.5; got != want {
		t.Errorf("%v, want %v", got, want)
	}
	var h dense.Double
	h.Resize(3)
	h.Clear()
	h.AddScaled(1e8, []float64{1e8, 0, 1})
	h.AddScaled(-1e8, []float64{1e8, 0, 1})
	h.AddAt(0, 0x1p-30, 0x1p-30)
	h.Round()
	if h.Hi[0] != 0x1p-60 || h.Hi[1] != 0 || h.Hi[2] != 0 {
		t.Errorf("%v", h.Hi)
	}
}

// bigInverse inverts a matrix by Gauss-Jordan elimination.
func bigInverse(a [][]*big.Float) [][]*big.Float {
	n := len(a)
	rows := make([][]*big.Float, n)
	for i := range n {
		for j := range n {
			rows[i] = append(rows[i], new(big.Float).Copy(a[i][j]))
		}
		for j := range n {
			one := 0.0
			if i == j {
				one = 1
			}
			rows[i] = append(rows[i], bigOf(one))
		}
	}
	for i := range n {
		pivot := new(big.Float).Copy(rows[i][i])
		for j := range rows[i] {
			rows[i][j].Quo(rows[i][j], pivot)
		}
		for k := range n {
			if k == i {
				continue
			}
			f := new(big.Float).Copy(rows[k][i])
			for j := range rows[k] {
				rows[k][j].Sub(rows[k][j], new(big.Float).Mul(f, rows[i][j]))
			}
		}
	}
	for i := range rows {
		rows[i] = rows[i][n:]
	}
	return rows
}

// TestLowerRows checks that LLᵀ = AAᵀ to the last digits for columns in units from 1e-8 to 1e8,
// and that rows that depend on other rows add no column.
func TestLowerRows(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	const n, cols = 5, 12
	for _, unit := range []float64{1, 1e-200, 1e200} {
		a := dense.Double{Hi: make([]float64, n*cols), Lo: make([]float64, n*cols)}
		for i := range n * cols {
			a.Hi[i] = unit * math.Pow(10, float64(i%cols%9)*2-8) * rng.NormFloat64()
		}
		for j := range cols { // a row that depends on two others
			sum := bigOf(2 * a.Hi[j])
			sum.Add(sum, bigOf(a.Hi[cols+j]))
			a.Hi[2*cols+j], _ = sum.Float64()
			a.Lo[2*cols+j], _ = sum.Sub(sum, bigOf(a.Hi[2*cols+j])).Float64()
		}
		rows := make([]*big.Float, n*cols)
		for i := range rows {
			rows[i] = bigOf(a.Hi[i])
			rows[i].Add(rows[i], bigOf(a.Lo[i]))
		}
		l, q := a.LowerRows(nil, []float64{1, 0.01, 3, 1e6, 0})
		rank := len(q)
		if rank != n-1 || len(l) != n*rank {
			t.Fatalf("unit %g: rank %d, %d numbers", unit, rank, len(l))
		}
		for i := range n {
			for k := range n {
				off, size := bigOf(0), bigOf(0)
				for j := range cols {
					off.Sub(off, bigOf(0).Mul(rows[i*cols+j], rows[k*cols+j]))
				}
				for j := range rank {
					p := bigOf(0).Mul(bigOf(l[i*rank+j]), bigOf(l[k*rank+j]))
					off.Add(off, p)
					size.Add(size, p.Abs(p))
				}
				if part, _ := off.Quo(off, size).Float64(); !(math.Abs(part) <= 4*dense.Epsilon) {
					t.Errorf("unit %g: element %d, %d is off by a part %g", unit, i, k, part)
				}
			}
		}
	}
}
