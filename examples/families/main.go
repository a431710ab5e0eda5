// Posteriors that are no Gaussians: the shape of a Gamma distribution under a Gamma q, a
// probability known by noisy logits under a Beta, and the proportions of topics in a document under
// a Dirichlet. None of them is conjugate. Each is fitted from its log-likelihood by the nil Solver,
// and held against quadrature.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mathext"
)

var (
	estimator = flag.String("estimator", "", "how expectations are estimated: empty from values alone, paths from gradients along draws")
	seed      = flag.Uint64("seed", 1, "of the draws")
)

// model is a log-likelihood with a prior, and the same over one dimension.
type model struct {
	name       string
	prior      *pgsvi.Exp
	lik        pgsvi.LogLik
	line       pgsvi.LogLik // over the first element of z
	linePrior  *pgsvi.Exp
	parameters func(eta []float64) string
}

func main() {
	flag.Parse()
	var e pgsvi.Estimator
	switch *estimator {
	case "":
	case "paths":
		e = pgsvi.Pathwise{}
	default:
		log.Fatalf("-estimator %s: leave it out, or paths", *estimator)
	}
	ctx := context.Background()
	last, passes := "", 0.0
	for _, m := range []model{gammaShape(), betaLogit(), document()} {
		o := pgsvi.Objective[*pgsvi.Exp]{F: pgsvi.Expect(m.lik, e), H: pgsvi.KLTo(m.prior), Init: m.prior}
		q, res, err := o.Fit(ctx, &pgsvi.Solver{Src: rand.NewPCG(*seed, 1)})
		if err != nil {
			log.Fatal(err)
		}
		o = pgsvi.Objective[*pgsvi.Exp]{F: pgsvi.Expect(m.line, pgsvi.Exact{}), H: pgsvi.KLTo(m.linePrior), Init: m.linePrior}
		best, exact, err := o.Fit(ctx, nil)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%-9s %-26s by quadrature %-26s ELBO %.6f ± %.1g, %.1g nats from the best; %v passes\n", m.name,
			m.parameters(q.Natural(nil)), m.parameters(best.Natural(nil)), res.ELBO, res.ELBOErr, math.Abs(exact.ELBO-res.ELBO), res.Passes)
		last += fmt.Sprintf("%s=%.6f ", m.name, res.ELBO)
		passes = math.Max(passes, res.Passes)
	}
	fmt.Printf("%spasses=%v\n", last, passes)
}

// gammaShape is the shape of twenty numbers from a Gamma distribution of rate 1, of which only the
// sum of the logarithms counts. The sum of the numbers, a constant, is left out.
func gammaShape() model {
	const n, sumLog = 20, 12.193990113264
	l := pgsvi.LogLik{N: 1, Dim: 1, LogProb: func(_ int, z []float64) float64 {
		lg, _ := math.Lgamma(z[0])
		return (z[0]-1)*sumLog - n*lg
	}, Grad: func(dst []float64, _ int, z []float64) {
		dst[0] += sumLog - n*mathext.Digamma(z[0])
	}}
	prior := must(pgsvi.NewGamma(1, 0.5))
	return model{"gamma", prior, l, l, prior, func(eta []float64) string { return fmt.Sprintf("Gamma(%.4g, %.4g)", eta[0], -eta[1]) }}
}

// betaLogit is a probability whose logit was measured five times with noise of variance 1.
func betaLogit() model {
	y := []float64{0.4, 1.3, 2.2, 0.9, 1.6}
	l := pgsvi.LogLik{N: len(y), Dim: 1, LogProb: func(n int, z []float64) float64 {
		r := y[n] - math.Log(z[0]/(1-z[0]))
		return -0.5*r*r - 0.5*math.Log(2*math.Pi)
	}, Grad: func(dst []float64, n int, z []float64) {
		dst[0] += (y[n] - math.Log(z[0]/(1-z[0]))) / (z[0] * (1 - z[0]))
	}}
	prior := must(pgsvi.NewBeta(1, 1))
	return model{"beta", prior, l, l, prior, func(eta []float64) string { return fmt.Sprintf("Beta(%.4g, %.4g)", eta[0], eta[1]) }}
}

// document is one of 53 words in two topics over a vocabulary of three.
func document() model {
	counts := []float64{50, 2, 1}
	topics := [2][3]float64{{.6, .3, .1}, {.1, .3, .6}}
	of := func(dim int) pgsvi.LogLik {
		word := func(v int, z []float64) float64 {
			rest := 1 - z[0]
			if dim == 2 {
				rest = z[1]
			}
			return z[0]*topics[0][v] + rest*topics[1][v]
		}
		return pgsvi.LogLik{N: len(counts), Dim: dim, LogProb: func(v int, z []float64) float64 {
			return counts[v] * math.Log(word(v, z))
		}, Grad: func(dst []float64, v int, z []float64) {
			for k := range dst {
				slope := topics[k][v]
				if dim == 1 {
					slope -= topics[1][v]
				}
				dst[k] += counts[v] * slope / word(v, z)
			}
		}}
	}
	const alpha = 0.3
	return model{"dirichlet", must(pgsvi.NewDirichlet([]float64{alpha, alpha})), of(2), of(1), must(pgsvi.NewBeta(alpha, alpha)),
		func(eta []float64) string { return fmt.Sprintf("Dirichlet(%.4g, %.4g)", eta[0], eta[1]) }}
}

func must(q *pgsvi.Exp, err error) *pgsvi.Exp {
	if err != nil {
		log.Fatal(err)
	}
	return q
}
