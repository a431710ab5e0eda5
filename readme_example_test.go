package pgsvi_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/mat"
)

// The examples of this file are those of the README, whose code is theirs.

var ctx = context.Background()

// Weights with their uncertainty, for the price of a point estimate.
func ExampleNewGLM() {
	x := mat.NewDense(8, 1, []float64{0, 1, 1.5, 2, 3, 3.5, 4, 5})
	y := []float64{-1, -1, 1, -1, 1, -1, 1, 1}
	glm, err := pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{}, &pgsvi.GLMOptions{Intercept: true, Names: []string{"dose"}})
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := glm.Fit(ctx, nil) // no step size, no batch size, nothing to tune
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v %.2f ± %.2f\n", post.Names(), post.Mean(nil), post.SD(nil)) // post.Summary() is a table
	fmt.Printf("P(y = +1 at a dose of 4) = %.2f\n", post.Prob(nil, +1, mat.NewDense(1, 1, []float64{4}))[0])
	// Output:
	// [dose (Intercept)] [0.81 -2.02] ± [0.52 1.55]
	// P(y = +1 at a dose of 4) = 0.73
}

// Labels at points, by a Gaussian process.
func ExampleNewGP() {
	x := mat.NewDense(6, 1, []float64{-3, -2, -1, 1, 2, 3})
	y := []float64{-1, -1, 1, -1, 1, 1}
	gp, err := pgsvi.NewGP(x, y, pgsvi.SquaredExp{Scale: 2, Length: 1.5}, pgsvi.BernoulliLogit{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	post, res, err := gp.Fit(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ELBO %.4f, proved to be within 1e-9 nats of its maximum: %v\n", res.ELBO, res.GapBound < 1e-9)
	fmt.Printf("P(y = +1 at 2.5) = %.3f\n", post.Prob(nil, +1, mat.NewDense(1, 1, []float64{2.5}))[0])
	// Output:
	// ELBO -4.6718, proved to be within 1e-9 nats of its maximum: true
	// P(y = +1 at 2.5) = 0.710
}

// Topics of documents, and which go together.
func ExampleNewCTM() {
	var b data.CorpusBuilder
	for _, text := range []string{"the cat and the dog", "a dog and a bird", "stocks and bonds fell", "bonds rose, stocks fell"} {
		b.Add("", strings.Repeat(text+" ", 5))
	}
	corpus, _ := b.Corpus()
	ctm, err := pgsvi.NewCTM(corpus, 2, nil)
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := ctm.Fit(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	words, _ := pgsvi.TopWords(post.Topics(), corpus, 3, pgsvi.ByProbability)
	fmt.Printf("%v\n%.1f\n", words, mat.Formatted(post.DocTopics()))
	// Output:
	// [[bonds fell stocks] [dog bird cat]]
	// ⎡0.1  0.9⎤
	// ⎢0.1  0.9⎥
	// ⎢0.9  0.1⎥
	// ⎣0.9  0.1⎦
}

// What is to be believed of a posterior.
func ExampleGLM_PSIS_trust() {
	x := mat.NewDense(8, 1, []float64{0, 1, 1.5, 2, 3, 3.5, 4, 5})
	y := []float64{-1, -1, 1, -1, 1, -1, 1, 1}
	glm, err := pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{}, &pgsvi.GLMOptions{Intercept: true, Names: []string{"dose"}})
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := glm.Fit(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	psis, err := glm.PSIS(ctx, nil, post, 0) // draws of q, weighted by p(y, w)/q(w)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(psis)
	// Output:
	// k̂ = 0.48 from 2200 draws, which are worth 2077: log evidence -7.6171 ± 0.0052
}

// The code of the README is that of these examples.
func TestREADME(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("readme_example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	code, blocks := squeeze(string(source)), 0
	for rest := string(readme); ; {
		_, after, ok := strings.Cut(rest, "```go\n")
		if !ok {
			break
		}
		block, more, _ := strings.Cut(after, "```")
		if rest = more; !strings.Contains(code, squeeze(block)) {
			t.Errorf("not in the examples:\n%s", block)
		}
		blocks++
	}
	if blocks != 3 {
		t.Errorf("%d blocks of Go, want 3", blocks)
	}
	if lines := strings.Count(string(readme), "\n"); lines > 120 {
		t.Errorf("README.md has %d lines, at most 120", lines)
	}
}
