package main

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/floats"
)

// TestTruth: the right model recovers the weights and is found to be the better one.
func TestTruth(t *testing.T) {
	p, err := readPortfolio(generate(4000, 2))
	if err != nil {
		t.Fatal(err)
	}
	negbin, err := p.fit(context.Background(), pgsvi.NegativeBinomial{Shape: trueShape})
	if err != nil {
		t.Fatal(err)
	}
	poisson, err := p.fit(context.Background(), pgsvi.Poisson{})
	if err != nil {
		t.Fatal(err)
	}
	rows := negbin.post.Summary().Rows
	if len(rows) != len(truth) {
		t.Fatalf("%d weights, want %d", len(rows), len(truth))
	}
	for _, r := range rows {
		want, known := truth[r.Name]
		if !known || math.Abs(r.Mean-want) > 4*r.SD || !(r.SD < 0.5) {
			t.Errorf("%s: %v ± %v, want %v", r.Name, r.Mean, r.SD, want)
		}
	}
	if !(negbin.elbo > poisson.elbo+10) {
		t.Errorf("ELBO %v with over-dispersion, %v without", negbin.elbo, poisson.elbo)
	}
	if d, err := p.pearson(poisson); err != nil || !(d > 1.1) {
		t.Errorf("Pearson statistic %v, %v", d, err)
	}
	seen, expected, err := p.frequencies(negbin, 30, rand.New(rand.NewPCG(1, 0)))
	if err != nil {
		t.Fatal(err)
	}
	if floats.Sum(seen) != 4000 || math.Abs(floats.Sum(expected)-4000) > 1 || math.Abs(seen[0]-expected[0]) > 100 {
		t.Errorf("seen %v, expected %v", seen, expected)
	}
}

// TestOffset: the exposure is no feature but an offset.
func TestOffset(t *testing.T) {
	p, err := readPortfolio(header + "\n" + csvRow("east", "car", 50, 0.5, 1) + csvRow("west", "van", 20, 1, 0))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(p.Names, " "); got != "region=west vehicle=van age novice" {
		t.Errorf("columns %s", got)
	}
	if p.Offset[0] != math.Log(0.5) || p.Offset[1] != 0 || p.Y[0] != 1 || p.Y[1] != 0 {
		t.Errorf("offset %v, claims %v", p.Offset, p.Y)
	}
}
