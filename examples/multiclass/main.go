// Which of ten digits is it, and which images is the classifier least sure of?
//
// Data: 1,797 images of 8×8 pixels from 0 to 16 (E. Alpaydin and C. Kaynak, Optical Recognition of
// Handwritten Digits, UCI machine learning repository, 1998).
// A softmax regression learns from 1,078 images. The program prints its scores on the others and
// how decisions change if missing an 8 is expensive, and draws the images it is least sure of.
package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"slices"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/plot"
	"gonum.org/v1/gonum/mat"
	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/plotter"
)

//go:embed digits.csv.gz
var digits []byte

var out = flag.String("out", "pictures/digits.png", "picture to write")

func main() {
	flag.Parse()
	x, y, err := data.ReadCSV(bytes.NewReader(digits))
	check(err)
	const train, side, drawn = 1078, 8, 8
	others, labels := x.Slice(train, len(y), 0, side*side).(*mat.Dense), y[train:]
	glm, err := pgsvi.NewGLM(x.Slice(0, train, 0, side*side), y[:train], pgsvi.Softmax{},
		&pgsvi.GLMOptions{Intercept: true, Autoscale: true})
	check(err)
	post, res, err := glm.Fit(context.Background(), nil)
	check(err)
	fmt.Println(res)
	at := post.At(others)
	scores, err := at.Scores(labels)
	check(err)
	decided, err := at.Decide(nil) // the most probable class
	check(err)
	table, err := pgsvi.NewConfusion(labels, decided, nil)
	check(err)
	fmt.Printf("%v%.1f%% wrong\n%v", scores, 100*table.Error(), table)
	cost := mat.NewDense(10, 10, slices.Repeat([]float64{1}, 100)) // any mistake costs 1
	cost.SetRow(8, slices.Repeat([]float64{5}, 10))                // missing an 8 costs 5
	for c := range 10 {
		cost.Set(c, c, 0)
	}
	careful, err := at.Decide(cost)
	check(err)
	missed, err := pgsvi.NewConfusion(labels, careful, nil)
	check(err)
	fmt.Printf("recall of 8: %.3f, or %.3f if missing it is expensive, with a precision of %.3f\n",
		table.Recall(8), missed.Recall(8), missed.Precision(8))
	probs, order := at.Probs(), make([]int, len(labels))
	for i := range order {
		order[i] = i
	}
	largest := func(i int) float64 { return slices.Max(probs.RawRowView(i)) }
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(largest(a), largest(b)) })
	images := grid{mat.NewDense(side, drawn*(side+1), nil)}
	picture, ticks := gonum.New(), gonum.ConstantTicks{}
	for k, i := range order[:drawn] {
		fmt.Printf("image %d, a %v: %v\n", train+i, labels[i], at.Row(i))
		for p, v := range others.RawRowView(i) {
			images.Set(side-1-p/side, k*(side+1)+p%side, v)
		}
		ticks = append(ticks, gonum.Tick{Value: float64(k*(side+1) + side/2),
			Label: fmt.Sprintf("%v?\nit is %v", decided[i], labels[i])})
	}
	picture.Add(plotter.NewHeatMap(images, moreland.ExtendedBlackBody().Palette(17)))
	picture.Title.Text = "The images that the classifier is least sure of"
	picture.X.Tick.Marker = ticks
	picture.HideY()
	check(plot.Save(*out, picture, 5))
	fmt.Println("wrote", *out)
}

// grid draws a matrix as a heat map.
type grid struct{ *mat.Dense }

func (g grid) Dims() (c, r int)   { r, c = g.Dense.Dims(); return c, r }
func (g grid) Z(c, r int) float64 { return g.At(r, c) }
func (g grid) X(c int) float64    { return float64(c) }
func (g grid) Y(r int) float64    { return float64(r) }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
