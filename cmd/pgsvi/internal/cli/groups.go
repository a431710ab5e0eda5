package cli

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
)

// This file writes the results of groups for the flags -effects and -loo-groups.

// WriteEffects writes the effects of the levels of all groups as CSV, one row per level and effect,
// with 95% intervals.
func WriteEffects(w io.Writer, all []data.GroupEffects) error {
	out := csv.NewWriter(w)
	out.Write([]string{"group", "level", "effect", "mean", "sd", "lo", "hi", "rank", "rank_lo",
		"rank_hi"})
	for _, e := range all {
		for l, level := range e.LevelNames {
			for j, effect := range e.ColumnNames() {
				mean, sd := e.Mean.At(l, j), e.SD.At(l, j)
				row := []string{e.Name, level, effect}
				for _, v := range []float64{mean, sd, mean - normal975*sd, mean + normal975*sd,
					e.Rank.At(l, j), e.RankLo.At(l, j), e.RankHi.At(l, j)} {
					row = append(row, strconv.FormatFloat(v, 'g', 9, 64))
				}
				out.Write(row)
			}
		}
	}
	out.Flush()
	return out.Error()
}

// normal975 is the 97.5% quantile of N(0, 1).
const normal975 = 1.959963984540054

// LOOGroups leaves out the rows of each level of each group in turn, and prints a line per group. It
// returns the results for the line that ends a fit.
func LOOGroups(ctx context.Context, stdout io.Writer, glm *pgsvi.GLM,
	post *pgsvi.GLMPosterior) (parts string, err error) {
	groups := post.Groups()
	if groups == nil {
		return "", fmt.Errorf("-loo-groups needs a group in the formula, such as (1 | g): %w", ErrUsage)
	}
	for _, g := range groups {
		l, err := glm.LOOGroup(ctx, post, g.Name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(stdout, "new levels of %s: elpd %.6g ± %.2g over %d levels\n", g.Name, l.ELPD,
			l.SE, len(l.Pointwise))
		parts += fmt.Sprintf(" loo[%s]=%.6g", g.Name, l.ELPD)
	}
	return parts, nil
}
