package pgsvi

import (
	"errors"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// noMean is Gaussian noise whose moments do not exist and whose CDF never
// reaches ½ where η > 4.
type noMean struct{ GaussianNoise }

func (noMean) LogProb(y, eta float64) float64 { return GaussianNoise{}.LogProb(y, eta) }

func (noMean) Moments(eta float64) (mean, variance float64) {
	if eta > 4 {
		return math.NaN(), math.NaN()
	}
	return GaussianNoise{}.Moments(eta)
}

func (noMean) CDF(y, eta float64) float64 {
	if eta > 4 {
		return 0.25
	}
	return GaussianNoise{}.CDF(y, eta)
}

// responderOnly hides all but LogProb and Responder.
type responderOnly struct{ Responder }

// TestPredictionFailedRow: an error names the row, and no row from it on holds a number.
func TestPredictionFailedRow(t *testing.T) {
	lik := responderOnly{noMean{}}
	x := mat.NewDense(4, 1, []float64{0, 0.2, 9, 0.4})
	g, err := NewGLM(mat.NewDense(2, 1, []float64{1, 1}), []float64{1, 1}, lik, nil)
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := g.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, err error, outs ...[]float64) {
		t.Helper()
		if !errors.Is(err, ErrNotFinite) || !strings.HasPrefix(err.Error(), "pgsvi: row 2: ") {
			t.Errorf("%s: %v, want ErrNotFinite at row 2", what, err)
		}
		for _, out := range outs {
			for i, v := range out {
				if math.IsNaN(v) != (i >= 2) {
					t.Errorf("%s: row %d is %v", what, i, v)
				}
			}
		}
	}
	mean, variance, err := post.Predict(nil, nil, x)
	check("Predict", err, mean, variance)
	q, err := post.Quantile(nil, 0.6, x)
	check("Quantile", err, q)
}
