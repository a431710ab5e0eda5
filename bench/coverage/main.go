// Command coverage measures how often the intervals of mixed models contain the truth:
//
//	go run ./bench/coverage -out bench/coverage -readme bench/README.md,docs/mixed.md
//
// It draws data sets of the package simulate, with labels, counts or real responses, intercepts or
// intercepts and slopes of 5 to 100 levels, and ten rows per level. The true standard deviations are
// 1, 0.3 or draws from the prior. The command fits each data set without options except the priors of
// the weights, writes coverage.csv to the folder of -out, and prints a table. -tables makes no fits
// and uses the stored file, -only selects parts of the name of a line (such as "counts,1 + x"), and
// -sets changes the number of data sets.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi/bench/command"
	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/pgsvi/pgsvi/internal/cputime"
)

//go:generate go run -C ../.. ./bench/coverage -tables -out bench/coverage -readme bench/README.md,docs/mixed.md

func main() {
	command.Main("coverage", run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("coverage", flag.ContinueOnError)
	f.SetOutput(stderr)
	out := f.String("out", ".", "`folder` of coverage.csv")
	readme := f.String("readme", "", "Markdown `files` whose tables to replace, separated by commas")
	stored := f.Bool("tables", false, "make no fits, and use the coverage.csv in -out")
	only := f.String("only", "", "measure only lines whose name contains all these `words`, "+
		"separated by commas")
	sets := f.Int("sets", 0, "data sets per line (default: 500, or fewer if a fit is expensive)")
	workers := f.Int("workers", 2, "data sets that are fitted at the same time")
	if err := f.Parse(args); err != nil {
		return err
	}
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	case *sets < 0 || *sets == 1:
		return fmt.Errorf("-sets is %d, but a standard error needs at least 2", *sets)
	case *workers < 1:
		return fmt.Errorf("-workers is %d; it must be positive", *workers)
	}
	file := filepath.Join(*out, "coverage.csv")
	rows, err := readRows(file)
	if err != nil {
		return err
	}
	if !*stored {
		words := strings.Split(*only, ",")
		for _, c := range cases() {
			name := c.name()
			if slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(name, w) }) {
				continue
			}
			n := *sets
			if n == 0 {
				n = c.defaultSets()
			}
			begin := cputime.Seconds()
			r, err := c.measure(ctx, n, *workers)
			if err != nil {
				return err
			}
			fmt.Fprintf(stderr, "%s: %.3g CPU seconds\n", name, cputime.Seconds()-begin)
			rows = slices.DeleteFunc(rows, func(old row) bool { return old.name() == name })
			rows = append(rows, r)
			if err := writeRows(file, rows); err != nil {
				return err
			}
		}
	}
	if len(rows) == 0 {
		return errors.New("there are no measurements; leave out -tables, or change -only")
	}
	text := table(rows)
	if *readme != "" {
		texts := map[string]string{"coverage": text, "coverage summary": summary(rows)}
		for _, file := range strings.Split(*readme, ",") {
			if err := tables.Replace(file, texts); err != nil {
				return err
			}
		}
	}
	_, err = io.WriteString(stdout, text)
	return err
}
