package topics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/testkit"
	"github.com/pgsvi/pgsvi/internal/topic"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tol) {
		t.Errorf("%s is %.10g, want %.10g ± %g", what, got, want, tol)
	}
}

func TestCTMStepAllocs(t *testing.T) {
	if testkit.Race {
		t.Skip("the race detector allocates")
	}
	m, err := NewCTM(kit.ToyCorpus(64, 5), 4, nil)
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
	good := kit.ToyCorpus(5, 6)
	for _, c := range []struct {
		corpus *Corpus
		k      int
		opt    *CTMOptions
		want   error
		text   string
	}{
		{nil, 2, nil, ErrEmpty, "no documents"},
		{&Corpus{Terms: 3}, 2, nil, ErrEmpty, "no documents"},
		{&Corpus{Docs: make([]Document, 2)}, 2, nil, ErrEmpty, "vocabulary"},
		{&Corpus{Docs: make([]Document, 2), Terms: 4}, 2, nil, ErrEmpty, "no words"},
		{&Corpus{Docs: []Document{{Words: []int{7}, Counts: []float64{1}}}, Terms: 4}, 2, nil,
			ErrShape,
			"document 0 has word 7"},
		{&Corpus{Docs: []Document{{Words: []int{1}, Counts: []float64{-1}}}, Terms: 4}, 2, nil,
			ErrParam, "count"},
		{good, 0, nil, ErrParam, "topics is 0"},
		{good, 2, &CTMOptions{Samples: -1}, ErrParam, "Samples"},
		{good, 2, &CTMOptions{Samples: 1 << 30}, ErrParam, "Samples"},
		{good, 2, &CTMOptions{Inner: -1, FirstInner: -2}, ErrParam, "FirstInner"},
		{good, 2, &CTMOptions{Inner: 1 << 30, FirstInner: 1 << 30}, ErrParam,
			"FirstInner is 1073741824; it must be at most 10000"},
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
	p, _ := kit.FitCTM(t, good, 2, nil, nil)
	if _, err := p.Infer(Document{Words: []int{60}, Counts: []float64{1}}); !errors.Is(err,
		ErrShape) {
		t.Error(err)
	}
	if _, err := p.HeldOut(
		&Corpus{Terms: 60, Docs: []Document{{Words: []int{3}, Counts: []float64{1.5}}}},
		nil); !errors.Is(err, ErrParam) {
		t.Error(err)
	}
	if _, err := p.HeldOut(&Corpus{Terms: 61, Docs: good.Docs}, nil); !errors.Is(err, ErrShape) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if p, res, err := m.Fit(ctx, nil); !errors.Is(err, context.Canceled) ||
		!testkit.PrefixedOnce(err) ||
		p != nil || res != nil {
		t.Errorf("%v, %v, %v", p, res, err)
	}
}

// With a single topic, the word probabilities are the smoothed frequencies of the corpus.
func TestCTMOneTopic(t *testing.T) {
	c := kit.ToyCorpus(40, 10)
	p, _ := kit.FitCTM(t, c, 1, nil, &Solver{BatchSize: 40, MaxPasses: 200, EvalEvery: -1})
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

// TestCTMDocTopics checks that the topic proportions of the documents come from their posteriors,
// and that WriteLDAvis accepts them.
func TestCTMDocTopics(t *testing.T) {
	c := &Corpus{Terms: 6, Docs: []Document{
		{Words: []int{0, 1, 2}, Counts: []float64{9, 5, 4}},
		{Words: []int{3, 4, 5}, Counts: []float64{7, 5, 2}}, {},
		{Words: []int{0, 5}, Counts: []float64{3, 3}},
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

// TestTopicEnumerations checks that each value of an enumeration has the same number in the
// engine, because the code converts the numbers.
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

// TestCTMStops checks that a nil Solver ends fits of small corpora by the gap, except if the work
// is too much, and that 60 passes seldom gain more than three times that gap.
func TestCTMStops(t *testing.T) {
	t.Parallel()
	expectations := []CTMExpectation{CTMAntithetic, CTMQuasi, CTMMeanField, CTMLaplace, CTMDelta}
	converged, within, corpora := 0, 0, testkit.Shorter(groupCorpora, groupCorpora[5:8])
	for i, g := range corpora {
		g.docs /= 4
		c, _ := g.draw(uint64(200 + i))
		e := expectations[i%testkit.Shorter(len(expectations), 2)]
		m, err := NewCTM(c, g.topics, &CTMOptions{Expectation: e})
		if err != nil {
			t.Fatal(err)
		}
		_, res, err := m.Fit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, long, err := m.Fit(t.Context(), &Solver{MaxPasses: 60, Goal: 1e-9})
		if err != nil {
			t.Fatal(err)
		}
		gain := long.ELBO - res.ELBO
		t.Logf("%+v, %v: %v; gained %.3g of %.3g", g, e, res, gain, res.Gap)
		if (res.Status == Converged) != (res.Gap <= res.Goal) || !(res.Gap >= res.ELBOErr) ||
			!(res.Goal >= 0.1) || !math.IsInf(res.GapBound, 1) || res.Passes < 10 {
			t.Errorf("%+v, %v: %v, Gap %v, Goal %v, GapBound %v", g, e, res, res.Gap, res.Goal,
				res.GapBound)
		}
		if res.Status == Converged {
			converged++
		}
		if gain <= 3*res.Gap {
			within++
		}
	}
	if n := len(corpora); converged < n*3/4 || within < n*3/4 {
		t.Errorf("%d of %d fits converge, %d gain little more than the gap", converged, n, within)
	}
	t.Logf("converged %d, within %d", converged, within)
}

// TestCTMGapResumed checks that a run that stops before the last pass continues with the same
// bits, and that there is no gap before the fifth pass over all documents.
func TestCTMGapResumed(t *testing.T) {
	t.Parallel()
	c, _ := groupCorpora[6].draw(300)
	m, err := NewCTM(c, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	fit := func(passes float64) *Result {
		_, res, err := m.Fit(t.Context(), &Solver{MaxPasses: passes})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	want, part := fit(10), fit(8)
	if !math.IsInf(part.Gap, 1) || !(want.Gap > 0) || math.IsInf(want.Gap, 1) {
		t.Errorf("gap %v after 8 passes and %v after 10", part.Gap, want.Gap)
	}
	var b bytes.Buffer
	if err := part.Save(&b); err != nil {
		t.Fatal(err)
	}
	s := &Solver{MaxPasses: 10}
	got, err := s.LoadResult(t.Context(), &b, m)
	if err == nil {
		got, err = s.Resume(t.Context(), got)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got.ELBO != want.ELBO || got.Gap != want.Gap || got.Status != want.Status {
		t.Errorf("resumed: %v, gap %v; want %v, gap %v", got, got.Gap, want, want.Gap)
	}
}

// TestCTMIntervals infers a document whose only word is equally probable in all topics. Its
// posterior is the prior N(μ, Σ), even if q is diagonal. The test also checks that files keep the
// intervals of training documents if they keep the documents.
func TestCTMIntervals(t *testing.T) {
	t.Parallel()
	c := &Corpus{Terms: 7}
	for n := range 60 {
		first := 3 * (n % 2)
		c.Docs = append(c.Docs, Document{Words: []int{first, first + 1, first + 2},
			Counts: []float64{float64(1 + n%7), 3, 1}})
	}
	p, _ := kit.FitCTM(t, c, 2, &CTMOptions{Diagonal: true}, nil)
	_, lo, hi := p.Proportions(0.9)
	// z_0 − z_1 is Gaussian, and softmax is monotonic in it.
	mu, s := p.Mu(nil), p.Sigma()
	sd := math.Sqrt(s.At(0, 0) + s.At(1, 1) - 2*s.At(0, 1))
	for i, end := range []float64{lo[0], hi[0]} {
		want := mu[0] - mu[1] + []float64{-1.645, 1.645}[i]*sd
		near(t, "end of the prior's interval", math.Log(end/(1-end)), want, 0.15*sd)
	}
	unknown, err := p.Infer(Document{Words: []int{6}, Counts: []float64{1}})
	if err != nil {
		t.Fatal(err)
	}
	_, lo2, hi2 := unknown.Proportions(0.9)
	near(t, "lower end without information", lo2[0], lo[0], 0.05)
	near(t, "upper end without information", hi2[0], hi[0], 0.05)

	_, lo, hi = p.Doc(3).Proportions(0.9)
	again, err := p.Infer(c.Docs[3])
	if err != nil {
		t.Fatal(err)
	}
	_, lo2, hi2 = again.Proportions(0.9)
	testkit.CheckClose(t, "lower ends of the same document", lo2, lo, 0)
	testkit.CheckClose(t, "upper ends of the same document", hi2, hi, 0)
	for _, with := range []bool{false, true} {
		q := p
		if with {
			q = p.WithDocs()
		}
		var b strings.Builder
		if err := q.Save(&b); err != nil || strings.Contains(b.String(), `"words"`) != with {
			t.Fatalf("with documents %v: %v", with, err)
		}
		loaded, err := Load[*CTMPosterior](strings.NewReader(b.String()))
		if err != nil {
			t.Fatal(err)
		}
		_, lo3, hi3 := loaded.Doc(3).Proportions(0.9)
		if same := slices.Equal(lo3, lo) && slices.Equal(hi3, hi); same != with {
			t.Errorf("with documents %v: from %v to %v, before %v to %v", with, lo3, hi3, lo, hi)
		}
	}
	var b strings.Builder
	if err := p.WithDocs().Save(&b); err != nil {
		t.Fatal(err)
	}
	body := testkit.BodyOf(t, testkit.Kind("CTMPosterior"), b.String())
	bad := strings.Replace(body, `"sizes":[3,`, `"sizes":[4,`, 1)
	if _, err := Load[*CTMPosterior](strings.NewReader(testkit.FileOf(t,
		testkit.Kind("CTMPosterior"), bad))); bad == body || !errors.Is(err, ErrShape) {
		t.Errorf("a document of more words: %v", err)
	}
}

func sayTopics(p *CTMPosterior) string {
	var file strings.Builder
	if err := p.Save(&file); err != nil {
		return err.Error()
	}
	return fmt.Sprint(p.Topics().RawMatrix().Data, p.Mu(nil), p.Sigma().RawSymmetric().Data,
		file.String())
}

// TestCTMStreamResume checks that a stream of documents that is saved, loaded and read on the way
// has the same bits at its end as an uninterrupted stream.
func TestCTMStreamResume(t *testing.T) {
	testkit.NotShort(t)
	t.Parallel()
	c := blockCorpus(340, 40)
	c.Docs[3], c.Docs[300] = Document{}, Document{}
	start := mat.NewDense(3, c.Terms, nil)
	for k := range 3 {
		for v := range c.Terms {
			start.Set(k, v, 1+float64((v+k)%3))
		}
	}
	for _, o := range []*CTMOptions{nil, {Expectation: CTMQuasi}, {Expectation: CTMLaplace},
		{Expectation: CTMMeanField}, {Topics: start, Diagonal: true, FirstInner: 4}} {
		fresh := func() *Stream[Document, *CTMPosterior] {
			s, err := NewCTMStream(c.Terms, 3, o)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		if got, want := kit.Resumed(t, fresh, Load[*Stream[Document, *CTMPosterior]], c.Docs,
			[]int{1, 100, 256, 258, 280, 333}, sayTopics); got != want {
			t.Errorf("%+v: %.300s, want %.300s", o, got, want)
		}
	}
}

func TestCorpusString(t *testing.T) {
	for want, c := range map[string]*Corpus{
		"no corpus":                          nil,
		"0 documents, 0 terms, 0 words":      {},
		"60 documents, 12 terms, 2243 words": ldaToy(60),
		"2 documents, 3 terms, 4.5 words": {Terms: 3, Docs: []Document{{}, {Words: []int{0, 2},
			Counts: []float64{4, 0.5}}}},
	} {
		if got := fmt.Sprint(c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// match pairs each true topic with the most similar row of got, and returns the smallest cosine.
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

// TestCTMSynthetic checks that fits recover the topics from which documents were drawn, and their
// correlations, in at least four runs of five. The ELBO has other, lower maxima in which two
// correlated topics merge.
func TestCTMSynthetic(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	corr := kit.Correlated()
	c, truth := kit.SyntheticCTM(1500, 5, 400, 120, corr, 1)
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

func saved(t testing.TB, p *CTMPosterior) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestCTMWorkers checks that every CTMExpectation gives the same bits for any number of workers,
// and raises the ELBO.
func TestCTMWorkers(t *testing.T) {
	t.Parallel()
	c := kit.ToyCorpus(testkit.Shorter(70, 35), 4)
	c.Docs[3] = Document{}
	for _, o := range []CTMOptions{
		{}, {Diagonal: true}, {Expectation: CTMQuasi}, {Expectation: CTMQuadrature, Samples: 5},
		{Expectation: CTMDelta},
		{Expectation: CTMLaplace}, {Expectation: CTMMeanField}, {Forget: true}, {Paper: true},
		{Paper: true, Diagonal: true},
		{Start: StartKMeans}, {Start: StartAnchors}, {Start: StartDocs},
	} {
		var first string
		for _, workers := range testkit.Few([]int{1, 7, 2}, 2) {
			p, res := kit.FitCTM(t, c, 3, &o,
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
	testkit.NotShort(t)
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 9))
	long := Document{}
	for v := range 60 {
		long.Words, long.Counts = append(long.Words, v),
			append(long.Counts, math.Ceil(100000/60*2*rng.Float64()))
	}
	c := kit.ToyCorpus(6, 7)
	c.Docs = append(c.Docs, Document{}, Document{Words: []int{5}, Counts: []float64{1}}, long,
		Document{Words: []int{59}, Counts: []float64{100000}}, Document{Words: []int{4},
			Counts: []float64{0.25}})
	// The last numbers exceed the number of documents.
	for _, k := range testkit.Longer([]int{1, 2, 5, 30}, []int{1, 12}) {
		for _, o := range []CTMOptions{{}, {Diagonal: true}, {Expectation: CTMQuasi},
			{Expectation: CTMDelta}, {Expectation: CTMLaplace},
			{Expectation: CTMMeanField}, {Forget: true}, {Start: StartKMeans},
			{Start: StartAnchors}, {Start: StartDocs}} {
			what := fmt.Sprintf("%d topics, %+v", k, o)
			p, res := kit.FitCTM(t, c, k, &o, &Solver{MaxPasses: 4, BatchSize: 3})
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
	// The paper's unguarded step either works or returns an error.
	m, err := NewCTM(c, 3, &CTMOptions{Paper: true})
	if err != nil {
		t.Fatal(err)
	}
	if p, _, err := m.Fit(context.Background(), &Solver{MaxPasses: 4}); err == nil {
		checkFinite(t, "paper", p)
	} else if !errors.Is(err, ErrNotPosDef) || !strings.Contains(err.Error(), "Paper") {
		t.Error(err)
	}
	// Use a batch that repeats a document, and a batch of all documents.
	for _, s := range []*Solver{{Sampler: WithReplacement(), BatchSize: 30, MaxIter: 6},
		{StepSize: ConstantStep(1), MaxIter: 3},
		{StepSize: ConstantStep(1e9), BatchSize: 2, MaxPasses: 3}} {
		p, _ := kit.FitCTM(t, c, 3, nil, s)
		checkFinite(t, "repetitions", p)
	}
}

func TestCTMSave(t *testing.T) {
	t.Parallel()
	for _, o := range []CTMOptions{{}, {Diagonal: true}, {Forget: true},
		{Expectation: CTMMeanField}} {
		c := kit.ToyCorpus(20, 11)
		c.Docs[2] = Document{}
		p, _ := kit.FitCTM(t, c, 3, &o, nil)
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
		// Any file gives a model or an error.
		rng := rand.New(rand.NewPCG(1, 2))
		for range testkit.Shorter(300, 100) {
			b := []byte(testkit.BodyOf(t, testkit.Kind("CTMPosterior"), text))
			for range 1 + rng.IntN(3) {
				b[rng.IntN(len(b))] = "0123456789-e.,[]null"[rng.IntN(20)]
			}
			if q, err := Load[*CTMPosterior](
				strings.NewReader(testkit.FileOf(t, testkit.Kind("CTMPosterior"),
					string(b)))); err == nil {
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
		if _, err := Load[*CTMPosterior](
			strings.NewReader(testkit.FileOf(t, testkit.Kind("CTMPosterior"), s.text))); !errors.Is(
			err, s.want) || !errors.Is(err, ErrFile) {
			t.Errorf("%s: %v, want %v", s.text, err, s.want)
		}
	}
}

func TestCTMStream(t *testing.T) {
	c, truth := kit.SyntheticCTM(1200, 3, 100, 80,
		mat.NewSymDense(3, []float64{1, .5, 0, .5, 1, 0, 0, 0, 1}), 12)
	s, err := NewCTMStream(c.Terms, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Posterior(); !errors.Is(err, ErrEmpty) {
		t.Error(err)
	}
	if err := s.AddAll(context.Background(), kit.Documents(c)); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(Document{Words: []int{100}, Counts: []float64{1}}); !errors.Is(err, ErrShape) ||
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
	// Add few documents and empty documents to a stream.
	s, _ = NewCTMStream(10, 3, nil)
	for range 300 {
		if err := s.Add(Document{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Add(Document{Words: []int{3}, Counts: []float64{2}}); err != nil {
		t.Fatal(err)
	}
	p, err = s.Posterior()
	if err != nil {
		t.Fatal(err)
	}
	checkFinite(t, "stream", p)
}

// topicsOf returns the number of topics.
func topicsOf(p *CTMPosterior) int { return p.Topics().RawMatrix().Rows }
