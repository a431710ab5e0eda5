package pgsvi

import (
	"context"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/graph"
	"github.com/pgsvi/pgsvi/internal/normal"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
)

// This file fits a Graph with mini-batches if it has plates: blocks with a copy per group of rows.
// The steps are over the global blocks only, and each gradient first optimizes the copies of the
// batch; see internal/graph/profile.go. A run without mini-batches steps over all blocks together,
// which is faster because it can accelerate.

// plateTerms is the Smooth of the global blocks of a Graph. Its terms are the units of Plates.
type plateTerms struct {
	full        *graphTerms
	profile     *graph.Profile
	from        *Exp // the first q of all blocks
	prior, init *Exp // prior and first q of the global blocks
	base        []float64
	norm        float64
}

// platesOf returns the Smooth of the global blocks of f for mini-batches of the given size. It is
// nil unless f is a Graph with plates, h is KLTo, and a batch is a part of the units.
func platesOf(f Smooth, h Convex, init Dist, size int) (*plateTerms, error) {
	g, isGraph := f.(*graphTerms)
	to, isKLTo := h.(klTo)
	q, isExp := init.(*Exp)
	if !isGraph || !isKLTo || !isExp || size < 1 || !q.at.SameFamily(g.prior.at) {
		return nil, nil
	}
	prior, ok := to.prior.(*Exp)
	if !ok || !prior.at.SameFamily(g.prior.at) {
		return nil, nil
	}
	p := graph.NewPlates(g.model)
	if p == nil || size >= p.Len() {
		return nil, nil
	}
	return g.plates(p, prior, q)
}

// plates returns the Smooth of the global blocks of p.
func (f *graphTerms) plates(p *graph.Plates, prior, from *Exp) (*plateTerms, error) {
	c := graph.Copies{Prior: prior.Natural(nil), Start: from.Natural(nil), Base: f.base}
	t := &plateTerms{full: f, from: from}
	var global []expfam.Family
	part := 0
	families := partsOf(f.prior.at.F)
	for i := range f.blocks {
		b := &f.blocks[i]
		family, n := families[part], b.Copies
		if b.Stacked {
			family, n = normal.Family{D: 1, Diagonal: true}, 1
		}
		c.Family = append(c.Family, family)
		for k := range b.Copies {
			norm := 0.0
			if b.flat {
				norm = b.prior[k].LogPartition()
			}
			c.Norm = append(c.Norm, norm)
			if p.Global[i] {
				t.norm += norm
			}
		}
		if p.Global[i] {
			global = append(global, families[part:part+n]...)
		}
		part += n
	}
	t.profile = graph.NewProfile(p, c, from.MeanParams(nil))
	t.base = t.profile.Pack(nil, f.base)
	var err error
	if t.prior, err = NewExp(expfam.Product(global), t.profile.Pack(nil, c.Prior)); err != nil {
		return nil, err
	}
	if t.init, err = NewExp(t.prior.Family(), t.profile.Pack(nil, c.Start)); err != nil {
		return nil, err
	}
	t.init = t.init.In(from.Coordinates())
	return t, nil
}

// partsOf returns the parts of a product.
func partsOf(f Family) (parts []expfam.Family) {
	expfam.EachPart(f, func(_ int, g expfam.Family, _, _, _ int) { parts = append(parts, g) })
	return parts
}

// Setup implements Smooth.
func (t *plateTerms) Setup(Dist) (n int, exact bool, err error) {
	return t.profile.Len(), true, nil
}

// sum returns f over a batch, and adds its gradient with respect to μ to dst unless dst is nil.
func (t *plateTerms) sum(ctx context.Context, dst []float64, q Dist,
	batch []int) (value, size float64, err error) {
	mu := q.(*Exp).MeanParams(nil)
	s, err := t.profile.Sum(ctx, dst, mu, batch, nil)
	base := floats.Dot(t.base, mu)
	return base - t.norm + s.Value, math.Abs(base) + math.Abs(t.norm) + s.Size, err
}

// Grad implements Smooth.
func (t *plateTerms) Grad(ctx context.Context, _ *Env, dst []float64, q Dist, batch []int) (float64,
	error) {
	copy(dst, t.base)
	v, _, err := t.sum(ctx, dst, q, batch)
	if err != nil {
		return v, err
	}
	for i, x := range dst {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return v, fmt.Errorf("pgsvi: element %d of the gradient of the global blocks is %v: %w",
				i, x, ErrNotFinite)
		}
	}
	q.(*Exp).FromMeanGrad(dst, dst)
	return v, nil
}

// Value implements Smooth. The error is the rounding of a sum of as many terms.
func (t *plateTerms) Value(ctx context.Context, _ *Env, q Dist) (value, stderr float64, err error) {
	v, size, err := t.sum(ctx, nil, q, nil)
	return v, 4 * unitRounding * size, err
}

// whole returns the distribution of all blocks for a distribution of the global blocks. If a factor
// panics, it returns the first q of the copies of plates with an error that wraps ErrPanic.
func (t *plateTerms) whole(q *Exp) (all *Exp, err error) {
	eta := t.from.Natural(nil)
	t.profile.Unpack(eta, q.Natural(nil))
	all = t.from.In(t.from.Coordinates())
	if err := all.SetNatural(eta); err != nil {
		return all, err
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("pgsvi: %w", recovered{parallel.Caught(r)})
		}
	}()
	if _, err := t.profile.Sum(context.Background(), nil, q.MeanParams(nil), nil, eta); err != nil {
		return all, err
	}
	return all, all.SetNatural(eta)
}

// digest describes the model and its division.
func (t *plateTerms) digest(d *save.Digest) {
	t.full.digest(d)
	d.Text("plates")
	d.Int(t.profile.Len())
	d.Float(t.from.Natural(nil)...)
}
