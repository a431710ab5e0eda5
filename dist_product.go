package pgsvi

import (
	"fmt"

	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/normal"
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
	families := make([]expfam.Family, len(parts))
	var eta []float64
	for i, p := range parts {
		switch q := p.(type) {
		case *Exp:
			if q == nil {
				return nil, fmt.Errorf("pgsvi: part %d of ProductOf is nil: %w", i, ErrParam)
			}
			families[i] = q.at.F
		case *Gaussian:
			if q == nil {
				return nil, fmt.Errorf("pgsvi: part %d of ProductOf is nil: %w", i, ErrParam)
			}
			families[i] = normal.Family{D: q.Dim(), Diagonal: q.isDiagonal()}
		default:
			return nil, fmt.Errorf("pgsvi: part %d of ProductOf is nil: %w", i, ErrParam)
		}
		eta = append(eta, p.Natural(nil)...)
	}
	return NewExp(expfam.Product(families), eta)
}

// Factors returns copies of the parts of a product, each an Exp or a Gaussian in the coordinates
// MeanParams. For any other q it returns q alone.
func (q *Exp) Factors() []ExpFamily {
	var parts []ExpFamily
	product := expfam.EachPart(q.at.F, func(_ int, g expfam.Family, _, i, j int) {
		if n, ok := g.(normal.Family); ok {
			parts = append(parts, &Gaussian{n.At(q.at.Eta[i:j]).In(normal.MeanParams)})
			return
		}
		p := expfam.New(g)
		copy(p.Eta, q.at.Eta[i:j])
		copy(p.Mu, q.at.Mu[i:j])
		parts = append(parts, &Exp{p, MeanParams})
	})
	if !product {
		return []ExpFamily{q.In(MeanParams)}
	}
	return parts
}
