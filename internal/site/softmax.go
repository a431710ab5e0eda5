package site

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
)

// This file fits linear softmax models. softmaxBase is their base, and SoftmaxAlgebra their
// Algebra; the softmax GLMs of the root package and of package learn use it. The other files
// softmax_*.go hold the aim of the means, Newton's steps of the precisions, the first step, the
// proof, the estimate of slow runs and the case of two classes. Read the comment of softmaxBase
// first.

// softmaxBase is the base of a linear softmax model of K scores, in which only differences of scores
// count: η_nc = x_nᵀw_c, with independent weights w_c ~ N(μ_c, P_c⁻¹), Σ_c μ_c = 0, and the prior
// N(0, Λ⁻¹) of each. The KL divergence counts only contrasts, the differences of the weights
// between classes (softmaxBase mean field):
//
//	2 KL = (1 − 1/K) Σ_c tr ΛP_c⁻¹ + Σ_c μ_cᵀΛμ_c − (K − 1)D
//	       + Σ_c log|P_c| − log|Σ_c P_c| − (K − 1) log|Λ| + D log K.
//
// For given sites the best P_c solve
//
//	P_c = A_c + P_c(Σ_j P_j)⁻¹P_c,   A_c = (1 − 1/K)Λ + XᵀΓ_cX,
//
// and the best means solve (Λ + XᵀΓ_cX)μ_c = Xᵀb_c − λ, with the λ for which Σ_c μ_c = 0. Two
// classes are the logit of w_1 − w_0, with twice the prior variance.
//
// Classes may have different Λ_c. The prior of the contrasts is then the prior of all weights
// with a shift of all classes integrated out: (1 − 1/K)Λ becomes Λ_c − Λ_c²(ΣΛ)⁻¹, (K − 1) log|Λ|
// − D log K becomes Σ log|Λ_c| − log|ΣΛ|, and the means satisfy Σ_c Λ_cμ_c = 0.
type softmaxBase struct {
	x     *design.Matrix
	k     int
	prec  []float64 // Λ_c of all classes
	share []float64 // λ_c/Σλ of each class
	gauge []float64 // K·share; nil means ones
	prior float64   // log-determinant of the prior precision of the contrasts
	crew  term.Crew
	of    *BaseAlgebra
	moved bool    // cur is the current state
	warm  bool    // cur.p is a starting point for P
	gap   float64 // predicted gain of the last state that has one
	due   float64 // gap of the next proof
	check float64 // gap of the next check of the precisions
	// cur was read from a file
	resumed bool

	cur, try softmaxState

	grams, p, next, z []float64 // A_c, P_c, the image of P_c under a round, and a mixture
	mixed, w          []float64 // lower triangles of the mixture, and the weights of entries
	sum               []float64 // ΣP_c, and its factor
	mix               accel.Anderson
	own               []softmaxWork // scratch of goroutines
	size              int           // length of softmaxWork.half
	loop              parallel.Loop
	values            []float64 // part of each class in log|C|/|V|

	aims   softmaxAim
	newton softmaxNewton
	sure   float64 // gain that the precisions of the current state miss, in nats; 0 means unknown
	trend  trend
	sharp  bool // rounds miss the solution, and Newton's steps follow them
	stuck  bool // the last step gained almost nothing of its predicted gain; see softmax_two.go
}

// softmaxState is the result of Cover.
type softmaxState struct {
	p        []float64 // P_c of all classes, full
	q        []float64 // (Λ + XᵀΓ_cX)⁻¹, full
	left     float64   // estimated gain that P misses, in nats
	lagrange []float64 // factor L of Σ_c q_c
	weight   []float64 // μ_c of all classes
}

// softmaxWork is the scratch of a goroutine.
type softmaxWork struct {
	design.Work
	col, half []float64
}

const (
	// contrastTol is the accuracy of P, relative to its diagonal. log|C|/|V| is exact for any P,
	// and has its minimum at the solution.
	contrastTol    = 1e-6
	contrastPart   = 1e-3 // part of the gap that P may miss
	contrastQuick  = 0.2  // decrease of the squared size of a round that needs no mixture
	contrastRounds = 12   // rounds from the last P
	contrastFirst  = 60   // rounds from the P of equal classes
)

// Memory of a contrast mean field: contrastMatrices D×D matrices per class, and ContrastVectors
// numbers per score.
const (
	contrastMatrices = 26
	ContrastVectors  = 70
)

// SoftmaxMemory returns the bytes of a contrast mean field of k scores of n rows and d weights.
func SoftmaxMemory(k, n, d int) float64 {
	return memory.Bytes(contrastMatrices*float64(k), d, d) +
		memory.Bytes(ContrastVectors*float64(k), 1, n) +
		memory.Bytes(softmaxProofSize(k, d), 1, 1)
}

// newSoftmaxBase returns the base of l at the prior.
func newSoftmaxBase(l *LinearModel) *softmaxBase {
	a := &softmaxBase{x: l.X, k: l.Terms.K, prec: l.Prior.Classes(l.Terms.K), due: contrastProof,
		check: contrastProof, size: l.X.Cols * l.X.Cols}
	a.share = make([]float64, len(a.prec))
	for i := range a.share {
		a.share[i] = 1 / float64(a.k)
	}
	if l.Prior.Each == nil {
		a.prior = a.priorLogDet()
		return a
	}
	d := a.x.Cols
	a.gauge = make([]float64, len(a.prec))
	total := a.total()
	for i, p := range a.prec {
		a.share[i] = p / total[i%d]
		a.gauge[i] = float64(a.k) * a.share[i]
	}
	a.prior = a.priorLogDet()
	return a
}

// Prior implements Base.
func (a *softmaxBase) Prior() (s term.Marginals) {
	n := a.x.Rows
	s.Resize(n * a.k)
	for _, x := range [][]float64{s.Gamma, s.A, s.M, s.E, s.Tg, s.D1} {
		clear(x)
	}
	v := make([]float64, n)
	for c := range a.k {
		if c == 0 || a.gauge != nil {
			a.reach(v, c)
		}
		for i, x := range v {
			s.V[i*a.k+c] = x
		}
	}
	return s
}

// total returns Σ_c Λ_c.
func (a *softmaxBase) total() []float64 {
	sum := make([]float64, a.x.Cols)
	for i, p := range a.prec {
		sum[i%len(sum)] += p
	}
	return sum
}

// lambda returns Λ_c and its share of ΣΛ.
func (a *softmaxBase) lambda(c int) (prec, share []float64) {
	d := a.x.Cols
	return a.prec[c*d : (c+1)*d], a.share[c*d : (c+1)*d]
}

// reach stores x_nᵀΛ_c⁻¹x_n of all rows in dst.
func (a *softmaxBase) reach(dst []float64, c int) {
	prec, _ := a.lambda(c)
	inv := make([]float64, len(prec))
	for j, l := range prec {
		inv[j] = 1 / l
	}
	a.x.QuadDiagOn(a.crew.Halt, dst, inv, nil)
}

// classOf stores the values of class c of x in dst. The vector x has K values per row.
func classOf(dst, x []float64, c int) []float64 {
	k := len(x) / len(dst)
	for i := range dst {
		dst[i] = x[i*k+c]
	}
	return dst
}

// each calls f for all classes on the workers. It returns false if a call does.
func (a *softmaxBase) each(f func(c int, s *softmaxWork) bool) bool {
	workers := 1
	if a.x.Shared(a.crew.Halt, a.k*a.x.Cols*a.x.Cols*max(a.x.Cols, 8)) {
		workers = min(a.crew.Halt.Workers(), a.k)
	}
	if len(a.own) < workers {
		a.own = append(a.own, make([]softmaxWork, workers-len(a.own))...)
	}
	for i := range a.own {
		a.own[i].col, a.own[i].half = dense.Resize(a.own[i].col, a.x.Rows),
			dense.Resize(a.own[i].half, a.size)
	}
	a.values = dense.Resize(a.values, a.k)
	failed := make([]bool, a.k)
	a.loop.Halt = a.crew.Halt
	a.loop.Run(a.k, 1, workers,
		parallel.Func(func(worker, c, _ int) { failed[c] = !f(c, &a.own[worker]) }))
	for _, no := range failed {
		if no {
			return false
		}
	}
	return !a.crew.Halt.Stopped()
}

// class returns the matrix of class c of x.
func (a *softmaxBase) class(x []float64, c int) []float64 {
	dd := a.x.Cols * a.x.Cols
	return x[c*dd : (c+1)*dd]
}

// Cover implements Mover.
func (a *softmaxBase) Cover(v, delta []float64) (logDet float64, ok bool) {
	d, k, t := a.x.Cols, a.k, &a.try
	dd := d * d
	dense.ResizeAll(k*dd, &a.grams, &a.p, &a.next, &a.z)
	dense.ResizeAll(k*d*(d+1)/2, &a.w, &a.mixed)
	dense.ResizeAll(k*dd, &t.p, &t.q)
	dense.ResizeAll(dd, &a.sum)
	dense.ResizeAll(dd, &t.lagrange)
	if !a.each(func(c int, s *softmaxWork) bool {
		g, q := a.class(a.grams, c), a.class(t.q, c)
		clear(g)
		a.x.AddGram(g, classOf(s.col, delta, c), nil, &s.Work)
		dense.FillUpper(g, d)
		copy(q, g)
		prec, share := a.lambda(c)
		for j, l := range prec {
			q[j*d+j] += l
			g[j*d+j] += (1 - share[j]) * l
		}
		if !dense.Cholesky(q, d) {
			return false
		}
		dense.Invert(q, d)
		return true
	}) {
		return 0, false
	}
	if !a.lagrange(t) || !a.solve() {
		return 0, false
	}
	copy(t.p, a.p)
	// The divergence is exact for any P.
	if !a.each(func(c int, s *softmaxWork) bool {
		l := s.half
		dense.CopyLower(nil, l, a.class(t.p, c), d)
		if !dense.Cholesky(l, d) {
			return false
		}
		sum := dense.LogDet(l, d)
		var inv []float64
		if a.x.Sparse != nil { // sparse rows also use the inverse
			inv = append(inv, l...)
			dense.Invert(inv, d)
		}
		a.x.Variances(s.col, l, inv, nil, &s.Work)
		for i, x := range s.col {
			v[i*k+c] = x
			sum += delta[i*k+c] * x
		}
		dense.InvertLower(nil, l, d)
		prec, share := a.lambda(c)
		for j, p := range prec { // tr ΛP⁻¹
			var x float64
			for i := j; i < d; i++ {
				x += l[i*d+j] * l[i*d+j]
			}
			sum += (1 - share[j]) * p * x
		}
		a.values[c] = sum
		return true
	}) {
		return 0, false
	}
	if !a.factorSum(t.p) {
		return 0, false
	}
	logDet = floats.Sum(a.values) - dense.LogDet(a.sum, d) - float64((k-1)*d) - a.prior
	return logDet, !math.IsNaN(logDet) && !a.crew.Halt.Stopped()
}

// solve computes the solution p of P_c = A_c + P_c(ΣP)⁻¹P_c, approximately, by rounds from the
// last P. If there is no last P or the rounds do not converge, it starts from the P of equal
// classes, because a P that is far too large in some direction takes very many rounds to return.
// If neither start converges, p is the best of both results and of one round from the last P.
// That is no worse than the last P, and small steps gain little.
//
// Two classes have A_0 = A_1 = A, and P_0 = P_1 = 2A is a solution. The other solutions share the
// covariance of w_1 − w_0 unequally. Rounds do not change P_1 − P_0, so rounding would accumulate
// in it.
func (a *softmaxBase) solve() bool {
	if a.k == 2 {
		half := len(a.p) / 2
		floats.AddTo(a.p[:half], a.grams[:half], a.grams[half:])
		copy(a.p[half:], a.p[:half])
		a.try.left = 0
		return true
	}
	if a.warm {
		copy(a.p, a.cur.p)
		done, ok := a.rounds(contrastRounds)
		if a.sharp && ok && a.polish() || done {
			return true
		}
	}
	least := math.Inf(1)
	keep := func() {
		if x := a.divergence(); x < least {
			least = x
			copy(a.try.p, a.p)
		}
	}
	if a.warm {
		keep()
		copy(a.p, a.cur.p)
		if a.rule() {
			copy(a.p, a.next)
			keep()
		}
	}
	if a.crew.Halt.Stopped() {
		return false
	}
	floats.ScaleTo(a.p, float64(a.k)/float64(a.k-1), a.grams)
	done, ok := a.rounds(contrastFirst)
	if done || !a.warm {
		return ok
	}
	if ok {
		keep()
	}
	copy(a.p, a.try.p)
	return !math.IsInf(least, 1)
}

// polish searches for a better p by Newton's steps. It returns false if a matrix is not positive
// definite.
func (a *softmaxBase) polish() bool {
	a.try.left = contrastPart * min(a.gap, contrastGoal)
	return !math.IsInf(a.search(a.try.left), 1)
}

// divergence returns the part of p in the negative ELBO, twice and up to a constant: Σ_c tr
// A_cP_c⁻¹ + log|P_c|, minus log|ΣP|. A round never raises it, because the last part is concave
// in the P_c⁻¹, and a round is the argmin of the rest and its tangent. It is +Inf if a P is not
// positive definite.
func (a *softmaxBase) divergence() float64 {
	d := a.x.Cols
	if !a.factorSum(a.p) || !a.each(func(c int, s *softmaxWork) bool {
		g := a.class(a.grams, c)
		dense.CopyLower(nil, s.half, a.class(a.p, c), d)
		if !dense.Cholesky(s.half, d) {
			return false
		}
		a.values[c] = dense.LogDet(s.half, d)
		dense.Invert(s.half, d)
		a.values[c] += floats.Dot(s.half, g)
		return true
	}) {
		return math.Inf(1)
	}
	return floats.Sum(a.values) - dense.LogDet(a.sum, d)
}

// rounds takes at most the given number of rounds from p to the solution. It reports whether p is
// close enough, and whether p is usable.
func (a *softmaxBase) rounds(most int) (done, ok bool) {
	d, k, scales := a.x.Cols, a.k, make([]float64, a.x.Cols)
	a.mix.Reset()
	before := 0.0
	for range most {
		if !a.rule() {
			return false, false
		}
		largest, square := 0.0, 0.0
		x, r := a.mix.Next(len(a.w), false)
		for c, at := 0, 0; c < k; c++ {
			p, q := a.class(a.p, c), a.class(a.next, c)
			for i := range d {
				scales[i] = 1 / math.Sqrt(q[i*d+i])
				for j := range i + 1 {
					scale, from, off := scales[i]*scales[j], p[i*d+j], q[i*d+j]-p[i*d+j]
					x[at], r[at], a.w[at] = from, off, scale
					if i != j { // off-diagonal entries count twice
						a.w[at] *= math.Sqrt2
					}
					off *= scale
					largest = max(largest, math.Abs(off))
					square += off * off
					at++
				}
			}
		}
		a.try.left = 0.5 * square
		if largest <= contrastTol || a.warm && a.try.left <= contrastPart*min(a.gap, 1) {
			copy(a.p, a.next)
			return true, true
		}
		quick := square < contrastQuick*before
		before = square
		if !quick && a.mix.Mix(a.mixed, a.w) && a.definite(a.unpack(a.z, a.mixed)) {
			copy(a.p, a.z)
		} else {
			copy(a.p, a.next)
		}
	}
	return false, true
}

// unpack stores the symmetric matrices of all classes in dst and returns it. Their lower
// triangles are in x, row by row.
func (a *softmaxBase) unpack(dst, x []float64) []float64 {
	d := a.x.Cols
	for c := range a.k {
		p := a.class(dst, c)
		for i := range d {
			x = x[copy(p[i*d:i*d+i+1], x):]
		}
		dense.FillUpper(p, d)
	}
	return dst
}

// definite reports whether all p are positive definite.
func (a *softmaxBase) definite(p []float64) bool {
	return a.each(func(c int, s *softmaxWork) bool {
		dense.CopyLower(nil, s.half, a.class(p, c), a.x.Cols)
		return dense.Cholesky(s.half, a.x.Cols)
	})
}

// addUp stores Σ_c p_c in sum.
func (a *softmaxBase) addUp(p []float64) {
	clear(a.sum)
	for c := range a.k {
		floats.Add(a.sum, a.class(p, c))
	}
}

// factorSum stores the factor of Σ_c p_c in sum. It returns false if there is no factor.
func (a *softmaxBase) factorSum(p []float64) bool {
	a.addUp(p)
	return dense.Cholesky(a.sum, a.x.Cols)
}

// rule stores A_c + P_c(ΣP)⁻¹P_c in next.
func (a *softmaxBase) rule() bool {
	d := a.x.Cols
	if !a.factorSum(a.p) {
		return false
	}
	return a.each(func(c int, s *softmaxWork) bool {
		next := a.class(a.next, c)
		copy(s.half, a.class(a.p, c))
		dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(a.sum, d),
			dense.General(s.half, d, d))
		copy(next, a.class(a.grams, c))
		dense.Syrk(blas.Trans, 1, dense.General(s.half, d, d), 1,
			blas64.Symmetric{N: d, Stride: d, Data: next, Uplo: blas.Lower})
		dense.FillUpper(next, d)
		return true
	})
}

// priorLogDet returns the log-determinant of the prior precision of the contrasts.
func (a *softmaxBase) priorLogDet() (sum float64) {
	d := a.x.Cols
	if a.gauge == nil {
		for _, l := range a.prec[:d] {
			sum += float64(a.k-1) * math.Log(l)
		}
		return sum - float64(d)*math.Log(float64(a.k))
	}
	for _, l := range a.prec {
		sum += math.Log(l)
	}
	for _, l := range a.total() {
		sum -= math.Log(l)
	}
	return sum
}

// restrict replaces r of all classes by the solution of (Λ_c + XᵀΓ_cX)w_c = r_c − g_cλ with Σ_c
// g_cw_c = 0, where g is the gauge. The scratch w has the length of r.
func (t *softmaxState) restrict(r, w, gauge []float64, d int) {
	k := len(r) / d
	sum := make([]float64, d)
	for c := range k {
		wc := w[c*d : (c+1)*d]
		dense.Gemv(blas.NoTrans, 1, dense.General(t.q[c*d*d:(c+1)*d*d], d, d),
			dense.Vector(r[c*d:(c+1)*d]), 0, dense.Vector(wc))
		if gauge == nil {
			floats.Add(sum, wc)
			continue
		}
		for j, x := range wc {
			sum[j] += gauge[c*d+j] * x
		}
	}
	dense.Potrs(t.lagrange, sum)
	own := sum
	for c := range k {
		if gauge != nil {
			own = floats.MulTo(r[c*d:(c+1)*d], sum, gauge[c*d:(c+1)*d])
		}
		dense.Gemv(blas.NoTrans, -1, dense.General(t.q[c*d*d:(c+1)*d*d], d, d), dense.Vector(own),
			1, dense.Vector(w[c*d:(c+1)*d]))
	}
	copy(r, w)
}

// gather stores Xᵀu_c of all classes in r, class by class.
func (a *softmaxBase) gather(r, u []float64) {
	n, d, k := a.x.Rows, a.x.Cols, a.k
	if a.x.Sparse == nil {
		dense.Gemm(blas.Trans, blas.NoTrans, 1, dense.General(u, n, k),
			dense.General(a.x.Dense, n, d), 0, dense.General(r, k, d))
		return
	}
	clear(r)
	for i := range n {
		ind, val := a.x.Row(i)
		for c, x := range u[i*k : (i+1)*k] {
			to := r[c*d : (c+1)*d]
			for l, j := range ind {
				to[j] += x * val[l]
			}
		}
	}
}

// spread stores Xw_c of all classes in eta.
func (a *softmaxBase) spread(eta, w []float64) {
	n, d, k := a.x.Rows, a.x.Cols, a.k
	if a.x.Sparse == nil {
		dense.Gemm(blas.NoTrans, blas.Trans, 1, dense.General(a.x.Dense, n, d),
			dense.General(w, k, d), 0, dense.General(eta, n, k))
		return
	}
	for i := range n {
		ind, val := a.x.Row(i)
		for c := range k {
			from, sum := w[c*d:(c+1)*d], 0.0
			for l, j := range ind {
				sum += val[l] * from[j]
			}
			eta[i*k+c] = sum
		}
	}
}

// Move implements Mover.
func (a *softmaxBase) Move(d, delta, u []float64) (square float64) {
	t, cols := &a.try, a.x.Cols
	t.weight = dense.Resize(t.weight, a.k*cols)
	a.aims.pre = dense.Resize(a.aims.pre, a.k*cols)
	a.gather(t.weight, u)
	t.restrict(t.weight, a.aims.pre, a.gauge, cols)
	a.spread(d, t.weight)
	for i, w := range t.weight {
		square += a.prec[i] * w * w
	}
	for i, x := range d {
		u[i] -= delta[i] * x
	}
	return square
}

// Accept implements Mover.
func (a *softmaxBase) Accept() {
	a.cur, a.try = a.try, a.cur
	a.moved, a.warm, a.sure = true, true, 0
}

// use, restart, start, follow, stale, settled, save and resume implement keeper. P is saved,
// because its accuracy depends on the rounds from the P before it.
func (a *softmaxBase) use(c term.Crew)            { a.crew = c }
func (a *softmaxBase) restart()                   { a.moved = false }
func (a *softmaxBase) start()                     {}
func (a *softmaxBase) follow() (distance float64) { return math.NaN() }
func (a *softmaxBase) stale()                     {}
func (a *softmaxBase) settled() bool              { return true }

func (a *softmaxBase) save(c *save.Coder) {
	c.Bool(&a.warm, &a.moved, &a.sharp, &a.stuck)
	c.Float(&a.gap, &a.due, &a.check, &a.sure)
	a.aims.save(c, a.of.Batch.aimed)
	a.trend.state(c)
	if a.warm {
		c.Floats(a.k*a.x.Cols*a.x.Cols, &a.cur.p)
	}
	if a.moved {
		c.Floats(a.k*a.x.Cols, &a.cur.weight)
		c.Float(&a.cur.left)
	}
	if c.Reading() {
		a.resumed, a.moved = a.moved, false
	}
}

func (a *softmaxBase) resume(gamma []float64) {
	d, t := a.x.Cols, &a.cur
	if !a.resumed {
		return
	}
	t.q, t.lagrange = dense.Resize(t.q, a.k*d*d), dense.Resize(t.lagrange, d*d)
	ok := a.each(func(c int, s *softmaxWork) bool {
		q := a.class(t.q, c)
		if !a.factor(q, c, gamma, s) {
			return false
		}
		dense.Invert(q, d)
		return true
	})
	a.resumed, a.moved = false, ok && a.lagrange(t)
}

// factor stores the Cholesky factor of Λ_c + XᵀΓ_cX in q. It returns false if there is no factor.
func (a *softmaxBase) factor(q []float64, c int, gamma []float64, s *softmaxWork) bool {
	clear(q)
	a.x.AddGram(q, classOf(s.col, gamma, c), nil, &s.Work)
	prec, _ := a.lambda(c)
	for j, l := range prec {
		q[j*a.x.Cols+j] += l
	}
	return dense.Cholesky(q, a.x.Cols)
}

// lagrange computes the factor of Σ_c g_cq_cg_c for t, where g is the gauge. It returns false if
// there is no factor.
func (a *softmaxBase) lagrange(t *softmaxState) bool {
	clear(t.lagrange)
	d := a.x.Cols
	for c := range a.k {
		q := a.class(t.q, c)
		if a.gauge == nil {
			floats.Add(t.lagrange, q)
			continue
		}
		g := a.gauge[c*d : (c+1)*d]
		for i, x := range q {
			t.lagrange[i] += g[i/d] * x * g[i%d]
		}
	}
	return dense.Cholesky(t.lagrange, d)
}

// ready and decrement implement prover; see softmax_proof.go. The predicted gain of the mean
// comes from the aim. The predicted gain of the precisions comes from their sites, or from
// Newton's steps if these were taken.
func (a *softmaxBase) ready() (bool, error) { return true, nil }

func (a *softmaxBase) decrement() float64 {
	if p := &a.of.Batch; a.of.Batched && p.aim() {
		change := p.Cur.Change()
		a.gap = a.aims.promise + max(a.sure, 0.25*change.Square()+a.cur.left)
		return a.gap
	}
	return math.Inf(1)
}

var (
	_ Base   = (*softmaxBase)(nil)
	_ keeper = (*softmaxBase)(nil)
	_ prover = (*softmaxBase)(nil)
	_ aimer  = (*softmaxBase)(nil)

	_ reacher = (*softmaxBase)(nil)
)

// SoftmaxAlgebra is the Algebra of a linear softmax model, by contrast mean field.
//
// Few rows of many columns are fitted over the span of the rows, because a step costs KD³. In all
// other directions P_c stays at Λ: there A_c = (1 − 1/K)Λ, and P_c = Λ solves P_c = A_c +
// P_c(ΣP)⁻¹P_c if all classes have the same Λ.
type SoftmaxAlgebra struct {
	BaseAlgebra
	mover  *softmaxBase
	whole  *LinearModel
	basis  []dense.Double // rows of Q if mover is over the span: w_c = Λ^−½Qᵀu_c
	blocks []gauss.Block  // the weights of whole replace the effects of these; see softmax_groups.go
}

// NewSoftmaxAlgebra returns the prior of l, which has terms of K latent values and a prior that is
// diagonal except for effects of groups.
func NewSoftmaxAlgebra(l *LinearModel, workers term.Crew) (*SoftmaxAlgebra, error) {
	l, blocks := l.whitened()
	s, own := &SoftmaxAlgebra{whole: l, blocks: blocks}, l
	if l.Prior.Each == nil && l.Prior.Full == nil && spanPays(l.X.Rows, l.X.Cols) {
		var err error
		gamma := slices.Repeat([]float64{1}, l.X.Rows)
		if own, s.basis, err = l.inSpan(gamma, workers.Halt); err != nil {
			return s, err
		}
	}
	a := newSoftmaxBase(own)
	s.mover, a.of = a, &s.BaseAlgebra
	return s, s.begin(l.Terms, a, workers)
}

// contrastGoal is the gap, in nats, at which a run without a goal ends. No mean is then more than
// √(4·10⁻⁶) = 0.002 standard deviations from the optimum. Two classes have the goal of the
// equivalent logit.
const contrastGoal = 2e-6

// Evaluate implements Algebra.
func (s *SoftmaxAlgebra) Evaluate(within float64) (siteEvaluation, error) {
	e, err := s.BaseAlgebra.Evaluate(within)
	e.Gap = max(e.Gap, s.mover.trend.left(e.ELBO))
	if s.Terms.K > 2 {
		e.Goal = contrastGoal
	}
	return e, err
}

// Wider implements Algebra. The gap bound holds for any covariance of the contrasts.
func (s *SoftmaxAlgebra) Wider() bool { return true }

// Weights implements Weighted. It returns the means of the weights, class by class, with a sum of
// 0 over the classes, and a *gauss.Contrasts.
func (s *SoftmaxAlgebra) Weights() ([]float64, gauss.Cov, error) {
	if err := s.Refresh(); err != nil {
		return nil, nil, err
	}
	a, d := s.mover, s.whole.X.Cols
	mean, cov, prior := make([]float64, a.k*d), &gauss.Contrasts{}, s.whole.Prior.Classes(a.k)
	for c := range a.k {
		w := &gauss.Gaussian{}
		w.Resize(d)
		switch {
		case !a.moved || s.basis != nil:
			clear(w.P)
			for j := range d {
				w.P[j*d+j] = prior[c*d+j]
			}
			if a.moved {
				s.leave(mean[c*d:(c+1)*d], w.P, c)
			}
		default:
			copy(w.P, a.class(a.cur.p, c))
			copy(mean[c*d:(c+1)*d], a.cur.weight[c*d:])
		}
		if s.blocks != nil {
			unwhiten(s.blocks, mean[c*d:(c+1)*d], w.P)
		}
		if err := cov.Add(w); err != nil {
			return nil, nil, err
		}
		if s.Workers.Halt.Stopped() {
			return nil, nil, s.Workers.Halt.Err()
		}
	}
	if a.moved && a.gauge != nil {
		cov.Centre(mean)
	}
	return mean, cov, nil
}

// leave computes the mean of the weights of class c from the mean over the span of the rows, and
// adds RQᵀ(P_c − I)QRᵀ to p. Here RRᵀ = Λ, and P_c is the precision over the span.
func (s *SoftmaxAlgebra) leave(mean, p []float64, c int) {
	a, d, r := s.mover, len(mean), len(s.basis)
	q, more := make([]float64, r*d), append([]float64(nil), a.class(a.cur.p, c)...)
	for k, row := range s.basis {
		for j, x := range row.Hi {
			root := math.Sqrt(s.whole.Prior.Prec[j])
			mean[j] += x * a.cur.weight[c*r+k] / root
			q[k*d+j] = x * root
		}
		more[k*r+k]--
	}
	half := make([]float64, r*d)
	of := dense.General(q, r, d)
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, dense.General(more, r, r), of, 0,
		dense.General(half, r, d))
	dense.Gemm(blas.Trans, blas.NoTrans, 1, of, dense.General(half, r, d), 1,
		dense.General(p, d, d))
}

var _ Weighted = (*SoftmaxAlgebra)(nil)
