package pgsvi

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/diff/fd"
)

// likeCase is a likelihood with labels it accepts and labels it does not.
type likeCase struct {
	l       Likelihood
	good    []float64
	bad     []float64
	concave bool    // in η
	centre  float64 // kink or kernel at y + this; NaN: at 0
	scale   float64 // of the structure of log p in η
}

var likeCases = []likeCase{
	{BernoulliLogit{}, []float64{-1, 1}, []float64{0, 0.5, 2, math.NaN()}, true, math.NaN(), 2},
	{BernoulliProbit{}, []float64{-1, 1}, []float64{0, 0.5, 2, math.NaN()}, true, math.NaN(), 1},
	{Poisson{}, []float64{0, 1, 7}, []float64{-1, 0.5, math.NaN(), math.Inf(1)}, true, math.NaN(), 1},
	{Poisson{Exposure: 2.5}, []float64{3}, []float64{-1}, true, math.NaN(), 1},
	{GaussianNoise{}, []float64{-1.3, 4}, []float64{math.NaN(), math.Inf(1)}, true, 0, 1},
	{GaussianNoise{Var: 0.01}, []float64{2}, []float64{math.Inf(-1)}, true, 0, 0.1},
	{StudentT{}, []float64{-0.7, 12}, []float64{math.NaN(), math.Inf(1)}, false, 0, 1},
	{StudentT{DF: 1.5, Scale: 0.2}, []float64{1}, []float64{math.NaN()}, false, 0, 0.1},
	{StudentT{DF: 400, Scale: 3}, []float64{1}, []float64{math.NaN()}, false, 0, 10},
	{Laplace{}, []float64{0.5, -6}, []float64{math.NaN(), math.Inf(1)}, true, 0, 1},
	{Laplace{Scale: 0.05}, []float64{3}, []float64{math.Inf(-1)}, true, 0, 0.05},
	{Binomial{}, []float64{0, 1}, []float64{-1, 0.5, 2, math.NaN()}, true, math.NaN(), 2},
	{Binomial{Trials: 40}, []float64{0, 13, 40}, []float64{-1, 12.5, 41, math.Inf(1)}, true, math.NaN(), 0.3},
	{NegativeBinomial{}, []float64{0, 1, 9}, []float64{-1, 0.5, math.NaN(), math.Inf(1)}, true, math.NaN(), 1},
	{NegativeBinomial{Shape: 0.3}, []float64{0, 30}, []float64{-1}, true, math.NaN(), 1},
	{NegativeBinomial{Shape: 25}, []float64{0, 6}, []float64{2.5}, true, math.NaN(), 0.3},
	{Gamma{}, []float64{0.2, 3}, []float64{0, -1, math.NaN(), math.Inf(1)}, true, math.NaN(), 1},
	{Gamma{Shape: 0.4}, []float64{1e-3, 2}, []float64{0, -1}, true, math.NaN(), 1},
	{Gamma{Shape: 30}, []float64{0.5, 11}, []float64{0, math.NaN()}, true, math.NaN(), 0.2},
	{Exponential{}, []float64{0, 0.7, 5}, []float64{-1, math.NaN(), math.Inf(1)}, true, math.NaN(), 1},
	{Ordinal{}, []float64{0, 1}, []float64{-1, 0.5, 2, math.NaN()}, true, math.NaN(), 2},
	{Ordinal{Cuts: []float64{-1.5, -1.4, 0.8, 3}}, []float64{0, 1, 2, 4}, []float64{-1, 1.5, 5, math.Inf(1)}, true, math.NaN(), 1},
}

// likeGrowth is +1 if log p has a term e^η, −1 if it has a term e^{−η}: its
// expectation overflows where the Gaussian is wide.
func likeGrowth(l Likelihood) float64 {
	switch l.(type) {
	case Poisson:
		return 1
	case Gamma, Exponential:
		return -1
	}
	return 0
}

func (c likeCase) at(y float64) float64 {
	if _, ok := c.l.(Gamma); ok {
		return math.Log(y)
	}
	if math.IsNaN(c.centre) {
		return 0
	}
	return y + c.centre
}

// TestLikelihoodsListed fails if a type of likelihood.go or families.go with a
// LogProb method is not in likeCases.
func TestLikelihoodsListed(t *testing.T) {
	var decls []ast.Decl
	names, err := filepath.Glob("likelihood_*[a-z].go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		decls = append(decls, f.Decls...)
	}
	listed := map[string]bool{}
	for _, c := range likeCases {
		listed[strings.TrimPrefix(fmt.Sprintf("%T", c.l), "pgsvi.")] = true
	}
	seen := 0
	for _, d := range decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil && fn.Name.Name == "LogProb" {
			seen++
			if name := fn.Recv.List[0].Type.(*ast.Ident).Name; !listed[name] {
				t.Errorf("%s is not in likeCases", name)
			}
		}
	}
	if seen != len(listed) {
		t.Errorf("%d likelihoods in the files, %d in likeCases", seen, len(listed))
	}
}

// TestLikelihoodCapabilities pins which optional interfaces each type has.
func TestLikelihoodCapabilities(t *testing.T) {
	for _, c := range likeCases {
		if _, ok := c.l.(Expecter); !ok {
			t.Errorf("%T is no Expecter", c.l)
		}
		if _, ok := c.l.(LabelChecker); !ok {
			t.Errorf("%T is no LabelChecker", c.l)
		}
		if _, ok := c.l.(Responder); !ok {
			t.Errorf("%T is no Responder", c.l)
		}
		_, smooth := c.l.(Differentiable)
		if _, kink := c.l.(Laplace); smooth == kink {
			t.Errorf("%T: Differentiable is %v", c.l, smooth)
		}
	}
}

func TestLabels(t *testing.T) {
	for _, c := range likeCases {
		check := c.l.(LabelChecker)
		for _, y := range c.good {
			if err := check.CheckLabel(y); err != nil {
				t.Errorf("%T: y = %v: %v", c.l, y, err)
			}
			if p := c.l.LogProb(y, 0.3); math.IsInf(p, 0) || math.IsNaN(p) {
				t.Errorf("%T: log p(%v) = %v", c.l, y, p)
			}
		}
		for _, y := range c.bad {
			err := check.CheckLabel(y)
			if !errors.Is(err, ErrLabel) || !strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Errorf("%T: y = %v: %v, want ErrLabel", c.l, y, err)
			}
		}
	}
}

func TestLikelihoodValidate(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, x := range []float64{-1, nan, inf, -inf} {
		for _, l := range []Likelihood{Poisson{x}, GaussianNoise{x}, StudentT{DF: x}, StudentT{Scale: x}, Laplace{x},
			Binomial{x}, NegativeBinomial{x}, Gamma{x}, Ordinal{[]float64{0, x, 0}}} {
			err := l.(Validator).Validate()
			if !errors.Is(err, ErrParam) || !strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Errorf("%#v: %v, want ErrParam", l, err)
			}
			if e := ExpectLogProb(l, 1, 0, 1); !math.IsNaN(e.Value) {
				t.Errorf("%#v: expectation %v, want NaN", l, e)
			}
		}
	}
	err := StudentT{DF: -1, Scale: -2}.Validate()
	if err == nil || !strings.Contains(err.Error(), "DF = -1") || !strings.Contains(err.Error(), "Scale = -2") {
		t.Errorf("both violations should be named: %v", err)
	}
	for _, c := range likeCases {
		if v, ok := c.l.(Validator); ok && v.Validate() != nil {
			t.Errorf("%#v: %v", c.l, v.Validate())
		}
	}
}

func TestDerivs(t *testing.T) {
	for _, c := range likeCases {
		d, ok := c.l.(Differentiable)
		if !ok {
			continue
		}
		for _, y := range c.good {
			for _, eta := range []float64{-30, -8, -5.01, -3, -0.6, -1e-3, 0, 0.02, 1.7, 4, 9} {
				d1, d2 := d.Derivs(y, eta)
				h := 1e-3 * c.scale
				set := &fd.Settings{Formula: fd.Central, Step: h}
				n1 := fd.Derivative(func(x float64) float64 { return c.l.LogProb(y, x) }, eta, set)
				n2 := fd.Derivative(func(x float64) float64 { d, _ := d.Derivs(y, x); return d }, eta, set)
				g := math.Abs(c.l.LogProb(y, eta))
				if e := math.Abs(d1 - n1); e > 2e-6*(math.Abs(d1)+math.Abs(d2)+1/c.scale)+1e-15*g/h {
					t.Errorf("%#v y=%v η=%v: d1 = %v, differences %v", c.l, y, eta, d1, n1)
				}
				if e := math.Abs(d2 - n2); e > 3e-6*(math.Abs(d2)+1/c.scale/c.scale) {
					t.Errorf("%#v y=%v η=%v: d2 = %v, differences %v", c.l, y, eta, d2, n2)
				}
				if c.concave && d2 > 0 {
					t.Errorf("%#v y=%v η=%v: d2 = %v > 0", c.l, y, eta, d2)
				}
			}
		}
	}
}

// Values to 20 digits, by arithmetic with 50.
func TestGaussTails(t *testing.T) {
	for _, c := range gaussRefs {
		g, d1, d2 := special.NormalLogCDF(c.x)
		for i, p := range [3][2]float64{{g, c.g}, {d1, c.d1}, {d2, c.d2}} {
			if e := math.Abs(p[0]/p[1] - 1); e > 3e-15*(1+math.Max(0, c.x)) {
				t.Errorf("log Φ(%v), derivative %d: %v, want %v (%.1e)", c.x, i, p[0], p[1], e)
			}
		}
	}
	for x := -37.0; x < 37; x += 0.37 {
		if a, b := special.NormalTail(x), math.Erfc(x/math.Sqrt2)/2; math.Abs(a/b-1) > 1e-15*(4+x*x) {
			t.Errorf("Φ(−%v) = %v, by erfc %v", x, a, b)
		}
		if a, b := special.NormalLogTail(x), math.Log(special.NormalTail(x)); math.Abs(a-b) > 1e-14*(1+math.Abs(b)) {
			t.Errorf("log Φ(−%v) = %v, want %v", x, a, b)
		}
		if a, b := special.Mills(x), special.NormalTail(x)/special.NormalPDF(x); math.Abs(a/b-1) > 1e-14 {
			t.Errorf("Mills(%v) = %v, want %v", x, a, b)
		}
	}
}

// TestNormalised checks that probabilities sum to one and agree with CDF and Moments.
func TestNormalised(t *testing.T) {
	for _, c := range likeCases {
		n := &predictNumeric{l: c.l, support: predictSupport(c.l)}
		r := c.l.(Responder)
		for _, eta := range []float64{-1.3, 0, 0.4, 2} {
			for _, y := range c.good {
				if a, b := n.CDF(y, eta), r.CDF(y, eta); !(math.Abs(a-b) < 1e-9) {
					t.Errorf("%#v: P(Y ≤ %v|%v) = %v, by integration %v", c.l, y, eta, b, a)
				}
			}
			am, av := n.Moments(eta)
			bm, bv := r.Moments(eta)
			if n.err != nil {
				t.Errorf("%#v: %v", c.l, n.err)
			}
			if st, ok := c.l.(StudentT); ok && st.DF == 1.5 {
				continue // no variance, and a mean that converges slowly
			}
			if math.Abs(am-bm) > 1e-8*(1+math.Abs(bm)) || math.Abs(av-bv) > 1e-5*(1+bv) {
				t.Errorf("%#v: moments at %v: %v, %v, by integration %v, %v", c.l, eta, bm, bv, am, av)
			}
		}
	}
}

// gaussRefs holds x, log Φ(x), φ(x)/Φ(x) and its derivative.
var gaussRefs = [...]struct{ x, g, d1, d2 float64 }{
	{-1000000.0, -500000000014.7344491, 1000000.000001, -0.999999999999},
	{-1000.0, -500007.8266948121843, 1000.00099999800001, -0.99999900000599995},
	{-40, -804.6084420137537882, 40.02496884720726372, -0.9993773316214086112},
	{-12.5, -81.57596787074388322, 12.57900730440697609, -0.9938334592368576973},
	{-3, -6.607726221510349543, 3.283098654930436507, -0.9294408132147318831},
	{-0.25, -0.9130617648111350552, 0.9635539794164039069, -0.6875477763950867471},
	{0, -0.6931471805599453094, 0.7978845608028653559, -0.6366197723675813431},
	{2, -0.02301290932896348847, 0.0552478626789899591, -0.1135480516885764498},
	{9, -1.128588405953840648e-19, 1.02797735716689148e-18, -9.251796214502023318e-18},
}
