package site

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/cubature"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// This file integrates over several parameters of the covariances of factors with few levels, for
// which a grid would need too many fits. The points are a central composite design (package
// cubature): the mode, and points on an ellipsoid around it.
//
// The parameters are θ = (asinh(s_i/c_i), …, atanh ρ_ij, …), with standard deviations s_i and partial
// correlations ρ_ij of effects i > j given the effects before j (Lewandowski, Kurowicka and Joe,
// 2009). The density of θ is smooth, and regular at s_i = 0, because changing the sign of an s_i only
// changes signs of correlations.

// Constants of the design.
const (
	designSteps = 30  // Newton steps to the mode, at most
	designDiff  = 0.1 // step of differences in θ
	designWide  = 2   // scale of a standard deviation near 0, in units of its uncertainty
	designLong  = 1.0 // longest step in each θ
)

// designParam is a parameter: the standard deviation of an effect, or its partial correlation with
// an earlier effect unless other is −1.
type designParam struct {
	factor, effect, other int
	scale                 float64 // c_i
}

// designRun computes a central composite design.
type designRun struct {
	gridRun
	params []designParam
}

// designParams returns the parameters of the factors of m.
func designParams(m sigmaModel, factors []int) (params []designParam, err error) {
	present := m.present()
	for _, f := range factors {
		sd, floor, err := m.spread(f)
		if err != nil {
			return nil, err
		}
		b, _ := m.block(f)
		for i, own := range sdsOf(b, present[f]) {
			c, least := sd[i], floor[i]
			if own < c { // near 0 the density of θ is closer to a Gaussian with a larger scale
				c *= designWide
			}
			if !(c > least) || math.IsInf(c, 0) {
				c = least
			}
			params = append(params, designParam{f, i, -1, c})
		}
		for i := 1; i < b.Q && !m.independent(f); i++ { // rows of L in turn
			for j := range i {
				params = append(params, designParam{f, i, j, 1})
			}
		}
	}
	return params, nil
}

// sdsOf returns the standard deviations of the effects of b with the given L.
func sdsOf(b gauss.Block, l []float64) []float64 {
	b.L = l
	cov, sd := b.Covariance(), make([]float64, b.Q)
	for i := range sd {
		sd[i] = math.Sqrt(cov[i*b.Q+i])
	}
	return sd
}

// present returns the present θ.
func (d *designRun) present() []float64 {
	const edge = 0.95 // largest correlation
	l, theta := d.by.present(), make([]float64, len(d.params))
	var rest float64 // standard deviation of the effect given the effects before other
	for i, p := range d.params {
		b, _ := d.by.block(p.factor)
		sd := sdsOf(b, l[p.factor])[p.effect]
		if p.other < 0 {
			theta[i] = math.Asinh(sd / p.scale)
			continue
		}
		if p.other == 0 {
			rest = sd
		}
		if rest > 0 {
			r := l[p.factor][p.effect*b.Q+p.other] / rest
			theta[i] = math.Atanh(max(-edge, min(edge, r)))
			rest *= math.Sqrt(max(0, 1-r*r))
		}
	}
	return theta
}

// at returns the L at θ, and the log of the derivative of the parameters by θ. The derivative of the
// correlations by the partial correlations ρ_ij is the product of L_jj/s_j and of the L_ii/s_i before
// ρ_ij.
func (d *designRun) at(theta []float64) (l [][]float64, jac float64) {
	const least = 1e-9
	l = d.by.present()
	sd := make([]float64, len(d.params)) // standard deviations of the current factor
	for i, p := range d.params {
		b, _ := d.by.block(p.factor)
		x, q, k := l[p.factor], b.Q, p.effect
		if j := p.other; j >= 0 { // follows the standard deviations
			r := math.Tanh(theta[i])
			jac += math.Log1p(-r*r) + math.Log(x[j*q+j]/sd[j]) + math.Log(x[k*q+k]/sd[k])
			x[k*q+j] = r * x[k*q+k]
			x[k*q+k] *= math.Sqrt(1 - r*r)
			continue
		}
		s := p.scale * math.Sinh(theta[i])
		if math.Abs(s) < least*p.scale {
			s = least * p.scale
		}
		clear(x[k*q : (k+1)*q])
		x[k*q+k], sd[k] = s, s
		jac += math.Log(math.Cosh(theta[i]))
	}
	return l, jac
}

// surrogate approximates the log density of θ up to a constant, without fits.
func (d *designRun) surrogate(theta []float64) float64 { return d.surrogateAt(d.at(theta)) }

// surrogateAt is surrogate at the θ for which at returns l and jac.
func (d *designRun) surrogateAt(l [][]float64, jac float64) float64 {
	return d.by.surrogate(l) + jac
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

// integrateDesign is integrateSigma for several parameters.
func integrateDesign(m sigmaModel, factors []int) (*SigmaGrid, error) {
	params, err := designParams(m, factors)
	if err != nil {
		return nil, err
	}
	d := &designRun{newGridRun(m), params}
	theta := d.present()
	axes, ok := d.mode(theta)
	if !ok || m.halt().Err() != nil {
		return nil, m.halt().Err()
	}
	if len(params) == 2 { // two standard deviations
		return d.plane(theta)
	}
	near := m.start()
	stretch := d.stretches(theta, axes)
	var logs []float64
	var fits []*gridFit
	points := cubature.Composite(len(theta))
	for k, z := range points {
		x, volume := cubature.Place(theta, z, axes, stretch)
		l, jac := d.at(x)
		f, err := m.fit(l, jac, near)
		if err != nil {
			return nil, err
		}
		if k == 0 && !math.IsInf(f.log, -1) {
			near = &gridFit{gamma: f.gamma, a: f.a, m: f.m}
		}
		f.forget()
		logs = append(logs, f.log+cubature.LogWeight(k, len(points))+floats.Dot(z, z)/2+volume)
		fits = append(fits, f)
	}
	r := designGrid(fits, logs)
	if r != nil {
		size, _ := mat.LogDet(axes)
		for _, p := range params {
			size += math.Log(p.scale)
		}
		r.LogMass += size
		if r.Spans, err = d.spans(theta, axes, stretch, points, fits, near); err != nil {
			return nil, err
		}
	}
	return r, m.halt().Err()
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
	r.LogMass = best + math.Log(total)
	return r
}
