package topic

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Logits is q(z) = N(m, V) for the topic logits z of a document. It is not changed once it is
// made.
type Logits struct {
	Mean []float64
	Cov  *mat.SymDense
	ELBO float64   // the document's term of the ELBO in nats, NaN if it was not evaluated
	l    []float64 // Cholesky factor of V
}

// logits returns the q of w.
func (w *work) logits(elbo float64) *Logits {
	w.invert()
	q := &Logits{Mean: slices.Clone(w.m), Cov: mat.NewSymDense(w.k, nil), ELBO: elbo}
	q.l = make([]float64, w.k*w.k)
	for i := range w.k {
		for j := range i + 1 {
			q.Cov.SetSym(i, j, w.cov(i, j))
			q.l[i*w.k+j] = w.cov(i, j)
		}
	}
	dense.Cholesky(q.l, w.k)
	return q
}

// Rand stores a draw of the topic proportions in dst, of length K; nil allocates.
func (q *Logits) Rand(dst []float64, rng *rand.Rand) []float64 {
	k := len(q.Mean)
	dst = dense.Dest(dst, k)
	for j := range dst {
		dst[j] = rng.NormFloat64()
	}
	z := slices.Clone(dst)
	dense.Trmv(blas.NoTrans, dense.LowerTriangle(q.l, k), dense.Vector(z))
	floats.Add(z, q.Mean)
	softmax(dst, z)
	return dst
}

// proportionDraws is the number of draws of intervals.
const proportionDraws = 4000

// Proportions returns the means of the topic proportions and, for each, the central interval
// that holds it with probability level in (0, 1), from draws of q.
func (q *Logits) Proportions(level float64, rng *rand.Rand) (mean, lo, hi []float64) {
	return intervals(len(q.Mean), level, func(dst []float64) { q.Rand(dst, rng) })
}

// intervals returns the means of k topic proportions and the quantiles (1 − level)/2 and
// (1 + level)/2 of each, from proportionDraws draws, which draw stores in dst.
func intervals(k int, level float64, draw func(dst []float64)) (mean, lo, hi []float64) {
	draws := dense.NewRows(k, proportionDraws)
	x := make([]float64, k)
	mean, lo, hi = make([]float64, k), make([]float64, k), make([]float64, k)
	for i := range proportionDraws {
		draw(x)
		for j, p := range x {
			draws[j][i] = p
		}
	}
	tail := min(int(proportionDraws*(1-level)/2), proportionDraws/2-1)
	for j, all := range draws {
		mean[j] = floats.Sum(all) / proportionDraws
		slices.Sort(all)
		lo[j], hi[j] = all[tail], all[proportionDraws-1-tail]
	}
	return mean, lo, hi
}

// eachPair calls f for the points in the rows of eps and their negatives: up/a and down/b are
// softmax(z) at z = m ± δ. One exponential a coordinate serves both. Scratch has 3K elements.
func (q *Logits) eachPair(eps, scratch []float64, f func(up, down []float64, a, b float64)) {
	k := len(q.Mean)
	top := floats.Max(q.Mean)
	base, up, down := scratch[:k], scratch[k:2*k], scratch[2*k:3*k]
	for j, m := range q.Mean {
		base[j] = math.Exp(m - top)
	}
	for i := 0; i < len(eps); i += k {
		x := eps[i : i+k]
		var a, b float64
		for j := range up {
			var s float64
			for c, l := range q.l[j*k : j*k+j+1] {
				s += l * x[c]
			}
			e := math.Exp(min(max(s, -300), 300))
			up[j], down[j] = base[j]*e, base[j]/e
			a += up[j]
			b += down[j]
		}
		f(up, down, a, b)
	}
}

// expectedSoftmax stores E[softmax(z)] in mean, from the points of eachPair.
func (q *Logits) expectedSoftmax(mean, eps, scratch []float64) {
	clear(mean)
	q.eachPair(eps, scratch, func(up, down []float64, a, b float64) {
		for j := range mean {
			mean[j] += up[j]/a + down[j]/b
		}
	})
	floats.Scale(float64(len(mean))/float64(2*len(eps)), mean)
}

// softmaxes stores softmax(z) at the points of eachPair in the rows of dst.
func (q *Logits) softmaxes(dst, eps, scratch []float64) {
	k, i := len(q.Mean), 0
	q.eachPair(eps, scratch, func(up, down []float64, a, b float64) {
		row, next := dst[i:i+k], dst[i+k:i+2*k]
		for j := range row {
			row[j], next[j] = up[j]/a, down[j]/b
		}
		i += 2 * k
	})
}
