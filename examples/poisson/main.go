// My counts have an exposure and vary a lot: how do I model them?
//
// Data: generated claims of 20,000 car insurance policies, each in force for a part of a year. Each
// policy has its own rate, so counts vary more than a Poisson distribution allows.
// The program fits a Poisson and a negative binomial regression, and compares them by leave-one-out
// cross-validation. It draws both with the truth: the Poisson intervals are too narrow.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/plot"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

var policies = flag.Int("policies", 20000, "number of policies")
var out = flag.String("out", "pictures/poisson.png", "picture to write")

// truth has the weights of the log rate. The reference region is east.
var truth = map[string]float64{
	"(Intercept)": 0.5, "region=north": -0.4, "region=south": 0.1, "region=west": 0.5, "age": -0.025}

// rate returns the true number of claims per year.
func rate(region string, age float64) float64 {
	return math.Exp(truth["(Intercept)"] + truth["region="+region] + truth["age"]*age)
}

func main() {
	flag.Parse()
	ctx, rng := context.Background(), rand.New(rand.NewPCG(1, 0))
	var file strings.Builder
	fmt.Fprintln(&file, "region,age,years,claims")
	for range *policies {
		region := []string{"east", "north", "south", "west"}[rng.IntN(4)]
		age, years := math.Floor(18+62*math.Pow(rng.Float64(), 1.3)), 0.05+0.95*rng.Float64()
		luck := distuv.Gamma{Alpha: 0.5, Beta: 0.5, Src: rng}.Rand()
		claims := distuv.Poisson{Lambda: years * luck * rate(region, age), Src: rng}.Rand()
		fmt.Fprintf(&file, "%s,%v,%.3f,%v\n", region, age, years, claims)
	}
	table, err := data.Read(strings.NewReader(file.String()), "generated.csv")
	check(err)
	// The log of the exposure becomes the offset. Raw keeps numbers in their units.
	encoder, err := table.Encoder(data.Raw(), data.Outcome("claims").Quantity(),
		data.Exposure("years"), data.Category("region").Reference("east"))
	check(err)
	d, err := encoder.Data(table)
	check(err)
	ages := floats.Span(make([]float64, 63), 18, 80)
	known := plot.Series{Name: "truth", X: ages, Look: plot.Dashes}
	grid := mat.NewDense(len(ages), len(d.Names), nil)
	for i, age := range ages {
		row, err := encoder.Row(map[string]any{"region": "west", "age": age, "years": 1})
		check(err)
		grid.SetRow(i, row.X)
		known.Y = append(known.Y, rate("west", age))
	}
	curves, summaries, loos := []plot.Series{known}, []*pgsvi.Summary{}, []*pgsvi.LOO{}
	for _, lik := range []pgsvi.Likelihood{pgsvi.Poisson{}, pgsvi.NegativeBinomial{}} {
		opt := &pgsvi.GLMOptions{Intercept: true, Offset: d.Offset, Names: d.Names}
		glm, err := pgsvi.NewGLM(d.X, d.Y, lik, opt)
		check(err)
		glm, post, learned, err := glm.Learn(ctx, nil, nil) // prior scale and shape
		check(err)
		loo, err := glm.LOO(ctx, post)
		check(err)
		s, name := post.Summary(), strings.TrimPrefix(fmt.Sprintf("%T", lik), "pgsvi.")
		fmt.Printf("%v\n%v\n", learned, s)
		s.Likelihood, loo.Name = name, name
		summaries, loos = append(summaries, s), append(loos, loo)
		curves = append(curves, plot.Latent(name+", 95%", ages, post.At(grid)).Map(math.Exp))
	}
	exact := &pgsvi.Summary{Likelihood: "truth"}
	for _, r := range summaries[0].Rows {
		r.Mean, r.Lo, r.Hi = truth[r.Name], truth[r.Name], truth[r.Name]
		exact.Rows = append(exact.Rows, r)
	}
	comparison, err := pgsvi.CompareLOO(loos[0], loos[1])
	check(err)
	fmt.Printf("%v\nwrote %v\n", comparison, *out)
	labels := plot.Labels{Title: "Weights of the log rate (generated data)"}
	above := plot.Coefficients(labels, append(summaries, exact)...)
	labels = plot.Labels{Title: "The west (generated data)", X: "age (years)", Y: "claims per year"}
	check(plot.Save(*out, plot.Stack(above, plot.Bands(labels, curves...)), 20))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
