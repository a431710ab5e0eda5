package descent

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
)

// worthMixing is the fraction of the gap that an exact step leaves, from which on steps are mixed:
// where those to the target alone converge faster, they cost less.
const worthMixing = 0.25

// settledSteps is the number of steps to the targets alone that a model with local factors takes
// first. It has several optima, and a mixture may leave the one that coordinate ascent comes to: by
// then it is near.
const settledSteps = 10

// mix mixes the targets of the last exact steps of an Objective: see accel.Anderson. What
// is mixed are natural parameters, in the metric of the Fisher information.
type mix[Q any] struct {
	accel.Anderson
	slow             bool // the targets alone converge slowly
	alone            int  // steps to them
	eta, to, mu, dst []float64
}

// propose makes trial the mixture of the targets η_p − ∇_μ f of the last states, of which at, with
// natural parameters prior of h and gradient g of f, is the newest: x.eta and x.to are then its
// natural parameters and its target. It reports whether there is a mixture.
func (x *mix[Q]) propose(trial Family[Q], at Q, prior, g []float64) bool {
	q := family(at)
	x.eta, x.mu, x.to = q.Natural(x.eta), q.MeanParams(x.mu), q.MeanGrad(x.to, g)
	floats.SubTo(x.to, prior, x.to)
	from, residual := x.Next(len(x.eta), false)
	copy(from, x.eta)
	floats.SubTo(residual, x.to, x.eta)
	x.dst = dense.Resize(x.dst, len(x.eta))
	ok := x.MixIn(x.dst, func(dst, d []float64) bool { return x.fisher(dst, d, trial, at) })
	return ok && trial.SetNatural(x.dst) == nil
}

// A difference of mean parameters over a KL divergence of these sizes has the digits that are
// wanted of a product with the Fisher information.
const leastProbe, probe, mostProbe = 1e-10, 1e-6, 1e-2

// fisher stores Fd in dst, with the Fisher information F at q, by a difference of mean parameters,
// and reports whether it could.
func (x *mix[Q]) fisher(dst, d []float64, at Family[Q], q Q) bool {
	h := 1.0
	for range 20 {
		kl := math.NaN()
		if at.SetNatural(floats.AddScaledTo(dst, x.eta, h, d)) == nil {
			kl = at.KL(q)
		}
		switch {
		case leastProbe <= kl && kl <= mostProbe:
			floats.SubTo(dst, at.MeanParams(dst), x.mu)
			floats.Scale(1/h, dst)
			return true
		case kl > mostProbe || math.IsNaN(kl):
			h /= 64
		default:
			h *= math.Sqrt(probe / math.Max(kl, 1e-16))
		}
	}
	return false
}

func (x *mix[Q]) state(c *save.State, n int) {
	c.Bool(&x.slow)
	c.Int(&x.alone)
	x.Anderson.State(c, n)
}

// BlockGain returns the nats that q alone can gain, whose gradient is g: KL(q‖q*), η* = η_p − ∇_μ
// f. It is +Inf where q* is none.
func (s *Stepper[Q]) BlockGain(q Q, g []float64) float64 {
	if s.o.Prior == nil {
		return math.Inf(1)
	}
	if !s.probing {
		s.probe, s.probing = s.o.Clone(q), true
	}
	eta := slices.Clone(s.o.Prior)
	floats.Sub(eta, family(q).MeanGrad(nil, g))
	if err := family(s.probe).SetNatural(eta); err != nil {
		return math.Inf(1)
	}
	return family(q).KL(s.probe)
}
