package pgsvi

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// elements is a matrix of a custom type.
type elements struct{ x *mat.Dense }

func (e elements) Dims() (int, int)    { return e.x.Dims() }
func (e elements) At(i, j int) float64 { return e.x.At(i, j) }
func (e elements) T() mat.Matrix       { return mat.Transpose{Matrix: e} }

// rowTypes returns n rows of d numbers in every matrix type that is read in a special way. Square
// types have n columns.
func rowTypes(rng *rand.Rand, n, d int) map[string]mat.Matrix {
	draw := func(n, d int) *mat.Dense { return testkit.RandomSparse(rng, n, d, 0.7) }
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
	train, y := testkit.RandomSparse(rng, 30, n, 0.7), make([]float64, 30)
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
	testkit.BenchLong(b)
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

// TestSparseResetShared checks that a GLM keeps its rows if the matrix is reset and filled again, with
// and without an intercept, and that a matrix that no GLM shares keeps its memory.
func TestSparseResetShared(t *testing.T) {
	for _, intercept := range []bool{false, true} {
		fill := func(x *Sparse, scale float64) {
			for i := range 6 {
				if err := x.Append([]int{0, 1}, []float64{scale * float64(i+1), scale}); err != nil {
					t.Fatal(err)
				}
			}
		}
		fit := func(reset bool) []float64 {
			x, y := NewSparse(2), []float64{1, 3, 2, 5, 4, 6}
			fill(x, 1)
			g, err := NewGLM(x, y, nil, &GLMOptions{Intercept: intercept})
			if err != nil {
				t.Fatal(err)
			}
			if reset {
				x.Reset()
				fill(x, -7)
			}
			p, _, err := g.Fit(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return p.Mean(nil)
		}
		if a, b := fit(true), fit(false); !slices.Equal(a, b) {
			t.Errorf("intercept %v: weights %v after a reset, want %v", intercept, a, b)
		}
		x := NewSparse(2)
		if n := testing.AllocsPerRun(5, func() { fill(x, 1); x.Reset() }); n > 0 {
			t.Errorf("a matrix of its own takes %v allocations", n)
		}
	}
}
