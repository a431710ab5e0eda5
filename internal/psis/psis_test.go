package psis

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/optimize"
)

// logData returns the sorted logarithms of n draws of the generalized Pareto distribution, in
// units of the largest draw.
func logData(n int, k, scale float64, rng *rand.Rand) (x []float64, unit float64) {
	x = make([]float64, n)
	for i := range x {
		x[i] = math.Log(quantile(rng.Float64(), k, scale))
	}
	slices.Sort(x)
	unit = x[n-1]
	floats.AddConst(-unit, x)
	return x, math.Exp(unit)
}

// TestFit checks that the fit is near the maximum of the likelihood, which a simplex search
// finds, and near the truth.
func TestFit(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for i, k := range []float64{-0.4, 0, 0.3, 0.7, 1.2, 3} {
		if testing.Short() && i%2 > 0 {
			continue
		}
		const n, scale = 2000, 2.5
		x, unit := logData(n, k, scale, rng)
		nll := func(p []float64) float64 { // in k and log scale
			var s float64
			for _, xi := range x {
				z := p[0] * math.Exp(xi-p[1])
				if z <= -1 {
					return math.Inf(1)
				}
				if math.Abs(p[0]) < 1e-9 {
					s += math.Exp(xi - p[1])
				} else {
					s += (1 + 1/p[0]) * math.Log1p(z)
				}
				s += p[1]
			}
			return s
		}
		res, err := optimize.Minimize(optimize.Problem{Func: nll},
			[]float64{k, math.Log(scale / unit)}, nil, &optimize.NelderMead{})
		if err != nil {
			t.Fatal(err)
		}
		gotK, gotScale := fit(x)
		sd := (1 + math.Abs(k)) / math.Sqrt(n) // sd of the maximum-likelihood estimate
		if math.Abs(gotK-res.X[0]) > sd {
			t.Errorf("k = %v: fitted %.4f, of largest likelihood %.4f", k, gotK, res.X[0])
		}
		if math.Abs(math.Log(gotScale)-res.X[1]) > 2*sd {
			t.Errorf("k = %v: scale %.4f, of largest likelihood %.4f", k, gotScale*unit,
				math.Exp(res.X[1])*unit)
		}
		if math.Abs(gotK-k) > 4*sd {
			t.Errorf("k = %v: fitted %.4f", k, gotK)
		}
	}
}

// TestSmooth checks weights p/q with a known k.
func TestSmooth(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	const n = 40000
	w, order := make([]float64, n), make([]int, n)
	// With q = N(0, s²), p = N(0, 1) and z = su the weight is exp(½(1−s²)u²), and P(weight > t)
	// falls as t^{−1/(1−s²)}, up to a logarithm.
	for _, s2 := range []float64{0.2, 0.5, 0.7, 0.9} {
		for i := range w {
			u := rng.NormFloat64()
			w[i] = (1 - s2) / 2 * u * u
		}
		if k := Smooth(w, order); math.Abs(k-(1-s2)) > 0.1 {
			t.Errorf("s² = %v: k = %.3f, want %.3f", s2, k, 1-s2)
		}
	}
	// Let q be Student's t with a degrees of freedom and p with b. The weight grows as |z|^{a−b},
	// and P(|z| > x) falls as x^{−a}.
	for _, ab := range [][2]float64{{4, 2}, {6, 2}, {3, 2}, {2, 3}} {
		a, b := ab[0], ab[1]
		for i := range w {
			var chi float64
			for range int(a) {
				e := rng.NormFloat64()
				chi += e * e
			}
			z := rng.NormFloat64() / math.Sqrt(chi/a)
			w[i] = (a+1)/2*math.Log1p(z*z/a) - (b+1)/2*math.Log1p(z*z/b)
		}
		want := (a - b) / a
		if a < b { // weights are bounded, and their density has a pole of order ½ at the bound
			want = -2
		}
		if k := Smooth(w, order); math.Abs(k-want) > 0.12*math.Max(1, math.Abs(want)) {
			t.Errorf("t of %v for t of %v: k = %.3f, want %.3f", a, b, k, want)
		}
	}
}

// TestSmoothEqual checks that k̂ is at most 0 for weights that are equal except for small noise of
// any shape, and that such weights do not change.
func TestSmoothEqual(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 12))
	for _, n := range []int{100, 2200, 22000} {
		for name, noise := range map[string]func() float64{
			"normal":  rng.NormFloat64,
			"uniform": rng.Float64,
			"cubic":   func() float64 { return math.Pow(rng.NormFloat64(), 3) },
			"heavy":   func() float64 { return math.Min(100, quantile(rng.Float64(), 0.9, 1)) },
		} {
			for _, size := range []float64{1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1} {
				w, order := make([]float64, n), make([]int, n)
				for i := range w {
					w[i] = -3 + size*noise()
				}
				was := slices.Clone(w)
				k := Smooth(w, order)
				switch {
				case size <= 1e-4 && (k > 0 || !slices.Equal(w, was)):
					t.Errorf("%d weights, %s noise of %g: k = %v, moved %t", n, name, size, k,
						!slices.Equal(w, was))
				case size <= 0.1 && (name == "normal" || name == "uniform") && k > 0.5:
					t.Errorf("%d weights, %s noise of %g: k = %v", n, name, size, k)
				}
			}
		}
	}
}

// TestSmoothHeavy checks the mean k̂ of ratios from a generalized Pareto distribution of known k.
func TestSmoothHeavy(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(13, 14))
	for _, k := range []float64{0.3, 0.5, 0.7, 0.9, 1.2} {
		for _, scale := range []float64{0.1, 1, 10} {
			const n, runs = 2200, 40
			w, order := make([]float64, n), make([]int, n)
			var mean float64
			for range runs {
				for i := range w {
					w[i] = math.Log1p(quantile(rng.Float64(), k, scale))
				}
				mean += Smooth(w, order) / runs
			}
			m := float64(tailLen(n))
			want := (k*m + priorK*priorCount) / (m + priorCount)
			if math.Abs(mean-want) > 4*(1+k)/math.Sqrt(m*runs) { // standard errors of the fit
				t.Errorf("k = %v, scale %v: estimated %.3f, want %.3f", k, scale, mean, want)
			}
		}
	}
}

// TestSmoothHump checks that Smooth finds a tail with k = 0.3 that holds one in 500 weights. The
// other weights are near their largest value.
func TestSmoothHump(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	const n = 40000
	w := make([]float64, n)
	for i := range w {
		u := rng.NormFloat64()
		if w[i] = -1e-3 * u * u; i%500 == 0 {
			w[i] = 0.3 * rng.ExpFloat64()
		}
	}
	if k := Smooth(w, make([]int, n)); math.Abs(k-0.3) > 0.2 {
		t.Errorf("k = %.3f, want 0.3", k)
	}
}

// TestSmoothOrder checks that the order of the weights does not change, that no weight exceeds
// the largest, and that the weights below the tail stay.
func TestSmoothOrder(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	const n = 1000
	for _, scale := range []float64{1e-12, 1e-6, 0.1, 1, 5, 50, 1e3, 1e6} {
		w, order := make([]float64, n), make([]int, n)
		for i := range w {
			w[i] = scale * rng.NormFloat64()
		}
		before := slices.Clone(w)
		top := slices.Max(w)
		k := Smooth(w, order)
		if math.IsNaN(k) || math.IsInf(k, 0) {
			t.Fatalf("scale %v: k = %v", scale, k)
		}
		if scale <= 1e-12 && k != 0 || scale >= 50 && !(k > 2) {
			t.Errorf("scale %v: k = %v", scale, k)
		}
		m := tailLen(n)
		for i, s := range order {
			switch {
			case math.IsNaN(w[s]) || w[s] > top:
				t.Fatalf("scale %v: weight %v above %v", scale, w[s], top)
			case i > 0 && w[s] < w[order[i-1]]-1e-12*math.Abs(w[s]):
				t.Fatalf("scale %v: order is lost at %d", scale, i)
			case i < n-m && w[s] != before[s]:
				t.Fatalf("scale %v: weight %d of the bulk is changed", scale, i)
			}
		}
	}
}

// TestSmoothDegenerate checks weights of 0, ties, and few weights.
func TestSmoothDegenerate(t *testing.T) {
	t.Parallel()
	inf := math.Inf(-1)
	many := func(n int, f func(i int) float64) []float64 {
		w := make([]float64, n)
		for i := range w {
			w[i] = f(i)
		}
		return w
	}
	for _, c := range []struct {
		name string
		w    []float64
		want float64 // NaN: any finite number
	}{
		{"equal", many(100, func(int) float64 { return 3 }), 0},
		{"all zero", many(100, func(int) float64 { return inf }), math.Inf(1)},
		{"few", many(10, func(i int) float64 { return float64(i) }), math.Inf(1)},
		{"none", nil, math.Inf(1)},
		{"one large", many(100, func(i int) float64 { return 1000 * float64((i+1)/100) }),
			math.NaN()},
		{"half zero", many(100, func(i int) float64 {
			if i%2 == 0 {
				return inf
			}
			return float64(i) / 100
		}), math.NaN()},
		{"ties at the cut", many(100, func(i int) float64 { return float64(i / 90) }), math.NaN()},
		{"ties in the tail", many(100, func(i int) float64 { return float64(i / 82) }), math.NaN()},
	} {
		k := Smooth(c.w, make([]int, len(c.w)))
		if math.IsNaN(k) || !math.IsNaN(c.want) && k != c.want || math.IsNaN(c.want) &&
			math.IsInf(k, 0) {
			t.Errorf("%s: k = %v, want %v", c.name, k, c.want)
		}
		for i, w := range c.w {
			if math.IsNaN(w) || math.IsInf(w, 1) {
				t.Errorf("%s: weight %d is %v", c.name, i, w)
			}
		}
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]float64{0: math.Inf(-1), 1: math.Inf(-1), 10: 0, 100: 0.5,
		1000: 2.0 / 3, 2200: 0.7, 1 << 20: 0.7} {
		if got := Limit(n); math.Abs(got-want) > 1e-12 && got != want {
			t.Errorf("limit of %d draws: %v, want %v", n, got, want)
		}
	}
	if m := tailLen(24); m != 5 {
		t.Errorf("tail of 24: %d", m)
	}
	if m := tailLen(10000); m != 300 {
		t.Errorf("tail of 10000: %d", m)
	}
}
