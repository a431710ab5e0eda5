package gram

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// bell is the profile exp(−r²/2).
type bell struct{}

func (bell) Values(r2 []float64) {
	for i, x := range r2 {
		r2[i] = math.Exp(-x / 2)
	}
}

func (bell) Slopes(dst, _, rho []float64) { copy(dst, rho) }

// power is the shaped profile (1 + r²)^(−Alpha), whose parameter is log Alpha.
type power struct{ Alpha float64 }

func (p power) Values(r2 []float64) {
	for i, x := range r2 {
		r2[i] = math.Pow(1+x, -p.Alpha)
	}
}

func (p power) Slopes(dst, r2, rho []float64) {
	for i, x := range r2 {
		dst[i] = 2 * p.Alpha * rho[i] / (1 + x)
	}
}

func (p power) GradShape(dst, r2, rho []float64) {
	for i, x := range r2 {
		dst[i] = -p.Alpha * math.Log1p(x) * rho[i]
	}
}

// tiled lists the methods of a Kernel that Iso and Periodic have.
type tiled interface {
	Fill(dst []float64, t *Tile)
	Pull(dst, w []float64, t *Tile)
}

// noisy is a Kernel that adds noise to a tiled kernel and computes single pairs with it.
type noisy struct {
	tiled
	np    int
	noise float64
}

func (k noisy) pair(x, y []float64) *Tile {
	t := &Tile{}
	t.X, t.Y = mat.NewDense(1, len(x), x).RawMatrix(), mat.NewDense(1, len(y), y).RawMatrix()
	return t
}

func (k noisy) Cov(x, y []float64) float64 {
	var v [1]float64
	k.Fill(v[:], k.pair(x, y))
	return v[0]
}

func (k noisy) Noisy() bool { return k.noise > 0 }

func (k noisy) Self(x []float64) float64 { return k.Cov(x, x) + k.noise }

func (k noisy) NumParams() int { return k.np }

func (k noisy) GradSelf(dst, x []float64) {
	clear(dst)
	k.Pull(dst, []float64{1}, k.pair(x, x))
}

func (k noisy) PullRows(dst, w []float64, t *Tile) {
	m := t.Y.Rows
	t.EachRow(func(i int) { k.Pull(dst[i*k.np:(i+1)*k.np], w[i*m:(i+1)*m], t) })
}

// points returns rows. Two of them are equal, two are almost equal, and half are far from the
// origin.
func points(n, d int) *mat.Dense {
	rng := rand.New(rand.NewPCG(1, uint64(d)))
	x := mat.NewDense(n, d, nil)
	for i := range n {
		for j := range d {
			x.Set(i, j, rng.NormFloat64())
		}
		x.Set(i, 0, x.At(i, 0)+1e3*float64(i%2))
	}
	copy(x.RawRowView(3), x.RawRowView(1))
	copy(x.RawRowView(n-1), x.RawRowView(1))
	x.Set(n-1, 0, x.At(n-1, 0)+1e-7)
	return x
}

// kernels returns kernels for d columns as functions of their parameters, the exponentials of θ.
func kernels(d int) map[string]func(theta []float64) noisy {
	at := func(theta []float64) (v []float64) {
		for _, t := range theta {
			v = append(v, math.Exp(t))
		}
		return v
	}
	return map[string]func(theta []float64) noisy{
		"one length": func(theta []float64) noisy {
			v := at(theta[:2])
			return noisy{Iso[bell]{Lengths{One: v[1]}, v[0] * v[0], bell{}}, 2, 0.3}
		},
		"a length each": func(theta []float64) noisy {
			v := at(theta[:1+d])
			return noisy{Iso[bell]{Lengths{Each: v[1:]}, v[0] * v[0], bell{}}, 1 + d, 0}
		},
		"shaped": func(theta []float64) noisy {
			v := at(theta[:3])
			return noisy{Iso[power]{Lengths{One: v[1]}, v[0] * v[0], power{v[2]}}, 3, 0.1}
		},
		"periodic": func(theta []float64) noisy {
			v := at(theta[:3])
			return noisy{Periodic{v[0], v[1], v[2]}, 3, 0}
		},
	}
}

// TestTiles checks that the covariances of tiles match the covariances of pairs, with and without
// stored distances.
func TestTiles(t *testing.T) {
	n := Rows + 9
	for _, d := range []int{1, 6, 20} {
		x := points(n, d)
		for name, make1 := range kernels(d) {
			k := make1(slices.Repeat([]float64{0.2}, 1+max(2, d)))
			upper, both := mat.NewDense(n, n, nil), mat.NewDense(n, n, nil)
			Symmetric(nil, upper.RawMatrix(), k, x.RawMatrix())
			NewPairs(x).Gram(nil, both.RawMatrix().Data, k)
			across := mat.NewDense(n, 5, nil)
			Cross(nil, across.RawMatrix(), k, x.RawMatrix(), Slice(x.RawMatrix(), 0, 5))
			for i := range n {
				for j := i; j < n; j++ {
					want := k.Cov(x.RawRowView(i), x.RawRowView(j))
					if j < 5 && math.Abs(across.At(i, j)-want) > 1e-11*k.Cov(x.RawRowView(i),
						x.RawRowView(i)) {
						t.Fatalf("%s, D=%d: across %d, %d is %v, want %v", name, d, i, j,
							across.At(i, j), want)
					}
					if i == j {
						want = k.Self(x.RawRowView(i))
					}
					for _, got := range []float64{upper.At(i, j), both.At(i, j), both.At(j, i)} {
						if math.Abs(got-want) > 1e-11*k.Self(x.RawRowView(i)) {
							t.Fatalf("%s, D=%d: %d, %d is %v, want %v", name, d, i, j, got, want)
						}
					}
				}
			}
		}
	}
}

// TestSlopes compares each method that sums derivatives with finite differences of the
// covariances.
func TestSlopes(t *testing.T) {
	n := Rows + 9
	for _, d := range []int{1, 6} {
		x := points(n, d)
		rng := rand.New(rand.NewPCG(2, 2))
		w := &Weights{N: n, W: make([]float64, n*n), A: make([]float64, n)}
		for i := range w.W {
			w.W[i] = rng.NormFloat64()
		}
		for i := range w.A {
			w.A[i] = rng.NormFloat64()
		}
		for name, make1 := range kernels(d) {
			theta := slices.Repeat([]float64{0.2}, 1+max(2, d))
			k := make1(theta)
			p := NewPairs(x)
			grad := make([]float64, k.np)
			Grad(nil, grad, k, x.RawMatrix(), w)
			kept, u := p.Slopes(nil, k, w), p.SlopesMul(nil, nil, k, w.A)
			for q := range k.np {
				const h = 1e-6
				at := func(h float64) *mat.Dense {
					moved := slices.Clone(theta)
					moved[q] += h
					c := mat.NewDense(n, n, nil)
					p.Gram(nil, c.RawMatrix().Data, make1(moved))
					return c
				}
				up, down := at(h), at(-h)
				sum, size := 0.0, 1.0
				for i := range n {
					ka := 0.0
					for j := range n {
						dk := (up.At(i, j) - down.At(i, j)) / (2 * h)
						sum += w.At(i, j) * dk
						size += math.Abs(w.At(i, j) * dk)
						ka += dk * w.A[j]
					}
					if math.Abs(ka-u[i*k.np+q]) > 1e-5*size {
						t.Fatalf("%s, D=%d: row %d of parameter %d: %v, differences %v", name, d, i,
							q, u[i*k.np+q], ka)
					}
				}
				if math.Abs(sum-grad[q]) > 1e-5*size || math.Abs(kept[q]-grad[q]) > 1e-9*size {
					t.Errorf("%s, D=%d: parameter %d: %v and %v, differences %v", name, d, q,
						grad[q], kept[q], sum)
				}
			}
		}
	}
}

// TestPairs checks that distances of equal rows are 0 and distances of near rows are not, and
// that distances that overflow are not stored.
func TestPairs(t *testing.T) {
	n := 70
	for _, d := range []int{1, 6, 40} {
		p := NewPairs(points(n, d))
		if p.r2[3*n+1] != 0 || p.r2[(n-1)*n+1] == 0 || p.r2[(n-1)*n+1] != p.r2[n+n-1] {
			t.Errorf("D=%d: distances of equal rows and of near ones are %v, %v and %v", d,
				p.r2[3*n+1], p.r2[(n-1)*n+1], p.r2[n+n-1])
		}
	}
	if p := NewPairs(points(keptRows+1, keptColumns-1)); p.r2 != nil || p.distances() != nil {
		t.Error("distances of many rows and few columns are kept")
	}
	if p := NewPairs(mat.NewDense(2, 1, []float64{-1e200, 1e200})); p.r2 != nil {
		t.Errorf("distances that overflow are kept: %v", p.r2)
	}
	for _, c := range []struct {
		x    []float64
		want float64
	}{{[]float64{0, 1, 3}, 2}, {[]float64{5}, 1}, {[]float64{5, 5, 5}, 1},
		{[]float64{0, 1e200}, 1}} {
		p := &Pairs{X: mat.NewDense(len(c.x), 1, slices.Clone(c.x))}
		if got := p.MedianDistance(); got != c.want {
			t.Errorf("%v: %v, want %v", c.x, got, c.want)
		}
	}
}
