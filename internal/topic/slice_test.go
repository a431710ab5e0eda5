package topic

import (
	"math"
	"math/rand/v2"
	"testing"
)

// drawFitted returns topics from Dirichlet(concentration, …) and a prior of logits with standard
// deviations of about sd.
func drawFitted(rng *rand.Rand, o Options, concentration, sd float64) *Fitted {
	k := o.K
	f := &Fitted{Options: o, Beta: make([]float64, k*o.Terms)}
	for i, l := range drawTopics(rng, k, o.Terms, concentration) {
		f.Beta[i%o.Terms*k+i/o.Terms] = math.Exp(l)
	}
	mu, sigma, a := make([]float64, k), make([]float64, k*k), make([]float64, k*k)
	for i := range a {
		a[i] = sd * math.Sqrt(0.5/float64(k)) * rng.NormFloat64()
	}
	for i := range k {
		mu[i] = 0.5 * rng.NormFloat64()
		sigma[i*k+i] = sd * sd / 2
		for j := range k {
			for c := range k {
				sigma[i*k+j] += a[i*k+c] * a[j*k+c]
			}
		}
	}
	f.set(mu, sigma)
	return f
}

// TestSliceCover draws documents of 1 to 200 words from the model: intervals must hold the topic
// proportions as often as they state, whatever the approximation of the fit.
func TestSliceCover(t *testing.T) {
	docs := 300
	if testing.Short() {
		docs = 24
	}
	for _, o := range []Options{{}, {Expectation: MeanField}} {
		for _, sd := range []float64{1, 3} {
			var in, all float64
			rng := rand.New(rand.NewPCG(22, uint64(o.Expectation)+uint64(10*sd)))
			for n := range docs {
				o.K, o.Terms = []int{2, 5, 20}[n%3], 100
				f := drawFitted(rng, o, []float64{0.05, 0.5, 5}[n/3%3], sd)
				logs := make([]float64, len(f.Beta))
				for i, b := range f.Beta {
					logs[i%o.K*o.Terms+i/o.K] = math.Log(b)
				}
				theta := f.Prior().Rand(nil, rng)
				d := drawDoc(rng, logs, theta, 1+rng.IntN(200))
				_, lo, hi, err := f.Proportions(d, 0.9, rng)
				if err != nil {
					t.Fatal(err)
				}
				for j, x := range theta {
					all += 1 / float64(o.K) // each document counts as much
					if lo[j] <= x && x <= hi[j] {
						in += 1 / float64(o.K)
					}
				}
			}
			t.Logf("expectation %v, sd %v: %.3f", o.Expectation, sd, in/all)
			margin := 0.03
			if testing.Short() {
				margin = 0.08
			}
			if math.Abs(in/all-0.9) > margin {
				t.Errorf("expectation %v, sd %v: intervals hold %.3f, want 0.9", o.Expectation, sd,
					in/all)
			}
		}
	}
}

// TestSliceExact compares means and intervals of two topics with sums over a grid of z_0 − z_1.
// Under the wide prior, intervals of q are wrong by more than the margin.
func TestSliceExact(t *testing.T) {
	for _, variance := range []float64{1, 9} {
		checkSlice(t, variance)
	}
}

// checkSlice is TestSliceExact for the prior N(0, 2·variance) of z_0 − z_1.
func checkSlice(t *testing.T, variance float64) {
	f := &Fitted{Options: Options{K: 2, Terms: 3}, Beta: []float64{.6, .1, .3, .3, .1, .6}}
	f.set([]float64{0, 0}, []float64{variance, 0, 0, variance})
	for _, d := range []Doc{{[]int{0, 1, 2}, []float64{5, 2, 1}}, {[]int{0}, []float64{40}},
		{[]int{0, 2}, []float64{1, 1}}} {
		mean, lo, hi, err := f.Proportions(d, 0.9, rand.New(rand.NewPCG(1, 2)))
		if err != nil {
			t.Fatal(err)
		}
		var all, sum, below, above float64
		for u := -40.0; u < 40; u += 1e-3 {
			x := 1 / (1 + math.Exp(-u))
			p := math.Exp(-u * u / (4 * variance))
			for i, v := range d.Words {
				p *= math.Pow(x*f.Beta[2*v]+(1-x)*f.Beta[2*v+1], d.Counts[i])
			}
			all += p
			sum += p * x
			if x < lo[0] {
				below += p
			}
			if x > hi[0] {
				above += p
			}
		}
		near(t, "mean", mean[0], sum/all, 0.015)
		near(t, "probability below the interval", below/all, 0.05, 0.015)
		near(t, "probability above the interval", above/all, 0.05, 0.015)
	}
}

// TestSliceExtreme checks that intervals are ordered numbers from 0 to 1 for every prior and
// document.
func TestSliceExtreme(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, sd := range []float64{1e-4, 1, 100} {
		for _, count := range []float64{1e-30, 1, 1e6, 1e20, 1e90} {
			f := drawFitted(rng, Options{K: 3, Terms: 6}, 0.3, sd)
			f.Beta[rng.IntN(len(f.Beta))] = 1e-300
			d := Doc{[]int{0, 2, 3}, []float64{count, 1, 2}}
			mean, lo, hi, err := f.Proportions(d, 0.9, rng)
			if err != nil {
				t.Logf("sd %v, count %v: %v", sd, count, err)
				continue
			}
			for j, m := range mean {
				if !(0 <= lo[j] && lo[j] <= hi[j] && hi[j] <= 1 && 0 <= m && m <= 1) {
					t.Errorf("sd %v, count %v: mean %v, from %v to %v", sd, count, mean, lo, hi)
				}
			}
		}
	}
}
