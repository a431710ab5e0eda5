package cubature

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// TestComposite checks that the weighted points of a design have the moments of N(0, I) up to degree
// three, and no odd products of up to four coordinates.
func TestComposite(t *testing.T) {
	for p := 1; p <= Most; p++ {
		z := Composite(p)
		var mass float64
		first, second := make([]float64, p), mat.NewSymDense(p, nil)
		for k, x := range z {
			// the weight is relative to a Gaussian density
			w := math.Exp(LogWeight(k, len(z)))
			mass += w
			floats.AddScaled(first, w, x)
			second.SymRankOne(second, w, mat.NewVecDense(p, x))
		}
		for i := range p {
			second.SetSym(i, i, second.At(i, i)-1)
		}
		if math.Abs(mass-1) > 1e-12 || floats.Norm(first, 2) > 1e-12 || mat.Norm(second, 2) > 1e-12 {
			t.Errorf("%d parameters, %d points: mass %v, mean %v, covariance off by %v", p, len(z), mass,
				first, mat.Formatted(second))
		}
		corners := z[1+2*p:]
		for a := range p {
			for b := range a {
				for c := range b {
					var three float64
					for _, x := range corners {
						three += x[a] * x[b] * x[c]
					}
					if p > 2 && math.Abs(three) > 1e-9 {
						t.Errorf("%d parameters: corners confound %d, %d and %d", p, a, b, c)
					}
				}
			}
		}
	}
}

// skewed is the log density of a product of log-gamma densities in rotated coordinates.
func skewed(theta []float64) float64 {
	sum := 0.0
	for i, t := range theta {
		u := t
		if i > 0 {
			u += 0.5 * theta[i-1]
		}
		sum += 6*u - math.Exp(u)*6
	}
	return sum
}

// TestLattice checks moments of skewed densities, whose mode is 0, with good and bad axes.
func TestLattice(t *testing.T) {
	for p := 1; p <= MostLattice; p++ {
		for _, size := range []float64{0.4, 0.05, 4} {
			axes := mat.NewDense(p, p, nil)
			for i := range p {
				axes.Set(i, i, size)
			}
			calls := 0
			r, err := Lattice(make([]float64, p), axes, true, func(theta []float64) (float64, error) {
				calls++
				return skewed(theta), nil
			})
			if err != nil {
				t.Fatal(err)
			}
			var mean, square float64
			for k, pr := range r.Prob {
				mean += pr * r.Theta[k][0]
				square += pr * r.Theta[k][0] * r.Theta[k][0]
			}
			sd := math.Sqrt(square - mean*mean)
			const wantMean, wantSD = -0.0855641, 0.4258043 // ψ(6) − log 6, √ψ′(6)
			t.Logf("%d parameters, size %v: %d points, mean %.5f, sd %.5f", p, size, calls, mean, sd)
			if !r.Complete || math.Abs(mean-wantMean) > 2e-3 || math.Abs(sd-wantSD) > 3e-3 {
				t.Errorf("%d parameters, size %v: complete %v, mean %v, sd %v", p, size, r.Complete, mean,
					sd)
			}
		}
	}
}

// TestNoDensity checks densities without a value, and flat densities.
func TestNoDensity(t *testing.T) {
	for p := 1; p <= Most; p++ {
		axes := mat.NewDense(p, p, nil)
		for i := range p {
			axes.Set(i, i, 1)
		}
		for name, f := range map[string]Density{
			"none": func([]float64) (float64, error) { return math.Inf(-1), nil },
			"NaN":  func([]float64) (float64, error) { return math.NaN(), nil },
			"flat": func([]float64) (float64, error) { return 0, nil },
			"mode alone": func(theta []float64) (float64, error) {
				return math.Log(1 - math.Min(floats.Norm(theta, 2)*1e9, 1)), nil
			},
		} {
			r, err := Design(make([]float64, p), axes, f)
			if p <= MostLattice {
				r, err = Lattice(make([]float64, p), axes, false, f)
			}
			if err != nil {
				t.Fatal(err)
			}
			has := name == "flat" || name == "mode alone"
			if (r.Prob != nil) != has || has && math.Abs(floats.Sum(r.Prob)-1) > 1e-9 ||
				len(r.Log) > 1000 {
				t.Errorf("%d parameters, %s: %d points, probabilities %v", p, name, len(r.Log), r.Prob)
			}
		}
	}
}
