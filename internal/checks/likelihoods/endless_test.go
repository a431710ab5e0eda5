package likelihoods

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// convexLik has log p = c·η², which is no density of y.
type convexLik struct{ c float64 }

func (l convexLik) LogProb(_, eta float64) float64 { return l.c * eta * eta }

// TestEndless checks that a fit reports a likelihood that grows faster than the prior falls, and
// that it finds the maximum if the prior falls faster.
func TestEndless(t *testing.T) {
	x := mat.NewDense(6, 1, []float64{0, 1, 2, 3, 4, 5})
	y := []float64{0.1, 0.8, 0.9, 0.2, -0.8, -1}
	kernel := SquaredExp{Scale: 3, Length: 2}
	for _, c := range []float64{0.3, 10} {
		lik := convexLik{c}
		for name, fit := range map[string]func() (*Result, error){
			"GLM": func() (*Result, error) {
				m, err := NewGLM(x, y, lik, &GLMOptions{Intercept: true})
				if err != nil {
					t.Fatal(err)
				}
				_, res, err := m.Fit(context.Background(), nil)
				return res, err
			},
			"GP": func() (*Result, error) {
				m, err := NewGP(x, y, kernel, lik, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, res, err := m.Fit(context.Background(), nil)
				return res, err
			},
			"SparseGP": func() (*Result, error) {
				m, err := NewSparseGP(x, y, kernel, lik, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, res, err := m.Fit(context.Background(), nil)
				return res, err
			},
		} {
			res, err := fit()
			if !errors.Is(err, ErrDiverged) || res.Status != Failed ||
				!strings.Contains(fmt.Sprint(err), "it has no maximum, because row 0") {
				t.Errorf("%s of %v η²: %v, error %v", name, c, res, err)
			}
		}
	}
	m, err := NewGLM(x, y, convexLik{1e-3}, &GLMOptions{PriorSD: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, res, err := m.Fit(context.Background(), nil); err != nil || res.Status != Converged {
		t.Errorf("a narrow prior: %v, error %v", res, err)
	}
}
