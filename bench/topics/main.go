// Command topics measures how well correlated topic models predict held-out words, and the time of
// their training:
//
//	go run ./bench/topics -out bench/topics/topics.csv
//	go run ./bench/topics -table bench/topics/topics.csv
//
// The first command fits every row of the table, on AP and NIPS from the folder of -data. It writes
// one line per fit to -out and prints the table. The second command prints the table of such a
// file.
//
// Documents with even numbers, from 0, are for training. In odd documents, each token at an odd
// position is predicted from the tokens at even positions, as in CTMPosterior.HeldOut, with 1000
// draws of q or -draws. The 10,000 draws of the protocol change the third decimal. Scores are in
// nats per token; lower is better. Training runs in one goroutine, and the table has the CPU
// seconds of the process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/command"
	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/internal/cputime"
)

func main() {
	command.Main("topics", run)
}

//go:generate go run -C ../.. ./bench/topics -table bench/topics/topics.csv -readme bench/README.md

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("topics", flag.ContinueOnError)
	f.SetOutput(stderr)
	folder := f.String("data", os.Getenv("PGSVI_DATA"),
		"`folder` with ap and nips (default: PGSVI_DATA)")
	out := f.String("out", "topics.csv", "`file` to write the measurements to")
	readme := f.String("readme", "", "Markdown `file` whose table to replace")
	stored := f.String("table", "", "measure nothing, print the table of this `file`")
	draws := f.Int("draws", 1000,
		"draws from q of a test document; the protocol has 10,000, which take four times as long")
	resume := f.Bool("resume", false, "continue after the last line of -out")
	if err := f.Parse(args); err != nil {
		return err
	}
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	case *draws < 1:
		return fmt.Errorf("-draws is %d, want a positive number", *draws)
	}
	if *stored == "" {
		if *folder == "" {
			return errors.New("there is no data folder; set PGSVI_DATA or -data")
		}
		corpora, err := read(*folder)
		if err != nil {
			return err
		}
		if err := measure(ctx, *out, corpora, settings, *draws, *resume, stderr); err != nil {
			return err
		}
		*stored = *out
	}
	fits, err := load(*stored)
	if err != nil {
		return err
	}
	var table strings.Builder
	if err := printTable(&table, fits); err != nil {
		return err
	}
	if *readme != "" {
		if err := tables.Replace(*readme, map[string]string{"topics": table.String()}); err != nil {
			return err
		}
	}
	_, err = io.WriteString(stdout, table.String())
	return err
}

// A setting is a row of the table: a model, and its number of seeds, which start at 1.
type setting struct {
	corpus, method        string
	topics, passes, seeds int
	opt                   pgsvi.CTMOptions
	byWord                bool // whether to score also with HeldOutOptions.ByWord
}

// frequencies is the method of the baseline rows.
const frequencies = "frequencies alone"

var settings = []setting{
	{corpus: "ap", method: frequencies, topics: 1, seeds: 1},
	{corpus: "ap", method: "PG-SVI", topics: 10, passes: 10, seeds: 5, byWord: true},
	{corpus: "ap", method: "PG-SVI, diagonal V", topics: 10, passes: 10, seeds: 5,
		opt: pgsvi.CTMOptions{Diagonal: true}},
	{corpus: "ap", method: "mean-field E-step", topics: 10, passes: 10, seeds: 5,
		opt: pgsvi.CTMOptions{Expectation: pgsvi.CTMMeanField}},
	{corpus: "ap", method: "Laplace E-step", topics: 10, passes: 10, seeds: 5,
		opt: pgsvi.CTMOptions{Expectation: pgsvi.CTMLaplace}},
	{corpus: "ap", method: "delta E-step", topics: 10, passes: 10, seeds: 5,
		opt: pgsvi.CTMOptions{Expectation: pgsvi.CTMDelta}},
	{corpus: "ap", method: "Khan et al. (2016) without N/M", topics: 10, passes: 5, seeds: 5,
		opt: pgsvi.CTMOptions{Paper: true}},
	{corpus: "ap", method: "Khan et al. (2016) with N/M", topics: 10, passes: 5, seeds: 5,
		opt: pgsvi.CTMOptions{Paper: true, PaperScaled: true}},
	{corpus: "nips", method: frequencies, topics: 1, seeds: 1},
	{corpus: "nips", method: "PG-SVI", topics: 10, passes: 10, seeds: 5},
	{corpus: "ap", method: "PG-SVI", topics: 50, passes: 10, seeds: 2},
}

// A corpus has documents for training and for testing.
type corpus struct {
	name        string
	train, test *pgsvi.Corpus
}

// read reads AP and NIPS.
func read(folder string) ([]corpus, error) {
	var all []corpus
	for _, c := range []struct {
		name, file string
		read       func(io.Reader) (*pgsvi.Corpus, error)
	}{
		{"ap", "ap.dat.gz",
			func(r io.Reader) (*pgsvi.Corpus, error) { return data.ReadLDAC(r, 0) }},
		{"nips", "docword.nips.txt.gz", data.ReadUCI},
	} {
		path := filepath.Join(folder, c.name, c.file)
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		docs, err := c.read(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		train, test := docs.EvenOdd()
		all = append(all, corpus{c.name, train, test})
	}
	return all, nil
}

// fit fits s with a seed and scores it.
func (s *setting) fit(ctx context.Context, c corpus, seed uint64, draws int) (fit, error) {
	r := fit{corpus: s.corpus, method: s.method, topics: s.topics, passes: s.passes,
		seed: int(seed), draws: draws, byWord: math.NaN()}
	if s.method == frequencies {
		r.heldOut, r.inVocab = unigram(c)
		r.byWord = r.heldOut
		return r, nil
	}
	model, err := pgsvi.NewCTM(c.train, s.topics, &s.opt)
	if err != nil {
		return r, err
	}
	solver := &pgsvi.Solver{MaxPasses: float64(s.passes), EvalEvery: -1, Workers: 1,
		Src: rand.NewPCG(seed, 0)}
	before := cputime.Seconds()
	post, _, err := model.Fit(ctx, solver)
	if err != nil {
		return r, err
	}
	r.seconds = cputime.Seconds() - before
	h, err := post.HeldOut(c.test, &pgsvi.HeldOutOptions{Draws: draws})
	if err != nil {
		return r, err
	}
	r.heldOut, r.inVocab = h.PerToken, h.InVocab
	if s.byWord {
		if h, err = post.HeldOut(c.test,
			&pgsvi.HeldOutOptions{Draws: draws, ByWord: true}); err != nil {
			return r, err
		}
		r.byWord = h.PerToken
	}
	return r, nil
}

// unigram returns the scores of word frequencies, smoothed like topics, over all tokens and over
// tokens whose word occurs in training.
func unigram(c corpus) (all, inVocab float64) {
	freq, total := c.train.TermFreq(), c.train.Tokens()
	var n, in float64
	for _, d := range c.test.Docs {
		_, second := d.Halves()
		for i, v := range second.Words {
			y := second.Counts[i]
			nats := -y * math.Log(0.99*freq[v]/total+0.01/float64(c.train.Terms))
			all, n = all+nats, n+y
			if freq[v] > 0 {
				inVocab, in = inVocab+nats, in+y
			}
		}
	}
	return all / n, inVocab / in
}
