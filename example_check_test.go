package pgsvi_test

import (
	"context"
	"fmt"
	"log"
	"math"
	"strings"

	"gonum.org/v1/gonum/mat"

	"github.com/pgsvi/pgsvi"
)

// A confusion matrix counts decisions by the right class.
func ExampleNewConfusion() {
	y := []float64{0, 0, 0, 1, 1, 2, 2, 2}
	decided := []float64{0, 0, 1, 1, 1, 2, 0, 2}
	m, err := pgsvi.NewConfusion(y, decided, []string{"low", "middle", "high"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("error %.2f, recall of high %.2f\n", m.Error(), m.Recall(2))
	// Output:
	// error 0.25, recall of high 0.67
}

// A predictive check with a statistic of your own: the longest run of equal responses. Independent
// responses rarely have long runs.
func ExamplePredictiveCheck() {
	y := []float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1}
	x := mat.NewDense(len(y), 1, nil)
	for i := range y {
		x.Set(i, 0, 1)
	}
	longest := func(y []float64) float64 {
		most, run := 0, 0
		for i := range y {
			if i > 0 && y[i] != y[i-1] {
				run = 0
			}
			run++
			most = max(most, run)
		}
		return float64(most)
	}
	glm, err := pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	post, _, err := glm.Fit(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	check, err := glm.PredictiveCheck(ctx, nil, post, 1000,
		map[string]func(y []float64) float64{"longest run": longest})
	if err != nil {
		log.Fatal(err)
	}
	for i, name := range check.Names {
		p := check.P[i]
		fmt.Printf("%s %.2g, unlikely: %t\n", name, check.Observed[i], p < 0.025 || p > 0.975)
	}
	// Output:
	// share of +1 0.67, unlikely: false
	// longest run 16, unlikely: true
}

// Coherence compares topics with the corpus, and HeldOut scores new documents.
func ExampleLDAPosterior_HeldOut() {
	c := &pgsvi.Corpus{Vocab: strings.Fields("sea ship wind rate bank loan"), Terms: 6}
	for n := range 40 {
		first := 3 * (n % 2)
		c.Docs = append(c.Docs, pgsvi.Document{Words: []int{first, first + 1, first + 2},
			Counts: []float64{6, 4, float64(1 + n%3)}})
	}
	train, test := c.Subset([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), c.Subset([]int{10, 11, 12, 13})
	m, err := pgsvi.NewLDA(train, 2, &pgsvi.LDAOptions{Start: pgsvi.StartAuto})
	if err != nil {
		log.Fatal(err)
	}
	var post *pgsvi.LDAPosterior
	if post, _, err = m.Fit(context.Background(), nil); err != nil {
		log.Fatal(err)
	}
	held, err := post.HeldOut(test, &pgsvi.HeldOutOptions{Smoothing: 0.05})
	if err != nil {
		log.Fatal(err)
	}
	top, err := pgsvi.TopTerms(post.Topics(), nil, 3, pgsvi.ByProbability)
	if err != nil {
		log.Fatal(err)
	}
	coherence, err := pgsvi.UMass(top, train)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("better than guessing among six words:", held.PerToken < math.Log(6))
	fmt.Printf("coherence %.2f\n", coherence)
	// Output:
	// better than guessing among six words: true
	// coherence [0.55 0.55]
}
