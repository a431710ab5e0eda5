package pgsvi

import (
	"fmt"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/topic"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/mathext"
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
// given the topics, μ and Σ of the fit, by elliptical slice sampling (I. Murray, R. P. Adams and D.
// J. C. MacKay, AISTATS 2010; R. Nishihara, I. Murray and R. P. Adams, JMLR 2014). Intervals of q
// would be too narrow, because the posterior has longer tails. Draws of q are used only if the
// document comes from a file without its words (see CTMPosterior.WithDocs), or if its counts are
// too large for a Gaussian approximation with a full covariance.
//
// For an LDA the means are γ_k/Σγ, and the intervals are quantiles of
//
//	p(θ_k) ∝ θ_k^(DocPrior−1) (1 − θ_k)^((K−1)·DocPrior−1) Π_v (θ_k β_kv + (1 − θ_k) m_kv)^y_v
//
// with m_kv the mean of the β_jv of the other topics (B. Cseke and T. Heskes, Approximate marginals
// in latent Gaussian models, JMLR 2011, the factorized correction). They are exact for two topics.
// Quantiles of Beta(γ_k, Σγ − γ_k) would give intervals that are too narrow, because that
// distribution has another shape. They are used only if the document comes from a file without its
// words; see LDAPosterior.WithDocs.
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

// ctmDoc is q(z) = N(m, V) for the topic logits z of a document, whose topic proportions are
// softmax(z).
type ctmDoc struct {
	q   *topic.Logits
	of  *topic.Fitted // nil if the posterior comes from a file without words
	doc topic.Doc     // valid if of is not nil
}

// means stores the means of the topic proportions over draws in dst.
func (d *ctmDoc) means(dst []float64) []float64 {
	const draws = 400
	dst = dense.Dest(dst, len(d.q.Mean))
	clear(dst)
	rng := rand.New(rand.NewPCG(seed1, seed2))
	x := make([]float64, len(dst))
	for range draws {
		floats.AddScaled(dst, 1.0/draws, d.q.Rand(x, rng))
	}
	return dst
}

// proportions is DocPosterior.Proportions for a valid level.
func (d *ctmDoc) proportions(level float64) (mean, lo, hi []float64) {
	if d.of != nil && len(d.doc.Words) > 0 {
		rng := rand.New(rand.NewPCG(seed1, seed2))
		mean, lo, hi, err := d.of.Proportions(d.doc, level, rng)
		if err == nil {
			return mean, lo, hi
		}
	}
	return d.q.Proportions(level, rand.New(rand.NewPCG(seed1, seed2)))
}

// ldaDoc is a Dirichlet(γ) for the topic proportions θ of a document; see DocPosterior.
type ldaDoc struct {
	gamma []float64
	elbo  float64
	// intervals returns the ends of the intervals of the proportions of the document. It is nil if the
	// posterior comes from a file without words.
	intervals func(level float64) (lo, hi []float64)
}

// rand stores a draw from Dirichlet(γ) in dst, of length K.
func (d *ldaDoc) rand(dst []float64, rng *rand.Rand) []float64 {
	dst = dense.Dest(dst, len(d.gamma))
	if len(dst) == 1 {
		dst[0] = 1
		return dst
	}
	stat := make([]float64, len(dst))
	expfam.DirichletFamily{K: len(dst)}.Rand(dst, stat, d.gamma, rng)
	return dst
}

// proportions is DocPosterior.Proportions for a valid level.
func (d *ldaDoc) proportions(level float64) (mean, lo, hi []float64) {
	if d.intervals != nil {
		lo, hi = d.intervals(level)
		return d.means(nil), lo, hi
	}
	sum := floats.Sum(d.gamma)
	for _, g := range d.gamma {
		if g == sum { // one topic
			lo, hi = append(lo, 1), append(hi, 1)
			continue
		}
		lo = append(lo, mathext.InvRegIncBeta(g, sum-g, (1-level)/2))
		hi = append(hi, mathext.InvRegIncBeta(g, sum-g, (1+level)/2))
	}
	return d.means(nil), lo, hi
}

// means stores the means of the topic proportions in dst.
func (d *ldaDoc) means(dst []float64) []float64 {
	dst = dense.Dest(dst, len(d.gamma))
	copy(dst, d.gamma)
	floats.Scale(1/floats.Sum(dst), dst)
	return dst
}
