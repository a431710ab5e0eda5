package expect

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/special"
)

// betaStrip is the distance from the real line within which functions of log Γ(φσ(η)) are treated
// as analytic. It is a little less than π, where σ has its poles and φσ reaches the integers ≤ 0.
const betaStrip = 2.8

// betaSide holds a = φσ(η) and related values, or b = φσ(−η) if it was made from −η.
type betaSide struct {
	log  float64 // log σ
	part float64 // σ
	a    float64
	tiny bool // a² is negligible compared with 1
}

// betaSides returns the sides of η and −η, with one exponential for both.
func betaSides(phi, eta float64) (s, t betaSide) {
	side := func(log, part float64) betaSide { return betaSide{-log, part, phi * part, phi*part < 1e-9} }
	e := math.Exp(-math.Abs(eta))
	log, large := math.Log1p(e), 1/(1+e)
	// log(1+e^−|η|) belongs to the larger part, as in SoftplusAt
	s, t = side(log, large), side(log+math.Abs(eta), e*large)
	if eta < 0 {
		s, t = t, s
	}
	return s, t
}

// binet returns ½ log σ minus Binet's function of a, log Γ(a) − (a−½) log a + a − log √2π.
func (s *betaSide) binet(phi float64) float64 {
	if s.a >= 1 {
		return s.log/2 - special.Binet(s.a)
	}
	g := -euler * s.a // becomes log Γ(1+a)
	if !s.tiny {
		g, _ = math.Lgamma(1 + s.a)
	}
	l := math.Log(phi) + s.log
	return (s.a+0.5)*l - s.a - g + special.LogSqrt2Pi + s.log/2
}

// gaps returns a(log a − ψ(a)) and a²(ψ′(a) − 1/a), which are both 1 for a = 0.
func (s *betaSide) gaps(phi float64) (g, h float64) {
	if s.tiny {
		return 1 + special.Times(s.a, math.Log(phi)+s.log+euler), 1 - s.a
	}
	return s.a * special.DigammaGap(s.a), s.a * s.a * special.TrigammaGap(s.a)
}

// klPart returns y − σ − σ log(y/σ), given log y. The result is not negative.
func (s *betaSide) klPart(y, logy float64) float64 {
	if r := y / s.part; r > 0.5 && r < 2 {
		return s.part * special.LogGap(r)
	}
	return y - s.part - special.Times(s.part, logy-s.log)
}

// At returns log p(y|η) and its derivatives. With Binet's function β, the log odds λ of y, w =
// φσ(η)σ(−η), g(a) = a(log a − ψ(a)) and h(a) = a²(ψ′(a) − 1/a), they are
//
//	log p = ½ log φ/2π + β(φ) + [½ log σ(η) − β(a)] + [½ log σ(−η) − β(b)]
//	        − log y(1−y) − φ KL(σ(η)‖y)
//	∂   = w(λ−η) + σ(−η)g(a) − σ(η)g(b)
//	∂²  = w((σ(−η)−σ(η))(λ−η) − 1) − σ(η)σ(−η)(g(a)+g(b)) + σ(−η)²(g(a)−h(a)) + σ(η)²(g(b)−h(b))
//
// In this form, the terms of size φ do not cancel.
func (p BetaPoint) At(eta float64) (l, d1, d2 float64) {
	s, t := betaSides(p.Phi, eta)
	l = p.logProb(&s, &t)
	ga, ha := s.gaps(p.Phi)
	gb, hb := t.gaps(p.Phi)
	w, pq := p.Phi*s.part*t.part, s.part*t.part
	off := p.logy - p.rest - eta
	d1 = special.Times(w, off) + t.part*ga - s.part*gb
	d2 = special.Times(w*(t.part-s.part), off) - w - pq*(ga+gb) + t.part*t.part*(ga-ha) +
		s.part*s.part*(gb-hb)
	return l, d1, d2
}

// LogProb returns log p(y|η).
func (p BetaPoint) LogProb(eta float64) float64 {
	s, t := betaSides(p.Phi, eta)
	return p.logProb(&s, &t)
}

// BetaLevel returns the terms [½ log σ(η) − β(a)] + [½ log σ(−η) − β(b)] of log p(y|η), which do not
// depend on y; see At.
func BetaLevel(phi, eta float64) float64 {
	s, t := betaSides(phi, eta)
	return s.binet(phi) + t.binet(phi)
}

// Own returns the log odds λ of y, and the own for which log p(y|η) is own + BetaLevel −
// φ(σ(η)(η−λ) − log(1+e^η)).
func (p *BetaPoint) Own() (own, odds float64) { return p.norm + p.Phi*p.rest, p.logy - p.rest }

// logProb returns log p(y|η) from the two sides of η.
func (p *BetaPoint) logProb(s, t *betaSide) float64 {
	return p.norm + s.binet(p.Phi) + t.binet(p.Phi) -
		p.Phi*(s.klPart(p.y, p.logy)+t.klPart(1-p.y, p.rest))
}

// A BetaPoint is the function log p(y|η) of η for a response y from a beta distribution with mean
// σ(η) and precision φ.
type BetaPoint struct {
	Phi, y     float64
	logy, rest float64 // log y and log(1−y)
	norm       float64 // terms that do not depend on η
}

// NewBetaPoint returns the BetaPoint of the precision phi at the response y.
func NewBetaPoint(phi, y float64) BetaPoint {
	p := BetaPoint{Phi: phi, y: y, logy: math.Log(y), rest: math.Log1p(-y)}
	p.norm = math.Log(phi)/2 - special.LogSqrt2Pi + special.Binet(phi) - p.logy - p.rest
	return p
}

// BetaParts returns a = φσ(η) and b = φσ(−η).
func BetaParts(phi, eta float64) (a, b float64) {
	s, t := betaSides(phi, eta)
	return s.a, t.a
}

// Expect returns E log p under N(m, s²) and the derivatives that Bend.Expect returns, with a
// bound on the error.
func (p BetaPoint) Expect(m, s float64) (e [3]float64, bound float64) {
	reach := betaReach(p.Phi)
	e, bound = Bend{At: p.At, Strip: betaStrip, Lo: -reach, Hi: reach, Slope: 1}.Expect(m, s)
	return e, bound + 4*special.Eps*(math.Abs(p.norm)+math.Abs(p.logy)+math.Abs(p.rest)+40)
}

// A BetaBinomialPoint is the function log p(k|η) of η for K successes and Rest failures. Their
// probability has a beta distribution with mean σ(η) and precision Phi. Norm holds the terms that
// do not depend on η.
type BetaBinomialPoint struct{ Phi, K, Rest, Norm float64 }

// At returns log p(y|η) and its derivatives.
func (p BetaBinomialPoint) At(eta float64) (l, d1, d2 float64) {
	l0, a1, a2 := p.rise(p.K, eta)
	r0, b1, b2 := p.rise(p.Rest, -eta)
	return p.Norm + l0 + r0, a1 - b1, a2 + b2
}

// LogProb returns log p(y|η).
func (p BetaBinomialPoint) LogProb(eta float64) float64 {
	return p.Norm + p.logRise(p.K, eta) + p.logRise(p.Rest, -eta)
}

// logRise returns log Γ(k+a)/Γ(a) with a = φσ(η). It has the same bits as the result of rise.
func (p BetaBinomialPoint) logRise(k, eta float64) float64 {
	if k == 0 {
		return 0
	}
	f, _, _ := SoftplusAt(eta)
	r := math.Log(p.Phi) - f
	if k > 1 {
		_, part, _ := SoftplusAt(-eta)
		r += special.LogGammaRise(1+p.Phi*part, k-1)
	}
	return r
}

// rise returns log Γ(k+a)/Γ(a) with a = φσ(η), and its derivatives in η. It is 0 for k = 0.
// Otherwise it is log a + log Γ(k+a)/Γ(1+a), which works even if a underflows.
func (p BetaBinomialPoint) rise(k, eta float64) (r, d1, d2 float64) {
	if k == 0 {
		return 0, 0, 0
	}
	f, rest, pq := SoftplusAt(eta)
	_, part, _ := SoftplusAt(-eta)
	r, d1, d2 = math.Log(p.Phi)-f, rest, -pq
	if k > 1 {
		a, w := p.Phi*part, p.Phi*pq
		g1, g2 := special.DigammaRise(1+a, k-1), special.TrigammaFall(1+a, k-1)
		r += special.LogGammaRise(1+a, k-1)
		d1 += g1 * w
		d2 += w * (g1*(rest-part) - g2*w)
	}
	return r, d1, d2
}

// betaReach returns the |η| beyond which functions of log Γ(φσ(η)) are straight, because φσ(−η)
// is below e^{−40} there.
func betaReach(phi float64) float64 { return 40 + math.Max(0, math.Log(phi)) }

// Expect is like BetaPoint.Expect.
func (p BetaBinomialPoint) Expect(m, s float64) (e [3]float64, bound float64) {
	n, reach := p.K+p.Rest, betaReach(p.Phi)
	e, bound = Bend{At: p.At, Strip: betaStrip, Lo: -reach, Hi: reach, Slope: math.Min(1,
		p.K)}.Expect(m, s)
	size := special.LogChoose(p.K, p.Rest) + special.LogGammaRise(1+p.Phi, n)
	return e, bound + 4*special.Eps*(math.Abs(p.Norm)+size+40)
}
