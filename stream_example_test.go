package pgsvi_test

import (
	"bytes"
	"context"
	"fmt"
	"log"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// A stream that was saved goes on, in another program or on another day, as if nothing had happened.
func ExampleLoadGLMStream() {
	ctx := context.Background()
	monday := pgsvi.Rows(mat.NewDense(3, 1, []float64{-2, 0.5, 1}), []float64{-1, -1, 1})
	tuesday := pgsvi.Rows(mat.NewDense(2, 1, []float64{-1, 2}), []float64{-1, 1})

	s, err := pgsvi.NewGLMStream(1, pgsvi.BernoulliLogit{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := s.AddAll(ctx, monday); err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer // or a file
	if err := s.Save(&file); err != nil {
		log.Fatal(err)
	}

	s, err = pgsvi.LoadGLMStream(&file)
	if err != nil {
		log.Fatal(err)
	}
	if err := s.AddAll(ctx, tuesday); err != nil {
		log.Fatal(err)
	}
	post, err := s.Posterior()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d rows, weight %.2f ± %.2f\n", post.Len(), post.Mean(nil)[0], post.SD(nil)[0])
	// Output:
	// 5 rows, weight 0.98 ± 0.65
}
