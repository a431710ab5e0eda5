package data_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/pgsvi/pgsvi/data"
)

// A formula for a table with an effect of each shop (random intercepts), and predictions for
// customers: one with a plan that training has not seen, and one without a plan.
func ExampleTable_Model() {
	file := strings.NewReader("bought,plan,age,shop\n" + strings.Repeat("yes,gold,31,north\n"+
		"no,basic,45,south\nyes,gold,52,south\nno,gold,28,east\nyes,basic,61,north\nno,basic,33,east\n"+
		"no,gold,35,north\nyes,basic,29,south\nyes,gold,44,east\nno,basic,58,north\n", 6))
	table, err := data.Read(file, "orders.csv")
	if err != nil {
		log.Fatal(err)
	}
	m, err := table.Model("bought ~ plan + age + (1 | shop)",
		data.Outcome("bought").Positive("yes"),
		data.Category("plan").New())
	if err != nil {
		log.Fatal(err)
	}
	glm, err := m.GLM(nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	p, err := m.Predictor(post) // p.SaveFile keeps it
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range []map[string]any{
		{"plan": "gold", "age": 50, "shop": "north"},
		{"plan": "silver", "age": 50, "shop": "north"},
		{"age": 50, "shop": "north"},
	} {
		if a, err := p.Predict(row); err != nil {
			fmt.Println(err)
		} else {
			fmt.Println(a.Label, a)
		}
	}
	// Output:
	// yes 0.73 (0.52 to 0.89)
	// yes 0.41 (0.02 to 0.95)  "plan"="silver" is new
	// pgsvi: column "plan": the value is missing, but no value was missing in training; use one of "basic", "gold"
}

// The summary of a formula has the coefficients per unit of their columns, and the standard
// deviations of the shops and of the residuals (variance components).
func ExampleModel_Summary() {
	var file strings.Builder
	file.WriteString("spent,age,plan,shop\n")
	for i := range 60 {
		shop, plan := i%6, []string{"basic", "gold"}[i/6%2]
		spent := 20 + 0.5*float64(30+i) + 3*float64(shop%3) + float64(i*i%7)
		if plan == "gold" {
			spent += 10
		}
		fmt.Fprintf(&file, "%.1f,%d,%s,s%d\n", spent, 30+i, plan, shop)
	}
	table, err := data.Read(strings.NewReader(file.String()), "sales.csv")
	if err != nil {
		log.Fatal(err)
	}
	m, err := table.Model("spent ~ age + plan + (1 | shop)")
	if err != nil {
		log.Fatal(err)
	}
	glm, err := m.GLM(nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	s := m.Summary(post)
	for _, c := range s.Coefficients {
		fmt.Printf("%-12s %5.2f (%5.2f to %5.2f)\n", c.Name, c.Mean, c.Lo, c.Hi)
	}
	fmt.Printf("%s: %d groups, sd %.1f\n", s.Groups[0].Name, s.Groups[0].Levels, s.Groups[0].SD)
	fmt.Printf("residual: sd %.1f\n", s.Residual.SD)
	// Output:
	// (Intercept)  24.93 (21.32 to 28.55)
	// age           0.50 ( 0.48 to  0.52)
	// plan=gold    10.01 ( 9.23 to 10.79)
	// (1 | shop): 6 groups, sd 2.7
	// residual: sd 1.5
}

// The intercept and the slope of each subject of a sleep study, relative to the mean of all subjects.
func ExampleModel_GroupEffects() {
	table, err := data.ReadFile("../examples/groups/sleep.csv")
	if err != nil {
		log.Fatal(err)
	}
	m, err := table.Model("reaction ~ days + (1 + days | subject)")
	if err != nil {
		log.Fatal(err)
	}
	glm, err := m.GLM(nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	groups, err := m.GroupEffects(post)
	if err != nil {
		log.Fatal(err)
	}
	g := groups[0]
	fmt.Printf("%d levels of %s, %.0f%% of the variance\n", g.Levels, g.Name, 100*g.Share)
	for j, e := range g.Effects {
		fmt.Printf("%s: sd %.1f (%.1f to %.1f); subject %s %.1f ± %.1f\n", e.Name, e.SD, e.Lo, e.Hi,
			g.LevelNames[0], g.Mean.At(0, j), g.SD.At(0, j))
	}
	// Output:
	// 18 levels of subject, 71% of the variance
	// (Intercept): sd 26.6 (15.4 to 45.9); subject 308 1.1 ± 15.0
	// days: sd 5.8 (4.1 to 9.5); subject 308 9.5 ± 2.9
}
