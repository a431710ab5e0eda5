package pgsvi_test

import (
	"context"
	"fmt"
	"log"
	"math"
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

// This example fits a mixed model to rows that are not kept in memory. The rows are generated here; use
// a data.RowFile for rows of a file.
func ExampleNewGLMRows_groups() {
	const shops = 2000
	rows := func(yield func(pgsvi.Row, error) bool) { // yields the same rows every time
		rng := rand.New(rand.NewPCG(1, 2))
		effects := make([]float64, shops)
		for g := range effects {
			effects[g] = 0.5 * rng.NormFloat64()
		}
		for i := range 20_000 {
			price, shop := rng.NormFloat64(), i%shops
			y := -1.0 // not sold
			if rng.Float64() < 1/(1+math.Exp(price-effects[shop])) {
				y = 1
			}
			if !yield(pgsvi.Row{Ind: []int{0, 1 + shop}, Val: []float64{price, 1}, Y: y}, nil) {
				return
			}
		}
	}
	glm, err := pgsvi.NewGLMRows(context.Background(), rows, 1+shops, pgsvi.BernoulliLogit{},
		&pgsvi.GLMOptions{Intercept: true, Groups: []pgsvi.Group{{Name: "shop", First: 1,
			Levels: shops}}})
	if err != nil {
		log.Fatal(err)
	}
	post, res, err := glm.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	e := post.Groups()[0].Effects[0]
	fmt.Printf("shops differ by %.2f (%.2f to %.2f), effect of the price %.2f, %v\n", e.SD, e.Lo, e.Hi,
		post.Mean(nil)[0], res.Status)
	// Output:
	// shops differ by 0.49 (0.44 to 0.54), effect of the price -0.97, converged
}

// This example learns y ~ x + (1 | shop) from labels that arrive in batches. Each batch has rows of
// known shops and of new ones.
func ExampleNewGLMStream_groups() {
	const most, first = 1000, 1 // shops that may occur; the shops have the columns from 1 on
	stream, err := pgsvi.NewGLMStream(first+most, pgsvi.BernoulliLogit{}, &pgsvi.GLMOptions{
		Intercept: true,
		Groups:    []pgsvi.Group{{Name: "shop", First: first, Levels: most}},
	})
	if err != nil {
		log.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	effects := make([]float64, most)
	for shop := range effects {
		effects[shop] = 0.8 * rng.NormFloat64()
	}
	for batch := range 3 {
		shops := 300 * (batch + 1)
		for range 5000 {
			x, shop, y := rng.NormFloat64(), rng.IntN(shops), -1.0
			if rng.Float64() < 1/(1+math.Exp(0.5-x-effects[shop])) {
				y = 1
			}
			row := pgsvi.Row{Ind: []int{0, first + shop}, Val: []float64{x, 1}, Y: y}
			if err := stream.Add(row); err != nil {
				log.Fatal(err)
			}
		}
		post, err := stream.Posterior()
		if err != nil {
			log.Fatal(err)
		}
		g := post.Groups()[0]
		fmt.Printf("%d rows, %d shops: sd between shops %.2f, shop 0: %.1f ± %.1f\n", post.Len(), g.Known,
			g.Effects[0].SD, g.Mean.At(0, 0), g.SD.At(0, 0))
	}
	// Output:
	// 5000 rows, 300 shops: sd between shops 0.74, shop 0: 0.1 ± 0.5
	// 10000 rows, 600 shops: sd between shops 0.77, shop 0: 0.2 ± 0.4
	// 15000 rows, 898 shops: sd between shops 0.78, shop 0: 0.4 ± 0.4
}
