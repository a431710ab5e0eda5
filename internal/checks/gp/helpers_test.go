package gp

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// split is a data set divided into training and test rows.
type split struct {
	x, xtest *mat.Dense
	y, ytest []float64
}

// loadUCI reads sonar or ionosphere from testdata.
func loadUCI(t testing.TB, name string) (s split) {
	t.Helper()
	s.x, s.y, s.xtest, s.ytest = testkit.UCI(t, kit.Root(), name)
	return s
}

// loadUSPS reads two digits of USPS in the resampled order, the smaller as +1.
func loadUSPS(t testing.TB, small, large float64) (s split) {
	t.Helper()
	s.x, s.y, s.xtest, s.ytest = testkit.USPS(t, small, large)
	return s
}

// gpCase is a data set with the hyperparameters and the jitter of the paper.
type gpCase struct {
	name                      string
	logLength, logScale, jitt float64
	load                      func(t testing.TB) split
}

var gpCases = []gpCase{
	{"ionosphere", 1, 2.5, 1e-2, func(t testing.TB) split { return loadUCI(t, "ionosphere") }},
	{"sonar", -1, 6, 1e-4, func(t testing.TB) split { return loadUCI(t, "sonar") }},
	{"usps_3v5", 2.5, 5, 1e-4, func(t testing.TB) split { return loadUSPS(t, 3, 5) }},
	{"usps_2v4", 2.5, 5, 1e-4, func(t testing.TB) split { return loadUSPS(t, 2, 4) }},
}

func (c gpCase) model(t testing.TB, s split) *GP {
	t.Helper()
	return c.modelWith(t, s, GPOptions{})
}

func (c gpCase) modelWith(t testing.TB, s split, opt GPOptions) *GP {
	t.Helper()
	opt.Jitter = c.jitt
	gp, err := NewGP(s.x, s.y,
		SquaredExp{Scale: math.Exp(c.logScale), Length: math.Exp(c.logLength)}, BernoulliLogit{},
		&opt)
	if err != nil {
		t.Fatal(err)
	}
	return gp
}

// savedLinear is a user-defined kernel with a registered type.
type savedLinear struct{ S float64 }

func (k savedLinear) Cov(x, y []float64) float64 { return k.S * k.S * x[0] * y[0] }

func (k savedLinear) Params() []Param {
	return []Param{{Name: "S", Value: k.S, Min: 0, Max: math.Inf(1)}}
}

func (k savedLinear) WithParams(v []float64) Kernel { return savedLinear{v[0]} }

func (k savedLinear) Grad(dst, x, y []float64) float64 {
	dst[0] = 2 * k.Cov(x, y)
	return k.Cov(x, y)
}

// bitsOf returns every bit of a run except its times.
func bitsOf(t testing.TB, r *Result) string {
	t.Helper()
	c := *r
	c.Elapsed, c.Trace = 0, append([]Iteration(nil), r.Trace...)
	for i := range c.Trace {
		c.Trace[i].Elapsed = 0
	}
	var b bytes.Buffer
	if err := c.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// drawGP returns a draw of a Gaussian process in the rows of x, plus noise with standard deviation
// sd.
func drawGP(rng *rand.Rand, k Kernel, x *mat.Dense, sd float64) []float64 {
	cov := Gram(nil, k, x)
	n := cov.SymmetricDim()
	for i := range n {
		cov.SetSym(i, i, cov.At(i, i)+1e-8)
	}
	var chol mat.Cholesky
	if !chol.Factorize(cov) {
		panic("a covariance is not positive definite")
	}
	var lower mat.TriDense
	chol.LTo(&lower)
	var f mat.VecDense
	f.MulVec(&lower, mat.NewVecDense(n, testkit.Normals(rng, n)))
	y := f.RawVector().Data
	for i := range y {
		y[i] += sd * rng.NormFloat64()
	}
	return y
}

// rationalQuadratic returns a RationalQuadratic with the given parameters.
func rationalQuadratic(scale, length, alpha float64) Kernel {
	return RationalQuadratic{}.WithParams([]float64{scale, length, alpha})
}

// underived is a kernel whose Grad has no derivatives.
type underived struct{ SquaredExp }

func (k underived) WithParams(v []float64) Kernel {
	return underived{k.SquaredExp.WithParams(v).(SquaredExp)}
}

func (k underived) Grad(dst, x, y []float64) float64 {
	for i := range dst {
		dst[i] = math.NaN()
	}
	return k.Cov(x, y)
}
