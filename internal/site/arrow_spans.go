package site

import (
	"cmp"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/cubature"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/mathext"
)

// This file computes intervals of standard deviations and correlations after a central composite
// design, whose few points have no quantiles. The surrogate approximates the log density of θ without
// fits. A quadratic function of θ, fitted to the exact values at the points of the design, corrects it.
// Draws from a wider Gaussian get the ratio of the densities as weights (importance sampling), and the
// weighted draws have the quantiles. The draws are a low-discrepancy sequence, so they need no random
// numbers.

// Constants of the draws.
const (
	spanDraws  = 2000
	spanBorder = 100 // columns of the border, at most, because every draw factorizes it
	spanWide   = 1.4 // standard deviations of the draws, in units of the density's
	spanReach  = 1.5 // distance, in radii of the design, beyond which the correction is constant
)

// correction is a quadratic function of the coordinates z of a design.
type correction struct {
	coef  []float64 // nil means 0
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

// newCorrection fits a quadratic function to the differences at the points z by least squares.
// Differences that are not finite do not count.
func newCorrection(z [][]float64, diff []float64) (c correction) {
	var rows, values []float64
	n := 0
	for k, x := range z {
		if r := floats.Norm(x, 2); !math.IsInf(diff[k], 0) && !math.IsNaN(diff[k]) {
			rows, values = append(rows, quadratic(x)...), append(values, diff[k])
			c.reach = max(c.reach, spanReach*r)
			n++
		}
	}
	p := len(quadratic(z[0]))
	if n < p {
		return c
	}
	var to mat.VecDense
	if to.SolveVec(mat.NewDense(n, p, rows), mat.NewVecDense(n, values)) == nil {
		c.coef = slices.Clone(to.RawVector().Data)
	}
	return c
}

// at returns the correction at z.
func (c *correction) at(z []float64) float64 {
	if c.coef == nil {
		return 0
	}
	if r := floats.Norm(z, 2); r > c.reach {
		z = slices.Clone(z)
		floats.Scale(c.reach/r, z)
	}
	return floats.Dot(c.coef, quadratic(z))
}

// sequence returns the given number of points of the additive recurrence of Roberts (2018) in the unit
// cube, whose steps are powers of the inverse of the root of x^(p+1) = x + 1.
func sequence(n, p int) [][]float64 {
	root := 2.0
	for range 60 {
		root = math.Pow(1+root, 1/float64(p+1))
	}
	all := make([][]float64, n)
	for k := range all {
		for i := range p {
			_, u := math.Modf(0.5 + float64(k+1)*math.Pow(root, -float64(i+1)))
			all[k] = append(all[k], u)
		}
	}
	return all
}

// spans returns the distributions of the standard deviations and correlations. The fits belong to the
// points of the design, with the mode theta.
func (d *designRun) spans(theta []float64, axes *mat.Dense, stretch [][2]float64, points [][]float64,
	fits []*gridFit) []SigmaSpan {
	if len(d.from.mover.shape.Border) > spanBorder {
		return nil
	}
	diff := make([]float64, len(points))
	for k, z := range points {
		x, _ := cubature.Place(theta, z, axes, stretch)
		diff[k] = fits[k].log - d.surrogate(x)
	}
	fix := newCorrection(points, diff)
	var logs []float64
	values := make([][]float64, len(d.params))
	for _, u := range sequence(spanDraws, len(theta)) {
		z, log := make([]float64, len(u)), 0.0
		for i, p := range u {
			e := mathext.NormalQuantile(p)
			z[i] = spanWide * e
			log += e * e / 2
		}
		x, volume := cubature.Place(theta, z, axes, stretch)
		if d.mirrored(x) {
			continue
		}
		log += d.surrogate(x) + fix.at(z) + volume
		if math.IsNaN(log) || math.IsInf(log, 0) {
			continue
		}
		logs = append(logs, log)
		for i, v := range d.values(x) {
			values[i] = append(values[i], v)
		}
		if d.from.Workers.Halt.Stopped() {
			return nil
		}
	}
	if len(logs) == 0 {
		return nil
	}
	var all []SigmaSpan
	best := floats.Max(logs)
	for k, log := range logs {
		logs[k] = math.Exp(log - best)
	}
	for i, p := range d.params {
		all = append(all, SigmaSpan{d.from.mover.fac[p.factor].number, p.effect, p.other,
			weightedQuantiles(values[i], logs)})
	}
	return all
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

// values returns the standard deviations and the correlations at θ.
func (d *designRun) values(theta []float64) []float64 {
	l, _ := d.at(theta)
	all := make([]float64, len(theta))
	for i, p := range d.params {
		q := d.from.mover.fac[p.factor].Q
		row := func(k int) []float64 { return l[p.factor][k*q : (k+1)*q] }
		own := row(p.effect)
		if all[i] = floats.Norm(own, 2); p.other >= 0 {
			other := row(p.other)
			all[i] = floats.Dot(own, other) / (all[i] * floats.Norm(other, 2))
		}
	}
	return all
}

// weightedQuantiles returns the quantiles of values with the given weights.
func weightedQuantiles(values, weights []float64) func(levels ...float64) []float64 {
	order := make([]int, len(values))
	for k := range order {
		order[k] = k
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(values[a], values[b]), cmp.Compare(a, b))
	})
	total := floats.Sum(weights)
	return func(levels ...float64) (out []float64) {
		sum, k := 0.0, 0
		for _, level := range levels {
			for k < len(order)-1 && sum+weights[order[k]] < level*total {
				sum += weights[order[k]]
				k++
			}
			out = append(out, values[order[k]])
		}
		return out
	}
}
