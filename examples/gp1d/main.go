// How do I fit counts that change over time, or measurements with outliers?
//
// Data: two generated sets with known truth. One has the accidents in each of 110 years. The other
// has 80 measurements of a curve, and every sixth measurement is an outlier.
// The program fits a Poisson rate to the counts, and Student-t and Gaussian noise to the
// measurements. It prints how far each mean is from the truth, and draws the 95% bands.
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
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

var (
	out  = flag.String("out", "pictures/gp1d.png", "picture to write")
	seed = flag.Uint64("seed", 1, "seed of the data")
)

// rate and curve are the truth: the accidents per year, and the measured function.
func rate(year float64) float64 {
	return 0.8 + 2.6/(1+math.Exp((year-1892)/4)) + 0.9*math.Exp(-math.Pow((year-1935)/9, 2)/2)
}
func curve(x float64) float64 { return math.Sin(x) + 0.3*x }

// learn fits a GP with one input, learns its hyperparameters, and predicts at the grid.
func learn(x, y []float64, k pgsvi.Kernel, lik pgsvi.Likelihood, grid []float64) *pgsvi.Prediction {
	gp, err := pgsvi.NewGP(mat.NewDense(len(x), 1, x), y, k, lik, nil)
	check(err)
	_, post, learned, err := gp.Learn(context.Background(), nil, nil)
	check(err)
	fmt.Printf("%T: %v\n", lik, learned.Fit)
	return post.At(mat.NewDense(len(grid), 1, grid))
}

func truth(f func(float64) float64, grid []float64, s plot.Series) plot.Series {
	t := plot.Series{Name: "truth", X: grid, Y: grid, Look: plot.Dashes}.Map(f)
	distance := floats.Distance(s.Y, t.Y, 2) / math.Sqrt(float64(len(grid)))
	fmt.Printf("  root mean square distance from the truth %.3f\n", distance)
	return t
}

func main() {
	flag.Parse()
	rng := rand.New(rand.NewPCG(*seed, 1))
	years := floats.Span(make([]float64, 110), 1851, 1960)
	counts := make([]float64, len(years))
	for i, year := range years {
		counts[i] = distuv.Poisson{Lambda: rate(year), Src: rng}.Rand()
	}
	grid := floats.Span(make([]float64, 400), 1846, 1965)
	// The log rate is a constant plus a smooth function of the year.
	kernel := pgsvi.Sum{pgsvi.Constant{Scale: 1}, pgsvi.Matern52{Scale: 1, Length: 20}}
	at := learn(years, counts, kernel, pgsvi.Poisson{}, grid)
	accidents := plot.Latent("rate, 95%", grid, at).Map(math.Exp)
	labels := plot.Labels{Title: "Counts (generated data)", X: "year", Y: "accidents per year"}
	top := plot.Bands(labels, accidents, truth(rate, grid, accidents),
		plot.Series{Name: "counted", X: years, Y: counts, Look: plot.Points})

	x, y := make([]float64, 80), make([]float64, 80)
	for i := range x {
		x[i] = 10 * rng.Float64()
		y[i] = curve(x[i]) + 0.15*rng.NormFloat64()
		if i%6 == 0 {
			y[i] += 2.5 * rng.NormFloat64()
		}
	}
	line := floats.Span(make([]float64, 300), 0, 10)
	fits := []plot.Series{{Name: "measured", X: x, Y: y, Look: plot.Points}}
	for i, lik := range []pgsvi.Likelihood{pgsvi.StudentT{DF: 3, Scale: 0.2}, pgsvi.GaussianNoise{}} {
		at := learn(x, y, pgsvi.SquaredExp{}, lik, line)
		s := plot.Latent([]string{"Student-t, 95%", "Gaussian, 95%"}[i], line, at)
		fits = append(fits, s, truth(curve, line, s))
	}
	labels = plot.Labels{Title: "Outliers (generated data)", X: "x", Y: "y"}
	bottom := plot.Bands(labels, fits[:4]...)
	fmt.Println("wrote", *out)
	check(plot.Save(*out, plot.Stack(top, bottom), 18))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
