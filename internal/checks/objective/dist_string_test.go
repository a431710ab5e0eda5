package objective

import (
	"fmt"
	"testing"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// TestString checks that distributions print the parameters of their constructors.
func TestString(t *testing.T) {
	text := func(q fmt.Stringer, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return q.String()
	}
	gamma, err := pgsvi.NewGamma(3, 1.5)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ got, want string }{
		{text(gamma, nil), "Gamma(3, 1.5)"},
		{text(pgsvi.NewInverseGamma(3, 1.5)), "InverseGamma(3, 1.5)"},
		{text(pgsvi.NewBeta(2, 3)), "Beta(2, 3)"},
		{text(pgsvi.NewDirichlet([]float64{1, 2, 3, 4, 5, 6, 7})), "Dirichlet(1, 2, 3, 4, 5, 6, …)"},
		{text(pgsvi.NewCategorical([]float64{1, 1, 2})), "Categorical(0.25, 0.25, 0.5)"},
		{text(pgsvi.NewBernoulli(0.3)), "Bernoulli(0.3)"},
		{text(pgsvi.NewPoisson(4)), "Poisson(4)"},
		{text(pgsvi.NewWishart(5, mat.NewSymDense(2, []float64{1, 0, 0, 1}))),
			"Wishart of 2×2, natural parameters (2.5, -0.5, -0, -0.5)"},
		{text(pgsvi.ProductOf(gamma, gamma)),
			"product of 2 × Gamma, natural parameters (3, -1.5, 3, -1.5)"},
		{pgsvi.NewIsotropicMeanField(2, 4).String(), "Gaussian, mean (0, 0), sd (2, 2)"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
