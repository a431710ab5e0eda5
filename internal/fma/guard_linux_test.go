package fma

import (
	"runtime/debug"
	"syscall"
	"testing"
	"unsafe"
)

// guarded returns n numbers between two pages of memory that fault if they are read or written.
// The numbers directly follow the first page if front is true, and otherwise directly precede the
// second.
func guarded(t *testing.T, n int, front bool) []float64 {
	t.Helper()
	page := syscall.Getpagesize()
	size := (8*n + page - 1) / page * page
	mem, err := syscall.Mmap(-1, 0, size+2*page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Skip("no memory of our own: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	for _, side := range [][]byte{mem[:page], mem[page+size:]} {
		if err := syscall.Mprotect(side, syscall.PROT_NONE); err != nil {
			t.Skip("memory cannot be protected: ", err)
		}
	}
	at := page
	if !front {
		at += size - 8*n
	}
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*float64)(unsafe.Pointer(&mem[at])), n)
}

// TestGuard checks that nothing outside of a matrix is read or written.
func TestGuard(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	sizes := []int{1, 3, 4, 5, 11, 12, 13, 16, 24, 25, 48, 61}
	if testing.Short() {
		sizes = []int{1, 5, 12, 13, 24, 25}
	}
	paths(t, func(t *testing.T) {
		for _, front := range []bool{false, true} {
			of := func(m, n int) Matrix { return Of(guarded(t, m*n, front), m, n, n) }
			unit := func(n int) Matrix {
				a := of(n, n)
				for i := range n {
					*a.at(i, i) = 1
				}
				return a
			}
			square := func(n int) []float64 { return of(n, n).Data }
			for _, n := range sizes {
				for _, k := range []int{1, 4, 7, 13} {
					sum, a, b, c, w := of(n, n), of(n, k), of(k, n), of(k, k), guarded(t, n, front)
					Gemm(Run{}, 1, a, b, sum)
					Gemm(Run{}, 1, b.T(), a.T(), sum)
					Gemm(Run{}, 1, b, a, c)
					Syrk(Run{}, 1, a, sum)
					Gram(Run{}, w, a, c)
					Trsm(Run{}, unit(n), a, false)
					Trsm(Run{}, unit(n).T(), a, true)
					Trsm(Run{}, unit(n), b.T(), false)
					Trsm(Run{}, unit(n).T(), b.T(), true)
					var l Lower
					l.Set(unit(n))
					l.Solve(Matrix{}, a, guarded(t, k, front))
					l.Solve(a, b.T(), nil)
					var p Panels
					p.data = guarded(t, k*up(n, columns), front)
					p.Set(b)
					p.Mul(a, guarded(t, p.Len(n), front))
					p.Gram(c.Data[:k], guarded(t, p.Len(n), front))
					Gemv(1, a, false, c.Data[:k], w)
					Gemv(1, b, true, c.Data[:k], w)
				}
				a, x, y, w := unit(n), guarded(t, n, front), guarded(t, n, front),
					guarded(t, n, front)
				if !Cholesky(Run{}, a) || !Invert(Run{}, a) {
					t.Fatal("refused")
				}
				Dot(x, y)
				Ratios(w, w, x, y, 1, 1e-9)
				Exp(x)
				Log1p(y)
				Softplus([]Node{{1, 0.5}}, w, guarded(t, n, front), guarded(t, n, front), x, y)
				Axpy(1, x, y)
				DotSquares(x, y)
				AxpySquares(1, x, y)
				Scale(2, x)
				Divide(x, 2)
				AddSquares(x, 1, y)
				AddSquaresOver(x, 1, y, 2)
				var eight [8]float64
				if n%8 == 0 {
					Gumbel([][2]float64{{1, 0.5}}, x, y, w, guarded(t, n, front))
					AddNormal(x, y)
					Quotients(x, y, w, guarded(t, n, front))
				}
				Bell(make([][3]float64, 2), &eight, &eight, 1, &eight, &eight, &eight)
				Geometric(n/4, &eight, &eight, 1, guarded(t, 3*n, front), n%4, 0)
				// one row has all columns, and the other only the last column
				for _, ones := range []bool{false, true} {
					sp := Sparse{Cols: n, Ptr: []int{0, n, n + 1}, Ind: make([]int32, n+1),
						Val: guarded(t, n+1, front)}
					for j := range n {
						sp.Ind[j] = int32(j)
					}
					sp.Ind[n] = int32(n - 1)
					if ones {
						sp.Val = nil
					}
					u := guarded(t, 2, front)
					u[0], u[1] = 1, 2
					sp.Mul(u, x, 0)
					sp.AddMulT(x, u, 0)
					for i := range 2 {
						sp.Quad(square(n), i)
						sp.AddOuter(square(n), 1, i)
					}
				}
			}
		}
	})
}
