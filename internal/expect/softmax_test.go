package expect

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/pgsvi/pgsvi/internal/cputime"
	"github.com/pgsvi/pgsvi/internal/testkit"

	"gonum.org/v1/gonum/floats"
)

// softmaxRandom returns means and variances of k scores with standard deviations about sd.
func softmaxRandom(rng *rand.Rand, k int, sd float64) (m, v []float64) {
	m, v = make([]float64, k), make([]float64, k)
	for i := range m {
		m[i] = 3 * rng.NormFloat64()
		x := sd * math.Exp(0.3*rng.NormFloat64())
		v[i] = x * x
	}
	return m, v
}

func mostApart(x, y []float64) (d float64) {
	for i := range x {
		d = max(d, math.Abs(x[i]-y[i]))
	}
	return d
}

func TestSoftmaxReference(t *testing.T) {
	dir := os.Getenv("PGSVI_DATA")
	if dir == "" {
		t.Skip("PGSVI_DATA is not set")
	}
	text, err := os.ReadFile(filepath.Join(dir, "../truth/softmax_independent.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		M, V []float64
		E    float64   `json:"E_logsumexp"`
		Pi   []float64 `json:"E_softmax"`
		D    []float64 `json:"E_p_1mp"`
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		pi, d := make([]float64, len(c.M)), make([]float64, len(c.M))
		lse, part := SoftmaxExpect(c.M, c.V, pi, d)
		worst := max(math.Abs(lse-c.E), math.Abs(part), mostApart(pi, c.Pi), mostApart(d, c.D))
		if !(worst < 1e-9) {
			t.Errorf("case %d, K = %d: off by %g", i, len(c.M), worst)
		}
	}
}

// TestSoftmaxTwo checks that two classes agree with the logistic function of the difference.
func TestSoftmaxTwo(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		m, v := softmaxRandom(rng, 2, math.Exp(rng.Float64()*7-5))
		pi, d := make([]float64, 2), make([]float64, 2)
		lse, _ := SoftmaxExpect(m, v, pi, d)
		a, b := 0, 1
		if m[1] > m[0] {
			a, b = 1, 0
		}
		f0, f1, f2, scale := SoftplusExpect(m[a]-m[b], v[0]+v[1])
		c := math.Exp(scale)
		worst := max(math.Abs(lse-m[a]-c*f0), math.Abs(pi[b]-c*f1), math.Abs(d[a]-c*f2),
			math.Abs(d[b]-c*f2))
		if !(worst < 1e-9*(1+math.Sqrt(v[0]+v[1]))) {
			t.Errorf("m %v, v %v: off by %g", m, v, worst)
		}
	}
}

// TestSoftmaxThree compares three classes with a product of Gauss-Hermite rules.
func TestSoftmaxThree(t *testing.T) {
	rng, rule := rand.New(rand.NewPCG(3, 4)), Hermite(48)
	pi, cross, want := make([]float64, 3), make([]float64, 9), make([]float64, 9)
	for range testkit.Longer(20, 6) {
		m, v := softmaxRandom(rng, 3, 0.7*rng.Float64())
		lse, _ := SoftmaxCross(m, v, pi, cross)
		e := 0.0
		clear(want)
		for i, x := range rule.X {
			for j, y := range rule.X {
				for k, z := range rule.X {
					w := rule.W[i] * rule.W[j] * rule.W[k]
					p := [3]float64{x, y, z}
					for a, z := range p {
						p[a] = math.Exp(m[a] + math.Sqrt(v[a])*z)
					}
					sum := p[0] + p[1] + p[2]
					e += w * math.Log(sum)
					for a := range p {
						want[4*a] += w * p[a] / sum
						for b := range p {
							want[3*a+b] -= w * p[a] * p[b] / (sum * sum)
						}
					}
				}
			}
		}
		for a := range 3 {
			for b := range 3 {
				if a != b {
					want[3*a+b] = -want[3*a+b]
				}
			}
		}
		if worst := max(math.Abs(lse-e), mostApart(cross, want)); !(worst < 1e-9) {
			t.Errorf("m %v, v %v: off by %g", m, v, worst)
		}
	}
}

// TestSoftmaxFiner compares results with finer steps, for 2 to 50 classes.
func TestSoftmaxFiner(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, sd := range []float64{0.005, 0.02, 0.05, 0.1, 0.3, 0.45, 0.5, 0.7, 1, 1.9, 3, 5, 10} {
		var most [4]float64
		bounds := 0.0
		for range 20 {
			k := 2 + rng.IntN(49)
			m, v := softmaxRandom(rng, k, sd)
			pi, d := make([]float64, k), make([]float64, k)
			pj, e := make([]float64, k), make([]float64, k)
			var w softmaxWork
			a, bound, part := w.expect(softmaxAt(softmaxFinest), m, v, pi, d)
			b, _, _ := w.expect(softmaxAt(0), m, v, pj, e)
			if !(math.Abs(a-b) <= bound) {
				t.Errorf("K = %d, sd %v: off by %g, bound %g", k, sd, a-b, bound)
			}
			bounds = max(bounds, bound)
			off := [4]float64{math.Abs(a - b), mostApart(pi, pj), mostApart(d, e), math.Abs(part)}
			for i, x := range off {
				most[i] = max(most[i], x)
			}
		}
		t.Logf("sd %v: %.2g, bound %.2g", sd, most, bounds)
		if !(max(most[0], most[1], most[2], most[3]) < 1e-9) {
			t.Errorf("sd %v: log Σ exp, π, π(1−π), Σπ are off by %.2g", sd, most)
		}
	}
}

// TestSoftmaxWithin checks that the results are within the bound at every tolerance.
func TestSoftmaxWithin(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, tol := range []float64{1e-3, 1e-4, 1e-6, 1e-8, 1e-11} {
		var most, bounds float64
		for range testkit.Longer(1000, 300) {
			k := 2 + rng.IntN(12)
			m, v := softmaxRandom(rng, k, math.Exp(rng.Float64()*9-6))
			for i := range m {
				m[i] *= rng.Float64()
				v[i] *= math.Exp(2 * rng.NormFloat64())
			}
			pi, d := make([]float64, k), make([]float64, k)
			pj, e := make([]float64, k), make([]float64, k)
			a, bound := SoftmaxWithin(tol, m, v, pi, d)
			b, least := SoftmaxWithin(0, m, v, pj, e)
			if !(math.Abs(a-b) <= bound+least) {
				t.Errorf("tol %v, m %v, v %v: off by %g, bound %g", tol, m, v, a-b, bound)
			}
			most = max(most, math.Abs(a-b), mostApart(pi, pj), mostApart(d, e))
			bounds = max(bounds, bound)
		}
		t.Logf("tol %v: off by %.2g, bound %.2g", tol, most, bounds)
		if !(most < 20*tol && bounds < 400*tol) {
			t.Errorf("tol %v: off by %g, bound %g", tol, most, bounds)
		}
	}
}

// TestSoftmaxLimits checks a point mass, scores far apart, and variances close to the largest
// float64.
func TestSoftmaxLimits(t *testing.T) {
	for _, c := range [][2][]float64{
		{{1, 2, 3}, {0, 0, 0}},
		{{1e6, -1e6, 0}, {0, 1, 2}},
		{{1e300, -1e300, 0}, {1, 1, 1}},
		{{-1e300, -1e300}, {1e-300, 0}},
		{{0, 0, 0}, {1e4, 1e-8, 1}},
		{{0, 1, 0}, {1e300, 1e300, 1}},
	} {
		m, v := c[0], c[1]
		pi, cross := make([]float64, len(m)), make([]float64, len(m)*len(m))
		lse, part := SoftmaxCross(m, v, pi, cross)
		for _, x := range append(append([]float64{lse, part}, pi...), cross...) {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				t.Fatalf("%v: %v %v %v %v", c, lse, part, pi, cross)
			}
		}
		if v[0] < 1e5 && !(math.Abs(part) < 1e-9) {
			t.Errorf("%v: Σπ − 1 = %g", c, part)
		}
	}
	pi, d := make([]float64, 3), make([]float64, 3)
	lse, _ := SoftmaxExpect([]float64{1, 2, 3}, []float64{0, 0, 0}, pi, d)
	sum := math.Exp(1) + math.Exp(2) + math.Exp(3)
	p := math.E / sum
	if !(max(math.Abs(lse-math.Log(sum)), math.Abs(pi[0]-p), math.Abs(d[0]-p*(1-p))) < 1e-10) {
		t.Errorf("a point: %v %v %v", lse, pi, d)
	}
}

// TestSoftmaxEnds checks that every call stops after a limited number of nodes, even for extreme
// scores, and that its bound is a number.
func TestSoftmaxEnds(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	var w softmaxWork
	for i := range testkit.Longer(150, testkit.Shorter(60, 15)) {
		k := 2 + rng.IntN(40)
		m, v := make([]float64, k), make([]float64, k)
		pi, d := make([]float64, k), make([]float64, k)
		same := math.Pow(10, 16*rng.Float64()-8)
		for c := range m {
			sd := same
			if i%2 == 0 {
				sd = math.Pow(10, 16*rng.Float64()-8)
			}
			m[c], v[c] = 3*sd*rng.NormFloat64(), sd*sd
			if i%3 == 0 {
				m[c] = math.Pow(10, 600*rng.Float64()-300) * float64(2*rng.IntN(2)-1)
			}
			if i%15 == 0 {
				m[c] = math.Copysign(1e300, m[c])
			}
		}
		tol := math.Pow(10, -13+11*rng.Float64())
		lse, bound, part := w.expect(softmaxAt(tol), m, v, pi, d)
		if most := max(softmaxMost/k, 64) + 8; w.nodes < 8 || w.nodes > most {
			t.Errorf("tol %g, m %v, v %v: %d nodes, at most %d", tol, m, v, w.nodes, most)
		}
		if !(math.Abs(lse) <= math.MaxFloat64) || !(bound > 0 && bound <= math.MaxFloat64) ||
			math.IsNaN(part) {
			t.Errorf("tol %g, m %v, v %v: %v, bound %v, Σπ − 1 = %v", tol, m, v, lse, bound, part)
		}
		for c := range pi {
			if !(pi[c] >= 0 && d[c] >= 0 && pi[c] < 2 && d[c] < 2) {
				t.Errorf("tol %g, m %v, v %v: π = %v, π(1−π) = %v", tol, m, v, pi, d)
				break
			}
		}
	}
}

func TestSoftmaxAllocs(t *testing.T) {
	if testkit.Race {
		t.Skip("the race detector allocates")
	}
	m, v := softmaxRandom(rand.New(rand.NewPCG(7, 8)), 10, 1)
	pi, d, cross := make([]float64, 10), make([]float64, 10), make([]float64, 100)
	if n := testing.AllocsPerRun(10, func() {
		SoftmaxExpect(m, v, pi, d)
		SoftmaxCross(m, v, pi, cross)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkSoftmaxExpect(b *testing.B) {
	for _, tol := range []float64{1e-11, 1e-6} {
		for _, k := range []int{3, 10, 50} {
			for _, sd := range []float64{0.05, 0.3, 1, 3} {
				b.Run(fmt.Sprintf("tol=%v/K=%d/sd=%v", tol, k, sd), func(b *testing.B) {
					rng := rand.New(rand.NewPCG(1, 2))
					m, v := make([]float64, k), make([]float64, k)
					pi, d := make([]float64, k), make([]float64, k)
					for i := range m {
						m[i], v[i] = 2*rng.NormFloat64(), sd*sd
					}
					b.ReportAllocs()
					start := cputime.Seconds()
					for b.Loop() {
						SoftmaxWithin(tol, m, v, pi, d)
					}
					b.ReportMetric(1e6*(cputime.Seconds()-start)/float64(b.N), "cpu-µs/op")
				})
			}
		}
	}
}

// TestSoftmaxFar checks scores whose standard deviations range from 1 to 1e6. Equal steps for the
// widest score would miss the others. With such scores, softmax picks the largest.
func TestSoftmaxFar(t *testing.T) {
	const wide = 1e6
	phi := 0.5 * math.Erfc(-1/math.Sqrt2) // Φ(1)
	density := math.Exp(-0.5) / math.Sqrt(2*math.Pi)
	for _, c := range []struct {
		m, v        []float64
		first, most float64 // P(the first is the largest) and E max
	}{
		{[]float64{wide, 0}, []float64{1, wide * wide}, phi, wide*phi + wide*density},
		{[]float64{0, 0}, []float64{wide * wide, 1}, 0.5, wide / math.Sqrt(2*math.Pi)},
		{[]float64{wide, 0, 0}, []float64{1, wide * wide, wide * wide}, phi * phi, math.NaN()},
	} {
		pi, d2 := make([]float64, len(c.m)), make([]float64, len(c.m))
		lse, bound := SoftmaxWithin(1e-11, c.m, c.v, pi, d2)
		sum := 0.0
		for _, p := range pi {
			sum += p
		}
		if !(math.Abs(pi[0]-c.first) < 1e-4) || !(math.Abs(sum-1) < 1e-9) {
			t.Errorf("%v, %v: probabilities %v, want %v of the first", c.m, c.v, pi, c.first)
		}
		if d2[0] < 0 || d2[0] > pi[0]*(1-pi[0]) {
			t.Errorf("%v, %v: E π(1−π) is %v", c.m, c.v, d2)
		}
		// E log Σ exp is between E max and E max + log 2.
		if !math.IsNaN(c.most) && !(lse-c.most > -bound && lse-c.most < bound+math.Ln2) ||
			!(bound < 1e-4*wide) {
			t.Errorf("%v, %v: %v ± %v, want %v", c.m, c.v, lse, bound, c.most)
		}
	}
}

// TestSoftmaxCrossPoint checks that the expectations at a point mass are products of π,
// independent of earlier calls.
func TestSoftmaxCrossPoint(t *testing.T) {
	m := []float64{0.3, -1, 2, 0, 0.5}
	pi, cross := make([]float64, 5), make([]float64, 25)
	lse := floats.LogSumExp(m)
	for _, before := range []int{2, 4, 9} {
		v := make([]float64, before)
		for i := range v {
			v[i] = 1
		}
		SoftmaxCross(make([]float64, before), v, nil, make([]float64, before*before))
		SoftmaxCross(m, make([]float64, 5), pi, cross)
		for c := range m {
			for e := range m {
				want := math.Exp(m[c] + m[e] - 2*lse)
				if c == e {
					want = math.Exp(m[c]-lse) - want
				}
				if got := cross[c*5+e]; !(math.Abs(got-want) < 1e-15) {
					t.Errorf("after %d classes: element %d, %d is %v, want %v", before, c, e, got,
						want)
				}
			}
		}
	}
}
