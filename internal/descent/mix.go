package descent

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/accel"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"gonum.org/v1/gonum/floats"
)

// worthMixing is the fraction of the gap that a plain step must leave for mixtures to begin. If
// plain steps converge faster, they cost less.
const worthMixing = 0.25

// settledSteps is the number of plain steps before the first mixture in a model with local factors.
// Such a model has several optima, and a mixture could leave the one that plain steps (coordinate
// ascent) are about to reach.
const settledSteps = 10

// mix accelerates exact steps: it mixes the natural parameters of their last targets so that the
// residual is least in the metric of the Fisher information (see accel.Anderson).
type mix[Q any] struct {
	accel.Anderson
	slow             bool // plain steps converge slowly
	alone            int  // number of plain steps
	eta, to, mu, dst []float64
}

// propose sets trial to the mixture of the targets η_p − ∇_μ f of the last states. at is the newest
// state and g the gradient of f there; prior holds η_p. It stores the natural parameters of at in
// x.eta and its target in x.to, and reports whether it found a mixture.
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

// The KL divergences between which a difference of mean parameters has enough digits for a product
// with the Fisher information, and the best one.
const leastProbe, probe, mostProbe = 1e-10, 1e-6, 1e-2

// fisher stores Fd in dst, where F is the Fisher information at q, by a difference of mean
// parameters. It reports whether it found a usable difference.
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

func (x *mix[Q]) state(c *save.Coder, n int) {
	c.Bool(&x.slow)
	c.Int(&x.alone)
	x.Anderson.State(c, n)
}

// BlockGain returns the nats that q can gain with all local factors fixed: KL(q‖q*), where q* has
// the natural parameters η_p − ∇_μ f and g is the gradient of f at q. It is +Inf if q* is not a
// distribution.
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
