package pgsvi

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// U of gramGradMul is made pair by pair of Grad, for every kernel; more rows than a tile has.
func TestGramGradMul(t *testing.T) {
	t.Parallel()
	for _, d := range []int{1, 6} {
		n := shorter(140, 70)
		x := kernelPoints(90, n, d, 1)
		copy(x.RawRowView(3), x.RawRowView(1))
		rng := testRand(91)
		a := make([]float64, n)
		for i := range a {
			a[i] = rng.NormFloat64()
		}
		cases := kernelCases(d)
		cases = append(cases, kernelCase{name: "differences", k: diffKernel{Sum{SquaredExp{Length: 2}, White{Scale: 0.3}}}})
		for _, c := range cases {
			np := len(c.k.Params())
			if got := len(kernelRoles(c.k)); got != np {
				t.Errorf("%s: %d roles of %d parameters", c.name, got, np)
			}
			got := gramGradMul(nil, nil, c.k, &rowPairs{x: x}, a)
			g := make([]float64, np)
			for i := range n {
				want, size := make([]float64, np), make([]float64, np)
				for j := range n {
					if i == j {
						kernelGradSelf(c.k, g, x.RawRowView(i), x.RawRowView(i))
					} else {
						c.k.Grad(g, x.RawRowView(i), x.RawRowView(j))
					}
					for p, v := range g {
						want[p] += v * a[j]
						size[p] += math.Abs(v * a[j])
					}
				}
				for p, w := range want {
					if !(math.Abs(got[i*np+p]-w) <= 1e-10*(1+size[p])) {
						t.Fatalf("%s, D=%d, row %d, parameter %d: %v, want %v", c.name, d, i, p, got[i*np+p], w)
					}
				}
			}
		}
	}
}

// underived is a kernel whose Grad has no derivatives, and wrongly is one whose derivatives are wrong.
type (
	underived struct{ SquaredExp }
	wrongly   struct{ SquaredExp }
)

func (k underived) WithParams(v []float64) Kernel {
	return underived{k.SquaredExp.WithParams(v).(SquaredExp)}
}

func (k underived) Grad(dst, x, y []float64) float64 {
	for i := range dst {
		dst[i] = math.NaN()
	}
	return k.Cov(x, y)
}

func (k wrongly) WithParams(v []float64) Kernel {
	return wrongly{k.SquaredExp.WithParams(v).(SquaredExp)}
}

func (k wrongly) Grad(dst, x, y []float64) float64 {
	v := k.SquaredExp.Grad(dst, x, y)
	dst[1] *= -1
	return v
}

func TestDerivable(t *testing.T) {
	t.Parallel()
	x := kernelPoints(92, 20, 2, 1)
	for _, c := range kernelCases(2) {
		if k, names, err := derivable(c.k, x); err != nil || len(names) > 0 || k == nil {
			t.Errorf("%s: %v, %q", c.name, err, names)
		}
	}
	for _, k := range []Kernel{underived{}, Sum{White{}, underived{}}, Product{Constant{}, &Sum{underived{}}}} {
		d, names, err := derivable(k, x)
		if err != nil || len(names) != 1 || !strings.HasSuffix(names[0], "underived") {
			t.Errorf("%T: %q, %v", k, names, err)
			continue
		}
		plain := map[bool]Kernel{true: SquaredExp{}}[len(k.Params()) == 2]
		if plain == nil {
			plain = Sum{White{}, SquaredExp{}}
			if _, ok := k.(Product); ok {
				plain = Product{Constant{}, Sum{SquaredExp{}}}
			}
		}
		w := mat.NewSymDense(20, nil)
		for i := range 20 {
			for j := i; j < 20; j++ {
				w.SetSym(i, j, math.Sin(float64(i*j)))
			}
		}
		got, want := GramGrad(nil, d, x, w), GramGrad(nil, plain, x, w)
		for p := range want {
			if math.Abs(got[p]-want[p]) > 1e-9*(1+math.Abs(want[p])) {
				t.Errorf("%T: parameter %d: %v, want %v", k, p, got[p], want[p])
			}
		}
	}
	_, _, err := derivable(Sum{White{}, wrongly{}}, x)
	if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "wrongly: Grad gives") || !prefixedOnce(err) {
		t.Error(err)
	}
}

func TestMedianDistance(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{{[]float64{0, 1, 3}, 2}, {[]float64{5}, 1}, {[]float64{5, 5, 5}, 1}, {[]float64{0, 1e200}, 1}} {
		if got := medianDistance(&rowPairs{x: mat.NewDense(len(c.x), 1, slices.Clone(c.x))}); got != c.want {
			t.Errorf("%v: %v, want %v", c.x, got, c.want)
		}
	}
}
