package expfam_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// mixedProduct returns a product whose parts test their natural parameters in different ways, and
// the index of the last natural parameter of each part.
func mixedProduct(t *testing.T) (q *pgsvi.Exp, last []int) {
	t.Helper()
	dirichlet, err := pgsvi.NewDirichlet([]float64{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	wishart, err := pgsvi.NewWishart(5, mat.NewDiagDense(2, []float64{1, 2}))
	if err != nil {
		t.Fatal(err)
	}
	parts := []pgsvi.ExpFamily{mustExp(t, betaFamily{}, 2, 3), pgsvi.NewIsotropic(2, 3), dirichlet,
		wishart, pgsvi.NewIsotropicMeanField(3, 2), mustExp(t, betaFamily{}, 4, 5)}
	n := 0
	for _, p := range parts {
		n += p.NumParams()
		last = append(last, n-1)
	}
	if q, err = pgsvi.ProductOf(parts...); err != nil {
		t.Fatal(err)
	}
	return q, last
}

// TestProductMean checks that a product has the mean parameters of its parts, and rejects natural
// parameters if one part does.
func TestProductMean(t *testing.T) {
	q, last := mixedProduct(t)
	eta := q.Natural(nil)
	for i := range eta {
		eta[i] *= 1 + 1e-3*float64(i%5)
	}
	if err := q.SetNatural(eta); err != nil {
		t.Fatal(err)
	}
	var want []float64
	for _, p := range q.Factors() {
		if err := p.SetNatural(p.Natural(nil)); err != nil {
			t.Fatal(err)
		}
		want = append(want, p.MeanParams(nil)...)
	}
	mu := q.MeanParams(nil)
	for i := range want {
		if !(math.Abs(mu[i]-want[i]) <= 1e-13*math.Abs(want[i])) {
			t.Errorf("mean parameter %d is %v, want %v", i, mu[i], want[i])
		}
	}
	for part, i := range last {
		bad := q.Natural(nil)
		bad[i] = -bad[i]
		if err := q.SetNatural(bad); err == nil {
			t.Errorf("part %d: natural parameter %d may be %v", part, i, bad[i])
		}
		if fmt.Sprint(q.Natural(nil)) != fmt.Sprint(eta) {
			t.Fatalf("part %d: parameters changed after an error", part)
		}
	}
	if err := q.SetMeanParams(mu); err != nil {
		t.Fatal(err)
	}
	for i, x := range q.Natural(nil) {
		if !(math.Abs(x-eta[i]) <= 1e-9*math.Abs(eta[i])) {
			t.Errorf("natural parameter %d is %v after SetMeanParams, want %v", i, x, eta[i])
		}
	}
}

// TestProductSame checks which products belong to the same family.
func TestProductSame(t *testing.T) {
	a, _ := mixedProduct(t)
	b, _ := mixedProduct(t)
	if kl := a.KL(b); !(kl <= 1e-12) {
		t.Errorf("KL %v", kl)
	}
	parts := b.Factors()
	swapped, err := pgsvi.ProductOf(append(parts[1:], parts[0])...)
	if err != nil {
		t.Fatal(err)
	}
	fewer, err := pgsvi.ProductOf(parts[:2]...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*pgsvi.Exp{swapped, fewer, mustExp(t, betaFamily{}, 2, 3)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v counts as %v", c.Family(), a.Family())
				}
			}()
			a.KL(c)
		}()
	}
}

// TestProductName checks that the name of a product with many parts stays short.
func TestProductName(t *testing.T) {
	var parts []pgsvi.ExpFamily
	for i := range 3000 {
		parts = append(parts, pgsvi.NewIsotropic(1+i/1000, 1))
	}
	q, err := pgsvi.ProductOf(parts...)
	if err != nil {
		t.Fatal(err)
	}
	want := "product of 1000 × Gaussian of 1 dimensions, 1000 × Gaussian of 2 dimensions, " +
		"1000 × Gaussian of 3 dimensions"
	if s := fmt.Sprint(q.Family()); s != want {
		t.Errorf("%s", s)
	}
	for i := range parts {
		parts[i] = pgsvi.NewIsotropic(1+i%2, 1)
	}
	if q, err = pgsvi.ProductOf(parts...); err != nil {
		t.Fatal(err)
	}
	if s := fmt.Sprint(q.Family()); len(s) > 1000 || !strings.HasSuffix(s, ", …") {
		t.Errorf("%s", s)
	}
}
