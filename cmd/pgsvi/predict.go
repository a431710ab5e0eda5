package main

import (
	"encoding/csv"
	"flag"
	"fmt"
	"strconv"
	"strings"

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
		what := "mean"
		if _, label := p.Outcome(); label != "" {
			what = "P(" + label + ")"
		}
		if err := out.Write([]string{"row", what, "lo", "hi", "note"}); err != nil {
			return err
		}
		rows, failed := 0, 0
		for a, err := range p.Table(t, *level) {
			rows++
			if a == nil {
				return err // of the table
			}
			number := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
			record := []string{strconv.Itoa(rows), number(a.Mean), number(a.Lo), number(a.Hi), strings.Join(a.Notes, "; ")}
			if err != nil {
				failed++
				record = []string{strconv.Itoa(rows), "", "", "", "error: " + plain(err)}
			}
			if err := out.Write(record); err != nil {
				return err
			}
		}
		if out.Flush(); out.Error() != nil {
			return out.Error()
		}
		line := fmt.Sprintf("rows=%d errors=%d", rows, failed)
		if *score {
			s, err := p.Score(t)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" bits=%.6g error=%.6g", s.Bits, s.Error)
		}
		fmt.Fprintln(c.stderr, line)
		return nil
	}
}
