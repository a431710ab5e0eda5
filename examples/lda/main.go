// Command lda finds topics by latent Dirichlet allocation, with stochastic variational inference.
//
// By default it reads the documentation of the Go standard library, which every
// installation of Go has: each source file is a document of its doc comments. It
// prints the topics, how well they predict words that were held out, and of which topics
// a document is that was not trained on.
//
//	go run ./examples/lda
//
// With -corpus it runs the same on a bag of words in the lda-c format of Blei or
// the docword format of UCI, gzipped or not:
//
//	go run ./examples/lda -corpus ap.dat.gz -vocab vocab.txt -topics 10
//
// Documents of even number, from 0, are trained on, and the odd ones are held out: of each, the
// second half of its words is predicted from the first, as in the example ctm. The last line of the
// output is meant for programs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/examples/internal/docs"
	"github.com/pgsvi/pgsvi/internal/cputime"
	"gonum.org/v1/gonum/floats"
)

// fit learns topics from the documents. What this program asks of the library is here and in
// describe.
func fit(ctx context.Context, train *pgsvi.Corpus, topics int, opt *pgsvi.LDAOptions, s *pgsvi.Solver) (*pgsvi.LDAPosterior, *pgsvi.Result, error) {
	model, err := pgsvi.NewLDA(train, topics, opt)
	if err != nil {
		return nil, nil, err
	}
	return model.Fit(ctx, s)
}

// describe prints the topics, those that documents have most of first, and the topics of a
// document.
func describe(w io.Writer, post *pgsvi.LDAPosterior, train, test *pgsvi.Corpus, words int) error {
	top, err := pgsvi.TopWords(post.Topics(), train, words, pgsvi.ByFREX)
	if err != nil {
		return err
	}
	proportions, err := post.DocTopics(train)
	if err != nil {
		return err
	}
	rows, k := proportions.Dims()
	share, order := make([]float64, k), make([]int, k)
	for n := range rows {
		floats.AddScaled(share, 1/float64(rows), proportions.RawRowView(n))
	}
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(i, j int) int {
		if share[i] > share[j] {
			return -1
		}
		return 1
	})
	fmt.Fprintf(w, "\ntopic  share  words\n")
	for rank, k := range order {
		fmt.Fprintf(w, "%5d  %5.3f  %s\n", rank+1, share[k], strings.Join(top[k], " "))
	}
	if len(test.Docs) == 0 {
		return nil
	}
	gamma, _, err := post.Infer(nil, test.Docs[0])
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\nthe first document that was held out, of %.0f words:", test.Docs[0].Tokens())
	total := floats.Sum(gamma)
	for rank, k := range order {
		if p := gamma[k] / total; p > 0.1 {
			fmt.Fprintf(w, " %.0f%% topic %d", 100*p, rank+1)
		}
	}
	fmt.Fprintln(w)
	return nil
}

// options are the flags.
type options struct {
	corpus, vocab, save    string
	topics, words, workers int
	passes                 float64
	seed                   uint64
	model                  pgsvi.LDAOptions
}

func parseFlags(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("lda", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.corpus, "corpus", "", "bag of words in `FILE`, lda-c or UCI docword, gzipped or not; empty means the documentation of Go")
	fs.StringVar(&o.vocab, "vocab", "", "vocabulary of the corpus in `FILE`, one word a line")
	fs.IntVar(&o.topics, "topics", 10, "number of topics")
	fs.Float64Var(&o.passes, "passes", 0, "passes over the documents; 0 means the library's choice")
	fs.Uint64Var(&o.seed, "seed", 1, "seed of all randomness")
	fs.Float64Var(&o.model.DocPrior, "doc-prior", 0, "Dirichlet parameter of a document; 0 means the library's choice")
	fs.Float64Var(&o.model.TopicPrior, "topic-prior", 0, "Dirichlet parameter of a topic; 0 means the library's choice")
	fs.IntVar(&o.words, "words", 8, "top words of a topic to print")
	fs.IntVar(&o.workers, "workers", 0, "goroutines for training; 0 means one for each core")
	fs.StringVar(&o.save, "save", "", "write the posterior to `FILE`, which pgsvi.Load reads")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case fs.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case !(o.passes >= 0) || o.topics < 1 || o.words < 1 || o.workers < 0:
		return nil, errors.New("-passes and -workers must not be negative, -topics and -words must be positive")
	case o.vocab != "" && o.corpus == "":
		return nil, errors.New("-vocab without -corpus")
	}
	// A file that cannot be written is better found out before the fit.
	if info, err := os.Stat(filepath.Dir(o.save)); o.save != "" && (err != nil || !info.IsDir()) {
		return nil, fmt.Errorf("no folder for %s", o.save)
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr *os.File) error {
	o, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	corpus, err := docs.Read(o.corpus, o.vocab)
	if err != nil {
		return err
	}
	train, test := corpus.EvenOdd()
	fmt.Fprintf(stdout, "%d documents, %d words in the vocabulary, %.0f in all\n", len(corpus.Docs), corpus.Terms, corpus.Tokens())

	solver := &pgsvi.Solver{MaxPasses: o.passes, Workers: o.workers, Src: rand.NewPCG(o.seed, 0)}
	if o.workers == 0 {
		solver.Workers = runtime.GOMAXPROCS(0)
	}
	progress, done := pgsvi.Progress(stderr, 0)
	if info, err := stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		solver.Recorder = progress
	}
	used := cputime.Seconds()
	post, res, err := fit(ctx, train, o.topics, &o.model, solver)
	cpu := cputime.Seconds() - used
	done()
	if err != nil {
		return err
	}
	if o.save != "" {
		if err := docs.Save(o.save, post); err != nil {
			return err
		}
	}
	score, err := post.HeldOut(test, nil)
	if err != nil {
		return err
	}
	if err := describe(stdout, post, train, test, o.words); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\nwords held out: %.3f nats each, %.3f where they occur in training; by their frequencies alone %.3f; %.0f passes\n", score.PerToken, score.InVocab, docs.Unigram(train, test), res.Passes)
	fmt.Fprintf(stdout, "heldout=%.4f iv=%.4f elbo=%.1f cpu_seconds=%.2f\n", score.PerToken, score.InVocab, res.ELBO, cpu)
	return nil
}

func main() {
	// Ctrl-C ends a fit early, with an error that says so.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "lda:", err)
		os.Exit(1)
	}
}
