package paper

import (
	"context"
	"math"
	"testing"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// TestPredictor: the predictions of a dense q are those of the sites that it is made of.
func TestPredictor(t *testing.T) {
	p, err := Ionosphere("../../testdata")
	if err != nil {
		t.Fatal(err)
	}
	d, err := p.Predictor()
	if err != nil {
		t.Fatal(err)
	}
	post, res, err := p.GP.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := d.Bits(res.Stepper)
	if err != nil {
		t.Fatal(err)
	}
	// V = K − K(K + Γ⁻¹)⁻¹K, K with the jitter.
	k := p.Cov()
	gamma, _ := post.Sites(nil, nil)
	noisy := mat.NewSymDense(len(gamma), nil)
	noisy.CopySym(k)
	for i, g := range gamma {
		noisy.SetSym(i, i, k.At(i, i)+1/g)
	}
	var chol mat.Cholesky
	if !chol.Factorize(noisy) {
		t.Fatal("K + 1/gamma is not positive definite")
	}
	var solved, product mat.Dense
	if err := chol.SolveTo(&solved, k); err != nil {
		t.Fatal(err)
	}
	product.Mul(k, &solved)
	v := mat.NewSymDense(len(gamma), nil)
	for i := range gamma {
		for j := range i + 1 {
			v.SetSym(i, j, k.At(i, j)-0.5*(product.At(i, j)+product.At(j, i)))
		}
	}
	mean, _ := post.Train(nil, nil)
	q, err := pgsvi.NewGaussian(mean, v)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.bits(q); math.Abs(got-want) > 1e-6 {
		t.Errorf("%v bits, want %v", got, want)
	}
}
