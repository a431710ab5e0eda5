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

// DirichletFamily is the Dirichlet family of k parts, with h = Π 1/z_k.
type DirichletFamily struct{ K int }

func (f DirichletFamily) String() string { return fmt.Sprintf("Dirichlet of %d parts", f.K) }

func (f DirichletFamily) Dim() int { return f.K }

func (f DirichletFamily) NumParams() int { return f.K }

// largest returns the index of the largest α and the sum of the others: what is large against it is
// never found as a difference.
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

// mostAlpha is the largest sum of α, below which log Γ of it is finite.
const mostAlpha = 1e305

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

// LogPartition returns Σ log Γ(α_k) − log Γ(Σα).
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

func (f DirichletFamily) Mean(dst, eta []float64) { f.MeanOn(1, dst, eta) }

// DigammasShared is the number of digammas, some 40 µs, in the parts that goroutines share, and of
// the rests in a KL, whose sums are added part by part.
const DigammasShared = 1024

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

// logs stores ψ(η_k) − psi in dst, of which only the largest may cancel.
func (DirichletFamily) logs(dst, eta []float64, psi float64) {
	special.Digammas(dst, eta)
	floats.AddConst(-psi, dst)
}

func (f DirichletFamily) Fisher(dst *mat.SymDense, eta []float64) { FisherByColumns(dst, f, eta) }

// FisherMul: the Fisher information is diag(ψ′(α)) − ψ′(Σα)11ᵀ.
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

// FisherSolve is by the formula of Sherman and Morrison. What it divides by, 1/ψ′(Σα) − Σ
// 1/ψ′(α_k), is a difference of numbers of the size of Σα; less α_k each of them is at most ½.
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

func (DirichletFamily) Stat(dst, z []float64) {
	for k, x := range z {
		dst[k] = math.Log(x)
	}
}

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

func (f DirichletFamily) Rand(z, t, eta []float64, rng *rand.Rand) { f.RandPath(z, t, t, eta, rng) }

func (f DirichletFamily) AuxLen() int { return f.K }

// RandPath stores the logarithms of gamma draws in aux, of which z are the proportions. Aux may be
// t.
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

func (DirichletFamily) PathGrad(dst, dl, c, z, aux, eta []float64) {
	var sum float64
	for k, x := range z {
		sum += special.Times(x, dl[k]) + c[k]
	}
	for k, x := range z {
		dst[k] += (special.Times(x, dl[k]) + c[k] - x*sum) * special.GammaSlope(eta[k], aux[k])
	}
}

// Entropy is log B(α) + (Σα − K)ψ(Σα) − Σ(α_k−1)ψ(α_k), in which α log α has been left out where it
// cancels.
func (DirichletFamily) Entropy(eta []float64) float64 {
	total, k := floats.Sum(eta), float64(len(eta))
	h := (0.5-k)*math.Log(total) + (k-1)*special.LogSqrt2Pi - special.Binet(total) - (total-k)*special.DigammaGap(total)
	for _, a := range eta {
		h += 0.5*math.Log(a) + special.Binet(a) + (a-1)*special.DigammaGap(a)
	}
	return h
}

func (f DirichletFamily) Divergence(eta, etaP []float64) float64 {
	return f.DivergenceOn(1, eta, etaP)
}

// DivergenceOn is the KL of the proportions, times the sum of the prior's α, and the rests of the
// Bregman divergences of log Γ.
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

// rests returns what these α have in the KL.
func (DirichletFamily) rests(eta, etaP []float64, ratio float64) (sum float64) {
	for k, p := range etaP {
		sum += p*special.LogGap(eta[k]/p*ratio) + special.GammaRest(p, eta[k])
	}
	return sum
}

// FromMean solves for the sum s of α: with α_k(s) = ψ⁻¹(μ_k + ψ(s)), the sum of the others is s −
// α_m(s), m that of the largest μ. It has one root if Σ e^{μ_k} < 1, which is what is attained, and
// the sum is too large below it.
func (DirichletFamily) FromMean(dst, mu []float64) bool {
	at := floats.MaxIdx(mu)
	var others float64 // of Σ e^μ
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

// fallOf returns the d with ψ(s) − ψ(s−d) = y > 0, by Newton's method along log d from that of the
// slope at s.
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

func (DirichletFamily) Chart(dst, eta []float64) {
	for k, a := range eta {
		dst[k] = math.Log(a)
	}
}

func (DirichletFamily) FromChart(dst, x []float64) {
	for k, v := range x {
		dst[k] = math.Exp(v)
	}
}

func (DirichletFamily) ChartGrad(dst, g, eta []float64) { floats.MulTo(dst, g, eta) }

// BetaFamily is the Dirichlet family of two parts, of which z is the first.
type BetaFamily struct{ DirichletFamily }

func (BetaFamily) String() string { return "Beta" }

func (BetaFamily) Dim() int { return 1 }

func (BetaFamily) NumParams() int { return 2 }

func (BetaFamily) Stat(dst, z []float64) { dst[0], dst[1] = math.Log(z[0]), math.Log1p(-z[0]) }

func (BetaFamily) LogBase(z []float64) float64 {
	if !(z[0] > 0 && z[0] < 1) {
		return math.Inf(-1)
	}
	return -math.Log(z[0]) - math.Log1p(-z[0])
}

func (f BetaFamily) Rand(z, t, eta []float64, rng *rand.Rand) { f.RandPath(z, t, t, eta, rng) }

func (BetaFamily) AuxLen() int { return 2 }

func (f BetaFamily) RandPath(z, t, aux, eta []float64, rng *rand.Rand) {
	var both [2]float64
	f.DirichletFamily.RandPath(both[:], t, aux, eta, rng)
	z[0] = both[0]
}

func (f BetaFamily) PathGrad(dst, dl, c, z, aux, eta []float64) {
	both := [2]float64{z[0], 1 / (1 + math.Exp(aux[0]-aux[1]))}
	f.DirichletFamily.PathGrad(dst, []float64{dl[0], 0}, c, both[:], aux, eta)
}

// Line: u is the logit of z less its mode log a/b.
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

func (BetaFamily) Width(eta []float64) float64 { return math.Sqrt(1/eta[0] + 1/eta[1]) }
