package linear

import (
	"context"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// TestHugeFeature checks that a linear predictor that overflows is an error that names the row and
// blames the columns, and not the LogProb of a likelihood of the library.
func TestHugeFeature(t *testing.T) {
	t.Parallel()
	x := mat.NewDense(4, 2, []float64{1, 0, 2, 1, 3, 1e300, 4, 1})
	g, err := pgsvi.NewGLM(x, []float64{1, 2, 3, 4}, pgsvi.Poisson{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = g.Fit(context.Background(), nil)
	if err == nil || strings.Contains(err.Error(), "LogProb") ||
		!strings.Contains(err.Error(), "row 2, with response 3") ||
		!strings.Contains(err.Error(), "units for the columns") {
		t.Errorf("a feature of 1e300 returns %v", err)
	}
}
