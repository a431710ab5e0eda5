package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/batches"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/topic"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
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

// ldaToy returns documents with words of one of two groups, and documents with words of both.
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
		c.Docs = append(c.Docs, sortedDoc(count))
	}
	return c
}

// TestLDAAscent checks that coordinate ascent never lowers the ELBO, and that it stops with topics
// that separate the two groups of words.
func TestLDAAscent(t *testing.T) {
	t.Parallel()
	c := ldaToy(60)
	c.Docs[7] = Document{}
	last := math.Inf(-1)
	p, res := fitLDA(t, c, 2, nil,
		&Solver{BatchSize: 60, MaxPasses: 500, EvalEvery: 1,
			Record: func(it Iteration) {
				if it.ELBO < last-1e-12*math.Abs(last) {
					t.Errorf("step %d: ELBO from %v to %v", it.K, last, it.ELBO)
				}
				last = it.ELBO
			}})
	if res.Status != Converged || res.Scope != Unproved || !math.IsInf(res.GapBound, 1) ||
		!(res.Gap < 1e-9) {
		t.Errorf("%v after %v passes, gap %v, bound %v", res.Status, res.Passes, res.Gap,
			res.GapBound)
	}
	topics := p.Topics()
	for k := range 2 {
		row := topics.RawRowView(k)
		a, b := floats.Sum(row[:5]), floats.Sum(row[5:10])
		near(t, "sum of a topic", floats.Sum(row), 1, 1e-12)
		if max(a, b) < 0.75 || min(a, b) > 0.05 {
			t.Errorf("topic %d has %v of the one kind and %v of the other", k, a, b)
		}
	}
	inferred, err := p.Infer(c.Docs[0])
	if err != nil {
		t.Fatal(err)
	}
	gamma, elbo := inferred.Gamma(nil), inferred.ELBO()
	if math.IsNaN(elbo) || floats.Max(gamma)/floats.Sum(gamma) < 0.9 {
		t.Errorf("q of document 0 is %v, %v, %v", gamma, elbo, err)
	}
	var clear float64 // tokens of a single group; others carry little information
	for i, v := range c.Docs[0].Words {
		if v < 10 {
			clear += c.Docs[0].Counts[i]
		}
	}
	if sum := floats.Sum(gamma); sum < clear || sum > (clear+c.Docs[0].Tokens())/2 {
		t.Errorf("Σγ is %v for %v tokens, of which %v are clear", sum, c.Docs[0].Tokens(), clear)
	}
	docs, err := p.DocTopics(c)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "mean proportion", docs.At(0, 0), gamma[0]/floats.Sum(gamma), 1e-12)
	near(t, "proportion without words", docs.At(7, 0), 0.5, 1e-12)
	// The contributions of the documents minus KL(q(β)‖p(β)) sum to the ELBO.
	var sum float64
	for _, d := range c.Docs {
		q, err := p.Infer(d)
		if err != nil {
			t.Fatal(err)
		}
		sum += q.ELBO()
	}
	q := res.Stepper.(*objectiveStepper)
	near(t, "ELBO", sum-q.H.Value(q.Q), res.ELBO, 1e-9)
}

func TestLDAPosterior(t *testing.T) {
	t.Parallel()
	c := ldaToy(40)
	c.Terms, c.Vocab = 13, strings.Fields("a b c d e f g h i j k l unseen")
	p, res := fitLDA(t, c, 2, nil, &Solver{MaxPasses: 30})
	var file bytes.Buffer
	if err := p.Save(&file); err != nil {
		t.Fatal(err)
	}
	text := file.String()
	q, err := Load[*LDAPosterior](strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if !mat.Equal(p.Topics(), q.Topics()) || !mat.Equal(p.Lambda(), q.Lambda()) ||
		!slices.Equal(p.Vocab(), q.Vocab()) {
		t.Error("the loaded posterior is another")
	}
	if _, err := Load[*LDAPosterior](strings.NewReader(text[:len(text)-9])); !errors.Is(err,
		ErrFile) {
		t.Errorf("a file cut short: %v", err)
	}
	words, err := TopWords(p.Topics(), c, 5, ByProbability)
	if err != nil || len(words) != 2 || len(words[0]) != 5 {
		t.Errorf("top words %v, %v", words, err)
	}
	// The score computed by hand.
	d := Document{Words: []int{0, 3, 12}, Counts: []float64{3, 2, 1}} // y¹ is 0 0 3, y² is 0 3 12
	h, err := q.HeldOut(&Corpus{Docs: []Document{d}, Terms: 13}, nil)
	if err != nil {
		t.Fatal(err)
	}
	gamma := make([]float64, 2)
	p.engine().Infer(gamma, p.logs, topic.Doc{Words: []int{0, 3}, Counts: []float64{2, 1}})
	var want, in float64
	for _, v := range []int{0, 3, 12} {
		var prob float64
		for k, g := range gamma {
			prob += g / floats.Sum(gamma) * p.Topics().At(k, v)
		}
		l := -math.Log(0.99*prob + 0.01/13)
		want += l / 3
		if v < 12 {
			in += l / 2
		}
	}
	near(t, "score", h.PerToken, want, 1e-12)
	near(t, "score in the vocabulary", h.InVocab, in, 1e-12)

	for _, e := range []struct {
		name string
		call func() error
		want error
		say  string
	}{
		{"infer a word out of range", func() error {
			_, err := p.Infer(Document{[]int{13}, []float64{1}})
			return err
		}, ErrShape, "word 13"},
		{"infer too many", func() error {
			_, err := p.Infer(Document{[]int{1, 2}, []float64{1e308, 1e308}})
			return err
		}, ErrNotFinite, "sum to +Inf; divide them"},
		{"infer NaN", func() error {
			_, err := p.Infer(Document{[]int{1}, []float64{math.NaN()}})
			return err
		}, ErrNotFinite, "word 1"},
		{"score no corpus", func() error { _, err := p.HeldOut(nil, nil); return err }, ErrEmpty,
			"no documents"},
		{"score other terms", func() error { _, err := p.HeldOut(ldaToy(2), nil); return err },
			ErrShape, "12 terms, but the model has 13"},
		{"score halves of words", func() error {
			_, err := p.HeldOut(&Corpus{Docs: []Document{d, {[]int{1}, []float64{1.5}}}, Terms: 13},
				nil)
			return err
		}, ErrParam, "document 1"},
		{"score by word", func() error {
			_, err := p.HeldOut(c, &HeldOutOptions{ByWord: true})
			return err
		}, ErrParam, "ByWord"},
		{"topics of other terms", func() error { _, err := p.DocTopics(ldaToy(2)); return err },
			ErrShape, "12 terms"},
		{"no similar documents", func() error { _, _, err := p.Similar(d, 0); return err },
			ErrParam, "similar documents is 0"},
		{"posterior of another model", func() error {
			m, err := NewLDA(ldaToy(3), 2, nil)
			if err == nil {
				_, err = m.Posterior(res.Stepper)
			}
			return err
		}, ErrParam, "another model"},
		{"save a word that is not UTF-8", func() error {
			bad := *p
			bad.vocab = []string{"\xff"}
			return bad.Save(&file)
		}, ErrParam, "UTF-8"},
	} {
		err := e.call()
		if !errors.Is(err, e.want) || !strings.HasPrefix(err.Error(), "pgsvi: ") ||
			strings.Count(err.Error(), "pgsvi: ") != 1 || !strings.Contains(err.Error(), e.say) {
			t.Errorf("%s: %v, want %q, %v", e.name, err, e.say, e.want)
		}
	}
}

func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tol) {
		t.Errorf("%s is %.10g, want %.10g ± %g", what, got, want, tol)
	}
}

// TestCTMInferExact checks the exact case of internal/topic through the posterior of a model, and
// E[π].
func TestCTMInferExact(t *testing.T) {
	p := smallPosterior(t, &CTMOptions{Expectation: CTMQuadrature, Samples: 40}, 0)
	d, err := p.Infer(Document{Words: []int{0, 1, 2}, Counts: []float64{5, 2, 1}})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "ELBO of Infer", d.ELBO(), -8.30262986, 2e-8)
	mean, lo, hi := d.Proportions(0.9)
	// The expected value is exact, whereas q is Gaussian and has 4000 draws.
	near(t, "E[pi_1]", mean[0], 0.738342, 0.02)
	if !(lo[0] < mean[0] && mean[0] < hi[0] && lo[0] > 0 && hi[0] < 1) {
		t.Errorf("interval %v to %v about %v", lo[0], hi[0], mean[0])
	}
}

// smallPosterior returns the exact case as a posterior. The weight of the uniform distribution in
// each topic is mix.
func smallPosterior(t *testing.T, opt *CTMOptions, mix float64) *CTMPosterior {
	t.Helper()
	m, err := newCTM(3, 2, opt)
	if err != nil {
		t.Fatal(err)
	}
	beta := []float64{.6, .1, .3, .3, .1, .6}
	for i, b := range beta {
		beta[i] = (1-mix)*b + mix/3
	}
	fit, err := topic.NewFitted(m.opt.engine(2, 3), beta, []float64{0, 0}, []float64{1, 0, 0, 1},
		nil)
	if err != nil {
		t.Fatal(err)
	}
	return &CTMPosterior{opt: m.opt, fit: fit, seen: []bool{true, true, false}}
}

// syntheticCTM draws a corpus from known topics and Σ.
func syntheticCTM(docs, k, terms, length int, corr *mat.SymDense, seed uint64) (*Corpus,
	[][]float64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	topics := dense.NewRows(k, terms)
	for _, row := range topics {
		var sum float64
		for v := range row {
			row[v] = math.Exp(2 * rng.NormFloat64())
			sum += row[v]
		}
		for v := range row {
			row[v] /= sum
		}
	}
	var chol mat.Cholesky
	if !chol.Factorize(corr) {
		panic("corr")
	}
	var l mat.TriDense
	chol.LTo(&l)
	c := &Corpus{Terms: terms}
	z, pi := make([]float64, k), make([]float64, k)
	for range docs {
		eps := make([]float64, k)
		for j := range eps {
			eps[j] = 1.5 * rng.NormFloat64()
		}
		for i := range z {
			z[i] = 0
			for j := range i + 1 {
				z[i] += l.At(i, j) * eps[j]
			}
		}
		sum := floats.LogSumExp(z)
		for j, x := range z {
			pi[j] = math.Exp(x - sum)
		}
		count := map[int]float64{}
		for range length {
			count[batches.Pick(topics[batches.Pick(pi, rng)], rng)]++
		}
		c.Docs = append(c.Docs, sortedDoc(count))
	}
	return c, topics
}

func correlated() *mat.SymDense {
	return mat.NewSymDense(5, []float64{
		1, .7, 0, -.4, 0,
		.7, 1, 0, -.4, 0,
		0, 0, 1, 0, -.5,
		-.4, -.4, 0, 1, 0,
		0, 0, -.5, 0, 1,
	})
}

func TestCTMHeldOut(t *testing.T) {
	first, second, err := Document{[]int{1, 4, 6, 9}, []float64{3, 1, 2, 1}}.halves()
	if err != nil {
		t.Fatal(err)
	}
	// 1 1 1 4 6 6 9 has 1 1 6 9 at even places and 1 4 6 at odd places.
	if !slices.Equal(first.Words, []int{1, 6, 9}) ||
		!slices.Equal(first.Counts, []float64{2, 1, 1}) ||
		!slices.Equal(second.Words, []int{1, 4, 6}) ||
		!slices.Equal(second.Counts, []float64{1, 1, 1}) {
		t.Fatal(first, second)
	}
	p := smallPosterior(t, nil, 0)
	c := &Corpus{Terms: 3, Docs: []Document{{[]int{0, 1, 2}, []float64{5, 2, 2}}, {}}}
	h, err := p.HeldOut(c, &HeldOutOptions{Draws: 40000, Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ = c.Docs[0].halves() // 3, 1, 1 and 2, 1, 1
	d, err := smallPosterior(t, nil, 0.01).Infer(first)
	if err != nil {
		t.Fatal(err)
	}
	// E[π] by quadrature over z_1 − z_2.
	m, v := d.LogitMean(nil), d.LogitCov()
	sd := math.Sqrt(v.At(0, 0) + v.At(1, 1) - 2*v.At(0, 1))
	var mean [2]float64
	rule := expect.Hermite(60)
	for i, x := range rule.X {
		mean[0] += rule.W[i] / (1 + math.Exp(m[1]-m[0]-sd*x))
	}
	mean[1] = 1 - mean[0]
	prob := func(v int) float64 {
		return -math.Log(0.99*(mean[0]*p.Topics().At(0, v)+mean[1]*p.Topics().At(1, v)) + 0.01/3)
	}
	near(t, "held-out score", h.PerToken, (2*prob(0)+prob(1)+prob(2))/4, 1e-3)
	near(t, "score in vocabulary", h.InVocab, (2*prob(0)+prob(1))/3, 1e-3)
	if h.Tokens != 4 || h.TokensInVocab != 3 || h.DocumentScores[1] != 0 {
		t.Errorf("%+v", h)
	}
}

// TestCTMHeldOutDraws checks both scores against their formulas, evaluated with draws of the topic
// proportions.
func TestCTMHeldOutDraws(t *testing.T) {
	draws := shorter(400000, 100000)
	p := smallPosterior(t, nil, 0)
	c := &Corpus{Terms: 3, Docs: []Document{
		{[]int{0, 1, 2}, []float64{9, 6, 5}},
		{[]int{1, 2}, []float64{1, 1}},
		{[]int{0, 2}, []float64{5000, 5000}},
	}}
	each, err := p.HeldOut(c, &HeldOutOptions{Draws: draws / 4})
	if err != nil {
		t.Fatal(err)
	}
	byWord, err := p.HeldOut(c, &HeldOutOptions{Draws: draws / 4, ByWord: true})
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := c.Docs[0].halves() // 5, 3, 2 and 4, 3, 3
	d, err := smallPosterior(t, nil, 0.01).Infer(first)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(7, 7))
	pi := make([]float64, 2)
	var mean, power [3]float64
	for range draws {
		d.Rand(pi, rng)
		for j, v := range second.Words {
			x := 0.99*(pi[0]*p.Topics().At(0, v)+pi[1]*p.Topics().At(1, v)) + 0.01/3
			mean[j] += x / float64(draws)
			power[j] += math.Pow(x, second.Counts[j]) / float64(draws)
		}
	}
	var wantEach, wantByWord float64
	for j, y := range second.Counts {
		wantEach -= y * math.Log(mean[j])
		wantByWord -= math.Log(power[j])
	}
	near(t, "score of each token", each.DocumentScores[0], wantEach, 0.01)
	near(t, "score by word", byWord.DocumentScores[0], wantByWord, 0.01)
	if !(wantByWord < wantEach-0.2) {
		t.Errorf("%v by word and %v by token do not differ", wantByWord, wantEach)
	}
	near(t, "score by word of one token", byWord.DocumentScores[1], each.DocumentScores[1], 1e-12)
	if !(byWord.DocumentScores[2] < each.DocumentScores[2] && byWord.DocumentScores[2] > 1000) {
		t.Errorf("of 2500 tokens of a word: %v by word, %v by token", byWord.DocumentScores[2],
			each.DocumentScores[2])
	}
	if byWord.Tokens != each.Tokens || !(byWord.PerToken < each.PerToken) ||
		!(byWord.InVocab < each.InVocab) {
		t.Errorf("by word %+v, by token %+v", byWord, each)
	}
}

func documents(c *Corpus) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		for _, d := range c.Docs {
			if !yield(d, nil) {
				return
			}
		}
	}
}
