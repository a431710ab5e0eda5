package descent

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/floats"
)

// innerSteps holds the points that relinearize moves between.
type innerSteps[Q Dist] struct {
	at       Q         // the best point so far
	from, to []float64 // coordinates of at and of the target of its linearization
	lambda   []float64 // scratch
	pcg      rand.PCG
	rng      *rand.Rand
}

const (
	// leastInnerMove is the shortest fraction of the way to the target that is tried.
	leastInnerMove = 1. / (1 << 16)
	// innerFall is the fraction of the predicted gain that a step must reach (Armijo's condition).
	innerFall = 1e-4
	// innerRounding is the predicted gain, relative to the objective, that is only rounding.
	innerRounding = 1e-15
	// innerNoise is the predicted gain, relative to the objective, below which a step fails because
	// of the errors of expectations. Shorter steps fail for the same reason.
	innerNoise = 1e-11
)

// relinearize takes one step with beta by linearizing f at several points: see Inner of
// pgsvi.Objective. It moves toward the minimizer of the linearized f plus h + D/β, along natural
// parameters if targets average them, and along λ otherwise. The objective f + h + D/β falls in that
// direction because h + D/β is convex in these coordinates.
func (s *Stepper[Q]) relinearize(ctx context.Context, batch []int, beta float64) error {
	in := &s.inner
	if in.from == nil {
		in.at = s.o.Clone(s.Q)
		in.from, in.to, in.lambda = make([]float64, len(s.G)), make([]float64, len(s.G)),
			make([]float64, len(s.G))
	} else if err := s.o.Set(in.at, s.Q); err != nil {
		return err
	}
	// All gradients of the step use the same draws.
	rng := s.o.Rand()
	seed := [2]uint64{rng.Uint64(), rng.Uint64()}
	if in.rng == nil {
		in.rng = rand.New(&in.pcg)
	}
	in.pcg.Seed(seed[0], seed[1])
	f, err := s.grad(ctx, in.rng, s.G, s.Q, batch)
	if err != nil {
		return err
	}
	easy := s.o.Easy(s.Q) // h + D/β
	if v := f + easy; math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Errorf("pgsvi: the objective of the batch is %v: %w", v, sentinel.ErrNotFinite)
	}
	for i := range s.o.Inner {
		if i == 0 {
			beta, err = s.tryFrom(beta, nil)
		} else {
			err = s.prox(beta)
		}
		if i > 0 && invalid(err) {
			break
		}
		if err != nil {
			return err
		}
		s.innerCoordinates(in.from, in.at)
		s.innerCoordinates(in.to, s.Trial)
		target := s.easy(s.Trial, beta)
		// If f is convex, no point gains more than the linearized objective predicts.
		in.at.Params(in.lambda)
		predicted := easy - target + floats.Dot(s.G, in.lambda) - floats.Dot(s.G,
			s.Trial.Params(in.lambda))
		if !(predicted > innerRounding*math.Abs(f+easy)) {
			break
		}
		least := leastInnerMove
		if predicted < innerNoise*math.Abs(f+easy) {
			least = 1
		}
		fell := false
		for t := 1.0; t >= least && !fell; t /= 2 {
			if err := s.Halt.Err(); err != nil {
				return err
			}
			if t < 1 && s.setInner(s.Trial, t) != nil {
				continue
			}
			in.pcg.Seed(seed[0], seed[1])
			if s.scratch == nil {
				s.scratch = make([]float64, len(s.G))
			}
			v, err := s.grad(ctx, in.rng, s.scratch, s.Trial, batch)
			if ctx.Err() != nil {
				return err
			}
			if err != nil {
				continue
			}
			e := target
			if t < 1 {
				e = s.easy(s.Trial, beta)
			}
			if v+e <= f+easy-innerFall*t*predicted {
				f, easy, fell = v, e, true
			}
		}
		if !fell {
			break
		}
		in.at, s.Trial = s.Trial, in.at
		s.G, s.scratch = s.scratch, s.G
	}
	s.More = s.Visits - s.size(batch)
	s.Gap = math.NaN()
	in.at, s.Trial = s.Trial, in.at
	s.accept(beta)
	return nil
}

// easy returns h + D(·‖λ_k)/β at q.
func (s *Stepper[Q]) easy(q Q, beta float64) float64 {
	return s.o.Easy(q) + s.o.Pull(q, s.Q)/beta
}

// innerCoordinates stores the coordinates of q in dst.
func (s *Stepper[Q]) innerCoordinates(dst []float64, q Q) {
	if s.o.Average {
		family(q).Natural(dst)
		return
	}
	q.Params(dst)
}

// setInner moves q to the point at the fraction t of the way to the target.
func (s *Stepper[Q]) setInner(q Q, t float64) error {
	x := s.inner.lambda
	for i, from := range s.inner.from {
		x[i] = from + t*(s.inner.to[i]-from)
	}
	if s.o.Average {
		return family(q).SetNatural(x)
	}
	return q.SetParams(x)
}
