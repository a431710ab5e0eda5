package pgsvi

import (
	"context"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/graph"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
)

// graphTerms is the Smooth of a Graph.
type graphTerms struct {
	blocks       []graphBlock
	factors      []graph.Factor
	model        *graph.Model
	prior, start *Exp
	// base is ∇_μ of Σ E[log r] over the blocks without a prior. KLTo takes their start r as prior.
	base []float64
	norm float64 // Σ A(η_r)
}

// setBase computes base and norm.
func (f *graphTerms) setBase() {
	eta := f.prior.Natural(nil)
	f.base = make([]float64, len(eta))
	for i := range f.blocks {
		b := &f.blocks[i]
		if !b.flat {
			continue
		}
		copy(f.base[b.Off:b.Off+b.Total], eta[b.Off:])
		for i, p := range b.prior {
			f.norm += p.LogPartition()
			s := b.Start(i)
			switch b.Kind { // log h = −log z or −Σ log z_k
			case graph.Gamma:
				f.base[s]--
			case graph.Simplex:
				floats.AddConst(-1, f.base[s:s+b.Params])
			}
		}
	}
}

// Setup implements Smooth.
func (f *graphTerms) Setup(q Dist) (n int, exact bool, err error) {
	e, ok := q.(*Exp)
	if !ok || !e.at.SameFamily(f.prior.at) {
		return 0, true, fmt.Errorf("pgsvi: a %s does not have the blocks of the Graph; "+
			"use the "+
			"Init of its Objective: %w", distName(q), ErrShape)
	}
	return max(1, f.model.Len()), true, nil
}

// sum returns f over a batch, adds its gradient with respect to μ to dst unless dst is nil.
func (f *graphTerms) sum(ctx context.Context, env *Env, dst, mu []float64, batch []int) (value,
	size float64, err error) {
	workers := env.cores()
	if f.model.Custom() {
		workers = env.Workers()
	}
	if f.model.Len() == 0 {
		batch = nil
	}
	s, err := f.model.Sum(ctx, workers, dst, mu, batch)
	if err != nil {
		return math.NaN(), math.NaN(), err
	}
	base := floats.Dot(f.base, mu)
	return base - f.norm - s.Value, s.Size + math.Abs(base) + math.Abs(f.norm), nil
}

// Grad implements Smooth.
func (f *graphTerms) Grad(ctx context.Context, env *Env, dst []float64, q Dist,
	batch []int) (float64,
	error) {
	e := q.(*Exp)
	clear(dst)
	v, _, err := f.sum(ctx, env, dst, e.MeanParams(nil), batch)
	if err != nil {
		return v, err
	}
	for i, b := range f.base {
		dst[i] = b - dst[i]
		if math.IsNaN(dst[i]) || math.IsInf(dst[i], 0) {
			return v, fmt.Errorf("pgsvi: the gradient of %s is %v: %w",
				f.model.Layout.Describe(i), dst[i],
				ErrNotFinite)
		}
	}
	e.FromMeanGrad(dst, dst)
	return v, nil
}

// Value implements Smooth. The error is the rounding of a sum of as many terms.
func (f *graphTerms) Value(ctx context.Context, env *Env, q Dist) (value, stderr float64,
	err error) {
	v, size, err := f.sum(ctx, env, nil, q.(*Exp).MeanParams(nil), nil)
	return v, 4 * unitRounding * size, err
}

// digest describes the model by its names, and by the value and the gradient at the prior and at
// the start, which depend on all data.
func (f *graphTerms) digest(d *save.Digest) {
	for _, b := range f.blocks {
		d.Text(b.Name)
		d.Int(b.Copies)
	}
	for _, x := range f.factors {
		d.Text(x.Name())
		d.Int(x.Rows())
	}
	g := make([]float64, len(f.base))
	for _, q := range []*Exp{f.prior, f.start} {
		if v, err := f.Grad(context.Background(), nil, g, q, nil); err == nil {
			d.Float(v)
			d.Float(g...)
		}
	}
}
