package normal

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/expfam"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Family is the family of Gaussians, for products: what a Gaussian knows, as functions of
// its natural parameters.
type Family struct {
	D        int
	Diagonal bool
}

// At returns the Gaussian of eta, in natural parameters; nil if eta is not valid.
func (f Family) At(eta []float64) Form {
	q := f.unit()
	if q.SetNatural(eta) != nil {
		return nil
	}
	return q
}

func (f Family) unit() Form {
	v := make([]float64, f.D)
	for i := range v {
		v[i] = 1
	}
	if f.Diagonal {
		return NewDiagonal(make([]float64, f.D), v).In(Natural)
	}
	q := NewFull(f.D)
	_, cov := q.Next()
	for i, x := range v {
		cov[i*f.D+i] = x
	}
	if err := q.CommitMoments(); err != nil {
		panic(err) // of the identity: never
	}
	return q.In(Natural)
}

func (f Family) String() string { return fmt.Sprintf("Gaussian of %d dimensions", f.D) }

func (f Family) Dim() int { return f.D }

func (f Family) NumParams() int {
	if f.Diagonal {
		return 2 * f.D
	}
	return f.D + f.D*(f.D+1)/2
}

func (f Family) LogPartition(eta []float64) float64 {
	if q := f.At(eta); q != nil {
		return q.LogPartition()
	}
	return math.Inf(1)
}

func (f Family) Mean(dst, eta []float64) { f.At(eta).MeanParams(dst) }

func (f Family) Fisher(dst *mat.SymDense, eta []float64) { expfam.FisherByColumns(dst, f, eta) }

func (f Family) FisherMul(dst, g, eta []float64) { f.At(eta).FromMeanGrad(dst, g) }

func (f Family) FisherSolve(dst, g, eta []float64) { f.At(eta).MeanGrad(dst, g) }

func (f Family) Stat(dst, z []float64) {
	k := copy(dst, z)
	for i, x := range z {
		if f.Diagonal {
			dst[k] = x * x
			k++
			continue
		}
		for _, y := range z[:i+1] {
			dst[k] = x * y
			k++
		}
	}
}

func (f Family) LogBase([]float64) float64 { return 0 }

func (f Family) Rand(z, t, eta []float64, rng *rand.Rand) {
	f.draw(z, z, eta, rng)
	f.Stat(t, z)
}

// draw stores a draw in z, and the standard normal one that it was in aux, which may be z.
func (f Family) draw(z, aux, eta []float64, rng *rand.Rand) {
	for i := range aux {
		aux[i] = rng.NormFloat64()
	}
	copy(z, aux)
	f.At(eta).Transform(z)
}

func (f Family) Entropy(eta []float64) float64 {
	return 0.5 * (float64(f.D)*(1+expfam.Log2Pi) + f.At(eta).LogDetV())
}

func (f Family) Divergence(eta, etaP []float64) float64 { return KL(f.At(eta), f.At(etaP)) }

func (f Family) FromMean(dst, mu []float64) bool {
	q := f.unit()
	if q.SetMeanParams(mu) != nil {
		return false
	}
	q.Natural(dst)
	return true
}

func (f Family) Chart(dst, eta []float64) { f.At(eta).Chart(dst) }

func (f Family) FromChart(dst, x []float64) {
	q := f.unit()
	if q.SetChart(x) != nil {
		for i := range dst {
			dst[i] = math.NaN()
		}
		return
	}
	q.Natural(dst)
}

func (f Family) ChartGrad(dst, g, eta []float64) { f.At(eta).ChartGrad(dst, g) }

// AuxLen: the standard normal draw is kept.
func (f Family) AuxLen() int { return f.D }

func (f Family) RandPath(z, t, aux, eta []float64, rng *rand.Rand) {
	f.draw(z, aux, eta, rng)
	f.Stat(t, z)
}

// PathGrad is that of Pathwise: the slope along m is the gradient g, and along V ½g(V⁻¹(z − m))ᵀ.
func (f Family) PathGrad(dst, dl, c, z, aux, eta []float64) {
	q := f.At(eta)
	g := make([]float64, f.D)
	floats.AddTo(g, dl, c[:f.D])
	k := f.D
	for i, x := range z {
		if f.Diagonal {
			g[i] += 2 * c[k] * x
			k++
			continue
		}
		for j, y := range z[:i+1] {
			g[i] += c[k] * y
			g[j] += c[k] * x
			k++
		}
	}
	u, gv := make([]float64, f.D), make([]float64, q.NumGradV())
	q.Standardize(u, aux)
	q.AddOuter(gv, 0.25, g, u)
	q.AddOuter(gv, 0.25, u, g)
	floats.Add(dst, q.FromMomentGrad(nil, g, gv))
}
