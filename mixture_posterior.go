package pgsvi

import (
	"context"
	"fmt"
	"io"
	"math"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// MixturePosterior is what a run on a Mixture reached: q(π) = Dirichlet(α) and, for each component, a NormalWishart(m, κ, ν, W). It is immutable and
// safe for concurrent use.
type MixturePosterior struct {
	space      mixtureSpace
	alpha      []float64
	components []mixtureComponent
}

// mixtureComponent is a NormalWishart distribution in the coordinates of the space.
type mixtureComponent struct {
	kappa, df float64
	m         []float64
	c         []float64 // lower Cholesky factor of W⁻¹
	expected  float64   // E[log π] + ½E[log|Λ|] − ½D(log 2π + 1/κ)
	student   float64   // log of the density of the prediction, with its share of E[π], at m
}

// Fit runs s on the model; a nil s means a Solver without options. The posterior is that of the state reached, valid even if there is an error
// after the set-up. The errors are those of Solver.Run.
func (m *Mixture) Fit(ctx context.Context, s *Solver) (*MixturePosterior, *Result, error) {
	return fitModel[*MixturePosterior](ctx, s, m)
}

// Posterior returns the posterior at st, a state of a run on a Mixture. The error wraps ErrParam if st is none, or one of another number of components or columns.
func (m *Mixture) Posterior(st State) (*MixturePosterior, error) {
	q, err := posteriorOf(st, m.prior)
	if err != nil {
		return nil, err
	}
	eta := q.eta
	p := &MixturePosterior{space: m.space, alpha: []float64{1}}
	if m.k > 1 {
		p.alpha = append([]float64(nil), eta[:m.k]...)
	}
	f := normalWishartFamily{wishartFamily{m.d}}
	for k := range m.k {
		x, w, _ := f.unpack(m.part(eta, k))
		c := mixtureComponent{kappa: x.kappa, df: 2 * x.a, m: append([]float64(nil), x.m...), c: append([]float64(nil), w.b...)}
		floats.Scale(2, c.c) // W⁻¹ = 2B
		ok := dense.Cholesky(c.c, m.d)
		wishartPool.Put(w)
		if !ok {
			return nil, fmt.Errorf("pgsvi: scale of component %d: %w", k, ErrNotPosDef)
		}
		p.components = append(p.components, c)
	}
	p.prepare()
	return p, nil
}

// prepare computes what the components have of their own.
func (p *MixturePosterior) prepare() {
	d := len(p.space.mean)
	f, dim, total := wishartFamily{d}, float64(d), floats.Sum(p.alpha)
	for k := range p.components {
		c := &p.components[k]
		logW := -dense.LogDet(c.c, d)
		c.expected = 0.5 * (f.digamma(0.5*c.df) + dim*math.Ln2 + logW - dim*(log2Pi+1/c.kappa))
		if len(p.alpha) > 1 {
			c.expected += special.Digamma(p.alpha[k]) - special.Digamma(total)
		}
		free := c.df + 1 - dim
		c.student = math.Log(p.alpha[k]/total) + special.LogGammaRise(0.5*free, 0.5*dim) +
			0.5*(logW+dim*math.Log(c.kappa/(1+c.kappa)/math.Pi)) - p.space.logDet
	}
}

// square returns (z − m)ᵀW(z − m); it overwrites u.
func (c *mixtureComponent) square(u, z []float64) float64 {
	floats.SubTo(u, z, c.m)
	dense.Trsv(blas.NoTrans, dense.LowerTriangle(c.c, len(u)), dense.Vector(u))
	return floats.Dot(u, u)
}

// Weights stores the means α_k/Σα of the weights of the components in dst; nil allocates.
func (p *MixturePosterior) Weights(dst []float64) []float64 {
	dst = dense.Dest(dst, len(p.alpha))
	floats.ScaleTo(dst, 1/floats.Sum(p.alpha), p.alpha)
	return dst
}

// Means returns the means of the m_k, K×D and new.
func (p *MixturePosterior) Means() *mat.Dense {
	d := len(p.space.mean)
	out := mat.NewDense(len(p.components), d, nil)
	for k, c := range p.components {
		row := out.RawRowView(k)
		copy(row, c.m)
		dense.Trmv(blas.NoTrans, dense.LowerTriangle(p.space.l, d), dense.Vector(row))
		floats.Add(row, p.space.mean)
	}
	return out
}

// Cov returns the covariance of component k, the inverse of E[Λ_k] = νW, D×D and new. It panics if there is no component k.
func (p *MixturePosterior) Cov(k int) *mat.SymDense {
	c, d := p.components[k], len(p.space.mean)
	l := dense.General(append([]float64(nil), c.c...), d, d)
	for i := range d {
		clear(l.Data[i*d+i+1 : (i+1)*d])
	}
	blas64.Trmm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(p.space.l, d), l)
	out := mat.NewSymDense(d, nil)
	blas64.Syrk(blas.NoTrans, 1/c.df, l, 0, out.RawSymmetric())
	return out
}

// NormalWishart returns q(m_k, Λ_k) of component k: the mean of m_k, κ, ν and W⁻¹, D×D, all new. It panics if there is no component k.
func (p *MixturePosterior) NormalWishart(k int) (mean []float64, kappa, df float64, inverse *mat.SymDense) {
	inverse = p.Cov(k)
	c := p.components[k]
	inverse.ScaleSym(c.df, inverse)
	return mat.Row(nil, k, p.Means()), c.kappa, c.df, inverse
}

// Responsibilities stores the probabilities that x is of each component, those of the best q(s) of a row x,
//
//	r_k ∝ exp(E[log π_k] + E[log N(x|m_k, Λ_k⁻¹)]),
//
// in dst, of length K; nil allocates. It panics unless x has D elements.
func (p *MixturePosterior) Responsibilities(dst, x []float64) []float64 {
	dst = dense.Dest(dst, len(p.components))
	p.each(x, func(k int, c *mixtureComponent, square float64) { dst[k] = c.expected - 0.5*c.df*square })
	log := floats.LogSumExp(dst)
	for k, l := range dst {
		dst[k] = math.Exp(l - log)
	}
	return dst
}

// LogProb returns the log density of the prediction of a new row x: the logarithm of a mixture of Student t distributions with the
// weights E[π_k] (Bishop, 2006, equation 10.81),
//
//	log Σ_k E[π_k] St(x | m_k, (ν+1−D)κ/(1+κ) W, ν+1−D).
//
// It panics unless x has D elements.
func (p *MixturePosterior) LogProb(x []float64) float64 {
	log := make([]float64, len(p.components))
	p.each(x, func(k int, c *mixtureComponent, square float64) {
		log[k] = c.student - 0.5*(c.df+1)*math.Log1p(c.kappa/(1+c.kappa)*square)
	})
	return floats.LogSumExp(log)
}

// each calls do for each component with (z − m)ᵀW(z − m).
func (p *MixturePosterior) each(x []float64, do func(k int, c *mixtureComponent, square float64)) {
	d := len(p.space.mean)
	if len(x) != d {
		panic(fmt.Sprintf("pgsvi: a row of %d elements, want %d", len(x), d))
	}
	z, u := make([]float64, d), make([]float64, d)
	p.space.to(z, x)
	for k := range p.components {
		c := &p.components[k]
		do(k, c, c.square(u, z))
	}
}

// mixtureFile is the file of a MixturePosterior.
var mixtureFile = save.Kind{Name: "MixturePosterior", Version: 1}

// savedMixture is a MixturePosterior as JSON.
type savedMixture struct {
	Mean    save.List[float64] `json:"mean"`   // x̄
	Factor  save.List[float64] `json:"factor"` // L, row by row
	Alpha   save.List[float64] `json:"alpha"`
	Kappa   save.List[float64] `json:"kappa"`
	DF      save.List[float64] `json:"df"`
	Means   save.List[float64] `json:"means"`   // component by component
	Factors save.List[float64] `json:"factors"` // of W⁻¹, component by component and row by row
}

// Save writes p, from which LoadMixturePosterior makes the same posterior, to the last bit. The error is that of w.
func (p *MixturePosterior) Save(w io.Writer) error {
	s := savedMixture{Mean: p.space.mean, Factor: p.space.l, Alpha: p.alpha}
	for _, c := range p.components {
		s.Kappa, s.DF = append(s.Kappa, c.kappa), append(s.DF, c.df)
		s.Means, s.Factors = append(s.Means, c.m...), append(s.Factors, c.c...)
	}
	return saveTo(w, mixtureFile, &s)
}

// LoadMixturePosterior reads what MixturePosterior.Save has written, which must be all of r. The error wraps ErrFile if r has no such file, or one that is
// damaged or of a newer release, or whose numbers make no posterior. A failure of r is wrapped as it is.
func LoadMixturePosterior(r io.Reader) (*MixturePosterior, error) {
	return loadFrom(r, mixtureFile, (*savedMixture).load)
}

func (s *savedMixture) load() (*MixturePosterior, error) {
	d, k := len(s.Mean), len(s.Alpha)
	if d < 1 || k < 1 || len(s.Kappa) != k || len(s.DF) != k || len(s.Means)%k != 0 || len(s.Means)/k != d || len(s.Factors)%k != 0 || len(s.Factors)/k%d != 0 || len(s.Factors)/k/d != d {
		return nil, fmt.Errorf("%d columns and %d weights with %d, %d, %d and %d elements in kappa, df, means and factors: %w", d, k, len(s.Kappa), len(s.DF), len(s.Means), len(s.Factors), ErrShape)
	}
	p := &MixturePosterior{space: mixtureSpace{mean: s.Mean, l: s.Factor}, alpha: s.Alpha}
	if err := checkFactor(s.Factor, d); err != nil {
		return nil, err
	}
	p.space.logDet = 0.5 * dense.LogDet(s.Factor, d)
	for k, alpha := range s.Alpha {
		if !(alpha > 0) || !(s.Kappa[k] > 0) || !(s.DF[k] > float64(d-1)) {
			return nil, fmt.Errorf("component %d has the parameters %v, %v and %v: %w", k, alpha, s.Kappa[k], s.DF[k], ErrParam)
		}
		c := s.Factors[k*d*d : (k+1)*d*d]
		if err := checkFactor(c, d); err != nil {
			return nil, fmt.Errorf("component %d: %w", k, err)
		}
		p.components = append(p.components, mixtureComponent{kappa: s.Kappa[k], df: s.DF[k], m: s.Means[k*d : (k+1)*d], c: c})
	}
	p.prepare()
	return p, nil
}

// checkFactor returns an error unless l is a lower Cholesky factor of d dimensions.
func checkFactor(l []float64, d int) error {
	if len(l)%d != 0 || len(l)/d != d {
		return fmt.Errorf("a factor of %d elements, want %d×%d: %w", len(l), d, d, ErrShape)
	}
	for i := range d {
		if !(l[i*d+i] > 0) {
			return fmt.Errorf("element %d of the diagonal of a factor is %v: %w", i, l[i*d+i], ErrNotPosDef)
		}
	}
	return nil
}
