package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/batches"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"github.com/pgsvi/pgsvi/internal/topic"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tol) {
		t.Errorf("%s is %.10g, want %.10g ± %g", what, got, want, tol)
	}
}

// TestCTMInferExact: the exact case of internal/topic through the posterior of a model, and E[π].
func TestCTMInferExact(t *testing.T) {
	p := smallPosterior(t, &CTMOptions{Expectation: CTMQuadrature, Samples: 40}, 0)
	d, err := p.Infer(Document{Words: []int{0, 1, 2}, Counts: []float64{5, 2, 1}})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "ELBO of Infer", d.ELBO(), -8.30262986, 2e-8)
	mean, lo, hi := d.Proportions(0.9)
	// of the exact posterior; q is Gaussian and there are 4000 draws
	near(t, "E[pi_1]", mean[0], 0.738342, 0.02)
	if !(lo[0] < mean[0] && mean[0] < hi[0] && lo[0] > 0 && hi[0] < 1) {
		t.Errorf("interval %v to %v about %v", lo[0], hi[0], mean[0])
	}
}

// smallPosterior is the exact case as a posterior, with the share mix of the uniform distribution
// in each topic.
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

// match pairs each true topic with the most similar row of got, and returns the least cosine.
func match(truth [][]float64, got *mat.Dense) (index []int, least float64) {
	least = 1
	cos := func(a, b []float64) float64 {
		var ab, aa, bb float64
		for i := range a {
			ab, aa, bb = ab+a[i]*b[i], aa+a[i]*a[i], bb+b[i]*b[i]
		}
		return ab / math.Sqrt(aa*bb)
	}
	for _, row := range truth {
		best, at := -1.0, 0
		for k := range truth {
			if c := cos(row, got.RawRowView(k)); c > best {
				best, at = c, k
			}
		}
		index, least = append(index, at), min(least, best)
	}
	return index, least
}

// Topics that were drawn from are found again, and which of them go together, in at least four runs
// of five: the ELBO has other maxima, lower ones, in which two topics that go together share a
// place.
func TestCTMSynthetic(t *testing.T) {
	t.Parallel()
	long(t)
	corr := correlated()
	c, truth := syntheticCTM(1500, 5, 400, 120, corr, 1)
	for _, diag := range []bool{false, true} {
		m, err := NewCTM(c, 5, &CTMOptions{Diagonal: diag})
		if err != nil {
			t.Fatal(err)
		}
		const runs = 3
		found := 0
		for seed := range uint64(runs) {
			p, res, err := m.Fit(context.Background(),
				&Solver{MaxPasses: 20, EvalEvery: -1, Src: rand.NewPCG(seed, 7)})
			if err != nil {
				t.Fatal(err)
			}
			index, least := match(truth, p.Topics())
			t.Logf("diagonal %v, seed %d: least cosine %.4f, matched %v, ELBO %.0f, %v", diag, seed,
				least, index, res.ELBO, res.Elapsed)
			good := least >= 0.95
			got := p.Corr()
			for i := range 5 {
				for j := range i {
					if a, b := corr.At(i, j), got.At(index[i], index[j]); math.Abs(a) > 0.3 &&
						a*b <= 0 {
						t.Logf("correlation %d, %d: %.2f, want %.2f", i, j, b, a)
						good = false
					}
				}
			}
			if good {
				found++
			}
		}
		if found < runs-1 {
			t.Errorf("diagonal %v: the topics are found in %d of %d runs", diag, found, runs)
		}
	}
}

func toyCorpus(docs int, seed uint64) *Corpus {
	rng := rand.New(rand.NewPCG(seed, 3))
	c := &Corpus{Terms: 60}
	for range docs {
		count := map[int]float64{}
		at := 20 * rng.IntN(3)
		for range 1 + rng.IntN(40) {
			count[at+rng.IntN(20)]++
		}
		c.Docs = append(c.Docs, sortedDoc(count))
	}
	return c
}

func fitCTM(t testing.TB, c *Corpus, k int, opt *CTMOptions, s *Solver) (*CTMPosterior, *Result) {
	t.Helper()
	m, err := NewCTM(c, k, opt)
	if err != nil {
		t.Fatal(err)
	}
	p, res, err := m.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p, res
}

func saved(t testing.TB, p *CTMPosterior) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Every way to take expectations gives the same bits for any number of workers, and raises the
// ELBO.
func TestCTMWorkers(t *testing.T) {
	t.Parallel()
	c := toyCorpus(70, 4)
	c.Docs[3] = Document{}
	for _, o := range []CTMOptions{
		{}, {Diagonal: true}, {Expectation: CTMQuasi}, {Expectation: CTMQuadrature, Samples: 5},
		{Expectation: CTMDelta},
		{Expectation: CTMLaplace}, {Expectation: CTMMeanField}, {Forget: true}, {Paper: true},
		{Paper: true, Diagonal: true},
		{Start: StartKMeans}, {Start: StartAnchors}, {Start: StartDocs},
	} {
		var first string
		for _, workers := range few([]int{1, 7, 2}, 2) {
			p, res := fitCTM(t, c, 3, &o,
				&Solver{MaxPasses: 3, Workers: workers, Src: rand.NewPCG(1, 2), Converger: Never()})
			if res.Passes < 3 || math.IsNaN(res.ELBO) {
				t.Errorf("%+v: %v passes, ELBO %v", o, res.Passes, res.ELBO)
			}
			if e := res.ELBOErr; !(e > 0) {
				t.Errorf("%+v: the error of the ELBO is %v", o, e)
			}
			if !(res.Trace[2].ELBO > res.Trace[0].ELBO-1) {
				t.Errorf("%+v: the ELBO goes from %v to %v", o, res.Trace[0].ELBO,
					res.Trace[2].ELBO)
			}
			got := saved(t, p) + fmt.Sprint(res.ELBO)
			if first == "" {
				first = got
			} else if got != first {
				t.Errorf("%+v: %d workers give another result than 1", o, workers)
			}
		}
	}
}

func TestCTMStepAllocs(t *testing.T) {
	if testkit.Race {
		t.Skip("the race detector allocates")
	}
	m, err := NewCTM(toyCorpus(64, 5), 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	st, err := m.NewStepper(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	batch := make([]int, 32)
	for i := range batch {
		batch[i] = 2 * i
	}
	env := &Env{Rng: rng}
	step := func() {
		if _, err := st.Step(context.Background(), env, batch, math.Inf(1)); err != nil {
			t.Fatal(err)
		}
	}
	evaluate := func() {
		if _, err := st.Evaluate(context.Background(), env); err != nil {
			t.Fatal(err)
		}
	}
	for name, f := range map[string]func(){"a step of 32 documents": step,
		"an evaluation": evaluate} {
		f()
		f()
		if a := testing.AllocsPerRun(20, f); a > 0 {
			t.Errorf("%v allocations in %s", a, name)
		}
	}
}

func TestCTMErrors(t *testing.T) {
	good := toyCorpus(5, 6)
	for _, c := range []struct {
		corpus *Corpus
		k      int
		opt    *CTMOptions
		want   error
		text   string
	}{
		{nil, 2, nil, ErrEmpty, "without documents"},
		{&Corpus{Terms: 3}, 2, nil, ErrEmpty, "without documents"},
		{&Corpus{Docs: make([]Document, 2)}, 2, nil, ErrEmpty, "vocabulary"},
		{&Corpus{Docs: make([]Document, 2), Terms: 4}, 2, nil, ErrEmpty, "no words"},
		{&Corpus{Docs: []Document{{[]int{7}, []float64{1}}}, Terms: 4}, 2, nil, ErrShape,
			"document 0 has word 7"},
		{&Corpus{Docs: []Document{{[]int{1}, []float64{-1}}}, Terms: 4}, 2, nil, ErrParam, "count"},
		{good, 0, nil, ErrParam, "0 topics"},
		{good, 2, &CTMOptions{Samples: -1}, ErrParam, "Samples"},
		{good, 2, &CTMOptions{Samples: 1 << 30}, ErrParam, "Samples"},
		{good, 2, &CTMOptions{Inner: -1, FirstInner: -2}, ErrParam, "FirstInner"},
		{good, 2, &CTMOptions{TopicPrior: math.NaN()}, ErrParam, "TopicPrior"},
		{good, 2, &CTMOptions{PseudoDocs: math.Inf(1)}, ErrParam, "PseudoDocs"},
		{good, 2, &CTMOptions{Expectation: 9}, ErrParam, "CTMExpectation(9)"},
		{good, 2, &CTMOptions{Start: -1}, ErrParam, "TopicStart(-1)"},
		{good, 2, &CTMOptions{Paper: true, Expectation: CTMLaplace}, ErrParam, "Paper"},
		{good, 30, &CTMOptions{Expectation: CTMQuadrature}, ErrParam, "CTMQuasi"},
		{good, 2, &CTMOptions{Topics: mat.NewDense(2, 3, nil)}, ErrShape, "2×3"},
		{good, 1, &CTMOptions{Topics: mat.NewDense(1, 60, nil)}, ErrParam, "sums to 0"},
	} {
		m, err := NewCTM(c.corpus, c.k, c.opt)
		if !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.text) || m != nil {
			t.Errorf("%+v with %d topics: error %v, want one with %q", c.opt, c.k, err, c.text)
		}
	}
	m, err := NewCTM(good, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.NewStepper(context.Background(), nil, Euclidean()); !errors.Is(err, ErrNoProx) {
		t.Error(err)
	}
	if _, err := m.Posterior(nil); !errors.Is(err, ErrParam) {
		t.Error(err)
	}
	p, _ := fitCTM(t, good, 2, nil, nil)
	if _, err := p.Infer(Document{[]int{60}, []float64{1}}); !errors.Is(err, ErrShape) {
		t.Error(err)
	}
	if _, err := p.HeldOut(&Corpus{Terms: 60, Docs: []Document{{[]int{3}, []float64{1.5}}}},
		nil); !errors.Is(err, ErrParam) {
		t.Error(err)
	}
	if _, err := p.HeldOut(&Corpus{Terms: 61, Docs: good.Docs}, nil); !errors.Is(err, ErrShape) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if p, res, err := m.Fit(ctx, nil); !errors.Is(err, context.Canceled) || !prefixedOnce(err) ||
		p != nil || res != nil {
		t.Errorf("%v, %v, %v", p, res, err)
	}
}

func checkFinite(t *testing.T, what string, p *CTMPosterior) {
	t.Helper()
	for n := range p.Len() {
		d := p.Doc(n)
		mean, lo, hi := d.Proportions(0.95)
		var sum float64
		for j := range mean {
			sum += mean[j]
			if !(lo[j] <= mean[j]+1e-12 && mean[j] <= hi[j]+1e-12) && topicsOf(p) > 1 &&
				hi[j]-lo[j] > 1e-3 {
				t.Logf("%s: document %d, topic %d: %v outside %v to %v", what, n, j, mean[j], lo[j],
					hi[j])
			}
		}
		near(t, what+": sum of the proportions", sum, 1, 1e-9)
	}
	topics := p.Topics()
	for k := range topicsOf(p) {
		var sum float64
		for _, b := range topics.RawRowView(k) {
			sum += b
		}
		near(t, what+": sum of a topic", sum, 1, 1e-9)
	}
}

func TestCTMEdgeCases(t *testing.T) {
	notShort(t)
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 9))
	long := Document{}
	for v := range 60 {
		long.Words, long.Counts = append(long.Words, v),
			append(long.Counts, math.Ceil(100000/60*2*rng.Float64()))
	}
	c := toyCorpus(6, 7)
	c.Docs = append(c.Docs, Document{}, Document{[]int{5}, []float64{1}}, long,
		Document{[]int{59}, []float64{100000}}, Document{[]int{4}, []float64{0.25}})
	// the last are more than there are documents
	for _, k := range longer([]int{1, 2, 5, 30}, []int{1, 12}) {
		for _, o := range []CTMOptions{{}, {Diagonal: true}, {Expectation: CTMQuasi},
			{Expectation: CTMDelta}, {Expectation: CTMLaplace},
			{Expectation: CTMMeanField}, {Forget: true}, {Start: StartKMeans},
			{Start: StartAnchors}, {Start: StartDocs}} {
			what := fmt.Sprintf("%d topics, %+v", k, o)
			p, res := fitCTM(t, c, k, &o, &Solver{MaxPasses: 4, BatchSize: 3})
			if math.IsNaN(res.ELBO) || math.IsInf(res.ELBO, 0) || res.ELBO > 0 {
				t.Errorf("%s: ELBO %v", what, res.ELBO)
			}
			checkFinite(t, what, p)
			for _, d := range c.Docs {
				q, err := p.Infer(d)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if math.IsNaN(q.ELBO()) || q.ELBO() > 1e-9 && o.Expectation <= CTMQuadrature {
					t.Errorf("%s: ELBO of Infer %v", what, q.ELBO())
				}
			}
			whole := *c
			whole.Docs = whole.Docs[:len(whole.Docs)-1]
			h, err := p.HeldOut(&whole, &HeldOutOptions{Draws: 20})
			if err != nil || !(h.PerToken > 0) || math.IsInf(h.PerToken, 0) {
				t.Errorf("%s: held out %+v, %v", what, h, err)
			}
		}
	}
	// The paper's unguarded step either works or says that it does not.
	m, err := NewCTM(c, 3, &CTMOptions{Paper: true})
	if err != nil {
		t.Fatal(err)
	}
	if p, _, err := m.Fit(context.Background(), &Solver{MaxPasses: 4}); err == nil {
		checkFinite(t, "paper", p)
	} else if !errors.Is(err, ErrNotPosDef) || !strings.Contains(err.Error(), "Paper") {
		t.Error(err)
	}
	// A batch that repeats a document, and one of all documents.
	for _, s := range []*Solver{{Sampler: WithReplacement(), BatchSize: 30, MaxIter: 6},
		{StepSize: ConstantStep(1), MaxIter: 3},
		{StepSize: ConstantStep(1e9), BatchSize: 2, MaxPasses: 3}} {
		p, _ := fitCTM(t, c, 3, nil, s)
		checkFinite(t, "repetitions", p)
	}
}

// With one topic the word probabilities are those of the corpus, smoothed.
func TestCTMOneTopic(t *testing.T) {
	c := toyCorpus(40, 10)
	p, _ := fitCTM(t, c, 1, nil, &Solver{BatchSize: 40, MaxPasses: 200, EvalEvery: -1})
	total := c.Tokens()
	count := make([]float64, c.Terms)
	for _, d := range c.Docs {
		for i, v := range d.Words {
			count[v] += d.Counts[i]
		}
	}
	for v, b := range p.Topics().RawRowView(0) {
		near(t, "probability of a word", b, (count[v]+0.03)/(total+0.03*60), 1e-6)
	}
}

func TestCTMHeldOut(t *testing.T) {
	first, second, err := Document{[]int{1, 4, 6, 9}, []float64{3, 1, 2, 1}}.halves()
	if err != nil {
		t.Fatal(err)
	}
	// 1 1 1 4 6 6 9 → even places 1 1 6 9, odd places 1 4 6
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
	m, v := d.Mean(nil), d.Cov()
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

// Both scores are what draws of the topic proportions, by their own formulas, say.
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

func TestCTMSave(t *testing.T) {
	t.Parallel()
	for _, o := range []CTMOptions{{}, {Diagonal: true}, {Forget: true},
		{Expectation: CTMMeanField}} {
		c := toyCorpus(20, 11)
		c.Docs[2] = Document{}
		p, _ := fitCTM(t, c, 3, &o, nil)
		text := saved(t, p)
		q, err := Load[*CTMPosterior](strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if saved(t, q) != text {
			t.Error("a loaded model is another")
		}
		a, err := p.Infer(c.Docs[0])
		if err != nil {
			t.Fatal(err)
		}
		b, err := q.Infer(c.Docs[0])
		if err != nil || a.ELBO() != b.ELBO() {
			t.Errorf("Infer of a loaded model: ELBO %v, want %v, %v", b.ELBO(), a.ELBO(), err)
		}
		// Whatever is in a file, there is a model or an error.
		rng := rand.New(rand.NewPCG(1, 2))
		for range shorter(300, 100) {
			b := []byte(bodyOf(t, ctmFile, text))
			for range 1 + rng.IntN(3) {
				b[rng.IntN(len(b))] = "0123456789-e.,[]null"[rng.IntN(20)]
			}
			if q, err := Load[*CTMPosterior](
				strings.NewReader(fileOf(t, ctmFile, string(b)))); err == nil {
				if _, err := q.Infer(c.Docs[0]); err != nil && !errors.Is(err, ErrNotPosDef) {
					t.Error(err)
				}
			}
		}
	}
	for _, s := range []struct {
		text string
		want error
	}{
		{"", ErrFile}, {"{}", ErrShape},
		{`{"topics":1,"terms":1,"beta":[1],"mu":[0],"sigma":[-1],"seen":[true]}`, ErrNotPosDef},
		{`{"topics":1,"terms":1,"beta":[2],"mu":[0],"sigma":[1],"seen":[true]}`, ErrParam},
		{`{"topics":1,"terms":1,"beta":[1],"mu":[0],"sigma":[1],"seen":[true],"docs":[[1]]}`,
			ErrShape},
		{`{"topics":1,"terms":1,"beta":[1],"mu":[0],"sigma":[1],"seen":[true],"docs":[[1,0]]}`,
			ErrNotPosDef},
	} {
		if _, err := Load[*CTMPosterior](strings.NewReader(fileOf(t, ctmFile, s.text))); !errors.Is(
			err, s.want) || !errors.Is(err, ErrFile) {
			t.Errorf("%s: %v, want %v", s.text, err, s.want)
		}
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

func TestCTMStream(t *testing.T) {
	c, truth := syntheticCTM(1200, 3, 100, 80,
		mat.NewSymDense(3, []float64{1, .5, 0, .5, 1, 0, 0, 0, 1}), 12)
	s, err := NewCTMStream(c.Terms, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Posterior(); !errors.Is(err, ErrEmpty) {
		t.Error(err)
	}
	if err := s.AddAll(context.Background(), documents(c)); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(Document{[]int{100}, []float64{1}}); !errors.Is(err, ErrShape) ||
		!strings.Contains(err.Error(), "document 1200") {
		t.Error(err)
	}
	p, err := s.Posterior()
	if err != nil {
		t.Fatal(err)
	}
	_, least := match(truth, p.Topics())
	t.Logf("least cosine after one pass %.4f", least)
	if least < 0.9 || p.Len() != 0 || s.Len() != 1200 {
		t.Errorf("least cosine of a topic is %v; %d, %d documents", least, p.Len(), s.Len())
	}
	// A stream of few and of empty documents.
	s, _ = NewCTMStream(10, 3, nil)
	for range 300 {
		if err := s.Add(Document{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Add(Document{[]int{3}, []float64{2}}); err != nil {
		t.Fatal(err)
	}
	p, err = s.Posterior()
	if err != nil {
		t.Fatal(err)
	}
	checkFinite(t, "stream", p)
}

// The topics of the documents are those of their posteriors, and what LDAvis takes.
func TestCTMDocTopics(t *testing.T) {
	c := &Corpus{Terms: 6, Docs: []Document{
		{[]int{0, 1, 2}, []float64{9, 5, 4}}, {[]int{3, 4, 5}, []float64{7, 5, 2}}, {},
		{[]int{0, 5}, []float64{3, 3}},
	}}
	m, err := NewCTM(c, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := m.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	topics, err := p.DocTopics(nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range c.Docs {
		mean, _, _ := p.Doc(n).Proportions(0.9)
		row := topics.RawRowView(n)
		if math.Abs(row[0]+row[1]-1) > 1e-12 || math.Abs(row[0]-mean[0]) > 0.05 {
			t.Errorf("document %d: %v, from its posterior %v", n, row, mean)
		}
	}
	var buf bytes.Buffer
	if err := WriteLDAvis(&buf, p.Topics(), topics, c); err != nil {
		t.Error(err)
	}
}

// TestTopicEnumerations: a value of an enumeration has the same number in the engine, to which it
// is converted.
func TestTopicEnumerations(t *testing.T) {
	for e, want := range map[CTMExpectation]topic.Expectation{
		CTMAntithetic: topic.Antithetic, CTMQuasi: topic.Quasi, CTMQuadrature: topic.Quadrature,
		CTMDelta: topic.Delta, CTMLaplace: topic.Laplace, CTMMeanField: topic.MeanField,
	} {
		if topic.Expectation(e) != want {
			t.Errorf("%v is %d in the engine, not %d", e, want, e)
		}
	}
	for r, want := range map[TopicRank]topic.Rank{
		ByProbability: topic.ByProbability, ByFREX: topic.ByFREX, ByLift: topic.ByLift,
		ByRelevance: topic.ByRelevance,
	} {
		if topic.Rank(r) != want {
			t.Errorf("%v is %d in the engine, not %d", r, want, r)
		}
	}
	for s, want := range map[TopicStart]topic.Start{
		StartAuto: topic.StartAuto, StartKMeans: topic.StartKMeans,
		StartAnchors: topic.StartAnchors,
		StartDocs:    topic.StartDocs, StartRandom: topic.StartRandom,
	} {
		if topic.Start(s) != want {
			t.Errorf("%v is %d in the engine, not %d", s, want, s)
		}
	}
}

// topicsOf is the number of topics.
func topicsOf(p *CTMPosterior) int { return p.Topics().RawMatrix().Rows }
