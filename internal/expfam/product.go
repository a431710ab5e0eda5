package expfam

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/mat"
)

// MeanIfValid stores the mean parameters of f at eta in dst and reports whether eta is valid. If
// not, dst is undefined.
func MeanIfValid(f Family, dst, eta []float64) bool {
	if c, ok := f.(checkedFamily); ok {
		return c.MeanIfValid(1, dst, eta)
	}
	if !valid(f, eta) {
		return false
	}
	f.Mean(dst, eta)
	return true
}

// Divergence returns KL(q‖p), in nats, for members q and p of f with natural parameters eta and
// etaP.
func Divergence(f Family, eta, etaP []float64) float64 {
	if k, ok := f.(klFamily); ok {
		return k.Divergence(eta, etaP)
	}
	q, p := New(f), New(f)
	if q.SetNatural(eta) != nil || p.SetNatural(etaP) != nil {
		return math.NaN()
	}
	return q.KL(p)
}

// Product returns the family of independent parts. It concatenates their z, η, T, μ and charts. It
// is a PathFamily if all parts are.
func Product(parts []Family) Family {
	for _, g := range parts {
		if _, ok := g.(PathFamily); !ok {
			return &product{parts}
		}
	}
	return &pathProduct{product{parts}}
}

// EachPart calls do for each part g of a product. z is the index where the part begins in the z
// of the product, and i and j delimit its parameters. It reports false if f is not a product.
func EachPart(f Family, do func(k int, g Family, z, i, j int)) bool {
	parts, ok := partsOf(f)
	if ok {
		(&product{parts}).each(do)
	}
	return ok
}

// A product implements these interfaces with the methods of its parts.
var (
	_ domainFamily  = &product{}
	_ checkedFamily = &product{}
	_ sharedFamily  = &product{}
	_ klFamily      = &product{}
	_ partedFamily  = &product{}
	_ FisherFamily  = &product{}
	_ EntropyFamily = &product{}
	_ ChartFamily   = &product{}
	_ PathFamily    = &pathProduct{}
)

// product is a Family of independent parts.
type product struct{ parts []Family }

// each calls do for each part, with the same arguments as EachPart.
func (f *product) each(do func(k int, g Family, z, i, j int)) {
	z, i := 0, 0
	for k, g := range f.parts {
		j := i + g.NumParams()
		do(k, g, z, i, j)
		z, i = z+g.Dim(), j
	}
}

// mostNames is the number of names that String lists.
const mostNames = 20

// String lists the names of the parts. Consecutive parts with the same name are counted.
func (f *product) String() string {
	var names []string
	for k := 0; k < len(f.parts); {
		name, n := Name(f.parts[k]), 1
		for k+n < len(f.parts) && Name(f.parts[k+n]) == name {
			n++
		}
		if k += n; n > 1 {
			name = fmt.Sprintf("%d × %s", n, name)
		}
		if names = append(names, name); len(names) == mostNames && k < len(f.parts) {
			names = append(names, "…")
			break
		}
	}
	return "product of " + strings.Join(names, ", ")
}

// same reports whether f and g are the same family.
func same(f, g Family) bool {
	p, ok := partsOf(f)
	if !ok {
		return reflect.ValueOf(f).Comparable() && f == g || reflect.DeepEqual(f, g)
	}
	q, ok := partsOf(g)
	return ok && (&p[0] == &q[0] && len(p) == len(q) || slices.EqualFunc(p, q, same))
}

// partsOf returns the parts of a product. It reports false if f is not a product.
func partsOf(f Family) ([]Family, bool) {
	switch p := f.(type) {
	case *product:
		return p.parts, true
	case *pathProduct:
		return p.parts, true
	}
	return nil, false
}

// Dim returns the sum of the dimensions of the parts.
func (f *product) Dim() (n int) {
	for _, g := range f.parts {
		n += g.Dim()
	}
	return n
}

// NumParams returns the sum of the numbers of parameters of the parts.
func (f *product) NumParams() (n int) {
	for _, g := range f.parts {
		n += g.NumParams()
	}
	return n
}

// LogPartition returns the sum of the A(η) of the parts.
func (f *product) LogPartition(eta []float64) (a float64) {
	f.each(func(_ int, g Family, _, i, j int) { a += g.LogPartition(eta[i:j]) })
	return a
}

// Valid reports whether the η of every part is valid.
func (f *product) Valid(eta []float64) bool {
	ok := true
	f.each(func(_ int, g Family, _, i, j int) { ok = ok && valid(g, eta[i:j]) })
	return ok
}

// MeanIfValid is MeanOn, and also reports whether η is valid. If not, dst is undefined.
func (f *product) MeanIfValid(workers int, dst, eta []float64) bool {
	ok, rest := true, false
	f.each(func(_ int, g Family, _, i, j int) {
		switch h := g.(type) {
		case checkedFamily:
			ok = ok && h.MeanIfValid(workers, dst[i:j], eta[i:j])
		default:
			rest, ok = true, ok && valid(g, eta[i:j])
		}
	})
	if ok && rest {
		f.meanOn(workers, dst, eta, true)
	}
	return ok
}

// valid reports whether eta is valid, by the cheap test of g if it has one and otherwise by A(η).
func valid(g Family, eta []float64) bool {
	if d, known := g.(domainFamily); known {
		return d.Valid(eta)
	}
	a := g.LogPartition(eta)
	return !math.IsNaN(a) && !math.IsInf(a, 0)
}

// Mean stores the mean parameters of all parts in dst.
func (f *product) Mean(dst, eta []float64) { f.MeanOn(1, dst, eta) }

// MeanOn is like Mean, but uses several goroutines. Workers take whole parts if each worker gets
// several, and share every part otherwise.
func (f *product) MeanOn(workers int, dst, eta []float64) { f.meanOn(workers, dst, eta, false) }

// meanOn is MeanOn. If checked is true, it leaves out the parts that are a checkedFamily.
func (f *product) meanOn(workers int, dst, eta []float64, checked bool) {
	if workers > 1 && len(f.parts) >= severalParts*workers && len(eta) > DigammasShared {
		if from := f.shares(); from != nil {
			parallel.For(len(f.parts), 1, workers, func(_, k, _ int) {
				i, j := from[k], from[k]+f.parts[k].NumParams()
				f.parts[k].(sharedFamily).MeanOn(1, dst[i:j], eta[i:j])
			})
			return
		}
	}
	f.each(func(_ int, g Family, _, i, j int) {
		if _, ok := g.(checkedFamily); ok && checked {
			return
		}
		if s, ok := g.(sharedFamily); ok {
			s.MeanOn(workers, dst[i:j], eta[i:j])
		} else {
			g.Mean(dst[i:j], eta[i:j])
		}
	})
}

// severalParts is the number of parts per worker from which on workers take whole parts.
const severalParts = 3

// shares returns the index at which the parameters of each part begin. It returns nil if a part is
// not a sharedFamily, because other families may not be safe for concurrent use.
func (f *product) shares() []int {
	from := make([]int, len(f.parts))
	f.each(func(k int, g Family, _, i, _ int) {
		if _, ok := g.(sharedFamily); !ok {
			from = nil
		} else if from != nil {
			from[k] = i
		}
	})
	return from
}

// Fisher stores ∇²A(η) in dst, which is block diagonal.
func (f *product) Fisher(dst *mat.SymDense, eta []float64) {
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

// part returns a Member of the part g at eta, which has methods that not every Family has. It
// returns nil if eta is not valid.
func (f *product) part(g Family, eta []float64) *Member {
	p := New(g)
	if p.SetNatural(eta) != nil {
		return nil
	}
	return p
}

// FisherMul stores ∇²A(η)g in dst.
func (f *product) FisherMul(dst, g, eta []float64) {
	f.fisher(dst, g, eta, FisherFamily.FisherMul, (*Member).FisherMul)
}

// FisherSolve stores ∇²A(η)⁻¹g in dst.
func (f *product) FisherSolve(dst, g, eta []float64) {
	f.fisher(dst, g, eta, FisherFamily.FisherSolve, (*Member).FisherSolve)
}

// fisher calls by for the parts that are a FisherFamily, and in for the others.
func (f *product) fisher(dst, g, eta []float64, by func(f FisherFamily, dst, g, eta []float64),
	in func(q *Member, g []float64)) {
	f.each(func(_ int, h Family, _, i, j int) {
		if x, ok := h.(FisherFamily); ok {
			by(x, dst[i:j], g[i:j], eta[i:j])
			return
		}
		copy(dst[i:j], g[i:j])
		in(f.part(h, eta[i:j]), dst[i:j])
	})
}

// Stat stores the T(z) of all parts in dst.
func (f *product) Stat(dst, z []float64) {
	f.each(func(_ int, g Family, at, i, j int) { g.Stat(dst[i:j], z[at:at+g.Dim()]) })
}

// LogBase returns the sum of the log h(z) of the parts.
func (f *product) LogBase(z []float64) (log float64) {
	f.each(func(_ int, g Family, at, _, _ int) { log += g.LogBase(z[at : at+g.Dim()]) })
	return log
}

// Rand stores a draw of each part in z and T(z) in t.
func (f *product) Rand(z, t, eta []float64, rng *rand.Rand) {
	f.each(func(_ int, g Family, at, i, j int) { g.Rand(z[at:at+g.Dim()], t[i:j], eta[i:j], rng) })
}

// Entropy returns the sum of the entropies of the parts. It is NaN if a part is not an
// EntropyFamily.
func (f *product) Entropy(eta []float64) (h float64) {
	f.each(func(_ int, g Family, _, i, j int) {
		if x, ok := g.(EntropyFamily); ok {
			h += x.Entropy(eta[i:j])
		} else {
			h = math.NaN()
		}
	})
	return h
}

// Divergence returns the sum of the KL divergences of the parts.
func (f *product) Divergence(eta, etaP []float64) (kl float64) {
	return f.DivergenceOn(1, eta, etaP)
}

// DivergenceOn is like Divergence, but uses several goroutines within parts that allow it.
func (f *product) DivergenceOn(workers int, eta, etaP []float64) (kl float64) {
	f.each(func(_ int, g Family, _, i, j int) {
		if x, ok := g.(sharedFamily); ok {
			kl += x.DivergenceOn(workers, eta[i:j], etaP[i:j])
			return
		}
		kl += Divergence(g, eta[i:j], etaP[i:j])
	})
	return kl
}

// setMean sets q to the member with the mean parameters mu. It solves for the η of each part,
// starting from the η of q.
func (f *product) setMean(q *Member, mu []float64) error {
	eta := make([]float64, len(mu))
	var err error
	f.each(func(k int, g Family, _, i, j int) {
		if err != nil {
			return
		}
		if m, ok := g.(meanFamily); ok && m.FromMean(eta[i:j], mu[i:j]) {
			return
		}
		p := New(g)
		if err = p.SetNatural(q.Eta[i:j]); err == nil {
			err = p.SetMeanParams(mu[i:j])
		}
		if err != nil {
			err = fmt.Errorf("pgsvi: part %d: %w", k, sentinel.Bare(err))
		}
		copy(eta[i:j], p.Eta)
	})
	if err != nil {
		return err
	}
	return q.SetNatural(eta)
}

// Chart stores the chart of each part in dst. A part without a chart contributes its η.
func (f *product) Chart(dst, eta []float64) {
	f.each(func(_ int, g Family, _, i, j int) {
		if c, ok := g.(ChartFamily); ok {
			c.Chart(dst[i:j], eta[i:j])
		} else {
			copy(dst[i:j], eta[i:j])
		}
	})
}

// FromChart stores the η with chart x in dst.
func (f *product) FromChart(dst, x []float64) {
	f.each(func(_ int, g Family, _, i, j int) {
		if c, ok := g.(ChartFamily); ok {
			c.FromChart(dst[i:j], x[i:j])
		} else {
			copy(dst[i:j], x[i:j])
		}
	})
}

// ChartGrad turns the gradient g in η into the gradient in the chart and stores it in dst.
func (f *product) ChartGrad(dst, g, eta []float64) {
	f.each(func(_ int, h Family, _, i, j int) {
		if c, ok := h.(ChartFamily); ok {
			c.ChartGrad(dst[i:j], g[i:j], eta[i:j])
		} else {
			copy(dst[i:j], g[i:j])
		}
	})
}

// pathProduct is a product whose parts are all PathFamilies.
type pathProduct struct{ product }

// AuxLen returns the sum of the auxiliary lengths of the parts.
func (f *pathProduct) AuxLen() (n int) {
	for _, g := range f.parts {
		n += g.(PathFamily).AuxLen()
	}
	return n
}

// RandPath stores a draw of each part in z, T(z) in t, and the auxiliary values in aux.
func (f *pathProduct) RandPath(z, t, aux, eta []float64, rng *rand.Rand) {
	f.each(func(_ int, g Family, at, i, j int) {
		p := g.(PathFamily)
		n := p.AuxLen()
		p.RandPath(z[at:at+g.Dim()], t[i:j], aux[:n], eta[i:j], rng)
		aux = aux[n:]
	})
}

// PathGrad adds the gradient in η of a function of the draw to dst. dl is the gradient of the
// function in z, and c its gradient in T(z).
func (f *pathProduct) PathGrad(dst, dl, c, z, aux, eta []float64) {
	f.each(func(_ int, g Family, at, i, j int) {
		p := g.(PathFamily)
		n, end := p.AuxLen(), at+g.Dim()
		p.PathGrad(dst[i:j], dl[at:end], c[i:j], z[at:end], aux[:n], eta[i:j])
		aux = aux[n:]
	})
}
