package pgsvi_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"math"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/mat"
)

// Is a Gaussian q near enough to the posterior? Draws of it, weighted by p(y, z)/q(z), say so by
// the tail of their weights, and correct what is off.
func ExampleGLM_PSIS() {
	// Events of five days.
	x := mat.NewDense(5, 1, []float64{1, 1, 1, 1, 1})
	glm, err := pgsvi.NewGLM(x, []float64{2, 0, 1, 0, 0}, pgsvi.Poisson{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	post, res, err := glm.Fit(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	p, err := glm.PSIS(ctx, nil, post, 10000)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("k̂ = %.1f, to be trusted up to %.1f\n", p.KHat, p.Limit)
	fmt.Printf("log evidence %.3f, of which the ELBO is a bound: %.3f\n", p.LogZ, res.ELBO)
	fmt.Printf("log rate %.2f ± %.2f, by q %.2f ± %.2f\n", p.Mean[0], p.SD[0], post.Mean(nil)[0], post.SD(nil)[0])
	// Output:
	// k̂ = 0.6, to be trusted up to 0.7
	// log evidence -6.057, of which the ELBO is a bound: -6.069
	// log rate -0.48 ± 0.49, by q -0.48 ± 0.47
}

// Which of two kernels predicts data better that it has not seen? No fit is repeated for that.
func ExampleGP_LOO() {
	ctx := context.Background()
	x, y := wave()
	for _, length := range []float64{0.1, 1} {
		gp, err := pgsvi.NewGP(x, y, pgsvi.SquaredExp{Length: length, Scale: 2}, pgsvi.BernoulliLogit{}, nil)
		if err != nil {
			log.Fatal(err)
		}
		post, _, err := gp.Fit(ctx, nil)
		if err != nil {
			log.Fatal(err)
		}
		loo, err := gp.LOO(ctx, post)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("length %.1f: %v\n", length, loo)
	}
	// Output:
	// length 0.1: elpd -25.8272 ± 1.9 over 40 data, error 0.0059; 13.1 effective parameters
	// length 1.0: elpd -17.3488 ± 2.7 over 40 data, error 0.045; 3.66 effective parameters
}

// Which data decide? The leverage of a datum is the part of what is known of its linear predictor
// that it brings itself, and its influence how far it moves the posterior.
func ExampleLOO_leverage() {
	ctx := context.Background()
	x := mat.NewDense(6, 1, []float64{0.5, 0.6, 0.7, 0.8, 0.9, 5}) // the last is far out
	y := []float64{0.4, 0.7, 0.6, 0.9, 0.8, 2}
	glm, err := pgsvi.NewGLM(x, y, pgsvi.GaussianNoise{Var: 0.04}, &pgsvi.GLMOptions{Intercept: true})
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := glm.Fit(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	loo, err := glm.LOO(ctx, post)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("effective parameters %.2f of %d\n", loo.Parameters, post.Dim())
	worst := slices.Index(loo.Influence, slices.Max(loo.Influence))
	fmt.Printf("row %d: leverage %.2f, moves the posterior by %.0f nats\n", worst, loo.Leverage[worst], loo.Influence[worst])
	// Output:
	// effective parameters 2.00 of 2
	// row 5: leverage 0.99, moves the posterior by 2 nats
}

// wave returns labels along a line that change their mind twice.
func wave() (*mat.Dense, []float64) {
	x, y := mat.NewDense(40, 1, nil), make([]float64, 40)
	for i := range y {
		at := float64(i) / 8
		x.Set(i, 0, at)
		y[i] = 1
		if math.Sin(2*at)+0.8*math.Sin(77*at) < 0 {
			y[i] = -1
		}
	}
	return x, y
}

// plants are leaf lengths in cm and heights in m of two kinds of plants.
const plants = `leaf,height,kind
4.9,1.2,elm
5.4,1.1,elm
6.1,1.6,elm
5.0,1.3,elm
5.2,1.4,elm
6.3,1.2,ash
7.1,1.7,ash
7.7,1.4,ash
5.8,1.5,elm
6.6,1.3,elm
8.2,1.5,ash
6.0,1.2,ash
7.4,1.1,ash
5.6,1.6,elm
7.9,1.3,ash
6.9,1.4,ash
5.1,1.5,elm
4.6,1.2,elm
`

// readPlants encodes plants, with leaf and height in their units.
func readPlants() (*data.Data, error) {
	t, err := data.Read(strings.NewReader(plants), "plants.csv")
	if err != nil {
		return nil, err
	}
	enc, err := t.Encoder(data.Outcome("kind").Positive("ash"), data.Raw())
	if err != nil {
		return nil, err
	}
	return enc.Data(t)
}

// From a table of text to a table of weights.
func ExampleGLMPosterior_Summary() {
	t, err := readPlants()
	if err != nil {
		log.Fatal(err)
	}
	glm, err := pgsvi.NewGLM(t.X, t.Y, pgsvi.BernoulliLogit{}, &pgsvi.GLMOptions{
		Intercept: true, PriorSD: 2.5, Autoscale: true, Names: t.Names,
	})
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(post.Summary())
	// Output:
	// BernoulliLogit, 18 rows, 3 weights, full covariance
	//                 mean      sd      2.5%   97.5%
	// (Intercept)  -9.787   5.533   -20.631   1.057
	// leaf          2.8840  0.8928    1.1341  4.6339 *
	// height       -6.156   3.961   -13.919   1.606
	// * zero is outside the interval from 2.5% to 97.5%
}

// A posterior on file predicts as it did before, and can be given more data.
func ExampleGLMPosterior_Save() {
	t, err := readPlants()
	if err != nil {
		log.Fatal(err)
	}
	glm, err := pgsvi.NewGLM(t.X, t.Y, pgsvi.BernoulliLogit{}, &pgsvi.GLMOptions{Intercept: true, Autoscale: true})
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer // or what os.Create returns
	if err := post.Save(&file); err != nil {
		log.Fatal(err)
	}
	loaded, err := pgsvi.Load[*pgsvi.GLMPosterior](&file)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(loaded.At(t.X).Prob(nil, +1)[0] == post.At(t.X).Prob(nil, +1)[0])
	more, err := loaded.Update(context.Background(), pgsvi.Rows(t.X, t.Y))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(loaded.Len(), "rows, then", more.Len())
	// Output:
	// true
	// 18 rows, then 36
}
