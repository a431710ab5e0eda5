package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Settings of part lda, which fits topics of AP.
const (
	ldaTopics = 10
	ldaPasses = 10
	ldaSeeds  = 3
	// The priors of pgsvi, for the variant of the other program that uses them.
	ldaDocPrior, ldaTopicPrior = 0.2, 0.3
	// ldaBase is the fit with whose seconds the other fits are compared.
	ldaBase = "pgsvi, CTM"
)

// lda compares the time of topic models and their scores on held-out words. LDAPosterior.HeldOut
// scores all models except the CTM, which has its own HeldOut with the same protocol.
func (o *options) lda(ctx context.Context) ([]row, error) {
	train, test, err := o.readAP()
	if o.leftOut("ap", err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	documents, topics := filepath.Join(o.temp, "documents"), filepath.Join(o.temp, "topics")
	if err := writeDocuments(documents, train); err != nil {
		return nil, err
	}
	args := []any{documents, train.Terms, ldaTopics, ldaPasses, ldaSeeds, ldaDocPrior,
		ldaTopicPrior, topics}
	rows, err := o.script(ctx, "ap", "lda.py", args...)
	if err != nil {
		return nil, err
	}
	if version, err := try(ctx, "gensim (Debian: python3-gensim)", o.python, "-c",
		"import gensim; print('gensim', gensim.__version__)"); err != nil {
		fmt.Fprintf(o.stderr, "gensim is left out: %v\n", err)
	} else {
		more, err := o.script(ctx, "ap", "lda_gensim.py", args...)
		if err != nil {
			return nil, err
		}
		for _, r := range more {
			r.version = version
			rows = append(rows, r)
		}
	}
	for i, r := range rows {
		prior := [2]float64{1.0 / ldaTopics, 1.0 / ldaTopics}
		if r.variant == "online, batches and priors of pgsvi" {
			prior = [2]float64{ldaDocPrior, ldaTopicPrior}
		}
		post, err := posteriorOf(ctx, train,
			fmt.Sprintf("%s-%s-%s-%d", topics, r.method, r.variant, r.seed), prior[0], prior[1])
		if err != nil {
			return nil, err
		}
		if err := rows[i].score(post, test); err != nil {
			return nil, err
		}
	}
	once := *o
	once.repeats = 1
	for seed := range ldaSeeds {
		ours, err := once.ldaRows(ctx, train, test, seed+1)
		if err != nil {
			return nil, err
		}
		rows = append(rows, ours...)
	}
	o.versions = once.versions
	for seed := range ldaSeeds {
		var of []row
		at := func(f func(i int)) {
			for i, r := range rows {
				if r.seed == seed+1 {
					f(i)
				}
			}
		}
		at(func(i int) { of = append(of, rows[i]) })
		relate(of, ldaBase)
		at(func(i int) { rows[i], of = of[0], of[1:] })
	}
	return rows, nil
}

// A scorer is the posterior of a topic model.
type scorer interface {
	HeldOut(c *pgsvi.Corpus, opt *pgsvi.HeldOutOptions) (*pgsvi.HeldOut, error)
}

// ldaRows returns fits of this library with a seed.
func (o *options) ldaRows(ctx context.Context, train, test *pgsvi.Corpus, seed int) ([]row, error) {
	solver := func() *pgsvi.Solver {
		return &pgsvi.Solver{MaxPasses: ldaPasses, EvalEvery: -1, Src: rand.NewPCG(uint64(seed), 0)}
	}
	var rows []row
	for _, f := range []struct {
		name string
		fit  func() (scorer, *pgsvi.Result, error)
	}{
		{"LDA", func() (scorer, *pgsvi.Result, error) {
			m, err := pgsvi.NewLDA(train, ldaTopics, nil)
			if err != nil {
				return nil, nil, err
			}
			return m.Fit(ctx, solver())
		}},
		{"CTM", func() (scorer, *pgsvi.Result, error) {
			m, err := pgsvi.NewCTM(train, ldaTopics, nil)
			if err != nil {
				return nil, nil, err
			}
			return m.Fit(ctx, solver())
		}},
	} {
		r := o.newRow("ap", f.name, "")
		r.name, r.seed = "pgsvi, "+f.name, seed
		var post scorer
		var res *pgsvi.Result
		var err error
		if r.seconds, err = o.seconds(func() (err error) {
			post, res, err = f.fit()
			return err
		}); err != nil {
			return nil, err
		}
		r.pass, r.negELBO = res.Passes, -res.ELBO
		if err := r.score(post, test); err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// score sets the score of a posterior on held-out documents.
func (r *row) score(post scorer, test *pgsvi.Corpus) error {
	h, err := post.HeldOut(test, &pgsvi.HeldOutOptions{Draws: 1000})
	if err != nil {
		return err
	}
	r.bits = h.PerToken / math.Ln2
	r.note = fmt.Sprintf("%.4f nats a word, %.4f in the vocabulary", h.PerToken, h.InVocab)
	return nil
}

// readAP returns the training and test documents of AP.
func (o *options) readAP() (train, test *pgsvi.Corpus, err error) {
	if o.data == "" {
		return nil, nil, errNoFolder
	}
	f, err := os.Open(filepath.Join(o.data, "ap", "ap.dat.gz"))
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	c, err := data.ReadLDAC(f, 0)
	if err != nil {
		return nil, nil, err
	}
	train, test = c.EvenOdd()
	return train, test, nil
}

// writeDocuments writes documents in the lda-c format.
func writeDocuments(path string, c *pgsvi.Corpus) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for _, d := range c.Docs {
		fmt.Fprint(w, len(d.Words))
		for i, v := range d.Words {
			fmt.Fprintf(w, " %d:%v", v, d.Counts[i])
		}
		fmt.Fprintln(w)
	}
	return errors.Join(w.Flush(), f.Close())
}

// posteriorOf returns the posterior with the topic parameters in a file.
func posteriorOf(ctx context.Context, train *pgsvi.Corpus, path string, docPrior,
	topicPrior float64) (*pgsvi.LDAPosterior, error) {
	lambda, err := readFloats(path, ldaTopics*train.Terms)
	if err != nil {
		return nil, err
	}
	for i, l := range lambda {
		lambda[i] = max(0, l-topicPrior) // NewLDA adds this to the prior
	}
	m, err := pgsvi.NewLDA(train, ldaTopics,
		&pgsvi.LDAOptions{DocPrior: docPrior, TopicPrior: topicPrior,
			Topics: mat.NewDense(ldaTopics, train.Terms, lambda)})
	if err != nil {
		return nil, err
	}
	st, err := m.NewStepper(ctx, nil, nil)
	if err != nil {
		return nil, err
	}
	return m.Posterior(st)
}

// ldaTable returns the table of part lda: means over the seeds, and the range of the scores.
func ldaTable(rows []row) string {
	var lines [][]string
	for _, label := range distinct(rows, row.label) {
		var seconds, ratio, nats []float64
		for _, r := range rows {
			if r.label() == label {
				seconds, ratio, nats = append(seconds, r.seconds), append(ratio, r.ratio),
					append(nats, r.bits*math.Ln2)
			}
		}
		mean := func(x []float64) float64 { return floats.Sum(x) / float64(len(x)) }
		lines = append(lines,
			[]string{label, number("%.2f", mean(seconds)), number("%.2f", mean(ratio)),
				fmt.Sprintf("%.3f (%.3f–%.3f)", mean(nats), slices.Min(nats), slices.Max(nats))})
	}
	return tables.Markdown([]string{"", "seconds", "ratio", "held out, nats per word: mean (range)"},
		lines)
}
