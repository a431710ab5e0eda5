package pgsvi

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// unitRows returns the rows of an identity matrix.
func unitRows(d int) *mat.Dense {
	x := mat.NewDense(d, d, nil)
	for j := range d {
		x.Set(j, j, 1)
	}
	return x
}

// The coefficients of a trend beside a rough function are those of a linear model of which the columns are
// the trend's and a square root of the covariance of the function.
func TestPartTrend(t *testing.T) {
	t.Parallel()
	n, rng := shorter(60, 30), testRand(21)
	rough, trend, offset := Matern12{Scale: 0.8, Length: 0.6}, Linear{Scales: []float64{1.5, 0.7}}, Constant{Scale: 3}
	x := mat.NewDense(n, 2, nil)
	for i := range n {
		x.SetRow(i, []float64{2 + rng.NormFloat64(), rng.NormFloat64()})
	}
	var chol mat.Cholesky
	if !chol.Factorize(Gram(nil, rough, x)) {
		t.Fatal("not positive definite")
	}
	var root mat.TriDense
	chol.LTo(&root)
	columns := mat.NewDense(n, 3+n, nil)
	for i := range n {
		columns.SetRow(i, append([]float64{1.5 * x.At(i, 0), 0.7 * x.At(i, 1), 3}, mat.Row(nil, i, &root)...))
	}
	for _, c := range []struct {
		lik Likelihood
		y   func(f float64) float64
	}{
		{BernoulliLogit{}, func(f float64) float64 { return plusMinus(rng.Float64() < 1/(1+math.Exp(-f))) }},
		{GaussianNoise{Var: 0.1}, func(f float64) float64 { return f + 0.3*rng.NormFloat64() }},
		{StudentT{DF: 4, Scale: 0.3}, func(f float64) float64 { return f + 0.3*rng.NormFloat64() }},
	} {
		y := make([]float64, n)
		for i := range y {
			y[i] = c.y(1.2*x.At(i, 0) - 0.5*x.At(i, 1) - 2 + 0.7*rng.NormFloat64())
		}
		ctx, s := context.Background(), &Solver{Goal: 1e-10}
		p, _, err := mustGP(t, x, y, Sum{rough, trend, offset}, c.lik).Fit(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := p.Save(&file); err != nil {
			t.Fatal(err)
		}
		if p, err = LoadGPPosterior(&file); err != nil {
			t.Fatal(err)
		}
		g, err := NewGLM(columns, y, c.lik, &GLMOptions{Covariance: FullCovariance})
		if err != nil {
			t.Fatal(err)
		}
		want, _, err := g.Fit(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		m, v := p.Part(1, unitRows(2)).Latent(nil, nil)
		m0, v0 := p.Part(2, mat.NewDense(1, 2, []float64{5, -7})).Latent(nil, nil)
		m, v = append(m, m0...), append(v, v0...)
		mean, sd := want.Mean(nil), want.SD(nil)
		for j, scale := range []float64{1.5, 0.7, 3} {
			if math.Abs(m[j]-scale*mean[j]) > 1e-4*scale*sd[j] || math.Abs(math.Sqrt(v[j])-scale*sd[j]) > 1e-4*scale*sd[j] {
				t.Errorf("%T: coefficient %d is %v ± %v, want %v ± %v", c.lik, j, m[j], math.Sqrt(v[j]), scale*mean[j], scale*sd[j])
			}
		}
		at := mat.NewDense(3, 2, []float64{1, 1, 200, -300, x.At(0, 0), x.At(0, 1)})
		all, _ := p.At(at).Latent(nil, nil)
		for i := range 3 {
			part, _ := p.Part(i, at).Latent(nil, nil)
			for j, v := range part {
				all[j] -= v
			}
		}
		for j, rest := range all {
			if math.Abs(rest) > 1e-9 {
				t.Errorf("%T: the parts at row %d leave %v of the whole", c.lik, j, rest)
			}
		}
	}
}

// The same where float64 does not hold the covariance: the posterior is then one of weights.
func TestPartFar(t *testing.T) {
	t.Parallel()
	n, rng := 30, testRand(22)
	x, y := mat.NewDense(n, 1, nil), make([]float64, n)
	for i := range n {
		x.Set(i, 0, 1e7+rng.NormFloat64())
		y[i] = 4 + 2*(x.At(i, 0)-1e7) + 0.1*rng.NormFloat64()
	}
	ctx := context.Background()
	p, _, err := mustGP(t, x, y, Sum{Constant{Scale: 1e8}, Linear{Scale: 10}}, GaussianNoise{Var: 0.01}).Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p.weights == nil {
		t.Fatal("the posterior is not one of weights")
	}
	slope, v := p.Part(1, unitRows(1)).Latent(nil, nil)
	offset, _ := p.Part(0, unitRows(1)).Latent(nil, nil)
	if sd := math.Sqrt(v[0]); math.Abs(slope[0]-2) > 5*sd || sd > 0.03 || sd < 0.01 || math.Abs(offset[0]+1e7*slope[0]-4) > 0.1 {
		t.Errorf("slope %v ± %v, offset %v", slope[0], sd, offset[0])
	}
}

// A kernel without terms has no parts.
func TestPartPanics(t *testing.T) {
	t.Parallel()
	x, y := unitRows(2), []float64{1, 2}
	for what, c := range map[string]struct {
		k    Kernel
		term int
	}{
		"no sum": {SquaredExp{}, 0}, "a product": {Product{SquaredExp{}, Linear{}}, 0}, "no such term": {Sum{SquaredExp{}, Linear{}}, 2}, "a negative term": {Sum{SquaredExp{}}, -1},
	} {
		p, _, err := mustGP(t, x, y, c.k, nil).Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		mustPanic(t, what, func() { p.Part(c.term, x) })
	}
}

// A trend is learned and followed far outside the data whatever the origin of the columns and of the responses.
func TestLearnTrend(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ x0, y0 float64 }{{0, 0}, {0, 300}, {1980, 300}, {-1980, -300}} {
		const n = 80
		rng := testRand(3)
		x, y := mat.NewDense(n, 1, nil), make([]float64, n)
		for i := range n {
			u := 20*float64(i)/float64(n) - 10
			x.Set(i, 0, c.x0+u)
			y[i] = c.y0 + 1.5*u + 2*math.Sin(u) + 0.3*rng.NormFloat64()
		}
		_, p, l, err := mustGP(t, x, y, Sum{SquaredExp{}, Linear{}, Constant{}}, GaussianNoise{}).Learn(context.Background(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		m, v := p.Part(1, unitRows(1)).Latent(nil, nil)
		if math.Abs(m[0]-1.5) > 0.25 || math.Sqrt(v[0]) > 0.5 || l.Evaluations > 20 {
			t.Errorf("from %v: slope %v ± %v in %d evaluations", c, m[0], math.Sqrt(v[0]), l.Evaluations)
		}
		m, v = p.At(mat.NewDense(1, 1, []float64{c.x0 + 60})).Latent(nil, nil)
		if want := c.y0 + 90; math.Abs(m[0]-want) > 15 || math.Sqrt(v[0]) > 30 {
			t.Errorf("from %v: forecast %v ± %v, want %v", c, m[0], math.Sqrt(v[0]), want)
		}
	}
}

func ExampleGPPosterior_Part() {
	x, y := mat.NewDense(60, 1, nil), make([]float64, 60)
	for i := range y {
		year := float64(i) / 4
		x.Set(i, 0, 2000+year)
		y[i] = 50 + 1.5*(year-5) + 2*math.Sin(2*year) + 0.3*math.Cos(float64(37*i*i))
	}
	gp, err := NewGP(x, y, Sum{SquaredExp{}, Linear{}, Constant{}}, GaussianNoise{}, nil)
	if err != nil {
		panic(err)
	}
	_, post, _, err := gp.Learn(context.Background(), nil, nil)
	if err != nil {
		panic(err)
	}
	slope, variance := post.Part(1, mat.NewDense(1, 1, []float64{1})).Latent(nil, nil)
	fmt.Printf("%.1f ± %.1f a year\n", slope[0], math.Sqrt(variance[0]))
	forecast, _ := post.At(mat.NewDense(1, 1, []float64{2045})).Latent(nil, nil)
	fmt.Printf("%.0f in 2045\n", forecast[0])
	// Output:
	// 1.4 ± 0.3 a year
	// 105 in 2045
}
