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
