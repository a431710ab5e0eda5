package pgsvi

import (
	"math"
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

// The numbers to reach are nats per token on words held out; AP and NIPS, documents of even index train.
func TestCTMHeldOutAP(t *testing.T) {
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
	seeds := func(opt *CTMOptions) (mean, vocab float64) {
		var all, in [5]float64
		var used time.Duration
		for seed := range all {
			h, cpu := score(t, train, test, 10, opt, uint64(seed), Solver{})
			all[seed], in[seed] = h.PerToken, h.InVocab
			mean += h.PerToken / 5
			vocab += h.InVocab / 5
			used += cpu / 5
		}
		t.Logf("%+v: mean %.4f of %.4f, in vocabulary %.4f, in %v", opt, mean, all, in, used)
		return mean, vocab
	}
	full, in := seeds(nil)
	diag, _ := seeds(&CTMOptions{Diagonal: true})
	if full > 8.11 || in > 8.03 || math.Abs(diag-full) > 0.015 {
		t.Errorf("full %.4f, in vocabulary %.4f, diagonal %.4f", full, in, diag)
	}
	h, used := score(t, train, test, 10, nil, 1, Solver{MaxPasses: 2})
	t.Logf("2 passes: %.4f in %v", h.PerToken, used)
	if h.PerToken > 8.15 {
		t.Errorf("after two passes %.4f", h.PerToken)
	}
	for e, most := range map[CTMExpectation]float64{CTMDelta: 8.22, CTMLaplace: 8.125, CTMMeanField: 8.115} {
		h, used := score(t, train, test, 10, &CTMOptions{Expectation: e}, 1, Solver{})
		t.Logf("%v: %.4f, in vocabulary %.4f, in %v", e, h.PerToken, h.InVocab, used)
		if h.PerToken > most {
			t.Errorf("%v: %.4f, want at most %v", e, h.PerToken, most)
		}
	}
	h, used = score(t, train, test, 10, &CTMOptions{Forget: true}, 1, Solver{})
	t.Logf("without memory: %.4f, in %v", h.PerToken, used)
	if h.PerToken > 8.2 {
		t.Errorf("without memory: %.4f, want at most 8.2", h.PerToken)
	}
}

func TestCTMHeldOutNIPS(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	train, test := loadNIPS(t)
	h, used := score(t, train, test, 10, nil, 1, Solver{})
	t.Logf("NIPS, 10 topics: %.4f, in vocabulary %.4f, in %v", h.PerToken, h.InVocab, used)
	if h.PerToken > 7.65 {
		t.Errorf("NIPS: %.4f", h.PerToken)
	}
}

func TestCTMHeldOutMany(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	train, test := loadAP(t)
	h, used := score(t, train, test, 50, nil, 1, Solver{})
	t.Logf("AP, 50 topics: %.4f, in vocabulary %.4f, in %v", h.PerToken, h.InVocab, used)
	if h.PerToken > 8 {
		t.Errorf("AP, 50 topics: %.4f", h.PerToken)
	}
}
