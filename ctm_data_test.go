package pgsvi

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// sortedDoc returns the document with the given counts.
func sortedDoc(count map[int]float64) Document {
	var d Document
	for v := range count {
		d.Words = append(d.Words, v)
	}
	slices.Sort(d.Words)
	for _, v := range d.Words {
		d.Counts = append(d.Counts, count[v])
	}
	return d
}

// loadAP reads the AP corpus: documents of even index, which train, and odd ones.
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

// some returns every fourth of the documents.
func some(c *Corpus) *Corpus {
	few := *c
	few.Docs = nil
	for i := 0; i < len(c.Docs); i += 4 {
		few.Docs = append(few.Docs, c.Docs[i])
	}
	return &few
}

// score fits a model with a seed and returns its scores.
func score(t *testing.T, train, test *Corpus, k int, opt *CTMOptions, seed uint64, s Solver) (*HeldOut, time.Duration) {
	t.Helper()
	s.Src, s.EvalEvery = rand.NewPCG(seed, 1), -1
	if s.MaxPasses == 0 {
		s.MaxPasses = ctmPasses
	}
	start := time.Now()
	p, _ := fitCTM(t, train, k, opt, &s)
	used := time.Since(start)
	// A tenth of the draws of the protocol: the third decimal is the same.
	h, err := p.HeldOut(test, &HeldOutOptions{Draws: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return h, used
}

// The numbers to reach are nats per token on words held out; AP and NIPS, documents of even index train. What an option
// costs is told after three passes, on every fourth of the documents that test: the default is asked so as well.
func TestCTMHeldOutAP(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("slow")
	}
	train, test := loadAP(t)
	nil1, res := fitCTM(t, train, 10, nil, nil)
	h, err := nil1.HeldOut(test, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("nil Solver: %.4f, in vocabulary %.4f, %v passes in %v, ELBO %.0f ± %.0f", h.PerToken, h.InVocab, res.Passes, res.Elapsed, res.ELBO, res.ELBOErr)
	if h.PerToken > 8.11 || h.InVocab > 8.03 || res.Passes > 10.01 {
		t.Error("nil Solver: more than 8.11, 8.03 or 10 passes")
	}
	test = some(test)
	var full float64
	for _, c := range []struct {
		name  string
		opt   *CTMOptions
		seeds uint64
		most  float64 // above the default
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
			h, cpu := score(t, train, test, 10, c.opt, seed+1, Solver{MaxPasses: 3})
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
	if testing.Short() {
		t.Skip("slow")
	}
	train, test := loadNIPS(t)
	h, used := score(t, train, some(test), 10, nil, 1, Solver{})
	t.Logf("NIPS, 10 topics: %.4f, in vocabulary %.4f, in %v", h.PerToken, h.InVocab, used)
	if h.PerToken > 7.65 {
		t.Errorf("NIPS: %.4f", h.PerToken)
	}
}

func TestCTMHeldOutMany(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("slow")
	}
	train, test := loadAP(t)
	h, used := score(t, train, some(test), 50, nil, 1, Solver{MaxPasses: 4})
	t.Logf("AP, 50 topics: %.4f, in vocabulary %.4f, in %v", h.PerToken, h.InVocab, used)
	if h.PerToken > 7.95 {
		t.Errorf("AP, 50 topics: %.4f", h.PerToken)
	}
}
