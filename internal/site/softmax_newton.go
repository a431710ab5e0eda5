package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
)

// softmaxNewton takes Newton's steps of the P_c of a contrast mean field (softmax.go) for given
// A_c, inside a radius (Steihaug, 1983). The cheaper rounds of softmax.go converge slowly if a
// class counts only in some directions, and the size of a round is then no measure of the
// distance to the solution. Newton's steps follow the rounds in that case (polish), and settle
// uses them to check the precisions (softmax_proof.go). With R = (ΣP)⁻¹ the negative ELBO has
// the gradient ½ρ_c in P_c⁻¹ and, for a change of P_c⁻¹ by −P_c⁻¹X_cP_c⁻¹, the curvature ½(1 −
// J):
//
//	ρ_c = A_c + P_cRP_c − P_c,   (JX)_c = X_cRP_c + P_cRX_c − P_cR(ΣX)RP_c.
//
// All matrices are in units of P_c = L_cL_cᵀ, which make J symmetric. P_c⁻¹ becomes L_c⁻ᵀ(1 −
// X_c)L_c⁻¹.
type softmaxNewton struct {
	l, b, u  []float64 // L_c, L_cᵀRL_c and RL_c
	r, p     []float64 // residual and direction of the solver; z and next hold the rest
	last     []float64 // P before the step
	flattest float64   // the least curvature that the last step met
	left     int       // solves left for the descent
}

const (
	descentMost     = 50   // steps
	descentSolves   = 60   // solves per step
	descentReduce   = 1e-4 // relative residual of a solve
	descentRadius   = 0.5
	descentWidest   = 0.95  // lets P grow by a factor of 20
	descentLeast    = 1e-6  // radius below which rounding hides a gain
	descentRise     = 0.1   // least part of the predicted gain
	descentFaithful = 0.75  // part of the predicted gain from which the radius grows
	descentFlat     = 1e-13 // greatest curvature that may be rounding

	// A solve costs about 10KD³ operations. A descent takes at most descentWork/KD³ solves, which
	// is up to 10 s of a core. It may always take descentCalls solves, which cost as much as a
	// few passes.
	descentWork  = 3e9
	descentCalls = 50

	// descentApart separates classes that are alike. At a saddle between such classes the
	// gradient has no part in the direction that separates them.
	descentApart = 1e-4
)

// descend takes such steps from the current p, for the A_c in grams, until a step predicts a gain
// of at most tol nats or the work is used up. It returns the gain in nats plus the predicted gain
// of the last step. It returns +Inf if a matrix is not positive definite.
func (a *softmaxBase) descend(tol float64) (gain float64) {
	w := &a.newton
	w.last = dense.Resize(w.last, len(a.p))
	value, radius := a.divergence(), float64(descentRadius)
	tol = max(tol, ElboRounding*math.Abs(value))
	w.left = descentLimit(a.k, a.x.Cols)
	for range descentMost {
		if math.IsInf(value, 1) || !a.whiten() {
			return math.Inf(1)
		}
		promise, size := a.newtonStep(radius)
		if promise <= tol || w.left == 0 {
			return gain + max(promise, 0)
		}
		copy(w.last, a.p)
		if !a.each(a.retract) {
			return math.Inf(1)
		}
		next := a.divergence()
		fall := 0.5 * (value - next)
		if !(fall >= descentRise*promise) {
			copy(a.p, w.last)
			if radius = 0.25 * min(radius, size); radius < descentLeast {
				break
			}
			continue
		}
		gain, value = gain+fall, next
		if fall >= descentFaithful*promise && size >= 0.99*radius {
			radius = min(4*radius, descentWidest)
		}
	}
	return gain
}

// descentLimit returns how many solves a descent of k classes of d weights may take.
func descentLimit(k, d int) int {
	size := float64(k) * math.Pow(float64(d), 3)
	return int(max(descentCalls, min(descentMost*descentSolves, descentWork/size)))
}

// search descends from p and, if that ends in a flat valley, also from the p of equal classes. It
// keeps the better p of the two, because several solutions exist if some classes never occur. It
// returns the gain, as descend does. The steps alone do not find every valley: at a saddle
// between classes that are alike the gradient has no part in the flat direction, so they never
// meet it.
func (a *softmaxBase) search(tol float64) float64 {
	value := a.divergence()
	gain := a.descend(tol)
	if a.newton.flattest > contrastFlat && !a.flat(a.p) {
		return gain
	}
	copy(a.try.p, a.p)
	floats.ScaleTo(a.p, float64(a.k)/float64(a.k-1), a.grams)
	if _, ok := a.rounds(contrastFirst); ok {
		a.descend(tol)
		if other := 0.5 * (value - a.divergence()); other > gain+contrastApart {
			return other
		}
	}
	copy(a.p, a.try.p)
	return gain
}

// flat reports whether p, the precisions of all classes, is in a valley whose curvature is at
// most contrastFlat in units of the greatest curvature. Let q_c = uᵀP_cu/uᵀ(ΣP)u be the shares of
// the classes in a direction u. A change of the precisions along u has the curvature I − 2 diag q
// + qqᵀ. The function computes its least eigenvalue for the two greatest shares. It tries one
// direction per class, in which the share of that class is about the greatest. Two classes share
// every direction equally, and their solution is known.
func (a *softmaxBase) flat(p []float64) bool {
	d, k := a.x.Cols, a.k
	if k == 2 {
		return false
	}
	a.addUp(p)
	diag := make([]float64, d)
	for j := range diag {
		diag[j] = a.sum[j*(d+1)]
	}
	if !dense.Cholesky(a.sum, d) {
		return true
	}
	u, pu := make([]float64, d), make([]float64, d)
	for c := range k {
		a.widest(u, pu, a.class(p, c), diag)
		first, second, total := 0.0, 0.0, 0.0
		for e := range k {
			q := quad(u, pu, a.class(p, e))
			total += q
			if q > first {
				first, second = q, first
			} else {
				second = max(second, q)
			}
		}
		first, second = first/total, second/total
		x, y := (1-first)*(1-first), (1-second)*(1-second)
		if 0.5*(x+y)-math.Hypot(0.5*(x-y), first*second) <= contrastFlat {
			return true
		}
	}
	return false
}

// widest approximates the direction u in which p has the greatest part of ΣP, by power iterations
// from the best column. The diagonal of ΣP is diag, and its factor is in sum. The scratch pu is as
// long as u.
func (a *softmaxBase) widest(u, pu, p, diag []float64) {
	at, most := 0, 0.0
	for j, s := range diag {
		if q := p[j*(len(u)+1)] / s; q > most {
			at, most = j, q
		}
	}
	clear(u)
	u[at] = 1 / math.Sqrt(diag[at])
	for range flatTurns {
		quad(u, pu, p)
		dense.Potrs(a.sum, pu)
		copy(u, pu)
		floats.Scale(1/floats.Norm(u, 2), u)
	}
}

// quad stores pu in pu and returns uᵀpu.
func quad(u, pu, p []float64) float64 {
	dense.Symv(1, dense.Symmetric(p, len(u)), dense.Vector(u), 0, dense.Vector(pu))
	return floats.Dot(u, pu)
}

// flatTurns is the number of power iterations to the direction of the greatest share of a class.
const flatTurns = 10

// Another solution must be better by contrastApart nats. The search for it begins if a curvature
// is at most contrastFlat, where the greatest curvatures are 1.
const (
	contrastApart = 1e-7
	contrastFlat  = 0.05
)

// whiten computes the units L_c of p, and the gradient ρ in these units in r.
func (a *softmaxBase) whiten() bool {
	d, w := a.x.Cols, &a.newton
	dense.ResizeAll(len(a.p), &w.l, &w.b, &w.u, &w.r, &w.p)
	if !a.factorSum(a.p) {
		return false
	}
	sum, of := dense.LowerTriangle(a.sum, d), dense.General
	return a.each(func(c int, _ *softmaxWork) bool {
		l, b, u, r := a.class(w.l, c), a.class(w.b, c), a.class(w.u, c), a.class(w.r, c)
		copy(l, a.class(a.p, c))
		if !dense.Cholesky(l, d) {
			return false
		}
		for i := range d {
			clear(l[i*d+i+1 : (i+1)*d])
		}
		copy(u, l)
		dense.Trsm(blas.Left, blas.NoTrans, 1, sum, of(u, d, d))
		dense.Gemm(blas.Trans, blas.NoTrans, 1, of(u, d, d), of(u, d, d), 0, of(b, d, d))
		dense.Trsm(blas.Left, blas.Trans, 1, sum, of(u, d, d))
		copy(r, a.class(a.grams, c))
		lower := dense.LowerTriangle(l, d)
		dense.Trsm(blas.Left, blas.NoTrans, 1, lower, of(r, d, d))
		dense.Trsm(blas.Right, blas.Trans, 1, lower, of(r, d, d))
		floats.Add(r, b)
		for i := range d {
			r[i*d+i]--
		}
		floats.Scale(1+descentApart*math.Cos(float64(c)), r)
		return true
	})
}

// newtonStep stores the step X of norm at most radius in z, and returns its predicted gain in
// nats and its norm.
func (a *softmaxBase) newtonStep(radius float64) (promise, size float64) {
	w, x, q := &a.newton, a.z, a.next
	clear(x)
	w.flattest = 1
	copy(w.p, w.r)
	rho := floats.Dot(w.r, w.r)
	least := descentReduce * descentReduce * rho
	for range min(descentSolves, w.left) {
		if !(rho > least) || !a.curve(q, w.p) {
			break
		}
		w.left--
		curve, pp := floats.Dot(w.p, q), floats.Dot(w.p, w.p)
		w.flattest = min(w.flattest, curve/pp)
		length := rho / curve
		// edge is the length l at which ‖x + lp‖ is the radius.
		xp, room := floats.Dot(x, w.p), max(0, radius*radius-size*size)
		edge := room / (xp + math.Sqrt(xp*xp+pp*room))
		if !(curve > descentFlat*pp) || length >= edge {
			floats.AddScaled(x, edge, w.p)
			return promise + 0.5*edge*rho - 0.25*edge*edge*curve, radius
		}
		promise += 0.25 * length * rho
		floats.AddScaled(x, length, w.p)
		size = floats.Norm(x, 2)
		floats.AddScaled(w.r, -length, q)
		next := floats.Dot(w.r, w.r)
		floats.Scale(next/rho, w.p)
		floats.Add(w.p, w.r)
		rho = next
	}
	return promise, size
}

// curve stores (1 − J)x in q.
func (a *softmaxBase) curve(q, x []float64) bool {
	d, w, of := a.x.Cols, &a.newton, dense.General
	if !a.each(func(c int, s *softmaxWork) bool {
		l, half := of(a.class(w.l, c), d, d), of(s.half, d, d)
		dense.Gemm(blas.NoTrans, blas.NoTrans, 1, l, of(a.class(x, c), d, d), 0, half)
		dense.Gemm(blas.NoTrans, blas.Trans, 1, half, l, 0, of(a.class(q, c), d, d))
		return true
	}) {
		return false
	}
	a.addUp(q)
	return a.each(func(c int, s *softmaxWork) bool {
		to, u, half := a.class(q, c), of(a.class(w.u, c), d, d), of(s.half, d, d)
		dense.Gemm(blas.NoTrans, blas.NoTrans, 1, of(a.class(x, c), d, d),
			of(a.class(w.b, c), d, d), 0, half)
		copy(to, a.class(x, c))
		for i := range d {
			for j := range d {
				to[i*d+j] -= s.half[i*d+j] + s.half[j*d+i]
			}
		}
		dense.Gemm(blas.NoTrans, blas.NoTrans, 1, of(a.sum, d, d), u, 0, half)
		dense.Gemm(blas.Trans, blas.NoTrans, 1, u, half, 1, of(to, d, d))
		return true
	})
}

// retract replaces p by p after the step X: (L⁻ᵀ(1 − X)L⁻¹)⁻¹.
func (a *softmaxBase) retract(c int, s *softmaxWork) bool {
	d, x, of := a.x.Cols, a.class(a.z, c), dense.General
	for i := range d {
		for j := range i + 1 {
			x[i*d+j] = -0.5 * (x[i*d+j] + x[j*d+i])
		}
		x[i*d+i]++
	}
	l := a.class(a.newton.l, c)
	for i := range d {
		for j := range d {
			s.half[i*d+j] = l[j*d+i]
		}
	}
	if !dense.Cholesky(x, d) {
		return false
	}
	dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(x, d), of(s.half, d, d))
	dense.Gemm(blas.Trans, blas.NoTrans, 1, of(s.half, d, d), of(s.half, d, d), 0,
		of(a.class(a.p, c), d, d))
	return true
}

// precisions returns the gain, in nats, of the best P for the targets over the P of the current
// state.
func (a *softmaxBase) precisions(tol float64) float64 {
	d, s := a.x.Cols, &a.of.Batch.Cur
	copy(a.p, a.cur.p)
	if !a.each(func(c int, w *softmaxWork) bool {
		g := a.class(a.grams, c)
		clear(g)
		a.x.AddGram(g, classOf(w.col, s.Tg, c), nil, &w.Work)
		dense.FillUpper(g, d)
		prec, share := a.lambda(c)
		for j, l := range prec {
			g[j*d+j] += (1 - share[j]) * l
		}
		return true
	}) {
		return math.Inf(1)
	}
	return a.search(tol)
}
