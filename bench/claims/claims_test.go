package main

import (
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/paper"
	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

func ionosphere(t *testing.T) *dataSet {
	t.Helper()
	p, err := paper.Ionosphere("../../testdata")
	if err != nil {
		t.Fatal(err)
	}
	return &dataSet{name: p.Name, gp: p, yTest: p.YTest}
}

func load[T any, P line[T]](t *testing.T, file string) []T {
	t.Helper()
	lines, err := readTable[T, P](file)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestPredictions compares the fits of ionosphere that are not random with the stored file.
func TestPredictions(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	file := filepath.Join(t.TempDir(), "predictions.csv")
	if err := measure(context.Background(), file, []*dataSet{ionosphere(t)}, 1,
		io.Discard); err != nil {
		t.Fatal(err)
	}
	stored := load[fit](t, "predictions.csv")
	for _, got := range load[fit](t, file) {
		at := slices.IndexFunc(stored, func(f fit) bool {
			return f.dataset == got.dataset && f.method == got.method && f.seed == got.seed
		})
		if at < 0 {
			t.Errorf("the stored file has no %+v", got)
			continue
		}
		if want := stored[at]; math.Abs(got.negELBO-want.negELBO) > 1e-4*want.negELBO ||
			math.Abs(got.bits-want.bits) > 1e-4 || math.Abs(got.worse-want.worse) > 1e-4 {
			t.Errorf("%+v, stored %+v", got, want)
		}
	}
}

// TestLaplace checks that atMean ends at Laplace's approximation: m is the mode, and the precisions
// of the sites are the curvatures there.
func TestLaplace(t *testing.T) {
	t.Parallel()
	p := ionosphere(t).gp
	m, err := p.Model(pgsvi.GPOptions{Estimator: atMean{pgsvi.Exact()}})
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := m.Fit(context.Background(), solver(laplace, m.Len(), 0, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	mean, _ := post.Train(nil, nil)
	gamma, _ := post.Sites(nil, nil)
	slopes := make([]float64, len(mean)) // at the mode, m = K ∇log p(y|m)
	for i, y := range p.Y {
		d1, d2 := pgsvi.BernoulliLogit{}.Derivs(y, mean[i])
		slopes[i] = d1
		if math.Abs(gamma[i]+d2) > 1e-5 {
			t.Errorf("row %d has precision %v, but the curvature is %v", i, gamma[i], -d2)
		}
	}
	k := p.Cov()
	for i, at := range mean {
		var want float64
		for j, s := range slopes {
			want += k.At(i, j) * s
		}
		if math.Abs(at-want) > 1e-3 {
			t.Errorf("row %d has mean %v, but the mode is %v", i, at, want)
		}
	}
}

// TestTheory checks the statements of docs/paper.md on the stored runs: every finite bound holds,
// and only steps that are too long break the theory.
func TestTheory(t *testing.T) {
	finite := 0
	for _, p := range load[proof](t, "theory.csv") {
		if p.steps != proofSteps || p.violations > p.tooLong {
			t.Errorf("%+v", p)
		}
		if !math.IsInf(p.bound, 1) {
			finite++
			if !(p.gradMap2 <= p.bound) {
				t.Errorf("the bound does not hold: %+v", p)
			}
		}
	}
	if finite < 8 {
		t.Errorf("%d finite bounds", finite)
	}
}

// TestTables checks that docs/paper.md has the tables of the stored files.
func TestTables(t *testing.T) {
	page := filepath.Join("..", "..", "docs", "paper.md")
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"predictions": predictionTable(load[fit](t, "predictions.csv")),
		"theory":      theoryTable(load[proof](t, "theory.csv")),
	} {
		_, got, _, ok := tables.Lookup(string(b), name)
		if !ok || strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("the table %s of %s is\n%s\nbut the file has\n%s", name, page, got, want)
		}
	}
}
