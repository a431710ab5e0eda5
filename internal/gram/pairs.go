package gram

import (
	"math"
	"runtime"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/mat"
)

// Pairs holds all pairs of rows of X, for covariances under one kernel after another. Kernels
// with one length scale are functions of |x_i − x_j|² over its square, so the distances are
// computed once. Learning a GP evaluates tens of kernels.
type Pairs struct {
	X    *mat.Dense
	r2   []float64 // |x_i − x_j|², both triangles; nil if not stored
	gone bool      // Release dropped r2, which will be needed again
}

// Distances of few columns cost as much to read as to compute. NewPairs does not store them if there
// are many rows, because they would take a fifth of the memory of a search.
const (
	keptRows    = 5000 // rows up to which distances are always stored
	keptColumns = 5    // columns from which distances are always stored
)

// NewPairs returns the pairs of the rows of x. It stores their distances unless they overflow, or
// x has many rows and few columns.
func NewPairs(x *mat.Dense) *Pairs {
	p := &Pairs{X: x}
	if n, d := x.Dims(); n <= keptRows || d >= keptColumns {
		p.measure()
	}
	return p
}

// Release drops the distances. The next use computes them again.
func (p *Pairs) Release() { p.gone, p.r2 = p.gone || p.r2 != nil, nil }

// distances returns the distances, or nil if they overflow.
func (p *Pairs) distances() []float64 {
	if p.gone {
		p.gone = false
		p.measure()
	}
	return p.r2
}

// measure computes the distances and stores them unless they overflow.
func (p *Pairs) measure() {
	n, _ := p.X.Dims()
	r2 := make([]float64, n*n)
	j := newJob(nil, distances{}, p.X.RawMatrix(), p.X.RawMatrix())
	j.both, j.out = true, dense.General(r2, n, n)
	j.symmetric()
	if _, ok := dense.AllFinite(r2); ok {
		p.r2 = r2
	}
}

// Gram stores the covariances of the rows under k, noise included, in both triangles of dst. The
// result is invalid if h has stopped.
func (p *Pairs) Gram(h *parallel.Halt, dst []float64, k Kernel) {
	n, _ := p.X.Dims()
	j := newJob(h, k, p.X.RawMatrix(), p.X.RawMatrix())
	j.both, j.r2, j.out = true, p.distances(), dense.General(dst, n, n)
	j.symmetric()
}

// Slopes returns Σ_ij w_ij ∂K_ij/∂θ, noise included.
func (p *Pairs) Slopes(h *parallel.Halt, k Kernel, w mat.Symmetric) []float64 {
	dst := make([]float64, k.NumParams())
	j := newJob(h, k, p.X.RawMatrix(), p.X.RawMatrix())
	j.r2 = p.distances()
	j.pull(dst, w)
	return dst
}

// SlopesMul stores U in dst, row by row, with U_ip = Σ_j (∂K_ij/∂θ_p) a_j. These are the
// derivatives of Ka, noise included. It grows and returns dst. The result is invalid if h has
// stopped.
func (p *Pairs) SlopesMul(h *parallel.Halt, dst []float64, k Kernel, a []float64) []float64 {
	np, raw := k.NumParams(), p.X.RawMatrix()
	dst = dense.Resize(dst, raw.Rows*np)
	clear(dst)
	centred, r2 := newJob(h, k, raw, raw), p.distances()
	loop := parallel.Loop{Halt: h}
	tasks := (raw.Rows + Rows - 1) / Rows
	loop.Run(tasks, 1, runtime.GOMAXPROCS(0), parallel.Func(func(_, task, _ int) {
		t := Take()
		t.Centre = centred.centre
		i0, i1 := task*Rows, min((task+1)*Rows, raw.Rows)
		t.X = Slice(raw, i0, i1)
		for j0 := 0; j0 < raw.Rows; j0 += Cols {
			j1 := min(j0+Cols, raw.Rows)
			t.Y = Slice(raw, j0, j1)
			t.known(r2, raw.Rows, i0, j0)
			w := t.Get(t.Len())
			for i := range t.X.Rows {
				copy(w[i*t.Y.Rows:], a[j0:j1])
				if at := i0 + i - j0; at >= 0 && at < t.Y.Rows {
					w[i*t.Y.Rows+at] = 0
				}
			}
			k.PullRows(dst[i0*np:i1*np], w, t)
			t.Release(0)
		}
		self := t.Get(np)
		for i := i0; i < i1; i++ {
			k.GradSelf(self, Row(raw, i))
			for p, v := range self {
				dst[i*np+p] += v * a[i]
			}
		}
		t.Free()
	}))
	centred.free()
	return dst
}

// MedianRows is the number of rows above which the median distance comes from a sample, every
// k-th row.
const MedianRows = 5000

// MedianDistance returns the median distance of two rows. It returns 1 if the median is 0 or
// there is one row.
func (p *Pairs) MedianDistance() float64 {
	n, _ := p.X.Dims()
	every := (n + MedianRows - 1) / MedianRows
	rows := (n + every - 1) / every
	all, r2 := make([]float64, 0, rows*(rows-1)/2), p.distances()
	for i := 0; i < n; i += every {
		if every == 1 && r2 != nil {
			all = append(all, r2[i*n:i*n+i]...)
			continue
		}
		for j := 0; j < i; j += every {
			all = append(all, Lengths{One: 1}.Dist2(p.X.RawRowView(i), p.X.RawRowView(j)))
		}
	}
	if len(all) == 0 {
		return 1
	}
	m := math.Sqrt(dense.Median(all))
	if !(m > 0) || math.IsInf(m, 0) {
		return 1
	}
	return m
}

// distances is a Kernel that returns the squared distance of its arguments. It has no parameters.
type distances struct{}

func (distances) Cov(x, y []float64) float64 { return Lengths{One: 1}.Dist2(x, y) }

func (distances) Noisy() bool { return false }

func (distances) Self([]float64) float64 { return 0 }

func (distances) NumParams() int { return 0 }

func (distances) GradSelf(_, _ []float64) {}

func (distances) Pull(_, _ []float64, _ *Tile) {}

func (distances) PullRows(_, _ []float64, _ *Tile) {}

// differencePart is the part of |a|² + |b|² below which differences compute |a − b|². The product
// of the matrices has about 2√D + 8 roundings of |a|² + |b|². Above that part they leave
// covariances twelve digits for any length scale.
const differencePart = 1e-3

// Fill implements Kernel.
func (distances) Fill(dst []float64, t *Tile) {
	l := Lengths{One: 1}
	n, m, dim := t.X.Rows, t.Y.Rows, l.Features(t.X.Cols)
	if dim == 0 {
		FillDist2(l, dst, t)
		return
	}
	mark := t.Mark()
	na, nb := fillProducts(l, dst, t, dim)
	for i := range n {
		row := dst[i*m : (i+1)*m]
		for j, ab := range row {
			norms := na[i] + nb[j]
			if r2 := norms + ab; r2 > differencePart*norms {
				row[j] = r2
			} else {
				row[j] = l.Dist2(Row(t.X, i), Row(t.Y, j))
			}
		}
	}
	t.Release(mark)
}
