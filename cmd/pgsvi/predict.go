package main

import (
	"cmp"
	"encoding/csv"
	"flag"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
)

func predict(f *flag.FlagSet) func(*command, []string) error {
	level := f.Float64("level", 0.9, "the probability `P` that an interval lo to hi holds")
	score := f.Bool("score", false, "compare with the outcomes in the table, on standard error")
	return func(c *command, args []string) error {
		p, err := data.LoadFile(args[0])
		if err != nil {
			return err
		}
		t, err := data.ReadFile(args[1])
		if err != nil {
			return err
		}
		out := csv.NewWriter(c.stdout)
		head := []string{"row", "mean", "lo", "hi", "note"}
		if _, label := p.Outcome(); label != "" {
			head[1] = "P(" + label + ")"
		}
		classes := p.Classes()
		if classes != nil {
			head = []string{"row", "class"}
			for _, name := range classes {
				head = append(head, "P("+name+")")
			}
			head = append(head, "note")
		}
		if err := out.Write(head); err != nil {
			return err
		}
		rows, failed := 0, 0
		write := func(a *data.Answer, err error) error {
			rows++
			number := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
			record := []string{strconv.Itoa(rows), number(a.Mean), number(a.Lo), number(a.Hi)}
			if classes != nil {
				record = []string{strconv.Itoa(rows), a.Label}
				for _, q := range a.Probs {
					record = append(record, number(q))
				}
			}
			record = append(record, strings.Join(a.Notes, "; "))
			if err != nil {
				failed++
				record = make([]string, len(head))
				record[0], record[len(head)-1] = strconv.Itoa(rows), "error: "+plain(err)
			}
			return out.Write(record)
		}
		written := func(yield func(*data.Answer, error) bool) {
			for a, err := range p.Table(t, *level) {
				if a != nil {
					if e := write(a, err); e != nil {
						a, err = nil, e
					}
				}
				if !yield(a, err) {
					return
				}
			}
		}
		var scores *pgsvi.Scores
		if *score {
			scores, err = p.ScoreAnswers(written)
		} else {
			for a, e := range written {
				if a == nil {
					err = e // of the table, or of writing
				}
			}
		}
		if out.Flush(); err != nil || out.Error() != nil {
			return cmp.Or(err, out.Error())
		}
		line := fmt.Sprintf("rows=%d errors=%d", rows, failed)
		if *score {
			fmt.Fprint(c.stderr, scores)
			line += scoreText(scores)
		}
		fmt.Fprintln(c.stderr, line)
		return nil
	}
}

// scoreText returns bits, the log loss of a row to the base 2, and error, the share of labels that
// are not the likelier one, or the root of the mean squared error.
func scoreText(s *pgsvi.Scores) string {
	loss, _ := s.Value("log loss")
	failed, ok := s.Value("RMSE")
	if !ok {
		accuracy, _ := s.Value("accuracy")
		failed = 1 - accuracy
	}
	return fmt.Sprintf(" bits=%.6g error=%.6g", loss/math.Ln2, failed)
}
