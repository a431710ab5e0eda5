package predict

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestClassInterval holds intervals of the probability of a class against draws.
func TestClassInterval(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const draws, tail = 40000, 0.05
	for _, k := range []int{2, 3, 4, 10, 50} {
		for _, spread := range []float64{0.1, 1, 3} {
			m, v := make([]float64, k), make([]float64, k)
			for j := range m {
				m[j], v[j] = 2*rng.NormFloat64(), math.Pow(spread*rng.ExpFloat64(), 2)
			}
			class := rng.IntN(k)
			lo, hi := ClassInterval(m, v, class, tail)
			below, above := 0, 0
			for range draws {
				rest := 0.0
				score := m[class] + math.Sqrt(v[class])*rng.NormFloat64()
				for j := range m {
					if j != class {
						rest += math.Exp(m[j] + math.Sqrt(v[j])*rng.NormFloat64())
					}
				}
				switch p := 1 / (1 + rest*math.Exp(-score)); {
				case p < lo:
					below++
				case p > hi:
					above++
				}
			}
			// Draws have a standard deviation of 0.0011.
			near(t, "probability below the interval", float64(below)/draws, tail, 0.15)
			near(t, "probability above the interval", float64(above)/draws, tail, 0.15)

			// The other classes in another order, and the same class at another place.
			m2, v2 := make([]float64, k), make([]float64, k)
			to := rng.Perm(k)
			for j, i := range to {
				m2[i], v2[i] = m[j], v[j]
			}
			lo2, hi2 := ClassInterval(m2, v2, to[class], tail)
			near(t, "lower end of permuted classes", lo2, lo, 1e-12)
			near(t, "upper end of permuted classes", hi2, hi, 1e-12)
		}
	}
}

// TestClassIntervalEnds holds intervals against what is known: of two classes, of one score that is
// uncertain, and of scores that are all known.
func TestClassIntervalEnds(t *testing.T) {
	const z = 1.959963984540054
	lo, hi := ClassInterval([]float64{1, -0.5}, []float64{1, 3}, 0, 0.025)
	near(t, "lower end of two classes", lo, 1/(1+math.Exp(-1.5+2*z)), 1e-9)
	near(t, "upper end of two classes", hi, 1/(1+math.Exp(-1.5-2*z)), 1e-9)
	rest := math.Log(math.Exp(1) + math.Exp(-0.5))
	lo, hi = ClassInterval([]float64{0.3, 1, -0.5}, []float64{4, 0, 0}, 0, 0.025)
	near(t, "lower end of one score", lo, 1/(1+math.Exp(rest-0.3+2*z)), 1e-4)
	near(t, "upper end of one score", hi, 1/(1+math.Exp(rest-0.3-2*z)), 1e-4)
	lo, hi = ClassInterval([]float64{0.3, 1, -0.5}, []float64{0, 0, 0}, 0, 0.025)
	near(t, "lower end of known scores", lo, 1/(1+math.Exp(rest-0.3)), 1e-12)
	near(t, "upper end of known scores", hi, 1/(1+math.Exp(rest-0.3)), 1e-12)
	for _, s := range []float64{0, 1e-300, 1e300} {
		for _, c := range []float64{-1e300, 0, 1e300} {
			lo, hi = ClassInterval([]float64{c, 1, -c}, []float64{s, 1, s}, 0, 0.025)
			if !(0 <= lo && lo <= hi && hi <= 1) {
				t.Errorf("interval of score %v with variance %v is %v to %v", c, s, lo, hi)
			}
		}
	}
}

func BenchmarkClassInterval(b *testing.B) {
	m, v := make([]float64, 10), make([]float64, 10)
	for j := range v {
		m[j], v[j] = float64(j%3), 1
	}
	b.ReportAllocs()
	for b.Loop() {
		ClassInterval(m, v, 0, 0.05)
	}
}
