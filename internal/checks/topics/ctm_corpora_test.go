package topics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// oneStep returns q of documents 0 and 1 after one step on them.
func oneStep(t *testing.T, c *Corpus, opt CTMOptions, beta float64) []float64 {
	t.Helper()
	words := mat.NewDense(3, c.Terms, nil)
	for v := range c.Terms {
		for k := range 3 {
			words.Set(k, v, 1+math.Abs(math.Sin(float64(1+v+k*c.Terms))))
		}
	}
	opt.Topics, opt.TopicPrior = words, 1e-12 // otherwise topics depend on the size of the corpus
	rng := rand.New(rand.NewPCG(1, 2))
	m := kit.MustCTM(t, c, 3, &opt)
	st := testkit.Must(m.NewStepper(context.Background(), &Env{Rng: rng}, nil))
	if _, err := st.Step(context.Background(), &Env{Rng: rng}, []int{0, 1}, beta); err != nil {
		t.Fatal(err)
	}
	p := testkit.Must(m.Posterior(st))
	var q []float64
	for n := range 2 {
		d := p.Doc(n)
		q = append(append(q, d.LogitMean(nil)...), d.LogitCov().RawSymmetric().Data...)
	}
	return q
}

// TestCTMPaperReadings checks two readings of the paper, with and without the factor N/M.
func TestCTMPaperReadings(t *testing.T) {
	c := kit.ToyCorpus(40, 6)
	few := c.Subset([]int{0, 1, 2, 3})
	inf := math.Inf(1)
	for _, diag := range []bool{false, true} {
		paper := CTMOptions{Paper: true, Diagonal: diag}
		scaled := CTMOptions{Paper: true, PaperScaled: true, Diagonal: diag}
		plain := CTMOptions{Inner: 1, FirstInner: 1, Diagonal: diag}
		// Without the factor, a document does not depend on the number of documents.
		testkit.CheckClose(t, fmt.Sprintf("diagonal %v: 4 documents and 40", diag),
			oneStep(t, few, paper, inf), oneStep(t, c, paper, inf), 1e-12)
		if got, want := oneStep(t, c, paper, 0.001),
			oneStep(t, c, paper, inf); !slices.Equal(got, want) {
			t.Errorf("diagonal %v: the default β is not 0.001: %v, want %v", diag, got, want)
		}
		// With the factor, the step has the length N/M times β.
		for _, x := range []struct {
			c    *Corpus
			beta float64
		}{{c, 20}, {few, 2}} {
			want := oneStep(t, x.c, plain, x.beta*0.001)
			testkit.CheckClose(t, fmt.Sprintf("diagonal %v, %d documents", diag, len(x.c.Docs)),
				oneStep(t, x.c, scaled, inf), want, 1e-14)
			testkit.CheckClose(t,
				fmt.Sprintf("diagonal %v, %d documents, β = 0.01", diag, len(x.c.Docs)),
				oneStep(t, x.c, scaled, 0.01), oneStep(t, x.c, plain, x.beta*0.01), 1e-14)
		}
		if slices.Equal(oneStep(t, c, scaled, inf), oneStep(t, few, scaled, inf)) {
			t.Errorf("diagonal %v: N plays no part", diag)
		}
	}
	if _, err := NewCTM(c, 3, &CTMOptions{PaperScaled: true}); !errors.Is(err, ErrParam) {
		t.Errorf("PaperScaled without Paper: %v", err)
	}
}

// TestCTMPaperAP runs the settings of the paper on AP for 5 passes. Without the factor N/M, q
// hardly moves, and the score stays near 8.478, the score of the word frequencies. With the
// factor, the score almost reaches the default of this package. At the step lengths that this
// factor causes, the steps of the appendix have no V⁻¹.
func TestCTMPaperAP(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("slow")
	}
	train, test := loadAP(t)
	for seed := range uint64(1) {
		five := Solver{MaxPasses: 5}
		without, _ := paperScore(t, train, test, 10, &CTMOptions{Paper: true}, seed, five)
		with, _ := paperScore(t, train, test, 10, &CTMOptions{Paper: true, PaperScaled: true}, seed,
			five)
		t.Logf("seed %d: without N/M %.4f, with it %.4f", seed, without.PerToken, with.PerToken)
		if math.Abs(without.PerToken-8.458) > 0.01 || math.Abs(with.PerToken-8.10) > 0.03 {
			t.Errorf("seed %d: without N/M %.4f, want 8.458 ± 0.01; with it %.4f, want 8.10 ± 0.03",
				seed, without.PerToken, with.PerToken)
		}
	}
	m := kit.MustCTM(t, train, 10, &CTMOptions{Paper: true})
	beta := 0.001 * float64(len(train.Docs)) / 2
	_, res, err := m.Fit(context.Background(),
		&Solver{MaxPasses: 1, BatchSize: 2, EvalEvery: -1, StepSize: ConstantStep(beta)})
	if !errors.Is(err, ErrNotPosDef) || res.K > 10 {
		t.Errorf("β = %v as in the appendix: %v", beta, err)
	} else {
		t.Log(err)
	}
}

// loadAP reads the AP corpus. Documents with even index form the training set, and the others
// form the test set.
func loadAP(t testing.TB) (train, test *Corpus) {
	t.Helper()
	c := loadCorpus(t, "ap")
	if len(c.Docs) != 2246 {
		t.Fatalf("AP has %d documents", len(c.Docs))
	}
	return c.EvenOdd()
}

// loadNIPS reads the NIPS corpus.
func loadNIPS(t testing.TB) (train, test *Corpus) {
	t.Helper()
	return loadCorpus(t, "nips").EvenOdd()
}

// some returns every fourth document.
func some(c *Corpus) *Corpus {
	few := *c
	few.Docs = nil
	for i := 0; i < len(c.Docs); i += 4 {
		few.Docs = append(few.Docs, c.Docs[i])
	}
	return &few
}

// paperScore fits a model with a seed, and returns its scores and the time of the fit.
func paperScore(t *testing.T, train, test *Corpus, k int, opt *CTMOptions, seed uint64,
	s Solver) (*HeldOut, time.Duration) {
	t.Helper()
	s.Src, s.EvalEvery = rand.NewPCG(seed, 1), -1
	if s.MaxPasses == 0 {
		s.MaxPasses = 10 // as in the paper
	}
	start := time.Now()
	p, _ := kit.FitCTM(t, train, k, opt, &s)
	used := time.Since(start)
	// A tenth of the draws of the protocol does not change the third decimal.
	h, err := p.HeldOut(test, &HeldOutOptions{Draws: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return h, used
}

// TestCTMHeldOutAP compares scores on AP, in nats per token on held-out words, with the required
// scores. Documents with even index form the training set. The effect of each option is measured
// after three passes on every fourth test document, and compared with the default under the same
// conditions.
func TestCTMHeldOutAP(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	train, test := loadAP(t)
	nil1, res := kit.FitCTM(t, train, 10, nil, nil)
	h, err := nil1.HeldOut(test, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("nil Solver: %.4f, in vocabulary %.4f, %v passes in %v, ELBO %.0f ± %.0f", h.PerToken,
		h.InVocab, res.Passes, res.Elapsed, res.ELBO, res.ELBOErr)
	if h.PerToken > 8.11 || h.InVocab > 8.03 || res.Passes > 10.01 {
		t.Error("nil Solver: more than 8.11, 8.03 or 10 passes")
	}
	test = some(test)
	var full float64
	for _, c := range []struct {
		name  string
		opt   *CTMOptions
		seeds uint64
		most  float64 // largest excess over the default
	}{
		{"default", nil, 2, 0},
		{"diagonal", &CTMOptions{Diagonal: true}, 2, 0.015},
		{"delta", &CTMOptions{Expectation: CTMDelta}, 1, 0.03},
		{"Laplace", &CTMOptions{Expectation: CTMLaplace}, 1, 0.025},
		{"mean field", &CTMOptions{Expectation: CTMMeanField}, 1, 0.02},
		{"without memory", &CTMOptions{Forget: true}, 1, 0.02},
	} {
		var mean, vocab float64
		var used time.Duration
		for seed := range c.seeds {
			h, cpu := paperScore(t, train, test, 10, c.opt, seed+1, Solver{MaxPasses: 3})
			mean += h.PerToken / float64(c.seeds)
			vocab += h.InVocab / float64(c.seeds)
			used += cpu
		}
		if c.name == "default" {
			if full = mean; full > 8.11 {
				t.Errorf("after three passes %.4f", full)
			}
		}
		t.Logf("%s: %.4f, in vocabulary %.4f, in %v", c.name, mean, vocab, used)
		if mean > full+c.most {
			t.Errorf("%s: %.4f nats above the default, want at most %v", c.name, mean-full, c.most)
		}
	}
}

func TestCTMHeldOutNIPS(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	train, test := loadNIPS(t)
	h, used := paperScore(t, train, some(test), 10, nil, 1, Solver{})
	t.Logf("NIPS, 10 topics: %.4f, in vocabulary %.4f, in %v", h.PerToken, h.InVocab, used)
	if h.PerToken > 7.65 {
		t.Errorf("NIPS: %.4f", h.PerToken)
	}
}

func TestCTMHeldOutMany(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	train, test := loadAP(t)
	h, used := paperScore(t, train, some(test), 50, nil, 1, Solver{MaxPasses: 4})
	t.Logf("AP, 50 topics: %.4f, in vocabulary %.4f, in %v", h.PerToken, h.InVocab, used)
	if h.PerToken > 7.95 {
		t.Errorf("AP, 50 topics: %.4f", h.PerToken)
	}
}

// blockCorpus draws documents of `tokens` words from three topics of ten terms each.
func blockCorpus(docs int, tokens float64) *Corpus {
	rng := rand.New(rand.NewPCG(1, 9))
	c := &Corpus{Terms: 30}
	for range docs {
		z := []float64{math.Exp(1.5 * rng.NormFloat64()), math.Exp(1.5 * rng.NormFloat64()),
			math.Exp(1.5 * rng.NormFloat64())}
		sum := z[0] + z[1] + z[2]
		var d Document
		for v := range 30 {
			if n := math.Round(tokens * (0.01 + 0.07*z[v/10]/sum)); n > 0 {
				d.Words, d.Counts = append(d.Words, v), append(d.Counts, n)
			}
		}
		c.Docs = append(c.Docs, d)
	}
	return c
}

// TestCTMLongDocuments checks that q is near its optimum given the topics, however long the
// documents are.
func TestCTMLongDocuments(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	seeds := testkit.Longer[uint64](5, 3)
	for _, tokens := range testkit.Longer([]float64{100, 1e4, 1e5}, []float64{1e5}) {
		for _, forget := range []bool{false, true} {
			c := blockCorpus(100, tokens)
			// After the ten passes of a nil Solver, the topics still move by a random amount when a
			// document is last visited. So use four times as many passes, and the median over a few
			// seeds.
			var gaps []float64
			for seed := range seeds {
				p, res, err := kit.MustCTM(t, c, 3, &CTMOptions{Forget: forget}).Fit(
					context.Background(), &Solver{Src: rand.NewPCG(seed, 1), MaxPasses: 40})
				if err != nil {
					t.Fatal(err)
				}
				var best float64
				for _, d := range c.Docs {
					q, err := p.Infer(d)
					if err != nil {
						t.Fatal(err)
					}
					best += q.ELBO()
				}
				gaps = append(gaps, (best-res.ELBO)/100)
			}
			slices.Sort(gaps)
			if gaps[seeds/2] > 3 {
				t.Errorf("%v tokens, forget %v: %.1f nats a document below what Infer reaches",
					tokens, forget, gaps)
			} else {
				t.Logf("%v tokens, forget %v: %.2f", tokens, forget, gaps)
			}
		}
	}
}

// TestCTMStreamStart checks that a stream with an empty start, or with an early Posterior, still
// separates the topics.
func TestCTMStreamStart(t *testing.T) {
	t.Parallel()
	c := blockCorpus(600, 50)
	for _, e := range testkit.Few([]CTMExpectation{CTMLaplace, CTMAntithetic, CTMMeanField}, 1) {
		for _, first := range []string{"empty documents", "a look"} {
			s, err := NewCTMStream(c.Terms, 3, &CTMOptions{Expectation: e})
			if err != nil {
				t.Fatal(err)
			}
			if first == "a look" {
				if err := s.Add(Document{Words: []int{0}, Counts: []float64{1}}); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Posterior(); err != nil {
					t.Fatal(err)
				}
			} else {
				for range 300 {
					if err := s.Add(Document{}); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, d := range c.Docs {
				if err := s.Add(d); err != nil {
					t.Fatal(err)
				}
			}
			p, err := s.Posterior()
			if err != nil {
				t.Fatal(err)
			}
			b, diff := p.Topics(), 0.0
			for v := range c.Terms {
				diff = max(diff, math.Abs(b.At(0, v)-b.At(1, v)), math.Abs(b.At(0, v)-b.At(2, v)))
			}
			if diff < 1e-2 {
				t.Errorf("%v, first %s: topics differ by %g", e, first, diff)
			}
		}
	}
}

func TestCTMOddities(t *testing.T) {
	ctx := context.Background()
	c := blockCorpus(30, 40)
	if _, err := NewCTM(c, 1, &CTMOptions{Expectation: CTMQuadrature, Samples: 7000}); !errors.Is(
		err, ErrParam) {
		t.Errorf("7000 points: %v", err)
	}
	if _, err := NewCTM(&Corpus{Terms: 2, Docs: []Document{{Words: []int{0, 1},
		Counts: []float64{1e308, 1e308}}}},
		1, nil); !errors.Is(err, ErrNotFinite) {
		t.Errorf("counts that overflow: %v", err)
	}
	if _, err := NewCTM(c, 3, &CTMOptions{TopicPrior: 1.7e308}); !errors.Is(err, ErrParam) {
		t.Errorf("a TopicPrior that overflows: %v", err)
	}
	p, res, err := kit.MustCTM(t, c, 3, &CTMOptions{Samples: 2}).Fit(ctx, &Solver{MaxPasses: 2})
	if err != nil || !math.IsNaN(res.ELBOErr) {
		t.Errorf("standard error %v of one pair of draws, %v", res.ELBOErr, err)
	}
	if _, err := p.HeldOut(c, &HeldOutOptions{Draws: math.MaxInt}); !errors.Is(err, ErrParam) {
		t.Errorf("draws: %v", err)
	}
	if _, err := TopWords(p.Topics(), nil, 1, ByProbability); !errors.Is(err, ErrEmpty) {
		t.Errorf("nil corpus: %v", err)
	}
	if _, lo, hi := p.Proportions(1e-17); lo[0] > hi[0] {
		t.Errorf("interval %v, %v", lo, hi)
	}
	c.Vocab = make([]string, c.Terms)
	for i := range c.Vocab {
		c.Vocab[i] = strconv.Itoa(i)
	}
	c.Vocab[0] = "caf\xe9"
	p, _, err = kit.MustCTM(t, c, 2, nil).Fit(ctx, &Solver{MaxPasses: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Save(new(bytes.Buffer)); !errors.Is(err, ErrParam) {
		t.Errorf("a word that is not UTF-8: %v", err)
	}
	two := testkit.FileOf(t, testkit.Kind("CTMPosterior"),
		`{"topics":1,"terms":2,"beta":[1,1],"mu":[0],"sigma":[1],"seen":[true,true]}`)
	if _, err := Load[*CTMPosterior](strings.NewReader(two)); !errors.Is(err, ErrParam) {
		t.Errorf("probabilities that add up to 2: %v", err)
	}
	// A huge count is inferred or rejected, but never inferred wrongly.
	p, _, err = kit.MustCTM(t, blockCorpus(60, 200), 3, nil).Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := p.Infer(Document{Words: []int{3}, Counts: []float64{1e9}}); err != nil {
		t.Errorf("1e9 words: %v", err)
	} else if mean, _, _ := d.Proportions(0.9); math.Abs(mean[0]+mean[1]+mean[2]-1) > 1e-9 {
		t.Errorf("proportions %v", mean)
	}
}

// TestCTMShortfall checks that ELBOErr includes the remaining gain of an E-step that is cut short,
// and is 0 at the maximum.
func TestCTMShortfall(t *testing.T) {
	c := blockCorpus(20, 8000)
	for _, e := range []CTMExpectation{CTMMeanField, CTMDelta, CTMLaplace} {
		var errs []float64
		for _, steps := range []int{1, 0} {
			m := kit.MustCTM(t, c, 3,
				&CTMOptions{Expectation: e, FirstInner: steps, Inner: steps, Forget: true})
			_, res, err := m.Fit(t.Context(), &Solver{MaxPasses: 2})
			if err != nil {
				t.Fatal(err)
			}
			errs = append(errs, res.ELBOErr)
		}
		if !(errs[1] > 0 && errs[1] < 1e-6*20) {
			t.Errorf("%v: %v nats to gain at the maximum", e, errs[1])
		}
	}
}
