package data_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/pgsvi/pgsvi/data"
)

// A formula over a table, with an effect of each shop (random intercepts), and predictions of
// customers as they come: one of a plan that training has not seen, and one without a plan.
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
	// yes 0.70 (0.50 to 0.86)
	// yes 0.40 (0.06 to 0.85)  "plan"="silver" is new
	// pgsvi: column "plan": the value is missing, and training had no row without one; want one of "basic", "gold"
}
