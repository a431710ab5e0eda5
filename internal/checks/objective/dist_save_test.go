package objective

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
)

// savedExponential is a custom family that is registered: exponential distributions with rates of
// at least Least.
type savedExponential struct{ Least float64 }

func (savedExponential) Dim() int       { return 1 }
func (savedExponential) NumParams() int { return 1 }
func (f savedExponential) LogPartition(eta []float64) float64 {
	if !(-eta[0] >= f.Least && eta[0] < 0) {
		return math.Inf(1)
	}
	return -math.Log(-eta[0])
}
func (savedExponential) Mean(dst, eta []float64) { dst[0] = -1 / eta[0] }
func (savedExponential) Fisher(dst *mat.SymDense, eta []float64) {
	dst.SetSym(0, 0, 1/(eta[0]*eta[0]))
}
func (savedExponential) Stat(dst, z []float64) { dst[0] = z[0] }
func (savedExponential) LogBase(z []float64) float64 {
	if z[0] < 0 {
		return math.Inf(-1)
	}
	return 0
}
func (savedExponential) Rand(z, t, eta []float64, rng *rand.Rand) {
	z[0] = rng.ExpFloat64() / -eta[0]
	t[0] = z[0]
}

// unsavedExponential is not registered, and forgetfulExponential has a field that encoding/json
// ignores.
type (
	unsavedExponential   struct{ savedExponential }
	forgetfulExponential struct {
		savedExponential
		least float64
	}
)

// oddNatural moves q to natural parameters that need all digits.
func oddNatural(t *testing.T, q ExpFamily) {
	t.Helper()
	eta := q.Natural(nil)
	for i := range eta {
		eta[i] = math.Nextafter(1.0001*eta[i], math.Inf(1))
	}
	if err := q.SetNatural(eta); err != nil {
		t.Fatal(err)
	}
}

// digits returns every number that describes q, with all of its bits.
func digits(q, from ExpFamily) string {
	chart := q.Chart(nil)
	return fmt.Sprintf("%v %b %b %b %b %b %b", q.Coordinates(), q.Params(nil), q.Natural(nil),
		q.MeanParams(nil), q.LogPartition(), chart, from.KL(q))
}

// TestExpSave checks that every family, every product and a custom family are loaded with the same
// bits in both coordinates.
func TestExpSave(t *testing.T) {
	Register("test.savedExponential", savedExponential{})
	custom := testkit.Must(NewExp(savedExponential{0.1}, []float64{-1.3}))
	parts := []ExpFamily{custom}
	spd := mat.NewSymDense(2, []float64{2, 0.3, 0.3, 1})
	parts = append(parts, testkit.Must(NewGamma(0.3, 7)), testkit.Must(NewInverseGamma(3, 2)),
		testkit.Must(NewBeta(0.4, 5)), testkit.Must(NewDirichlet([]float64{0.1, 2, 30})),
		testkit.Must(NewBernoulli(0.3)), testkit.Must(NewCategorical([]float64{1, 5, 2, 0.1})),
		testkit.Must(NewPoisson(3)), testkit.Must(NewWishart(5, spd)),
		testkit.Must(NewNormalWishart([]float64{1, -2}, 0.7, 5, spd)))
	parts = append(parts, randomGaussian(testkit.Rand(1), 3, MeanCov), NewIsotropic(12, 2),
		randomMeanField(testkit.Rand(2), 4, Cholesky))
	qs := []*Exp{testkit.Must(ProductOf(parts...))}
	for _, p := range parts {
		if q, ok := p.(*Exp); ok {
			qs = append(qs, q)
		}
	}
	nested := testkit.Must(ProductOf(parts[1], parts[1], parts[0]))
	qs = append(qs, testkit.Must(ProductOf(nested, nested, parts[2], nested)))
	for _, q := range qs {
		for _, c := range []Coordinates{MeanParams, Natural} {
			q := q.In(c)
			oddNatural(t, q)
			name := fmt.Sprintf("%.40s, %v", fmt.Sprint(q.Family()), c)
			p := testkit.Again(t, name, q, Load[*Exp])
			if a, b := digits(q, q), digits(p, q); a != b {
				t.Errorf("%s: %s, loaded %s", name, a, b)
			}
			if a, b := len(q.Factors()), len(p.Factors()); a != b {
				t.Errorf("%s: %d parts, loaded %d", name, a, b)
			}
			if a, b := q.Rand(nil, testkit.Rand(3)), p.Rand(nil, testkit.Rand(3)); fmt.Sprint(
				a) != fmt.Sprint(b) {
				t.Errorf("%s: draws %v, loaded %v", name, a, b)
			}
		}
	}
}

// TestExpSaveSize checks that equal parts of a product take no space for their families.
func TestExpSaveSize(t *testing.T) {
	parts := make([]ExpFamily, 3000)
	for i := range parts {
		parts[i] = testkit.Must(NewGamma(1, float64(1+i%3)))
	}
	q := testkit.Must(ProductOf(parts...))
	var file bytes.Buffer
	if err := q.Save(&file); err != nil {
		t.Fatal(err)
	}
	if n := file.Len(); n > 6*len(parts)+500 {
		t.Errorf("%d bytes for %d parts", n, len(parts))
	}
	p := testkit.Again(t, "equal parts", q, Load[*Exp])
	if n := len(p.Factors()); n != len(parts) || q.KL(p) != 0 {
		t.Errorf("%d parts, KL %v", n, q.KL(p))
	}
}

// TestGaussianSave checks that a Gaussian is loaded with the same bits in all coordinates, however
// its parameters were set.
func TestGaussianSave(t *testing.T) {
	rng := testkit.Rand(5)
	for _, f := range testFamilies() {
		for _, set := range allCoordinates {
			q := f.rand(rng)
			x := q.In(set)
			lambda := x.Params(nil)
			for i := range lambda {
				lambda[i] = math.Nextafter(1.0001*lambda[i], math.Inf(1))
			}
			if err := x.SetParams(lambda); err != nil {
				t.Fatal(err)
			}
			for _, q := range []*Gaussian{q, x, x.In(q.Coordinates())} {
				fresh := q.In(q.Coordinates()) // Save comes before V and V⁻¹ are computed
				p := testkit.Again(t, f.name, fresh, Load[*Gaussian])
				if a, b := digits(q, q), digits(p, q); a != b {
					t.Errorf("%s: %s, loaded %s", f.name, a, b)
				}
				fresh.Cov()
				p = testkit.Again(t, f.name, fresh, Load[*Gaussian])
				if a, b := digits(q, q), digits(p, q); a != b {
					t.Errorf("%s with a covariance: %s, loaded %s", f.name, a, b)
				}
			}
		}
	}
}

// TestDistSaveErrors checks that Save and Load reject families and numbers that are not valid.
func TestDistSaveErrors(t *testing.T) {
	Register("test.savedExponential", savedExponential{})
	Register("test.forgetfulExponential", forgetfulExponential{})
	gamma := testkit.Must(NewGamma(2, 3))
	for _, c := range []struct {
		f    Family
		want string
	}{
		{unsavedExponential{}, "see Register"},
		{forgetfulExponential{least: 0.5}, "export them"},
		{savedExponential{math.Inf(-1)}, "unsupported value"},
	} {
		q := testkit.Must(NewExp(c.f, []float64{-1}))
		for _, q := range []*Exp{q, testkit.Must(ProductOf(gamma, q))} {
			var file bytes.Buffer
			if err := q.Save(&file); !errors.Is(err, ErrParam) || !testkit.PrefixedOnce(err) ||
				!strings.Contains(err.Error(), c.want) || file.Len() > 0 {
				t.Errorf("%v: %v, %d bytes", q.Family(), err, file.Len())
			}
		}
	}
	const (
		leaf    = `{"type":"pgsvi.GammaFamily","value":{}}`
		product = `{"family":{"type":"pgsvi.ProductOf","parts":[`
		eta     = `]},"natural":[1,-1,1,-1]}`
		copies  = `{"type":"pgsvi.copies","value":`
	)
	for body, want := range map[string]error{
		`{"family":` + leaf + `,"natural":[2,-3]}`:                                             nil,
		`{"family":` + leaf + `,"natural":[2,3]}`:                                              ErrNotPosDef,
		`{"family":` + leaf + `,"natural":[2,-3,1]}`:                                           ErrShape,
		`{"family":` + leaf + `,"natural":[2]}`:                                                ErrShape,
		`{"family":` + leaf + `,"coordinates":1,"natural":[2,-3]}`:                             ErrParam,
		`{"family":` + leaf + `,"coordinates":-1,"natural":[2,-3]}`:                            ErrParam,
		`{"natural":[2,-3]}`:                                                                   ErrParam,
		`{"family":{"type":"pgsvi.SquaredExp","value":{}},"natural":[2]}`:                      ErrParam,
		`{"family":{"type":"pgsvi.BetaFamily","value":{"K":1}},"natural":[2,2]}`:               ErrShape,
		`{"family":{"type":"pgsvi.DirichletFamily","value":{"K":-1}},"natural":[2,2]}`:         ErrShape,
		`{"family":{"type":"pgsvi.CategoricalFamily","value":{"K":1}},"natural":[2]}`:          ErrShape,
		`{"family":{"type":"pgsvi.WishartFamily","value":{"D":9}},"natural":[2,2]}`:            ErrShape,
		`{"family":{"type":"pgsvi.GaussianFamily","value":{"D":0}},"natural":[2,2]}`:           ErrShape,
		`{"family":{"type":"pgsvi.GaussianFamily","value":{"D":4294967296}},"natural":[2,-2]}`: ErrShape,
		`{"family":{"type":"pgsvi.GaussianFamily","value":{"D":1}},"natural":[2,-2]}`:          nil,
		`{"family":{"type":"test.savedExponential","value":{"Least":3}},"natural":[-1]}`:       ErrNotPosDef,
		product + eta:                                          ErrEmpty,
		product + leaf + `,` + leaf + eta:                      nil,
		product + copies + `2},` + leaf + eta:                  nil,
		product + copies + `1000000000},` + leaf + eta:         ErrShape,
		product + copies + `3},` + leaf + eta:                  ErrShape,
		product + copies + `2}` + eta:                          ErrParam,
		product + copies + `-2},` + leaf + eta:                 ErrParam,
		product + copies + `2},` + copies + `2},` + leaf + eta: ErrParam,
	} {
		_, err := Load[*Exp](strings.NewReader(testkit.FileOf(t, testkit.Kind("Exp"), body)))
		if !errors.Is(err, want) || want != nil && !(errors.Is(err, ErrFile) &&
			testkit.PrefixedOnce(err)) {
			t.Errorf("%s: %v, want %v", body, err, want)
		}
	}
	for numbers, want := range map[string]error{
		`"mean":[1],"variance":[2]`:                                           nil,
		`"mean":[1],"variance":[-2]`:                                          ErrNotPosDef,
		`"mean":[1],"variance":[2,3]`:                                         ErrShape,
		`"mean":[1],"variance":[2],"factor":[3]`:                              ErrShape,
		`"mean":[],"factor":[]`:                                               ErrShape,
		`"mean":[1],"factor":[2]`:                                             nil,
		`"mean":[1],"factor":[0]`:                                             ErrNotPosDef,
		`"mean":[1],"factor":[1e-200]`:                                        ErrNotFinite,
		`"mean":[1,2],"factor":[2]`:                                           ErrShape,
		`"mean":[1],"factor":[2],"cov":[4],"precision":[0.25],"logdet":1.4`:   nil,
		`"mean":[1],"factor":[2],"cov":[4],"logdet":1.4`:                      ErrShape,
		`"mean":[1],"factor":[2],"precision":[0.25],"logdet":1.4`:             ErrShape,
		`"mean":[1],"factor":[2],"cov":[4.1],"precision":[0.25],"logdet":1.4`: ErrNotPosDef,
		`"mean":[1],"factor":[2],"cov":[4],"precision":[-1],"logdet":1.4`:     ErrNotPosDef,
		`"mean":[1],"variance":[2]},"coordinates":5,"x":{"y":1`:               ErrParam,
		`"mean":[1],"variance":[2]},"coordinates":-1,"x":{"y":1`:              ErrParam,
	} {
		body := `{"numbers":{` + numbers + `}}`
		file := testkit.FileOf(t, testkit.Kind("Gaussian"), body)
		_, err := Load[*Gaussian](strings.NewReader(file))
		if !errors.Is(err, want) || want != nil && !(errors.Is(err, ErrFile) &&
			testkit.PrefixedOnce(err)) {
			t.Errorf("%s: %v, want %v", body, err, want)
		}
	}
}
