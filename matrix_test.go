package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

func randomSparse(rng *rand.Rand, n, d int, filled float64) *mat.Dense {
	x := mat.NewDense(n, d, nil)
	for i := range n {
		for j := range d {
			if rng.Float64() < filled {
				x.Set(i, j, rng.NormFloat64())
			}
		}
	}
	return x
}

func TestSparseOf(t *testing.T) {
	rng := testRand(3)
	for _, filled := range []float64{0, 0.1, 0.7, 1} {
		for _, d := range []int{1, 2, 33} {
			x := randomSparse(rng, 7, d, filled)
			nonzero := 0
			for _, v := range x.RawMatrix().Data {
				if v != 0 {
					nonzero++
				}
			}
			s := SparseOf(x)
			if n, c := s.Dims(); n != 7 || c != d || s.NNZ() != nonzero {
				t.Errorf("%d×%d with %d non-zeros, want 7×%d with %d", n, c, s.NNZ(), d, nonzero)
			}
			if !mat.Equal(s, x) || !mat.Equal(s.T(), x.T()) || !mat.Equal(SparseOf(s), x) {
				t.Errorf("%d columns, %v filled: not equal", d, filled)
			}
			for i := range 7 {
				ind, val := s.Row(i)
				if !slices.IsSorted(ind) || len(ind) != len(val) || slices.Contains(val, 0) {
					t.Errorf("row %d is %v, %v", i, ind, val)
				}
			}
		}
	}
	view := mat.NewDense(3, 3, []float64{1, 2, 3, 4, 0, 6, 7, 8, 9}).Slice(1, 3, 1, 3)
	if s := SparseOf(view); !mat.Equal(s, view) || s.NNZ() != 3 {
		t.Error("of a view")
	}
	if n, d := SparseOf(&mat.Dense{}).Dims(); n != 0 || d != 0 {
		t.Errorf("of nothing: %d×%d", n, d)
	}
}

func TestSparseAppend(t *testing.T) {
	var s Sparse
	if n, d := s.Dims(); n != 0 || d != 0 || s.NNZ() != 0 {
		t.Errorf("the zero value is %d×%d", n, d)
	}
	ind, val := []int{4, 0, 2}, []float64{5, 1, 0}
	for _, r := range []struct {
		ind []int
		val []float64
	}{{ind, val}, {nil, []float64{7, 0, 8}}, {[]int{}, nil}, {nil, nil}, {[]int{5}, []float64{0}},
		{[]int{1, 3}, []float64{2, 4}}} {
		if err := s.Append(r.ind, r.val); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(ind, []int{4, 0, 2}) || !slices.Equal(val, []float64{5, 1, 0}) {
		t.Error("the arguments have been changed")
	}
	val[0], ind[0] = 99, 1
	want := mat.NewDense(6, 6, []float64{
		1, 0, 0, 0, 5, 0,
		7, 0, 8, 0, 0, 0,
		0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0,
		0, 2, 0, 4, 0, 0,
	})
	if !mat.Equal(&s, want) || s.NNZ() != 6 {
		t.Errorf("%v", mat.Formatted(&s))
	}
	wide := NewSparse(9)
	if err := wide.Append([]int{1}, []float64{1}); err != nil || wide.x.Cols != 9 {
		t.Errorf("9 columns became %d, %v", wide.x.Cols, err)
	}
	if err := s.Append([]int{math.MaxInt32 - 1}, []float64{1}); err != nil ||
		s.x.Cols != math.MaxInt32 {
		t.Errorf("the last column: %v", err)
	}
}

func TestSparseAppendErrors(t *testing.T) {
	for _, rows := range []int{0, 2} {
		for _, c := range []struct {
			ind  []int
			val  []float64
			want error
			says string
		}{
			{[]int{0, 1}, []float64{1}, ErrShape, "has 2 columns and 1 values"},
			{[]int{}, []float64{1}, ErrShape, "has 0 columns and 1 values"},
			{[]int{0}, nil, ErrShape, "has 1 columns and 0 values"},
			{[]int{7, -1}, []float64{1, 2}, ErrShape, "has column -1"},
			{[]int{7, math.MaxInt32}, []float64{1, 2}, ErrShape, "has column 2147483647"},
			{[]int{7, 7}, []float64{1, 2}, ErrShape, "has column 7 twice"},
			{[]int{9, 8, 9}, []float64{1, 2, 3}, ErrShape, "has column 9 twice"},
			{[]int{9, 8, 9}, []float64{0, 2, 0}, ErrShape, "has column 9 twice"},
			{[]int{9, 8}, []float64{1, math.NaN()}, ErrNotFinite, "column 8 is NaN"},
			{nil, []float64{1, 2, 3, math.Inf(-1)}, ErrNotFinite, "column 3 is -Inf"},
		} {
			var s Sparse
			for range rows {
				if err := s.Append([]int{0, 1}, []float64{1, 2}); err != nil {
					t.Fatal(err)
				}
			}
			err := s.Append(c.ind, c.val)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) ||
				!strings.Contains(err.Error(), fmt.Sprintf("row %d", rows)) ||
				!strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Errorf("%v, %v: error %v, want %q", c.ind, c.val, err, c.says)
			}
			if n, d := s.Dims(); n != rows || d != rows || s.NNZ() != 2*rows {
				t.Errorf("%v, %v: the error left %d×%d with %d", c.ind, c.val, n, d, s.NNZ())
			}
			if err := s.Append([]int{2}, []float64{3}); err != nil || s.At(rows, 2) != 3 ||
				s.rows() != rows+1 {
				t.Errorf("%v, %v: after the error: %v", c.ind, c.val, err)
			}
		}
	}
}

func TestRows(t *testing.T) {
	x := mat.NewDense(3, 3, []float64{1, 0, 3, 0, 0, 0, 0, 5, 0})
	y := []float64{1, -1, 2}
	dense := []Row{{Val: []float64{1, 0, 3}, Y: 1}, {Val: []float64{0, 0, 0}, Y: -1},
		{Val: []float64{0, 5, 0}, Y: 2}}
	sparse := []Row{{Ind: []int{0, 2}, Val: []float64{1, 3}, Y: 1},
		{Ind: []int{}, Val: []float64{}, Y: -1}, {Ind: []int{1}, Val: []float64{5}, Y: 2}}
	empty := NewSparse(3)
	for range 2 {
		if err := empty.Append(nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		x    mat.Matrix
		y    []float64
		want []Row
	}{
		"dense": {x, y, dense},
		"view": {mat.NewDense(3, 4, []float64{1, 0, 3, 9, 0, 0, 0, 9, 0, 5, 0, 9}).Slice(0, 3,
			0, 3), y, dense},
		"transposed": {x.T(), nil,
			[]Row{{Val: []float64{1, 0, 0}}, {Val: []float64{0, 0, 5}}, {Val: []float64{3, 0, 0}}}},
		"sparse": {SparseOf(x), y, sparse},
		"empty": {empty, nil,
			[]Row{{Ind: []int{}, Val: []float64{}}, {Ind: []int{}, Val: []float64{}}}},
		"none": {NewSparse(3), nil, nil},
	} {
		rows := Rows(c.x, c.y)
		for range 2 {
			if got, err := collectRows(rows); err != nil || !sameRows(got, c.want) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
		for range rows {
			break
		}
		// Iterate over a sequence inside an iteration over the same sequence.
		for outer := range rows {
			before := append([]float64{}, outer.Val...)
			for range rows {
			}
			if !slices.Equal(before, outer.Val) {
				t.Errorf("%s: a range within has changed the row", name)
			}
		}
	}
}

// elements is a matrix of a custom type.
type elements struct{ x *mat.Dense }

func (e elements) Dims() (int, int)    { return e.x.Dims() }
func (e elements) At(i, j int) float64 { return e.x.At(i, j) }
func (e elements) T() mat.Matrix       { return mat.Transpose{Matrix: e} }

// rowTypes returns n rows of d numbers in every matrix type that is read in a special way. Square
// types have n columns.
func rowTypes(rng *rand.Rand, n, d int) map[string]mat.Matrix {
	draw := func(n, d int) *mat.Dense { return randomSparse(rng, n, d, 0.7) }
	view := draw(n+3, d+2).Slice(2, n+2, 1, d+1).(*mat.Dense)
	symmetric := mat.NewSymDense(n+1, nil)
	for i := range n + 1 {
		for j := range i + 1 {
			symmetric.SetSym(i, j, rng.NormFloat64())
		}
	}
	below := symmetric.RawSymmetric() // it must not affect the matrix
	for i := range n + 1 {
		for j := range i {
			below.Data[i*below.Stride+j] = math.NaN()
		}
	}
	return map[string]mat.Matrix{
		"dense":                  draw(n, d),
		"view":                   view,
		"transpose":              draw(d, n).T(),
		"transpose of a view":    draw(d+2, n+2).Slice(1, d+1, 2, n+2).T(),
		"symmetric":              symmetric.SliceSym(0, n),
		"lower":                  mat.NewTriDense(n, mat.Lower, draw(n, n).RawMatrix().Data),
		"upper":                  mat.NewTriDense(n, mat.Upper, draw(n, n).RawMatrix().Data),
		"transposed triangle":    mat.NewTriDense(n, mat.Upper, draw(n, n).RawMatrix().Data).T(),
		"sparse":                 SparseOf(draw(n, d)),
		"transpose of sparse":    SparseOf(draw(d, n)).T(),
		"own":                    elements{draw(n, d)},
		"transpose of own":       elements{draw(d, n)}.T(),
		"transpose of symmetric": mat.Transpose{Matrix: symmetric.SliceSym(0, n)},
		"one column":             mat.NewVecDense(n, draw(n, 1).RawMatrix().Data),
	}
}

// TestRowTypes checks that rows hold the numbers of the matrix for every type, in whole and in
// parts, one at a time, in designs and in predictions.
func TestRowTypes(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 1))
	for _, n := range []int{1, 15, 16, 17, 50} {
		for name, x := range rowTypes(rng, n, 7) {
			_, d := x.Dims()
			for range 20 {
				lo := rng.IntN(n)
				hi, stride := lo+rng.IntN(n-lo)+1, d+rng.IntN(3)
				const untouched = 77
				got := make([]float64, (hi-lo)*stride)
				for i := range got {
					got[i] = untouched
				}
				copyRows(got, stride, x, lo, hi)
				for i, v := range got {
					want := float64(untouched)
					if j := i % stride; j < d {
						want = x.At(lo+i/stride, j)
					}
					if v != want {
						t.Fatalf("%s, rows %d to %d of %d: number %d is %v, want %v", name, lo, hi,
							n, i, v, want)
					}
				}
			}
			next := 0
			for i, row := range denseRows(x, 0, n) {
				if i != next || !slices.Equal(row, mat.Row(nil, i, x)) {
					t.Fatalf("%s: row %d is %v, want %v", name, i, row, mat.Row(nil, i, x))
				}
				next++
			}
			if next != n {
				t.Errorf("%s: %d rows, want %d", name, next, n)
			}
			same := mat.DenseCopyOf(x)
			if !mat.Equal(SparseOf(x), same) {
				t.Errorf("%s: sparse rows differ", name)
			}
			if _, sparse := x.(*Sparse); !sparse {
				for _, intercept := range []bool{false, true} {
					if got, want := newDesign(x, intercept),
						newDesign(same, intercept); !slices.Equal(got.Dense, want.Dense) {
						t.Errorf("%s: designs differ", name)
					}
				}
			}
		}
	}
}

// TestRowTypesPredict checks that predictions have the same bits for every matrix type, and need no
// more memory.
func TestRowTypesPredict(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 2))
	const n = 40
	train, y := randomSparse(rng, 30, n, 0.7), make([]float64, 30)
	for i := range y {
		y[i] = float64(2*rng.IntN(2) - 1)
	}
	ctx, k := context.Background(), SquaredExp{Scale: 1, Length: 5}
	gp, err := NewGP(train, y, k, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sparse, err := NewSparseGP(train, y, k, BernoulliLogit{},
		&SparseGPOptions{Inducing: train.Slice(0, 10, 0, n)})
	if err != nil {
		t.Fatal(err)
	}
	glm, err := NewGLM(train, y, BernoulliLogit{}, &GLMOptions{Intercept: true})
	if err != nil {
		t.Fatal(err)
	}
	ofGP, _, err := gp.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	ofSparse, _, err := sparse.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	ofGLM, _, err := glm.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range rowTypes(rng, n, n) {
		if name == "one column" {
			continue
		}
		same := mat.DenseCopyOf(x)
		for model, at := range map[string]func(x mat.Matrix) *Prediction{"GP": ofGP.At,
			"sparse GP": ofSparse.At, "GLM": ofGLM.At} {
			if name == "sparse" && model == "GLM" { // its products skip zeros
				continue
			}
			m, v := at(x).Latent(nil, nil)
			wantM, wantV := at(same).Latent(nil, nil)
			if !slices.Equal(m, wantM) || !slices.Equal(v, wantV) {
				t.Errorf("%s at rows of a matrix that is %s: %v and %v, want %v and %v", model,
					name, m, v, wantM, wantV)
			}
			if got, want := testing.AllocsPerRun(20, func() { at(x) }),
				testing.AllocsPerRun(20, func() { at(same) }); got > want+0.5 {
				t.Errorf("%s at rows of a matrix that is %s: %v allocations, %v of a dense one",
					model, name, got, want)
			}
		}
	}
}

// BenchmarkRowTypes reads rows of each type as a design, next to rows of a *mat.Dense.
//
//	go test -run '^$' -bench RowTypes . -long
func BenchmarkRowTypes(b *testing.B) {
	benchLong(b)
	const n = 1000
	for name, x := range rowTypes(rand.New(rand.NewPCG(21, 3)), n, n) {
		if name == "one column" {
			continue
		}
		b.Run(name, func(b *testing.B) {
			dst := make([]float64, n*n)
			b.SetBytes(8 * n * n)
			b.ReportAllocs()
			for b.Loop() {
				copyRows(dst, n, x, 0, n)
			}
		})
	}
}

// TestSharedRows checks that products, variances and sums of rows have the same bits for any number
// of goroutines.
func TestSharedRows(t *testing.T) {
	notShort(t)
	t.Parallel()
	const n, d, nnz = 9001, 43, 31
	rng := rand.New(rand.NewPCG(15, 16))
	draw := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = rng.NormFloat64()
		}
		return x
	}
	rows := mat.NewDense(n, d, draw(n*d))
	few := NewSparse(d)
	for range n {
		if err := few.Append(rng.Perm(d)[:nnz], draw(nnz)); err != nil {
			t.Fatal(err)
		}
	}
	ones := NewSparse(d)
	for range n {
		if err := ones.Append(rng.Perm(d)[:nnz], slices.Repeat([]float64{1}, nnz)); err != nil {
			t.Fatal(err)
		}
	}
	core := NewSparse(d) // most columns in each row, and one of the remaining columns
	for range n {
		at := append(rng.Perm(d-8), d-8+rng.IntN(8))
		if err := core.Append(at, draw(len(at))); err != nil {
			t.Fatal(err)
		}
	}
	p := make([]float64, d*d)
	dense.Syrk(blas.Trans, 1, dense.General(rows.RawMatrix().Data, n, d), 1, dense.Symmetric(p, d))
	s := gauss.Gaussian{}
	s.Resize(d)
	copy(s.P, p)
	if !s.Factor() {
		t.Fatal("no factor")
	}
	s.Invert()
	index := rng.Perm(n)
	w, u := draw(d), draw(n)
	const k, rank = 3, 4
	z := draw(d * k)
	low := gauss.NewLowRank(d, rank)
	for j := range low.D {
		low.D[j] = 1 + rng.Float64()
	}
	copy(low.U, draw(d*rank))
	low.Factor()
	for name, x := range map[string]mat.Matrix{"dense": rows, "sparse": few, "ones": ones,
		"core": core} {
		g := newDesign(x, false)
		if g.Unit != (name == "ones") {
			t.Errorf("%s: of ones: %v", name, g.Unit)
		}
		for _, batch := range [][]int{nil, index} {
			var want [9][]float64
			for workers := 1; workers <= 3; workers++ {
				var h parallel.Halt
				h.Lend(workers)
				got := [9][]float64{make([]float64, n), slices.Clone(w), make([]float64, n),
					slices.Clone(p), make([]float64, n), slices.Clone(w), make([]float64, n),
					slices.Clone(w), slices.Clone(z)}
				buf := &design.Work{Halt: &h}
				if !g.Shared(&h, n*g.PerRow()) && workers > 1 {
					t.Fatal("nothing is shared")
				}
				g.MulOn(&h, got[0], w, batch)
				g.AddMulTOn(got[1], u, batch, buf)
				g.Variances(got[2], s.L, s.Inv, batch, buf)
				g.AddGram(got[3], u, batch, buf)
				g.QuadDiagOn(&h, got[4], low.V, batch)
				g.AddSquares(got[5], u, batch, buf)
				low.VariancesOn(got[6], g, batch, buf)
				if batch == nil {
					g.AddGramMul(got[7], w, 1, u, buf)
					g.AddGramMul(got[8], z, k, u, buf)
				}
				eta, both, apart := make([]float64, n), slices.Clone(w), slices.Clone(w)
				g.MulGram(both, eta, w, u, batch, buf)
				scaled := make([]float64, n)
				floats.MulTo(scaled, u, got[0])
				g.AddMulTOn(apart, scaled, batch, buf)
				if !slices.Equal(eta, got[0]) || !slices.Equal(both, apart) {
					t.Errorf("%s: Xw and XᵀΓXw at once are other than apart", name)
				}
				if workers == 1 {
					want = got
					compareRows(t, name, x, batch, low, w, u, z, got[4:])
				}
				for k := range got {
					if !slices.Equal(got[k], want[k]) {
						t.Errorf("%s: result %d of %d goroutines is another than that of one", name,
							k, workers)
					}
				}
			}
		}
	}
}

// compareRows compares the results of TestSharedRows for x with plain sums.
func compareRows(t *testing.T, name string, x mat.Matrix, batch []int, low *gauss.LowRank, w, u,
	z []float64, got [][]float64) {
	t.Helper()
	n, d := x.Dims()
	k, v := len(z)/d, low.Sym()
	squares, one, more := slices.Clone(w), slices.Clone(w), slices.Clone(z)
	near := func(what string, got, want, size float64) {
		if !(math.Abs(got-want) <= 1e-11*size) {
			t.Fatalf("%s: %s is %v, want %v", name, what, got, want)
		}
	}
	row := make([]float64, d)
	for a := range n {
		mat.Row(row, dense.Index(batch, a), x)
		var diag float64
		for j, xj := range row {
			diag += xj * xj * low.V[j]
			squares[j] += u[a] * xj * xj
		}
		near("a variance under a diagonal V", got[0][a], diag, 1+diag)
		near("a variance under a V of low rank", got[2][a],
			mat.Inner(mat.NewVecDense(d, row), v, mat.NewVecDense(d, row)), 1+diag)
		for c := range k {
			var xz, xw float64
			for j, xj := range row {
				xz += xj * z[j*k+c]
				xw += xj * w[j]
			}
			for j, xj := range row {
				more[j*k+c] += u[a] * xz * xj
				if c == 0 {
					one[j] += u[a] * xw * xj
				}
			}
		}
	}
	for j := range d {
		near("a sum of squares", got[1][j], squares[j], float64(n))
		if batch != nil {
			continue
		}
		near("an element of XᵀUXw", got[3][j], one[j], float64(n*d))
		for c := range k {
			near("an element of XᵀUXZ", got[4][j*k+c], more[j*k+c], float64(n*d))
		}
	}
}

// TestMeans compares means of columns over parts of weighted rows with plain sums.
func TestMeans(t *testing.T) {
	const n, cols = 9000, 7
	rng := rand.New(rand.NewPCG(23, 24))
	x, weights := mat.NewDense(n, cols, nil), make([]float64, n)
	sums, sum := make([]float64, cols), 0.0
	few := NewSparse(cols)
	for i := range n {
		row := x.RawRowView(i)
		weights[i] = rng.ExpFloat64()
		sum += weights[i]
		var ind []int
		var val []float64
		for j := range row {
			if rng.IntN(2) == 0 {
				row[j] = 3 + rng.NormFloat64()
				ind, val = append(ind, j), append(val, row[j])
			}
			sums[j] += weights[i] * row[j]
		}
		if err := few.Append(ind, val); err != nil {
			t.Fatal(err)
		}
	}
	floats.Scale(1/sum, sums)
	for name, g := range map[string]*design.Matrix{"dense": newDesign(x, false),
		"sparse": newDesign(few, false)} {
		if got := g.Means(weights); !floats.EqualApprox(got, sums, 1e-12) {
			t.Errorf("%s: means %v, want %v", name, got, sums)
		}
	}
}
