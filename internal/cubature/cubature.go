// Package cubature integrates over a few hyperparameters θ, whose posterior density is known only
// at the θ where a model was fitted. Each fit is expensive, so both rules need few of them. They
// return points θ_k with probabilities p_k, and the posterior of everything else is the mixture of
// the posteriors at these points.
//
// Lattice is for up to three parameters. It is the grid of Rue, Martino and Chopin (2009, section
// 6.5) in the eigenvectors of the curvature at the mode. The trapezoidal rule converges
// geometrically for smooth densities with light tails (Trefethen and Weideman, 2014). Design is for
// more parameters. It is their central composite design, which is less accurate.
//
// Package learn uses both rules for hyperparameters, and package site uses the points of the design
// for the covariances of groups.
package cubature

import (
	"math"
	"math/bits"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

const (
	// MostLattice is the largest number of parameters for which a Lattice is worth its points.
	MostLattice = 3
	// Most is the largest number of parameters of a Design, which then has 149 points.
	Most = 10
)

// A Density returns the log density at θ up to a constant, or −Inf where the density is 0. An error
// ends the integration.
type Density func(theta []float64) (float64, error)

// A Rule holds the points at which a Density was evaluated, in this order.
type Rule struct {
	Theta [][]float64
	Log   []float64 // log density
	Prob  []float64 // probabilities, whose sum is 1; some are 0
	// Complete reports whether the points cover the density. It is false if the density is so flat
	// that the largest number of points did not reach its end.
	Complete bool
}

// Constants of a Lattice.
const (
	tooWide  = 4.0  // a step is halved if the density falls this much more than a Gaussian
	tooShort = 0.35 // a step is doubled if the density falls this much less
	rescales = 6    // changes of the step of an axis, at most
	// nearEnd is the part of the drop that the points must cover for a Rule to be complete.
	nearEnd = 0.6
)

// A grade holds the precision of a Lattice, by the number of parameters.
type grade struct {
	// step is the distance of points in standard deviations. Next to a Gaussian density the error of
	// the trapezoidal rule is about 2exp(−2π²/step²).
	step [MostLattice + 1]float64
	// drop is the distance from the mode, in nats, at which no further points are added.
	drop [MostLattice + 1]float64
	most [MostLattice + 1]int // points, at most
}

// The coarse lattice is for densities close to a Gaussian, and the fine one for skewed densities
// with heavy tails. Trials with GP regressions of 15 to 40 rows led to the fine one.
var (
	coarse = &grade{[...]float64{0, 0.9, 1.2, 1.5}, [...]float64{0, 8, 4, 4}, [...]int{0, 30, 120, 300}}
	fine   = &grade{[...]float64{0, 0.8, 0.7, 1.2}, [...]float64{0, 12, 8, 8}, [...]int{0, 60, 250, 900}}
)

// lattice computes a Lattice.
type lattice struct {
	Rule
	mode []float64
	axes *mat.Dense // steps of the lattice in its columns
	f    Density
	step float64
	at   map[[MostLattice]int]int // indices of the points
	best float64
}

// Lattice integrates a density of up to MostLattice parameters. The columns of axes are the
// principal axes of a Gaussian approximation at the mode, as long as its standard deviations. The
// steps along the axes adapt to the density. The lattice grows from the mode, the most probable
// points first, until the density has fallen by some nats everywhere. A skewed density needs more
// points than one close to a Gaussian.
func Lattice(mode []float64, axes *mat.Dense, skewed bool, f Density) (*Rule, error) {
	p, g := len(mode), coarse
	if skewed {
		g = fine
	}
	l := &lattice{mode: mode, axes: mat.DenseCopyOf(axes), f: f, step: g.step[p],
		at: map[[MostLattice]int]int{}, best: math.Inf(-1)}
	l.axes.Scale(l.step, l.axes)
	if _, err := l.add([MostLattice]int{}); err != nil {
		return nil, err
	}
	for j := range p {
		if err := l.rescale(j); err != nil {
			return nil, err
		}
	}
	if err := l.grow(g.drop[p], g.most[p]); err != nil {
		return nil, err
	}
	logs := slices.Clone(l.Log)
	kept := make([]bool, len(logs))
	for _, i := range l.at {
		kept[i] = true
	}
	for i := range logs {
		if !kept[i] { // from before a change of steps
			logs[i] = math.Inf(-1)
		}
	}
	l.Prob = probabilities(logs)
	return &l.Rule, nil
}

// add evaluates the density at a point, unless it is known, and returns it.
func (l *lattice) add(k [MostLattice]int) (float64, error) {
	if i, ok := l.at[k]; ok {
		return l.Log[i], nil
	}
	theta := slices.Clone(l.mode)
	for j := range l.mode {
		floats.AddScaled(theta, float64(k[j]), mat.Col(nil, j, l.axes))
	}
	log, err := l.f(theta)
	if err != nil {
		return 0, err
	}
	if math.IsNaN(log) {
		log = math.Inf(-1)
	}
	l.at[k] = len(l.Log)
	l.Theta, l.Log = append(l.Theta, theta), append(l.Log, log)
	l.best = math.Max(l.best, log)
	return log, nil
}

// rescale changes the step of axis j until the density falls about as it should between the mode
// and its neighbors.
func (l *lattice) rescale(j int) error {
	halved := false
	for range rescales {
		mode, _ := l.add([MostLattice]int{})
		var fall [2]float64
		for side := range fall {
			var k [MostLattice]int
			k[j] = 2*side - 1
			log, err := l.add(k)
			if err != nil {
				return err
			}
			fall[side] = (mode - log) / (l.step * l.step / 2)
		}
		var factor float64
		switch least, largest := min(fall[0], fall[1]), max(fall[0], fall[1]); {
		case least > tooWide:
			factor, halved = 0.5, true
		case largest < tooShort && !halved:
			factor = 2
		default:
			return nil
		}
		for i := range l.mode {
			l.axes.Set(i, j, factor*l.axes.At(i, j))
		}
		old := l.at
		l.at = map[[MostLattice]int]int{}
		for k, i := range old {
			if factor > 1 && k[j]%2 != 0 {
				continue
			}
			k[j] = int(float64(k[j]) / factor)
			l.at[k] = i
		}
	}
	return nil
}

// grow adds the neighbors of the most probable point whose neighbors are missing, until the density
// has fallen there, or there are most points.
func (l *lattice) grow(drop float64, most int) error {
	grown := map[[MostLattice]int]bool{}
	for {
		var next [MostLattice]int
		found, log := false, l.best-drop
		for k, i := range l.at {
			if better := l.Log[i] > log || found && l.Log[i] == log && less(k, next); better && !grown[k] {
				found, log, next = true, l.Log[i], k
			}
		}
		if !found {
			l.Complete = true
			return nil
		}
		if len(l.at) >= most {
			l.Complete = log < l.best-nearEnd*drop
			return nil
		}
		grown[next] = true
		for j := range l.mode {
			for _, side := range []int{-1, 1} {
				k := next
				k[j] += side
				if _, err := l.add(k); err != nil {
					return err
				}
			}
		}
	}
}

// less orders points.
func less(a, b [MostLattice]int) bool { return slices.Compare(a[:], b[:]) < 0 }

// probabilities returns probabilities in proportion to the exponentials of logs. They are nil if
// all of them are 0.
func probabilities(logs []float64) []float64 {
	best := floats.Max(logs)
	if math.IsInf(best, 0) || math.IsNaN(best) {
		return nil
	}
	p := make([]float64, len(logs))
	for i, log := range logs {
		p[i] = math.Exp(log - best)
	}
	floats.Scale(1/floats.Sum(p), p)
	return p
}

// radius is the distance of the points of a design, in units of √p standard deviations.
const radius = 1.1

// factors holds the columns of a two-level design of resolution V (Sanchez and Sanchez, 2005):
// column j of run k is the parity of the common bits of k and factors[j].
var factors = [Most]uint{1, 2, 4, 8, 15, 16, 32, 51, 64, 85}

// Composite returns the points of a central composite design for p parameters, in standard
// deviations: 0, two points on each axis, and corners of a cube. Above four parameters it has only
// as many corners as second moments need (resolution V).
func Composite(p int) (z [][]float64) {
	r := radius * math.Sqrt(float64(p))
	z = append(z, make([]float64, p))
	for i := range p {
		for _, sign := range []float64{-1, 1} {
			x := make([]float64, p)
			x[i] = sign * r
			z = append(z, x)
		}
	}
	for k := range 1 << bits.Len(factors[p-1]) {
		x := make([]float64, p)
		for i := range x {
			x[i] = radius * float64(2*(bits.OnesCount(uint(k)&factors[i])&1)-1)
		}
		z = append(z, x)
	}
	return z
}

// LogWeight returns the log weight of point k among n points of Composite, for a density relative
// to a Gaussian. The weighted points have the total mass and the second moments of the Gaussian.
func LogWeight(k, n int) float64 {
	const f2 = radius * radius
	if k == 0 {
		return math.Log(1 - 1/f2)
	}
	return -math.Log(f2 * float64(n-1))
}

// Place returns the θ of the point z of a design, and the log of the volume of its part of the space
// relative to a Gaussian: the product of the stretches in its directions, or of their means on the
// other axes. The stretches hold the factors by which the density is wider than the Gaussian, in
// both directions of each axis.
func Place(mode, z []float64, axes *mat.Dense, stretch [][2]float64) (x []float64, volume float64) {
	x = append(x, mode...)
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

// Design integrates a density of up to Most parameters by a central composite design. The columns
// of axes are as for Lattice. Two evaluations on each axis measure how much wider than a Gaussian
// the density is. They have probability 0.
func Design(mode []float64, axes *mat.Dense, f Density) (*Rule, error) {
	r := &Rule{Complete: true}
	add := func(theta []float64) (float64, error) {
		log, err := f(theta)
		if math.IsNaN(log) {
			log = math.Inf(-1)
		}
		r.Theta, r.Log = append(r.Theta, theta), append(r.Log, log)
		return log, err
	}
	center, err := add(slices.Clone(mode))
	if err != nil || math.IsInf(center, -1) {
		return r, err
	}
	stretch := make([][2]float64, len(mode))
	for j := range stretch {
		for side, sign := range []float64{-1, 1} {
			theta := slices.Clone(mode)
			floats.AddScaled(theta, sign*math.Sqrt2, mat.Col(nil, j, axes)) // a Gaussian falls by 1
			log, err := add(theta)
			if err != nil {
				return nil, err
			}
			stretch[j][side] = 1 / math.Sqrt(min(max(center-log, 0.1), 10))
		}
	}
	logs := make([]float64, len(r.Log))
	logs[0] = center + LogWeight(0, 2)
	for i := range logs[1:] {
		logs[1+i] = math.Inf(-1)
	}
	points := Composite(len(mode))
	for k, z := range points {
		x, volume := Place(mode, z, axes, stretch)
		if k == 0 {
			logs[0] += volume
			continue
		}
		log, err := add(x)
		if err != nil {
			return nil, err
		}
		logs = append(logs, log+LogWeight(k, len(points))+floats.Dot(z, z)/2+volume)
	}
	r.Prob = probabilities(logs)
	return r, nil
}

// Axes returns the principal axes of N(0, LLᵀ) in its columns, each as long as its standard
// deviation. The rows hold L. Without L, or if it is not finite, the axes are unit vectors times
// half the given standard deviations, or 0.5 if these are not positive.
func Axes(rows [][]float64, sd []float64) *mat.Dense {
	n := len(sd)
	axes := mat.NewDense(n, n, nil)
	var e mat.EigenSym
	if rows != nil {
		cov := mat.NewSymDense(n, nil)
		for i := range n {
			for j := range i + 1 {
				cov.SetSym(i, j, floats.Dot(rows[i], rows[j]))
			}
		}
		if e.Factorize(cov, true) && e.Values(nil)[0] > 0 && !math.IsInf(e.Values(nil)[n-1], 0) {
			e.VectorsTo(axes)
			for j, v := range e.Values(nil) {
				for i := range n {
					axes.Set(i, j, math.Sqrt(v)*axes.At(i, j))
				}
			}
			return axes
		}
	}
	for i, s := range sd {
		if s *= 0.5; !(s > 0) || math.IsInf(s, 0) {
			s = 0.5
		}
		axes.Set(i, i, s)
	}
	return axes
}
