// How do I fit my own model from its log-likelihood alone, without derivatives?
//
// Data: 100 generated points of a decay curve with Student-t noise, y = a exp(-t/tau) + c + noise.
// The program prints the posterior of (a, log tau, c) next to the estimates of importance sampling,
// which share only the log-likelihood and the prior with the fit. It draws the curve with its 95%
// band.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/plot"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

var (
	out  = flag.String("out", "pictures/custom.png", "picture to write")
	seed = flag.Uint64("seed", 1, "seed of the data and of the draws")
)

const scale = 0.2 // the scale of the noise

// curve is the mean of an observation at time t, for z = (a, log tau, c).
func curve(z []float64, t float64) float64 { return z[0]*math.Exp(-t*math.Exp(-z[1])) + z[2] }

func main() {
	flag.Parse()
	ctx := context.Background()
	truth := []float64{3, math.Log(2), 0.5}
	rng := rand.New(rand.NewPCG(*seed, 0))
	t, y := make([]float64, 100), make([]float64, 100)
	noise := distuv.StudentsT{Sigma: scale, Nu: 4, Src: rng}
	for i := range t {
		t[i] = 10 * rng.Float64()
		y[i] = curve(truth, t[i]) + noise.Rand()
	}

	// The model consists of a log-likelihood and a prior. Keep the constants of both if you compare
	// the ELBO with the ELBO of another model.
	loglik := pgsvi.LogLik{N: len(y), Dim: 3, LogProb: func(n int, z []float64) float64 {
		return distuv.StudentsT{Mu: curve(z, t[n]), Sigma: scale, Nu: 4}.LogProb(y[n])
	}}
	prior := pgsvi.NewIsotropic(3, 25)
	model := pgsvi.Objective[*pgsvi.Gaussian]{
		F:    pgsvi.Expect(loglik, pgsvi.ScoreFunction(200)),
		H:    pgsvi.KLTo(prior),
		Init: pgsvi.NewIsotropic(3, 0.1),
	}
	q, res, err := model.Fit(ctx, &pgsvi.Solver{BatchSize: 50})
	check(err)
	fmt.Println(res)

	psis, err := model.PSIS(ctx, pgsvi.NewEnv(rng, 1), q, 20000)
	check(err)
	fmt.Printf("%v\n\n          truth     posterior         importance sampling\n", psis)
	mean, variance := q.Mean(nil), q.Var(nil)
	for i, name := range []string{"a", "log tau", "c"} {
		fmt.Printf("%-8s  %.3f  %.4f ± %.4f     %.4f ± %.4f\n", name, truth[i],
			mean[i], math.Sqrt(variance[i]), psis.Mean[i], psis.SD[i])
	}

	// The band holds 95% of the curves of 2000 draws of z.
	grid := floats.Span(make([]float64, 200), 0, 10)
	draws := make([][]float64, 2000)
	for i := range draws {
		draws[i] = q.Rand(nil, rng)
	}
	fit := plot.Series{Name: "posterior, 95%", X: grid}
	known := plot.Series{Name: "truth", X: grid, Look: plot.Dashes}
	for _, at := range grid {
		values := make([]float64, len(draws))
		for i, z := range draws {
			values[i] = curve(z, at)
		}
		slices.Sort(values)
		fit.Y, known.Y = append(fit.Y, stat.Mean(values, nil)), append(known.Y, curve(truth, at))
		fit.Lo, fit.Hi = append(fit.Lo, values[50]), append(fit.Hi, values[1949])
	}
	fmt.Println("\nwrote", *out)
	labels := plot.Labels{Title: "Decay with Student-t noise (generated data)", X: "time", Y: "y"}
	points := plot.Series{Name: "data", X: t, Y: y, Look: plot.Points}
	check(plot.Save(*out, plot.Bands(labels, fit, known, points), 0))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
