// Where is the decision boundary of a classifier with two inputs, and how sure is it?
//
// Data: petals of 50 Iris versicolor and 50 Iris virginica (R. A. Fisher, Iris, UCI machine
// learning repository, 1936).
// A Gaussian process learns its length scales and its scale. The program prints them, and the
// flowers whose label is least probable given all other flowers, and draws the probabilities.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"math"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/plot"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

//go:embed iris.csv
var iris string

var out = flag.String("out", "pictures/iris.png", "picture to write")

func main() {
	flag.Parse()
	ctx := context.Background()
	all, species, err := data.ReadCSV(strings.NewReader(iris))
	check(err)
	// Petal length and width of the second and third species, which overlap.
	petals, labels := all.Slice(50, 150, 2, 4).(*mat.Dense), make([]float64, 100)
	for i, s := range species[50:] {
		labels[i] = 2*s - 3 // −1 versicolor, +1 virginica
	}
	kernel := pgsvi.SquaredExp{Lengths: make([]float64, 2)} // one length scale per input, learned
	gp, err := pgsvi.NewGP(petals, labels, kernel, pgsvi.BernoulliLogit{}, nil)
	check(err)
	gp, post, learned, err := gp.Learn(ctx, nil, nil) // finds the length scales and the scale
	check(err)
	fmt.Println(learned)
	loo, err := gp.LOO(ctx, post)
	check(err)
	fmt.Printf("predicted from the other flowers: %.3f nats per flower\n", -stat.Mean(loo.Pointwise, nil))
	for i, l := range loo.Pointwise {
		if l < math.Log(0.3) {
			fmt.Printf("flower %d, %.1f cm by %.1f cm: its label has probability %.2f\n",
				i+51, petals.At(i, 0), petals.At(i, 1), math.Exp(l))
		}
	}
	texts := plot.Labels{Title: "Which iris? Probability of virginica (blue)",
		X: "petal length (cm)", Y: "petal width (cm)"}
	picture := plot.Probabilities(texts, [2]string{"versicolor", "virginica"}, petals, labels,
		func(grid *mat.Dense) []float64 { return post.Prob(nil, +1, grid) })
	fmt.Println("wrote", *out)
	check(plot.Save(*out, picture, 11))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
