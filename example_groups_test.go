package pgsvi_test

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi"
)

// This example fits y ~ dose + (1 + dose | patient): the intercept and the effect of the dose vary
// between 50 patients.
func ExampleGroup() {
	const patients = 50
	rng := rand.New(rand.NewPCG(1, 2))
	x := pgsvi.NewSparse(1 + 2*(patients+1)) // the last patient is new
	var y []float64
	for p := range patients {
		level, slope := 0.8*rng.NormFloat64(), 1+0.5*rng.NormFloat64()
		for range 8 {
			dose := rng.Float64()
			first := 1 + 2*p
			x.Append([]int{0, first, first + 1}, []float64{dose, 1, dose})
			y = append(y, 2+level+slope*dose+0.3*rng.NormFloat64())
		}
	}
	g, err := pgsvi.NewGLM(x, y, nil, &pgsvi.GLMOptions{
		Intercept: true, PriorSD: 10,
		Groups: []pgsvi.Group{{Name: "patient", First: 1, Levels: patients + 1,
			Effects: []string{"(Intercept)", "dose"}}},
		Learn: &pgsvi.LearnOptions{},
	})
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := g.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range post.Groups()[0].Effects {
		fmt.Printf("%s varies by %.1f between patients\n", e.Name, e.SD)
	}
	next := pgsvi.NewSparse(post.Cols())
	next.Append([]int{0, 1 + 2*patients, 2 + 2*patients}, []float64{0.5, 1, 0.5})
	mean, variance := post.Latent(nil, nil, next)
	fmt.Printf("a new patient at dose 0.5: %.1f, variance %.1f\n", mean[0], variance[0])
	// Output:
	// (Intercept) varies by 0.7 between patients
	// dose varies by 0.5 between patients
	// a new patient at dose 0.5: 2.5, variance 0.6
}
