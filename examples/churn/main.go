// My file has texts, numbers and gaps: which customers will leave?
//
// Data: 2000 customers of a telephone company, which are generated, with a semicolon between
// columns, a decimal comma, a missing age here and there, and a customer number that is no feature.
// It prints how each column was read, the weights of a logistic regression, and predictions
// of eight customers, one of a plan that is new, one without an age, and one that is malformed.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/plot"
)

var (
	rows = flag.Int("rows", 2000, "number of customers that are generated")
	out  = flag.String("out", "pictures/churn.png", "picture to write")
	save = flag.String("save", "", "`file` to write the predictor to, which data.LoadFile reads")
)

// customers generates a file.
func customers(rng *rand.Rand) string {
	var b strings.Builder
	b.WriteString("number;plan;age;monthly fee;calls to service;left\n")
	for i := range *rows {
		plan, calls := rng.IntN(3), int(rng.ExpFloat64()*1.5)
		age, fee := 18+rng.Float64()*60, 15+10*float64(plan)+5*rng.NormFloat64()
		odds := -1.9 - 0.75*float64(plan-1) + 0.6*float64(calls) - 0.03*(age-45) + 0.04*(fee-15)
		left, shown := "no", fmt.Sprintf("%.0f", age)
		if rng.Float64() < 1/(1+math.Exp(-odds)) {
			left = "yes"
		}
		if rng.Float64() < 0.05 {
			shown = "n/k"
		}
		comma := strings.ReplaceAll(fmt.Sprintf("%.2f", fee), ".", ",")
		fmt.Fprintf(&b, "K%05d;%s;%s;%s;%d;%s\n", i+1,
			[]string{"basic", "silver", "gold"}[plan], shown, comma, calls, left)
	}
	return b.String()
}

func main() {
	flag.Parse()
	file := customers(rand.New(rand.NewPCG(1, 1)))
	table, err := data.Read(strings.NewReader(file), "generated.csv") // or data.ReadFile
	check(err)
	model, err := table.Model("left ~ . - number",
		data.Outcome("left").Positive("yes"),
		data.Category("plan").New(),                   // plans that come later are predicted, too
		data.Number("age").MissingAre("n/k").Impute(), // by the mean, with a weight for missing
	)
	check(err)
	fmt.Print(model)
	glm, err := model.GLM(nil, nil)
	check(err)
	post, res, err := glm.Fit(context.Background(), nil)
	check(err)
	fmt.Printf("\n%v\n%v\n", res, model.Summary(post))

	predictor, err := model.Predictor(post)
	check(err)
	for _, c := range []map[string]any{
		{"plan": "basic", "age": 25, "monthly fee": "19,90", "calls to service": 4},
		{"plan": "gold", "age": 70, "monthly fee": 35.5, "calls to service": 0},
		{"plan": "silver", "age": 45, "monthly fee": 25, "calls to service": 1},
		{"plan": "silver", "age": 45, "monthly fee": 25, "calls to service": 6},
		{"plan": "basic", "age": 33, "monthly fee": 18, "calls to service": 0},
		{"plan": "platinum", "age": 50, "monthly fee": 30, "calls to service": 1},  // unknown
		{"plan": "gold", "monthly fee": 30, "calls to service": 2},                 // missing
		{"plan": "gold", "age": "forty", "monthly fee": 30, "calls to service": 2}, // malformed
	} {
		answer, err := predictor.Predict(c)
		if err != nil {
			fmt.Printf("%v\n    no prediction: %v\n", c, err)
			continue
		}
		fmt.Printf("%v\n    leaves with probability %v\n", c, answer)
	}
	if *save != "" {
		check(predictor.SaveFile(*save))
		fmt.Println("wrote", *save)
	}
	fmt.Println("wrote", *out)
	check(plot.Save(*out, plot.Coefficients(plot.Labels{Title: "Who leaves? (generated data)",
		X: "log odds of leaving (mean, 95% interval)"}, model.Summary(post).Summary), 0))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
