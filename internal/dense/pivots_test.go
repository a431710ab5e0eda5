package dense

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/floats"
)

// eager computes Pivots.Factor by a loop over all rows for each column.
func eager(o *Pivots, k [][]float64, diag []float64) (pivots []int, f [][]float64,
	err *PivotError) {
	left := slices.Clone(diag)
	f = make([][]float64, len(diag))
	for j := range o.Rank {
		p := floats.MaxIdx(left)
		if o.Enough != nil && o.Enough(left) || left[p] == 0 {
			break
		}
		root := math.Sqrt(left[p])
		at := slices.Clone(f[p])
		for i := range f {
			x, from := k[p][i], j-j%pivotBlock
			for lo := 0; lo < from; lo += fma.Block {
				sum := 0.0
				for c := lo; c < min(lo+fma.Block, from); c++ {
					sum = math.FMA(f[i][c], at[c], sum)
				}
				x = math.FMA(-1, sum, x)
			}
			for c := from; c < j; c++ {
				x = math.FMA(-at[c], f[i][c], x)
			}
			x /= root
			if i == p {
				x = root
			}
			f[i] = append(f[i], x)
			l := left[i] - float64(x*x)
			if i == p {
				l = 0
			} else if math.IsNaN(k[p][i]) || math.IsInf(k[p][i], 0) || l < -o.NotPosDef*diag[i] {
				return nil, nil, &PivotError{i, p, k[p][i], l, j}
			}
			if l <= o.Negligible*diag[i] {
				l = 0
			}
			left[i] = l
		}
		pivots = append(pivots, p)
	}
	return pivots, f, nil
}

// elementsOf returns the function Pivots.Columns for a matrix.
func elementsOf(k [][]float64) func(dst []float64, pivots, rows []int) {
	return func(dst []float64, pivots, rows []int) {
		for b, p := range pivots {
			for a, i := range rows {
				dst[b*len(rows)+a] = k[p][i]
			}
		}
	}
}

// smoothMatrix returns a covariance matrix of n points on a line or in a plane. Some points are
// equal.
func smoothMatrix(rng *rand.Rand, n int) [][]float64 {
	x := make([][2]float64, n)
	d := 1 + rng.IntN(2)
	for i := range x {
		for j := range d {
			x[i][j] = 4 * rng.Float64()
		}
		if i > 0 && rng.IntN(4) == 0 {
			x[i] = x[rng.IntN(i)]
		}
	}
	k := make([][]float64, n)
	for i := range k {
		k[i] = make([]float64, n)
		for j := range k[i] {
			u, v := x[i][0]-x[j][0], x[i][1]-x[j][1]
			k[i][j] = (1 + float64(i%3)) * (1 + float64(j%3)) * math.Exp(-u*u-v*v)
		}
	}
	return k
}

// TestPivots checks that lazy evaluation gives exactly the same pivots and factor as eager
// evaluation, for any rank and any number of cores.
func TestPivots(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 15
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 5))
		n := 1 + rng.IntN(400)
		k := smoothMatrix(rng, n)
		diag := make([]float64, n)
		for i := range diag {
			diag[i] = k[i][i]
		}
		o := &Pivots{Rank: 1 + rng.IntN(n), Columns: elementsOf(k), Negligible: 1e-13,
			NotPosDef: 1e-6}
		if seed%3 == 0 {
			total := floats.Sum(diag)
			least := math.Pow(10, -1-9*rng.Float64())
			o.Enough = func(left []float64) bool { return floats.Sum(left) <= least*total }
		}
		want, rows, bad := eager(o, k, diag)
		if bad != nil {
			t.Fatal(bad)
		}
		for _, cores := range []int{1, 3} {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
			pivots, f, err := o.Factor(diag)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(pivots, want) {
				t.Fatalf("seed %d, %d rows, rank %d: pivots %v, want %v", seed, n, o.Rank, pivots,
					want)
			}
			m := len(pivots)
			for i, row := range rows {
				if !slices.Equal(f[i*m:(i+1)*m], row) {
					t.Fatalf("seed %d: row %d is %v, want %v", seed, i, f[i*m:(i+1)*m], row)
				}
			}
		}
	}
}

// TestPivotsFew checks that Factor computes few elements before it needs whole rows.
func TestPivotsFew(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	const n, rank = 2000, 31 // one less than a block
	k := smoothMatrix(rng, n)
	diag := make([]float64, n)
	for i := range diag {
		diag[i] = k[i][i]
	}
	most, asked := 0, 0
	o := &Pivots{Rank: rank, Negligible: 1e-13, NotPosDef: 1e-6,
		Columns: func(dst []float64, pivots, rows []int) {
			if len(rows) < pivotRows {
				asked += len(rows) * len(pivots)
			}
			most = max(most, len(rows))
			elementsOf(k)(dst, pivots, rows)
		}}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if _, _, err := o.Factor(diag); err != nil {
		t.Fatal(err)
	}
	if part := float64(asked) / (n * rank); part > 0.25 {
		t.Errorf("%.2f of the elements were asked for in search of pivots", part)
	}
	if most > pivotRows {
		t.Errorf("%d rows at a time, at most %d", most, pivotRows)
	}
}

// TestPivotsErrors checks a matrix without variance, a matrix that is not a covariance, and a
// halt.
func TestPivotsErrors(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 7))
	k := smoothMatrix(rng, 200)
	diag := make([]float64, len(k))
	o := &Pivots{Rank: 50, Columns: elementsOf(k), Negligible: 1e-13, NotPosDef: 1e-6}
	pivots, f, err := o.Factor(diag)
	if err != nil || len(pivots) != 0 || len(f) != len(k) {
		t.Errorf("of zero: pivots %v, %d features, %v", pivots, len(f), err)
	}
	for i := range diag {
		diag[i] = k[i][i]
	}
	if pivots, _, err = o.Factor(diag); err != nil {
		t.Fatal(err)
	}
	i, j := pivots[3], 0
	for slices.Contains(pivots, j) {
		j++
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), 1e3} {
		was := k[i][j]
		k[i][j], k[j][i] = bad, bad
		_, _, err := o.Factor(diag)
		var at *PivotError
		if !errors.As(err, &at) || !(at.Row == i && at.Pivot == j || at.Row == j && at.Pivot == i) {
			t.Errorf("with %v at %d, %d: %v", bad, i, j, err)
		}
		k[i][j], k[j][i] = was, was
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	var h parallel.Halt
	h.Watch(ctx)
	o.Halt = &h
	asked := 0
	o.Columns = func(dst []float64, pivots, rows []int) {
		if asked++; asked == 4 {
			cancel(why)
		}
		elementsOf(k)(dst, pivots, rows)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if _, _, err := o.Factor(diag); !errors.Is(err, why) {
		t.Errorf("halted: %v", err)
	}
}
