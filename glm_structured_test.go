package pgsvi

import (
	"testing"

	"gonum.org/v1/gonum/mat"
)

func mustGLM(t testing.TB, x mat.Matrix, y []float64, lik Likelihood, opt GLMOptions) *GLM {
	t.Helper()
	g, err := NewGLM(x, y, lik, &opt)
	if err != nil {
		t.Fatal(err)
	}
	return g
}
