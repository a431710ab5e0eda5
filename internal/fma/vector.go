package fma

import "math"

// Dot returns xᵀy. It panics if y is shorter than x.
//
// Dot has sixteen partial sums s_0 … s_15. Element i goes to s_(i mod 16), except that the last n
// mod 16 elements go to s_0 … s_3, four at a time. Then t_j = (s_j + s_(4+j)) + (s_(8+j) +
// s_(12+j)), and the last up to three elements are added to (t_0 + t_2) + (t_1 + t_3), one at a
// time.
func Dot(x, y []float64) float64 { return pathDot(x, y[:len(x):len(y)]) }

// DotSquares returns Σ x_i² y_i, computed like Dot from the rounded squares. It panics if y is
// shorter than x.
func DotSquares(x, y []float64) float64 { return pathDotSquares(x, y[:len(x):len(y)]) }

// Dots stores Dot of each row of A and x in dst. It panics unless a row has as many numbers as x.
func Dots(dst []float64, a Matrix, x []float64) {
	shapes(len(dst) == a.Rows && len(x) == a.Cols && a.Col == 1)
	if !a.empty() {
		pathDotRows(dst, a.Data[a.Off:], a.Row, x)
	}
}

// DotsSquares stores DotSquares of each row of A and x in dst. It panics unless a row has as many
// numbers as x.
func DotsSquares(dst []float64, a Matrix, x []float64) {
	shapes(len(dst) == a.Rows && len(x) == a.Cols && a.Col == 1)
	if !a.empty() {
		pathDotSquaresRows(dst, a.Data[a.Off:], a.Row, x)
	}
}

// AxpySquares adds a times the squares of x, rounded, to y. It panics if y is shorter than x.
func AxpySquares(a float64, x, y []float64) { pathAxpySquares(a, x, y[:len(x):len(y)]) }

// Axpy adds a·x to y. It panics if y is shorter than x.
func Axpy(a float64, x, y []float64) { pathAxpy(a, x, y[:len(x):len(y)]) }

// Scale multiplies x by a.
func Scale(a float64, x []float64) { pathScale(a, x) }

// Divide divides x by a.
func Divide(x []float64, a float64) { pathDivide(x, a) }

// AddSquares adds the rounded (a − y_i)² to each element of dst. It panics if y is shorter than
// dst.
func AddSquares(dst []float64, a float64, y []float64) { pathAddSquares(dst, a, y[:len(dst)]) }

// AddSquaresOver adds the rounded ((a − y_i)/s)² to each element of dst. It panics if y is
// shorter than dst.
func AddSquaresOver(dst []float64, a float64, y []float64, s float64) {
	pathAddSquaresOver(dst, a, y[:len(dst)], s)
}

// Ratios stores w·y_i/s_i in t and w·y_i/s_i² in u, where an s_i below least counts as least. It
// computes w·y_i·r with r = 1/s_i, and multiplies the result by r again. It panics if a slice is
// shorter than t.
func Ratios(t, u, y, s []float64, w, least float64) {
	pathRatios(t, u[:len(t)], y[:len(t)], s[:len(t)], w, least)
}

// Gemv adds α·Ax to y, or α·Aᵀx if transposed is true. The first is y_i ← fma(α, Dot(a_i, x),
// y_i) for each row. The second is Axpy(α·x_k, a_k, y) for each row in order. The rows of A must
// be contiguous, and y must not share memory with A or x.
func Gemv(alpha float64, a Matrix, transposed bool, x, y []float64) {
	if !transposed {
		shapes(len(x) == a.Cols && len(y) == a.Rows && a.Col == 1)
		for i := range y {
			y[i] = math.FMA(alpha, Dot(a.Data[a.Off+i*a.Row:][:a.Cols], x), y[i])
		}
		return
	}
	shapes(len(x) == a.Rows && len(y) == a.Cols && a.Col == 1)
	if a.empty() {
		return
	}
	k := 0
	for ; k+8 <= len(x); k += 8 {
		var c [8]float64
		for i, v := range x[k : k+8] {
			c[i] = alpha * v
		}
		pathAxpy8(&c, a.Data[a.Off+k*a.Row:], a.Row, y)
	}
	for ; k+4 <= len(x); k += 4 {
		c := [4]float64{alpha * x[k], alpha * x[k+1], alpha * x[k+2], alpha * x[k+3]}
		pathAxpy4(&c, a.Data[a.Off+k*a.Row:], a.Row, y)
	}
	for ; k < len(x); k++ {
		Axpy(alpha*x[k], a.Data[a.Off+k*a.Row:][:a.Cols], y)
	}
}

// Trmv replaces x by Lx, or where transposed by Lᵀx, for a lower triangular matrix: x_i ← Dot(l_i,
// x) from the last on, or, in order, Axpy(x_i, l_i, x) for what is left of the diagonal and x_i ←
// l_ii·x_i.
func Trmv(l Matrix, x []float64, transposed bool) {
	shapes(l.Rows == l.Cols && l.Col == 1 && len(x) == l.Rows)
	if !transposed {
		for i := len(x) - 1; i >= 0; i-- {
			x[i] = Dot(l.Data[l.Off+i*l.Row:][:i+1], x[:i+1])
		}
		return
	}
	for i := range x {
		row := l.Data[l.Off+i*l.Row:][:i+1]
		Axpy(x[i], row[:i], x[:i])
		x[i] *= row[i]
	}
}

// transposeCols is the number of rows of a transpose that are written at a time. Each needs a
// cache line.
const transposeCols = 32

// Transpose stores Aᵀ in dst, a cols×rows matrix. The rows of both must be contiguous, and they
// must not share memory.
func Transpose(dst, a Matrix) {
	shapes(dst.Rows == a.Cols && dst.Cols == a.Rows && dst.Col == 1 && a.Col == 1)
	for lo := 0; lo < a.Cols; lo += transposeCols {
		k := min(transposeCols, a.Cols-lo)
		i := 0
		for ; i+4 <= a.Rows; i += 4 {
			to, from := dst.Data[dst.Off+lo*dst.Row+i:], a.Data[a.Off+i*a.Row+lo:]
			pathTranspose(k, to, dst.Row, from, a.Row)
		}
		for ; i < a.Rows; i++ {
			for j, v := range a.Data[a.Off+i*a.Row+lo:][:k] {
				dst.Data[dst.Off+(lo+j)*dst.Row+i] = v
			}
		}
	}
}
