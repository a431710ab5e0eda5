package bench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/floats"
)

// ctmWords is the number of distinct words in a document of typical length, which is the mean of
// AP.
const ctmWords = 134

// A ctmCorpus holds a corpus and 64 of its documents with typical length.
type ctmCorpus struct {
	name         string
	all, typical *pgsvi.Corpus
}

// ctmCorpora returns a generated corpus and, if PGSVI_DATA is set, the documents of AP with even
// numbers.
func ctmCorpora(b *testing.B) []ctmCorpus {
	b.Helper()
	corpora := []ctmCorpus{newCTMCorpus("generated", generateCorpus())}
	if dir := os.Getenv("PGSVI_DATA"); dir != "" {
		f, err := os.Open(filepath.Join(dir, "ap", "ap.dat.gz"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		c, err := data.ReadLDAC(f, 0)
		if err != nil {
			b.Fatal(err)
		}
		even, _ := c.EvenOdd()
		corpora = append(corpora, newCTMCorpus("ap", even))
	}
	return corpora
}

func newCTMCorpus(name string, c *pgsvi.Corpus) ctmCorpus {
	off := func(n int) int { d := len(c.Docs[n].Words) - ctmWords; return d * d }
	order := make([]int, len(c.Docs))
	for n := range order {
		order[n] = n
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(off(i), off(j)) })
	return ctmCorpus{name, c, c.Subset(order[:64])}
}

// generateCorpus draws 512 documents of ctmWords distinct words each. Word frequencies follow
// Zipf's law. In each of 10 topics the logarithms of the probabilities differ from these by N(0,
// 4).
func generateCorpus() *pgsvi.Corpus {
	const docs, terms, topics = 512, 2000, 10
	rng := rand.New(rand.NewPCG(1, 1))
	cumulated := make([][]float64, topics)
	for k := range cumulated {
		p := make([]float64, terms)
		for v := range p {
			p[v] = math.Exp(2*rng.NormFloat64()) / float64(v+10)
		}
		cumulated[k] = floats.CumSum(p, p)
	}
	c := &pgsvi.Corpus{Docs: make([]pgsvi.Document, docs), Terms: terms}
	for n := range c.Docs {
		share := make([]float64, topics)
		for k := range share {
			share[k] = math.Exp(1.5 * rng.NormFloat64())
		}
		floats.CumSum(share, share)
		count := make(map[int]float64)
		for len(count) < ctmWords {
			count[draw(rng, cumulated[draw(rng, share)])]++
		}
		d := &c.Docs[n]
		for v := range count {
			d.Words = append(d.Words, v)
		}
		slices.Sort(d.Words)
		for _, v := range d.Words {
			d.Counts = append(d.Counts, count[v])
		}
	}
	return c
}

// draw draws an index with the given cumulative weights.
func draw(rng *rand.Rand, cumulated []float64) int {
	i, _ := slices.BinarySearch(cumulated, rng.Float64()*cumulated[len(cumulated)-1])
	return i
}

// An eStep is a method to infer a document.
type eStep struct {
	name  string
	draws int
	opt   pgsvi.CTMOptions
}

// eSteps returns the methods to compare, first with full V and then with diagonal V.
func eSteps() []eStep {
	var all []eStep
	for _, diagonal := range []bool{false, true} {
		v := "full"
		if diagonal {
			v = "diagonal"
		}
		for _, e := range []eStep{
			{"PG-SVI", 4, pgsvi.CTMOptions{}},
			{"PG-SVI-quasi", 16, pgsvi.CTMOptions{Expectation: pgsvi.CTMQuasi}},
			{"delta", 1, pgsvi.CTMOptions{Expectation: pgsvi.CTMDelta}},
			{"Laplace", 1, pgsvi.CTMOptions{Expectation: pgsvi.CTMLaplace}},
			{"mean-field", 1, pgsvi.CTMOptions{Expectation: pgsvi.CTMMeanField}},
		} {
			if e.opt.Expectation == pgsvi.CTMMeanField && !diagonal {
				continue // mean field always has a diagonal V
			}
			e.name, e.opt.Diagonal = v+"/"+e.name, diagonal
			all = append(all, e)
		}
	}
	return all
}

// ctmFloor returns a function that times the arithmetic of E[∇f] and E[∇²f] for the documents. It
// computes one exponential per topic and draw. Per word, topic and draw, it computes one product
// with the topic, and the products of E[∇²f]: products with all topics up to this topic if V is
// full, and one if V is diagonal. Delta and mean field have no products for E[∇²f], because their
// curvature does not depend on the words. A product is a multiplication and an addition in a long
// inner product that stays in cache.
func ctmFloor(docs []pgsvi.Document, k, draws int, opt *pgsvi.CTMOptions) func() time.Duration {
	rows := k // number of inner products of length words·draws
	switch {
	case opt.Expectation == pgsvi.CTMDelta, opt.Expectation == pgsvi.CTMMeanField:
	case opt.Diagonal:
		rows += k
	default:
		rows += k * (k + 1) / 2
	}
	longest := 0
	for _, d := range docs {
		longest = max(longest, len(d.Words))
	}
	x := make([]float64, longest*draws)
	return func() time.Duration {
		var sum float64
		start := time.Now()
		for _, d := range docs {
			for i := range k * draws {
				sum += math.Exp(-float64(i) / 1000)
			}
			x := x[:len(d.Words)*draws]
			for range rows {
				sum += floats.Dot(x, x)
			}
		}
		elapsed := time.Since(start)
		if math.IsNaN(sum) {
			panic("not a number")
		}
		return elapsed
	}
}

// distinct returns the number of distinct words, summed over the documents.
func distinct(docs []pgsvi.Document) (n float64) {
	for _, d := range docs {
		n += float64(len(d.Words))
	}
	return n
}

// ctmStepper returns the Stepper of a CTM for c.
func ctmStepper(b *testing.B, c *pgsvi.Corpus, k int, opt pgsvi.CTMOptions) pgsvi.Stepper {
	b.Helper()
	m, err := pgsvi.NewCTM(c, k, &opt)
	if err != nil {
		b.Fatal(err)
	}
	st, err := m.NewStepper(context.Background(), nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	return st
}

// BenchmarkCTMStep times one proximal step of a document by each E-step, in units of the floor and
// per word, topic and draw. It measures a visit of 100 steps, in which no E-step converges. The
// M-step after the visit takes a hundredth of the time. Allocations are per visit.
func BenchmarkCTMStep(b *testing.B) {
	c := newCTMCorpus("generated", generateCorpus()).typical
	const steps, beta = 100, 1e-3
	batch := []int{0}
	docs := c.Docs[:len(batch)]
	for _, k := range []int{10, 50} {
		for _, e := range eSteps() {
			b.Run(fmt.Sprintf("K=%d/%s", k, e.name), func(b *testing.B) {
				opt := e.opt
				opt.Forget, opt.FirstInner, opt.Start = true, steps, pgsvi.StartRandom
				st := ctmStepper(b, c, k, opt)
				env := &pgsvi.Env{Rng: rand.New(rand.NewPCG(1, 1))}
				step := func() {
					if _, err := st.Step(context.Background(), env, batch, beta); err != nil {
						b.Fatal(err)
					}
				}
				step() // sets the start of the topics and allocates
				each, floor := inTurn(b, ctmFloor(docs, k, e.draws, &opt), step)
				each /= steps
				size := distinct(docs) * float64(k*e.draws)
				b.ReportMetric(each/size, "ns/word·topic·draw")
				b.ReportMetric(floor/size, "floor-ns/word·topic·draw")
				b.ReportMetric(each/floor, "floors/step")
			})
		}
	}
}

// BenchmarkCTMVisit times the visit of a document in a pass after the first pass. It measures a
// step of the model on 16 documents of typical length, including the M-step. E-steps without draws
// take as many proximal steps as they need. The floor is the floor of one proximal step.
// Allocations are for all 16 documents.
func BenchmarkCTMVisit(b *testing.B) {
	for _, c := range ctmCorpora(b) {
		n := len(c.typical.Docs)
		order := rand.New(rand.NewPCG(1, 1)).Perm(n)
		batches := slices.Collect(slices.Chunk(order, 16))
		for _, k := range []int{10, 50} {
			for _, e := range eSteps() {
				b.Run(fmt.Sprintf("%s/K=%d/%s", c.name, k, e.name), func(b *testing.B) {
					st := ctmStepper(b, c.typical, k, e.opt)
					env := &pgsvi.Env{Rng: rand.New(rand.NewPCG(1, 1))}
					i := 0
					step := func() {
						if _, err := st.Step(context.Background(), env, batches[i%len(batches)],
							math.Inf(1)); err != nil {
							b.Fatal(err)
						}
						i++
					}
					for range batches {
						step()
					}
					docs := c.typical.Subset(batches[0]).Docs
					each, floor := inTurn(b, ctmFloor(docs, k, e.draws, &e.opt), step)
					b.ReportMetric(each/floor, "floors/visit")
					b.ReportMetric(each/16e3, "us/visit")
				})
			}
		}
	}
}

// BenchmarkCTMInfer times CTMPosterior.Infer for documents of typical length, one after the other.
// The floor is the floor of one proximal step with its 32 points.
func BenchmarkCTMInfer(b *testing.B) {
	for _, c := range ctmCorpora(b) {
		docs := c.typical.Docs
		for _, k := range []int{10, 50} {
			for _, e := range eSteps() {
				if e.opt.Expectation == pgsvi.CTMQuasi {
					continue // the same for Infer as PG-SVI
				}
				b.Run(fmt.Sprintf("%s/K=%d/%s", c.name, k, e.name), func(b *testing.B) {
					m, err := pgsvi.NewCTM(c.typical, k, &e.opt)
					if err != nil {
						b.Fatal(err)
					}
					post, _, err := m.Fit(context.Background(),
						&pgsvi.Solver{MaxPasses: 1, EvalEvery: -1})
					if err != nil {
						b.Fatal(err)
					}
					draws := 1
					if e.draws > 1 {
						draws = 32
					}
					i := 0
					each, floor := inTurn(b, ctmFloor(docs[:1], k, draws, &e.opt), func() {
						if _, err := post.Infer(docs[i%len(docs)]); err != nil {
							b.Fatal(err)
						}
						i++
					})
					b.ReportMetric(each/floor, "floors/document")
					b.ReportMetric(1e9/each, "documents/s")
				})
			}
		}
	}
}

// BenchmarkCTMFit times five passes over a whole corpus with default options, by one worker and by
// two. The floor is the floor of one proximal step for every document.
func BenchmarkCTMFit(b *testing.B) {
	const k, draws, passes = 10, 4, 5
	for _, c := range ctmCorpora(b) {
		m, err := pgsvi.NewCTM(c.all, k, nil)
		if err != nil {
			b.Fatal(err)
		}
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/workers=%d", c.name, workers), func(b *testing.B) {
				s := &pgsvi.Solver{MaxPasses: passes, EvalEvery: -1, Workers: workers}
				each, floor := inTurn(b, ctmFloor(c.all.Docs, k, draws, &pgsvi.CTMOptions{}),
					func() {
						if _, _, err := m.Fit(context.Background(), s); err != nil {
							b.Fatal(err)
						}
					})
				b.ReportMetric(each/floor/passes, "floors/visit")
				b.ReportMetric(float64(len(c.all.Docs)*passes)*1e9/each, "visits/s")
			})
		}
	}
}
