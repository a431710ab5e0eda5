package pgsvi

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/special"
)

func init() {
	Register("pgsvi.BernoulliLogit", BernoulliLogit{})
	Register("pgsvi.BernoulliProbit", BernoulliProbit{})
}

// BernoulliLogit is p(y|η) = 1/(1+e^{−yη}), y ∈ {−1, +1}. It has no parameters.
//
// Its expectations are those of max(0, −yη), in closed form, plus those of the
// remaining bump log(1+e^{−|η|}), by a quadrature rule that depends on the variance.
type BernoulliLogit struct{}

// LogProb returns −log(1+e^{−yη}), or −Inf if y is not −1 or +1.
func (BernoulliLogit) LogProb(y, eta float64) float64 {
	if y != 1 && y != -1 {
		return math.Inf(-1)
	}
	f, _, _ := expect.SoftplusAt(y * eta)
	return -f
}

// Derivs returns yσ(−yη) and −σ(η)σ(−η).
func (BernoulliLogit) Derivs(y, eta float64) (d1, d2 float64) {
	_, f1, f2 := expect.SoftplusAt(y * eta)
	return y * f1, -f2
}

// Expect returns E[log σ(yη)], D1 = yE[σ(−yη)] and D2 = −E[σ(η)σ(−η)] ≤ 0.
//
// The relative errors are below 2e−13, in the tails too, and Err says so. Against
// 32-digit arithmetic they were at most 3e−14, 3e−14 and 7e−14 for |m| ≤ 1e3 and
// 1e−4 ≤ √v ≤ 1e3. If y is not −1 or +1, Value is −Inf.
func (BernoulliLogit) Expect(y, m, v float64) Expectation {
	if !expect.Valid(m, v) {
		return quadNaN()
	}
	if y != 1 && y != -1 {
		return offSupport(m, v)
	}
	f0, f1, f2, scale := expect.SoftplusExpect(math.Abs(m), v)
	if scale != 0 {
		c := math.Exp(scale)
		f0, f1, f2 = c*f0, c*f1, c*f2
	}
	if y*m < 0 {
		// log(1+e^{−x}) = log(1+e^x) − x
		f0, f1 = f0+math.Abs(m), 1-f1
	}
	return Expectation{Value: -f0, D1: y * f1, D2: -f2, Err: logitErr * f0}
}

const (
	logitErr  = 2e-13 // relative error of the expectations of BernoulliLogit
	probitErr = 1e-12 // of those of BernoulliProbit

	// The zeros of Φ nearest the real line are at 1.916 ± 2.816i. There log Φ is
	// singular, which sets the panels of its quadrature.
	probitZeroRe, probitZeroIm = 1.916, 2.816
)

// Moments returns tanh(η/2) and 4σ(η)σ(−η).
func (BernoulliLogit) Moments(eta float64) (mean, variance float64) {
	_, _, f2 := expect.SoftplusAt(eta)
	return math.Tanh(eta / 2), 4 * f2
}

// CDF returns P(Y ≤ y|η): σ(−η) for −1 ≤ y < 1.
func (BernoulliLogit) CDF(y, eta float64) float64 {
	_, q, _ := expect.SoftplusAt(eta)
	return signCDF(y, q)
}

// Facts implements Factual.
func (BernoulliLogit) Facts() Facts { return Facts{Support: SignLabels, LogConcave: true} }

// BernoulliProbit is p(y|η) = Φ(yη), y ∈ {−1, +1}. It has no parameters.
type BernoulliProbit struct{}

// LogProb returns log Φ(yη), or −Inf if y is not −1 or +1.
func (BernoulliProbit) LogProb(y, eta float64) float64 {
	if y != 1 && y != -1 {
		return math.Inf(-1)
	}
	g, _, _ := special.NormalLogCDF(y * eta)
	return g
}

// Derivs returns yλ and −λ(λ+yη), where λ = φ(yη)/Φ(yη) is the inverse Mills ratio.
func (BernoulliProbit) Derivs(y, eta float64) (d1, d2 float64) {
	_, d1, d2 = special.NormalLogCDF(y * eta)
	return y * d1, d2
}

// Expect returns E[log Φ(yη)] and its derivatives, D2 < 0. It uses Gauss–Hermite
// quadrature where the Gaussian is narrow, and elsewhere Gauss–Legendre quadrature
// on panels that are shorter near the zeros of Φ at 1.916 ± 2.816i. The relative
// error is below 1e−12, and Err says so. If y is not −1 or +1, Value is −Inf.
func (BernoulliProbit) Expect(y, m, v float64) Expectation {
	if !expect.Valid(m, v) {
		return quadNaN()
	}
	if y != 1 && y != -1 {
		return offSupport(m, v)
	}
	m *= y
	if v == 0 {
		g, d1, d2 := special.NormalLogCDF(m)
		return dropInfErr(Expectation{g, y * d1, d2, 1e-14 * math.Abs(g)})
	}
	if m > 39*math.Sqrt(1+v) {
		return Expectation{} // of the order exp(−m²/2(1+v)), which underflows
	}
	s := math.Sqrt(v)
	w, lo, hi := s, m-9*s, m+9*s
	if m*s > 0.4*(1+v) {
		// Right of zero Φ(−x) is like e^{−x²/2} and has its mode against N(m, v) at
		// m/(1+v); left of zero, where N(m, v) is like e^{xm/v}, it is near zero.
		w = s / math.Sqrt(1+v)
		lo = math.Min(m/(1+v)-9*w, -80*v/(m+math.Sqrt(m*m+80*v)))
		hi = math.Min(m/(1+v)+9*w+3, hi)
	} else {
		hi = math.Min(hi, 9.5)
	}
	e, _ := expect.Centred(special.NormalLogCDF, m, s, lo, hi, w, probitZeroRe, probitZeroIm)
	return dropInfErr(Expectation{e[0], y * e[1], e[2], probitErr * math.Abs(e[0])})
}

// Moments returns 2Φ(η)−1 and 4Φ(η)Φ(−η).
func (BernoulliProbit) Moments(eta float64) (mean, variance float64) {
	q := special.NormalTail(math.Abs(eta))
	return math.Erf(eta / math.Sqrt2), 4 * q * (1 - q)
}

// CDF returns P(Y ≤ y|η): Φ(−η) for −1 ≤ y < 1.
func (BernoulliProbit) CDF(y, eta float64) float64 { return signCDF(y, special.NormalTail(eta)) }

// Facts implements Factual.
func (BernoulliProbit) Facts() Facts { return Facts{Support: SignLabels, LogConcave: true} }

func (BernoulliLogit) predictLogProb(y, m, v float64) (logp, bound float64) {
	if y != 1 && y != -1 {
		return math.Inf(-1), 0
	}
	q, scale := predictLogit(m, v)
	if y*m < 0 {
		logp = math.Log(q) + scale
	} else {
		logp = math.Log1p(-q * math.Exp(scale))
	}
	return logp, 1e-13*math.Min(1, math.Abs(logp)) + 4*special.Eps*math.Abs(logp)
}

// predictLogit returns the smaller of P(y = −1) and P(y = +1) as q e^scale.
func predictLogit(m, v float64) (q, scale float64) {
	_, q, _, scale = expect.SoftplusExpect(math.Abs(m), v)
	return q, scale
}

func (BernoulliProbit) predictLogProb(y, m, v float64) (logp, bound float64) {
	if y != 1 && y != -1 {
		return math.Inf(-1), 0
	}
	logp, _, _ = special.NormalLogCDF(y * m / math.Sqrt(1+v))
	return logp, 8 * special.Eps * (1 + math.Abs(logp))
}

func (BernoulliLogit) predictMoments(m, v float64) (mean, variance float64) {
	q, scale := predictLogit(m, v)
	q *= math.Exp(scale)
	return math.Copysign(1-2*q, m), 4 * q * (1 - q)
}

func (b BernoulliProbit) predictMoments(m, v float64) (mean, variance float64) {
	return b.Moments(m / math.Sqrt(1+v))
}

// predictCDF returns P(Y ≤ y) for η ~ N(m, v).
func (b BernoulliLogit) predictCDF(y, m, v float64) float64 {
	if !(y >= -1 && y < 1) {
		return b.CDF(y, m)
	}
	q, scale := predictLogit(m, v)
	q *= math.Exp(scale)
	if m < 0 {
		return 1 - q
	}
	return q
}

// predictCDF returns P(Y ≤ y) for η ~ N(m, v).
func (b BernoulliProbit) predictCDF(y, m, v float64) float64 {
	return b.CDF(y, m/math.Sqrt(1+v))
}
