package fma

import "math"

// Dot returns xᵀy. It panics if y is shorter than x.
//
// There are sixteen partial sums s_0 … s_15, of which s_(i mod 16) takes element i. The last n mod 16 elements go four at a time to
// s_0 … s_3. Then t_j = (s_j + s_(4+j)) + (s_(8+j) + s_(12+j)), and (t_0 + t_2) + (t_1 + t_3) takes the up to three elements
// that are left one at a time.
func Dot(x, y []float64) float64 { return pathDot(x, y[:len(x):len(y)]) }

// Axpy adds a·x to y. It panics if y is shorter than x.
func Axpy(a float64, x, y []float64) { pathAxpy(a, x, y[:len(x):len(y)]) }

// Gemv adds α·Ax to y: y_i ← fma(α, Dot(a_i, x), y_i). Where A is a transpose, the columns of which lie in memory one after the
// other, it is Axpy(α·x_k, a_k, y) for each column in order. y may not share memory with A or x.
func Gemv(alpha float64, a Matrix, x, y []float64) {
	shapes(len(x) == a.Cols && len(y) == a.Rows)
	if a.empty() {
		return
	}
	if a.Col == 1 {
		for i := range y {
			at := a.Off + i*a.Row
			y[i] = math.FMA(alpha, Dot(a.Data[at:at+a.Cols], x), y[i])
		}
		return
	}
	// Aᵀ row by row: four rows at a time, which are added one after the other.
	k := 0
	for ; k+4 <= len(x); k += 4 {
		c := [4]float64{alpha * x[k], alpha * x[k+1], alpha * x[k+2], alpha * x[k+3]}
		pathAxpy4(&c, a.Data[a.Off+k*a.Col:], a.Col, y)
	}
	for ; k < len(x); k++ {
		Axpy(alpha*x[k], a.Data[a.Off+k*a.Col:][:a.Rows], y)
	}
}
