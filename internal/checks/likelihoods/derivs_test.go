package likelihoods

import (
	"errors"
	"math"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// cauchy is a Differentiable whose derivatives are multiplied by first and second.
type cauchy struct{ first, second float64 }

func (cauchy) LogProb(y, eta float64) float64 { return -math.Log1p((y - eta) * (y - eta)) }

func (c cauchy) Derivs(y, eta float64) (d1, d2 float64) {
	r := y - eta
	s := 1 + r*r
	return c.first * 2 * r / s, c.second * 2 * (r*r - 1) / (s * s)
}

var _ Differentiable = cauchy{}

// TestWrongDerivs checks that models reject derivatives that contradict LogProb. A GP with the wrong
// sign used 1000 passes and ended hundreds of nats from the optimum, without an error.
func TestWrongDerivs(t *testing.T) {
	x, y := mat.NewDense(4, 1, []float64{0, 1, 2, 3}), []float64{0.5, -0.2, 1e6, 3}
	models := map[string]func(lik Likelihood) error{
		"GLM": func(lik Likelihood) error {
			_, err := NewGLM(x, y, lik, nil)
			return err
		},
		"GP": func(lik Likelihood) error {
			_, err := NewGP(x, y, SquaredExp{}, lik, nil)
			return err
		},
		"SparseGP": func(lik Likelihood) error {
			_, err := NewSparseGP(x, y, SquaredExp{}, lik, nil)
			return err
		},
		"Sites": func(lik Likelihood) error {
			return Sites{X: [][]float64{{0}, {1}, {2}, {3}}, Y: y, Lik: lik}.Validate()
		},
	}
	for name, build := range models {
		if err := build(cauchy{1, 1}); err != nil {
			t.Errorf("%s with right derivatives: %v", name, err)
		}
		for _, c := range []struct {
			lik  cauchy
			want string
		}{
			{cauchy{-1, 1}, "the derivative of"},
			{cauchy{1.01, 1.01}, "the derivative of"},
			{cauchy{1, -1}, "the second derivative of"},
			{cauchy{1, 0}, "the second derivative of"},
		} {
			err := build(c.lik)
			if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "row 0, with response 0.5") {
				t.Errorf("%s with %v: error %v, want %q", name, c.lik, err, c.want)
			}
		}
	}
}
