// How does a Gaussian process learn its hyperparameters, and what comes next in my time series?
//
// Data: monthly means of carbon dioxide in the air on Mauna Loa, 1959 to 1997 (C. D. Keeling and
// T. P. Whorf, Scripps Institution of Oceanography). The model learns from the years up to 1987.
// The program prints the hyperparameters with 95% intervals and the score of the forecast for the
// next ten years. It draws the forecast, and the trend and the season separately.
// To use your own data, with a time and a value in each row: -data FILE.csv
package main

import (
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/plot"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

//go:embed co2.csv
var co2 []byte

var (
	file = flag.String("data", "", "CSV `file` of times and values")
	from = flag.Float64("forecast", 1988, "time at which the forecast starts")
	out  = flag.String("out", "pictures/co2.png", "picture to write; a second file has the parts")
)

// column returns a matrix with one column, the inputs of a function of one variable.
func column(x []float64) *mat.Dense { return mat.NewDense(len(x), 1, x) }

func main() {
	flag.Parse()
	ctx := context.Background()
	if *file != "" {
		text, err := os.ReadFile(*file)
		check(err)
		co2 = text
	}
	x, y, err := data.ReadCSV(bytes.NewReader(co2))
	check(err)
	t := mat.Col(nil, 0, x)
	n, _ := slices.BinarySearch(t, *from) // rows to learn from
	mean := stat.Mean(y[:n], nil)
	floats.AddConst(-mean, y) // the prior mean is 0

	// The terms are a trend, a season that changes slowly, and variation over years and over
	// months. Learn starts its search from these values.
	kernel := pgsvi.Sum{
		pgsvi.SquaredExp{Scale: 50, Length: 50},
		pgsvi.Product{pgsvi.SquaredExp{Scale: 3, Length: 50}, pgsvi.Periodic{Length: 1, Period: 1}},
		pgsvi.RationalQuadratic{Scale: 0.5, Length: 1},
		pgsvi.SquaredExp{Scale: 0.2, Length: 0.1},
	}
	gp, err := pgsvi.NewGP(column(t[:n]), y[:n], kernel, pgsvi.GaussianNoise{Var: 0.05}, nil)
	check(err)
	opt := &pgsvi.LearnOptions{Fixed: []string{"Sum[1].Product[1].Periodic.Period"}}
	_, post, learned, err := gp.Learn(ctx, nil, opt)
	check(err)
	score := -stat.Mean(post.At(column(t[n:])).LogProb(nil, y[n:]), nil)
	fmt.Printf("%v\nforecast of %d rows: %.3f nats per row\n", learned, len(t)-n, score)

	// The picture shows the last 96 training months, and two years after the last measurement.
	floats.AddConst(mean, y)
	first := max(0, n-96)
	months := floats.Span(make([]float64, 800), t[first], t[len(t)-1]+2)
	forecast, err := plot.Response("fit and forecast, 95%", months, post.At(column(months)))
	check(err)
	trend := plot.Latent("trend", months, post.Part(0, column(months)))
	season := plot.Latent("season", months, post.Part(1, column(months)))
	labels := plot.Labels{X: "year", Y: "CO2 (ppm)"}
	parts := plot.Components(labels, trend.Shift(mean), season)
	labels.Title = "Carbon dioxide on Mauna Loa: ten years forecast"
	picture := plot.Bands(labels, forecast.Shift(mean),
		plot.Series{Name: "learned from", X: t[first:n], Y: y[first:n], Look: plot.Points},
		plot.Series{Name: "measured later", X: t[n:], Y: y[n:], Look: plot.Points})
	second := strings.TrimSuffix(*out, ".png") + "-parts.png"
	fmt.Println("wrote", *out, "and", second)
	check(plot.Save(*out, picture, 0))
	check(plot.Save(second, parts, 12))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
