package linear

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

func TestSparsePanics(t *testing.T) {
	s := SparseOf(mat.NewDense(2, 3, []float64{1, 0, 3, 0, 5, 0}))
	for _, at := range [][2]int{{-1, 0}, {2, 0}, {0, -1}, {0, 3}} {
		testkit.MustPanic(t, fmt.Sprint(at), func() { s.At(at[0], at[1]) })
	}
	testkit.MustPanic(t, "negative columns", func() { NewSparse(-1) })
	testkit.MustPanic(t, "short y", func() { Rows(s, []float64{1}) })
	ind, val := s.Row(0)
	_, _ = append(ind, 9), append(val, 9)
	if s.At(1, 1) != 5 {
		t.Error("appending to a row has changed the next one")
	}
}

// FuzzSparse checks rows of all kinds against a dense matrix.
func FuzzSparse(f *testing.F) {
	f.Add([]byte{}, uint8(3))
	f.Add([]byte{2, 5, 1, 3, 2, 0, 1, 2, 1, 1, 7, 7}, uint8(0))
	f.Add([]byte{1, 255, 1, 2, 4, 4, 4, 4}, uint8(9))
	f.Fuzz(func(t *testing.T, in []byte, cols uint8) {
		s := NewSparse(int(cols))
		var want [][]float64
		width := int(cols)
		for len(in) > 0 {
			k := min(int(in[0]%8), (len(in)-1)/2)
			ind, val := make([]int, k), make([]float64, k)
			valid := true
			row := make([]float64, 256)
			seen := map[int]bool{}
			for i := range k {
				ind[i], val[i] = int(int8(in[1+2*i])), float64(int8(in[2+2*i]))
				if val[i] == 127 {
					val[i] = math.Inf(1)
				}
				if valid = valid && ind[i] >= 0 && val[i] < 127 && !seen[ind[i]]; valid {
					row[ind[i]] = val[i]
					seen[ind[i]] = true
				}
			}
			in = in[1+2*k:]
			err := s.Append(ind, val)
			if (err == nil) != valid {
				t.Fatalf("%v, %v: error %v", ind, val, err)
			}
			if valid {
				want = append(want, row)
				for j := range seen {
					width = max(width, j+1)
				}
			}
		}
		n, d := s.Dims()
		if n != len(want) || d != width {
			t.Fatalf("%d×%d, want %d×%d", n, d, len(want), width)
		}
		nonzero := 0
		for i := range n {
			for j := range d {
				if s.At(i, j) != want[i][j] {
					t.Fatalf("(%d, %d) is %v, want %v", i, j, s.At(i, j), want[i][j])
				}
				if want[i][j] != 0 {
					nonzero++
				}
			}
		}
		if s.NNZ() != nonzero {
			t.Fatalf("%d non-zeros, want %d", s.NNZ(), nonzero)
		}
		i := 0
		for row, err := range Rows(s, nil) {
			if err != nil || row.Ind == nil {
				t.Fatalf("row %d: %v", i, err)
			}
			dense := make([]float64, 256)
			for k, j := range row.Ind {
				dense[j] = row.Val[k]
			}
			if !slices.Equal(dense, want[i]) {
				t.Fatalf("row %d is %v", i, row)
			}
			i++
		}
	})
}

// TestRowsInPlace checks that the rows of a matrix in memory are not copied.
func TestRowsInPlace(t *testing.T) {
	x, i := mat.NewDense(2, 3, []float64{1, 2, 3, 4, 5, 6}), 0
	for row := range Rows(x, nil) {
		if &row.Val[0] != &x.RawRowView(i)[0] || len(row.Val) != 3 {
			t.Errorf("row %d is a copy", i)
		}
		i++
	}
}

// A matrix argument that is a nil pointer must produce an error and no panic.
func TestNilMatricesAreErrors(t *testing.T) {
	ctx := context.Background()
	x := mat.NewDense(4, 2, []float64{1, 2, 3, 5, 4, 1, 0, 3})
	y := []float64{1, -1, 1, 1}
	k := SquaredExp{}
	rows := func() iter.Seq2[Row, error] { return Rows(x, y) }
	glm, err := NewGLM(x, y, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	glmPost, _, err := glm.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	gp, err := NewGP(x, y, k, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	gpPost, _, err := gp.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	sparse, err := NewSparseGP(x, y, k, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	sparsePost, _, err := sparse.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &Corpus{Terms: 2, Docs: []Document{{Words: []int{0, 1}, Counts: []float64{2, 1}}}}
	var dense *mat.Dense
	for _, z := range []mat.Matrix{nil, dense, (*Sparse)(nil), (*mat.SymDense)(nil),
		mat.Transpose{Matrix: dense}} {
		fails := map[string]error{}
		_, fails["NewGLM"] = NewGLM(z, nil, nil, nil)
		_, fails["NewGP"] = NewGP(z, y, k, nil, nil)
		_, fails["NewSparseGP"] = NewSparseGP(z, y, k, nil, nil)
		_, fails["NewMixture"] = NewMixture(z, 1, nil)
		_, fails["WithInducing"] = sparsePost.WithInducing(z)
		_, _, fails["Joint"] = gpPost.Joint(z)
		fails["Rand"] = gpPost.Rand(mat.NewDense(1, 1, nil), z, rand.New(rand.NewPCG(1, 2)))
		fails["GLM At"] = glmPost.At(z).Err()
		fails["GP At"] = gpPost.At(z).Err()
		fails["SparseGP At"] = sparsePost.At(z).Err()
		for _, err := range Rows(z, y) {
			fails["Rows"] = err
		}
		for name, err := range fails {
			if !errors.Is(err, ErrEmpty) || !strings.Contains(err.Error(), "nil matrix") {
				t.Errorf("%s of %T: %v", name, z, err)
			}
		}
		if z == nil {
			continue // options may be left out
		}
		clear(fails)
		_, fails["SparseGPOptions.Inducing"] = NewSparseGP(x, y, k, nil,
			&SparseGPOptions{Inducing: z})
		_, fails["Inducing of rows"] = NewSparseGPRows(ctx, rows(), 2, k, nil,
			&SparseGPOptions{Inducing: z})
		_, fails["LDAOptions.Topics"] = NewLDA(c, 1, &LDAOptions{Topics: z})
		_, fails["CTMOptions.Topics"] = NewCTM(c, 2, &CTMOptions{Topics: z})
		_, fails["MixtureOptions.Start"] = NewMixture(x, 1, &MixtureOptions{Start: z})
		if s, ok := z.(mat.Symmetric); ok {
			_, fails["MixtureOptions.Cov"] = NewMixture(x, 1, &MixtureOptions{Cov: s})
		}
		for name, err := range fails {
			if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "is a nil ") {
				t.Errorf("%s of %T: %v", name, z, err)
			}
		}
	}
	var sym *mat.SymDense
	for name, f := range map[string]func() error{
		"NewGaussian":      func() error { _, err := NewGaussian(nil, sym); return err },
		"NewWishart":       func() error { _, err := NewWishart(3, sym); return err },
		"NewNormalWishart": func() error { _, err := NewNormalWishart(nil, 1, 3, sym); return err },
	} {
		if err := f(); !errors.Is(err, ErrEmpty) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSparseOf(t *testing.T) {
	rng := testkit.Rand(3)
	for _, filled := range []float64{0, 0.1, 0.7, 1} {
		for _, d := range []int{1, 2, 33} {
			x := testkit.RandomSparse(rng, 7, d, filled)
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
	if err := wide.Append([]int{1}, []float64{1}); err != nil || !mat.Equal(wide, mat.NewDense(1,
		9, []float64{1: 1, 8: 0})) {
		t.Errorf("9 columns became %v, %v", mat.Formatted(wide), err)
	}
	err := s.Append([]int{math.MaxInt32 - 1}, []float64{1})
	if _, d := s.Dims(); err != nil || d != math.MaxInt32 {
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
			err = s.Append([]int{2}, []float64{3})
			if n, _ := s.Dims(); err != nil || s.At(rows, 2) != 3 || n != rows+1 {
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

// TestSharedRows checks that products, variances and sums of rows have the same bits for any number
// of goroutines.
func TestSharedRows(t *testing.T) {
	testkit.NotShort(t)
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
		g := kit.DesignOf(t, x)
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
	for name, g := range map[string]*design.Matrix{"dense": kit.DesignOf(t, x),
		"sparse": kit.DesignOf(t, few)} {
		if got := g.Means(weights); !floats.EqualApprox(got, sums, 1e-12) {
			t.Errorf("%s: means %v, want %v", name, got, sums)
		}
	}
}
