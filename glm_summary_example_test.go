package pgsvi_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
)

// plants are leaf lengths in cm and heights in m of two kinds of plants.
const plants = `leaf,height,kind
4.9,1.2,elm
5.4,1.1,elm
6.1,1.6,elm
5.0,1.3,elm
5.2,1.4,elm
6.3,1.2,ash
7.1,1.7,ash
7.7,1.4,ash
5.8,1.5,elm
6.6,1.3,elm
8.2,1.5,ash
6.0,1.2,ash
7.4,1.1,ash
5.6,1.6,elm
7.9,1.3,ash
6.9,1.4,ash
5.1,1.5,elm
4.6,1.2,elm
`

// From a table of text to a table of weights.
func ExampleGLMPosterior_Summary() {
	t, err := data.ReadTable(strings.NewReader(plants), &data.TableOptions{Positive: "ash"})
	if err != nil {
		log.Fatal(err)
	}
	glm, err := pgsvi.NewGLM(t.X, t.Y, pgsvi.BernoulliLogit{}, &pgsvi.GLMOptions{
		Intercept: true, PriorSD: 2.5, Autoscale: true, Names: t.Names,
	})
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(post.Summary())
	// Output:
	// BernoulliLogit, 18 rows, 3 weights, full covariance
	//                 mean      sd      2.5%   97.5%
	// (Intercept)  -9.787   5.533   -20.631   1.057
	// leaf          2.8840  0.8928    1.1341  4.6339 *
	// height       -6.156   3.961   -13.919   1.606
	// * zero is outside the interval from 2.5% to 97.5%
}

// A posterior on file predicts as it did before, and can be given more data.
func ExampleGLMPosterior_Save() {
	t, err := data.ReadTable(strings.NewReader(plants), nil)
	if err != nil {
		log.Fatal(err)
	}
	glm, err := pgsvi.NewGLM(t.X, t.Y, pgsvi.BernoulliLogit{}, &pgsvi.GLMOptions{Intercept: true, Autoscale: true})
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer // or what os.Create returns
	if err := post.Save(&file); err != nil {
		log.Fatal(err)
	}
	loaded, err := pgsvi.LoadGLMPosterior(&file)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(loaded.At(t.X).Prob(nil, +1)[0] == post.At(t.X).Prob(nil, +1)[0])
	more, err := loaded.Update(context.Background(), pgsvi.Rows(t.X, t.Y))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(loaded.Len(), "rows, then", more.Len())
	// Output:
	// true
	// 18 rows, then 36
}
