package topic

import (
	"math"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/fma"
	"gonum.org/v1/gonum/floats"
)

// This file approximates the posterior of the topic proportions θ of a document at known topics β,
//
//	p(θ) ∝ Dirichlet(θ | DocPrior, …) Π_v (Σ_k θ_k β_kv)^y_v,
//
// by a Dirichlet(γ). The exact posterior is a mixture with one part for every assignment of the
// tokens to topics. Mean field (dirichlet.go) treats these assignments as independent, so its
// standard deviations are 0.1 to 0.7 of the exact ones, and it is certain about words that carry no
// information. Expectation propagation (Minka and Lafferty, Expectation-propagation for the
// generative aspect model, 2002) replaces the factor Σ_k θ_k β_kv of word v by a site Π_k θ_k^ν_vk:
//
//	γ_k = DocPrior + Σ_v y_v ν_vk
//
// Let c be γ without one site of word v, the cavity, and s = Σ_k c_k. The new ν is such that
// Dirichlet(c + ν) has the means and the sum of the variances of the tilted distribution, which is
// proportional to Dirichlet(θ | c) Σ_k θ_k β_kv. With the topic probabilities w_k ∝ c_k β_kv of the
// word these moments lead to
//
//	ν_k = ((s + δ) w_k − (1 − δ) c_k) / (s + 1),   δ = Σ_k ν_k = (U − G) / (U + G/s)
//	G = Σ_k w_k (1 − w_k),   U = Σ_k (c_k/s) ((s − c_k) + 2 (1 − w_k)) / (s + 2)
//
// which do not cancel, however long the document is. A word that is equally probable in all topics
// has ν = 0. A word of a single topic adds its count to that topic. Both are exact.
//
// The sites have no fixed point in some documents whose words contradict each other, most of them
// short and with a DocPrior far below 1. Then γ has the moments of the marginals (marginal.go).
//
// LDAPosterior calls Propagate and Intervals for the documents that it returns. Read dirichlet.go
// first.

const (
	siteChange  = 1e-5 // change of γ in a pass, relative to Σγ, at which the sites are at their end
	sitePasses  = 100  // most passes over the words of a document
	fullPasses  = 10   // passes before steps may become shorter
	enoughFall  = 0.7  // ratio of the changes of two passes above which steps become shorter
	stepFactor  = 0.7
	leastStep   = 0.02
	leastCavity = 0.01 // smallest c_k, relative to DocPrior
	gammaFactor = 0.5  // a step reduces γ_k to no less than this part of it
)

// propagation holds the sites of a document.
type propagation struct {
	Doc
	k         int
	alpha     float64
	b         []float64 // β_kv relative to the largest in a topic, word by word
	nu        []float64 // ν, word by word
	gamma     []float64
	c, w, way []float64 // c, w, and the difference of the new ν and ν, for one word
	step      float64   // the part of the difference that a step adds
	marginal
}

var propagationPool = sync.Pool{New: func() any { return new(propagation) }}

// Propagate stores γ of d in dst. The topics are given by log β, topic by topic.
func (l Dirichlet) Propagate(dst, logs []float64, d Doc) {
	if l.K == 1 { // a cavity would have no topic
		dst[0] = l.DocPrior + floats.Sum(d.Counts)
		return
	}
	p := propagationPool.Get().(*propagation)
	defer propagationPool.Put(p)
	p.set(d, logs, l.K, l.DocPrior)
	if p.settle() {
		copy(dst, p.gamma)
	} else {
		p.matchMarginals(dst)
	}
}

// set makes p the sites of d before the first pass: ν = 0.
func (p *propagation) set(d Doc, logs []float64, k int, alpha float64) {
	n, terms := len(d.Words), len(logs)/k
	p.Doc, p.k, p.alpha, p.step = d, k, alpha, 1
	for _, s := range []*[]float64{&p.gamma, &p.c, &p.w, &p.way} {
		*s = dense.Resize(*s, k)
	}
	p.b, p.nu = dense.Resize(p.b, n*k), dense.Resize(p.nu, n*k)
	clear(p.nu)
	for j := range p.gamma {
		p.gamma[j] = alpha
		for i, v := range d.Words {
			p.b[i*k+j] = logs[j*terms+v]
		}
	}
	for i := range n {
		b := p.b[i*k : (i+1)*k]
		floats.AddConst(-floats.Max(b), b)
	}
	fma.Exp(p.b)
}

// settle makes passes over the words until γ stays, and reports whether it does.
func (p *propagation) settle() bool {
	last := math.Inf(1)
	for pass := range sitePasses {
		var most float64
		for i := range p.Words {
			most = max(most, p.update(i))
		}
		if most <= siteChange*floats.Sum(p.gamma) {
			return true
		}
		if pass >= fullPasses && most > enoughFall*last {
			p.step = max(p.step*stepFactor, leastStep)
		}
		last = most
	}
	return false
}

// cavity stores c of word i in p.c, and returns its sum.
func (p *propagation) cavity(i int) (s float64) {
	one, nu := min(1, p.Counts[i]), p.nu[i*p.k:(i+1)*p.k]
	for j, g := range p.gamma {
		p.c[j] = max(g-one*nu[j], leastCavity*p.alpha)
		s += p.c[j]
	}
	return s
}

// update takes a step of the site of word i, and returns the largest change of γ.
func (p *propagation) update(i int) (change float64) {
	y, nu, b := p.Counts[i], p.nu[i*p.k:(i+1)*p.k], p.b[i*p.k:(i+1)*p.k]
	s := p.cavity(i)
	floats.MulTo(p.w, p.c, b)
	floats.Scale(1/floats.Sum(p.w), p.w)
	var u, g float64
	for j, c := range p.c {
		w := p.w[j]
		g += w * (1 - w)
		u += c * ((s - c) + 2*(1-w))
	}
	u /= s * (s + 2)
	delta := 1.0 // the limit for a single topic
	if d := u + g/s; d > 0 {
		delta = (u - g) / d
	}
	step, up, down := p.step, (s+delta)/(s+1), (1-delta)/(s+1)
	for j, w := range p.w {
		way := up*w - down*p.c[j] - nu[j]
		p.way[j] = way
		if most := (1 - gammaFactor) * p.gamma[j]; -y*way*step > most {
			step = most / (-y * way)
		}
	}
	for j, way := range p.way {
		nu[j] += step * way
		p.gamma[j] += y * step * way
		change = max(change, math.Abs(y*step*way))
	}
	return change
}

// matchMarginals stores in dst the γ that has the means of the marginals, scaled to the sum 1, and
// the sum of their variances.
func (p *propagation) matchMarginals(dst []float64) {
	var variances float64
	for j := range dst {
		p.setMarginal(j)
		mean, variance := p.moments()
		dst[j] = mean
		variances += variance
	}
	floats.Scale(1/floats.Sum(dst), dst)
	total := max((1-floats.Dot(dst, dst))/variances-1, leastCavity*p.alpha)
	for j, mean := range dst {
		dst[j] = max(total*mean, leastCavity*p.alpha)
	}
}
