package normal

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/expfam"
	"gonum.org/v1/gonum/mat"
)

// Family is the family of Gaussians with a full or a diagonal covariance, as functions of natural
// parameters. It lets a Gaussian be a part of a product of families.
//
// A product may have 100,000 small parts, so the functions make no Form and allocate no memory:
// family_full.go computes with packed parameters in buffers from a pool, and family_diagonal.go
// with one element after the other.
type Family struct {
	D        int
	Diagonal bool
}

// At returns the Gaussian with natural parameters eta, or nil if eta is not valid.
func (f Family) At(eta []float64) Form {
	q := f.unit()
	if q.SetNatural(eta) != nil {
		return nil
	}
	return q
}

// unit returns N(0, I).
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
		panic(err) // the identity is positive definite
	}
	return q.In(Natural)
}

// String returns the name of the family.
func (f Family) String() string { return fmt.Sprintf("Gaussian of %d dimensions", f.D) }

// Dim returns the dimension of z.
func (f Family) Dim() int { return f.D }

// NumParams returns the length of η.
func (f Family) NumParams() int {
	if f.Diagonal {
		return 2 * f.D
	}
	return f.D + f.D*(f.D+1)/2
}

// LogPartition returns A(η). It is +Inf if η is not valid.
func (f Family) LogPartition(eta []float64) float64 {
	if f.Diagonal {
		return diagonal(eta).logPartition()
	}
	w := f.work(eta)
	defer w.put()
	if !w.moments() {
		return math.Inf(1)
	}
	return w.logPartition()
}

// Mean stores the mean parameters at eta in dst.
func (f Family) Mean(dst, eta []float64) { f.MeanIfValid(1, dst, eta) }

// MeanIfValid is Mean, and also reports whether eta is valid. If not, dst is undefined.
func (f Family) MeanIfValid(_ int, dst, eta []float64) bool {
	if f.Diagonal {
		return diagonal(eta).mean(dst)
	}
	w := f.work(eta)
	defer w.put()
	if !w.moments() {
		return false
	}
	w.mean(dst)
	return true
}

// Fisher stores ∇²A(η) in dst.
func (f Family) Fisher(dst *mat.SymDense, eta []float64) { expfam.FisherByColumns(dst, f, eta) }

// FisherMul stores ∇²A(η)g in dst, which turns a gradient in μ into a gradient in η.
func (f Family) FisherMul(dst, g, eta []float64) {
	f.convert(dst, g, eta, (*fullWork).fisherMul, diagonal.fisherMul)
}

// FisherSolve stores ∇²A(η)⁻¹g in dst.
func (f Family) FisherSolve(dst, g, eta []float64) {
	f.convert(dst, g, eta, (*fullWork).fisherSolve, diagonal.fisherSolve)
}

// convert calls one of the functions for eta.
func (f Family) convert(dst, g, eta []float64, full func(w *fullWork, dst, g []float64),
	diag func(eta diagonal, dst, g []float64)) {
	if f.Diagonal {
		diag(eta, dst, g)
		return
	}
	w := f.work(eta)
	defer w.put()
	full(w, dst, g)
}

// Stat stores T(z) in dst: z and the lower triangle of zzᵀ, or z and z².
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

// LogBase returns log h(z) = 0.
func (f Family) LogBase([]float64) float64 { return 0 }

// Rand stores a draw in z and T(z) in t.
func (f Family) Rand(z, t, eta []float64, rng *rand.Rand) {
	f.draw(z, z, eta, rng)
	f.Stat(t, z)
}

// draw stores a draw in z, and the standard normal numbers it was made of in aux. aux and z may
// be the same slice.
func (f Family) draw(z, aux, eta []float64, rng *rand.Rand) {
	for i := range aux {
		aux[i] = rng.NormFloat64()
	}
	copy(z, aux)
	if f.Diagonal {
		diagonal(eta).transform(z)
		return
	}
	w := f.work(eta)
	defer w.put()
	w.moments()
	w.transform(z)
}

// Entropy returns the entropy in nats.
func (f Family) Entropy(eta []float64) float64 {
	h := 0.5 * float64(f.D) * (1 + expfam.Log2Pi)
	if f.Diagonal {
		return h + 0.5*diagonal(eta).logDetV()
	}
	w := f.work(eta)
	defer w.put()
	w.factor()
	return h - 0.5*w.logDet()
}

// Divergence returns KL(q‖p) in nats.
func (f Family) Divergence(eta, etaP []float64) float64 {
	if f.Diagonal {
		return diagonal(eta).kl(etaP)
	}
	w, p := f.work(eta), f.work(etaP)
	defer w.put()
	defer p.put()
	return w.kl(p)
}

// FromMean stores the η with the mean parameters mu in dst. It reports false if mu is not
// attained.
func (f Family) FromMean(dst, mu []float64) bool {
	if f.Diagonal {
		return fromMeanDiagonal(dst, mu)
	}
	w := newWork(f.D)
	defer w.put()
	return w.fromMean(dst, mu)
}

// Chart stores (m, L) with log L_ii in dst.
func (f Family) Chart(dst, eta []float64) {
	if f.Diagonal {
		diagonal(eta).chart(dst)
		return
	}
	w := f.work(eta)
	defer w.put()
	w.moments()
	w.chart(dst)
}

// FromChart stores the η with chart x in dst. It stores NaN if the result is not a Gaussian.
func (f Family) FromChart(dst, x []float64) {
	ok := false
	if f.Diagonal {
		ok = fromChartDiagonal(dst, x)
	} else {
		w := newWork(f.D)
		defer w.put()
		ok = w.fromChart(dst, x)
	}
	for i := range dst {
		if !ok {
			dst[i] = math.NaN()
		}
	}
}

// ChartGrad turns the gradient g in η into the gradient in the chart and stores it in dst.
func (f Family) ChartGrad(dst, g, eta []float64) {
	f.convert(dst, g, eta, (*fullWork).chartGrad, diagonal.chartGrad)
}

// AuxLen returns the length of aux in RandPath, the number of standard normal numbers of a draw.
func (f Family) AuxLen() int { return f.D }

// RandPath stores a draw in z, T(z) in t, and the standard normal numbers of the draw in aux.
func (f Family) RandPath(z, t, aux, eta []float64, rng *rand.Rand) {
	f.draw(z, aux, eta, rng)
	f.Stat(t, z)
}

// PathGrad adds the gradient in η of a function of the draw to dst. dl is the gradient of the
// function in z, and c its gradient in T(z). With g = ∇_z the gradient in m is g, and the
// gradient in V is ½g(V⁻¹(z − m))ᵀ.
func (f Family) PathGrad(dst, dl, c, z, aux, eta []float64) {
	if f.Diagonal {
		diagonal(eta).pathGrad(dst, dl, c, z, aux)
		return
	}
	w := f.work(eta)
	defer w.put()
	w.moments()
	w.pathGrad(dst, dl, c, z, aux)
}
