package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/cmd/pgsvi/internal/cli"
	"github.com/pgsvi/pgsvi/data"
)

func predict(f *flag.FlagSet) func(*command, []string) error {
	level := cli.ShareFlag(f, "level", 0.9, "probability `P` of the interval from lo to hi")
	format := cli.FormatFlag(f)
	score := f.Bool("score", false, "print scores to standard error; the table needs the outcome")
	return func(c *command, args []string) error {
		p, err := data.LoadFile(args[0])
		if err != nil {
			if _, other := data.LoadFile(args[1]); other == nil {
				return fmt.Errorf("the model must come before the table; run pgsvi predict %s %s: "+
					"%w", args[1], args[0], cli.ErrUsage)
			}
			if isTopics(args[0]) {
				return fmt.Errorf("%s is a topic model, but predict needs a model from fit or gp; in Go, "+
					"Infer finds the topics of new documents: %w", args[0], cli.ErrUsage)
			}
			return err
		}
		how, err := cli.FormatOf(p.Format(), *format)
		if err != nil {
			return err
		}
		how.Ragged = true
		t, err := c.read(how, args[1])
		if err != nil {
			return err
		}
		var rows, failed int
		var scores *pgsvi.Scores
		if *score {
			rows, failed, scores, err = p.ScoreCSV(c.csv, t, *level)
		} else {
			rows, failed, err = p.WriteCSV(c.csv, t, *level)
		}
		if err != nil {
			return err
		}
		line := fmt.Sprintf("rows=%d errors=%d", rows, failed)
		if scores != nil {
			fmt.Fprint(c.stderr, scores)
			line += cli.ScoreText(scores)
		}
		fmt.Fprintln(c.stderr, line)
		if failed > 0 {
			return errFailedRows
		}
		return nil
	}
}

// isTopics reports whether a file holds a model that topics has saved.
func isTopics(path string) bool {
	return loads[*pgsvi.CTMPosterior](path, pgsvi.Load) || loads[*pgsvi.LDAPosterior](path, pgsvi.Load)
}

// loads reports whether load reads a file without an error.
func loads[T any](path string, load func(io.Reader) (T, error)) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = load(f)
	return err == nil
}
