package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// This file finds the next means of a contrast mean field (softmax.go). The curvature of a term
// of K scores is about diag δ − δδᵀ/Σδ, but the sites have only its diagonal, γ_c = δ_c −
// δ_c²/Σδ. A softmax has that curvature at a point, with δ = π. Problem.Stride calls aim (see
// aimer in base.go), and the aim of softmaxGPBase begins with it.

// coupled computes δ from the γ of a term, stores it in delta and returns 1/Σδ. Let t be the
// fraction δ/Σδ of the class with the largest γ, so 1/Σδ = x = t(1 − t)/γ for that γ. The fractions
// of the other classes are the smaller roots q of γx = q(1 − q), and all fractions add up to 1 if
//
//	f(t) = Σ_c q_c/(1 − t) − 1 = t/γ Σ_c 2γ_c/(1 + √(1 − 4γ_cx)) − 1 = 0,
//
// with sums over the other classes. The function rises from −1, and Newton's steps in a bracket
// find its root.
//
// Two classes have the same γ to rounding, and every δ with 1/δ_0 + 1/δ_1 = 1/γ has that
// curvature. Equal elements lose no digits.
func coupled(delta, gamma []float64) (inv float64) {
	if len(gamma) == 2 && gamma[0]+gamma[1] > coupledZero {
		both := gamma[0] + gamma[1]
		delta[0], delta[1] = both, both
		return 0.5 / both
	}
	top, most := 0, 0.0
	for c, g := range gamma {
		if g > most {
			top, most = c, g
		}
	}
	if !(most > coupledZero) {
		clear(delta)
		return 0
	}
	// The curvature is the same for all t near 1, and δ of the top class is large, if the γ of
	// the top class is the sum of the other γ. That always holds for two classes. Rounding may
	// put γ even above the sum.
	lo, hi, t := 0.0, 1-coupledLeast, 0.5
	for range coupledSteps {
		x := t * (1 - t) / most
		dx := 4 * (1 - 2*t) / most
		var sum, slope float64
		for c, g := range gamma {
			if c == top {
				continue
			}
			root := math.Sqrt(math.Max(coupledRoot, 1-4*g*x))
			q := 2 * g / (1 + root)
			sum += q
			slope += 0.5 * q * g * dx / ((1 + root) * root)
		}
		f := t*sum/most - 1
		if f < 0 {
			lo = t
		} else {
			hi = t
		}
		if next := t - f*most/(sum+t*slope); next > lo && next < hi {
			if math.Abs(next-t) <= coupledTol*(1-t) {
				t = next
				break
			}
			t = next
		} else if t = 0.5 * (lo + hi); hi-lo <= coupledTol*(1-hi) {
			break
		}
	}
	x := t * (1 - t) / most
	for c, g := range gamma {
		q := t
		if c != top {
			q = 2 * g * x / (1 + math.Sqrt(math.Max(0, 1-4*g*x)))
		}
		delta[c] = q / x
	}
	return x
}

const (
	coupledLeast = 2.5e-7 // the least 1 − t of the search
	coupledTol   = 1e-9   // relative to 1 − t
	coupledSteps = 100    // bisections alone need fewer
	coupledZero  = 1e-300 // γ up to it counts as zero, because 1/Σδ may overflow
	coupledRoot  = 1e-12  // bounds the slope if two classes are alike
)

// coupling is the curvature of all terms.
type coupling struct {
	k     int
	delta []float64
	inv   []float64 // 1/Σδ of each term
}

// set computes the curvature from the precisions gamma, K per term.
func (h *coupling) set(gamma []float64, k int) {
	h.k = k
	h.delta, h.inv = dense.Resize(h.delta, len(gamma)), dense.Resize(h.inv, len(gamma)/k)
	for i := range h.inv {
		h.inv[i] = coupled(h.delta[i*k:(i+1)*k], gamma[i*k:(i+1)*k])
	}
}

// times replaces eta by its product with the curvature.
func (h *coupling) times(eta []float64) {
	k := h.k
	for i, x := range h.inv {
		e, delta := eta[i*k:(i+1)*k], h.delta[i*k:(i+1)*k]
		s := x * floats.Dot(e, delta)
		for c, d := range delta {
			e[c] = d * (e[c] - s)
		}
	}
}

// Conjugate gradients solve Newton's step of the means to the part aimReduction of the residual,
// in at most aimSolves iterations.
const (
	aimSolves    = 30
	aimReduction = 1e-3
)

// softmaxAim is the workspace of aim.
type softmaxAim struct {
	h                            coupling
	r, step, dir, hdir, pre, eta []float64
	promise                      float64 // predicted gain of the step, in nats
	softmaxReach
	before softmaxReach // the bound before the last aim
}

// softmaxReach bounds the steps of the means.
type softmaxReach struct {
	length  float64 // ‖step‖ in the norm of the preconditioner
	reach   float64 // the greatest length; 0 is any
	shorter bool    // shorten has set the reach of the next step
}

// save writes or reads the bound from which the next aim starts. If the state has an aim, that is
// the bound before the aim, because the aim is computed again after reading.
func (t *softmaxAim) save(c *save.Coder, aimed bool) {
	r := &t.softmaxReach
	if aimed && !c.Reading() {
		r = &t.before
	}
	c.Float(&r.length, &r.reach)
	c.Bool(&r.shorter)
}

// The curvatures of classes that are far apart vanish while their gradients do not. Newton's step
// of the means may then be 10⁸ standard deviations long. Only a tiny fraction of it gains anything,
// and the precisions, which move by the same fraction, hardly change. The next step of the means is
// therefore at most reachMore times as long as the part of the last step that was taken, and whole
// steps let this limit grow.
const (
	reachShort = 0.1 // a step is too long if less than this part of it is taken
	reachMore  = 2
	reachGrow  = 4
	reachLeast = 1 // standard deviations; shorter steps do not fail for their length
)

// shorten implements reacher.
func (a *softmaxBase) shorten(p *Problem) bool {
	t := &a.aims
	if !(p.t*t.length > reachLeast) {
		return false
	}
	t.reach, t.shorter, p.t = reachMore*p.t*t.length, true, 1
	return true
}

// aim implements aimer. The step of the weights, whose sum over classes is 0, is
//
//	argmin_w ½ Σ_c w_cᵀΛw_c + ½(Xw)ᵀH(Xw) − (α̂ − a)ᵀXw,   H = diag δ − δδᵀ/Σδ,
//
// by conjugate gradients. The preconditioner is the system that moves solve (softmaxState).
func (a *softmaxBase) aim(dst, step, _ []float64, s *term.Marginals) bool {
	if !a.moved {
		return false
	}
	t, d := &a.aims, a.x.Cols
	w := a.k * d
	t.eta = dense.Resize(t.eta, len(s.M))
	dense.ResizeAll(w, &t.r, &t.step, &t.dir, &t.hdir, &t.pre)
	work := make([]float64, w)
	t.h.set(s.Tg, a.k)
	floats.SubTo(t.eta, s.D1, s.A)
	a.gather(t.r, t.eta)
	clear(t.step)
	t.before = t.softmaxReach
	switch p := &a.of.Batch; {
	case t.shorter:
	case p.t < reachShort:
		a.shorten(p)
	case p.t == 1:
		t.reach *= reachGrow
	}
	t.shorter = false
	copy(t.pre, t.r)
	a.cur.restrict(t.pre, work, a.gauge, d)
	copy(t.dir, t.pre)
	rho := floats.Dot(t.r, t.pre)
	t.promise, t.length = 0, 0
	square, along, pp := 0.0, 0.0, rho // ‖step‖², stepᵀM dir and ‖dir‖²
	for first, tries := rho, 0; rho > 0 && tries < aimSolves && !a.crew.Halt.Stopped(); tries++ {
		a.spread(t.eta, t.dir)
		t.h.times(t.eta)
		a.gather(t.hdir, t.eta)
		for i, w := range t.dir {
			t.hdir[i] += a.prec[i] * w
		}
		curve := floats.Dot(t.dir, t.hdir)
		if !(curve > 0) {
			return false
		}
		length := rho / curve
		t.promise += 0.5 * length * rho
		// The step stops at the reach: ‖step + part·dir‖ ≤ reach.
		part := length
		if room := t.reach*t.reach - square; t.reach > 0 {
			part = min(part, max(0, room)/(along+math.Sqrt(along*along+pp*max(0, room))))
		}
		floats.AddScaled(t.step, part, t.dir)
		square += part * (2*along + part*pp)
		floats.AddScaled(t.r, -length, t.hdir)
		copy(t.pre, t.r)
		a.cur.restrict(t.pre, work, a.gauge, d)
		next := floats.Dot(t.r, t.pre)
		if !(next > aimReduction*aimReduction*first) {
			break
		}
		floats.Scale(next/rho, t.dir)
		floats.Add(t.dir, t.pre)
		along = next / rho * (along + part*pp)
		pp = next + next/rho*next/rho*pp
		rho = next
	}
	t.length = math.Sqrt(square)
	a.spread(step, t.step)
	copy(t.eta, step)
	t.h.times(t.eta)
	floats.SubTo(dst, s.D1, t.eta)
	return true
}
