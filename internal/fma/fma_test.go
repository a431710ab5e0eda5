package fma

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/parallel"
)

// paths calls f for each path that this processor has, in subtests that are not parallel.
func paths(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	for _, path := range available() {
		t.Run(path, func(t *testing.T) {
			defer force(path)()
			f(t)
		})
	}
}

// same reports the first number whose bits differ. All NaN count as equal.
func same(t *testing.T, what string, got, want []float64) {
	t.Helper()
	for i, x := range got {
		if math.Float64bits(x) != math.Float64bits(want[i]) && !(x != x && want[i] != want[i]) {
			t.Fatalf("%s: number %d is %v, want %v", what, i, x, want[i])
		}
	}
}

// layouts returns views of an m×n matrix with different layouts, whose numbers come from draw.
// They are parts of separate, larger slices.
func layouts(rng *rand.Rand, m, n int, draw func() float64) []Matrix {
	fill := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = draw()
		}
		return x
	}
	by := func(m, n int) Matrix {
		gap := rng.IntN(4)
		return Of(fill(max(0, m*(n+gap+1))), m, n,
			n+gap+1)
	}
	large := by(m+2, n+3)
	return []Matrix{by(m, n), by(n, m).T(), large.Slice(1, 2, m, n), by(m, n).reverse(),
		by(n, m).reverse().T()}
}

// sum computes the definition, which consists of blocks of fused sums, each starting at 0.
func sum(alpha, c float64, a, b []float64) float64 {
	for at := 0; at < len(a); at += Block {
		s := 0.0
		for k := at; k < min(len(a), at+Block); k++ {
			s = math.FMA(a[k], b[k], s)
		}
		c = math.FMA(alpha, s, c)
	}
	return c
}

// row returns a copy of k numbers of row i, starting at column j.
func (m Matrix) row(i, j, k int) []float64 {
	x := make([]float64, k)
	for p := range x {
		x[p] = *m.at(i, j+p)
	}
	return x
}

// all returns a copy of the rows.
func (m Matrix) all() [][]float64 {
	x := make([][]float64, m.Rows)
	for i := range x {
		x[i] = m.row(i, 0, m.Cols)
	}
	return x
}

func clone(m Matrix) Matrix {
	m.Data = slices.Clone(m.Data)
	return m
}

func naiveGemm(alpha float64, a, b, c Matrix) {
	rows, cols := a.all(), b.T().all()
	for i := range c.Rows {
		for j := range c.Cols {
			*c.at(i, j) = sum(alpha, *c.at(i, j), rows[i], cols[j])
		}
	}
}

func naiveGram(alpha float64, w []float64, a, c Matrix) {
	rows, weighed := a.all(), a.all()
	for _, x := range weighed {
		for k, v := range w {
			x[k] *= v
		}
	}
	for i := range c.Rows {
		for j := range i + 1 {
			*c.at(i, j) = sum(alpha, *c.at(i, j), rows[i], weighed[j])
		}
	}
}

// naiveSolve does forward substitution by the definition. It reads row i of L left of the
// diagonal, and column j of the solution from row from(j) on.
func naiveSolve(l, b Matrix, from func(j int) int) {
	rows, column := l.all(), make([]float64, b.Rows)
	for j := range b.Cols {
		first := from(j) / Block * Block
		clear(column)
		for i := from(j); i < b.Rows; i++ {
			column[i] = sum(-1, *b.at(i, j), rows[i][first:i], column[first:i]) / rows[i][i]
			*b.at(i, j) = column[i]
		}
	}
}

func naiveCholesky(a Matrix) bool {
	rows := a.all()
	for i, x := range rows {
		for j := range i + 1 {
			x[j] = sum(-1, x[j], x[:j], rows[j][:j])
			if j < i {
				x[j] /= rows[j][j]
			} else if !(x[i] > 0) || math.IsInf(x[i], 1) {
				return false
			} else {
				x[i] = math.Sqrt(x[i])
			}
			*a.at(i, j) = x[j]
		}
	}
	return true
}

// shapesOf returns shapes with each of 0 … 70 in each place, and some shapes that exceed a block.
// Short tests use only some of them.
func shapesOf(rng *rand.Rand) [][3]int {
	const most = 70
	var s [][3]int
	for m := range most + 1 {
		if testing.Short() && rng.IntN(6) > 0 {
			continue
		}
		s = append(s, [3]int{m, rng.IntN(most + 1), rng.IntN(most + 1)},
			[3]int{rng.IntN(most + 1), m, rng.IntN(most + 1)},
			[3]int{rng.IntN(most + 1), rng.IntN(most + 1), m})
	}
	return append(s, [3]int{5, 7, 255}, [3]int{13, 5, 256}, [3]int{9, 30, 257}, [3]int{4, 12, 513},
		[3]int{200, 26, 3}, [3]int{3, 1025, 2})
}

// TestGemm checks that products have the bits of three nested loops on every path.
func TestGemm(t *testing.T) {
	paths(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 1))
		for _, s := range shapesOf(rng) {
			m, n, k := s[0], s[1], s[2]
			a, b, c := layouts(rng, m, k, rng.NormFloat64), layouts(rng, k, n, rng.NormFloat64),
				layouts(rng, m, n, rng.NormFloat64)
			for i, c := range c {
				alpha, a, b, want := []float64{1, -1, 0.7}[rng.IntN(3)], a[rng.IntN(len(a))],
					b[rng.IntN(len(b))], clone(c)
				naiveGemm(alpha, a, b, want)
				if !Gemm(Run{}, alpha, a, b, c) {
					t.Fatal("halted")
				}
				same(t, fmt.Sprintf("%d×%d×%d, layout %d", m, n, k, i), c.Data, want.Data)
			}
		}
	})
}

// TestSyrk checks the lower triangles of AAᵀ and XᵀWX, and that nothing else changes.
func TestSyrk(t *testing.T) {
	paths(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(2, 2))
		for _, s := range shapesOf(rng) {
			n, k := s[0], s[2]
			w := make([]float64, k)
			for i := range w {
				w[i] = rng.NormFloat64()
			}
			for i, a := range layouts(rng, n, k, rng.NormFloat64) {
				c := layouts(rng, n, n, rng.NormFloat64)[2*(i%2)]
				want := clone(c)
				naiveGram(-1, nil, a, want)
				Syrk(Run{}, -1, a, c)
				same(t, fmt.Sprintf("syrk %d×%d, layout %d", n, k, i), c.Data, want.Data)
				naiveGram(1, w, a, want)
				Gram(Run{}, w, a.T(), c)
				same(t, fmt.Sprintf("gram %d×%d, layout %d", n, k, i), c.Data, want.Data)
			}
		}
	})
}

// triangular draws a lower triangular matrix. Its memory above the diagonal is NaN, because no
// function may read it.
func triangular(rng *rand.Rand, n int) Matrix {
	l := layouts(rng, n, n, rng.NormFloat64)[2]
	for i := range n {
		for j := range n {
			switch {
			case j > i:
				*l.at(i, j) = math.NaN()
			case j == i:
				*l.at(i, i) = 1 + rng.Float64()
			default:
				*l.at(i, j) /= float64(n)
			}
		}
	}
	return l
}

// whole makes naiveSolve read all rows of the solution.
func whole(int) int { return 0 }

// TestTrsm checks solutions for both triangles and both sides.
func TestTrsm(t *testing.T) {
	paths(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 3))
		for _, s := range append(shapesOf(rng), [3]int{257, 14, 0}, [3]int{513, 3, 0}) {
			n, cols := s[0], s[1]
			l := triangular(rng, n)
			for i, b := range layouts(rng, n, cols, rng.NormFloat64) {
				for _, upper := range []bool{false, true} {
					if testing.Short() && upper != (i%2 == 0) {
						continue // each layout has only one valid side
					}
					want := clone(b)
					if upper {
						naiveSolve(l.reverse().T().reverse(), want.reverse(), whole)
						Trsm(Run{}, l.T(), b, true)
					} else {
						naiveSolve(l, want, whole)
						Trsm(Run{}, l, b, false)
					}
					same(t, fmt.Sprintf("%d×%d, layout %d, upper %v", n, cols, i, upper), b.Data,
						want.Data)
				}
			}
		}
	})
}

// TestCholesky checks that factors and inverses have the bits of their definitions, and that the
// upper triangle is neither read nor written.
func TestCholesky(t *testing.T) {
	paths(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(4, 4))
		sizes := []int{257}
		if !testing.Short() {
			sizes = append(sizes, 255, 256, 513)
		}
		for n := range 71 {
			if n < 30 || !testing.Short() {
				sizes = append(sizes, n)
			}
		}
		for _, n := range sizes {
			l := triangular(rng, n)
			a := clone(l)
			for i := range n {
				for j := range i + 1 {
					s := 0.0
					for k := range j + 1 {
						s += *l.at(i, k) * *l.at(j, k)
					}
					*a.at(i, j) = s
				}
			}
			want := clone(a)
			if !naiveCholesky(want) || !Cholesky(Run{}, a) {
				t.Fatalf("%d: refused", n)
			}
			same(t, fmt.Sprintf("factor of %d", n), a.Data, want.Data)
			inverse, potri := clone(a), clone(a)
			eye := clone(a)
			for i := range n {
				for j := range n {
					*eye.at(i, j) = 0
				}
				*eye.at(i, i) = 1
			}
			naiveSolve(a, eye, func(j int) int { return j })
			m := eye.T().all()
			for i := range n {
				for j := i + 1; j < n; j++ {
					*eye.at(i, j) = math.NaN()
				}
			}
			InvertLower(Run{}, inverse)
			same(t, fmt.Sprintf("inverse of L, %d", n), inverse.Data, eye.Data)
			// In L⁻ᵀL⁻¹, the sum over k ≥ i starts with the block that contains i.
			for i := range n {
				for j := range i + 1 {
					at, x := i/Block*Block, make([]float64, n-i/Block*Block)
					copy(x[i-at:], m[i][i:])
					*potri.at(i, j) = sum(1, 0, x, m[j][at:])
				}
			}
			Invert(Run{}, a)
			same(t, fmt.Sprintf("inverse, %d", n), a.Data, potri.Data)
		}
	})
}

// TestCholeskyRefuses checks that matrices are refused if they are not positive definite at any
// element.
func TestCholeskyRefuses(t *testing.T) {
	paths(t, func(t *testing.T) {
		for _, n := range []int{1, 4, 13, 50, 270} {
			for _, x := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1)} {
				for _, i := range []int{0, n / 2, n - 1} {
					a := Of(make([]float64, n*n), n, n, n)
					for j := range n {
						*a.at(j, j) = 2
					}
					*a.at(i, i) = x
					if Cholesky(Run{}, a) {
						t.Errorf("%v at %d of %d is taken", x, i, n)
					}
				}
			}
		}
	})
}

// TestVectors checks inner products and sums of vectors of every length, at every position in
// memory.
func TestVectors(t *testing.T) {
	paths(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(5, 5))
		for n := range 71 {
			for off := range 4 {
				x, y, z := make([]float64, n+off)[off:], make([]float64, n+off)[off:],
					make([]float64, n)
				for i := range n {
					x[i], y[i] = rng.NormFloat64(), rng.NormFloat64()
				}
				if got, want := Dot(x, y), dot(x, y); got != want {
					t.Fatalf("dot of %d: %v, want %v", n, got, want)
				}
				copy(z, y)
				Axpy(0.3, x, z)
				for i, v := range z {
					if v != math.FMA(0.3, x[i], y[i]) {
						t.Fatalf("axpy of %d: number %d is %v", n, i, v)
					}
				}
				squares := make([]float64, n)
				for i, v := range x {
					squares[i] = v * v
				}
				if got, want := DotSquares(x, y), dot(squares, y); got != want {
					t.Fatalf("dot of %d squares: %v, want %v", n, got, want)
				}
				copy(z, y)
				AxpySquares(0.3, x, z)
				for i, v := range z {
					if v != math.FMA(0.3, squares[i], y[i]) {
						t.Fatalf("axpy of %d squares: number %d is %v", n, i, v)
					}
				}
			}
		}
		s := rng.IntN(20)
		for _, shape := range shapesOf(rng) {
			m, n := shape[0], shape[1]
			for i, transposed := range []bool{false, true, false, true} {
				a := layouts(rng, m, n, rng.NormFloat64)[i/2*2]
				k, l := n, m
				if transposed {
					k, l = m, n
				}
				x, y, want := make([]float64, k+s)[s:], make([]float64, l), make([]float64, l)
				for i := range x {
					x[i] = rng.NormFloat64()
				}
				for i, row := range a.all() {
					if transposed {
						axpy(-2*x[i], row, want)
					} else {
						want[i] = math.FMA(-2, dot(row, x), 0)
					}
				}
				Gemv(-2, a, transposed, x, y)
				same(t, fmt.Sprintf("gemv %d×%d, %v", m, n, transposed), y, want)
				if !transposed {
					testDots(t, a, x)
				}
			}
		}
	})
	// This repeats the definition of Dot in another form.
	x := make([]float64, 39)
	for i := range x {
		x[i] = 1 / float64(i+1)
	}
	var s [16]float64
	for i := range 32 {
		s[i%16] = math.FMA(x[i], x[i], s[i%16])
	}
	for i := 32; i < 36; i++ {
		s[i-32] = math.FMA(x[i], x[i], s[i-32])
	}
	at := func(j int) float64 { return (s[j] + s[4+j]) + (s[8+j] + s[12+j]) }
	want := (at(0) + at(2)) + (at(1) + at(3))
	for i := 36; i < 39; i++ {
		want = math.FMA(x[i], x[i], want)
	}
	if got := Dot(x, x); got != want {
		t.Errorf("dot %v, want %v", got, want)
	}
}

// testDots compares the inner products of all rows of a with one at a time.
func testDots(t *testing.T, a Matrix, x []float64) {
	t.Helper()
	dots, squares, got := make([]float64, a.Rows), make([]float64, a.Rows), make([]float64, a.Rows)
	for i, row := range a.all() {
		dots[i], squares[i] = dot(row, x), dotSquares(row, x)
	}
	Dots(got, a, x)
	same(t, fmt.Sprintf("inner products of %d×%d", a.Rows, a.Cols), got, dots)
	DotsSquares(got, a, x)
	same(t, fmt.Sprintf("inner products of squares of %d×%d", a.Rows, a.Cols), got, squares)
}

// TestPackNarrow checks that panels of rows that are narrower than a panel end in zeros,
// whether or not there are numbers after them in memory.
func TestPackNarrow(t *testing.T) {
	paths(t, func(t *testing.T) {
		for w := 1; w <= columns; w++ {
			for k := range 20 {
				for gap := range 3 {
					stride := w + gap
					data := make([]float64, max(0, (k-1)*stride+w))
					for i := range data {
						data[i] = float64(i + 1)
					}
					got, want := make([]float64, k*columns), make([]float64, k*columns)
					for i := range got {
						got[i] = math.NaN()
						if p, j := i/columns, i%columns; j < w {
							want[i] = data[p*stride+j]
						}
					}
					pack(got, Of(data, k, w, stride), k, columns)
					same(t, fmt.Sprintf("%d rows of %d, %d apart", k, w, stride), got, want)
				}
			}
		}
	})
}

// TestNotFinite: NaN and infinities are passed on, and 0·NaN is NaN.
func TestNotFinite(t *testing.T) {
	paths(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(6, 6))
		draw := func() float64 {
			return []float64{0, math.Copysign(0, -1), 1, -2, math.NaN(), math.Inf(1), math.Inf(-1),
				5e-324, math.MaxFloat64}[min(8, rng.IntN(40))]
		}
		for range 100 {
			m, n, k := rng.IntN(20), rng.IntN(30), rng.IntN(20)
			a, b, c := layouts(rng, m, k, draw)[rng.IntN(5)], layouts(rng, k, n, draw)[rng.IntN(5)],
				layouts(rng, m, n, draw)[rng.IntN(5)]
			want := clone(c)
			naiveGemm(1, a, b, want)
			Gemm(Run{}, 1, a, b, c)
			same(t, "gemm", c.Data, want.Data)
			l := layouts(rng, n, n, draw)[0]
			b = layouts(rng, n, m, draw)[rng.IntN(5)]
			want = clone(b)
			naiveSolve(l, want, whole)
			Trsm(Run{}, l, b, false)
			same(t, "trsm", b.Data, want.Data)
		}
		zero, nan := []float64{0, 0, 0}, []float64{1, math.NaN(), 2}
		if x := Dot(zero, nan); x == x {
			t.Error("dot leaves 0·NaN out")
		}
		if Axpy(0, nan, zero); zero[1] == zero[1] {
			t.Error("axpy leaves 0·NaN out")
		}
	})
}

// TestWorkers checks that the bits are the same on any number of goroutines.
func TestWorkers(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 7))
	const n, k = 2*mostShare + 7, 70
	a, b, l := layouts(rng, n, k, rng.NormFloat64)[0], layouts(rng, k, n, rng.NormFloat64)[1],
		triangular(rng, n)
	spd := layouts(rng, n, n, func() float64 { return 0 })[0]
	for i := range n {
		*spd.at(i, i) = 50
	}
	Syrk(Run{}, 1, a, spd)
	c := layouts(rng, n, n, rng.NormFloat64)[3]
	for name, f := range map[string]func(r Run) Matrix{
		"gemm":     func(r Run) Matrix { c := clone(c); Gemm(r, 1, a, b, c); return c },
		"syrk":     func(r Run) Matrix { c := clone(spd); Syrk(r, 1, a, c); return c },
		"gram":     func(r Run) Matrix { c := clone(spd); Gram(r, b.Data[:k], b, c); return c },
		"trsm":     func(r Run) Matrix { c := clone(c); Trsm(r, l, c, false); return c },
		"cholesky": func(r Run) Matrix { c := clone(spd); Cholesky(r, c); return c },
		"inverse":  func(r Run) Matrix { c := clone(l); Invert(r, c); return c },
		"panels": func(r Run) Matrix {
			var p Panels
			p.Set(a.T())
			c := clone(spd)
			p.Syrk(r, 1, c, 0, n)
			return c
		},
	} {
		want := f(Run{})
		var h parallel.Halt
		h.Watch(t.Context())
		h.Lend(3)
		same(t, name+" by those that are lent", f(Run{Halt: &h}).Data, want.Data)
		counts := []int{3, 2, 8}
		if testing.Short() {
			counts = counts[:1]
		}
		for _, workers := range counts {
			same(t, fmt.Sprintf("%s by %d", name, workers), f(Run{Workers: workers}).Data,
				want.Data)
		}
	}
}

// TestHalt checks that no function completes after a halt.
func TestHalt(t *testing.T) {
	t.Parallel()
	var h parallel.Halt
	h.Watch(t.Context())
	if !Gemm(Run{Halt: &h}, 1, Of([]float64{2}, 1, 1, 1), Of([]float64{3}, 1, 1, 1),
		Of([]float64{4}, 1, 1, 1)) {
		t.Error("halted too early")
	}
	h.Watch(canceled{t.Context()})
	for _, workers := range []int{1, 3} {
		n := 2 * share
		r, a, b, c := Run{&h, workers}, Of(make([]float64, n*n), n, n, n),
			Of(make([]float64, n*n), n, n, n), Of(make([]float64, n*n), n, n, n)
		for i := range n {
			*a.at(i, i) = 1
		}
		if Gemm(r, 1, a, b, c) || Syrk(r, 1, a, c) || Gram(r, make([]float64, n), b, c) ||
			Trsm(r, a, b, false) || Cholesky(r, a) || InvertLower(r, a) || Invert(r, a) {
			t.Errorf("%d workers: done although halted", workers)
		}
	}
}

// TestRefuses checks that functions refuse matrices that share memory, shapes that do not match,
// and matrices larger than their data.
func TestRefuses(t *testing.T) {
	t.Parallel()
	data := make([]float64, 100)
	m := Of(data, 10, 10, 10)
	for name, f := range map[string]func(){
		"itself": func() { Gemm(Run{}, 1, m, m.T(), m) },
		"a corner": func() {
			Gemm(Run{}, 1, m.Slice(0, 0, 4, 4), m.Slice(6, 6, 4, 4),
				m.Slice(3, 3, 4, 4))
		},
		"another stride": func() {
			Gemm(Run{}, 1, Of(data, 3, 3, 7), Of(data[90:], 3, 3, 3),
				Of(data[10:], 3, 3, 5))
		},
		"syrk": func() { Syrk(Run{}, 1, m.Slice(0, 4, 3, 3), m.Slice(0, 2, 3, 3)) },
		"gram": func() {
			Gram(Run{}, data[:3], m.Slice(0, 4, 3, 3),
				m.Slice(2, 2, 3, 3))
		},
		"trsm": func() { Trsm(Run{}, m.Slice(0, 0, 5, 5), m.Slice(4, 0, 5, 5), false) },
		"row into row": func() {
			Gemm(Run{}, 1, Of(data[7:], 2, 5, 10), m.Slice(5, 0, 5, 2),
				Of(data, 2, 2, 10))
		},
		"shapes": func() {
			Gemm(Run{}, 1, m, m.Slice(0, 0, 9, 10),
				Of(make([]float64, 100), 10, 10, 10))
		},
		"short data":   func() { Of(data, 10, 10, 11) },
		"stride":       func() { Of(data, 2, 3, 2) },
		"part":         func() { m.Slice(8, 0, 3, 1) },
		"gemv":         func() { Gemv(1, m, false, data[:9], make([]float64, 10)) },
		"short vector": func() { Dot(data[:3], data[:2]) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is taken", name)
				}
			}()
			f()
		}()
	}
	// Adjacent parts share a range of memory, but no number.
	Gemm(Run{}, 1, m.Slice(0, 0, 4, 4), m.Slice(0, 4, 4, 4), m.Slice(4, 2, 4, 4))
	Gemm(Run{}, 1, m.Slice(0, 0, 4, 4), m.Slice(5, 0, 4, 4), m.Slice(2, 4, 4, 4))
	Gemm(Run{}, 1, m.Slice(0, 0, 4, 0), m.Slice(0, 0, 0, 4), m.Slice(0, 0, 4, 4))
}

// canceled is a context that is done.
type canceled struct{ context.Context }

func (canceled) Err() error { return context.Canceled }

// TestTranspose checks that a transpose stores every element in its place, and none elsewhere,
// for all shapes and strides.
func TestTranspose(t *testing.T) {
	for rows := range 11 {
		for _, cols := range []int{0, 1, 3, 4, 5, 31, 32, 33, 70} {
			stride, to := cols+3, rows+2
			a, dst := make([]float64, (rows+1)*stride), make([]float64, (cols+1)*to)
			for i := range a {
				a[i] = float64(i + 1)
			}
			Transpose(Of(dst, cols, rows, to), Of(a, rows, cols, stride))
			for i, v := range dst {
				want := 0.0
				if j, r := i/to, i%to; j < cols && r < rows {
					want = a[r*stride+j]
				}
				if v != want {
					t.Fatalf("%d×%d: element %d, %d is %v, want %v",
						rows, cols, i/to, i%to, v, want)
				}
			}
		}
	}
}
