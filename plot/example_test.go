package plot_test

import (
	"context"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/plot"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// A Poisson rate that changes over time, with its 95% band and the counts.
func ExampleBands() {
	years := []float64{1851, 1852, 1853, 1854, 1855, 1856, 1857, 1858}
	counts := []float64{4, 5, 4, 1, 0, 4, 3, 4}
	kernel := pgsvi.Sum{pgsvi.Constant{Scale: 1}, pgsvi.Matern52{Scale: 1, Length: 3}}
	gp, err := pgsvi.NewGP(mat.NewDense(8, 1, years), counts, kernel, pgsvi.Poisson{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := gp.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}

	at := floats.Span(make([]float64, 200), 1850, 1860)
	logRate := plot.Latent("rate", at, post.At(mat.NewDense(200, 1, at)))
	p := plot.Bands(plot.Labels{Title: "Accidents", X: "year", Y: "accidents a year"},
		logRate.Map(math.Exp), plot.Series{Name: "counted", X: years, Y: counts, Look: plot.Points})

	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	fmt.Println(plot.Save(filepath.Join(dir, "accidents.svg"), p, 0), p.X.Min, p.X.Max)
	// Output: <nil> 1850 1860
}

// The weights of a regression and the steps of its fit.
func ExampleCoefficients() {
	x := mat.NewDense(8, 1, []float64{0, 1, 1.5, 2, 3, 3.5, 4, 5})
	y := []float64{-1, -1, 1, -1, 1, -1, 1, 1}
	glm, err := pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{},
		&pgsvi.GLMOptions{Intercept: true, Names: []string{"dose"}})
	if err != nil {
		log.Fatal(err)
	}
	post, res, err := glm.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	weights := plot.Coefficients(plot.Labels{Title: "Log odds"}, post.Summary())
	steps := plot.Trace(plot.Labels{Title: "Convergence"}, res.ELBO, plot.Run{Trace: res.Trace})
	both := plot.Stack(weights, steps) // one picture
	fmt.Println(weights.Y.Tick.Marker.Ticks(0, 1)[1].Label, steps.X.Max == res.Passes,
		both.Title.Text == "")
	// Output: dose true true
}

// Independent topics have no links, although their shares are negatively correlated.
func ExampleTopicLinks() {
	sigma := mat.NewDiagDense(4, []float64{1, 2, 1, 3})
	links := plot.TopicLinks(sigma)
	fmt.Println(math.Abs(links.At(0, 1)) < 1e-12)
	// Output: true
}

// The effects of three shops, such as GLMPosterior.Groups returns.
func ExampleGroups() {
	g := &pgsvi.GroupSummary{Name: "shop", Levels: 3,
		Effects: []pgsvi.GroupEffect{{Name: "(Intercept)", SD: 0.8, Lo: 0.4, Hi: 1.6}},
		Mean:    mat.NewDense(3, 1, []float64{0.9, -0.7, 0.1}),
		SD:      mat.NewDense(3, 1, []float64{0.3, 0.3, 0.2})}
	p := plot.Groups(plot.Labels{X: "log sales, 95% interval"}, g, []string{"A", "B", "C"})

	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	fmt.Println(p.Title.Text, plot.Save(filepath.Join(dir, "shops.svg"), p, 5))
	// Output: shop: effects of 3 levels <nil>
}
