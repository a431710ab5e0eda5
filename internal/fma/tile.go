package fma

import "math"

// A tile is the part of a result that the inner loops compute at a time. Its shape does not
// affect the bits of a result.
const (
	rows    = 4
	columns = 12
)

// gemmTile adds α times the product of the panels a, rows×k, and b, k×columns, to the tile at
// c[at], whose rows are ldc apart. A panel of rows is stored column by column, and a panel of
// columns is stored row by row.
func gemmTile(k int, a, b []float64, c []float64, at, ldc int, alpha float64) {
	for j := 0; j < columns; j += 2 {
		var s00, s01, s10, s11, s20, s21, s30, s31 float64
		for p := range k {
			x, y := (*[rows]float64)(a[p*rows:]), (*[2]float64)(b[p*columns+j:])
			s00, s01 = math.FMA(x[0], y[0], s00), math.FMA(x[0], y[1], s01)
			s10, s11 = math.FMA(x[1], y[0], s10), math.FMA(x[1], y[1], s11)
			s20, s21 = math.FMA(x[2], y[0], s20), math.FMA(x[2], y[1], s21)
			s30, s31 = math.FMA(x[3], y[0], s30), math.FMA(x[3], y[1], s31)
		}
		for i, s := range [rows][2]float64{{s00, s01}, {s10, s11}, {s20, s21}, {s30, s31}} {
			p := at + i*ldc + j
			c[p] = math.FMA(alpha, s[0], c[p])
			c[p+1] = math.FMA(alpha, s[1], c[p+1])
		}
	}
}

// gemmPanels applies gemmTile to the given number of panels of b. The panels are apart numbers
// apart, and their tiles are next numbers apart.
func gemmPanels(panels, k int, a, b []float64, apart int, c []float64, at, next, ldc int,
	alpha float64) {
	for p := range panels {
		pathGemm(k, a, b[p*apart:], c, at+p*next, ldc, alpha)
	}
}

// gemmPairs applies gemmTile to two panels of a, one after the other, and two panels of b. The
// four tiles are adjacent.
func gemmPairs(k int, a, b, c []float64, at, ldc int, alpha float64) {
	for i := range 2 {
		pathGemmPanels(2, k, a[i*rows*k:], b, columns*k, c, at+i*rows*ldc, columns, ldc, alpha)
	}
}

// trsmTile replaces the rows of x, which are the rows of b from k on, by T⁻¹(x − ab). The panels
// a and b are like the panels of gemmTile, and t is a lower triangular rows×rows matrix.
func trsmTile(k int, a, b, x, t []float64) {
	var sum [rows * columns]float64
	gemmTile(k, a, b, sum[:], 0, columns, 1)
	solveTile(&sum, x, t)
}

// trsmPanels applies trsmTile to the given number of panels of b, which are apart numbers apart.
// The slice x is part of b.
func trsmPanels(panels, apart, k int, a, b, x, t []float64) {
	for p := range panels {
		pathTrsm(k, a, b[p*apart:], x[p*apart:], t)
	}
}

// solveTile completes trsmTile, given ab.
func solveTile(ab *[rows * columns]float64, x, t []float64) {
	for i := range rows {
		for j := range columns {
			s := ab[i*columns+j]
			for r := range i {
				s = math.FMA(t[i*rows+r], x[r*columns+j], s)
			}
			x[i*columns+j] = (x[i*columns+j] - s) / t[i*rows+i]
		}
	}
}

// dot implements Dot in Go.
func dot(x, y []float64) float64 {
	var sum [4][4]float64
	n, at := len(x), 0
	for ; at+16 <= n; at += 16 {
		u, v := (*[16]float64)(x[at:]), (*[16]float64)(y[at:])
		for i := range sum {
			for j := range sum[i] {
				sum[i][j] = math.FMA(u[4*i+j], v[4*i+j], sum[i][j])
			}
		}
	}
	for ; at+4 <= n; at += 4 {
		for j := range sum[0] {
			sum[0][j] = math.FMA(x[at+j], y[at+j], sum[0][j])
		}
	}
	return dotTail(&sum, x[at:], y[at:])
}

// dotSquares implements DotSquares in Go.
func dotSquares(x, y []float64) float64 {
	var sum [4][4]float64
	n, at := len(x), 0
	for ; at+16 <= n; at += 16 {
		u, v := (*[16]float64)(x[at:]), (*[16]float64)(y[at:])
		for i := range sum {
			for j := range sum[i] {
				z := u[4*i+j]
				sum[i][j] = math.FMA(z*z, v[4*i+j], sum[i][j])
			}
		}
	}
	for ; at+4 <= n; at += 4 {
		for j := range sum[0] {
			sum[0][j] = math.FMA(x[at+j]*x[at+j], y[at+j], sum[0][j])
		}
	}
	var rest [3]float64
	for i, z := range x[at:] {
		rest[i] = z * z
	}
	return dotTail(&sum, rest[:n-at], y[at:])
}

// dotRows is dot for the rows of x, which are ld apart.
func dotRows(dst, x []float64, ld int, y []float64) {
	for i := range dst {
		dst[i] = pathDot(x[i*ld:][:len(y)], y)
	}
}

// dotSquaresRows is dotSquares for the rows of x, which are ld apart.
func dotSquaresRows(dst, x []float64, ld int, y []float64) {
	for i := range dst {
		dst[i] = pathDotSquares(x[i*ld:][:len(y)], y)
	}
}

// axpySquares is AxpySquares.
func axpySquares(a float64, x, y []float64) {
	for i, v := range x {
		y[i] = math.FMA(a, v*v, y[i])
	}
}

// dotTail adds the lanes of dot, and then the products of the remaining elements x and y.
func dotTail(sum *[4][4]float64, x, y []float64) float64 {
	var t [4]float64
	for j := range t {
		t[j] = (sum[0][j] + sum[1][j]) + (sum[2][j] + sum[3][j])
	}
	s := (t[0] + t[2]) + (t[1] + t[3])
	for i, v := range x {
		s = math.FMA(v, y[i], s)
	}
	return s
}

// axpy implements Axpy in Go.
func axpy(a float64, x, y []float64) {
	for i, v := range x {
		y[i] = math.FMA(a, v, y[i])
	}
}

// axpy4 adds a_i times row i of x to y, for i = 0 … 3 in this order. The rows are ld apart.
func axpy4(a *[4]float64, x []float64, ld int, y []float64) {
	n := len(y)
	r0, r1, r2, r3 := x[:n], x[ld:ld+n], x[2*ld:2*ld+n], x[3*ld:3*ld+n]
	for j, v := range y {
		y[j] = math.FMA(a[3], r3[j],
			math.FMA(a[2], r2[j], math.FMA(a[1], r1[j], math.FMA(a[0], r0[j], v))))
	}
}

// axpy8 is like axpy4, for eight rows.
func axpy8(a *[8]float64, x []float64, ld int, y []float64) {
	pathAxpy4((*[4]float64)(a[:]), x, ld, y)
	pathAxpy4((*[4]float64)(a[4:]), x[4*ld:], ld, y)
}

// copyRows copies k rows of a panel, which are ld apart in src and ldd apart in dst.
func copyRows(k int, dst []float64, ldd int, src []float64, ld int) {
	for p := range k {
		copy(dst[p*ldd:p*ldd+columns], src[p*ld:])
	}
}

// copyNarrow copies the first numbers of k rows, which are ld apart in src, to a panel of rows.
func copyNarrow(k int, dst, src []float64, ld int) {
	for p, at := 0, 0; p < k; p, at = p+1, at+ld {
		d, x := (*[rows]float64)(dst[p*rows:]), (*[rows]float64)(src[at:])
		// assigning the whole array would call a function
		d[0], d[1], d[2], d[3] = x[0], x[1], x[2], x[3]
	}
}

// weigh multiplies the k rows of a panel by w.
func weigh(k int, panel, w []float64) {
	for p, v := range w[:k] {
		row := (*[columns]float64)(panel[p*columns:])
		for j := range row {
			row[j] *= v
		}
	}
}

// weighRows multiplies the first numbers of the k rows of a panel of columns by w, and stores
// them as a panel of rows.
func weighRows(k int, dst, src, w []float64) {
	for p, v := range w[:k] {
		d, s := (*[rows]float64)(dst[p*rows:]), (*[rows]float64)(src[p*columns:])
		d[0], d[1], d[2], d[3] = s[0]*v, s[1]*v, s[2]*v, s[3]*v
	}
}

// squares stores the sums of squares of the columns of a panel with k rows in dst. The operations
// are fused and in order.
func squares(k int, panel, dst []float64) {
	sum := (*[columns]float64)(dst)
	clear(sum[:])
	for p := range k {
		for j, v := range (*[columns]float64)(panel[p*columns:]) {
			sum[j] = math.FMA(v, v, sum[j])
		}
	}
}

// scale implements Scale in Go.
func scale(a float64, x []float64) {
	for i := range x {
		x[i] *= a
	}
}

// divide implements Divide in Go.
func divide(x []float64, a float64) {
	for i := range x {
		x[i] /= a
	}
}

// addSquares implements AddSquares in Go.
func addSquares(dst []float64, a float64, y []float64) {
	for i := range dst {
		t := a - y[i]
		dst[i] += float64(t * t)
	}
}

// addSquaresOver implements AddSquaresOver in Go.
func addSquaresOver(dst []float64, a float64, y []float64, s float64) {
	for i := range dst {
		t := (a - y[i]) / s
		dst[i] += float64(t * t)
	}
}

// ratios implements Ratios in Go.
func ratios(t, u, y, s []float64, w, least float64) {
	u, y, s = u[:len(t)], y[:len(t)], s[:len(t)]
	for i := range t {
		d := s[i]
		if d < least {
			d = least
		}
		r := 1 / d
		t[i] = w * y[i] * r
		u[i] = t[i] * r
	}
}

// transpose stores the first k numbers of four rows of src, which are ld apart, as the first four
// columns of the rows of dst, which are ldd apart.
func transpose(k int, dst []float64, ldd int, src []float64, ld int) {
	r0, r1, r2, r3 := src[:k], src[ld:ld+k], src[2*ld:2*ld+k], src[3*ld:3*ld+k]
	for p, v := range r0 {
		d := (*[4]float64)(dst[p*ldd:])
		d[0], d[1], d[2], d[3] = v, r1[p], r2[p], r3[p]
	}
}

// untranspose is the inverse of transpose. It stores the first four columns of k rows of src as
// four rows of dst.
func untranspose(k int, dst []float64, ldd int, src []float64, ld int) {
	r0, r1, r2, r3 := dst[:k], dst[ldd:ldd+k], dst[2*ldd:2*ldd+k], dst[3*ldd:3*ldd+k]
	for p := range r0 {
		s := (*[4]float64)(src[p*ld:])
		r0[p], r1[p], r2[p], r3[p] = s[0], s[1], s[2], s[3]
	}
}
