package main

import (
	"errors"
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
	score := f.Bool("score", false, "print scores to standard error; a table needs the outcome")
	return func(c *command, args []string) error {
		p, err := data.LoadFile(args[0])
		if err != nil {
			if _, other := data.LoadFile(args[1]); other == nil {
				return fmt.Errorf("the model must come before the table; run pgsvi predict %s %s: "+
					"%w", args[1], args[0], cli.ErrUsage)
			}
			if m := loadTopics(args[0]); m != nil {
				if *format != "" {
					return fmt.Errorf("-format describes a table, but %s is a topic model, which "+
						"predicts documents: %w", args[0], cli.ErrUsage)
				}
				return c.predictTopics(m, args[1], *level, *score)
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

// loadTopics returns the topic model in a file that topics has saved, or nil if it holds none.
func loadTopics(path string) cli.TopicModel {
	if m, err := loadFile(path, pgsvi.Load[*pgsvi.CTMPosterior]); err == nil {
		return m
	}
	if m, err := loadFile(path, pgsvi.Load[*pgsvi.LDAPosterior]); err == nil {
		return m
	}
	return nil
}

// loadFile calls load with a file.
func loadFile[T any](path string, load func(io.Reader) (T, error)) (m T, err error) {
	f, err := os.Open(path)
	if err != nil {
		return m, err
	}
	defer f.Close()
	return load(f)
}

// predictTopics prints the topic proportions of the documents at a path as CSV.
func (c *command) predictTopics(m cli.TopicModel, path string, level float64, score bool) error {
	if path == "-" {
		return errTextsFile("predict")
	}
	_, terms := m.Topics().Dims()
	docs, names, err := data.ReadDocuments(c.ctx, path, terms, m.Vocab())
	if err != nil {
		return err
	}
	failed, err := cli.WriteTopics(c.ctx, c.csv, m, docs, names, level)
	if err != nil {
		return err
	}
	line := fmt.Sprintf("documents=%d errors=%d", len(docs.Docs), failed)
	if score {
		held, err := m.HeldOut(docs, nil)
		if err != nil {
			return err
		}
		if held.Tokens == 0 {
			return errors.New("-score predicts half of the words of a document from the other half, " +
				"but no document has two words")
		}
		line += fmt.Sprintf(" tokens=%.0f neg_log_prob=%.6g", held.Tokens, held.PerToken)
	}
	fmt.Fprintln(c.stderr, line)
	if failed > 0 {
		return errFailedRows
	}
	return nil
}
