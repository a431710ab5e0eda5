package topic

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// normal is N(μ, Σ) in the forms that an E-step needs.
type normal struct {
	mu     []float64
	cov    []float64 // Σ, full
	prec   []float64 // Σ⁻¹, full
	logDet float64   // log|Σ|
}

// set sets p to the Gaussian with mean mu and covariance cov, and reads the lower triangle of
// cov. If cov is not positive definite, it reports false and leaves p unchanged.
func (p *normal) set(mu, cov []float64, scratch *[]float64) bool {
	k := len(mu)
	*scratch = dense.Resize(*scratch, k*k)
	l := *scratch
	copy(l, cov)
	if _, ok := dense.AllFinite(mu); !ok || !dense.Cholesky(l, k) {
		return false
	}
	p.logDet = dense.LogDet(l, k)
	dense.Invert(l, k)
	p.mu = append(p.mu[:0], mu...)
	p.cov = append(p.cov[:0], cov...)
	dense.FillUpper(p.cov, k)
	p.prec = append(p.prec[:0], l...)
	return true
}

// load makes p the Gaussian of a saved mu and sigma.
func (p *normal) load(mu, sigma []float64) error {
	k := len(mu)
	for i := range k {
		for j := range i {
			if sigma[i*k+j] != sigma[j*k+i] {
				return fmt.Errorf("sigma is not symmetric at (%d, %d): %w",
					i, j, sentinel.ErrNotPosDef)
			}
		}
	}
	if !p.set(mu, sigma, new([]float64)) || math.IsInf(p.logDet, 0) {
		return fmt.Errorf("sigma: %w", sentinel.ErrNotPosDef)
	}
	return nil
}

// work is the E-step of one document: q(z) = N(m, V) and the expectations under
// it of the log-likelihood
//
//	f(z) = Σ_v y_v log Σ_k β_kv e^{z_k} − W log Σ_k e^{z_k}
//
// and its derivatives, which with π = softmax(z) and ρ_vk ∝ β_kv e^{z_k} are
//
//	∇f  = ρᵀy − Wπ,
//	∇²f = diag(ρᵀy) − ρᵀ diag(y) ρ − W(diag π − ππᵀ).
//
// Matrices are K×K with the lower triangle significant; where V is diagonal
// they are their diagonals, of length K. Nothing is allocated once it has met the
// largest document.
type work struct {
	k    int
	opt  *Options
	diag bool
	pcg  *rand.PCG
	rng  *rand.Rand

	// The document: the counts y_v of its n distinct words, their sum W, and β_kv word by word.
	// pack stores β in three forms: topics by words, words by topics, and its squares if V is
	// diagonal.
	n               int
	y               []float64
	tokens          float64
	b               []float64
	byTopic, byWord fma.Panels
	squares         fma.Panels
	byPoint, moved  fma.Panels // e, points by topics; X of move

	// q: m, P = V⁻¹, the Cholesky factor of P (or the square root of a diagonal P), and V if it
	// was computed.
	m, p, l, v []float64
	logDet     float64 // log|P|, unless that is diagonal

	// Points ε of the expectation under N(0, I), row by row, and their weights.
	eps, weight []float64
	fixed       bool // the points stay the same

	// Results of expect. variance is the variance of value as an estimate.
	value, variance float64
	grad, hess      []float64
	// If hess is not the curvature along m: the curvatures of the normalizer and of the words.
	// Both are K×K and positive semidefinite, and −∇²f = flat − bend.
	flat, bend []float64

	along float64 // force along the step before, negative where that went too far
	short float64 // nats that ascend left to gain; 0 if q settled or is random

	z, off, pi, step, full, halves []float64 // halves are ½

	// Scratch for a few points, row by row: e^z divided by its largest element, and for each word
	// s_v = Σ_k β_kv e^{z_k}, wy_v/s_v and wy_v/s_v², where w is the weight of the point; the
	// sums over v of the last two times β_kv and β_kv²; Σ_v wy_v/s_v² β_kv β_jv; and stat divided
	// by β.
	e, s, t, t2, first, second, gram, share []float64
}

func newWork(opt *Options) *work {
	k := opt.K
	w := &work{k: k, opt: opt, diag: opt.diagonal(), pcg: rand.NewPCG(0, 0)}
	w.rng = rand.New(w.pcg)
	size := k * k
	if w.diag {
		size = k
	}
	for _, p := range []*[]float64{&w.m, &w.grad, &w.z, &w.off, &w.pi, &w.step} {
		*p = make([]float64, k)
	}
	for _, p := range []*[]float64{&w.p, &w.l, &w.v, &w.hess} {
		*p = make([]float64, size)
	}
	w.full = make([]float64, k*k)
	w.e, w.halves = make([]float64, together*k), make([]float64, k)
	for i := range w.halves {
		w.halves[i] = 0.5
	}
	if w.swings() {
		w.flat, w.bend = make([]float64, k*k), make([]float64, k*k)
	}
	w.setPoints()
	return w
}

// swings reports whether the words are at m, so that hess, in which they are not, is the curvature
// of V and not that along m.
func (w *work) swings() bool {
	return w.opt.Expectation == Delta || w.opt.Expectation == MeanField
}

// setPoints makes room for the points of the expectation, and sets those that do not change.
func (w *work) setPoints() {
	k, n := w.k, w.opt.Points()
	switch w.opt.Expectation {
	case Antithetic, Quasi:
		w.eps, w.weight = make([]float64, n*k), make([]float64, n)
		for i := range w.weight {
			w.weight[i] = 1 / float64(n)
		}
	case Quadrature:
		w.eps, w.weight = hermiteProduct(n, k)
	default: // f is expanded about m
		w.eps, w.weight = make([]float64, k), []float64{1}
	}
}

// hermiteProduct returns the points, row by row, and the weights of the product of k
// Gauss–Hermite rules of n points for N(0, 1).
func hermiteProduct(n, k int) (eps, weight []float64) {
	rule := expect.Hermite(n)
	total := 1
	for range k {
		total *= n
	}
	eps, weight = make([]float64, total*k), make([]float64, total)
	for i := range weight {
		weight[i] = 1
		for j, rest := 0, i; j < k; j, rest = j+1, rest/n {
			eps[i*k+j] = rule.X[rest%n]
			weight[i] *= rule.W[rest%n]
		}
	}
	return eps, weight
}

// draw draws the points if they are random.
func (w *work) draw() {
	if w.fixed {
		return
	}
	k := w.k
	switch w.opt.Expectation {
	case Antithetic:
		for i := 0; i < len(w.eps); i += 2 * k {
			a, b := w.eps[i:i+k], w.eps[i+k:i+2*k]
			for j := range a {
				x := w.rng.NormFloat64()
				a[j], b[j] = x, -x
			}
		}
	case Quasi:
		kronecker(w.eps, k, w.rng)
	}
}

// kronecker stores antithetic pairs of the points Φ⁻¹(frac(i α + u)) in the rows
// of eps. α_j = φ^−j with φ^{k+1} = φ + 1 spreads evenly in any dimension, and the
// shift u is uniform, or ½ if rng is nil.
func kronecker(eps []float64, k int, rng *rand.Rand) {
	phi := 2.0
	for range 60 {
		phi = math.Pow(1+phi, 1/float64(k+1))
	}
	alpha := 1.0
	for j := range k {
		alpha /= phi
		u := 0.5
		if rng != nil {
			u = rng.Float64()
		}
		for i := 0; i < len(eps); i += 2 * k {
			u += alpha
			u -= math.Floor(u)
			x := math.Sqrt2 * math.Erfinv(2*min(max(u, 1e-10), 1-1e-10)-1)
			eps[i+j], eps[i+k+j] = x, -x
		}
	}
}

// setDoc takes the counts of d. The caller stores β in w.b, of size distinct words × K, and calls
// pack.
func (w *work) setDoc(d Doc) {
	w.n = len(d.Words)
	w.y, w.tokens = d.Counts, d.Tokens()
	w.b = dense.Resize(w.b, w.k*w.n)
}

// pack takes the topics that are in w.b.
func (w *work) pack() {
	b := fma.Of(w.b, w.n, w.k, w.k)
	w.byTopic.Set(b.T())
	w.byWord.Set(b)
	if w.diag {
		w.share = dense.Resize(w.share, len(w.b))
		for i, x := range w.b {
			w.share[i] = x * x
		}
		w.squares.Set(fma.Of(w.share, w.n, w.k, w.k))
	}
}

// setPrior makes q the prior.
func (w *work) setPrior(prior *normal) bool {
	copy(w.m, prior.mu)
	if w.diag {
		for j := range w.p {
			w.p[j] = prior.prec[j*w.k+j]
		}
	} else {
		copy(w.p, prior.prec)
	}
	return w.factor()
}

// stateLen returns the number of floats that save uses for K topics.
func stateLen(k int, diag bool) int {
	if diag {
		return 2 * k
	}
	return k + k*(k+1)/2
}

// save stores m and P in state, and load reads them.
func (w *work) save(state []float64) {
	state = state[copy(state, w.m):]
	if w.diag {
		copy(state, w.p)
		return
	}
	for i := range w.k {
		state = state[copy(state, w.p[i*w.k:i*w.k+i+1]):]
	}
}

func (w *work) load(state []float64) bool {
	k := w.k
	state = state[copy(w.m, state[:k]):]
	if w.diag {
		copy(w.p, state)
		return w.factor()
	}
	for i := range k {
		state = state[copy(w.p[i*k:i*k+i+1], state):]
	}
	return w.factor()
}

// factor computes l from p and reports whether p is positive definite.
func (w *work) factor() bool {
	if w.diag {
		for j, p := range w.p {
			if !(p > 0) || math.IsInf(p, 0) {
				return false
			}
			w.l[j] = math.Sqrt(p)
		}
		return true
	}
	copy(w.l, w.p)
	if !dense.Cholesky(w.l, w.k) {
		return false
	}
	w.logDet = dense.LogDet(w.l, w.k)
	return true
}

// invert computes v, both triangles, from l.
func (w *work) invert() {
	if w.diag {
		for j, p := range w.p {
			w.v[j] = 1 / p
		}
		return
	}
	copy(w.v, w.l)
	dense.Invert(w.v, w.k)
}

// cov returns element (i, j) of V.
func (w *work) cov(i, j int) float64 {
	switch {
	case !w.diag:
		return w.v[i*w.k+j]
	case i == j:
		return w.v[i]
	}
	return 0
}

// at stores the point m + L⁻ᵀε in z, and L⁻ᵀε in off.
func (w *work) at(z, eps []float64) {
	if w.diag {
		for j, x := range eps {
			w.off[j] = x / w.l[j]
		}
	} else {
		copy(w.off, eps)
		dense.Trsv(blas.Trans, dense.LowerTriangle(w.l, w.k), dense.Vector(w.off))
	}
	floats.AddTo(z, w.m, w.off)
}

// softmax replaces z by e^{z − max z}, stores the softmax in pi, and returns
// max z and the sum of z then.
func softmax(pi, z []float64) (top, sum float64) {
	top = floats.Max(z)
	floats.AddConst(-top, z)
	fma.Exp(z)
	sum = floats.Sum(z)
	for j, e := range z {
		pi[j] = e / sum
	}
	return top, sum
}

// wanted lists the results that expect computes.
type wanted int

const (
	wantGrad  wanted = 1 << iota // grad and hess
	wantValue                    // value and variance
	wantStat                     // y_v E[ρ_vk]
)

const (
	together = 4 // points at a time, as many as products of matrices have rows in registers
	// Least Σ_k β_kv e^{z_k}, e^{z_k} being at most 1, that a word counts in derivatives with: its
	// square does not overflow.
	leastSum = 1e-150
)

// expect computes the wanted ones of the expectations of f, ∇f and ∇²f, and stores y_v E[ρ_vk] in
// stat, word by word.
//
// With e = e^z, s_v = Σ_k β_kv e_k and the weight w of a point, they are sums of
//
//	wρᵀy           = e∘Bᵀ(wy/s)
//	wρᵀdiag(y)ρ    = diag(e) Bᵀdiag(wy/s²)B diag(e)
//	wy_vρ_vk       = β_kv (wy_v/s_v) e_k
//
// B is the same for all points and is packed once.
func (w *work) expect(want wanted, stat []float64) {
	k, n := w.k, w.n
	w.draw()
	w.value, w.variance = 0, 0
	if want&wantGrad != 0 {
		clear(w.grad)
		clear(w.hess)
		clear(w.flat)
		clear(w.bend)
	}
	if want&wantStat != 0 {
		w.share = dense.Resize(w.share, w.byWord.Len(n))
		clear(w.share)
	}
	points := len(w.weight)
	var pair, square float64
	for lo := 0; lo < points; lo += together {
		values := w.points(want, lo, min(points, lo+together))
		for i := lo; i < min(points, lo+together); i++ {
			value := values[i-lo]
			w.value += w.weight[i] * value
			if pair += value / 2; i%2 == 1 {
				square += pair * pair
				pair = 0
			}
		}
	}
	if want&wantStat != 0 {
		for v := range n {
			share := w.share[v*w.byWord.Stride():][:k]
			row, b := stat[v*k:(v+1)*k], w.b[v*k:(v+1)*k]
			for j, x := range share {
				row[j] = b[j] * x
			}
		}
	}
	switch pairs := float64(points / 2); w.opt.Expectation {
	case Antithetic, Quasi:
		if pairs > 1 {
			w.variance = max(0, square/pairs-w.value*w.value) / (pairs - 1)
		}
	case Delta, Laplace:
		w.secondOrder(want)
	}
}

// points evaluates the points lo … hi−1, at most together of them. It adds their parts of grad,
// hess and share, and returns the values of f.
func (w *work) points(want wanted, lo, hi int) (values [together]float64) {
	k, n, rows := w.k, w.n, hi-lo
	clear(w.e)
	for i := range rows {
		e := w.e[i*k : (i+1)*k]
		if i%2 == 1 && w.opt.paired() { // −ε of the point before
			for j, z := range w.off {
				e[j] = w.m[j] - z
			}
		} else {
			w.at(e, w.eps[(lo+i)*k:(lo+i+1)*k])
		}
		if w.opt.Expectation == MeanField {
			for j, m := range e {
				w.z[j] = m + 0.5/w.p[j]
			}
			top, sum := softmax(w.pi, w.z)
			values[i] = -w.tokens * (top + math.Log(sum))
			top, _ = softmax(w.z, e)
			values[i] += w.tokens * top
		} else {
			_, sum := softmax(w.pi, e)
			values[i] = -w.tokens * math.Log(sum)
		}
		if want&wantGrad != 0 {
			w.addNormalizer(w.weight[lo+i] * w.tokens)
		}
	}
	points, stride := fma.Of(w.e, rows, k, k), w.byTopic.Stride()
	w.s = dense.Resize(w.s, w.byTopic.Len(rows))
	clear(w.s)
	w.byTopic.Mul(points, w.s)
	if want&wantValue != 0 {
		for i := range rows {
			for v, s := range w.s[i*stride : i*stride+n] {
				values[i] += w.y[v] * math.Log(s)
			}
		}
	}
	if want&(wantGrad|wantStat) == 0 {
		return values
	}
	w.t, w.t2 = dense.Resize(w.t, rows*n), dense.Resize(w.t2, rows*n)
	for i := range rows {
		t, t2 := w.t[i*n:(i+1)*n], w.t2[i*n:(i+1)*n]
		fma.Ratios(t, t2, w.y, w.s[i*stride:], w.weight[lo+i], leastSum)
	}
	if want&wantStat != 0 {
		w.byPoint.Set(points)
		w.byPoint.Mul(fma.Of(w.t, rows, n, n).T(), w.share)
	}
	if want&wantGrad != 0 {
		stride := w.byWord.Stride()
		w.first = dense.Resize(w.first, w.byWord.Len(rows))
		clear(w.first)
		w.byWord.Mul(fma.Of(w.t, rows, n, n), w.first)
		w.second = dense.Resize(w.second, w.byWord.Len(rows))
		if w.diag && w.bend == nil {
			clear(w.second)
			w.squares.Mul(fma.Of(w.t2, rows, n, n), w.second)
		}
		for i := range rows {
			w.addWords(w.e[i*k:(i+1)*k], w.first[i*stride:], w.second[i*stride:], w.t2[i*n:(i+1)*n])
		}
	}
	return values
}

// addNormalizer adds the derivatives of −c log Σ_k e^{z_k} at the softmax in pi to grad, hess and
// flat.
func (w *work) addNormalizer(c float64) {
	k := w.k
	for j, p := range w.pi {
		w.grad[j] -= c * p
		if w.flat != nil {
			row := w.flat[j*k : j*k+j+1]
			for i := range row {
				row[i] -= c * p * w.pi[i]
			}
			row[j] += c * p
		}
		switch {
		case w.opt.Expectation == MeanField:
			w.hess[j] -= c * p
		case w.diag:
			w.hess[j] -= c * (p - p*p)
		default:
			row := w.hess[j*k : j*k+j+1]
			for i := range row {
				row[i] += c * p * w.pi[i]
			}
			row[j] -= c * p
		}
	}
}

// addWords adds to grad and hess, or bend, what the words have at the point whose e^z is e: first
// is Bᵀ(wy/s), second its like of squares, and t2 is wy/s².
func (w *work) addWords(e, first, second, t2 []float64) {
	k := w.k
	for j, x := range e {
		w.grad[j] += x * first[j]
	}
	to := w.hess
	switch {
	case w.bend != nil:
		to = w.bend
	case w.diag:
		for j, x := range e {
			w.hess[j] += x*first[j] - x*x*second[j]
		}
		return
	}
	w.gram = dense.Resize(w.gram, w.byWord.Len(k))
	clear(w.gram)
	w.byWord.Gram(t2, w.gram)
	stride := w.byWord.Stride()
	for j, x := range e {
		row, gram := to[j*k:j*k+j+1], w.gram[j*stride:j*stride+j+1]
		for i, g := range gram {
			row[i] -= x * e[i] * g
		}
		row[j] += x * first[j]
	}
}

// secondOrder adds ½ tr(hess V) to value. For Delta, whose hess is the Hessian of −W log Σ_k
// e^{z_k}, it also adds the gradient to grad:
//
//	∂/∂z_j tr(∇² log Σ_k e^{z_k} V) = π_j (V_jj − Σ_k π_k V_kk − 2(Vπ)_j + 2πᵀVπ).
func (w *work) secondOrder(want wanted) {
	if want&wantGrad == 0 {
		return
	}
	k := w.k
	w.invert()
	for i := range k {
		if w.diag {
			w.value += 0.5 * w.hess[i] * w.v[i]
			continue
		}
		w.value += floats.Dot(w.hess[i*k:i*k+i], w.v[i*k:i*k+i])
		w.value += 0.5 * w.hess[i*k+i] * w.v[i*k+i]
	}
	if w.opt.Expectation != Delta {
		return
	}
	var mean, form float64
	for i, p := range w.pi {
		mean += p * w.cov(i, i)
		w.z[i] = 0 // (Vπ)_i
		for j, o := range w.pi {
			w.z[i] += w.cov(i, j) * o
		}
		form += p * w.z[i]
	}
	for j, p := range w.pi {
		w.grad[j] -= 0.5 * w.tokens * p * (w.cov(j, j) - mean - 2*w.z[j] + 2*form)
	}
}

// move takes the proximal step of length t = β/(1+β) from q_k,
//
//	argmin_q −⟨∇E[f], q⟩ + KL(q‖N(μ, Σ)) + KL(q‖q_k)/β
//
// with E[f] linearized in the mean parameters (m, V + mmᵀ), and changed so that V⁻¹ stays
// positive definite:
//
//	D    = t (Σ⁻¹ − E[∇²f] − V⁻¹)
//	V⁻¹ ← V⁻¹ + D + ½ D V D
//	m   ← m + t V (Σ⁻¹(μ−m) + E[∇f])      with the new V
//
// Without ½DVD this is the minimizer (Khan et al., 2016, main text, for the full V). With it V⁻¹
// is positive definite for any D (Lin, Schmidt and Khan, 2020). If V is diagonal, D uses the
// diagonals of Σ⁻¹ and E[∇²f].
//
// The E[∇²f] of Delta and MeanField contains no words. V is then far too small a metric for m if
// there are many words, and would need about W/K steps, so m takes the Newton step of curve
// instead.
//
// move returns the distance that q moved, about twice the root of the KL divergence in nats. It
// reports false if rounding makes the new V⁻¹ invalid; q is then undefined.
func (w *work) move(prior *normal, t float64) (moved float64, ok bool) {
	k := w.k
	w.force(prior)
	var trace float64
	if w.diag {
		for j, p := range w.p {
			d := t * (prior.prec[j*k+j] - w.hess[j] - p)
			trace += d / p * (d / p)
			w.p[j] = p + d + 0.5*d*d/p
		}
	} else {
		// With A = P + D the new P is ½(P + A V A) = ½(P + XᵀX), X = L⁻¹A.
		for i := range k {
			for j := range i + 1 {
				a := (1-t)*w.p[i*k+j] + t*(prior.prec[i*k+j]-w.hess[i*k+j])
				w.full[i*k+j], w.full[j*k+i] = a, a
			}
		}
		l := dense.LowerTriangle(w.l, k)
		dense.Trsm(blas.Left, blas.NoTrans, 1, l, dense.General(w.full, k, k))
		w.moved.Set(fma.Of(w.full, k, k, k))
		w.gram = dense.Resize(w.gram, w.moved.Len(k))
		clear(w.gram)
		w.moved.Gram(w.halves, w.gram)
		for i := range k {
			row := w.p[i*k : i*k+i+1]
			for j, g := range w.gram[i*w.moved.Stride():][:i+1] {
				row[j] = 0.5*row[j] + g
			}
		}
		before := w.logDet
		if !w.factor() {
			return 0, false
		}
		d := w.logDet - before
		trace = d * d
	}
	if w.diag && !w.factor() {
		return 0, false
	}
	var shift float64
	if w.swings() {
		if !w.curve(prior) {
			return 0, false
		}
		floats.Scale(t, w.step)
		shift = w.length()
	} else if w.diag {
		for j, g := range w.step {
			w.step[j] = t * g / w.p[j]
			shift += w.step[j] * w.step[j] * w.p[j]
		}
	} else {
		l := dense.LowerTriangle(w.l, k)
		dense.Trsv(blas.NoTrans, l, dense.Vector(w.step))
		shift = t * t * floats.Dot(w.step, w.step)
		dense.Trsv(blas.Trans, l, dense.Vector(w.step))
		floats.Scale(t, w.step)
	}
	floats.Add(w.m, w.step)
	_, ok = dense.AllFinite(w.m)
	return math.Sqrt(shift + trace), ok
}

// curve replaces the force in step by Newton's step,
//
//	(Σ⁻¹ − ∇²f)⁻¹ (Σ⁻¹(μ−m) + E[∇f]).
//
// It reduces the positive part of ∇²f that comes from the words until the matrix is positive
// definite, and limits the step to farthest.
func (w *work) curve(prior *normal) bool {
	for part := 1.0; ; part /= 2 { // ends at part = 0
		if part < leastPart {
			part = 0
		}
		for i := range w.k {
			for j := range i + 1 {
				at := i*w.k + j
				w.full[at] = prior.prec[at] + w.flat[at] - part*w.bend[at]
			}
		}
		if dense.Cholesky(w.full, w.k) {
			break
		}
		if part == 0 {
			return false
		}
	}
	dense.Potrs(w.full, w.step)
	var most float64
	for _, d := range w.step {
		most = max(most, math.Abs(d))
	}
	if most > farthest {
		floats.Scale(farthest/most, w.step)
	}
	return true
}

// length returns stepᵀ P step.
func (w *work) length() (s float64) {
	if w.diag {
		for j, d := range w.step {
			s += d * d * w.p[j]
		}
		return s
	}
	copy(w.z, w.step)
	dense.Trmv(blas.Trans, dense.LowerTriangle(w.l, w.k), dense.Vector(w.z))
	return floats.Dot(w.z, w.z)
}

// force stores Σ⁻¹(μ−m) + E[∇f] in step, and in along the product of that with the
// step before.
func (w *work) force(prior *normal) {
	for j, m := range w.m {
		w.z[j] = prior.mu[j] - m
	}
	w.along = 0
	for j, before := range w.step {
		w.step[j] = w.grad[j] + floats.Dot(prior.prec[j*w.k:(j+1)*w.k], w.z)
		w.along += before * w.step[j]
	}
}

// movePaper takes the proximal step in (m, V) of Khan et al. (2016, appendix) from q_k:
//
//	argmin_{m,V} −mᵀE[∇f] − ½tr(V E[∇²f]) + KL(q‖N(μ, Σ)) + KL(q‖q_k)/β
//
// With t = β/(1+β) and r = 1 − t it is
//
//	V⁻¹ ← rV⁻¹ + t(Σ⁻¹ − E[∇²f])
//	m   ← m + t [tΣ⁻¹ + rV⁻¹]⁻¹ (Σ⁻¹(μ−m) + E[∇f])     with the old V
//
// If V is diagonal, the first line uses the diagonals of Σ⁻¹ and E[∇²f], and the second line the
// full matrices. movePaper reports false if V⁻¹ would not be positive definite; q is then
// undefined.
func (w *work) movePaper(prior *normal, t float64) bool {
	k := w.k
	w.force(prior)
	metric := w.full // tΣ⁻¹ + rV⁻¹
	for i := range k {
		for j := range i + 1 {
			metric[i*k+j] = t * prior.prec[i*k+j]
		}
	}
	if w.diag {
		for j := range k {
			metric[j*k+j] += (1 - t) * w.p[j]
			w.p[j] = metric[j*k+j] - t*w.hess[j]
		}
	} else {
		for i := range k {
			for j := range i + 1 {
				metric[i*k+j] += (1 - t) * w.p[i*k+j]
				w.p[i*k+j] = metric[i*k+j] - t*w.hess[i*k+j]
			}
		}
	}
	if !dense.Cholesky(metric, k) {
		return false
	}
	dense.Potrs(metric, w.step)
	floats.AddScaled(w.m, t, w.step)
	_, ok := dense.AllFinite(w.m)
	return ok && w.factor()
}

// Distances that a step of an E-step without randomness may still move q.
const (
	settledDistance = 1e-7 // distance at which the E-step of one document ends
	visitDistance   = 1e-4 // distance at which a visit ends, about 1e-8 nats; the next visit continues from there
)

// tolerance returns the distance below which ascend stops early: none where steps are random.
func (w *work) tolerance() float64 {
	if w.opt.Expectation.MonteCarlo() && !w.fixed {
		return 0
	}
	return visitDistance
}

// ascend takes the steps of one visit, each of length t, toward
//
//	argmax_{m,V} E_q[f] − KL(q‖N(μ, Σ))
//
// and ends early if a step moves q by less than tol. While q still moves far it continues, up to
// 100 steps: at the first visit of a long document ½DVD is large, P overshoots, and then falls by
// a constant factor per step.
//
// With Delta and MeanField, whose metric of m is not V, steps may oscillate. A step that
// overshoots shortens the next ones, and others lengthen them again.
//
// If q has not settled, short estimates the distance from the maximum in nats: a step that moves
// q by d gains d²/2, and the following steps fall by a constant factor. The error wraps
// ErrNotPosDef.
func (w *work) ascend(prior *normal, steps int, t, tol float64) error {
	last, whole := math.Inf(1), t
	swings := w.swings()
	plain := w.opt.Paper && !w.opt.Scaled
	clear(w.step)
	w.short = 0
	var ratio float64
	for i := range max(steps, mostSteps) {
		if i >= steps && (plain || last < restless*float64(w.k)) {
			break
		}
		w.expect(wantGrad, nil)
		var moved float64
		var ok bool
		if plain {
			moved, ok = math.Inf(1), w.movePaper(prior, t)
		} else {
			moved, ok = w.move(prior, t)
		}
		if !ok {
			advice := "use a smaller step size, or fewer words of a kind"
			if plain {
				advice = "leave out CTMOptions.Paper"
			}
			return fmt.Errorf("precision of q after a step of length %.3g; %s: %w",
				t, advice, sentinel.ErrNotPosDef)
		}
		moved *= whole / t
		if moved < tol {
			w.short = 0
			break
		}
		if tol > 0 {
			ratio = min(max(moved/last, leastRatio), mostRatio)
			w.short = moved * moved / 2 * ratio / (1 - ratio)
		}
		if swings && w.along < 0 {
			t = max(shorten*t, shortest*whole)
		} else {
			t = min(lengthen*t, whole)
		}
		last = moved
	}
	return nil
}

// kl returns KL(q‖prior) in nats.
func (w *work) kl(prior *normal) float64 {
	k := w.k
	w.invert()
	s := -float64(k) + prior.logDet
	for i := range k {
		w.z[i] = w.m[i] - prior.mu[i]
		if w.diag {
			s += prior.prec[i*k+i]*w.v[i] + math.Log(w.p[i])
		} else {
			s += floats.Dot(prior.prec[i*k:(i+1)*k], w.v[i*k:(i+1)*k])
		}
	}
	if !w.diag {
		s += w.logDet
	}
	for i, d := range w.z {
		s += d * floats.Dot(prior.prec[i*k:(i+1)*k], w.z)
	}
	return max(0, 0.5*s)
}

// shortfall returns about how many nats m has still to gain: ½ gᵀM⁻¹g with the force g and its
// metric M.
func (w *work) shortfall(prior *normal) float64 {
	w.expect(wantGrad, nil)
	w.force(prior)
	if w.swings() {
		force := w.e[:w.k]
		copy(force, w.step)
		if !w.curve(prior) {
			return math.Inf(1)
		}
		return 0.5 * floats.Dot(force, w.step)
	}
	if w.diag {
		var s float64
		for j, g := range w.step {
			s += g * g / w.p[j]
		}
		return 0.5 * s
	}
	dense.Trsv(blas.NoTrans, dense.LowerTriangle(w.l, w.k), dense.Vector(w.step))
	return 0.5 * floats.Dot(w.step, w.step)
}

// elbo returns the term of the ELBO and its variance as an estimate.
func (w *work) elbo(prior *normal) (value, variance float64) {
	want := wantValue
	if w.opt.Expectation == Delta || w.opt.Expectation == Laplace {
		want |= wantGrad
	}
	w.expect(want, nil)
	value, variance = w.value, w.variance
	return value - w.kl(prior), variance
}
