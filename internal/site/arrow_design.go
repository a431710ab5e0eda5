package site

import (
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file integrates over two or three parameters of the covariances of factors with few levels,
// for which a grid would need too many fits. The points are a central composite design (Rue, Martino
// and Chopin, 2009, section 6.5): the mode, and points on an ellipsoid around it.
//
// The parameters are θ = (asinh(s_i/c_i), …, atanh ρ), with standard deviations s_i and a
// correlation ρ. The density of θ is smooth, and regular at s_i = 0, because changing the sign of an
// s_i only changes signs of correlations.

// Constants of the design.
const (
	designMost   = 3   // parameters, at most
	designRadius = 1.1 // radius, in units of √p standard deviations
	designSteps  = 30  // Newton steps to the mode, at most
	designDiff   = 0.1 // step of differences in θ
	designRate   = 0.2 // least 1 − ρ of the surrogate
	designLong   = 1.0 // longest step in each θ
)

// designParam is a parameter: the standard deviation of an effect, or the correlation of the first
// two effects if effect is −1.
type designParam struct {
	factor, effect int
	scale          float64 // c_i
}

// designRun computes a central composite design.
type designRun struct {
	gridRun
	params []designParam
	t      *arrowState // sums of the present sites
	rate   float64
}

// designParams returns the parameters that Integrate integrates, or nil if it cannot.
func (s *ArrowAlgebra) designParams() (params []designParam, err error) {
	a := s.mover
	spread, err := s.Spread()
	if err != nil {
		return nil, err
	}
	for f := range a.fac {
		x := &a.fac[f]
		if !x.rule.Learn || x.rule.Scale == nil || a.levelsWithRows(f) >= mostGridLevels {
			continue
		}
		if x.Q > 2 {
			return nil, nil
		}
		sd := a.sds(f)
		for i := range x.Q {
			c := sd[i] * spread[x.number].LogSD[i]
			least := 0.1 * a.sigma.start[f][i*x.Q+i]
			if !(c > least) || math.IsInf(c, 0) {
				c = least
			}
			params = append(params, designParam{f, i, c})
		}
		if x.Q == 2 && !x.rule.Independent {
			params = append(params, designParam{f, -1, 1})
		}
	}
	if len(params) > designMost {
		return nil, nil
	}
	return params, nil
}

// sds returns the standard deviations of the effects of factor f.
func (a *arrow) sds(f int) []float64 {
	b := a.fac[f].Block
	b.L = a.cur.by.L[f]
	cov, sd := b.Covariance(), make([]float64, b.Q)
	for i := range sd {
		sd[i] = math.Sqrt(cov[i*b.Q+i])
	}
	return sd
}

// present returns the present θ.
func (d *designRun) present() []float64 {
	a, theta := d.from.mover, make([]float64, len(d.params))
	for i, p := range d.params {
		sd := a.sds(p.factor)
		if p.effect >= 0 {
			theta[i] = math.Asinh(sd[p.effect] / p.scale)
		} else if r := a.cur.by.L[p.factor][2] / sd[1]; sd[1] > 0 {
			theta[i] = math.Atanh(max(-0.95, min(0.95, r)))
		}
	}
	return theta
}

// at returns the L at θ, and the log of the derivative of the parameters by θ.
func (d *designRun) at(theta []float64) (l [][]float64, jac float64) {
	const least = 1e-9
	l = d.from.L()
	for i, p := range d.params {
		x := l[p.factor]
		if p.effect < 0 { // follows the standard deviations
			r := math.Tanh(theta[i])
			jac += math.Log1p(-r * r)
			x[2], x[3] = r*x[3], x[3]*math.Sqrt(1-r*r)
			continue
		}
		q := d.from.mover.fac[p.factor].Q
		s := p.scale * math.Sinh(theta[i])
		if math.Abs(s) < least*p.scale {
			s = least * p.scale
		}
		clear(x[p.effect*q : (p.effect+1)*q])
		x[p.effect*q+p.effect] = s
		jac += math.Log(math.Cosh(theta[i]))
	}
	return l, jac
}

// surrogate approximates the log density of θ up to a constant, without fits. Log Z at the present
// sites is too steep, so its changes are multiplied by 1 − ρ; see ArrowAlgebra.gain.
func (d *designRun) surrogate(theta []float64) float64 {
	a := d.from.mover
	l, jac := d.at(theta)
	d.t.by.L = l
	prior := a.sigma.logPrior(l, nil)
	return d.rate*(a.logZ(d.t, nil)-prior) + prior + jac
}

// bend returns gradient and negative Hessian of the surrogate at θ.
func (d *designRun) bend(theta []float64) (grad []float64, b *mat.SymDense) {
	n := len(theta)
	grad, b = make([]float64, n), mat.NewSymDense(n, nil)
	at := func(i, j int, h, k float64) float64 {
		x := append([]float64(nil), theta...)
		x[i] += h
		x[j] += k
		return d.surrogate(x)
	}
	const h = designDiff
	z := d.surrogate(theta)
	for i := range n {
		up, down := at(i, i, h, 0), at(i, i, -h, 0)
		grad[i] = (up - down) / (2 * h)
		b.SetSym(i, i, (2*z-up-down)/(h*h))
		for j := range i {
			b.SetSym(i, j, -(at(i, j, h, h)-at(i, j, h, -h)-at(i, j, -h, h)+at(i, j, -h, -h))/(4*h*h))
		}
	}
	return grad, b
}

// mode moves θ to the mode of the surrogate. It returns the standard deviations along the axes of
// its curvature in the columns of axes, or false if the surrogate or its curvature is not finite.
func (d *designRun) mode(theta []float64) (axes *mat.Dense, ok bool) {
	n := len(theta)
	z := d.surrogate(theta)
	var e mat.EigenSym
	var v mat.Dense
	for k := range designSteps {
		grad, b := d.bend(theta)
		if !e.Factorize(b, true) {
			return nil, false
		}
		e.VectorsTo(&v)
		values, step := e.Values(nil), make([]float64, n)
		for j, x := range values {
			col := mat.Col(nil, j, &v)
			floats.AddScaled(step, floats.Dot(col, grad)/max(math.Abs(x), 0.1), col)
		}
		gain := floats.Dot(step, grad)
		for i := range step {
			step[i] = max(-designLong, min(designLong, step[i]))
		}
		next := floats.AddTo(make([]float64, n), theta, step)
		value := d.surrogate(next)
		for h := 0; h < 10 && !(value > z); h++ {
			floats.Scale(0.5, step)
			floats.AddTo(next, theta, step)
			value = d.surrogate(next)
		}
		if !(value > z) || gain < 1e-3 || k == designSteps-1 {
			axes = mat.NewDense(n, n, nil)
			for j, x := range values {
				for i := range n {
					axes.Set(i, j, v.At(i, j)/math.Sqrt(max(x, 0.1)))
				}
			}
			return axes, !math.IsNaN(z) && !math.IsInf(z, 0)
		}
		copy(theta, next)
		z = value
	}
	return nil, false
}

// composite returns the points of the design in units of standard deviations: 0, two on each axis, and
// the corners of a cube.
func composite(p int) (z [][]float64) {
	r := designRadius * math.Sqrt(float64(p))
	z = append(z, make([]float64, p))
	for i := range p {
		for _, sign := range []float64{-1, 1} {
			x := make([]float64, p)
			x[i] = sign * r
			z = append(z, x)
		}
	}
	for k := range 1 << p {
		x := make([]float64, p)
		for i := range x {
			x[i] = designRadius * float64(2*(k>>i&1)-1)
		}
		z = append(z, x)
	}
	return z
}

// integrateDesign is Integrate for several parameters.
func (s *ArrowAlgebra) integrateDesign() (*SigmaGrid, error) {
	params, err := s.designParams()
	if err != nil || len(params) < 2 {
		return nil, err
	}
	d := &designRun{gridRun: newGridRun(s), params: params, t: s.sums()}
	d.rate = max(designRate, s.flatness(d.t))
	theta := d.present()
	axes, ok := d.mode(theta)
	if !ok || s.Workers.Halt.Err() != nil {
		return nil, s.Workers.Halt.Err()
	}
	near := d.start()
	stretch := d.stretches(theta, axes)
	var logs []float64
	var fits []*gridFit
	for k, z := range composite(len(theta)) {
		x, volume := place(theta, z, axes, stretch)
		l, jac := d.at(x)
		f, err := d.fit(l, jac, near)
		if err != nil {
			return nil, err
		}
		if k == 0 && !math.IsInf(f.log, -1) {
			near = &gridFit{gamma: f.gamma, a: f.a, m: f.m}
		}
		f.forget()
		logs = append(logs, f.log+designWeight(k, len(theta))+floats.Dot(z, z)/2+volume)
		fits = append(fits, f)
	}
	return designGrid(fits, logs), s.Workers.Halt.Err()
}

// place returns the θ of the point z, and the log of the volume of its part of the space relative to
// a Gaussian: the product of the stretches in its directions, or of their means on the other axes.
func place(theta, z []float64, axes *mat.Dense, stretch [][2]float64) (x []float64, volume float64) {
	x = append(x, theta...)
	for j, v := range z {
		side := (stretch[j][0] + stretch[j][1]) / 2
		switch {
		case v < 0:
			side = stretch[j][0]
		case v > 0:
			side = stretch[j][1]
		}
		volume += math.Log(side)
		for i := range x {
			x[i] += side * v * axes.At(i, j)
		}
	}
	return x, volume
}

// designWeight returns the log weight of point k for a Gaussian: the weights of the density that
// give the design mean 1 and the right second moments.
func designWeight(k, p int) float64 {
	const f2 = designRadius * designRadius
	if k == 0 {
		return math.Log(1 - 1/f2)
	}
	return -math.Log(f2 * float64(2*p+1<<p))
}

// stretches returns, for both directions of each axis, by which factor the surrogate is wider than a
// Gaussian with its curvature. A Gaussian falls by 1 nat over √2 standard deviations.
func (d *designRun) stretches(theta []float64, axes *mat.Dense) (all [][2]float64) {
	z := d.surrogate(theta)
	for j := range theta {
		var s [2]float64
		for side, sign := range []float64{-1, 1} {
			at := func(u float64) float64 {
				x := append([]float64(nil), theta...)
				for i := range x {
					x[i] += sign * u * math.Sqrt2 * axes.At(i, j)
				}
				return z - d.surrogate(x)
			}
			lo, hi := 0.3, 3.0
			for range 20 {
				if mid := (lo + hi) / 2; at(mid) < 1 {
					lo = mid
				} else {
					hi = mid
				}
			}
			s[side] = lo
		}
		all = append(all, s)
	}
	return all
}

// designGrid returns the grid of the fits with the given log weights.
func designGrid(fits []*gridFit, logs []float64) *SigmaGrid {
	best := floats.Max(logs)
	if math.IsInf(best, -1) {
		return nil
	}
	r, total := &SigmaGrid{Block: -1}, 0.0
	for k, f := range fits {
		f.Prob = math.Exp(logs[k] - best)
		total += f.Prob
		if f.Prob > 0 {
			r.Points = append(r.Points, f.SigmaPoint)
		}
	}
	for i := range r.Points {
		r.Points[i].Prob /= total
	}
	return r
}
