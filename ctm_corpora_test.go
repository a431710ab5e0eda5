package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
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

// loadAP reads the AP corpus and splits it into documents with even indices, for training, and odd
// indices.
func loadAP(t testing.TB) (train, test *Corpus) {
	t.Helper()
	c := loadCorpus(t, "ap")
	if len(c.Docs) != 2246 {
		t.Fatalf("AP has %d documents", len(c.Docs))
	}
	return c.EvenOdd()
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

// docBlocks splits the documents into blocks of each documents.
func docBlocks(c *Corpus, each int) [][]Document {
	return slices.Collect(slices.Chunk(c.Docs, each))
}

// ctmRoundsOf returns rounds whose sample has at most the given number of documents.
func ctmRoundsOf(t testing.TB, terms, topics int, opt *CTMOptions, sample int) *Rounds[Document,
	*CTMPosterior] {
	t.Helper()
	r, err := NewCTMRounds(terms, topics, opt)
	if err != nil {
		t.Fatal(err)
	}
	r.engine.(*ctmRounds).most = sample
	return r
}

// ctmFit runs the given number of rounds on the given number of shards.
func ctmFit(t testing.TB, r *Rounds[Document, *CTMPosterior], blocks [][]Document, shards,
	times int) (*CTMPosterior, []Iteration) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(shards), 5))
	var its []Iteration
	for range times + 1 {
		it, err := r.Step(roundOf(t, r, blocks, shards, rng))
		if err != nil {
			t.Fatal(err)
		}
		its = append(its, it)
		b, err := r.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		r = &Rounds[Document, *CTMPosterior]{}
		if err := r.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
	}
	p, err := r.Posterior()
	if err != nil {
		t.Fatal(err)
	}
	return p, its[1:]
}

// TestCTMRoundsBits checks that the posterior and the ELBO of rounds have the same bits for any
// number of shards, in any order and tree, for all expectations.
func TestCTMRoundsBits(t *testing.T) {
	t.Parallel()
	c, _ := syntheticCTM(shorter(150, 60), 5, 60, 40, correlated(), 7)
	c.Docs = append(c.Docs, Document{}, Document{})
	blocks := append(docBlocks(c, 7), nil)
	for _, o := range few([]CTMOptions{
		{}, {Expectation: CTMQuasi, Diagonal: true}, {Expectation: CTMDelta},
		{Expectation: CTMLaplace},
		{Expectation: CTMMeanField}, {Topics: mat.NewDense(5, 60,
			slices.Repeat([]float64{1, 2, 3}, 100)), FirstInner: 5},
	}, 2) {
		var want []byte
		var elbo float64
		for _, shards := range []int{1, 7, 32, 2}[:longer(4, shorter(3, 2))] {
			p, its := ctmFit(t, ctmRoundsOf(t, 60, 5, &o, 20), blocks, shards, 3)
			last := its[len(its)-1]
			if got := savedOf(t, p); want == nil {
				want, elbo = got, last.ELBO
			} else if !bytes.Equal(got, want) || last.ELBO != elbo {
				t.Errorf("%v on %d shards: other bits, ELBO %v and %v", o.Expectation, shards,
					last.ELBO, elbo)
			}
			paired := o.Expectation == CTMAntithetic || o.Expectation == CTMQuasi
			if last.K != 3 || last.Passes != 3 || last.Random != paired || !(last.ELBOErr > 0) ||
				!math.IsInf(last.Gap, 1) || !math.IsInf(last.GapBound, 1) {
				t.Errorf("%v: %+v", o.Expectation, last)
			}
			if shards == 1 && !(its[2].ELBO > its[0].ELBO) {
				t.Errorf("%v: the ELBO fell from %v to %v", o.Expectation, its[0].ELBO, its[2].ELBO)
			}
		}
	}
}

// TestCTMRoundsELBO checks the ELBO of a round, and the ELBO of a sample of all documents, against
// the ELBO of documents inferred one by one. It checks the M-step against sums over these
// documents.
func TestCTMRoundsELBO(t *testing.T) {
	t.Parallel()
	c, _ := syntheticCTM(60, 3, 40, 30, mat.NewSymDense(3,
		[]float64{1, 0.5, 0, 0.5, 1, 0, 0, 0, 1}),
		3)
	o := &CTMOptions{Expectation: CTMLaplace} // not random, and q is a mode
	r := ctmRoundsOf(t, 40, 3, o, 4096)
	blocks := docBlocks(c, 9)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 3 {
		if _, err := r.Step(roundOf(t, r, blocks, 4, rng)); err != nil {
			t.Fatal(err)
		}
	}
	before, err := r.Posterior()
	if err != nil {
		t.Fatal(err)
	}
	next := r.engine.(*ctmRounds).now
	it, err := r.Step(roundOf(t, r, blocks, 4, rng))
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Posterior()
	if err != nil {
		t.Fatal(err)
	}
	var elbo float64
	const k, imagined = 3, 20
	mu, second, n := make([]float64, k), mat.NewSymDense(k, nil), 0.0
	beta, total := before.Topics(), make([]float64, k)
	stat := mat.NewDense(k, c.Terms, nil)
	for i, d := range c.Docs {
		q, err := p.Infer(d)
		if err != nil {
			t.Fatal(err)
		}
		elbo += q.ELBO()
		q, err = before.Infer(d)
		if err != nil {
			t.Fatal(i, err)
		}
		m := q.LogitMean(nil)
		for j, x := range m {
			mu[j] += x
		}
		second.AddSym(second, q.LogitCov())
		second.SymRankOne(second, 1, mat.NewVecDense(k, m))
		for at, v := range d.Words { // y_v ρ_vk at the mode
			var sum float64
			for j, x := range m {
				sum += beta.At(j, v) * math.Exp(x)
			}
			for j, x := range m {
				add := d.Counts[at] * beta.At(j, v) * math.Exp(x) / sum
				stat.Set(j, v, stat.At(j, v)+add)
				total[j] += add
			}
		}
		n++
	}
	near(t, "ELBO", it.ELBO, elbo, 1e-6*math.Abs(elbo))
	for i := range k {
		mu[i] /= n + imagined
		near(t, "mu", next.Mu[i], mu[i], 1e-5)
		for j := range i + 1 {
			want := second.At(i, j) / (n + imagined)
			if i == j {
				want += imagined / (n + imagined)
			}
			near(t, "Sigma", next.Sigma[i*k+j], want-mu[i]*mu[j], 5e-5)
		}
		for v := range c.Terms {
			near(t, "beta", next.Beta[v*k+i], (stat.At(i, v)+0.03)/(total[i]+0.03*float64(c.Terms)),
				1e-6)
		}
	}
	for v, f := range c.TermFreq() {
		if seen := p.seen[v]; seen != (f > 0) {
			t.Errorf("term %d occurs %v times, seen %v", v, f, seen)
		}
	}
}

// TestCTMRoundsAP checks the held-out score of AP after ten rounds, with samples of all documents
// and of a few.
func TestCTMRoundsAP(t *testing.T) {
	t.Parallel()
	notShort(t)
	train, test := loadAP(t)
	blocks := docBlocks(train, 8)
	if !testkit.IsLong() {
		test = some(test)
	}
	for _, c := range []struct {
		sample, rounds int
		most           float64
	}{{256, 10, 8.14}, {docsOfRounds, 10, 8.14}}[:longer(2, 1)] {
		p, its := ctmFit(t, ctmRoundsOf(t, train.Terms, 10, nil, c.sample), blocks, 3, c.rounds)
		h, err := p.HeldOut(test, &HeldOutOptions{Draws: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range its {
			t.Logf("sample of %d: round %d: %.0f ± %.0f", c.sample, it.K, it.ELBO, it.ELBOErr)
		}
		t.Logf("sample of %d: held out %.4f, in vocabulary %.4f", c.sample, h.PerToken, h.InVocab)
		if !(h.PerToken <= c.most) {
			t.Errorf("sample of %d: held out %.4f, want at most %v", c.sample, h.PerToken, c.most)
		}
	}
}

// TestCTMRoundsErrors checks that a shard or document that does not fit is an error that names the
// difference.
func TestCTMRoundsErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c, _ := syntheticCTM(40, 3, 20, 15, mat.NewSymDense(3, []float64{1, 0, 0, 0, 1, 0, 0, 0, 1}), 1)
	blocks := docBlocks(c, 10)
	refused := func(what string, err, want error, text string) {
		t.Helper()
		if !errors.Is(err, want) || !strings.Contains(err.Error(), text) || !prefixedOnce(err) {
			t.Errorf("%s: %v, want %q and %v", what, err, text, want)
		}
	}
	rounds := func(terms, topics int, opt *CTMOptions) *Rounds[Document, *CTMPosterior] {
		return ctmRoundsOf(t, terms, topics, opt, 100)
	}
	add := func(s *Shard[Document], ids ...int) *Shard[Document] {
		t.Helper()
		for _, id := range ids {
			if err := s.Add(ctx, uint64(id), testkit.Each(blocks[id])); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	step := func(r *Rounds[Document, *CTMPosterior], s *Shard[Document]) error {
		_, err := r.Step(s)
		return err
	}
	r := rounds(20, 3, nil)
	_, early := r.Posterior()
	refused("a posterior at first", early, ErrEmpty, "second round")
	refused("an empty shard", step(r, r.Shard()), ErrEmpty, "without items")
	blank := r.Shard()
	if err := blank.Add(ctx, 1, testkit.Each([]Document{{}, {}})); err != nil {
		t.Fatal(err)
	}
	refused("documents without words", step(r, blank), ErrEmpty, "no document has words")
	first := add(r.Shard(), 0, 1, 2)
	refused("a block twice", first.Add(ctx, 1, testkit.Each(blocks[1])), ErrParam,
		"block 1 is in the shard")
	refused("a block in both", first.Merge(add(r.Shard(), 3, 2)), ErrParam, "block 2 is in both")
	refused("another vocabulary", first.Merge(rounds(21, 3, nil).Shard()), ErrParam,
		"3 topics and 21 terms, not of 3 topics and 20 terms")
	refused("other topics", first.Merge(rounds(20, 4, nil).Shard()), ErrParam,
		"4 topics and 20 terms")
	refused("other options", first.Merge(rounds(20, 3, &CTMOptions{Diagonal: true}).Shard()),
		ErrParam, "options differ")
	for name, d := range map[string]Document{
		"has word 20; words must increase and be below 20": {Words: []int{3, 20},
			Counts: []float64{1, 1}},
		"has word -1; words": {Words: []int{-1}, Counts: []float64{1}},
		"has 1 words":        {Words: []int{1}},
	} {
		bad := r.Shard()
		refused("a bad document", bad.Add(ctx, 9, testkit.Each([]Document{c.Docs[0], d})), ErrShape,
			"block 9: document 1 "+name)
		refused("a broken shard", first.Merge(bad), ErrParam, "block 9 was not added to its end")
	}
	refused("a bad count", r.Shard().Add(ctx, 9,
		testkit.Each([]Document{{Words: []int{1}, Counts: []float64{math.NaN()}}})), ErrNotFinite,
		"document 0 has word 1 with count NaN")
	if err := step(r, first); err != nil {
		t.Fatal(err)
	}
	if err := first.Merge(first); err == nil {
		t.Error("a shard is merged with itself")
	}
	refused("the first round again", step(r, first), ErrParam, "round 0, in round 1")
	refused("a lost block", step(r, add(r.Shard(), 0, 2)), ErrParam,
		"block 1 of the first round is missing")
	refused("another block", step(r, add(r.Shard(), 0, 1, 2, 3)), ErrParam,
		"block 3 in round 1 was not in the first round")
	refused("an unknown term", r.Shard().Add(ctx, 0,
		testkit.Each([]Document{{Words: []int{25}, Counts: []float64{1}}})), ErrShape,
		"block 0: document 0 has word 25")
	second := add(r.Shard(), 0, 1)
	other := rounds(20, 3, nil)
	if err := step(other, add(other.Shard(), 3)); err != nil {
		t.Fatal(err)
	}
	refused("another state", second.Merge(other.Shard()), ErrParam, "at other states")
	refused("of a saved shard", travel(t, second).Add(ctx, 2, testkit.Each(blocks[2])), ErrParam,
		"loaded shard with items")
	why := errors.New("enough")
	done, cancel := context.WithCancelCause(ctx)
	cancel(why)
	refused("a context", r.Shard().Add(done, 2, testkit.Each(blocks[2])), why,
		"canceled in block 2")
	if err := second.Merge(add(travel(t, r.Shard()), 2)); err != nil {
		t.Fatal(err)
	}
	if err := step(r, second); err != nil {
		t.Fatal(err)
	}
	b, err := second.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	refused("a shard of documents as one of rows",
		(&Shard[Row]{}).UnmarshalBinary(must(r.Shard().MarshalBinary())), ErrFile, "CTM")
	refused("an earlier round", r.Shard().Merge(travel(t, second)), ErrParam, "round 1, in round 2")
	refused("rounds", (&Rounds[Document, *CTMPosterior]{}).UnmarshalBinary(b), ErrFile,
		`holds a "Shard"`)

	_, paper := NewCTMRounds(20, 3, &CTMOptions{Paper: true})
	refused("Paper", paper, ErrParam, "Forget is set with Paper")
	_, none := NewCTMRounds(0, 3, nil)
	refused("no terms", none, ErrEmpty, "0 terms")
	_, large := NewCTMRounds(1<<30, 1<<20, nil)
	refused("a huge model", large, ErrMemory, "1048576 topics and 1073741824 terms")
	_, small := NewCTMRounds(100_000, 100, &CTMOptions{MaxMemory: 1e9})
	refused("less memory", small, ErrMemory, "MaxMemory")
}

// savedOf returns the saved form of p.
func savedOf(t testing.TB, p interface{ Save(io.Writer) error }) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := p.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
