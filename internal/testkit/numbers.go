package testkit

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Must returns v. It panics if err is not nil.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TypeName returns the name of the type of v, without its package.
func TypeName(v any) string {
	name := fmt.Sprintf("%T", v)
	return name[strings.LastIndexByte(name, '.')+1:]
}

// Normals returns n draws of N(0, 1).
func Normals(rng *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = rng.NormFloat64()
	}
	return x
}

// RandomCov returns a random covariance matrix that is well conditioned.
func RandomCov(rng *rand.Rand, d int) *mat.SymDense {
	a := mat.NewDense(d, d, Normals(rng, d*d))
	v := mat.NewSymDense(d, nil)
	v.SymOuterK(1/float64(d), a)
	for i := range d {
		v.SetSym(i, i, v.At(i, i)+0.4)
	}
	return v
}

// CheckClose fails the test unless got equals want to within tol. The tolerance is relative to
// the largest element of want if that is above 1.
func CheckClose(t *testing.T, what string, got, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s has length %d, want %d", what, len(got), len(want))
	}
	if e := floats.Distance(got, want,
		math.Inf(1)); !(e <= tol*math.Max(1, floats.Norm(want, math.Inf(1)))) {
		t.Errorf("%s is off by %.3g:\n got  %.12g\n want %.12g", what, e, got, want)
	}
}

// CheckNear compares two numbers like CheckClose.
func CheckNear(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	CheckClose(t, what, []float64{got}, []float64{want}, tol)
}

// NumGrad returns the gradient of f at x by differences of sixth order.
func NumGrad(f func([]float64) float64, x []float64) []float64 {
	g, p := make([]float64, len(x)), slices.Clone(x)
	for i, xi := range x {
		h := 1e-3 * math.Max(math.Abs(xi), 0.25)
		var s float64
		for k, c := range []float64{45, -9, 1} {
			p[i] = xi + float64(k+1)*h
			up := f(p)
			p[i] = xi - float64(k+1)*h
			s += c * (up - f(p))
		}
		p[i] = xi
		g[i] = s / (60 * h)
	}
	return g
}

// SignRows returns n random labels, means and variances. Some are extreme or not valid.
func SignRows(rng *rand.Rand, n int) (y, m, v []float64) {
	edges := []float64{0, 1e-300, 1e-9, 0.3, 40, 700, 1e4, 1e9, math.Inf(1), math.NaN(), -1}
	y, m, v = make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range y {
		y[i], m[i], v[i] = PlusMinus(rng.IntN(2) == 0), 5*rng.NormFloat64(),
			rng.ExpFloat64()*math.Pow(10, float64(rng.IntN(6)-4))
		switch rng.IntN(20) {
		case 0:
			y[i] = 0
		case 1:
			m[i] = edges[rng.IntN(len(edges))]
		case 2:
			v[i] = edges[rng.IntN(len(edges))]
		case 3:
			m[i] *= 100
		}
	}
	return y, m, v
}

// Label returns 1 with probability 1/(1 + e^(−2η)), and −1 otherwise.
func Label(rng *rand.Rand, eta float64) float64 {
	if rng.Float64() < 1/(1+math.Exp(-2*eta)) {
		return 1
	}
	return -1
}

// An AskedContext is canceled after a given number of calls of Err.
type AskedContext struct {
	context.Context
	left, Asked *atomic.Int64
	done        chan struct{}
}

func NewAsked(times int64) AskedContext {
	c := AskedContext{context.Background(), new(atomic.Int64), new(atomic.Int64),
		make(chan struct{})}
	c.left.Store(times)
	return c
}

func (c AskedContext) Done() <-chan struct{} { return c.done }

func (c AskedContext) Err() error {
	c.Asked.Add(1)
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

type FailingWriter struct{}

func (FailingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// Each yields the items of a slice, without errors.
func Each[R any](rows []R) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}
