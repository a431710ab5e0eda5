package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
)

// header names the columns of the file.
var header = []string{"corpus", "topics", "method", "passes", "seed", "draws", "heldout_nats",
	"in_vocabulary_nats", "by_word_nats", "cpu_seconds"}

// A fit is a line of the file.
type fit struct {
	corpus, method                    string
	topics, passes, seed, draws       int
	heldOut, inVocab, byWord, seconds float64
}

func (f *fit) record() []string {
	number := func(x float64, digits int) string { return strconv.FormatFloat(x, 'f', digits, 64) }
	return []string{f.corpus, strconv.Itoa(f.topics), f.method, strconv.Itoa(f.passes),
		strconv.Itoa(f.seed), strconv.Itoa(f.draws),
		number(f.heldOut, 5), number(f.inVocab, 5), number(f.byWord, 5), number(f.seconds, 3)}
}

func parse(record []string) (f fit, err error) {
	f.corpus, f.method = record[0], record[2]
	for i, p := range map[int]*int{1: &f.topics, 3: &f.passes, 4: &f.seed, 5: &f.draws} {
		v, e := strconv.Atoi(record[i])
		*p, err = v, errors.Join(err, e)
	}
	for i, p := range map[int]*float64{6: &f.heldOut, 7: &f.inVocab, 8: &f.byWord, 9: &f.seconds} {
		v, e := strconv.ParseFloat(record[i], 64)
		*p, err = v, errors.Join(err, e)
	}
	return f, err
}

// measure fits all settings and writes a line to file after each fit. With resume, it keeps the
// lines of an earlier run in file.
func measure(ctx context.Context, file string, corpora []corpus, settings []setting, draws int,
	resume bool, progress io.Writer) (err error) {
	done := 0
	if resume {
		fits, err := load(file)
		if err != nil {
			return err
		}
		if done = len(fits); fits[0].draws != draws {
			return fmt.Errorf("%s is of %d draws, not of %d", file, fits[0].draws, draws)
		}
	} else if err := os.WriteFile(file, nil, 0o666); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := csv.NewWriter(f)
	if !resume {
		if err := w.Write(header); err != nil {
			return err
		}
	}
	for _, s := range settings {
		at := slices.IndexFunc(corpora, func(c corpus) bool { return c.name == s.corpus })
		if at < 0 {
			return fmt.Errorf("no corpus %s", s.corpus)
		}
		for seed := range s.seeds {
			if done > 0 {
				done--
				continue
			}
			r, err := s.fit(ctx, corpora[at], uint64(seed+1), draws)
			if err != nil {
				return fmt.Errorf("%s, %d topics, %s, seed %d: %w", s.corpus, s.topics, s.method,
					seed+1, err)
			}
			if err := w.Write(r.record()); err != nil {
				return err
			}
			w.Flush()
			fmt.Fprintln(progress, r.record())
		}
	}
	return w.Error()
}

// load reads a file of measure.
func load(file string) ([]fit, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	records, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(records) < 2 || !slices.Equal(records[0], header) {
		return nil, fmt.Errorf("%s is not a table of this program", file)
	}
	var fits []fit
	for i, record := range records[1:] {
		r, err := parse(record)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", file, i+2, err)
		}
		fits = append(fits, r)
	}
	return fits, nil
}

// printTable prints one Markdown line per setting, in the order of the file.
func printTable(w io.Writer, fits []fit) error {
	fmt.Fprintln(w, "| corpus, topics | method | passes | seeds | held out, mean (range) | in "+
		"vocabulary | by word | CPU s |")
	_, err := fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|")
	for len(fits) > 0 && err == nil {
		first := fits[0]
		n := 0
		for n < len(fits) && fits[n].corpus == first.corpus && fits[n].topics == first.topics &&
			fits[n].method == first.method && fits[n].passes == first.passes {
			n++
		}
		var mean fit
		lo, hi := math.Inf(1), math.Inf(-1)
		for _, r := range fits[:n] {
			lo, hi = min(lo, r.heldOut), max(hi, r.heldOut)
			mean.heldOut += r.heldOut / float64(n)
			mean.inVocab += r.inVocab / float64(n)
			mean.byWord += r.byWord / float64(n)
			mean.seconds += r.seconds / float64(n)
		}
		fits = fits[n:]
		byWord := ""
		if !math.IsNaN(mean.byWord) {
			byWord = fmt.Sprintf("%.3f", mean.byWord)
		}
		if first.method == frequencies {
			_, err = fmt.Fprintf(w, "| %s | %s | | | %.3f | %.3f | %s | |\n", first.corpus,
				first.method, mean.heldOut, mean.inVocab, byWord)
			continue
		}
		_, err = fmt.Fprintf(w, "| %s, %d | %s | %d | %d | %.3f (%.3f–%.3f) | %.3f | %s | %.1f |\n",
			first.corpus, first.topics, first.method, first.passes, n, mean.heldOut, lo, hi,
			mean.inVocab, byWord, mean.seconds)
	}
	return err
}
