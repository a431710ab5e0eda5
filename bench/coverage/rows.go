package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/simulate"
	"github.com/pgsvi/pgsvi/bench/tables"
)

// likelihoods maps the words of a row to the likelihoods.
var likelihoods = map[string]pgsvi.Likelihood{
	"labels":  pgsvi.BernoulliLogit{},
	"counts":  pgsvi.Poisson{},
	"classes": pgsvi.Softmax{Classes: 3},
	"real":    pgsvi.GaussianNoise{Var: 1},
}

// The forms of the groups.
const (
	intercepts = "(1 | g)"
	slopes     = "(1 + x | g)"
)

// A row is a line of coverage.csv.
type row struct {
	responses, form, sd string
	levels, sets        int
	effective           float64 // see simulate.Result
	mean, se            [shares]float64
}

// shares is the number of shares of a row.
const shares = 7

// shareNames are the columns of the shares. Intervals are 90% intervals, except the intervals of
// standard deviations and correlations, for which Groups has 95% intervals.
var shareNames = [shares]string{"new_level", "known_levels", "weights", "sd", "corr", "sd_below",
	"sd_above"}

// goal is the share that each of the first five columns should have.
var goal = [shares]float64{0.9, 0.9, 0.9, 0.95, 0.95}

// cases returns the rows of the table, without measurements.
func cases() (all []row) {
	for _, form := range []string{intercepts, slopes} {
		for _, responses := range []string{"labels", "counts", "real"} {
			for _, sd := range []string{"1", "0.3", "prior"} {
				for _, levels := range []int{5, 8, 20, 50, 100} {
					all = append(all, row{responses: responses, form: form, sd: sd, levels: levels})
				}
			}
		}
	}
	for _, levels := range []int{5, 8, 20, 50} {
		all = append(all, row{responses: "classes", form: intercepts, sd: "prior", levels: levels})
	}
	return all
}

// name returns a text that identifies r.
func (r row) name() string {
	return fmt.Sprintf("%s, %s, sd %s, %d levels", r.responses, r.form, r.sd, r.levels)
}

// defaultSets returns the number of data sets of r by default. Draws from the prior check the
// computation, and data sets of real responses then have different weights, so they are more.
func (r row) defaultSets() int {
	switch {
	case r.responses == "classes":
		return 400
	case r.sd == "prior":
		return 2000
	}
	return 500
}

// measure makes the fits of r.
func (r row) measure(ctx context.Context, sets, workers int) (row, error) {
	d := simulate.Design{Lik: likelihoods[r.responses], Levels: r.levels, Slope: r.form == slopes,
		SD: math.NaN()}
	if r.sd != "prior" {
		var err error
		if d.SD, err = strconv.ParseFloat(r.sd, 64); err != nil {
			return r, err
		}
	}
	got, err := d.Measure(ctx, sets, workers)
	if err != nil {
		return r, err
	}
	r.sets, r.effective = sets, got.Sets
	for _, x := range []struct {
		to   *[shares]float64
		from simulate.Coverage
	}{{&r.mean, got.Mean}, {&r.se, got.SE}} {
		c := x.from
		*x.to = [shares]float64{c.New, c.Known, c.Weights, c.SD, c.Corr, c.Below, c.Above}
	}
	return r, nil
}

// header returns the columns of coverage.csv.
func header() []string {
	h := []string{"responses", "form", "true_sd", "levels", "sets", "effective_sets"}
	for _, name := range shareNames {
		h = append(h, name, name+"_se")
	}
	return h
}

// readRows reads a file of writeRows. It returns no rows if the file does not exist.
func readRows(file string) ([]row, error) {
	lines, err := tables.ReadCSV(file, header())
	if err != nil {
		return nil, err
	}
	rows := make([]row, len(lines))
	for i, line := range lines {
		r := &rows[i]
		r.responses, r.form, r.sd = line[0], line[1], line[2]
		var errs [3]error
		r.levels, errs[0] = strconv.Atoi(line[3])
		r.sets, errs[1] = strconv.Atoi(line[4])
		r.effective, errs[2] = strconv.ParseFloat(line[5], 64)
		err := errors.Join(errs[:]...)
		for k := range shares {
			for j, to := range []*float64{&r.mean[k], &r.se[k]} {
				v, e := strconv.ParseFloat(line[6+2*k+j], 64)
				if e == nil && !(v >= 0 && v <= 1) {
					e = fmt.Errorf("%s is %v, not from 0 to 1", header()[6+2*k+j], v)
				}
				*to, err = v, errors.Join(err, e)
			}
		}
		if likelihoods[r.responses] == nil {
			err = errors.Join(err, fmt.Errorf("the responses are %q", r.responses))
		}
		if err != nil {
			return nil, fmt.Errorf("%s, row %d: %w", file, i, err)
		}
	}
	return rows, nil
}

// writeRows writes rows to a CSV file, in the order of cases.
func writeRows(file string, rows []row) error {
	lines := [][]string{header()}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }
	for _, c := range cases() {
		for _, r := range rows {
			if r.name() != c.name() {
				continue
			}
			line := []string{r.responses, r.form, r.sd, strconv.Itoa(r.levels), strconv.Itoa(r.sets),
				number(r.effective)}
			for k := range shares {
				line = append(line, number(r.mean[k]), number(r.se[k]))
			}
			lines = append(lines, line)
		}
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(csv.NewWriter(f).WriteAll(lines), f.Close())
}

// tolerance is the largest distance from the goal that the table does not mark.
const tolerance = 0.03

// table returns the table of the rows. Shares that are outside goal ± tolerance are bold.
func table(rows []row) string {
	var lines [][]string
	for _, r := range rows {
		line := []string{r.responses, "`" + strings.ReplaceAll(r.form, "|", `\|`) + "`", r.sd, strconv.Itoa(r.levels),
			fmt.Sprintf("%.0f", r.effective)}
		for k := range 5 {
			cell := fmt.Sprintf("%.3f ± %.3f", r.mean[k], r.se[k])
			switch {
			case shareNames[k] == "corr" && r.form == intercepts:
				cell = ""
			case math.Abs(r.mean[k]-goal[k]) > tolerance:
				cell = "**" + cell + "**"
			}
			line = append(line, cell)
		}
		lines = append(lines, line)
	}
	return tables.Markdown([]string{"responses", "groups", "true sd", "levels", "data sets",
		"new level (90%)", "known levels (90%)", "weights (90%)", "sd (95%)", "correlation (95%)"},
		lines)
}

// summary returns the coverage of new levels in percent, in a short table.
func summary(rows []row) string {
	header, levels := []string{"true sd"}, []int{5, 20, 100}
	sds := []string{"1", "0.3", "prior"}
	for _, sd := range sds {
		for _, n := range levels {
			head := fmt.Sprintf("%d", n)
			if n == levels[0] {
				head = fmt.Sprintf("%s: %d levels", sd, n)
			}
			header = append(header, head)
		}
	}
	var lines [][]string
	for _, c := range cases() {
		if c.sd != sds[0] || c.levels != levels[0] || c.form == slopes && c.responses != "labels" {
			continue
		}
		line := []string{c.responses + ", `" + strings.ReplaceAll(c.form, "|", `\|`) + "`"}
		for _, sd := range sds {
			for _, n := range levels {
				c.sd, c.levels = sd, n
				cell := ""
				for _, r := range rows {
					if r.name() == c.name() {
						cell = fmt.Sprintf("%.0f%%", 100*r.mean[0])
					}
				}
				line = append(line, cell)
			}
		}
		lines = append(lines, line)
	}
	return tables.Markdown(header, lines)
}
