package descent

import (
	"context"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
)

// This file helps exact steps that start far from the optimum, where the expectations under q
// overflow or a step along natural parameters has to be tiny. descend calls narrow, lead, seek and
// straight, in this order, when an ordinary step fails.

// straight looks for a trial that lowers the objective by more than gain. Steps along natural
// parameters are short if the covariance V of q differs from the V of the target by orders of
// magnitude. The trials of straight have means on the line from the mean of q to the mean of the
// target. Their V is the V of the target, the V of q, or a point between both in the chart. falls
// evaluates the trial and stores the gain in *fell. straight reports whether it found a trial;
// otherwise it leaves the trial as it was.
func (s *Stepper[Q]) straight(gain float64, falls func() bool, fell *float64) bool {
	if !s.o.Gaussian {
		return false
	}
	best := s.o.Clone(s.Trial)
	if err := s.prox(math.Inf(1)); err != nil {
		s.Trial = best
		return false
	}
	a, b := any(s.Q).(charted).Chart(nil), any(s.Trial).(charted).Chart(nil)
	x, d := make([]float64, len(a)), s.Q.Dim()
	for t := 1.0; t >= leastStraight; t /= 4 {
		for _, wide := range [...]float64{1, 0, t} {
			if t == 1 && wide == 1 {
				continue // this is the step along natural parameters
			}
			for i := range x {
				u := t
				if i >= d {
					u = wide
				}
				x[i] = (1-u)*a[i] + u*b[i]
			}
			if s.Halt.Stopped() {
				return false
			}
			if any(s.Trial).(charted).SetChart(x) == nil && falls() && *fell > gain {
				return true
			}
		}
	}
	s.Trial = best
	return false
}

// lead takes a step with the direction of Guide if it lowers the objective below start. It reports
// whether it took one.
func (s *Stepper[Q]) lead(ctx context.Context, same func() *rand.Rand, batch []int,
	start float64) (bool, error) {
	if s.o.Guide == nil || !s.o.Exact || !s.o.Infinite {
		return false, nil
	}
	to := make([]float64, len(s.G))
	if astray, err := s.o.Guide(to, s.Q); !astray || err != nil {
		return false, s.Halt.Err()
	}
	to, s.G = s.G, to
	gain := 0.0
	falls := func() bool {
		v, err := s.objective(ctx, same(), s.Trial, batch)
		gain = start - v
		return err == nil && v < start
	}
	beta := math.Inf(1)
	err := s.prox(beta)
	led := err == nil && falls() || s.straight(0, falls, &gain)
	if !led {
		beta, err = s.tryFrom(1, falls)
		led = err == nil && beta > 0
	}
	s.G = to
	if !led {
		return false, s.Halt.Err()
	}
	s.started, s.Gap, s.beta = true, math.Inf(1), math.Inf(1)
	s.accept(beta)
	return true, nil
}

// seek calls Seek once per run, and moves to the result if the objective there is below start. It
// reports whether it moved.
func (s *Stepper[Q]) seek(ctx context.Context, same func() *rand.Rand, batch []int,
	start float64) (bool, error) {
	if s.o.Seek == nil || s.Most != 0 || !s.o.Exact || !s.o.Infinite {
		return false, nil
	}
	found, err := s.o.Seek(s.Trial)
	if halted := s.Halt.Err(); halted != nil {
		return false, halted
	}
	s.Most = math.Inf(1)
	s.More += found.Passes * s.o.N
	if found.Passes == 0 || err != nil {
		return false, nil
	}
	s.Most = found.Most
	if v, err := s.objective(ctx, same(), s.Trial, batch); err != nil || !(v < start) {
		return false, s.Halt.Err()
	}
	s.started, s.Gap, s.beta = true, math.Inf(1), math.Inf(1)
	s.accept(math.Inf(1))
	return true, nil
}

// narrow replaces q by a narrower distribution if that lowers the objective. The candidates are the
// normalized powers q^c with c = 1, 4, 16 …, which have c times the natural parameters of q; a
// Gaussian N(m, V) becomes N(m, V/c). narrow takes the widest candidate whose objective is close to
// the least one. It reports whether q changed. If no candidate has a finite objective, it returns
// the error of the narrowest one.
func (s *Stepper[Q]) narrow(ctx context.Context, same func() *rand.Rand, batch []int) (moved bool,
	err error) {
	if !s.o.Family {
		s.started = true
		return false, nil
	}
	q := family(s.Q)
	var values []float64
	eta, at := q.Natural(nil), s.Q
	best, worse := math.Inf(1), 0
	for len(values) < mostNarrowings && worse < lookAhead {
		v, e := s.objective(ctx, same(), at, batch)
		if ctx.Err() != nil {
			return false, e
		}
		switch {
		case e != nil:
			err, v = e, math.Inf(1)
		case v < best:
			best, worse = v, 0
		default:
			worse++
		}
		values = append(values, v)
		floats.Scale(4, eta)
		at = s.Trial
		if family(at).SetNatural(eta) != nil {
			break
		}
	}
	if math.IsInf(best, 1) {
		return false, err
	}
	s.started = true
	eta = q.Natural(nil)
	for i, v := range values {
		if v <= best+closeToBest*math.Abs(best) {
			return i > 0, q.SetNatural(eta)
		}
		floats.Scale(4, eta)
	}
	return false, nil
}
