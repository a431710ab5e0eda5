package site

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/cubature"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/mathext"
)

// This file computes intervals of standard deviations and correlations after a central composite
// design, whose few points have no quantiles. The surrogate approximates the log density of θ without
// fits. A spline through the exact values at the points of the design, and at a few more points near the
// ends of the intervals, corrects it. Draws from a wider Gaussian get the ratio of the densities as
// weights (importance sampling), and the weighted draws have the quantiles. The draws are a
// low-discrepancy sequence, so they need no random numbers.

// Constants of the draws.
const (
	spanDraws = 2500
	spanWide  = 1.4  // standard deviations of the draws, in units of the density's
	spanExact = 0.05 // error of an accurate correction, in nats: the ends move by about 1%
	spanReach = 1.5  // distance, in radii of the points, beyond which the correction is constant
)

// spanEnd holds the levels of the draws near the lower end of an interval. The upper end is symmetric.
var spanEnd = [2]float64{0.01, 0.06}

// correction is a function of the coordinates z of a design. It is the polyharmonic spline
//
//	Σ_k w_k |z − z_k|³ + quadratic function of z
//
// through the differences at the points z_k, the smoothest function in a sense that needs no length
// scale (Duchon, 1977).
type correction struct {
	at    [][]float64 // z_k
	coef  []float64   // w_k, and the coefficients of quadratic; nil means 0
	reach float64
}

// quadratic returns the values of 1, z_i and z_iz_j.
func quadratic(z []float64) []float64 {
	x := append([]float64{1}, z...)
	for i := range z {
		for j := range i + 1 {
			x = append(x, z[i]*z[j])
		}
	}
	return x
}

// cube returns |x − y|³.
func cube(x, y []float64) float64 {
	square := 0.0
	for i, v := range x {
		square += (v - y[i]) * (v - y[i])
	}
	return square * math.Sqrt(square)
}

// newCorrection returns the spline through the differences at the points z. Differences that are not
// finite do not count. The correction is 0 if there are fewer than the quadratic function needs.
func newCorrection(z [][]float64, diff []float64) (c correction) {
	var values []float64
	for k, x := range z {
		if !math.IsInf(diff[k], 0) && !math.IsNaN(diff[k]) {
			c.at, values = append(c.at, x), append(values, diff[k])
			c.reach = max(c.reach, spanReach*floats.Norm(x, 2))
		}
	}
	n, p := len(values), len(quadratic(z[0]))
	if n < p {
		return correction{}
	}
	m := mat.NewDense(n+p, n+p, nil)
	for k, x := range c.at {
		for l, y := range c.at[:k] {
			m.Set(k, l, cube(x, y))
			m.Set(l, k, cube(x, y))
		}
		for l, y := range quadratic(x) {
			m.Set(k, n+l, y)
			m.Set(n+l, k, y)
		}
	}
	var to mat.VecDense
	err := to.SolveVec(m, mat.NewVecDense(n+p, append(values, make([]float64, p)...)))
	if _, ok := err.(mat.Condition); err != nil && !ok {
		return correction{}
	}
	c.coef = slices.Clone(to.RawVector().Data)
	return c
}

// value returns the correction at z.
func (c *correction) value(z []float64) (sum float64) {
	if c.coef == nil {
		return 0
	}
	if r := floats.Norm(z, 2); r > c.reach {
		z = slices.Clone(z)
		floats.Scale(c.reach/r, z)
	}
	n := len(c.at)
	for k, x := range c.at {
		sum += c.coef[k] * cube(z, x)
	}
	return sum + floats.Dot(c.coef[n:], quadratic(z))
}

// sequence yields the given number of points of the additive recurrence of Roberts (2018) in the unit
// cube, whose steps are powers of the inverse of the root of x^(p+1) = x + 1.
func sequence(n, p int) iter.Seq[[]float64] {
	root := 2.0
	for range 60 {
		root = math.Pow(1+root, 1/float64(p+1))
	}
	return func(yield func([]float64) bool) {
		u := make([]float64, p)
		for k := range n {
			for i := range u {
				_, u[i] = math.Modf(0.5 + float64(k+1)*math.Pow(root, -float64(i+1)))
			}
			if !yield(u) {
				return
			}
		}
	}
}

// spanRun computes the distributions of the standard deviations and correlations after a design.
type spanRun struct {
	*designRun
	theta   []float64 // the mode
	axes    *mat.Dense
	stretch [][2]float64
	near    *gridFit // fits start at its sites

	points [][]float64 // the z at which there are fits
	diff   []float64   // differences of the fits from the surrogate
	draws  [][]float64 // z
	logs   []float64   // log weights of the draws, without the correction
	// The lists have one element per parameter: its values at the draws, and the numbers of the draws in
	// increasing order of the values.
	values [][]float64
	order  [][]int
	// accurate holds whether a correction was accurate at the lower and the upper end.
	accurate [][2]bool
}

// spans returns the distributions of the standard deviations and correlations. The fits belong to the
// points of the design, with the mode theta. More fits start at the sites of near.
func (d *designRun) spans(theta []float64, axes *mat.Dense, stretch [][2]float64, points [][]float64,
	fits []*gridFit, near *gridFit) ([]SigmaSpan, error) {
	if !d.by.quick() {
		return nil, nil
	}
	s := &spanRun{designRun: d, theta: theta, axes: axes, stretch: stretch, near: near,
		accurate: make([][2]bool, len(d.params))}
	for k, z := range points {
		x, _ := cubature.Place(theta, z, axes, stretch)
		s.points, s.diff = append(s.points, z), append(s.diff, fits[k].log-d.surrogate(x))
	}
	s.draw()
	if len(s.logs) == 0 || d.by.halt().Stopped() {
		return nil, nil
	}
	for _, choose := range []func(w []float64, in []int) []float64{s.center, s.gap, s.center} {
		if err := s.refine(choose); err != nil {
			return nil, err
		}
	}
	fix := newCorrection(s.points, s.diff)
	weights := s.weights(&fix)
	var all []SigmaSpan
	for i, p := range d.params {
		at := &sortedDraws{s.values[i], s.order[i], weights}
		_, number := d.by.block(p.factor)
		all = append(all, SigmaSpan{number, p.effect, p.other, at.quantiles})
	}
	return all, nil
}

// draw draws the points, with their surrogates.
func (s *spanRun) draw() {
	s.values = make([][]float64, len(s.params))
	for u := range sequence(2*spanDraws, len(s.theta)) {
		z, log := make([]float64, len(u)), 0.0
		for i, p := range u {
			e := mathext.NormalQuantile(p)
			z[i] = spanWide * e
			log += e * e / 2
		}
		x, volume := cubature.Place(s.theta, z, s.axes, s.stretch)
		if s.mirrored(x) {
			continue
		}
		l, jac := s.at(x)
		log += s.surrogateAt(l, jac) + volume
		if math.IsNaN(log) || math.IsInf(log, 0) {
			continue
		}
		s.draws, s.logs = append(s.draws, z), append(s.logs, log)
		for i, v := range s.designRun.values(l) {
			s.values[i] = append(s.values[i], v)
		}
		if len(s.logs) == spanDraws || s.by.halt().Stopped() {
			break
		}
	}
	for _, v := range s.values {
		s.order = append(s.order, sorted(v))
	}
}

// weights returns the weights of the draws, with the correction fix.
func (s *spanRun) weights(fix *correction) []float64 {
	w := make([]float64, len(s.logs))
	for k, z := range s.draws {
		w[k] = s.logs[k] + fix.value(z)
	}
	floats.AddConst(-floats.Max(w), w)
	for k, log := range w {
		w[k] = math.Exp(log)
	}
	return w
}

// refine fits the weights at both ends of the interval of each parameter, so that the correction is
// accurate where the ends depend on it. It leaves out ends at which an earlier correction was accurate.
// The function choose returns the z of a fit, given the weights of the draws and the numbers of the
// draws near an end.
func (s *spanRun) refine(choose func(w []float64, in []int) []float64) error {
	fix := newCorrection(s.points, s.diff)
	w := s.weights(&fix)
	total := floats.Sum(w)
	for i, order := range s.order {
		for side, end := range [2][2]float64{spanEnd, {1 - spanEnd[1], 1 - spanEnd[0]}} {
			var in []int
			sum := 0.0
			for _, k := range order {
				if sum += w[k]; sum > end[0]*total && sum <= end[1]*total {
					in = append(in, k)
				}
			}
			if len(in) == 0 || s.accurate[i][side] {
				continue
			}
			z := choose(w, in)
			x, _ := cubature.Place(s.theta, z, s.axes, s.stretch)
			l, jac := s.at(x)
			f, err := s.by.fit(l, jac, s.near)
			if err != nil {
				return err
			}
			diff := f.log - s.surrogateAt(l, jac)
			s.points, s.diff = append(s.points, z), append(s.diff, diff)
			s.accurate[i][side] = math.Abs(diff-fix.value(z)) < spanExact
		}
	}
	return nil
}

// center returns the mean of the draws.
func (s *spanRun) center(w []float64, in []int) []float64 {
	z, total := make([]float64, len(s.theta)), 0.0
	for _, k := range in {
		floats.AddScaled(z, w[k], s.draws[k])
		total += w[k]
	}
	floats.Scale(1/total, z)
	return z
}

// gap returns a draw with a large weight that is far from all points with a fit.
func (s *spanRun) gap(w []float64, in []int) (z []float64) {
	best := -1.0
	for _, k := range in {
		least := math.Inf(1)
		for _, x := range s.points {
			least = min(least, cube(x, s.draws[k]))
		}
		if v := w[k] * least; v > best {
			best, z = v, s.draws[k]
		}
	}
	return z
}

// mirrored reports whether a standard deviation is negative at θ. The density is the same at the
// mirror image of θ, so draws on one side suffice. Few draws reach the mirror image of the mode, and
// would have large weights.
func (d *designRun) mirrored(theta []float64) bool {
	for i, p := range d.params {
		if p.other < 0 && theta[i] < 0 {
			return true
		}
	}
	return false
}

// values returns the standard deviations and the correlations of l.
func (d *designRun) values(l [][]float64) []float64 {
	all := make([]float64, len(d.params))
	for i, p := range d.params {
		b, _ := d.by.block(p.factor)
		row := func(k int) []float64 { return l[p.factor][k*b.Q : (k+1)*b.Q] }
		own := row(p.effect)
		if all[i] = floats.Norm(own, 2); p.other >= 0 {
			other := row(p.other)
			all[i] = floats.Dot(own, other) / (all[i] * floats.Norm(other, 2))
		}
	}
	return all
}

// sorted returns the numbers of the values in increasing order.
func sorted(values []float64) []int {
	order := make([]int, len(values))
	for k := range order {
		order[k] = k
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(values[a], values[b]), cmp.Compare(a, b))
	})
	return order
}

// sortedDraws holds the values of a parameter at the draws, their order, and the weights of the draws.
type sortedDraws struct {
	values  []float64
	order   []int
	weights []float64
}

// quantiles returns the quantiles at increasing levels.
func (s *sortedDraws) quantiles(levels ...float64) (out []float64) {
	sum, k, total := 0.0, 0, floats.Sum(s.weights)
	for _, level := range levels {
		for k < len(s.order)-1 && sum+s.weights[s.order[k]] < level*total {
			sum += s.weights[s.order[k]]
			k++
		}
		out = append(out, s.values[s.order[k]])
	}
	return out
}
