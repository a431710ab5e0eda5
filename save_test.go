package pgsvi

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

// savedLinear is a user's kernel, with a registered type.
type savedLinear struct{ S float64 }

func (k savedLinear) Cov(x, y []float64) float64 { return k.S * k.S * x[0] * y[0] }
func (k savedLinear) Params() []Param {
	return []Param{{"S", k.S, 0, math.Inf(1)}}
}
func (k savedLinear) WithParams(v []float64) Kernel { return savedLinear{v[0]} }
func (k savedLinear) Grad(dst, x, y []float64) float64 {
	dst[0] = 2 * k.Cov(x, y)
	return k.Cov(x, y)
}

// TestSaveGP: a loaded posterior gives the same bits, for every kind of kernel and likelihood.
func TestSaveGP(t *testing.T) {
	Register("test.savedLinear", savedLinear{})
	Register("test.logProbOnly", logProbOnly{})
	kernels := []Kernel{
		SquaredExp{Scale: 2, Lengths: []float64{1, 2}}, Matern12{Length: 2}, Matern32{}, Matern52{}, RationalQuadratic{Profile: Rational{Alpha: 0.7}},
		Periodic{Period: 3}, Sum{Linear{Scale: 0.3}, Constant{}, Product{SquaredExp{}, savedLinear{0.5}}, White{Scale: 0.1}},
	}
	for i, k := range kernels {
		lik := gpLikelihoods[i%len(gpLikelihoods)]
		gp := toyGP(t, 20, k, lik, 21)
		gp.opt.Jitter = 1e-3
		post, _ := mustFit(t, gp, nil)
		var file bytes.Buffer
		if err := post.Save(&file); err != nil {
			t.Fatal(err)
		}
		loaded, err := LoadGPPosterior(bytes.NewReader(file.Bytes()))
		if err != nil {
			t.Fatalf("%v: %v", k, err)
		}
		var again bytes.Buffer
		if err := loaded.Save(&again); err != nil || !bytes.Equal(file.Bytes(), again.Bytes()) {
			t.Errorf("%T, %T: saved again it differs (%v)", k, lik, err)
		}
		m, v := post.At(gp.x).Latent(nil, nil)
		lm, lv := loaded.At(gp.x).Latent(nil, nil)
		a, b := fmt.Sprint(m, v, post.At(gp.x).LogProb(nil, gp.terms.y)), fmt.Sprint(lm, lv, loaded.At(gp.x).LogProb(nil, gp.terms.y))
		if a != b {
			t.Errorf("%T, %T: loaded posterior predicts differently", k, lik)
		}
	}
}

type unregistered struct{ BernoulliLogit }

func TestSaveErrors(t *testing.T) {
	gp := toyGP(t, 4, SquaredExp{}, BernoulliLogit{}, 22)
	post, _ := mustFit(t, gp, nil)
	var file bytes.Buffer
	if err := post.Save(&file); err != nil {
		t.Fatal(err)
	}
	good := file.String()
	change := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("no %q in %s", old, good)
		}
		return strings.Replace(good, old, new, 1)
	}
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"empty":        {"", ErrParam},
		"not JSON":     {"neg_elbo=89", ErrParam},
		"other JSON":   {`{"format": "CSV"}`, ErrParam},
		"rows":         {change(`"rows":4`, `"rows":5`), ErrShape},
		"no rows":      {change(`"rows":4`, `"rows":0`), ErrShape},
		"cols":         {change(`"cols":2`, `"cols":3`), ErrShape},
		"kernel":       {change(`pgsvi.SquaredExp`, `pgsvi.Cubic`), ErrParam},
		"kernel value": {change(`"Scale":0`, `"Scale":-1`), ErrParam},
		"kernel is":    {change(`{"type":"pgsvi.SquaredExp","value":{"Scale":0,"Length":0,"Lengths":null}}`, `{"type":"pgsvi.Laplace","value":{}}`), ErrParam},
		"variance":     {change(`"v":[`, `"v":[-`), ErrParam},
		"jitter":       {change(`"jitter":0`, `"jitter":-1`), ErrParam},
		"not definite": {change(`"gamma":[0.`, `"gamma":[-99999990.`), ErrNotPosDef},
	} {
		if _, err := LoadGPPosterior(strings.NewReader(c.text)); !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), "pgsvi: ") {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	gp.terms.lik = unregistered{}
	post, _ = mustFit(t, gp, nil)
	if err := post.Save(&file); !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "see Register") {
		t.Errorf("unregistered likelihood: %v", err)
	}
}

// FuzzLoadGPPosterior: whatever is read is refused with an error or predicts.
func FuzzLoadGPPosterior(f *testing.F) {
	gp := toyGP(f, 3, Sum{SquaredExp{}, White{}}, StudentT{}, 23)
	post, _ := mustFit(f, gp, nil)
	var file bytes.Buffer
	if err := post.Save(&file); err != nil {
		f.Fatal(err)
	}
	f.Add(file.String())
	f.Add(strings.Replace(file.String(), `"a":[`, `"a":[1e308,`, 1))
	f.Fuzz(func(t *testing.T, s string) {
		p, err := LoadGPPosterior(strings.NewReader(s))
		if err != nil {
			return
		}
		m, v := p.At(p.x).Latent(nil, nil)
		for i := range m {
			if !(v[i] >= 0) || math.IsNaN(v[i]) {
				t.Errorf("row %d: N(%v, %v)", i, m[i], v[i])
			}
		}
	})
}
