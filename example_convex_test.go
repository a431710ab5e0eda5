package pgsvi_test

import (
	"context"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi"
)

// ridge is h = ½c‖m‖² of the mean m of a Gaussian, without an entropy.
type ridge struct{ c, slip float64 }

func (ridge) Check(pgsvi.Dist) error { return nil }

func (h ridge) Value(q pgsvi.Dist) (v float64) {
	for _, m := range q.(*pgsvi.Gaussian).Mean(nil) {
		v += h.c / 2 * m * m
	}
	return v
}

func (h ridge) Grad(dst []float64, q pgsvi.Dist) []float64 {
	dst = q.Params(dst)
	for i := range dst {
		dst[i] *= h.c * h.slip
		if i >= q.Dim() {
			dst[i] = 0
		}
	}
	return dst
}

// CheckConvex finds a wrong factor in the gradient of an h.
func ExampleCheckConvex() {
	q, err := pgsvi.NewMeanField([]float64{1, -2}, []float64{1, 0.5})
	fmt.Println(err, pgsvi.CheckConvex(ridge{3, 1}, q))
	fmt.Println(pgsvi.CheckConvex(ridge{3, 2}, q, pgsvi.NewIsotropicMeanField(2, 1)))
	// Output:
	// <nil> <nil>
	// pgsvi: pgsvi_test.ridge at distribution 0: element 1 of Grad is -12, but differences of Value give -6 (all of Grad is 2 times as large as the differences); check the derivative with respect to λ, in the coordinates of q: parameter out of range
}

// A random walk has a prior precision that is singular, because nothing is known about its level.
func ExampleNaturalPrior() {
	const steps = 3
	y := []float64{1, 2, 4}
	sites := pgsvi.Sites{Y: y, Lik: pgsvi.GaussianNoise{Var: 1}}
	eta := make([]float64, steps+steps*(steps+1)/2) // (Pm, −½P), with off-diagonal elements −P_ij
	for i := range steps {
		x := make([]float64, steps)
		x[i] = 1
		sites.X = append(sites.X, x)
		if i > 0 { // −½(z_i − z_{i−1})²
			at := steps + i*(i+1)/2
			eta[at+i] -= 0.5
			eta[at-1] -= 0.5
			eta[at+i-1] += 1
		}
	}
	o := pgsvi.Objective[*pgsvi.Gaussian]{F: pgsvi.Expect(sites, nil), H: pgsvi.NaturalPrior(eta),
		Init: pgsvi.NewIsotropic(steps, 1)}
	q, res, err := o.Fit(context.Background(), nil)
	fmt.Println(res.Status, err)
	fmt.Printf("%.3f\n", q.Mean(nil))
	// Output:
	// converged <nil>
	// [1.625 2.250 3.125]
}

// A Laplace prior moves weights that the data do not need close to zero (Bayesian lasso).
func ExampleLaplacePrior() {
	sites := pgsvi.Sites{Lik: pgsvi.GaussianNoise{Var: 0.01}}
	for i := range 30 {
		a, b := math.Sin(float64(i)), math.Cos(2*float64(i))
		sites.X, sites.Y = append(sites.X, []float64{a, b}), append(sites.Y, 2*a)
	}
	o := pgsvi.Objective[*pgsvi.Gaussian]{F: pgsvi.Expect(sites, nil),
		H: pgsvi.LaplacePrior(nil, 0.1), Init: pgsvi.NewIsotropic(2, 1)}
	q, res, err := o.Fit(context.Background(), nil)
	fmt.Println(res.Status, err)
	fmt.Printf("%.3f\n", q.Mean(nil))
	// Output:
	// converged <nil>
	// [1.993 -0.000]
}

// A prior and a part of your own that has no entropy make one h.
func ExampleSumOf() {
	prior := pgsvi.NewIsotropic(2, 1)
	h := pgsvi.SumOf(pgsvi.KLTo(prior), ridge{3, 1})
	q, err := pgsvi.NewMeanField([]float64{1, 2}, []float64{0.5, 0.5})
	fmt.Println(err, pgsvi.CheckConvex(h, q))
	fmt.Printf("%.4f = %.4f\n", h.Value(q), pgsvi.KLTo(prior).Value(q)+ridge{3, 1}.Value(q))
	// Output:
	// <nil> <nil>
	// 10.1931 = 10.1931
}
