package term

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
)

// This file computes the parts of a proved bound on the gap. Let the terms be f_n(m, σ) = −w_n
// E[log p(y_n|o_n + m + σε)], let P be the precision of the prior, c the gradient of the negative
// ELBO F in the mean, and Γ = diag(γ) with γ_n = 2∂f_n/∂v_n.
//
// If log p is concave, each f_n is convex in (m, σ) and grows with σ. Every Gaussian is N(m',
// LB²Lᵀ) with V = LLᵀ and B symmetric and positive definite, and a term has σ_n' = ‖BLᵀx_n‖ ≥
// x_nᵀLBLᵀx_n/σ_n. So F has a lower bound that is quadratic in m' and, except for −log|B|, linear
// and quadratic in B. Its minimum is known:
//
//	F(m, V) − min F ≤ ½cᵀP⁻¹c + tr Δ − log|I + Δ|,   Δ = Lᵀ(P + XᵀΓX)L − I.
//
// The first part is small only if the mean is nearly stationary, more nearly than V. A Newton
// step of the mean with V fixed, m⁺ = m − Vc, therefore comes first, and its gain is counted.

// Concave reports whether every term is concave in its latent value. A proof of the gap needs
// that.
func (t *Terms) Concave() bool { return t.Lik.Concave() }

// PrecisionGap returns a bound on tr Δ − log|I + Δ|, where Δ = Lᵀdiag(δ)L for the changes δ = γ̂
// − γ of the sites. square is ‖Δ‖²_F, and negative is the same for the negative δ alone. No
// eigenvalue of I + Δ is below 1 minus the root of negative. If P + Γ̂ ⪰ r(P + Γ), none is below
// r, the least of 1 and all γ̂_n/γ_n. The bound follows because (x − log(1 + x))/x² falls with x.
func PrecisionGap(square, negative float64, gamma, target []float64) float64 {
	least := 1.0
	for i, g := range gamma {
		if g > 0 {
			least = min(least, target[i]/g)
		}
	}
	return square * Curvature(max(least, 1-math.Sqrt(negative))-1)
}

// SiteChange bounds the effect on P of a change δ = γ̂ − γ of the sites of rows, Δ =
// LᵀXᵀdiag(δ)XL in units of V = LLᵀ, using only the variances v. A single row changes Δ by
// |δ_n|v_n. Several rows together change it by less: because LᵀXᵀΓXL ⪯ I, the covariances A =
// XVXᵀ have Σ_k γ_k A_nk² ≤ v_n, and
//
//	‖Δ‖²_F = Σ_nk δ_nδ_k A_nk² ≤ Σ_nk ½(δ_n²γ_k/γ_n + δ_k²γ_n/γ_k) A_nk² ≤ Σ_n δ_n²v_n/γ_n.
type SiteChange struct {
	Trace, Nuclear float64 // Σ δv and Σ |δ|v
	fallen         float64 // the same for the negative δ alone
	least, most    float64 // of 1 and all γ̂/γ
	shared, alone  float64 // Σ δ²v/γ of rows with |δ| < γ, and Σ |δ|v of the others
	Mixed          bool    // some γ is negative; only the bounds of nuclear hold
}

// Change returns that to the targets of s.
func (s *Marginals) Change() SiteChange {
	var trace, nuclear, fallen, shared, alone float64
	least, most, mixed := 1.0, 1.0, false
	for n, v := range s.V {
		g, d := s.Gamma[n], s.Tg[n]-s.Gamma[n]
		if v == 0 || d == 0 { // a row of zeros is one which no V depends on
			continue
		}
		own := math.Abs(d) * v
		trace += d * v
		nuclear += own
		fallen += max(0, -d) * v
		r := d / math.Abs(g)
		least, most, mixed = min(least, 1+r), max(most, 1+r), mixed || g < 0
		if r = math.Abs(r); r < 1 {
			shared += r * own
		} else {
			alone += own
		}
	}
	return SiteChange{trace, nuclear, fallen, least, most, shared, alone, mixed}
}

// Square returns about ‖Δ‖²_F. It is an upper bound if no γ is negative. No eigenvalue of Δ
// exceeds the greatest relative change of a site, or Σ |δ|v. A site that becomes active or
// inactive hardly narrows down the eigenvalues.
func (c *SiteChange) Square() float64 {
	norm := math.Sqrt(c.shared) + c.alone
	return min(norm*norm, c.Nuclear*min(c.Nuclear, max(1-c.least, c.most-1)))
}

// Gap returns a bound on tr Δ − log|I + Δ|.
func (c *SiteChange) Gap() float64 {
	if c.Mixed {
		return c.Nuclear * c.Nuclear * Curvature(max(0, 1-c.fallen)-1)
	}
	return c.Square() * Curvature(max(c.least, 1-c.fallen)-1)
}

// Curvature returns (x − log(1 + x))/x², for x > −1.
func Curvature(x float64) float64 {
	if math.Abs(x) < 1e-3 {
		return 0.5 - x*(1./3-x*(0.25-x*(0.2-x/6)))
	}
	return (x - math.Log1p(x)) / (x * x)
}

// Size returns Σ |γ_n| K_nn.
func Size(k, gamma []float64) (total float64) {
	for i, g := range gamma {
		total += math.Abs(g) * k[i*len(gamma)+i]
	}
	return total
}

// ScaleGap returns the excess of as + ½bs² − log s at s = 1 over its minimum, for a, b ≥ 0. It is
// the gap of one standard deviation of a diagonal V relative to its present value, with a = V_jj
// Σ_n γ_n x_nj² and b = V_jj Λ0_jj.
func ScaleGap(a, b float64) float64 {
	z := 2 / (a + math.Sqrt(a*a+4*b)) // the minimiser, where a + bz = 1/z
	y := z - 1
	return max(0, 0.5*b*y*y+math.Log1p(y)-y/z)
}

// nearRow is the distance, in units of the standard deviation of η, or of η if that is less, up
// to which a tangent counts as near and the curvature of its term is not computed. On the way the
// curvature changes by a fraction of at most bentNear times the distance: it is a mean of
// curvatures, and curvatures farther away than this many standard deviations do not matter. The
// bound includes the effect of such changes on V to second order. Larger changes are computed,
// and may reach bentRow.
const (
	nearRow  = 1e-5
	bentNear = 8
	bentRow  = 0.1
)

// roundedRow is the largest relative change of a slope that is attributed to rounding of the
// weight of its row.
const roundedRow = 1e-9

// RowGap bounds the part of the gap that is due to the mean of s, a state of all terms with the
// given ELBO.
//
// In raw units and under wide priors, ½cᵀP⁻¹c magnifies the rounding errors of c = Xᵀ(a − α̂)
// beyond all sense. RowGap avoids c, because every tangent of f_n near α̂_n gives a bound. The
// tangent with slope a_n lies |a_n − α̂_n|/γ̂_n away and is lower by (a_n − α̂_n)²/2γ̂_n, or by
// less than twice that if the curvature changes little on the way. It changes by about the
// distance in units of the standard deviation, or in units of η if that is more. If all slopes
// are a_n, c is zero.
//
// If there is no such tangent nearby, for example because f_n is a line, there are two ways. The
// slope may stay α̂_n; then ½cᵀP⁻¹c ≤ ½(Σ_n |a_n − α̂_n| k_n^½)² over these terms, whose prior
// variances are k_n. Or f_n has the slope a_n under a weight that is larger by a fraction δ_n of
// the size of rounding errors. Because no f_n is below its least value f_n*, a change of all
// weights by at most δ changes neither q nor the best q by more than δ(Σ_n |f_n| − f_n*) ≤
// δ(−ELBO − Σ_n f_n*).
//
// The mean must satisfy Λ0m = Xᵀa, as solutions of the equations do. drift holds the distance of
// each mean from that; nil means 0.
//
// If |ℓ‴| ≤ |ℓ″|, the curvature changes by at most a factor e^d over a distance d. RowGap
// computes curvatures only if this bound does not decide whether the gap is at most enough nats.
func (t *Terms) RowGap(s *Marginals, elbo float64, prior, drift []float64, enough float64,
	h *parallel.Halt) float64 {
	if t.Lik.SelfBounded() {
		x := t.allRowsGap(s, prior, drift, true, h)
		gap := x.total + x.change*x.change
		if x.rest == 0 && x.lines == 0 && (gap <= enough || x.total > enough) {
			return gap
		}
	}
	x := t.allRowsGap(s, prior, drift, false, h)
	return t.gapOf(&x, s, elbo)
}

// allRowsGap returns the sums over all rows for RowGap, with curvatures that are bounded or
// computed.
func (t *Terms) allRowsGap(s *Marginals, prior, drift []float64, bounded bool,
	h *parallel.Halt) (sum rowsGap) {
	n := len(s.Tg)
	if n <= GapRows {
		return t.rowsGap(s, prior, drift, bounded, 0, n)
	}
	parts := make([]rowsGap, (n+GapRows-1)/GapRows)
	parallel.For(n, GapRows, h.Workers(),
		func(_, lo, hi int) { parts[lo/GapRows] = t.rowsGap(s, prior, drift, bounded, lo, hi) })
	for _, x := range parts {
		sum.total, sum.change, sum.rest, sum.lines, sum.part = sum.total+x.total,
			sum.change+x.change, sum.rest+x.rest, sum.lines+x.lines, max(sum.part, x.part)
	}
	return sum
}

// GapRows is the number of rows that RowGap takes together: the sums of more are added in that
// order, whoever took them.
const GapRows = 4096

// rowsGap is what some rows tell RowGap.
type rowsGap struct {
	total, change float64 // sum over rows with a tangent nearby, and the change of their curvatures
	rest, lines   float64 // sums over rows without one, and over rows that rounding explains
	part          float64 // this part of their weights
}

// rowsGap returns the sums over the rows lo … hi−1 for RowGap.
func (t *Terms) rowsGap(s *Marginals, prior, drift []float64, bounded bool, lo,
	hi int) (x rowsGap) {
	b := bends{bounded: bounded}
	for ; lo < hi; lo += bentTogether {
		t.someGap(&x, s, prior, drift, lo, min(lo+bentTogether, hi), &b)
	}
	return x
}

// someGap adds what rows lo … hi−1 tell RowGap, at most bentTogether of them, to x.
func (t *Terms) someGap(x *rowsGap, s *Marginals, prior, drift []float64, lo, hi int, b *bends) {
	b.rows, b.far = b.rows[:0], b.far[:0]
	var offs, bents [bentTogether]float64
	for n := lo; n < hi; n++ {
		g := s.Tg[n]
		off := math.Abs(s.A[n]-s.D1[n]) +
			4*dense.Epsilon*(math.Abs(s.A[n])+2*math.Abs(s.Gamma[n]*s.M[n])+math.Abs(s.D1[n]))
		if drift != nil {
			off += g * math.Abs(drift[n])
		}
		offs[n-lo] = off
		if unit := g * min(math.Sqrt(s.V[n]), 1); off <= nearRow*unit {
			bents[n-lo] = bentNear * off / unit
		} else if b.bounded {
			d := 2 * off / g
			bents[n-lo] = d + d*d // ≥ e^d − 1 for d ≤ 1
		} else {
			b.rows, b.far = append(b.rows, n), append(b.far, 2*off/g)
		}
	}
	if len(b.rows) > 0 {
		t.changes(b, s)
	}
	for k, n := range b.rows {
		bents[n-lo] = b.most[k]
	}
	for n := lo; n < hi; n++ {
		g, off, bent := s.Tg[n], offs[n-lo], bents[n-lo]
		switch delta := off / math.Abs(s.D1[n]); {
		case off == 0:
		case bent <= bentRow:
			x.total += off * off / g
			x.change += bent * g * s.V[n]
		case delta <= roundedRow:
			x.lines += off * math.Sqrt(prior[n])
			x.part = max(x.part, delta)
		default:
			x.rest += off * math.Sqrt(prior[n])
		}
	}
}

// gapOf returns the gap for the sums over all rows.
func (t *Terms) gapOf(x *rowsGap, s *Marginals, elbo float64) float64 {
	total := x.total + x.change*x.change
	wide := 0.5 * (x.rest + x.lines) * (x.rest + x.lines)
	if x.lines == 0 {
		return total + wide
	}
	return total + min(wide, 0.5*x.rest*x.rest+x.part*(t.most(s)-elbo))
}

// bentTogether is the number of rows whose curvatures are looked at together.
const bentTogether = 64

// bends holds rows, and for each the largest relative change of its curvature at means up to a
// given distance from the mean of a state.
type bends struct {
	rows      []int
	far, most []float64
	bounded   bool // curvatures are not looked at, but bounded

	terms []int // scratch: a row is here once for each mean that is looked at
	at    Marginals
}

// bentAt are the means at which a curvature is looked at, in units of how far it is looked for.
// Curvatures rise to one peak and fall: where they are alike at an end, in the middle and here
// there is no peak between.
var bentAt = [...]float64{-1, -0.5, 0.5, 1}

// changes stores in b.most what the rows of b are, at s.
func (t *Terms) changes(b *bends, s *Marginals) {
	b.terms, b.most = b.terms[:0], dense.Resize(b.most, len(b.rows))
	clear(b.most)
	b.at.Resize(len(bentAt) * len(b.rows))
	for k, n := range b.rows {
		for j, d := range bentAt {
			i := k*len(bentAt) + j
			b.at.M[i], b.at.V[i] = s.M[n]+d*b.far[k], s.V[n]
			b.terms = append(b.terms, n)
		}
	}
	t.curvatures(&b.at, b.terms)
	for k, n := range b.rows {
		for _, g := range b.at.Tg[k*len(bentAt):][:len(bentAt)] {
			if change := math.Abs(1 - g/s.Tg[n]); !(change <= b.most[k]) {
				b.most[k] = change
			}
		}
		if math.IsInf(b.far[k], 0) || math.IsNaN(b.far[k]) {
			b.most[k] = math.Inf(1)
		}
	}
}

// curvatures stores −∂²E/∂m² of the terms that batch names, at the marginals of s, in s.Tg.
func (t *Terms) curvatures(s *Marginals, batch []int) {
	each := t.Lik.Each()
	if each == nil || t.Rule != nil {
		for i, n := range batch {
			s.Tg[i] = -t.Expectation(n, s.M[i], s.V[i]).D2
		}
		return
	}
	s.bound = dense.Resize(s.bound, len(batch))
	t.place(s, batch, 0, len(batch), each.Own, s.bound)
	each.Expect(s.E, s.D1, s.Tg, s.bound)
	for i, n := range batch {
		if t.Weight != nil {
			s.Tg[i] *= t.Weight[n]
		}
		s.Tg[i] = -s.Tg[i]
	}
}

// most returns the sum of the greatest values of all terms, which are concave and are looked for
// from the means of s.
func (t *Terms) most(s *Marginals) (sum float64) {
	for n, m := range s.M {
		h := func(x float64) float64 { return t.LogProb(n, m+x) }
		best, step := h(0), 1.0
		if h(-1) > best {
			step = -1
		}
		for ; h(step) > best && math.Abs(step) < farthestMode; step *= 2 {
			best = h(step)
		}
		from := 0.0
		if math.Abs(step) == 1 {
			from = -step
		}
		x := accel.Minimize1(1, modeTol,
			func(x float64) float64 { return -h(from + x*(step-from)) })
		sum += max(best, h(from+x*(step-from)))
	}
	return sum
}

// most looks this far for modes, and for those in between to this part of the way.
const (
	farthestMode = 1 << 60
	modeTol      = 1e-12
)
