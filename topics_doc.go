package pgsvi

import (
	"fmt"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/mat"
)

// DocPosterior is the approximate posterior of the topic proportions of one document, given the
// topics of a CTM or an LDA. It comes from their methods Infer and Doc.
//
// For a CTM it is q(z) = N(m, V) for the topic logits z, whose topic proportions are softmax(z). For
// an LDA it is a Dirichlet(γ) from expectation propagation (T. Minka and J. Lafferty,
// Expectation-propagation for the generative aspect model, UAI 2002), which is close to the exact
// means and standard deviations. It differs from the mean-field q(θ) of the fit of an LDA, whose
// standard deviations are too small.
//
// A DocPosterior is immutable and safe for concurrent use.
type DocPosterior struct {
	ctm *ctmDoc // nil for an LDA
	lda *ldaDoc // nil for a CTM
}

// String returns the means of the topic proportions in one line.
func (d *DocPosterior) String() string { return fmt.Sprintf("topic proportions %.3g", d.means()) }

// ELBO returns the contribution of the document to the ELBO, in nats, or NaN if it was not
// evaluated. For an LDA it is the contribution of the mean-field q(θ), which has another γ.
func (d *DocPosterior) ELBO() float64 {
	if d.ctm != nil {
		return d.ctm.q.ELBO
	}
	return d.lda.elbo
}

// LogitMean stores m of a CTM in dst; nil allocates. It returns nil for an LDA.
func (d *DocPosterior) LogitMean(dst []float64) []float64 {
	if d.ctm == nil {
		return nil
	}
	dst = dense.Dest(dst, len(d.ctm.q.Mean))
	copy(dst, d.ctm.q.Mean)
	return dst
}

// LogitCov returns V of a CTM as a new K×K matrix. It returns nil for an LDA.
func (d *DocPosterior) LogitCov() *mat.SymDense {
	if d.ctm == nil {
		return nil
	}
	c := mat.NewSymDense(len(d.ctm.q.Mean), nil)
	c.CopySym(d.ctm.q.Cov)
	return c
}

// Gamma stores γ of an LDA in dst, of length K; nil allocates. The mean proportion of topic k is
// γ_k/Σγ. Gamma returns nil for a CTM.
func (d *DocPosterior) Gamma(dst []float64) []float64 {
	if d.lda == nil {
		return nil
	}
	dst = dense.Dest(dst, len(d.lda.gamma))
	copy(dst, d.lda.gamma)
	return dst
}

// Rand stores a draw of the topic proportions in dst, of length K; nil allocates.
func (d *DocPosterior) Rand(dst []float64, rng *rand.Rand) []float64 {
	if d.ctm != nil {
		return d.ctm.q.Rand(dst, rng)
	}
	return d.lda.rand(dst, rng)
}

// Proportions returns the means of the topic proportions and, for each proportion, the central
// credible interval with probability level. Proportions panics unless level is in (0, 1). The
// uncertainty of the topics, and of μ and Σ of a CTM, is not included.
//
// For a CTM they come from 4000 draws with a fixed seed. The draws are from the posterior of z
// given the topics, μ and Σ of the fit, by elliptical slice sampling (I. Murray, R. P. Adams and
// D. J. C. MacKay, AISTATS 2010; R. Nishihara, I. Murray and R. P. Adams, JMLR 2014). Intervals of
// q would cover too little, because the posterior has longer tails. Draws of q are used only if the
// document comes from a file without its words (see CTMPosterior.WithDocs), or if its counts are
// too large for a Gaussian approximation with a full covariance.
//
// For an LDA the means are γ_k/Σγ, and the intervals are quantiles of
//
//	p(θ_k) ∝ θ_k^(DocPrior−1) (1 − θ_k)^((K−1)·DocPrior−1) Π_v (θ_k β_kv + (1 − θ_k) m_kv)^y_v
//
// with m_kv the mean of the β_jv of the other topics (B. Cseke and T. Heskes, Approximate marginals
// in latent Gaussian models, JMLR 2011, the factorized correction). They are exact for two topics.
// Quantiles of Beta(γ_k, Σγ − γ_k) would cover too little, because that distribution has another
// shape. They are used only if the document comes from a file without its words; see
// LDAPosterior.WithDocs.
func (d *DocPosterior) Proportions(level float64) (mean, lo, hi []float64) {
	checkLevel(level)
	if d.ctm != nil {
		return d.ctm.proportions(level)
	}
	return d.lda.proportions(level)
}

// means returns the means of the topic proportions.
func (d *DocPosterior) means() []float64 {
	if d.ctm != nil {
		return d.ctm.means(nil)
	}
	return d.lda.means(nil)
}

// checkLevel panics unless level is in (0, 1).
func checkLevel(level float64) {
	if !(level > 0 && level < 1) {
		panic(fmt.Sprintf("pgsvi: the level of Proportions is %v; it must be in (0, 1)", level))
	}
}
