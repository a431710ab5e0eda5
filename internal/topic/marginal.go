package topic

import (
	"cmp"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
)

// This file finds the posterior of the share x = θ_k of one topic in a document. Dirichlet(γ) of
// propagation.go has the right means and variances, but the wrong shape: the density of a share is
// often a peak and a pole at 0, and no Beta distribution is. With a DocPrior of 0.2, intervals of
// Beta(γ_k, Σγ − γ_k) at 0.9 cover 0.8. If each site is replaced by its exact factor, whose other
// topics are averaged at given x (the factorized correction of Cseke and Heskes, Approximate
// marginals in latent Gaussian models, JMLR 2011), the density is
//
//	p(x) ∝ x^(α−1) (1 − x)^((K−1)α−1) Π_v (x β_kv + (1 − x) m_kv)^y_v,   α = DocPrior
//
// Here m_kv is the mean of β_jv over the other topics j with the weights c_j, the cavity of the
// site. The density is exact for two topics.
//
// It is evaluated in u = log(x/(1 − x)), where the poles become exponential tails. Nodes are added
// until its logarithm is a line between two of them. Such pieces have closed forms of integrals and
// quantiles.
//
// Dirichlet.Intervals returns quantiles, and matchMarginals of propagation.go uses the moments.

// marginal is the density of the share of a topic.
type marginal struct {
	counts      []float64
	own, other  []float64 // β_kv and m_kv of each word, relative to the larger
	alpha, rest float64   // α and (K − 1)α
	nodes, old  []node    // by increasing u
	top         float64   // the largest height
	left, right float64   // masses of the tails
	total       float64
}

// node is a point of the density, and the piece from there to the next node.
type node struct {
	u, height float64 // height is the logarithm of the density of u, up to a constant
	mass      float64 // the integral over the piece, relative to exp(top)
	straight  bool    // whether the piece is a line
}

const (
	tailStart  = 40   // |u| from which the factors no longer change, for a token
	gridEnd    = 8    // largest |u| of the first nodes, which are the numbers up to it
	leastBend  = 0.01 // nats by which the middle of a piece may differ from a line
	negligible = 14   // nats below the top from which on a piece has no mass
	mostRounds = 100  // most rounds of adding nodes
	halvings   = 100  // steps of the search for a maximum
	// a product below this is taken apart: the next factor may be 1e-120
	leastProduct = 1e-150
)

// Intervals returns the quantiles (1 − level)/2 and (1 + level)/2 of the share of each topic in d.
// The topics are given by log β, topic by topic.
func (l Dirichlet) Intervals(logs []float64, d Doc, level float64) (lo, hi []float64) {
	if l.K == 1 {
		return []float64{1}, []float64{1}
	}
	p := propagationPool.Get().(*propagation)
	defer propagationPool.Put(p)
	p.set(d, logs, l.K, l.DocPrior)
	p.settle()
	for j := range l.K {
		p.setMarginal(j)
		lo = append(lo, p.quantile((1-level)/2))
		hi = append(hi, p.quantile((1+level)/2))
	}
	return lo, hi
}

// setMarginal makes p.marginal the density of the share of topic j, ready for use.
func (p *propagation) setMarginal(j int) {
	m, n := &p.marginal, len(p.Words)
	m.counts, m.alpha, m.rest = p.Counts, p.alpha, float64(p.k-1)*p.alpha
	m.own, m.other = dense.Resize(m.own, n), dense.Resize(m.other, n)
	for i := range p.Words {
		p.cavity(i)
		b := p.b[i*p.k : (i+1)*p.k]
		others := floats.Dot(p.c[:j], b[:j]) + floats.Dot(p.c[j+1:], b[j+1:])
		others /= floats.Sum(p.c[:j]) + floats.Sum(p.c[j+1:])
		most := max(b[j], others)
		m.own[i], m.other[i] = b[j]/most, others/most
	}
	m.prepare()
}

// shares returns x and 1 − x at u.
func shares(u float64) (x, rest float64) { return 1 / (1 + math.Exp(-u)), 1 / (1 + math.Exp(u)) }

// height returns the logarithm of the density of u, up to a constant.
func (m *marginal) height(u float64) float64 {
	x, rest := shares(u)
	less := math.Log1p(math.Exp(-math.Abs(u)))
	h := -m.alpha*(max(-u, 0)+less) - m.rest*(max(u, 0)+less)
	product := 1.0 // the factors of the words with the count 1, which most words have
	for i, y := range m.counts {
		f := x*m.own[i] + rest*m.other[i]
		if y != 1 {
			h += y * math.Log(f)
			continue
		}
		if product *= f; product < leastProduct {
			h += math.Log(product)
			product = 1
		}
	}
	return h + math.Log(product)
}

// rise returns the derivative, with respect to x, of the logarithm of the product of the factors.
// It decreases in x.
func (m *marginal) rise(x, rest float64) (d float64) {
	for i, y := range m.counts {
		d += y * (m.own[i] - m.other[i]) / (x*m.own[i] + rest*m.other[i])
	}
	return d
}

// slope returns the derivative of height.
func (m *marginal) slope(u float64) float64 {
	x, rest := shares(u)
	return m.alpha*rest - m.rest*x + x*rest*m.rise(x, rest)
}

// prepare finds the nodes and the masses of their pieces.
func (m *marginal) prepare() {
	end := tailStart + math.Log1p(floats.Sum(m.counts))
	lo, hi := -end, end
	for range halvings {
		if mid := 0.5 * (lo + hi); m.rise(shares(mid)) > 0 {
			lo = mid
		} else {
			hi = mid
		}
	}
	m.nodes, m.top = m.nodes[:0], math.Inf(-1)
	for _, u := range []float64{-end, end, math.Log(m.alpha / m.rest), lo} { // the last two are
		m.add(u) // maxima of the prior and of the product of the factors
	}
	for u := -gridEnd; u <= gridEnd; u++ {
		m.add(float64(u))
	}
	slices.SortFunc(m.nodes, func(a, b node) int { return cmp.Compare(a.u, b.u) })
	m.nodes = slices.CompactFunc(m.nodes, func(a, b node) bool { return a.u == b.u })
	for range mostRounds {
		if !m.refine() {
			break
		}
	}
	last := len(m.nodes) - 1
	m.left, m.right = m.tail(m.nodes[0]), m.tail(m.nodes[last])
	m.total = m.left + m.right
	for i, b := range m.nodes[1:] {
		a := &m.nodes[i]
		d := math.Abs(b.height - a.height)
		a.mass = (b.u - a.u) * math.Exp(max(a.height, b.height)-m.top) * meanExp(-d)
		m.total += a.mass
	}
}

// add adds a node at u, in any order.
func (m *marginal) add(u float64) node {
	n := node{u: u, height: m.height(u)}
	m.top = max(m.top, n.height)
	m.nodes = append(m.nodes, n)
	return n
}

// refine halves the pieces that are not lines, and reports whether there are any. A piece whose
// height is not finite stays as it is.
func (m *marginal) refine() bool {
	m.old, m.nodes = m.nodes, m.old[:0]
	for i, a := range m.old[:len(m.old)-1] {
		m.nodes = append(m.nodes, a)
		b := m.old[i+1]
		mid := 0.5 * (a.u + b.u)
		if a.straight || mid <= a.u || mid >= b.u {
			continue
		}
		h := m.add(mid).height
		bend := math.Abs(h - 0.5*(a.height+b.height))
		if !(bend > leastBend) || max(a.height, h, b.height)+2*bend < m.top-negligible {
			n := len(m.nodes)
			m.nodes[n-2].straight, m.nodes[n-1].straight = true, true
		}
	}
	m.nodes = append(m.nodes, m.old[len(m.old)-1])
	return len(m.nodes) > len(m.old)
}

// meanExp returns the mean of exp between 0 and d: (exp(d) − 1)/d.
func meanExp(d float64) float64 {
	if d == 0 {
		return 1
	}
	return math.Expm1(d) / d
}

// tail returns the mass beyond the first or the last node.
func (m *marginal) tail(n node) float64 {
	return math.Exp(n.height-m.top) / math.Abs(m.slope(n.u))
}

// quantile returns the share at which the distribution function is prob.
func (m *marginal) quantile(prob float64) float64 {
	left := prob * m.total
	first := m.nodes[0]
	if left <= m.left {
		return math.Exp(first.u + math.Log(left/m.left)/m.slope(first.u))
	}
	left -= m.left
	for i, b := range m.nodes[1:] {
		a := m.nodes[i]
		if left > a.mass {
			left -= a.mass
			continue
		}
		part, d := left/a.mass, b.height-a.height
		switch {
		case d < 0:
			part = math.Log1p(part*math.Expm1(d)) / d
		case d > 0: // the same, where exp(d) may overflow
			part = 1 + math.Log(part+(1-part)*math.Exp(-d))/d
		}
		x, _ := shares(a.u + part*(b.u-a.u))
		return x
	}
	return 1
}

// moments returns the mean and the variance of the share. Each piece counts with the share
// in its middle.
func (m *marginal) moments() (mean, variance float64) {
	mean = m.right / m.total
	square := mean
	for i, b := range m.nodes[1:] {
		a := m.nodes[i]
		x, _ := shares(0.5 * (a.u + b.u))
		mean += x * a.mass / m.total
		square += x * x * a.mass / m.total
	}
	return mean, max(square-mean*mean, 0)
}
