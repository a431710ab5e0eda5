// Which of my columns matter, how sure is that, and can I trust the probabilities?
//
// Data: radar returns from the ionosphere, good (-1) or bad (1), 351 rows of 34 features (V.
// Sigillito et al., Ionosphere, UCI machine learning repository, 1989).
// It prints how each column was read, the weights of a logistic regression, whether their
// posterior can be trusted, and how well each row is predicted from the others, and draws both.
// For your data change the file, the formula and the outcome; see also the example churn.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"math"

	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/plot"
)

//go:embed ionosphere.csv
var ionosphere []byte

var out = flag.String("out", "pictures/logistic.png", "picture to write")

func main() {
	flag.Parse()
	ctx := context.Background()
	// For a file of yours: data.ReadFile.
	table, err := data.Read(bytes.NewReader(ionosphere), "ionosphere.csv")
	check(err)
	model, err := table.Model("y ~ . - x2", data.Outcome("y").Positive("1")) // x2 is constant
	check(err)
	fmt.Print(model)
	glm, err := model.GLM(nil, nil)
	check(err)
	post, res, err := glm.Fit(ctx, nil)
	check(err)
	weights := model.Summary(post).Summary
	fmt.Printf("\n%v\n%v\n", res, weights)

	// Is a Gaussian posterior good enough, and how is each row predicted from the others?
	psis, err := glm.PSIS(ctx, nil, post, 0)
	check(err)
	loo, err := glm.LOO(ctx, post)
	check(err)
	prob := loo.Cavity.Prob(nil, +1)
	share, wrong, n := 0.0, 0, float64(len(prob))
	for i, p := range prob {
		if share += (1 + model.Y[i]) / 2 / n; p > 0.5 != (model.Y[i] > 0) {
			wrong++
		}
	}
	base := share*math.Log(share) + (1-share)*math.Log(1-share)
	fmt.Printf("%v\n%v\n%d of %d rows are predicted wrongly\n", psis, loo, wrong, len(prob))
	fmt.Printf("%.3f nats each, by the base rate alone %.3f\n", -loo.ELPD/n, -base)

	coefficients := plot.Coefficients(plot.Labels{Title: "What makes a radar return bad?",
		X: "log odds of bad (mean, 95% interval)"}, weights)
	calibration := plot.Calibration(plot.Labels{
		Title: "Calibration, each row predicted from the others"}, prob, model.Y)
	fmt.Println("wrote", *out)
	check(plot.Save(*out, plot.Stack(coefficients, calibration), 32))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
