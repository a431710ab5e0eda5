package pgsvi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// Two topics of five words; the scores in comments are by hand.
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
		// Distribution functions of φ: .8 1 .4 .8 .2 and .6 .2 .8 .6 1, of β: 1 .8 .6 .4 .2
		// and 1 .2 1 .6 .6, means .889 .889 .48 .533 .2 and .75 .2 .889 .6 .75.
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
					t.Errorf("%v, topic %d, frequencies %v: %v, want %v", c.rank, k, c.freq, got[k], want)
				}
			}
		}
	}
	// Without frequencies, those of topics that are equally common: lift 1 0 4/3 1 2.
	if got, err := TopTerms(twoTopics(), nil, 2, ByLift); err != nil || !slices.Equal(got[1], []int{4, 2}) {
		t.Errorf("lift without frequencies: %v, %v", got, err)
	}
	// Their scale does not matter.
	if got, err := TopTerms(twoTopics(), []float64{.4, .1, .2, .29, .01}, 5, ByRelevance); err != nil || !slices.Equal(got[1], []int{2, 4, 0, 3, 1}) {
		t.Errorf("relevance by fractions: %v, %v", got, err)
	}
	names := map[TopicRank]string{ByProbability: "probability", ByFREX: "FREX", ByLift: "lift", ByRelevance: "relevance", 7: "TopicRank(7)"}
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
	c := smallCorpus()
	top := [][]int{{0, 1}, {2}}
	nan, inf := math.NaN(), math.Inf(1)
	row := func(p ...float64) *mat.Dense { return mat.NewDense(1, len(p), p) }
	terms := func(topics *mat.Dense, freq []float64, n int, rank TopicRank) error {
		_, err := TopTerms(topics, freq, n, rank)
		return err
	}
	exclusivity := func(topics *mat.Dense, top [][]int) error { _, err := Exclusivity(topics, top); return err }
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
		{ldavis(good, docs, &Corpus{Terms: 4, Docs: make([]Document, 3)}), ErrShape, "topics are 2×5"},
		{ldavis(good, docs, &Corpus{Terms: 5, Docs: make([]Document, 2)}), ErrShape, "3×2, want 2×2"},
		{ldavis(good, mat.NewDense(3, 1, []float64{1, 1, 1}), c), ErrShape, "3×1, want 3×2"},
		{ldavis(good, mat.NewDense(3, 2, nil), c), ErrParam, "document 0 has probabilities that sum to 0"},
		{ldavis(good, nil, c), ErrEmpty, "no document"},
		{ldavis(nil, docs, c), ErrEmpty, "no topic"},
	} {
		if !errors.Is(c.err, c.want) || c.err != nil && (!strings.Contains(c.err.Error(), c.says) || !strings.HasPrefix(c.err.Error(), "pgsvi: ")) {
			t.Errorf("case %d: error %v, want %q that is %v", i, c.err, c.says, c.want)
		}
	}
	if err := WriteLDAvis(failingWriter{}, good, docs, c); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("failing writer: %v", err)
	}
}

func TestCoherence(t *testing.T) {
	doc := func(words ...int) (d Document) {
		for _, w := range words {
			d.Words, d.Counts = append(d.Words, w), append(d.Counts, float64(w+1)) // counts do not matter
		}
		return d
	}
	// D(0) = 3, D(1) = D(2) = 2, D(0,1) = 2, D(0,2) = D(1,2) = 1; 3 is nowhere, and
	// 4 with 5 alone.
	c := &Corpus{Terms: 6, Docs: []Document{doc(0, 1), doc(0, 1, 2), doc(0), doc(2, 4, 5)}}
	top := [][]int{{0, 1, 2}, {2, 1, 0}, {0, 3}, {3, 0}, {4, 5}, {1}, {}}
	umass, err := UMass(top, c)
	if err != nil {
		t.Fatal(err)
	}
	wantUMass := []float64{math.Log(2. / 3), math.Log(3. / 2), math.Log(1. / 3), 0, math.Log(2), 0, 0}
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
		if !(math.Abs(npmi[k]-wantNPMI[k]) < 1e-14) && !(math.IsNaN(npmi[k]) && math.IsNaN(wantNPMI[k])) {
			t.Errorf("NPMI of %v is %v, want %v", top[k], npmi[k], wantNPMI[k])
		}
	}
	// Words of every document.
	if s, err := NPMI([][]int{{0, 1}}, &Corpus{Terms: 2, Docs: []Document{doc(0, 1), doc(0, 1)}}); err != nil || s[0] != 1 {
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
	// A word of no topic counts as 0.
	got, err = Exclusivity(mat.NewDense(1, 2, []float64{1, 0}), [][]int{{0, 1}})
	if err != nil || got[0] != .5 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err = Exclusivity(mat.NewDense(1, 2, []float64{1, 0}), [][]int{{}}); err != nil || !math.IsNaN(got[0]) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestWriteLDAvis(t *testing.T) {
	c := smallCorpus()
	c.Vocab = []string{"a", "b<c", "ü", "d", "e"}
	docs := mat.NewDense(4, 3, []float64{.5, .5, 9, 1, 0, 9, .25, .75, 9, 9, 9, 9}).Slice(0, 3, 0, 2).(*mat.Dense) // rows that are not adjacent
	var out bytes.Buffer
	if err := WriteLDAvis(&out, twoTopics(), docs, c); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	// The names and shapes that pyLDAvis.prepare has.
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

// Topics of AP made of its documents by a word they have: the measures tell them
// from topics of words at random.
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
	for name, measure := range map[string]func([][]int, *Corpus) ([]float64, error){"UMass": UMass, "NPMI": NPMI} {
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
