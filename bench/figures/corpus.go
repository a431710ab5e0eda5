package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// A corpus is a corpus of figure 3. Documents with even numbers are for training, and odd documents
// for testing.
type corpus struct {
	name        string
	train, test *pgsvi.Corpus
	unigram     float64 // held-out nats per word for word frequencies alone
}

// corpora returns the corpora of figure 3: AP and, without -quick, NIPS. Without a data folder it
// returns a corpus drawn from the model.
func (o *options) corpora(stdout io.Writer) ([]*corpus, error) {
	type set struct {
		name string
		read func() (*pgsvi.Corpus, error)
	}
	made := set{"synthetic", func() (*pgsvi.Corpus, error) { return synthetic(400, 600, 60), nil }}
	var sets []set
	if o.data != "" && !o.quick {
		sets = append(sets, set{"nips", func() (*pgsvi.Corpus, error) {
			return readCorpus(filepath.Join(o.data, "nips", "docword.nips.txt.gz"), data.ReadUCI)
		}})
	}
	if o.data != "" {
		sets = append(sets, set{"ap", func() (*pgsvi.Corpus, error) {
			return readCorpus(filepath.Join(o.data, "ap", "ap.dat.gz"),
				func(r io.Reader) (*pgsvi.Corpus, error) { return data.ReadLDAC(r, 0) })
		}})
	}
	if o.data == "" || slices.Contains(o.sets, made.name) {
		sets = append(sets, made)
	}
	sets, err := choose("data sets", o.sets, sets, func(s set) string { return s.name })
	if err != nil {
		return nil, err
	}
	if o.data == "" {
		fmt.Fprintln(stdout, "no folder of data: a synthetic corpus in place of NIPS and AP")
	}
	var all []*corpus
	for _, s := range sets {
		c, err := s.read()
		if err != nil {
			return nil, err
		}
		split := &corpus{name: s.name}
		split.train, split.test = c.EvenOdd()
		if split.unigram, err = unigram(split.train, split.test); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		all = append(all, split)
	}
	return all, nil
}

// readCorpus reads a corpus from a file.
func readCorpus(file string, read func(io.Reader) (*pgsvi.Corpus, error)) (*pgsvi.Corpus, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// unigram returns the held-out score of word frequencies, which are a model with one topic.
func unigram(train, test *pgsvi.Corpus) (float64, error) {
	frequencies := mat.NewDense(1, train.Terms, train.TermFreq())
	const none = 1e-9 // because zero means the default
	model, err := pgsvi.NewCTM(train, 1, &pgsvi.CTMOptions{Topics: frequencies, TopicPrior: none})
	if err != nil {
		return 0, err
	}
	st, err := model.NewStepper(context.Background(), nil, nil)
	if err != nil {
		return 0, err
	}
	return heldOut(model, st, test, 2)
}

// heldOut returns the score of test in nats per word. Zero draws mean the draws of the protocol.
func heldOut(model *pgsvi.CTM, st pgsvi.Stepper, test *pgsvi.Corpus, draws int) (float64, error) {
	post, err := model.Posterior(st)
	if err != nil {
		return 0, err
	}
	h, err := post.HeldOut(test, &pgsvi.HeldOutOptions{Draws: draws})
	if err != nil {
		return 0, err
	}
	if math.IsNaN(h.PerToken) {
		return 0, errors.New("no words are held out")
	}
	return h.PerToken, nil
}

// synthetic draws a corpus from a correlated topic model with ten topics that are correlated in
// pairs. It always returns the same corpus.
func synthetic(docs, terms, length int) *pgsvi.Corpus {
	const topics = 10
	rng := rand.New(rand.NewPCG(1, 0))
	words := make([][]float64, topics)
	for k := range words {
		words[k] = weights(terms, func(int) float64 { return 2 * rng.NormFloat64() })
	}
	c := &pgsvi.Corpus{Terms: terms}
	for range docs {
		var shared [topics / 2]float64
		for i := range shared {
			shared[i] = rng.NormFloat64()
		}
		shares := weights(topics,
			func(k int) float64 { return 1.2*shared[k/2] + 0.9*rng.NormFloat64() })
		count := make([]float64, terms)
		for range length {
			count[pick(words[pick(shares, rng)], rng)]++
		}
		var d pgsvi.Document
		for v, n := range count {
			if n > 0 {
				d.Words, d.Counts = append(d.Words, v), append(d.Counts, n)
			}
		}
		c.Docs = append(c.Docs, d)
	}
	return c
}

// weights returns n positive numbers that sum to 1, from their logarithms.
func weights(n int, log func(i int) float64) []float64 {
	w := make([]float64, n)
	for i := range w {
		w[i] = math.Exp(log(i))
	}
	floats.Scale(1/floats.Sum(w), w)
	return w
}

// pick returns i with probability p[i].
func pick(p []float64, rng *rand.Rand) int {
	u := rng.Float64()
	for i, x := range p {
		if u -= x; u < 0 {
			return i
		}
	}
	return len(p) - 1
}
