package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/pgsvi/pgsvi/internal/cputime"
	"github.com/pgsvi/pgsvi/internal/memory"
)

// groupSizes lists the numbers of rows and levels of the mixed models that NewGLMRows fits; see
// rowSizes.
var groupSizes = [][2]int{{3_000_000, 10_000}, {30_000_000, 100_000}}

// groupCols is the number of common columns.
const groupCols = 4

var groupsHeader = []string{"rows", "levels", "passes", "gap", "cpu_seconds", "peak_mb", "sd_1",
	"sd_x", "corr"}

// mixedLabels yields n rows of y ~ x1 + … + x4 + (1 + x1 | g) in random order without storing them.
// The standard deviations of the effects are 0.8 and 0.4, and their correlation is 0.5.
func mixedLabels(n, levels int) iter.Seq2[pgsvi.Row, error] {
	effects := make([]float64, 2*levels)
	rng := rand.New(rand.NewPCG(3, 44))
	for g := range levels {
		z := rng.NormFloat64()
		effects[2*g] = 0.8 * z
		effects[2*g+1] = 0.4 * (0.5*z + math.Sqrt(0.75)*rng.NormFloat64())
	}
	return func(yield func(pgsvi.Row, error) bool) {
		rng := rand.New(rand.NewPCG(4, 55))
		r := pgsvi.Row{Ind: make([]int, groupCols+2), Val: make([]float64, groupCols+2)}
		for range n {
			eta := 0.0
			for j := range groupCols {
				r.Ind[j], r.Val[j] = j, rng.NormFloat64()
				eta += 0.2 * math.Cos(float64(2*j)) * r.Val[j]
			}
			g := rng.IntN(levels)
			r.Ind[groupCols], r.Ind[groupCols+1] = groupCols+2*g, groupCols+2*g+1
			r.Val[groupCols], r.Val[groupCols+1] = 1, r.Val[0]
			eta += effects[2*g] + effects[2*g+1]*r.Val[0]
			r.Y = 1
			if rng.Float64() > 1/(1+math.Exp(-eta)) {
				r.Y = -1
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// measureGroups fits mixed models with NewGLMRows, and writes the file.
func measureGroups(ctx context.Context, out string, quick bool, stderr io.Writer) error {
	records := [][]string{groupsHeader}
	for _, size := range groupSizes {
		n, levels := size[0], size[1]
		if quick {
			n /= 20
		}
		start := cputime.Seconds()
		opt := &pgsvi.GLMOptions{Intercept: true, Groups: []pgsvi.Group{{Name: "g", First: groupCols,
			Levels: levels, Effects: []string{"(Intercept)", "x1"}}}}
		glm, err := pgsvi.NewGLMRows(ctx, mixedLabels(n, levels), groupCols+2*levels,
			pgsvi.BernoulliLogit{}, opt)
		if err != nil {
			return err
		}
		post, res, err := glm.Fit(ctx, nil)
		if err != nil {
			return err
		}
		g := post.Groups()[0]
		number := func(x float64, digits int) string { return strconv.FormatFloat(x, 'f', digits, 64) }
		r := []string{strconv.Itoa(n), strconv.Itoa(levels), number(res.Passes, 0),
			strconv.FormatFloat(res.Gap, 'g', 2, 64), number(cputime.Seconds()-start, 1),
			number(memory.Peak()/1e6, 0), number(g.Effects[0].SD, 4), number(g.Effects[1].SD, 4),
			number(g.Corr[0].Value, 4)}
		fmt.Fprintln(stderr, r)
		records = append(records, r)
	}
	return writeRecords(out, records)
}

// groupsTable returns the table of a file of measureGroups.
func groupsTable(file string) (string, error) {
	records, err := readRecords(file)
	if err != nil {
		return "", err
	}
	return tables.Markdown([]string{"rows", "levels", "passes", "gap", "CPU s", "peak MB",
		"sd of the intercept", "sd of x1", "correlation"}, records), nil
}
