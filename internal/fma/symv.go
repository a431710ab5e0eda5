package fma

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/parallel"
)

// This file multiplies a vector by a symmetric matrix and by the inverse of a triangular one. Each
// number of the matrix is read once, so a large matrix is divided into blocks of rows that several
// goroutines share. The blocks depend on the size alone, and so do the bits of the result. The
// solvers of Gaussian processes call both many times per step.

const (
	blockedFrom = 1024 // rows from which on a matrix is divided
	vectorBlock = 128  // rows of a block
	// Goroutines share loops over at least sharedNumbers numbers, about 10 µs.
	sharedNumbers = 1 << 15
)

// workers returns the number of goroutines of r.
func (r Run) workers() int {
	if r.Workers != 0 {
		return r.Workers
	}
	return r.Halt.Workers()
}

// sharing returns the number of goroutines that share a loop over the given count of numbers.
func (r Run) sharing(numbers int) int {
	if numbers < sharedNumbers {
		return 1
	}
	return r.workers()
}

// Symv adds α·Ax to y for a symmetric A, whose lower triangle is read, row by row: y_i ← fma(α,
// Dot(a_i, x), y_i) for the numbers of row i up to the diagonal, after Axpy(α·x_i, a_i, y) for
// those left of it. From blockedFrom rows on, each block of vectorBlock rows adds to zeros instead
// of y, and y takes the sums of the blocks in order. y may not share memory with A or x.
func Symv(r Run, alpha float64, a Matrix, x, y []float64) {
	shapes(a.Rows == a.Cols && a.Col == 1 && len(x) == a.Rows && len(y) == a.Rows)
	n := a.Rows
	if n < blockedFrom {
		symvRows(alpha, a, x, y, 0, n)
		return
	}
	blocks := (n + vectorBlock - 1) / vectorBlock
	w := pool.Get().(*work)
	defer pool.Put(w)
	w.x = room(w.x, blocks*n)
	sum := func(b int) ([]float64, int) {
		hi := min((b+1)*vectorBlock, n)
		return w.x[b*n : b*n+hi], hi
	}
	parallel.For(blocks, 1, r.sharing(n*n/2), func(_, lo, hi int) {
		for i := lo; i < hi && !r.Halt.Stopped(); i++ {
			b := blocks - 1 - i // the longest rows first, so that the goroutines end together
			z, to := sum(b)
			clear(z)
			symvRows(alpha, a, x, z, b*vectorBlock, to)
		}
	})
	for b := range blocks {
		z, _ := sum(b)
		Axpy(1, z, y[:len(z)])
	}
}

// symvRows is Symv for rows lo … hi−1, without blocks. lo is a multiple of 4.
func symvRows(alpha float64, a Matrix, x, y []float64, lo, hi int) {
	for i := lo; i < hi; i += 4 {
		h := min(4, hi-i)
		at := a.Off + i*a.Row
		if h == 4 && i > 0 {
			c := [4]float64{alpha * x[i], alpha * x[i+1], alpha * x[i+2], alpha * x[i+3]}
			pathAxpy4(&c, a.Data[at:], a.Row, y[:i])
		}
		for r := i; r < i+h; r, at = r+1, at+a.Row {
			row := a.Data[at : at+r+1]
			left := i
			if h < 4 {
				left = 0
			}
			Axpy(alpha*x[r], row[left:r], y[left:r])
			y[r] = math.FMA(alpha, Dot(row, x[:r+1]), y[r])
		}
	}
}

// Trsv replaces x by L⁻¹x, or where transposed by L⁻ᵀx, for a lower triangular matrix: x_i ← (x_i −
// Dot(l_i, x))/l_ii in order, or, from the last on, x_i ← x_i/l_ii and Axpy(−x_i, l_i, x). From
// blockedFrom rows on, x_i takes two inner products if L is not transposed: first with the numbers
// left of its block of vectorBlock rows, then with the numbers in the block.
func Trsv(r Run, l Matrix, x []float64, transposed bool) {
	shapes(l.Rows == l.Cols && l.Col == 1 && len(x) == l.Rows)
	n := len(x)
	if n < blockedFrom {
		trsvRows(l, x, transposed)
		return
	}
	for k := 0; k < n && !r.Halt.Stopped(); k += vectorBlock {
		lo := k
		if transposed {
			lo = (n - 1 - k) / vectorBlock * vectorBlock
		}
		h := min(vectorBlock, n-lo)
		row := func(i, from, to int) []float64 { return l.Data[l.Off+i*l.Row:][from:to] }
		own := l.Slice(lo, lo, h, h)
		if !transposed {
			parallel.For(h, vectorBlock/8, r.sharing(h*lo), func(_, from, to int) {
				for i := lo + from; i < lo+to; i++ {
					x[i] -= Dot(row(i, 0, lo), x[:lo])
				}
			})
			trsvRows(own, x[lo:lo+h], false)
			continue
		}
		trsvRows(own, x[lo:lo+h], true)
		part := max(vectorBlock, up(lo/(2*r.workers()), 8))
		parallel.For(lo, part, r.sharing(h*lo), func(_, from, to int) {
			for i := lo + h - 1; i >= lo; i-- {
				Axpy(-x[i], row(i, from, to), x[from:to])
			}
		})
	}
}

// trsvRows is Trsv without blocks.
func trsvRows(l Matrix, x []float64, transposed bool) {
	if !transposed {
		for i := range x {
			row := l.Data[l.Off+i*l.Row:][:i+1]
			x[i] = (x[i] - Dot(row[:i], x[:i])) / row[i]
		}
		return
	}
	for i := len(x) - 1; i >= 0; i-- {
		row := l.Data[l.Off+i*l.Row:][:i+1]
		x[i] /= row[i]
		Axpy(-x[i], row[:i], x[:i])
	}
}
