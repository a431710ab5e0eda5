package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/pgsvi/pgsvi/internal/normal"
	"gonum.org/v1/gonum/mat"
)

// ProductOf returns the distribution of independent parts q_1(z_1) q_2(z_2) … (mean field), each
// an Exp of any Family or a Gaussian. Its z, η, T, μ and charts are the concatenation of those of
// the parts, and its work is the sum of theirs. It has paths if all parts have. The parts are
// copied; the coordinates are MeanParams. The error wraps ErrEmpty if there are no parts, and
// ErrParam if one is nil.
func ProductOf(parts ...ExpFamily) (*Exp, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("pgsvi: ProductOf needs parts: %w", ErrEmpty)
	}
	f, paths := new(productFamily), true
	var eta []float64
	for i, p := range parts {
		switch q := p.(type) {
		case *Exp:
			if q == nil {
				return nil, fmt.Errorf("pgsvi: part %d of ProductOf is nil: %w", i, ErrParam)
			}
			f.parts = append(f.parts, q.f)
		case *Gaussian:
			if q == nil {
				return nil, fmt.Errorf("pgsvi: part %d of ProductOf is nil: %w", i, ErrParam)
			}
			f.parts = append(f.parts, normal.Family{D: q.Dim(), Diagonal: q.isDiagonal()})
		default:
			return nil, fmt.Errorf("pgsvi: part %d of ProductOf is nil: %w", i, ErrParam)
		}
		_, path := f.parts[i].(PathFamily)
		paths = paths && path
		eta = append(eta, p.Natural(nil)...)
	}
	if paths {
		return NewExp(&pathProduct{*f}, eta)
	}
	return NewExp(f, eta)
}

// Factors returns copies of the parts of a product, each an Exp or a Gaussian in the coordinates
// MeanParams. For any other q it returns q alone.
func (q *Exp) Factors() []ExpFamily {
	f := productOf(q.f)
	if f == nil {
		return []ExpFamily{q.In(MeanParams)}
	}
	var parts []ExpFamily
	f.each(func(_ int, g Family, _, i, j int) {
		if n, ok := g.(normal.Family); ok {
			parts = append(parts, &Gaussian{n.At(q.eta[i:j]).In(normal.MeanParams)})
			return
		}
		p := newExp(g, MeanParams)
		copy(p.eta, q.eta[i:j])
		copy(p.mu, q.mu[i:j])
		parts = append(parts, p)
	})
	return parts
}

// productOf returns f as a product, or nil.
func productOf(f Family) *productFamily {
	switch p := f.(type) {
	case *productFamily:
		return p
	case *pathProduct:
		return &p.productFamily
	}
	return nil
}

// productFamily is the family of products.
type productFamily struct{ parts []Family }

// each calls do for each part with where its z begins and where its parameters begin and end.
func (f *productFamily) each(do func(k int, g Family, z, i, j int)) {
	z, i := 0, 0
	for k, g := range f.parts {
		j := i + g.NumParams()
		do(k, g, z, i, j)
		z, i = z+g.Dim(), j
	}
}

func (f *productFamily) String() string {
	names := make([]string, len(f.parts))
	for k, g := range f.parts {
		names[k] = familyName(g)
	}
	return "product of " + strings.Join(names, ", ")
}

func (f *productFamily) Dim() (n int) {
	for _, g := range f.parts {
		n += g.Dim()
	}
	return n
}

func (f *productFamily) NumParams() (n int) {
	for _, g := range f.parts {
		n += g.NumParams()
	}
	return n
}

func (f *productFamily) LogPartition(eta []float64) (a float64) {
	f.each(func(_ int, g Family, _, i, j int) { a += g.LogPartition(eta[i:j]) })
	return a
}

// Valid asks each part, by what it knows or by its A(η).
func (f *productFamily) Valid(eta []float64) bool {
	ok := true
	f.each(func(_ int, g Family, _, i, j int) {
		if d, known := g.(domainFamily); known {
			ok = ok && d.Valid(eta[i:j])
			return
		}
		a := g.LogPartition(eta[i:j])
		ok = ok && !math.IsNaN(a) && !math.IsInf(a, 0)
	})
	return ok
}

func (f *productFamily) Mean(dst, eta []float64) { f.MeanOn(1, dst, eta) }

func (f *productFamily) MeanOn(workers int, dst, eta []float64) {
	f.each(func(_ int, g Family, _, i, j int) {
		if s, ok := g.(sharedFamily); ok {
			s.MeanOn(workers, dst[i:j], eta[i:j])
		} else {
			g.Mean(dst[i:j], eta[i:j])
		}
	})
}

func (f *productFamily) Fisher(dst *mat.SymDense, eta []float64) {
	f.each(func(_ int, g Family, _, i, j int) {
		block := mat.NewSymDense(j-i, nil)
		g.Fisher(block, eta[i:j])
		for r := range j - i {
			for c := range r + 1 {
				dst.SetSym(i+c, i+r, block.At(r, c))
			}
		}
	})
}

// part returns the member of g at eta, for what an Exp makes of a Family; nil if eta is not valid.
func (f *productFamily) part(g Family, eta []float64) *Exp {
	p := newExp(g, Natural)
	if p.SetNatural(eta) != nil {
		return nil
	}
	return p
}

func (f *productFamily) FisherMul(dst, g, eta []float64) {
	f.fisher(dst, g, eta, FisherFamily.FisherMul, (*Exp).fisherMul)
}

func (f *productFamily) FisherSolve(dst, g, eta []float64) {
	f.fisher(dst, g, eta, FisherFamily.FisherSolve, (*Exp).fisherSolve)
}

// fisher does what by does for those factors that can, and in place for the others.
func (f *productFamily) fisher(dst, g, eta []float64, by func(f FisherFamily, dst, g, eta []float64), in func(q *Exp, g []float64)) {
	f.each(func(_ int, h Family, _, i, j int) {
		if x, ok := h.(FisherFamily); ok {
			by(x, dst[i:j], g[i:j], eta[i:j])
			return
		}
		copy(dst[i:j], g[i:j])
		in(f.part(h, eta[i:j]), dst[i:j])
	})
}

func (f *productFamily) Stat(dst, z []float64) {
	f.each(func(_ int, g Family, at, i, j int) { g.Stat(dst[i:j], z[at:at+g.Dim()]) })
}

func (f *productFamily) LogBase(z []float64) (log float64) {
	f.each(func(_ int, g Family, at, _, _ int) { log += g.LogBase(z[at : at+g.Dim()]) })
	return log
}

func (f *productFamily) Rand(z, t, eta []float64, rng *rand.Rand) {
	f.each(func(_ int, g Family, at, i, j int) { g.Rand(z[at:at+g.Dim()], t[i:j], eta[i:j], rng) })
}

// Entropy is the sum of those of the parts, NaN if one has none.
func (f *productFamily) Entropy(eta []float64) (h float64) {
	f.each(func(_ int, g Family, _, i, j int) {
		if x, ok := g.(EntropyFamily); ok {
			h += x.Entropy(eta[i:j])
		} else {
			h = math.NaN()
		}
	})
	return h
}

func (f *productFamily) Divergence(eta, etaP []float64) (kl float64) {
	return f.DivergenceOn(1, eta, etaP)
}

func (f *productFamily) DivergenceOn(workers int, eta, etaP []float64) (kl float64) {
	f.each(func(_ int, g Family, _, i, j int) {
		if x, ok := g.(sharedFamily); ok {
			kl += x.DivergenceOn(workers, eta[i:j], etaP[i:j])
			return
		}
		if x, ok := g.(klFamily); ok {
			kl += x.Divergence(eta[i:j], etaP[i:j])
			return
		}
		q, p := f.part(g, eta[i:j]), f.part(g, etaP[i:j])
		kl += q.KL(p)
	})
	return kl
}

// setMean solves for η part by part, from those of q.
func (f *productFamily) setMean(q *Exp, mu []float64) error {
	eta := make([]float64, len(mu))
	var err error
	f.each(func(k int, g Family, _, i, j int) {
		if err != nil {
			return
		}
		p := newExp(g, Natural)
		if err = p.SetNatural(q.eta[i:j]); err == nil {
			err = p.SetMeanParams(mu[i:j])
		}
		if err != nil {
			err = fmt.Errorf("pgsvi: part %d: %w", k, bare{err})
		}
		copy(eta[i:j], p.eta)
	})
	if err != nil {
		return err
	}
	return q.SetNatural(eta)
}

// Chart is that of each part, or η.
func (f *productFamily) Chart(dst, eta []float64) {
	f.each(func(_ int, g Family, _, i, j int) {
		if c, ok := g.(ChartFamily); ok {
			c.Chart(dst[i:j], eta[i:j])
		} else {
			copy(dst[i:j], eta[i:j])
		}
	})
}

func (f *productFamily) FromChart(dst, x []float64) {
	f.each(func(_ int, g Family, _, i, j int) {
		if c, ok := g.(ChartFamily); ok {
			c.FromChart(dst[i:j], x[i:j])
		} else {
			copy(dst[i:j], x[i:j])
		}
	})
}

func (f *productFamily) ChartGrad(dst, g, eta []float64) {
	f.each(func(_ int, h Family, _, i, j int) {
		if c, ok := h.(ChartFamily); ok {
			c.ChartGrad(dst[i:j], g[i:j], eta[i:j])
		} else {
			copy(dst[i:j], g[i:j])
		}
	})
}

// pathProduct is a product of parts that all have paths.
type pathProduct struct{ productFamily }

func (f *pathProduct) AuxLen() (n int) {
	for _, g := range f.parts {
		n += g.(PathFamily).AuxLen()
	}
	return n
}

func (f *pathProduct) RandPath(z, t, aux, eta []float64, rng *rand.Rand) {
	f.each(func(_ int, g Family, at, i, j int) {
		p := g.(PathFamily)
		n := p.AuxLen()
		p.RandPath(z[at:at+g.Dim()], t[i:j], aux[:n], eta[i:j], rng)
		aux = aux[n:]
	})
}

func (f *pathProduct) PathGrad(dst, dl, c, z, aux, eta []float64) {
	f.each(func(_ int, g Family, at, i, j int) {
		p := g.(PathFamily)
		n, end := p.AuxLen(), at+g.Dim()
		p.PathGrad(dst[i:j], dl[at:end], c[i:j], z[at:end], aux[:n], eta[i:j])
		aux = aux[n:]
	})
}
