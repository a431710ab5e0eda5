package topics

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pgsvi/pgsvi/internal/score"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

func fitLDA(t testing.TB, c *Corpus, topics int, opt *LDAOptions, s *Solver) (*LDAPosterior,
	*Result) {
	t.Helper()
	m, err := NewLDA(c, topics, opt)
	if err != nil {
		t.Fatal(err)
	}
	p, res, err := m.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p, res
}

// TestLDATruth compares coordinate ascent on 40 documents of AP with the ELBOs of an independent
// program (numpy).
func TestLDATruth(t *testing.T) {
	t.Parallel()
	var truth struct{ ELBO []float64 }
	testkit.ReadTruthJSON(t, "lda_ap40_cavi.json", &truth)
	train, _ := loadAP(t)
	docs := &Corpus{Docs: train.Docs[:40], Terms: train.Terms}
	start := mat.NewDense(3, docs.Terms, nil)
	start.Apply(func(k, v int,
		_ float64) float64 {
		return 0.5 + 0.5*math.Sin(float64((k+1)*(v+1)))
	}, start)
	m, err := NewLDA(docs, 3, &LDAOptions{DocPrior: 0.5, TopicPrior: 0.5, Topics: start})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	st, err := m.NewStepper(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		truth.ELBO = truth.ELBO[:2]
	}
	for i, want := range truth.ELBO {
		if i > 0 {
			if _, err := st.Step(ctx, nil, nil, math.Inf(1)); err != nil {
				t.Fatal(err)
			}
		}
		ev, err := st.Evaluate(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		near(t, fmt.Sprintf("ELBO after %d steps", i), ev.ELBO, want, 1e-6)
		if ev.Scope != Unproved || ev.GapBound != 0 || !(ev.Gap > 0) {
			t.Errorf("gap %v, bound %v %v", ev.Gap, ev.GapBound, ev.Scope)
		}
	}
}

// TestLDAHeldOutAP checks that the score is at most 8.12 nats per token on held-out words.
func TestLDAHeldOutAP(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	train, test := loadAP(t)
	p, res := fitLDA(t, train, 10, nil, nil)
	h, err := p.HeldOut(test, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("nil Solver: %.4f, in vocabulary %.4f, %v passes in %v, ELBO %.0f", h.PerToken,
		h.InVocab, res.Passes, res.Elapsed, res.ELBO)
	if h.PerToken > 8.11 || h.InVocab > 8.07 || res.Passes > 10.01 || math.IsNaN(res.ELBO) {
		t.Error("nil Solver: more than 8.11, 8.07 or 10 passes")
	}
	if math.Abs(floats.Sum(h.DocumentScores)/h.Tokens-h.PerToken) > 1e-12 {
		t.Error("the scores of documents do not add up")
	}
}

// ldaToy returns documents from two groups of words, and some words that both groups share.
func ldaToy(docs int) *Corpus {
	rng := rand.New(rand.NewPCG(3, 4))
	c := &Corpus{Terms: 12}
	for n := range docs {
		count := map[int]float64{}
		for range 5 + rng.IntN(60) {
			v := 5*(n%2) + rng.IntN(5)
			if rng.IntN(5) == 0 {
				v = 10 + rng.IntN(2)
			}
			count[v]++
		}
		c.Docs = append(c.Docs, kit.SortedDoc(count))
	}
	return c
}

// TestLDALocal checks that the gradient of Local is the gradient of its value, even if weights
// underflow.
func TestLDALocal(t *testing.T) {
	t.Parallel()
	c := ldaToy(6)
	for _, prior := range []float64{0.5, 1e-3, 20} {
		m, err := NewLDA(c, 3, &LDAOptions{DocPrior: prior, TopicPrior: prior})
		if err != nil {
			t.Fatal(err)
		}
		st, err := m.NewStepper(context.Background(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		mu := kit.Reached[*Exp](st).MeanParams(nil)
		g := make([]float64, len(mu))
		value, err := m.Local(g, mu, 2, 1)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "sum of the gradient", floats.Sum(g), c.Docs[2].Tokens(), 1e-9)
		if prior >= 0.5 {
			kit.CheckLocalGrad(t, m, g, mu, 2, 1)
		}
		// The approximate optimum of a mini-batch must be below the optimum, but close.
		rough, err := m.Local(g, mu, 2, 2)
		if err != nil || rough > value+1e-9 || rough < value-0.1 {
			t.Errorf("prior %v: %v in a mini-batch, %v at the optimum, %v", prior, rough, value,
				err)
		}
	}
}

// TestLDASameBits checks that the bits do not depend on the number of workers, nor on saving and
// loading the run.
func TestLDASameBits(t *testing.T) {
	t.Parallel()
	c := ldaToy(300)
	m, err := NewLDA(c, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	var want []float64
	for _, workers := range testkit.Few([]int{1, 7, 2}, 2) {
		p, res := fitLDA(t, c, 3, nil, &Solver{Workers: workers, Src: rand.NewPCG(5, 6)})
		h, err := p.HeldOut(c, &HeldOutOptions{Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		got := append(slices.Clone(p.Lambda().RawMatrix().Data), res.ELBO, h.PerToken)
		if want == nil {
			want = got
		} else if !slices.Equal(got, want) {
			t.Errorf("%d workers give another result than 1", workers)
		}
		if res.Status != Converged || !(res.Passes > 10) {
			t.Errorf("%v, want some passes over all documents", res)
		}
	}
	kit.SameResumed(t, m, 8, 3)
	kit.SameResumed(t, m, 53, 15) // ends after the 50 mini-batches
}

func TestLDAErrors(t *testing.T) {
	t.Parallel()
	good := kit.SmallCorpus()
	bad := func(d Document) *Corpus {
		return &Corpus{Docs: []Document{{Words: []int{0}, Counts: []float64{1}}, d}, Terms: 5}
	}
	nan, inf := math.NaN(), math.Inf(1)
	for _, e := range []struct {
		name string
		c    *Corpus
		k    int
		opt  *LDAOptions
		want error
		say  string
	}{
		{"nil", nil, 2, nil, ErrEmpty, "no documents"},
		{"no documents", &Corpus{Terms: 3}, 2, nil, ErrEmpty, "no documents"},
		{"documents without words", &Corpus{Docs: make([]Document, 2), Terms: 3}, 2, nil, ErrEmpty,
			"2 documents have no words"},
		{"one term", &Corpus{Docs: []Document{{Words: []int{0}, Counts: []float64{1}}}, Terms: 1},
			2, nil, ErrEmpty, "vocabulary has 1 term"},
		{"no topics", good, 0, nil, ErrParam, "0 topics"},
		{"word out of range", bad(Document{Words: []int{5}, Counts: []float64{1}}), 2, nil,
			ErrShape, "document 1"},
		{"negative word", bad(Document{Words: []int{-1}, Counts: []float64{1}}), 2, nil, ErrShape,
			"document 1"},
		{"NaN", bad(Document{Words: []int{2}, Counts: []float64{nan}}), 2, nil, ErrNotFinite,
			"document 1"},
		{"count of 0", bad(Document{Words: []int{2}, Counts: []float64{0}}), 2, nil, ErrParam,
			"document 1"},
		{"lengths", bad(Document{Words: []int{2}, Counts: nil}), 2, nil, ErrShape, "document 1"},
		{"counts too large", bad(Document{Words: []int{2}, Counts: []float64{1e300}}), 2, nil,
			ErrNotFinite, "1e+300"},
		{"doc prior", good, 2, &LDAOptions{DocPrior: -1}, ErrParam, "DocPrior is -1"},
		{"topic prior", good, 2, &LDAOptions{TopicPrior: nan}, ErrParam, "TopicPrior is NaN"},
		{"infinite prior", good, 2, &LDAOptions{TopicPrior: inf}, ErrParam, "TopicPrior is +Inf"},
		{"start", good, 2, &LDAOptions{Start: 9}, ErrParam, "Start"},
		{"topics shape", good, 2, &LDAOptions{Topics: mat.NewDense(2, 4, nil)}, ErrShape,
			"Topics is 2×4"},
		{"topics NaN", good, 1, &LDAOptions{Topics: mat.NewDense(1, 5, []float64{0, 0, nan, 0, 0})},
			ErrNotFinite, "Topics(0, 2)"},
		{"topics negative", good, 1,
			&LDAOptions{Topics: mat.NewDense(1, 5, []float64{0, 0, 0, -1, 0})}, ErrParam,
			"Topics(0, 3)"},
		{"memory", good, min(1<<40, math.MaxInt), nil, ErrMemory, "LDAOptions.MaxMemory"},
		{"negative memory", good, 1, &LDAOptions{MaxMemory: -1}, ErrParam, "MaxMemory"},
	} {
		_, err := NewLDA(e.c, e.k, e.opt)
		if !errors.Is(err, e.want) || !strings.HasPrefix(err.Error(), "pgsvi: ") ||
			!strings.Contains(err.Error(), e.say) {
			t.Errorf("%s: %v, want %q, %v", e.name, err, e.say, e.want)
		}
	}
	// A canceled run must keep its state.
	ctx, cancel := context.WithCancel(context.Background())
	m, err := NewLDA(ldaToy(200), 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, res, err := m.Fit(ctx, &Solver{Record: func(it Iteration) {
		if it.K == 5 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || res.K != 5 || p == nil {
		t.Errorf("canceled: %v after %d steps", err, res.K)
	}
	if _, _, err := m.Fit(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled before the start: %v", err)
	}
}

// TestLDASeeds fits random corpora. For all sizes and priors, the ELBO of coordinate ascent must
// not fall, and all results must be finite.
func TestLDASeeds(t *testing.T) {
	t.Parallel()
	seeds := uint64(60)
	if !testkit.IsLong() {
		seeds = 8
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 5))
		c := &Corpus{Terms: 2 + rng.IntN(30)}
		for range 1 + rng.IntN(40) {
			count := map[int]float64{}
			for range rng.IntN(12) {
				count[rng.IntN(c.Terms)] += math.Ceil(math.Exp(2 * rng.NormFloat64()))
			}
			c.Docs = append(c.Docs, kit.SortedDoc(count))
		}
		opt := &LDAOptions{DocPrior: math.Exp(3 * rng.NormFloat64()),
			TopicPrior: math.Exp(3 * rng.NormFloat64()), Start: TopicStart(rng.IntN(5))}
		k := 1 + rng.IntN(6)
		m, err := NewLDA(c, k, opt)
		if errors.Is(err, ErrEmpty) && c.Tokens() == 0 {
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, batch := range []int{0, len(c.Docs)} {
			last := math.Inf(-1)
			p, res, err := m.Fit(context.Background(),
				&Solver{Src: rand.NewPCG(seed, 0), BatchSize: batch, MaxPasses: 20, EvalEvery: 1,
					Record: func(it Iteration) {
						if batch > 0 && it.ELBO < last-1e-9*(1+math.Abs(last)) {
							t.Errorf("seed %d, step %d: ELBO from %v to %v", seed, it.K, last,
								it.ELBO)
						}
						last = it.ELBO
					}})
			if err != nil {
				t.Errorf("seed %d: %d topics, %+v: %v", seed, k, opt, err)
				continue
			}
			h, err := p.HeldOut(c, nil)
			if err != nil || c.Tokens() > float64(len(c.Docs)) && h.Tokens > 0 &&
				!(h.PerToken > 0 && h.PerToken < 20) || math.IsNaN(res.GapBound) {
				t.Errorf("seed %d: score %+v, gap %v, %v", seed, h, res.GapBound, err)
			}
		}
	}
}

// TestLDAEndsAtGoal checks that a run over all documents evaluates itself at each pass and ends
// at its goal. Without options, a run on a small corpus must reach the end point of coordinate
// ascent from the same start, even after mini-batches.
func TestLDAEndsAtGoal(t *testing.T) {
	t.Parallel()
	c := ldaToy(60)
	_, all := fitLDA(t, c, 2, nil, &Solver{BatchSize: 60, MaxPasses: 2000})
	if all.Status != Converged || !(all.Gap <= all.Goal) || !(all.Passes < 200) {
		t.Errorf("all documents: %v, goal %v", all, all.Goal)
	}
	_, rough := fitLDA(t, c, 2, nil, &Solver{BatchSize: 60, MaxPasses: 2000, Goal: 1})
	if rough.Status != Converged || !(rough.Passes < all.Passes) {
		t.Errorf("goal of a nat: %v, %v passes to %v", rough, rough.Passes, all.Goal)
	}
	_, none := fitLDA(t, c, 2, nil, nil)
	if none.Status != Converged || math.Abs(none.ELBO-all.ELBO) > 1e-6 {
		t.Errorf("no options: %v, coordinate ascent %v", none, all.ELBO)
	}
	_, end := fitLDA(t, c, 2, nil, &Solver{BatchSize: 60, MaxPasses: 30, EvalEvery: -1})
	if len(end.Trace) != 1 {
		t.Errorf("%d evaluations where one at the end was asked for", len(end.Trace))
	}

	c = ldaToy(300)
	_, few := fitLDA(t, c, 2, nil, &Solver{MaxPasses: 7})
	_, more := fitLDA(t, c, 2, nil, &Solver{MaxPasses: 100})
	if few.Status != PassLimit || few.Passes != 7 || len(few.Trace) != 1 {
		t.Errorf("seven passes: %v, %d evaluations", few, len(few.Trace))
	}
	if more.Status != Converged || !(more.ELBO > few.ELBO) || !(more.Gap <= more.Goal) {
		t.Errorf("up to 100 passes: %v, seven: %v", more, few)
	}
}

// twoTopics returns two topics of five words. The scores in the comments of its tests were
// computed by hand.
func twoTopics() *mat.Dense {
	return mat.NewDense(2, 5, []float64{
		.4, .3, .2, .1, 0,
		.4, 0, .4, .1, .1,
	})
}

func TestTopTerms(t *testing.T) {
	freq := []float64{40, 10, 20, 29, 1}
	for _, c := range []struct {
		rank TopicRank
		freq []float64
		want [][]int
	}{
		{ByProbability, nil, [][]int{{0, 1, 2, 3, 4}, {0, 2, 3, 4, 1}}},
		{ByProbability, freq, [][]int{{0, 1, 2, 3, 4}, {0, 2, 3, 4, 1}}},
		// The distribution functions of φ are .8 1 .4 .8 .2 and .6 .2 .8 .6 1. The distribution
		// functions of β are 1 .8 .6 .4 .2 and 1 .2 1 .6 .6. Their means are .889 .889 .48 .533
		// .2 and .75 .2 .889 .6 .75.
		{ByFREX, nil, [][]int{{0, 1, 3, 2, 4}, {2, 0, 4, 3, 1}}},
		{ByFREX, freq, [][]int{{0, 1, 3, 2, 4}, {2, 0, 4, 3, 1}}},
		// 1 3 1 .345 0 and 1 0 2 .345 10
		{ByLift, freq, [][]int{{1, 0, 2, 3, 4}, {4, 2, 0, 3, 1}}},
		{ByLift, []float64{40, 10, 20, 29, 0}, [][]int{{1, 0, 2, 3, 4}, {2, 0, 3, 4, 1}}},
		// −.550 −.283 −.966 −1.807 −∞ and −.550 −∞ −.273 −1.807 −.461
		{ByRelevance, freq, [][]int{{1, 0, 2, 3, 4}, {2, 4, 0, 3, 1}}},
	} {
		for _, n := range []int{1, 3, 5, 9} {
			got, err := TopTerms(twoTopics(), c.freq, n, c.rank)
			if err != nil {
				t.Fatal(err)
			}
			for k, want := range c.want {
				if want = want[:min(n, 5)]; !slices.Equal(got[k], want) {
					t.Errorf("%v, topic %d, frequencies %v: %v, want %v", c.rank, k, c.freq, got[k],
						want)
				}
			}
		}
	}
	// Without frequencies, all topics are equally common, and the lift is 1 0 4/3 1 2.
	if got, err := TopTerms(twoTopics(), nil, 2, ByLift); err != nil ||
		!slices.Equal(got[1], []int{4, 2}) {
		t.Errorf("lift without frequencies: %v, %v", got, err)
	}
	// The scale of the frequencies does not matter.
	if got, err := TopTerms(twoTopics(), []float64{.4, .1, .2, .29, .01}, 5,
		ByRelevance); err != nil || !slices.Equal(got[1], []int{2, 4, 0, 3, 1}) {
		t.Errorf("relevance by fractions: %v, %v", got, err)
	}
	names := map[TopicRank]string{ByProbability: "probability", ByFREX: "FREX", ByLift: "lift",
		ByRelevance: "relevance", 7: "TopicRank(7)"}
	for r, name := range names {
		if r.String() != name {
			t.Errorf("rank %d is %q", int(r), r)
		}
	}
}

func TestTopWords(t *testing.T) {
	c := &Corpus{Terms: 5, Vocab: []string{"a", "b", "c", "d", "e"}, Docs: []Document{
		{Words: []int{0, 1, 2}, Counts: []float64{40, 10, 5}},
		{Words: []int{2, 3, 4}, Counts: []float64{15, 29, 1}},
	}}
	got, err := TopWords(twoTopics(), c, 2, ByLift)
	if want := [][]string{{"b", "a"}, {"e", "c"}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	c.Vocab = nil
	got, err = TopWords(twoTopics(), c, 2, ByLift)
	if want := [][]string{{"1", "0"}, {"4", "2"}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	c.Terms = 3
	if _, err := TopWords(twoTopics(), c, 2, ByLift); !errors.Is(err, ErrShape) {
		t.Errorf("broken corpus: %v", err)
	}
	if _, err := TopWords(twoTopics(), &Corpus{Terms: 4}, 2, ByLift); !errors.Is(err, ErrShape) {
		t.Errorf("other vocabulary: %v", err)
	}
	// A corpus without words has no frequencies.
	if _, err := TopWords(twoTopics(), &Corpus{Terms: 5}, 2, ByLift); !errors.Is(err, ErrParam) {
		t.Errorf("empty corpus: %v", err)
	}
}

func TestTopicErrors(t *testing.T) {
	good, freq := twoTopics(), []float64{1, 1, 1, 1, 1}
	c := kit.SmallCorpus()
	top := [][]int{{0, 1}, {2}}
	nan, inf := math.NaN(), math.Inf(1)
	row := func(p ...float64) *mat.Dense { return mat.NewDense(1, len(p), p) }
	terms := func(topics *mat.Dense, freq []float64, n int, rank TopicRank) error {
		_, err := TopTerms(topics, freq, n, rank)
		return err
	}
	exclusivity := func(topics *mat.Dense, top [][]int) error {
		_,
			err := Exclusivity(topics, top)
		return err
	}
	umass := func(top [][]int, c *Corpus) error { _, err := UMass(top, c); return err }
	npmi := func(top [][]int, c *Corpus) error { _, err := NPMI(top, c); return err }
	docs := mat.NewDense(3, 2, []float64{.5, .5, 1, 0, .25, .75})
	ldavis := func(topics, docs *mat.Dense, c *Corpus) error {
		var out bytes.Buffer
		err := WriteLDAvis(&out, topics, docs, c)
		if err != nil && out.Len() > 0 {
			t.Errorf("%v after %d bytes", err, out.Len())
		}
		return err
	}
	for i, c := range []struct {
		err, want error
		says      string
	}{
		{terms(nil, freq, 1, 0), ErrEmpty, "no topic"},
		{terms(&mat.Dense{}, freq, 1, 0), ErrEmpty, "no topic"},
		{terms(row(.5, nan), nil, 1, 0), ErrNotFinite, "topic 0 has the probability NaN at 1"},
		{terms(row(1.5, -.5), nil, 1, 0), ErrParam, "topic 0 has the probability -0.5 at 1"},
		{terms(row(.5, .4), nil, 1, 0), ErrParam, "sum to 0.9"},
		{terms(good, freq[:4], 1, 0), ErrShape, "frequencies of 4 words for topics of 5"},
		{terms(good, []float64{1, 1, 1, inf, 1}, 1, 0), ErrNotFinite, "word 3"},
		{terms(good, []float64{1, 1, -1, 1, 1}, 1, 0), ErrParam, "word 2"},
		{terms(good, make([]float64, 5), 1, 0), ErrParam, "no word"},
		{terms(good, freq, 0, 0), ErrParam, "0 top words"},
		{terms(good, freq, 1, 4), ErrParam, "TopicRank(4)"},
		{terms(good, freq, 1, -1), ErrParam, "TopicRank(-1)"},
		{exclusivity(row(.5, .4), top[:1]), ErrParam, "sum to 0.9"},
		{exclusivity(good, top[:1]), ErrShape, "1 lists"},
		{exclusivity(good, [][]int{{0}, {5}}), ErrShape, "topic 1 has the top word 5"},
		{umass([][]int{{0}, {-1}}, c), ErrShape, "topic 1 has the top word -1"},
		{umass(top, &Corpus{Terms: 5}), ErrEmpty, "without documents"},
		{umass(top, &Corpus{Terms: 1, Vocab: []string{}}), ErrShape, "0 names"},
		{npmi([][]int{{0}, {5}}, c), ErrShape, "topic 1 has the top word 5"},
		{npmi(top, &Corpus{Terms: 5}), ErrEmpty, "without documents"},
		{ldavis(good, docs, c), nil, ""},
		{ldavis(good, docs, &Corpus{Terms: -1}), ErrShape, "-1 terms"},
		{ldavis(good, docs, &Corpus{Terms: 4, Docs: make([]Document, 3)}), ErrShape,
			"topics are 2×5"},
		{ldavis(good, docs, &Corpus{Terms: 5, Docs: make([]Document, 2)}), ErrShape,
			"3×2, want 2×2"},
		{ldavis(good, mat.NewDense(3, 1, []float64{1, 1, 1}), c), ErrShape, "3×1, want 3×2"},
		{ldavis(good, mat.NewDense(3, 2, nil), c), ErrParam,
			"document 0 has probabilities that sum to 0"},
		{ldavis(good, nil, c), ErrEmpty, "no document"},
		{ldavis(nil, docs, c), ErrEmpty, "no topic"},
	} {
		if !errors.Is(c.err, c.want) ||
			c.err != nil &&
				(!strings.Contains(c.err.Error(), c.says) ||
					!strings.HasPrefix(c.err.Error(), "pgsvi: ")) {
			t.Errorf("case %d: error %v, want %q that is %v", i, c.err, c.says, c.want)
		}
	}
	if err := WriteLDAvis(testkit.FailingWriter{}, good, docs, c); !errors.Is(err,
		io.ErrClosedPipe) {
		t.Errorf("failing writer: %v", err)
	}
}

func TestCoherence(t *testing.T) {
	doc := func(words ...int) (d Document) {
		for _, w := range words {
			// counts do not matter
			d.Words, d.Counts = append(d.Words, w), append(d.Counts, float64(w+1))
		}
		return d
	}
	// D(0) = 3, D(1) = D(2) = 2, D(0,1) = 2 and D(0,2) = D(1,2) = 1. Word 3 occurs nowhere, and
	// words 4 and 5 occur only together.
	c := &Corpus{Terms: 6, Docs: []Document{doc(0, 1), doc(0, 1, 2), doc(0), doc(2, 4, 5)}}
	top := [][]int{{0, 1, 2}, {2, 1, 0}, {0, 3}, {3, 0}, {4, 5}, {1}, {}}
	umass, err := UMass(top, c)
	if err != nil {
		t.Fatal(err)
	}
	wantUMass := []float64{math.Log(2. / 3), math.Log(3. / 2), math.Log(1. / 3), 0, math.Log(2), 0,
		0}
	npmi, err := NPMI(top, c)
	if err != nil {
		t.Fatal(err)
	}
	// log(4/3)/log 2, log(2/3)/log 4, log 1
	three := (math.Log(4./3)/math.Log(2) + math.Log(2./3)/math.Log(4)) / 3
	wantNPMI := []float64{three, three, -1, -1, 1, math.NaN(), math.NaN()}
	for k := range top {
		if !(math.Abs(umass[k]-wantUMass[k]) < 1e-14) {
			t.Errorf("UMass of %v is %v, want %v", top[k], umass[k], wantUMass[k])
		}
		if !(math.Abs(npmi[k]-wantNPMI[k]) < 1e-14) &&
			!(math.IsNaN(npmi[k]) && math.IsNaN(wantNPMI[k])) {
			t.Errorf("NPMI of %v is %v, want %v", top[k], npmi[k], wantNPMI[k])
		}
	}
	// Words 0 and 1 occur in every document.
	if s, err := NPMI([][]int{{0, 1}},
		&Corpus{Terms: 2, Docs: []Document{doc(0, 1), doc(0, 1)}}); err != nil || s[0] != 1 {
		t.Errorf("NPMI of words that are everywhere: %v, %v", s, err)
	}
	if s, err := UMass(nil, c); err != nil || len(s) != 0 {
		t.Errorf("no topics: %v, %v", s, err)
	}
}

func TestExclusivity(t *testing.T) {
	got, err := Exclusivity(twoTopics(), [][]int{{0, 1}, {2, 4}})
	if err != nil || math.Abs(got[0]-.75) > 1e-15 || math.Abs(got[1]-5./6) > 1e-15 {
		t.Errorf("%v, %v", got, err)
	}
	// A word that no topic contains counts as 0.
	got, err = Exclusivity(mat.NewDense(1, 2, []float64{1, 0}), [][]int{{0, 1}})
	if err != nil || got[0] != .5 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err = Exclusivity(mat.NewDense(1, 2, []float64{1, 0}), [][]int{{}}); err != nil ||
		!math.IsNaN(got[0]) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestWriteLDAvis(t *testing.T) {
	c := kit.SmallCorpus()
	c.Vocab = []string{"a", "b<c", "ü", "d", "e"}
	// rows that are not adjacent
	docs := mat.NewDense(4, 3, []float64{.5, .5, 9, 1, 0, 9, .25, .75, 9, 9, 9, 9}).Slice(0, 3, 0,
		2).(*mat.Dense)
	var out bytes.Buffer
	if err := WriteLDAvis(&out, twoTopics(), docs, c); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	// These are the names and shapes that pyLDAvis.prepare expects.
	want := map[string]any{
		"topic_term_dists": []any{[]any{.4, .3, .2, .1, 0.}, []any{.4, 0., .4, .1, .1}},
		"doc_topic_dists":  []any{[]any{.5, .5}, []any{1., 0.}, []any{.25, .75}},
		"doc_lengths":      []any{4., 0., 15.},
		"vocab":            []any{"a", "b<c", "ü", "d", "e"},
		"term_frequency":   []any{5., 12., 1., 0., 1.},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestTopicsOfAP builds topics from documents of AP that contain a given word. The measures must
// distinguish these topics from random words.
func TestTopicsOfAP(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a second")
	}
	c := loadCorpus(t, "ap")
	seeds := []string{"soviet", "stock", "court", "police"}
	topics, noise := mat.NewDense(len(seeds), c.Terms, nil), make([][]int, len(seeds))
	for k, seed := range seeds {
		at := slices.Index(c.Vocab, seed)
		var with []int
		for i, d := range c.Docs {
			if slices.Contains(d.Words, at) {
				with = append(with, i)
			}
		}
		s := c.Subset(with)
		for w, f := range s.TermFreq() {
			topics.Set(k, w, 0.99*f/s.Tokens()+0.01/float64(c.Terms))
		}
		for i := range 10 {
			noise[k] = append(noise[k], (7919*(10*k+i)+13)%c.Terms)
		}
		words, err := TopWords(topics.Slice(k, k+1, 0, c.Terms).(*mat.Dense), c, 10, ByRelevance)
		if err != nil || !slices.Contains(words[0], seed) {
			t.Errorf("%s: %v, %v", seed, words, err)
		}
		t.Log(seed, words)
	}
	top, err := TopTerms(topics, c.TermFreq(), 10, ByRelevance)
	if err != nil {
		t.Fatal(err)
	}
	for name, measure := range map[string]func([][]int, *Corpus) ([]float64, error){"UMass": UMass,
		"NPMI": NPMI} {
		good, err := measure(top, c)
		if err != nil {
			t.Fatal(err)
		}
		bad, err := measure(noise, c)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s %.3f, at random %.3f", name, good, bad)
		if slices.Min(good) <= slices.Max(bad) {
			t.Errorf("%s: %v, at random %v", name, good, bad)
		}
	}
}

// TestLDAUnknownWords infers documents whose words are equally probable in all topics. The
// posterior is the prior for any number of words, although mean field would give one topic a
// share of 0.98.
func TestLDAUnknownWords(t *testing.T) {
	t.Parallel()
	c := &Corpus{Terms: 12}
	for n := range 40 {
		first := 5 * (n % 2)
		c.Docs = append(c.Docs, Document{Words: []int{first, first + 1, first + 2, first + 3},
			Counts: []float64{4, 3, 2, 1}})
	}
	p, _ := fitLDA(t, c, 2, nil, nil) // terms 10 and 11 occur nowhere
	for _, words := range []float64{1, 10, 200} {
		d, err := p.Infer(Document{Words: []int{10}, Counts: []float64{words}})
		if err != nil {
			t.Fatal(err)
		}
		mean, lo, hi := d.Proportions(0.9)
		for k := range mean {
			near(t, "share", mean[k], 0.5, 0.01)
			// quantiles of Beta(0.2, 0.2)
			near(t, "lower end", lo[k], 0, 1e-4)
			near(t, "upper end", hi[k], 1, 1e-4)
		}
	}
}

// TestTopicDocs checks the training documents of both topic models: their topics, the most
// similar documents, and whether files keep them.
func TestTopicDocs(t *testing.T) {
	t.Parallel()
	c := &Corpus{Terms: 6, Docs: []Document{
		{Words: []int{0, 1, 2}, Counts: []float64{9, 5, 4}},
		{Words: []int{3, 4, 5}, Counts: []float64{7, 5, 2}}, {},
		{Words: []int{0, 5}, Counts: []float64{3, 3}},
		{Words: []int{0, 1, 2}, Counts: []float64{8, 5, 5}},
		{Words: []int{3, 4}, Counts: []float64{4, 4}},
	}}
	type posterior interface {
		Len() int
		DocTopics(c *Corpus) (*mat.Dense, error)
		Similar(d Document, n int) (index []int, distance []float64, err error)
		Save(w io.Writer) error
	}
	lda, err := NewLDA(c, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	ofLDA, _, err := lda.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctm, err := NewCTM(c, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	ofCTM, _, err := ctm.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]posterior{"LDA": ofLDA, "CTM": ofCTM} {
		train, err := p.DocTopics(nil)
		if err != nil || p.Len() != len(c.Docs) {
			t.Fatal(name, p.Len(), err)
		}
		inferred, err := p.DocTopics(c)
		if err != nil {
			t.Fatal(name, err)
		}
		for n := range c.Docs {
			row := train.RawRowView(n)
			near(t, name+": sum of proportions", floats.Sum(row), 1, 1e-9)
			near(t, name+": proportion", inferred.At(n, 0), row[0],
				map[string]float64{"LDA": 1e-12, "CTM": 0.1}[name])
		}
		index, distance, err := p.Similar(c.Docs[0], 4)
		if err != nil || len(index) != 4 || len(distance) != 4 {
			t.Fatal(name, index, distance, err)
		}
		if !slices.Contains(index[:2], 0) || !slices.Contains(index[:2], 4) ||
			slices.Contains(index, 1) || !slices.IsSorted(distance) {
			t.Errorf("%s: similar to document 0 are %v at %v", name, index, distance)
		}
		q, r := inferred.RawRowView(0), train.RawRowView(index[3])
		want := math.Sqrt(1 - math.Sqrt(q[0]*r[0]) - math.Sqrt(q[1]*r[1]))
		near(t, name+": Hellinger distance", distance[3], want, 1e-6)
		if all, _, err := p.Similar(Document{}, 99); err != nil || len(all) != len(c.Docs) {
			t.Errorf("%s: of 99 documents %v, %v", name, all, err)
		}
		for _, bad := range []Document{{Words: []int{6}, Counts: []float64{1}},
			{Words: []int{0}, Counts: []float64{math.NaN()}}} {
			if _, _, err := p.Similar(bad, 1); err == nil || !testkit.PrefixedOnce(err) {
				t.Errorf("%s: similar to %v: %v", name, bad, err)
			}
		}
		if none, err := p.DocTopics(&Corpus{Terms: 6}); none != nil || err != nil {
			t.Errorf("%s: topics of no documents are %v, %v", name, none, err)
		}
	}
	// Compare q of a document with draws.
	d := ofLDA.Doc(3)
	mean, lo, hi := d.Proportions(0.8)
	x, in, sum := make([]float64, 2), 0.0, 0.0
	rng := testkit.Rand(1)
	const draws = 4000
	for range draws {
		d.Rand(x, rng)
		sum += x[0] / draws
		in += score.Indicator(lo[0] <= x[0] && x[0] <= hi[0]) / draws
	}

	if q, err := ofLDA.Infer(c.Docs[3]); err != nil {
		t.Fatal(err)
	} else if _, lo3, hi3 := q.Proportions(0.8); !slices.Equal(lo3, lo) ||
		!slices.Equal(hi3, hi) {
		t.Errorf("document 3 is from %v to %v, inferred again from %v to %v", lo, hi, lo3, hi3)
	}
	near(t, "mean proportion", sum, mean[0], 0.02)
	near(t, "share in the interval", in, 0.8, 0.03)
	if !math.IsNaN(d.ELBO()) {
		t.Errorf("ELBO of a training document: %v", d.ELBO())
	}
	testkit.MustPanic(t, "document 6 of 6", func() { ofLDA.Doc(6) })
	testkit.MustPanic(t, "level 1", func() { d.Proportions(1) })
	// A file must hold the words of the documents only if the caller requests it.
	var bare strings.Builder
	if err := ofLDA.Save(&bare); err != nil || strings.Contains(bare.String(), `"words"`) {
		t.Errorf("a file with the documents, which nobody asked for, %v", err)
	}
	var file strings.Builder
	if err := ofLDA.WithDocs().Save(&file); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load[*LDAPosterior](strings.NewReader(file.String()))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(loaded.Doc(3).Gamma(nil), d.Gamma(nil)) || loaded.Len() != 6 {
		t.Errorf("document 3 of a file: %v, want %v", loaded.Doc(3).Gamma(nil), d.Gamma(nil))
	}
	_, lo2, hi2 := loaded.Doc(3).Proportions(0.8)
	if !slices.Equal(lo2, lo) || !slices.Equal(hi2, hi) {
		t.Errorf("document 3 of a file is from %v to %v, want %v to %v", lo2, hi2, lo, hi)
	}
	body := testkit.BodyOf(t, testkit.Kind("LDAPosterior"), file.String())
	at := strings.Index(body, `,"docs":`)
	old, err := Load[*LDAPosterior](
		strings.NewReader(testkit.FileOf(t, testkit.Kind("LDAPosterior"), body[:at]+"}")))
	if err != nil {
		t.Fatal(err)
	}
	if none, err := old.DocTopics(nil); old.Len() != 0 || none != nil || err != nil {
		t.Errorf("a file without documents: %d, %v, %v", old.Len(), none, err)
	}
	if _, _, err := old.Similar(c.Docs[0], 1); !errors.Is(err, ErrEmpty) ||
		!testkit.PrefixedOnce(err) {
		t.Errorf("a file without documents: %v", err)
	}
	withoutWords, err := Load[*LDAPosterior](
		strings.NewReader(testkit.FileOf(t, testkit.Kind("LDAPosterior"), body[:at]+
			`,"docs":[3,1,2,2]}`)))
	if err != nil {
		t.Fatal(err)
	}
	if mean, lo, hi := withoutWords.Doc(1).Proportions(0.5); mean[0] != 0.5 ||
		math.Abs(lo[0]-0.326) > 1e-3 || math.Abs(hi[0]-0.674) > 1e-3 {
		t.Errorf("a document of Dirichlet(2, 2): %v from %v to %v", mean, lo, hi)
	}
	const two = `,"docs":[1,1,1,1],"sizes":`
	for text, want := range map[string]error{`,"docs":[1]}`: ErrShape,
		`,"docs":[1,-1]}`:                                   ErrParam,
		two + `[1],"words":[0],"counts":[1]}`:               ErrShape,
		two + `[1,1],"words":[0],"counts":[1,1]}`:           ErrShape,
		two + `[-1,1],"words":[0],"counts":[1]}`:            ErrShape,
		two + `[1,0],"words":[0,1],"counts":[1,1]}`:         ErrShape,
		two + `[1,1],"words":[0,6],"counts":[1,1]}`:         ErrShape,
		two + `[1,1],"words":[0,1],"counts":[1,0]}`:         ErrParam,
		two + `[0,2],"words":[0,1],"counts":[1e308,1e308]}`: ErrNotFinite,
	} {
		if _, err := Load[*LDAPosterior](
			strings.NewReader(testkit.FileOf(t, testkit.Kind("LDAPosterior"),
				body[:at]+text))); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

// countingLDA counts the calls of Local.
type countingLDA struct {
	*LDA
	calls *atomic.Int64
}

func (m countingLDA) Local(dst, mu []float64, n int, weight float64) (float64, error) {
	m.calls.Add(1)
	return m.LDA.Local(dst, mu, n, weight)
}

// TestAscentReadsDataOnce checks that coordinate ascent of a ConjugateModel computes the gradient
// only once per state. The gradient that accepts a step also serves the evaluation and the next
// step.
func TestAscentReadsDataOnce(t *testing.T) {
	t.Parallel()
	c := ldaToy(60)
	m, err := NewLDA(c, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	st, err := m.NewStepper(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	topic, err := NewDirichlet(slices.Repeat([]float64{0.3}, c.Terms))
	if err != nil {
		t.Fatal(err)
	}
	prior, err := ProductOf(topic, topic)
	if err != nil {
		t.Fatal(err)
	}
	counting := countingLDA{m, new(atomic.Int64)}
	o := Objective[*Exp]{F: Conjugate(counting), H: KLTo(prior), Init: kit.Reached[*Exp](st)}
	const steps = 20
	_, res, err := o.Fit(t.Context(), &Solver{MaxPasses: steps, EvalEvery: steps,
		Converger: Never()})
	if err != nil {
		t.Fatal(err)
	}
	if got, most := int(counting.calls.Load()), (steps+10)*len(c.Docs); len(res.Trace) != 1 ||
		got > most {
		t.Errorf("%d evaluations and %d calls of Local in %d steps, want at most %d calls",
			len(res.Trace), got, steps, most)
	}
}

// TestLDAGap compares the Gap of fits that end early with what later passes gain. Most must be
// within a factor of two, few below a quarter, and none below a sixth. A Gap of +Inf means that
// there is no estimate.
func TestLDAGap(t *testing.T) {
	t.Parallel()
	corpora := testkit.Shorter(groupCorpora[6:], groupCorpora[6:10])
	all, near, low, none := 0, 0, 0, 0
	for i, g := range corpora {
		c, _ := g.draw(uint64(500 + i))
		m, err := NewLDA(c, g.topics, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, end, err := m.Fit(t.Context(), &Solver{MaxPasses: 300})
		if err != nil {
			t.Fatal(err)
		}
		_, few, err := m.Fit(t.Context(), &Solver{MaxPasses: 7})
		if err != nil {
			t.Fatal(err)
		}
		for _, res := range append(end.Trace, few.Iteration) {
			gain := end.ELBO - res.ELBO
			if gain < 1e-4 || !slices.Contains([]float64{7, 8, 9, 10, 12, 15, 20, 30}, res.Passes) {
				continue
			}
			t.Logf("%+v, %v passes: gap %.3g, gained %.3g", g, res.Passes, res.Gap, gain)
			all++
			switch {
			case math.IsInf(res.Gap, 1):
				none++
			case res.Gap < gain/6:
				t.Errorf("%+v, %v passes: gap %v, but %v gained", g, res.Passes, res.Gap, gain)
			case res.Gap < gain/4:
				low++
			case gain/2 <= res.Gap && res.Gap <= 2*gain:
				near++
			}
			if !math.IsInf(res.GapBound, 1) {
				t.Errorf("%+v, %v passes: bound %v", g, res.Passes, res.GapBound)
			}
		}
	}
	if near < (all-none)*3/4 || none > all/4 || low > (all+19)/20 {
		t.Errorf("of %d gaps %d are within a factor of two, %d below a quarter, %d not estimated",
			all, near, low, none)
	}
}

// TestLDASaddle starts from two equal topics. Coordinate ascent keeps them equal, far below the
// best ELBO, and the fit must not report a small gap.
func TestLDASaddle(t *testing.T) {
	t.Parallel()
	c := ldaToy(60)
	same := mat.NewDense(2, c.Terms, slices.Repeat([]float64{1}, 2*c.Terms))
	_, res := fitLDA(t, c, 2, &LDAOptions{Topics: same}, &Solver{BatchSize: 60, MaxPasses: 15})
	_, best := fitLDA(t, c, 2, nil, nil)
	if gain := best.ELBO - res.ELBO; gain > 1 && (res.Status == Converged || res.Gap < gain/4) {
		t.Errorf("%v, but %v nats below another fit", res, gain)
	}
	if gain := best.ELBO - res.ELBO; !(gain > 1) {
		t.Errorf("the fit left the saddle, and %v nats are left: %v", gain, res)
	}
}

// fourThemes returns 60 documents of 50 words. Four words of five are of the theme of the document.
func fourThemes(seed uint64) *Corpus {
	rng := rand.New(rand.NewPCG(seed, 1))
	c := &Corpus{Terms: 40}
	for d := range 60 {
		counts := make([]float64, c.Terms)
		for range 50 {
			w := rng.IntN(10) + 10*(d%4)
			if rng.Float64() < 0.2 {
				w = rng.IntN(c.Terms)
			}
			counts[w]++
		}
		var doc Document
		for w, n := range counts {
			if n > 0 {
				doc.Words, doc.Counts = append(doc.Words, w), append(doc.Counts, n)
			}
		}
		c.Docs = append(c.Docs, doc)
	}
	return c
}

// TestLDAJump checks that a fit whose every step makes a document jump to a worse optimum explains
// why it stalled, that a resumed run has the warning once, that a maximum has no warning, and that a
// saddle has another one.
func TestLDAJump(t *testing.T) {
	t.Parallel()
	const says = "jump to another optimum"
	stalled := 0
	for seed := range uint64(6) {
		for _, k := range []int{2, 5} {
			_, res := fitLDA(t, fourThemes(seed), k, nil, nil)
			if (len(res.Warnings) == 1) != (res.Status == Stalled) {
				t.Errorf("seed %d, %d topics: %v", seed, k, res)
			}
			if !strings.Contains(res.String(), says) {
				continue
			}
			stalled++
			again, err := (&Solver{}).Resume(context.Background(), res)
			if err != nil || strings.Count(again.String(), says) != 1 {
				t.Errorf("seed %d, %d topics, resumed: %v, error %v", seed, k, again, err)
			}
		}
	}
	if stalled == 0 {
		t.Error("no fit stalled, so the test checks nothing")
	}
	c := ldaToy(60)
	same := mat.NewDense(2, c.Terms, slices.Repeat([]float64{1}, 2*c.Terms))
	_, res := fitLDA(t, c, 2, &LDAOptions{Topics: same}, &Solver{BatchSize: 60})
	if strings.Contains(res.String(), says) || !strings.Contains(res.String(), "saddle point") {
		t.Errorf("equal topics: %v", res)
	}
}
