// Command ctm finds topics and how they go together, by the correlated topic model.
//
// By default it reads the documentation of the Go standard library, which every
// installation of Go has: each source file is a document of its doc comments. It
// prints the topics with their top words, how well they predict words that were
// held out, beside the frequencies of the words alone, and the strongest
// correlations between topics, and draws these as a graph.
//
//	go run ./examples/ctm
//
// With -corpus it runs the same on a bag of words in the lda-c format of Blei or
// the docword format of UCI, gzipped or not:
//
//	go run ./examples/ctm -corpus ap.dat.gz -vocab vocab.txt -topics 10
//
// In both cases documents of even number, from 0, are trained on, and the odd ones are held out:
// of each, the second half of its words is predicted from the first. The last line
// of the output is meant for programs.
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
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/examples/internal/docs"
	"github.com/pgsvi/pgsvi/internal/cputime"
	"gonum.org/v1/gonum/mat"
)

// What this program asks of the library is in fit and find. The rest is files, flags and the
// picture.

// fit learns topics from the documents.
func fit(ctx context.Context, train *pgsvi.Corpus, topics int, opt *pgsvi.CTMOptions, s *pgsvi.Solver) (*pgsvi.CTMPosterior, *pgsvi.Result, error) {
	model, err := pgsvi.NewCTM(train, topics, opt)
	if err != nil {
		return nil, nil, err
	}
	return model.Fit(ctx, s)
}

// findings is what a posterior says of the documents that it was fitted to, and how well it
// predicts others.
type findings struct {
	post      *pgsvi.CTMPosterior
	score     *pgsvi.HeldOut
	words     [][]string // top words of each topic
	coherence []float64  // NPMI of each topic
}

func find(post *pgsvi.CTMPosterior, train, test *pgsvi.Corpus, words, draws int) (*findings, error) {
	score, err := post.HeldOut(test, &pgsvi.HeldOutOptions{Draws: draws})
	if err != nil {
		return nil, err
	}
	topics := post.Topics()
	top, err := pgsvi.TopTerms(topics, train.TermFreq(), 10, pgsvi.ByProbability)
	if err != nil {
		return nil, err
	}
	coherence, err := pgsvi.NPMI(top, train)
	if err != nil {
		return nil, err
	}
	names, err := pgsvi.TopWords(topics, train, words, pgsvi.ByFREX)
	return &findings{post, score, names, coherence}, err
}

// options are the flags.
type options struct {
	corpus, vocab, method, protocol, out, save string
	topics, words, workers, draws              int
	passes                                     float64
	seed                                       uint64
	diagonal                                   bool
}

func parseFlags(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("ctm", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.corpus, "corpus", "", "bag of words in `FILE`, lda-c or UCI docword, gzipped or not; empty means the documentation of Go")
	fs.StringVar(&o.vocab, "vocab", "", "vocabulary of the corpus in `FILE`, one word a line")
	fs.IntVar(&o.topics, "topics", 10, "number of topics")
	fs.Float64Var(&o.passes, "passes", 0, "passes over the documents; 0 means the library's choice")
	fs.Uint64Var(&o.seed, "seed", 1, "seed of all randomness")
	fs.StringVar(&o.method, "method", "pgsvi", "E-step: pgsvi, delta, laplace or meanfield")
	fs.BoolVar(&o.diagonal, "diagonal", false, "diagonal covariances of the documents")
	fs.StringVar(&o.protocol, "protocol", "", "`paper` means the settings of Khan et al. (2016), paper-scaled the same with the factor N/M")
	fs.IntVar(&o.words, "words", 8, "top words of a topic to print")
	fs.IntVar(&o.workers, "workers", 0, "goroutines for training; 0 means one for each core")
	fs.IntVar(&o.draws, "draws", 0, "draws a document when scoring; 0 means the 10,000 of the protocol")
	fs.StringVar(&o.out, "out", "ctm.png", "PNG `FILE` for the picture of the correlations; empty means none")
	fs.StringVar(&o.save, "save", "", "write the posterior to `FILE`, which pgsvi.Load reads")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case fs.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case !(o.passes >= 0) || o.topics < 1 || o.words < 1 || o.draws < 0 || o.workers < 0:
		return nil, errors.New("-passes, -draws and -workers must not be negative, -topics and -words must be positive")
	case o.vocab != "" && o.corpus == "":
		return nil, errors.New("-vocab without -corpus")
	}
	// A file that cannot be written is better found out before the fit.
	if o.out != "" && filepath.Ext(o.out) != ".png" {
		return nil, fmt.Errorf("-out %s: want a name that ends in .png", o.out)
	}
	for _, path := range []string{o.out, o.save} {
		if info, err := os.Stat(filepath.Dir(path)); path != "" && (err != nil || !info.IsDir()) {
			return nil, fmt.Errorf("no folder for %s", path)
		}
	}
	return o, nil
}

// model returns the options of the model.
func (o *options) model() (*pgsvi.CTMOptions, error) {
	m := &pgsvi.CTMOptions{Diagonal: o.diagonal}
	switch o.method {
	case "pgsvi":
	case "delta":
		m.Expectation = pgsvi.CTMDelta
	case "laplace":
		m.Expectation = pgsvi.CTMLaplace
	case "meanfield":
		m.Expectation = pgsvi.CTMMeanField
	default:
		return nil, fmt.Errorf("-method %s: want pgsvi, delta, laplace or meanfield", o.method)
	}
	switch o.protocol {
	case "":
	case "paper":
		m.Paper = true
	case "paper-scaled":
		m.Paper, m.PaperScaled = true, true
	default:
		return nil, fmt.Errorf("-protocol %s: want paper or paper-scaled", o.protocol)
	}
	return m, nil
}

func run(ctx context.Context, args []string, stdout, stderr *os.File) error {
	o, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	opt, err := o.model()
	if err != nil {
		return err
	}
	corpus, err := docs.Read(o.corpus, o.vocab)
	if err != nil {
		return err
	}
	if most := 10_000_000; corpus.Terms > most {
		return fmt.Errorf("a vocabulary of %d words; this program takes %d", corpus.Terms, most)
	}
	train, test := corpus.EvenOdd()
	fmt.Fprintf(stdout, "%d documents, %d words in the vocabulary, %.0f in all\n", len(corpus.Docs), corpus.Terms, corpus.Tokens())

	solver := &pgsvi.Solver{MaxPasses: 10, EvalEvery: -1, Workers: o.workers, Src: rand.NewPCG(o.seed, 0)}
	if o.passes > 0 {
		solver.MaxPasses = o.passes
	}
	if o.workers == 0 {
		solver.Workers = runtime.GOMAXPROCS(0)
	}
	progress, done := pgsvi.Progress(stderr, 0)
	if info, err := stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		solver.Recorder = progress
	}
	start, used := time.Now(), cputime.Seconds()
	post, res, err := fit(ctx, train, o.topics, opt, solver)
	seconds, cpu := time.Since(start).Seconds(), cputime.Seconds()-used
	done()
	if err != nil {
		return err
	}
	if o.save != "" {
		if err := docs.Save(o.save, post); err != nil {
			return err
		}
	}
	found, err := find(post, train, test, o.words, o.draws)
	if err != nil {
		return err
	}
	if err := o.describe(stdout, found); err != nil {
		return err
	}
	score := found.score
	fmt.Fprintf(stdout, "\nwords held out: %.3f nats each, %.3f where they occur in training; by their frequencies alone %.3f\n", score.PerToken, score.InVocab, docs.Unigram(train, test))
	fmt.Fprintf(stdout, "heldout=%.4f iv=%.4f passes=%.0f cpu_seconds=%.2f seconds=%.2f\n", score.PerToken, score.InVocab, res.Passes, cpu, seconds)
	return nil
}

// describe prints the topics, the most frequent first, and their correlations, and draws these.
func (o *options) describe(w io.Writer, f *findings) error {
	share, _, _ := f.post.Proportions(0.95)
	order := make([]int, len(share))
	for k := range order {
		order[k] = k
	}
	slices.SortFunc(order, func(i, j int) int { return cmpDesc(share[i], share[j]) })
	name := make([]string, len(share)) // by three words
	fmt.Fprintf(w, "\ntopic  share  coherence  words\n")
	for rank, k := range order {
		name[k] = strings.Join(f.words[k][:min(3, len(f.words[k]))], " ")
		fmt.Fprintf(w, "%5d  %5.3f  %9.3f  %s\n", rank+1, share[k], f.coherence[k], strings.Join(f.words[k], " "))
	}
	corr := centred(f.post.Sigma())
	fmt.Fprintf(w, "\nstrongest correlations\n")
	pairs := strongest(corr, 8)
	for _, p := range pairs {
		fmt.Fprintf(w, "%+.2f  %s — %s\n", corr.At(p[0], p[1]), name[p[0]], name[p[1]])
	}
	if o.out == "" {
		return nil
	}
	return drawGraph(o.out, corr, name, share)
}

func cmpDesc(a, b float64) int {
	switch {
	case a > b:
		return -1
	case a < b:
		return 1
	}
	return 0
}

// centred returns the correlations of the logits less their mean over the topics of a document,
// which is all that the words tell.
func centred(sigma *mat.SymDense) *mat.SymDense {
	k := sigma.SymmetricDim()
	c := mat.NewDense(k, k, nil)
	for i := range k {
		for j := range k {
			c.Set(i, j, -1/float64(k))
		}
		c.Set(i, i, 1-1/float64(k))
	}
	var t, s mat.Dense
	t.Mul(c, sigma)
	s.Mul(&t, c)
	corr := mat.NewSymDense(k, nil)
	for i := range k {
		for j := range i {
			if v := s.At(i, i) * s.At(j, j); v > 0 {
				corr.SetSym(i, j, s.At(i, j)/math.Sqrt(v))
			}
		}
		corr.SetSym(i, i, 1)
	}
	return corr
}

// strongest returns the n pairs of topics with the largest correlations, whatever their sign.
func strongest(corr *mat.SymDense, n int) [][2]int {
	var pairs [][2]int
	for i := range corr.SymmetricDim() {
		for j := range i {
			pairs = append(pairs, [2]int{i, j})
		}
	}
	slices.SortStableFunc(pairs, func(a, b [2]int) int {
		return cmpDesc(math.Abs(corr.At(a[0], a[1])), math.Abs(corr.At(b[0], b[1])))
	})
	return pairs[:min(n, len(pairs))]
}

//go:generate go run -C ../.. ./examples/ctm -out examples/ctm/ctm.png

func main() {
	// Ctrl-C ends a fit early, with an error that says so.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "ctm:", err)
		os.Exit(1)
	}
}
