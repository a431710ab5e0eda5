package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/cmd/pgsvi/internal/cli"
	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/mat"
)

func topics(f *flag.FlagSet) func(*command, []string) error {
	model := f.String("model", "ctm", "`name`: ctm, whose topics may be correlated, or lda")
	k := f.Int("topics", 20, "number `K` of topics")
	vocab := f.String("vocab", "", "`file` of words, one per line, for a corpus of word numbers")
	goal := f.Float64("goal", 0,
		"stop when the gap in `nats` is below this (default: depends on the model)")
	out := f.String("o", "", "`file` to write the model to")
	return func(c *command, args []string) error {
		start := time.Now()
		if *k < 2 || *model != "ctm" && *model != "lda" {
			return fmt.Errorf("-topics is %d and -model is %s; set -topics to 2 or more and "+
				"-model to ctm or lda: %w", *k, *model, cli.ErrUsage)
		}
		if args[0] == "-" {
			return errTextsFile("topics")
		}
		corpus, err := data.ReadCorpusContext(c.ctx, args[0], *vocab)
		if err != nil {
			return err
		}
		s, done := c.progress(*goal)
		defer done()
		var res *pgsvi.Result
		var post interface {
			Topics() *mat.Dense
			Save(w io.Writer) error
		}
		if *model == "lda" {
			var m *pgsvi.LDA
			if m, err = pgsvi.NewLDA(corpus, *k, nil); err == nil {
				post, res, err = m.Fit(c.ctx, s)
			}
		} else {
			var m *pgsvi.CTM
			if m, err = pgsvi.NewCTM(corpus, *k, nil); err == nil {
				post, res, err = m.Fit(c.ctx, s)
			}
		}
		if err != nil {
			return err
		}
		words, err := pgsvi.TopWords(post.Topics(), corpus, 10, pgsvi.ByProbability)
		if err != nil {
			return err
		}
		done()
		for i, w := range words {
			fmt.Fprintf(c.stdout, "topic %2d  %s\n", i+1, strings.Join(w, " "))
		}
		if err := c.save(*out, post.Save); err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "documents=%d words=%d topics=%d neg_elbo=%.12g seconds=%.2f\n",
			len(corpus.Docs), corpus.Terms, *k, -res.ELBO, time.Since(start).Seconds())
		return nil
	}
}

// errTextsFile returns the error of a verb that cannot read texts from standard input.
func errTextsFile(verb string) error {
	return fmt.Errorf("%s does not read texts from standard input; write them to a file that ends in "+
		".txt, with one text per line: %w", verb, cli.ErrUsage)
}
