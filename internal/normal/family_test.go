package normal

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/expfam"
)

// member returns a random Gaussian in natural parameters, its η, and a second η close to the first.
func member(t *testing.T, f Family, rng *rand.Rand) (q Form, eta, near []float64) {
	t.Helper()
	x := make([]float64, f.NumParams())
	for i := range x {
		x[i] = rng.NormFloat64()
		if i >= f.D {
			x[i] /= math.Sqrt(float64(f.D))
		}
	}
	q = f.unit()
	for _, step := range []float64{0, 1e-3} {
		for i := range x {
			x[i] += step * rng.NormFloat64()
		}
		if err := q.SetChart(x); err != nil {
			t.Fatal(err)
		}
		eta, near = near, q.Natural(nil)
	}
	if q = f.At(eta); q == nil {
		t.Fatalf("%v: η is not valid", eta)
	}
	return q, eta, near
}

// agree fails unless got and want agree up to rounding.
func agree(t *testing.T, what string, got, want []float64) {
	t.Helper()
	size := 0.0
	for _, x := range want {
		size = math.Max(size, math.Abs(x))
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= 1e-9*size) {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
	}
}

func families() (fs []Family) {
	for _, d := range []int{1, 2, 3, smallDim, smallDim + 1, 20} {
		fs = append(fs, Family{d, false}, Family{d, true})
	}
	return fs
}

// TestFamily compares all functions of Family with a Form, on both sides of smallDim.
func TestFamily(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, f := range families() {
		q, eta, near := member(t, f, rng)
		p := f.At(near)
		name := fmt.Sprintf("%+v", f)
		n := f.NumParams()
		g, dst, dl := make([]float64, n), make([]float64, n), make([]float64, f.D)
		for i := range g {
			g[i] = rng.NormFloat64()
		}
		for i := range dl {
			dl[i] = rng.NormFloat64()
		}
		if !f.MeanIfValid(1, dst, eta) {
			t.Errorf("%s: η is not valid", name)
		}
		mu := q.MeanParams(nil)
		agree(t, name+", mean", dst, mu)
		agree(t, name+", A", []float64{f.LogPartition(eta)}, []float64{q.LogPartition()})
		agree(t, name+", entropy", []float64{f.Entropy(eta)},
			[]float64{0.5*float64(f.D)*(1+expfam.Log2Pi) + 0.5*q.LogDetV()})
		f.FisherMul(dst, g, eta)
		agree(t, name+", FisherMul", dst, q.FromMeanGrad(nil, g))
		f.FisherSolve(dst, g, eta)
		agree(t, name+", FisherSolve", dst, q.MeanGrad(nil, g))
		same := append([]float64(nil), g...)
		f.FisherSolve(same, same, eta)
		agree(t, name+", FisherSolve in place", same, dst)
		f.FisherMul(same, same, eta)
		agree(t, name+", FisherMul in place", same, g)
		if !f.FromMean(dst, mu) {
			t.Errorf("%s: μ is not attained", name)
		}
		agree(t, name+", FromMean", dst, eta)
		x := q.Chart(nil)
		f.Chart(dst, eta)
		agree(t, name+", Chart", dst, x)
		f.FromChart(dst, x)
		agree(t, name+", FromChart", dst, eta)
		f.ChartGrad(dst, g, eta)
		agree(t, name+", ChartGrad", dst, q.ChartGrad(nil, g))
		if kl, want := f.Divergence(eta, near), KL(q, p); math.Abs(kl-want) > 1e-12*float64(n) {
			t.Errorf("%s: KL %v, want %v", name, kl, want)
		}
		z, aux := make([]float64, f.D), make([]float64, f.D)
		f.RandPath(z, dst, aux, eta, rng)
		want := append([]float64(nil), aux...)
		q.Transform(want)
		agree(t, name+", draw", z, want)
		clear(dst)
		f.PathGrad(dst, dl, g, z, aux, eta)
		agree(t, name+", PathGrad", dst, pathGrad(f, q, dl, g, z, aux))
	}
}

// pathGrad returns PathGrad of f at q: the gradients s in m and ½s(V⁻¹(z − m))ᵀ in V for
// s = ∇_z (l + cᵀT(z)).
func pathGrad(f Family, q Form, dl, c, z, aux []float64) []float64 {
	s, up, down := append([]float64(nil), dl...), make([]float64, len(c)), make([]float64, len(c))
	for i := range z {
		moved := append([]float64(nil), z...)
		moved[i] = z[i] + 1
		f.Stat(up, moved)
		moved[i] = z[i] - 1
		f.Stat(down, moved)
		for k := range c { // exact, because T is quadratic
			s[i] += c[k] * (up[k] - down[k]) / 2
		}
	}
	u, gv := make([]float64, len(z)), make([]float64, q.NumGradV())
	q.Standardize(u, aux)
	q.AddOuter(gv, 0.25, s, u)
	q.AddOuter(gv, 0.25, u, s)
	return q.FromMomentGrad(nil, s, gv)
}

// TestFamilyKLDigits checks that the KL divergence of Gaussians that are close keeps its digits:
// ½δ² for means that differ by δ, and ¼ε² for a variance that differs by the factor 1 + ε.
func TestFamilyKLDigits(t *testing.T) {
	for _, f := range families() {
		eta := f.unit().Natural(nil)
		near := append([]float64(nil), eta...)
		near[0] += 1e-9
		want := 0.5e-18
		if kl := f.Divergence(eta, near); math.Abs(kl-want) > 1e-6*want {
			t.Errorf("%+v: KL %v, want %v", f, kl, want)
		}
		copy(near, eta)
		near[len(near)-1] *= 1 + 1e-8
		want = 0.25e-16
		if kl := f.Divergence(eta, near); math.Abs(kl-want) > 1e-6*want {
			t.Errorf("%+v: KL %v, want %v", f, kl, want)
		}
		if kl := f.Divergence(eta, eta); kl != 0 {
			t.Errorf("%+v: KL %v to itself", f, kl)
		}
	}
}

// TestFamilyInvalid checks that the functions reject parameters that are no Gaussian.
func TestFamilyInvalid(t *testing.T) {
	for _, f := range families() {
		dst := make([]float64, f.NumParams())
		for _, last := range []float64{0, 1, -1e-320, -1.7e308, math.Inf(-1), math.NaN()} {
			eta := f.unit().Natural(nil)
			eta[len(eta)-1] = last
			if f.MeanIfValid(1, dst, eta) || !math.IsInf(f.LogPartition(eta), 1) ||
				f.At(eta) != nil {
				t.Errorf("%+v: %v is valid", f, eta)
			}
			mu := f.unit().MeanParams(nil)
			mu[len(mu)-1] = -last
			if last < 0 && !math.IsInf(last, 0) {
				mu[0], mu[len(mu)-1] = 1e200, last
			}
			if f.FromMean(dst, mu) {
				t.Errorf("%+v: mean parameters %v are attained: %v", f, mu, dst)
			}
			x := f.unit().Chart(nil)
			x[len(x)-1] = []float64{800, -800}[len(dst)%2]
			if f.FromChart(dst, x); !math.IsNaN(dst[0]) {
				t.Errorf("%+v: the chart %v gives %v", f, x, dst)
			}
		}
	}
}

// TestFamilyAllocates checks that the functions which a fit calls for each part allocate nothing.
func TestFamilyAllocates(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, f := range families() {
		_, eta, near := member(t, f, rng)
		dst := make([]float64, len(eta))
		n := testing.AllocsPerRun(20, func() {
			f.MeanIfValid(1, dst, eta)
			f.LogPartition(eta)
			f.FisherMul(dst, eta, near)
			f.FisherSolve(dst, eta, near)
			f.Divergence(eta, near)
			f.Mean(dst, eta)
			f.FromMean(dst, dst)
		})
		if n > 0.5 && f.D <= smallDim {
			t.Errorf("%+v: %v allocations", f, n)
		}
	}
}
