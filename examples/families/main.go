// What if my posterior is not Gaussian, because z is a shape, a probability or a proportion?
//
// Data: three small generated sets, which are the sum of the logarithms of twenty Gamma numbers, a
// logit measured five times, and the words of a document.
// The program fits a Gamma, a Beta and a Dirichlet posterior, each to a log-likelihood to which it
// is not conjugate. It prints them and draws the densities next to the exact posteriors.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/plot"
	"gonum.org/v1/gonum/floats"
	gonum "gonum.org/v1/plot"
)

var (
	out  = flag.String("out", "pictures/families.png", "picture to write")
	seed = flag.Uint64("seed", 1, "seed of the draws")
)

type problem struct {
	name, input string
	from, to    float64 // the range to draw
	prior       *pgsvi.Exp
	loglik      pgsvi.LogLik
}

var (
	sumLog = 12.193990113264                                 // the sum over twenty numbers
	logits = []float64{0.4, 1.3, 2.2, 0.9, 1.6}              // measured with noise of variance 1
	counts = []float64{25, 12, 16}                           // the counts of three words
	topics = [2][3]float64{{0.6, 0.3, 0.1}, {0.1, 0.3, 0.6}} // probabilities of the words
)

var problems = []problem{
	{"Gamma", "shape of a Gamma distribution", 1, 4, must(pgsvi.NewGamma(1, 0.5)),
		pgsvi.LogLik{N: 1, Dim: 1, LogProb: func(_ int, z []float64) float64 {
			lgamma, _ := math.Lgamma(z[0])
			return (z[0]-1)*sumLog - 20*lgamma
		}}},
	{"Beta", "probability whose logit was measured", 0.4, 1, must(pgsvi.NewBeta(1, 1)),
		pgsvi.LogLik{N: len(logits), Dim: 1, LogProb: func(n int, z []float64) float64 {
			r := logits[n] - math.Log(z[0]/(1-z[0]))
			return -0.5*r*r - 0.5*math.Log(2*math.Pi)
		}}},
	{"Dirichlet", "share of the first topic", 0, 1, must(pgsvi.NewDirichlet([]float64{1, 1})),
		pgsvi.LogLik{N: len(counts), Dim: 2, LogProb: func(n int, z []float64) float64 {
			return counts[n] * math.Log(z[0]*topics[0][n]+z[1]*topics[1][n])
		}}},
}

func (p problem) exact(grid []float64) plot.Series {
	s, all := plot.Series{Name: "exact", X: grid, Look: plot.Dashes}, p.loglik.Batch(nil)
	for _, x := range grid {
		z := []float64{x, 1 - x}[:p.loglik.Dim]
		s.Y = append(s.Y, all.LogProb(z)+p.prior.LogProb(z))
	}
	norm := floats.LogSumExp(s.Y) + math.Log(grid[1]-grid[0])
	return s.Map(func(l float64) float64 { return math.Exp(l - norm) })
}

func main() {
	flag.Parse()
	ctx := context.Background()
	var panels []*gonum.Plot
	for _, p := range problems {
		model := pgsvi.Objective[*pgsvi.Exp]{
			F: pgsvi.Expect(p.loglik, nil), H: pgsvi.KLTo(p.prior), Init: p.prior}
		q, res, err := model.Fit(ctx, &pgsvi.Solver{Src: rand.NewPCG(*seed, 1)})
		check(err)
		fmt.Printf("%-9s η = %.4g, %v\n", p.name, q.Natural(nil), res)
		grid := floats.Span(make([]float64, 4000), p.from+1e-6, p.to-1e-6)
		fit := plot.Series{Name: p.name + ", fitted", X: grid}
		for _, x := range grid {
			fit.Y = append(fit.Y, math.Exp(q.LogProb([]float64{x, 1 - x}[:p.loglik.Dim])))
		}
		labels := plot.Labels{Title: "Generated data: " + p.input, X: p.input, Y: "density"}
		panels = append(panels, plot.Bands(labels, fit, p.exact(grid)))
	}
	fmt.Println("wrote", *out)
	check(plot.Save(*out, plot.Stack(panels...), 24))
}

func must(q *pgsvi.Exp, err error) *pgsvi.Exp {
	check(err)
	return q
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
