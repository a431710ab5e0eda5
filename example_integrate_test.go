package pgsvi_test

import (
	"context"
	"fmt"
	"log"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// Six schools hardly determine by how much schools differ. The fit therefore integrates over the
// standard deviation, and the prediction for a new school is less certain than at its best value,
// which NoPrior keeps.
func ExampleGroup_few() {
	const schools = 6
	rng := rand.New(rand.NewPCG(3, 4))
	x := pgsvi.NewSparse(schools + 1) // the last school is new
	var y []float64
	for s := range schools {
		level := 0.8 * rng.NormFloat64()
		for range 15 {
			x.Append([]int{s}, []float64{1})
			y = append(y, math.Copysign(1, 1/(1+math.Exp(-level))-rng.Float64()))
		}
	}
	next := pgsvi.NewSparse(schools + 1)
	next.Append([]int{schools}, []float64{1})
	for _, noPrior := range []bool{true, false} {
		g, err := pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{}, &pgsvi.GLMOptions{Intercept: true,
			Groups: []pgsvi.Group{{Levels: schools + 1, NoPrior: noPrior}}})
		if err != nil {
			log.Fatal(err)
		}
		post, _, err := g.Fit(context.Background(), nil)
		if err != nil {
			log.Fatal(err)
		}
		lo, hi, err := post.At(next).ProbInterval(nil, nil, +1, 0.9)
		if err != nil {
			log.Fatal(err)
		}
		e := post.Groups()[0].Effects[0]
		fmt.Printf("sd %.1f (%.1f to %.1f), new school: %.2f to %.2f\n", e.SD, e.Lo, e.Hi, lo[0], hi[0])
	}
	// Output:
	// sd 0.9 (0.4 to 2.2), new school: 0.20 to 0.87
	// sd 0.9 (0.3 to 2.7), new school: 0.12 to 0.93
}

// Twelve noisy rows hardly determine the hyperparameters of a Gaussian process. With Integrate the
// prediction mixes all values that the rows allow, so it is less certain than at the best values.
func ExampleLearnOptions_integrate() {
	rng := rand.New(rand.NewPCG(1, 2))
	x, y := mat.NewDense(12, 1, nil), make([]float64, 12)
	for i := range y {
		x.Set(i, 0, 4*rng.Float64())
		y[i] = math.Sin(2*x.At(i, 0)) + 0.4*rng.NormFloat64()
	}
	g, err := pgsvi.NewGP(x, y, pgsvi.SquaredExp{}, pgsvi.GaussianNoise{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, integrate := range []bool{false, true} {
		opt := &pgsvi.LearnOptions{Integrate: integrate}
		_, post, learned, err := g.Learn(context.Background(), nil, opt)
		if err != nil {
			log.Fatal(err)
		}
		length := learned.Params[1]
		fmt.Printf("length scale %.1f to %.1f\n", length.Lo, length.Hi)
		fmt.Println(post.At(mat.NewDense(1, 1, []float64{2.5})))
	}
	// Output:
	// length scale 0.3 to 1.8
	// -0.9 (-1.5 to -0.3), a new response -2.2 to 0.5
	// length scale 0.1 to 2.0
	// -0.7 (-1.5 to 0.1), a new response -2.3 to 1.2
}
