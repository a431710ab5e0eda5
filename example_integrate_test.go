package pgsvi_test

import (
	"context"
	"fmt"
	"log"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi"
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
	// sd 0.9 (0.3 to 3.0), new school: 0.20 to 0.87
	// sd 0.9 (0.3 to 2.7), new school: 0.11 to 0.93
}
