package expfam

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// DirichletFamily is the family of Dirichlet(α) distributions of K proportions:
//
//	q(z) = h(z) exp(ηᵀT(z) − A(η)),   η = α,   T = log z,   h = Π 1/z_k.
type DirichletFamily struct{ K int }

// String returns the name of the family.
func (f DirichletFamily) String() string { return fmt.Sprintf("Dirichlet of %d parts", f.K) }

// Dim returns the length of z, K.
func (f DirichletFamily) Dim() int { return f.K }

// NumParams returns the length of η, K.
func (f DirichletFamily) NumParams() int { return f.K }

// largest returns the index of the largest α and the sum of the others. Functions use both so
// that a small sum is never computed as a difference of large numbers.
func largest(alpha []float64) (at int, others float64) {
	for k, a := range alpha {
		if a > alpha[at] {
			at = k
		}
	}
	for k, a := range alpha {
		if k != at {
			others += a
		}
	}
	return at, others
}

// mostAlpha limits the sum of α, so that log Γ of the sum is finite.
const mostAlpha = 1e305

// Valid reports whether all α are positive and A(η) is finite.
func (DirichletFamily) Valid(eta []float64) bool {
	var sum float64
	for _, a := range eta {
		if !(a > 0) {
			return false
		}
		sum += a
	}
	return sum < mostAlpha
}

// LogPartition returns A(η) = Σ log Γ(α_k) − log Γ(Σα). It is +Inf if η is not valid.
func (f DirichletFamily) LogPartition(eta []float64) float64 {
	if !f.Valid(eta) {
		return math.Inf(1)
	}
	at, others := largest(eta)
	sum := -special.LogGammaRise(eta[at], others)
	for k, a := range eta {
		if k != at {
			lg, _ := math.Lgamma(a)
			sum += lg
		}
	}
	return sum
}

// Mean stores E[log z_k] = ψ(α_k) − ψ(Σα) in dst.
func (f DirichletFamily) Mean(dst, eta []float64) { f.MeanOn(1, dst, eta) }

// DigammasShared is the number of digammas (about 40 µs) in each part that a goroutine takes. It is
// also the number of terms in each partial sum of a KL divergence.
const DigammasShared = 1024

// MeanOn is like Mean, but uses several goroutines. The result has the same bits.
func (f DirichletFamily) MeanOn(workers int, dst, eta []float64) {
	at, others := largest(eta)
	psi := special.Digamma(eta[at] + others)
	if workers > 1 && len(eta) > DigammasShared {
		parallel.For(len(eta), DigammasShared, workers,
			func(_, lo, hi int) { f.logs(dst[lo:hi], eta[lo:hi], psi) })
	} else {
		f.logs(dst, eta, psi)
	}
	dst[at] = -special.DigammaRise(eta[at], others)
}

// logs stores ψ(η_k) − psi in dst. Only the element of the largest η can cancel.
func (DirichletFamily) logs(dst, eta []float64, psi float64) {
	special.Digammas(dst, eta)
	floats.AddConst(-psi, dst)
}

// Fisher stores ∇²A(η) = diag(ψ′(α)) − ψ′(Σα)11ᵀ in dst.
func (f DirichletFamily) Fisher(dst *mat.SymDense, eta []float64) { FisherByColumns(dst, f, eta) }

// FisherMul stores ∇²A(η)g in dst.
func (DirichletFamily) FisherMul(dst, g, eta []float64) {
	at, others := largest(eta)
	c, rest := special.Trigamma(eta[at]+others), 0.0
	for k, x := range g {
		if k != at {
			rest += x
		}
	}
	most := g[at]
	for k, a := range eta {
		dst[k] = special.Trigamma(a)*g[k] - c*(rest+most)
	}
	dst[at] = special.TrigammaFall(eta[at], others)*most - c*rest
}

// FisherSolve stores ∇²A(η)⁻¹g in dst by the formula of Sherman and Morrison. The denominator
// 1/ψ′(Σα) − Σ 1/ψ′(α_k) is a difference of numbers as large as Σα. FisherSolve subtracts α from
// each 1/ψ′(α) first, which leaves numbers of at most ½.
func (DirichletFamily) FisherSolve(dst, g, eta []float64) {
	total := floats.Sum(eta)
	rest := func(a float64) float64 {
		if total < 1 {
			return 1 / special.Trigamma(a)
		}
		t := special.TrigammaGap(a)
		return -a * t / (1/a + t) // 1/ψ′(a) − a
	}
	den := rest(total)
	var num float64
	for k, a := range eta {
		t := special.TrigammaGap(a)
		if total < 1 {
			den -= 1 / (1/a + t)
		} else {
			den += a * t / (1/a + t)
		}
		dst[k] = g[k] / (1/a + t)
		num += dst[k]
	}
	for k, a := range eta {
		dst[k] += num / den / special.Trigamma(a)
	}
}

// Stat stores T(z) = log z in dst.
func (DirichletFamily) Stat(dst, z []float64) {
	for k, x := range z {
		dst[k] = math.Log(x)
	}
}

// LogBase returns log h(z) = −Σ log z_k, and −Inf if an element of z is outside (0, 1].
func (DirichletFamily) LogBase(z []float64) float64 {
	var sum float64
	for _, x := range z {
		if !(x > 0 && x <= 1) {
			return math.Inf(-1)
		}
		sum -= math.Log(x)
	}
	return sum
}

// Rand stores a draw in z and T(z) in t.
func (f DirichletFamily) Rand(z, t, eta []float64, rng *rand.Rand) { f.RandPath(z, t, t, eta, rng) }

// AuxLen returns the length of aux in RandPath, K.
func (f DirichletFamily) AuxLen() int { return f.K }

// RandPath stores a draw in z, T(z) in t, and the logarithms of K gamma draws in aux. z holds the
// proportions of these draws. aux and t may be the same slice.
func (DirichletFamily) RandPath(z, t, aux, eta []float64, rng *rand.Rand) {
	for k, a := range eta {
		aux[k] = logGammaRand(a, rng)
	}
	log := floats.LogSumExp(aux)
	for k, x := range aux {
		t[k] = x - log
		z[k] = math.Exp(t[k])
	}
}

// PathGrad adds the gradient in η of a function of the draw to dst. dl is the gradient of the
// function in z, and c its gradient in T(z).
func (DirichletFamily) PathGrad(dst, dl, c, z, aux, eta []float64) {
	var sum float64
	for k, x := range z {
		sum += special.Times(x, dl[k]) + c[k]
	}
	for k, x := range z {
		dst[k] += (special.Times(x, dl[k]) + c[k] - x*sum) * special.GammaSlope(eta[k], aux[k])
	}
}

// Entropy returns log B(α) + (Σα − K)ψ(Σα) − Σ(α_k − 1)ψ(α_k), in nats. Terms of size α log α are
// left out because they cancel.
func (DirichletFamily) Entropy(eta []float64) float64 {
	total, k := floats.Sum(eta), float64(len(eta))
	h := (0.5-k)*math.Log(total) + (k-1)*special.LogSqrt2Pi - special.Binet(total) -
		(total-k)*special.DigammaGap(total)
	for _, a := range eta {
		h += 0.5*math.Log(a) + special.Binet(a) + (a-1)*special.DigammaGap(a)
	}
	return h
}

// Divergence returns KL(q‖p), in nats.
func (f DirichletFamily) Divergence(eta, etaP []float64) float64 {
	return f.DivergenceOn(1, eta, etaP)
}

// DivergenceOn is like Divergence, but uses several goroutines. It adds the KL divergence of the
// proportions, times the sum of the prior's α, and the remainders of the Bregman divergences of
// log Γ. The result has the same bits for any number of workers.
func (f DirichletFamily) DivergenceOn(workers int, eta, etaP []float64) float64 {
	total, totalP := floats.Sum(eta), floats.Sum(etaP)
	kl, n, ratio := -special.GammaRest(totalP, total), len(eta), totalP/total
	if workers <= 1 || n <= DigammasShared {
		for lo := 0; lo < n; lo += DigammasShared {
			hi := min(lo+DigammasShared, n)
			kl += f.rests(eta[lo:hi], etaP[lo:hi], ratio)
		}
		return kl
	}
	sums := make([]float64, (n+DigammasShared-1)/DigammasShared)
	parallel.For(n, DigammasShared, workers,
		func(_, lo, hi int) { sums[lo/DigammasShared] = f.rests(eta[lo:hi], etaP[lo:hi], ratio) })
	for _, s := range sums {
		kl += s
	}
	return kl
}

// rests returns the contribution of some α to the KL divergence.
func (DirichletFamily) rests(eta, etaP []float64, ratio float64) (sum float64) {
	for k, p := range etaP {
		sum += p*special.LogGap(eta[k]/p*ratio) + special.GammaRest(p, eta[k])
	}
	return sum
}

// FromMean stores the η with the mean parameters mu in dst. It reports false if mu is not
// attained, which is so unless Σ e^{μ_k} < 1.
//
// It solves for the sum s of α: with α_k(s) = ψ⁻¹(μ_k + ψ(s)) for all k but the index m of the
// largest μ, their sum must be s − α_m(s). The equation has one root, and the sum is too large
// below it.
func (DirichletFamily) FromMean(dst, mu []float64) bool {
	at := floats.MaxIdx(mu)
	var others float64 // Σ e^μ without the largest
	for k, m := range mu {
		if k != at {
			others += math.Exp(m)
		}
	}
	if !(others < -math.Expm1(mu[at])) {
		return false
	}
	excess := func(logS float64) float64 {
		s := math.Exp(logS)
		psi := special.Digamma(s)
		var sum float64
		for k, m := range mu {
			if k != at {
				dst[k] = special.InvDigamma(m + psi)
				sum += dst[k]
			}
		}
		part := fallOf(s, -mu[at])
		dst[at] = s - part
		return math.Log(sum / part)
	}
	excess(root(excess))
	_, sum := largest(dst)
	return sum > 0 && !math.IsInf(sum, 1)
}

// fallOf returns the d with ψ(s) − ψ(s−d) = y > 0, by Newton's method in log d from the solution
// for the slope at s.
func fallOf(s, y float64) float64 {
	d := s - special.InvDigamma(special.Digamma(s)-y)
	if !(d > 0) {
		d = y / special.Trigamma(s)
	}
	for range 50 {
		d = math.Min(d, s*(1-1e-16))
		rise := special.DigammaRise(s-d, d)
		step := math.Log(rise/y) * rise / (d * special.Trigamma(s-d))
		d *= math.Exp(-step)
		if math.Abs(step) < 4e-16 {
			break
		}
	}
	return d
}

// Chart stores log α in dst.
func (DirichletFamily) Chart(dst, eta []float64) {
	for k, a := range eta {
		dst[k] = math.Log(a)
	}
}

// FromChart stores the η with chart x in dst.
func (DirichletFamily) FromChart(dst, x []float64) {
	for k, v := range x {
		dst[k] = math.Exp(v)
	}
}

// ChartGrad turns the gradient g in η into the gradient in the chart and stores it in dst.
func (DirichletFamily) ChartGrad(dst, g, eta []float64) { floats.MulTo(dst, g, eta) }

// BetaFamily is the family of Beta(a, b) distributions: z is the first part of a Dirichlet(a, b)
// distribution.
type BetaFamily struct{ DirichletFamily }

// String returns the name of the family.
func (BetaFamily) String() string { return "Beta" }

// Dim returns the length of z, 1.
func (BetaFamily) Dim() int { return 1 }

// NumParams returns the length of η, 2.
func (BetaFamily) NumParams() int { return 2 }

// Stat stores T(z) = (log z, log(1 − z)) in dst.
func (BetaFamily) Stat(dst, z []float64) { dst[0], dst[1] = math.Log(z[0]), math.Log1p(-z[0]) }

// LogBase returns log h(z) = −log z − log(1 − z), and −Inf if z is outside (0, 1).
func (BetaFamily) LogBase(z []float64) float64 {
	if !(z[0] > 0 && z[0] < 1) {
		return math.Inf(-1)
	}
	return -math.Log(z[0]) - math.Log1p(-z[0])
}

// Rand stores a draw in z and T(z) in t.
func (f BetaFamily) Rand(z, t, eta []float64, rng *rand.Rand) { f.RandPath(z, t, t, eta, rng) }

// AuxLen returns the length of aux in RandPath, 2.
func (BetaFamily) AuxLen() int { return 2 }

// RandPath stores a draw in z, T(z) in t, and the logarithms of two gamma draws in aux.
func (f BetaFamily) RandPath(z, t, aux, eta []float64, rng *rand.Rand) {
	var both [2]float64
	f.DirichletFamily.RandPath(both[:], t, aux, eta, rng)
	z[0] = both[0]
}

// PathGrad adds the gradient in η of a function of the draw to dst. dl is the gradient of the
// function in z, and c its gradient in T(z).
func (f BetaFamily) PathGrad(dst, dl, c, z, aux, eta []float64) {
	both := [2]float64{z[0], 1 / (1 + math.Exp(aux[0]-aux[1]))}
	f.DirichletFamily.PathGrad(dst, []float64{dl[0], 0}, c, both[:], aux, eta)
}

// Line supports quadrature over z. It stores T(z) − μ in t for the z with logit z = u + log a/b,
// and returns z and the log density of u.
func (f BetaFamily) Line(t []float64, u float64, eta []float64) (z, log float64) {
	a, b := eta[0], eta[1]
	total := a + b
	p, q := a/total, b/total
	r, s := 1/(p+q*math.Exp(-u)), 1/(q+p*math.Exp(u)) // z/p and (1−z)/q
	gap := special.DigammaGap(total)
	t[0], t[1] = math.Log(r)+special.DigammaGap(a)-gap, math.Log(s)+special.DigammaGap(b)-gap
	log = 0.5*math.Log(p*b) - special.LogSqrt2Pi +
		special.Binet(total) - special.Binet(a) - special.Binet(b)
	return p * r, log - a*special.LogGap(r) - b*special.LogGap(s)
}

// Width returns the scale √(1/a + 1/b) of u in Line.
func (BetaFamily) Width(eta []float64) float64 { return math.Sqrt(1/eta[0] + 1/eta[1]) }
