package topic

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// This file draws from the posterior of the topic logits z of a document at known topics β,
//
//	p(z) ∝ N(z | μ, Σ) exp f(z),   f(z) = Σ_v y_v log Σ_k β_kv e^{z_k} − W log Σ_k e^{z_k}
//
// Intervals of the Gaussian q(z) cover too little, because q maximizes the ELBO and not the fit to
// the tails: p has long tails toward the logits of topics that the document does not use. At a
// prior standard deviation of 3, intervals of q at 0.9 cover 0.83 to 0.86, and intervals of a
// mean-field q cover 0.64.
//
// Elliptical slice sampling (Murray, Adams and MacKay, AISTATS 2010) needs no tuning and has p as
// its stationary distribution. Here a Gaussian approximation N(m, V) replaces the prior in its
// ellipses (Nishihara, Murray and Adams, JMLR 2014), so that successive draws are almost
// independent. Write z = m + x. A draw w of N(0, V) and the present x span the ellipse
//
//	x(θ) = x cos θ + w sin θ
//
// whose next point is drawn uniformly from the angles at which p(m + x)/N(x | 0, V) is above a
// random level. The search for one shrinks the range of angles to the present point. V is twice the
// covariance of q, because slices mix slowly if the tails of p are longer than the tails of
// N(m, V).
//
// Fitted.Proportions calls this for CTMDoc.Proportions. Read estep.go first.

const (
	sliceWarmUp = 100 // draws that are left out
	sliceSpread = 2   // factor of the covariance of q
	sliceTries  = 100 // most points of an ellipse
)

// Proportions returns the means of the topic proportions of d and, for each, the central interval
// that holds it with probability level in (0, 1), from draws of the posterior. The error wraps
// ErrNotPosDef.
func (f *Fitted) Proportions(d Doc, level float64, rng *rand.Rand) (mean, lo, hi []float64,
	err error) {
	o := f.Options
	o.Expectation, o.Samples, o.Diagonal = Quasi, inferSamples, false
	full := &Fitted{Options: o, Beta: f.Beta, Mu: f.Mu, Sigma: f.Sigma, prior: f.prior}
	w := full.inferrer()
	if err := full.infer(w, d, 0); err != nil {
		return nil, nil, nil, err
	}
	mean, lo, hi = intervals(f.K, level, newSlice(w, &f.prior, rng).next)
	return mean, lo, hi, nil
}

// slice is the state of the sampler.
type slice struct {
	k          int
	rng        *rand.Rand
	prior      *normal
	counts, b  []float64 // y_v, and β_kv relative to the largest in a topic, word by word
	tokens     float64
	mean, l    []float64 // m, and the Cholesky factor of V
	shift      []float64 // Σ⁻¹(m − μ)
	here, turn ray       // x and w
	height     float64   // log p(m + x) − log N(x | 0, V), up to a constant
	z, e       []float64
}

// ray is a vector x with L⁻¹x and Σ⁻¹x.
type ray struct{ x, white, steep []float64 }

// newSlice returns the sampler of the document of w, whose q is near the posterior.
func newSlice(w *work, prior *normal, rng *rand.Rand) *slice {
	q := w.logits(0)
	s := &slice{k: w.k, rng: rng, prior: prior, counts: w.y, tokens: w.tokens, mean: q.Mean, l: q.l}
	floats.Scale(math.Sqrt(sliceSpread), s.l)
	s.b = slices.Clone(w.b[:w.k*w.n])
	for i := range w.n {
		b := s.b[i*s.k : (i+1)*s.k]
		floats.Scale(1/floats.Max(b), b)
	}
	for _, x := range []*[]float64{&s.shift, &s.here.x, &s.here.white, &s.here.steep, &s.turn.x,
		&s.turn.white, &s.turn.steep, &s.z, &s.e} {
		*x = make([]float64, s.k)
	}
	floats.SubTo(s.z, s.mean, prior.mu)
	s.precise(s.shift, s.z)
	s.draw(&s.here)
	s.height = s.at(1, 0)
	pi := make([]float64, s.k)
	for range sliceWarmUp {
		s.next(pi)
	}
	return s
}

// precise stores Σ⁻¹x in dst.
func (s *slice) precise(dst, x []float64) {
	for j := range dst {
		dst[j] = floats.Dot(s.prior.prec[j*s.k:(j+1)*s.k], x)
	}
}

// draw makes r a draw of N(0, V).
func (s *slice) draw(r *ray) {
	for j := range r.white {
		r.white[j] = s.rng.NormFloat64()
	}
	copy(r.x, r.white)
	dense.Trmv(blas.NoTrans, dense.LowerTriangle(s.l, s.k), dense.Vector(r.x))
	s.precise(r.steep, r.x)
}

// at returns the height at x cos θ + w sin θ, given the cosine and the sine.
func (s *slice) at(cos, sin float64) (height float64) {
	for j, m := range s.mean {
		x := cos*s.here.x[j] + sin*s.turn.x[j]
		white := cos*s.here.white[j] + sin*s.turn.white[j]
		height += white*white/2 -
			x*(s.shift[j]+(cos*s.here.steep[j]+sin*s.turn.steep[j])/2)
		s.z[j] = m + x
	}
	return height + s.logLik()
}

// logLik returns f(z), up to a constant.
func (s *slice) logLik() (f float64) {
	_, sum := softmax(s.e, s.z) // z is now e^z relative to the largest
	f = -s.tokens * math.Log(sum)
	product := 1.0 // the factors of the words with the count 1, which most words have
	for i, y := range s.counts {
		p := floats.Dot(s.z, s.b[i*s.k:(i+1)*s.k])
		if y != 1 {
			f += y * math.Log(p)
			continue
		}
		if product *= p; product < leastProduct {
			f += math.Log(product)
			product = 1
		}
	}
	return f + math.Log(product)
}

// next moves to the next draw and stores its topic proportions in dst. The draw is the same as the
// last one if no point of the ellipse is high enough to rounding.
func (s *slice) next(dst []float64) {
	s.draw(&s.turn)
	level := s.height + math.Log(1-s.rng.Float64())
	hi := 2 * math.Pi * s.rng.Float64()
	lo, theta := hi-2*math.Pi, hi
	for range sliceTries {
		sin, cos := math.Sincos(theta)
		if height := s.at(cos, sin); height > level {
			for _, v := range [][2][]float64{{s.here.x, s.turn.x}, {s.here.white, s.turn.white},
				{s.here.steep, s.turn.steep}} {
				floats.Scale(cos, v[0])
				floats.AddScaled(v[0], sin, v[1])
			}
			s.height = height
			break
		}
		if theta < 0 {
			lo = theta
		} else {
			hi = theta
		}
		theta = lo + (hi-lo)*s.rng.Float64()
	}
	floats.AddTo(s.z, s.mean, s.here.x)
	softmax(dst, s.z)
}
