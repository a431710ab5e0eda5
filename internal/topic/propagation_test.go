package topic

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/expfam"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mathext"
)

// drawDirichlet returns a draw from the symmetric Dirichlet of k parts.
func drawDirichlet(rng *rand.Rand, k int, alpha float64) []float64 {
	x, all := make([]float64, k), make([]float64, k)
	floats.AddConst(alpha, all)
	expfam.DirichletFamily{K: k}.Rand(x, make([]float64, k), all, rng)
	return x
}

func draw(rng *rand.Rand, p []float64) int {
	u := rng.Float64()
	for i, x := range p {
		if u -= x; u < 0 {
			return i
		}
	}
	return floats.MaxIdx(p)
}

// drawTopics returns log β of topics from a symmetric Dirichlet.
func drawTopics(rng *rand.Rand, k, terms int, concentration float64) []float64 {
	var logs []float64
	for range k {
		for _, b := range drawDirichlet(rng, terms, concentration) {
			logs = append(logs, math.Log(max(b, 1e-12)))
		}
	}
	return logs
}

// drawDoc returns a document of n tokens from topics with the given shares.
func drawDoc(rng *rand.Rand, logs, theta []float64, n int) (d Doc) {
	terms := len(logs) / len(theta)
	count, b := make([]float64, terms), make([]float64, terms)
	for range n {
		k := draw(rng, theta)
		for v := range b {
			b[v] = math.Exp(logs[k*terms+v])
		}
		count[draw(rng, b)]++
	}
	for v, c := range count {
		if c > 0 {
			d.Words, d.Counts = append(d.Words, v), append(d.Counts, c)
		}
	}
	return d
}

// exact is the posterior of the share of topic 0 of two: a mixture of Beta(α + n, α + N − n), one
// for each number n of tokens of that topic.
type exact struct {
	alpha  float64
	weight []float64
}

func exactOf(d Doc, logs []float64, alpha float64) exact {
	terms, ways := len(logs)/2, []float64{1}
	for i, v := range d.Words {
		p := 1 / (1 + math.Exp(logs[terms+v]-logs[v]))
		for range int(d.Counts[i]) {
			next := make([]float64, len(ways)+1)
			for n, w := range ways {
				next[n] += w * (1 - p)
				next[n+1] += w * p
			}
			ways = next
		}
	}
	tokens := float64(len(ways) - 1)
	for n, w := range ways {
		a, _ := math.Lgamma(alpha + float64(n))
		b, _ := math.Lgamma(alpha + tokens - float64(n))
		ways[n] = math.Log(w) + a + b
	}
	all := floats.LogSumExp(ways)
	for n, l := range ways {
		ways[n] = math.Exp(l - all)
	}
	return exact{alpha, ways}
}

// parts calls do with the parameters of each Beta distribution and its weight.
func (e exact) parts(do func(a, b, weight float64)) {
	for n, w := range e.weight {
		do(e.alpha+float64(n), e.alpha+float64(len(e.weight)-1-n), w)
	}
}

func (e exact) moments() (mean, sd float64) {
	var square float64
	e.parts(func(a, b, w float64) {
		mean += w * a / (a + b)
		square += w * a * (a + 1) / ((a + b) * (a + b + 1))
	})
	return mean, math.Sqrt(square - mean*mean)
}

func (e exact) below(x float64) (p float64) {
	e.parts(func(a, b, w float64) { p += w * mathext.RegIncBeta(a, b, x) })
	return p
}

// TestPropagateExact compares γ of documents of two topics with the exact posterior. Mean field
// fails: its means are off by up to 0.33, and its standard deviations are 0.1 to 0.7 of the exact.
func TestPropagateExact(t *testing.T) {
	const terms, docs, alpha = 20, 100, 0.2
	rng := rand.New(rand.NewPCG(1, 2))
	for _, spread := range []float64{0.3, 1, 2} {
		for _, tokens := range []int{3, 10, 30, 100} {
			var mean, worst, sd float64
			for range docs {
				logs := make([]float64, 2*terms)
				for i := range logs {
					logs[i] = spread * rng.NormFloat64()
				}
				for k := range 2 {
					topic := logs[k*terms : (k+1)*terms]
					floats.AddConst(-floats.LogSumExp(topic), topic)
				}
				x := rng.Float64()
				d := drawDoc(rng, logs, []float64{x, 1 - x}, tokens)
				gamma := make([]float64, 2)
				Dirichlet{K: 2, Terms: terms, DocPrior: alpha}.Propagate(gamma, logs, d)
				sum := floats.Sum(gamma)
				m := gamma[0] / sum
				em, es := exactOf(d, logs, alpha).moments()
				mean += math.Abs(m-em) / docs
				worst = max(worst, math.Abs(m-em))
				sd += math.Sqrt(m*(1-m)/(sum+1)) / es / docs
			}
			t.Logf("spread %v, %d tokens: mean off by %.4f, worst %.3f, sd ratio %.3f", spread,
				tokens, mean, worst, sd)
			if !(mean < 0.02 && worst < 0.12 && sd > 0.94 && sd < 1.02) {
				t.Errorf("spread %v, %d tokens: mean off by %.4f, worst %.3f, sd ratio %.3f",
					spread, tokens, mean, worst, sd)
			}
		}
	}
}

// TestPropagateKnown checks documents whose posterior is a Dirichlet.
func TestPropagateKnown(t *testing.T) {
	logs := []float64{math.Log(0.5), math.Log(0.5), -800, math.Log(0.5), -800, math.Log(0.5)}
	l := Dirichlet{K: 2, Terms: 3, DocPrior: 0.2}
	for _, c := range []struct {
		d    Doc
		want []float64
	}{
		{Doc{}, []float64{0.2, 0.2}},
		{Doc{[]int{0}, []float64{10}}, []float64{0.2, 0.2}},
		{Doc{[]int{0}, []float64{1e50}}, []float64{0.2, 0.2}},
		{Doc{[]int{1, 2}, []float64{7, 3}}, []float64{7.2, 3.2}},
		{Doc{[]int{0, 1}, []float64{5, 1e50}}, []float64{1e50, 0.2}},
		{Doc{[]int{0, 1}, []float64{0.25, 0.5}}, []float64{0.7, 0.2}},
	} {
		gamma := make([]float64, 2)
		l.Propagate(gamma, logs, c.d)
		if !floats.EqualFunc(gamma, c.want, func(a, b float64) bool {
			return math.Abs(a-b) <= 1e-9*b
		}) {
			t.Errorf("γ of %v is %v, want %v", c.d, gamma, c.want)
		}
	}
	one := make([]float64, 1)
	Dirichlet{K: 1, Terms: 2, DocPrior: 0.2}.Propagate(one, []float64{-1, -2},
		Doc{[]int{0, 1}, []float64{3, 4}})
	if math.Abs(one[0]-7.2) > 1e-9 {
		t.Errorf("γ of a single topic is %v, want 7.2", one)
	}
}

// TestPropagateFallback checks documents whose sites do not settle: γ has the exact moments of two
// topics. The sites alone are off by up to 0.8.
func TestPropagateFallback(t *testing.T) {
	const terms, alpha = 20, 0.01
	rng := rand.New(rand.NewPCG(3, 4))
	failed := 0
	for range 200 {
		logs := drawTopics(rng, 2, terms, 2)
		d := drawDoc(rng, logs, []float64{0.5, 0.5}, 3+rng.IntN(60))
		p := new(propagation)
		p.set(d, logs, 2, alpha)
		if p.settle() {
			continue
		}
		failed++
		gamma := make([]float64, 2)
		Dirichlet{K: 2, Terms: terms, DocPrior: alpha}.Propagate(gamma, logs, d)
		sum := floats.Sum(gamma)
		m := gamma[0] / sum
		sd := math.Sqrt(m * (1 - m) / (sum + 1))
		wantMean, wantSD := exactOf(d, logs, alpha).moments()
		if math.Abs(m-wantMean) > 0.005 || math.Abs(sd/wantSD-1) > 0.02 {
			t.Errorf("%v: %.4f ± %.4f, want %.4f ± %.4f", d, m, sd, wantMean, wantSD)
		}
	}
	if failed < 20 {
		t.Errorf("only %d documents do not settle", failed)
	}
}

// TestIntervalsExact compares intervals with the exact distribution function of two topics.
func TestIntervalsExact(t *testing.T) {
	const terms = 20
	rng := rand.New(rand.NewPCG(5, 6))
	for _, alpha := range []float64{0.05, 0.2, 1, 30} {
		for _, tokens := range []int{1, 10, 100} {
			for range 20 {
				logs := drawTopics(rng, 2, terms, math.Exp(rng.NormFloat64()))
				d := drawDoc(rng, logs, drawDirichlet(rng, 2, alpha), tokens)
				e := exactOf(d, logs, alpha)
				l := Dirichlet{K: 2, Terms: terms, DocPrior: alpha}
				lo, hi := l.Intervals(logs, d, 0.9)
				// Near 1 the numbers are too coarse, but topic 1 has the same interval near 0.
				for _, c := range [][2]float64{{lo[0], 0.05}, {hi[0], 0.95}, {1 - hi[1], 0.05},
					{1 - lo[1], 0.95}} {
					if x := c[0]; 1-x > 1e-9 && x > 1e-9 && math.Abs(e.below(x)-c[1]) > 0.003 {
						t.Errorf("α %v, %v: %v has %.4f below, want %.2f", alpha, d, x, e.below(x),
							c[1])
					}
				}
			}
		}
	}
}

// TestIntervalsExtreme checks that intervals are ordered numbers from 0 to 1 for every prior and
// document.
func TestIntervalsExtreme(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, alpha := range []float64{1e-6, 1e-3, 0.2, 50, 1e6} {
		for _, count := range []float64{1e-30, 0.5, 1, 40, 1e6, 1e20, 1e99} {
			for range 5 {
				logs := drawTopics(rng, 3, 6, 0.3)
				logs[rng.IntN(len(logs))] = -900
				d := Doc{[]int{0, 2, 3}, []float64{count, 1, 2}}
				l := Dirichlet{K: 3, Terms: 6, DocPrior: alpha}
				gamma := make([]float64, 3)
				l.Propagate(gamma, logs, d)
				lo, hi := l.Intervals(logs, d, 0.9)
				for k, g := range gamma {
					if !(g > 0 && g <= math.MaxFloat64) ||
						!(0 <= lo[k] && lo[k] <= hi[k] && hi[k] <= 1) {
						t.Errorf("α %v, count %v: γ %v, from %v to %v", alpha, count, gamma, lo, hi)
					}
				}
			}
		}
	}
	if lo, hi := (Dirichlet{K: 1, Terms: 2, DocPrior: 1}).Intervals([]float64{-1, -1}, Doc{},
		0.9); lo[0] != 1 || hi[0] != 1 {
		t.Errorf("the share of a single topic is from %v to %v", lo, hi)
	}
}

// TestIntervalsCover draws documents of 1 to 200 words from the model: intervals must hold the
// shares as often as they state.
func TestIntervalsCover(t *testing.T) {
	docs := 1500
	if testing.Short() {
		docs = 150
	}
	const terms = 100
	for _, k := range []int{2, 5, 20} {
		for _, alpha := range []float64{0.05, 0.2, 1} {
			if alpha*float64(k) < 0.2 { // the largest share is 1 up to rounding
				continue
			}
			var in, all float64
			for _, concentration := range []float64{0.05, 0.5, 5} {
				rng := rand.New(rand.NewPCG(9, uint64(k)))
				for range docs / 3 {
					logs := drawTopics(rng, k, terms, concentration)
					theta := drawDirichlet(rng, k, alpha)
					d := drawDoc(rng, logs, theta, 1+rng.IntN(200))
					lo, hi := Dirichlet{K: k, Terms: terms, DocPrior: alpha}.Intervals(logs, d, 0.9)
					for j, x := range theta {
						all++
						if lo[j] <= x && x <= hi[j] {
							in++
						}
					}
				}
			}
			t.Logf("%d topics, DocPrior %v: %.3f of %v", k, alpha, in/all, all)
			margin := 0.03
			if testing.Short() {
				margin = 0.05
			}
			if math.Abs(in/all-0.9) > margin {
				t.Errorf("%d topics, DocPrior %v: intervals hold %.3f of the shares, want 0.9", k,
					alpha, in/all)
			}
		}
	}
}

// gibbs calls do with the parameters of the Dirichlet posterior given the topics of all tokens, for
// each of some draws.
func gibbs(rng *rand.Rand, d Doc, logs []float64, k int, alpha float64, draws int,
	do func(gamma []float64)) {
	terms := len(logs) / k
	var tokens, topic []int
	gamma, p := make([]float64, k), make([]float64, k)
	floats.AddConst(alpha, gamma)
	for i, v := range d.Words {
		for range int(d.Counts[i]) {
			z := rng.IntN(k)
			tokens, topic = append(tokens, v), append(topic, z)
			gamma[z]++
		}
	}
	for n := -draws / 10; n < draws; n++ {
		for i, v := range tokens {
			gamma[topic[i]]--
			for j, g := range gamma {
				p[j] = g * math.Exp(logs[j*terms+v])
			}
			floats.Scale(1/floats.Sum(p), p)
			topic[i] = draw(rng, p)
			gamma[topic[i]]++
		}
		if n >= 0 {
			do(gamma)
		}
	}
}

// TestPropagateGibbs compares documents of five topics with long runs of Gibbs sampling.
func TestPropagateGibbs(t *testing.T) {
	const k, terms, alpha = 5, 60, 0.2
	docs, draws := 12, 20000
	if testing.Short() {
		docs, draws = 3, 8000
	}
	rng := rand.New(rand.NewPCG(11, 12))
	for range docs {
		logs := drawTopics(rng, k, terms, 0.5)
		d := drawDoc(rng, logs, drawDirichlet(rng, k, alpha), 5+rng.IntN(60))
		l := Dirichlet{K: k, Terms: terms, DocPrior: alpha}
		gamma := make([]float64, k)
		l.Propagate(gamma, logs, d)
		lo, hi := l.Intervals(logs, d, 0.9)
		mean, inside := make([]float64, k), make([]float64, k)
		sum := alpha*k + d.Tokens()
		cache := map[[2]float64]float64{}
		below := func(a, x float64) float64 {
			p, ok := cache[[2]float64{a, x}]
			if !ok {
				p = mathext.RegIncBeta(a, sum-a, x)
				cache[[2]float64{a, x}] = p
			}
			return p
		}
		gibbs(rng, d, logs, k, alpha, draws, func(g []float64) {
			floats.AddScaled(mean, 1/sum/float64(draws), g)
			for j, a := range g {
				inside[j] += (below(a, hi[j]) - below(a, lo[j])) / float64(draws)
			}
		})
		for j, m := range mean {
			if math.Abs(gamma[j]/floats.Sum(gamma)-m) > 0.05 || math.Abs(inside[j]-0.9) > 0.035 {
				t.Errorf("topic %d of %v: mean %.3f, by Gibbs sampling %.3f; %.3f in the interval",
					j, d, gamma[j]/floats.Sum(gamma), m, inside[j])
			}
		}
	}
}

// TestPropagateAgain checks that a document has the same bits whatever was inferred before it.
func TestPropagateAgain(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	logs := drawTopics(rng, 4, 30, 0.5)
	l := Dirichlet{K: 4, Terms: 30, DocPrior: 0.2}
	infer := func(n int) []float64 {
		d := drawDoc(rand.New(rand.NewPCG(1, uint64(n))), logs, []float64{0.4, 0.3, 0.2, 0.1}, n)
		gamma := make([]float64, 4)
		l.Propagate(gamma, logs, d)
		lo, hi := l.Intervals(logs, d, 0.8)
		return slices.Concat(gamma, lo, hi)
	}
	want := infer(20)
	for _, n := range []int{500, 1, 0, 60} {
		infer(n)
		if got := infer(20); !slices.Equal(got, want) {
			t.Fatalf("after a document of %d tokens: %v, want %v", n, got, want)
		}
	}
}
