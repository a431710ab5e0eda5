// Package famcheck checks that the functions of an exponential family agree with each other. It
// compares slopes with differences and means with draws. pgsvi.CheckFamily calls it.
package famcheck

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/diff"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

const (
	// checkDraws is the number of draws at each η. It determines a mean to 1% of a standard
	// deviation.
	checkDraws = 20000
	// checkPaths is the number of paths that are followed for each statistic.
	checkPaths = 4000
	// checkErrors is the largest distance of a mean of draws from its value, in standard errors.
	// One mean in 5e8 is farther away by chance.
	checkErrors = 6
	// checkStat is the relative accuracy to which a draw and its statistics agree.
	checkStat = 1e-9
	// checkSlope is the relative accuracy of differences of fourth order, with a margin.
	checkSlope = 1e-5
	// checkTrip is the relative accuracy of η → μ → η if the Fisher information is not nearly
	// singular.
	checkTrip = 1e-6
)

// Check checks f at each of etas, slices of NumParams elements. The error joins all violations.
func Check(f expfam.Family, rng func() *rand.Rand, etas [][]float64) error {
	var members []*member
	errs := optional(reflect.TypeOf(f))
	for i, eta := range etas {
		c := &member{f: f, index: i, eta: slices.Clone(eta)}
		if c.setup(rng()) {
			c.checkSlopes()
			c.checkConvex()
			c.checkDensity()
			c.checkChart()
			c.checkFisher()
			c.checkEntropy()
			c.checkPath(rng())
			members = append(members, c)
		}
		errs = append(errs, c.errs...)
	}
	if len(errs) == 0 { // the other checks need all functions
		for _, c := range members {
			c.checkExp(members)
			errs = append(errs, c.errs...)
		}
	}
	return errors.Join(errs...)
}

// optionalSets holds the sets of optional methods of a Family.
var optionalSets = []reflect.Type{
	reflect.TypeFor[expfam.FisherFamily](), reflect.TypeFor[expfam.EntropyFamily](),
	reflect.TypeFor[expfam.PathFamily](), reflect.TypeFor[expfam.ChartFamily](),
}

// optional returns an error for each set of optional methods that would be ignored, because f has
// only a part of the set or a method with another signature.
func optional(f reflect.Type) (errs []error) {
	for _, set := range optionalSets {
		if f.Implements(set) {
			continue
		}
		has, needs := "", make([]string, set.NumMethod())
		for i := range needs {
			m := set.Method(i)
			needs[i] = m.Name + strings.TrimPrefix(m.Type.String(), "func")
			if _, ok := f.MethodByName(m.Name); ok {
				has = m.Name
			}
		}
		if has != "" {
			errs = append(errs, fmt.Errorf("pgsvi: %v: the method %s is ignored unless the type "+
				"has %s: %w", f, has, strings.Join(needs, ", "), sentinel.ErrParam))
		}
	}
	return errs
}

// member is a Family at one η.
type member struct {
	f     expfam.Family
	index int
	eta   []float64
	errs  []error

	q     *expfam.Member
	mu    []float64   // mean parameters
	draws [][]float64 // z
	stats [][]float64 // T(z)
	mean  []float64   // mean of stats, and its standard errors
	se    []float64
}

// bad adds a violation. The text begins with the methods to blame.
func (c *member) bad(format string, args ...any) {
	args = append([]any{c.f, c.index}, args...)
	c.errs = append(c.errs,
		fmt.Errorf("pgsvi: %T at eta %d: "+format+": %w", append(args, sentinel.ErrParam)...))
}

// setup draws from the family. It reports false if nothing else can be checked.
func (c *member) setup(rng *rand.Rand) bool {
	n := len(c.eta)
	if a := c.f.LogPartition(slices.Clone(c.eta)); math.IsNaN(a) || math.IsInf(a, 0) {
		c.bad("LogPartition is %v; give eta inside the set", a)
		return false
	}
	c.q = expfam.New(c.f)
	if err := c.q.SetNatural(c.eta); err != nil {
		c.bad("Mean: %v", err)
		return false
	}
	given := slices.Clone(c.eta)
	c.mu = c.q.MeanParams(nil)
	c.draws, c.stats = make([][]float64, checkDraws), make([][]float64, checkDraws)
	c.mean, c.se = make([]float64, n), make([]float64, n)
	for i := range c.draws {
		z, t := make([]float64, c.f.Dim()), make([]float64, n)
		c.f.Rand(z, t, c.eta, rng)
		before, stat := slices.Clone(z), make([]float64, n)
		c.f.Stat(stat, z)
		base := c.f.LogBase(z)
		switch {
		case !slices.Equal(z, before) || !slices.Equal(c.eta, given):
			c.bad("Rand, Stat or LogBase changed its arguments")
			return false
		case math.IsNaN(floats.Sum(t)) || math.IsInf(floats.Sum(t), 0):
			c.bad("Rand: T(z) is %v at the draw z = %v", t, z)
			return false
		case math.IsNaN(floats.Sum(stat)) || math.IsInf(floats.Sum(stat), 0):
			c.bad("Stat: T(z) is %v at the draw z = %v", stat, z)
			return false
		case !c.sameStat(t, stat, z):
			c.bad("Rand or Stat: T(z) is %v by Rand and %v by Stat at the draw z = %v", t, stat, z)
			return false
		case math.IsNaN(base) || math.IsInf(base, 0):
			c.bad("LogBase or Rand: log h(z) is %v at the draw z = %v", base, z)
			return false
		}
		c.draws[i], c.stats[i] = z, t
		floats.Add(c.mean, t)
	}
	floats.Scale(1./checkDraws, c.mean)
	for _, t := range c.stats {
		for j, x := range t {
			c.se[j] += (x - c.mean[j]) * (x - c.mean[j]) / (checkDraws * (checkDraws - 1.))
		}
	}
	for j, v := range c.se {
		c.se[j] = math.Sqrt(v)
	}
	return true
}

// sameStat reports whether t equals T(z) up to the rounding of z.
func (c *member) sameStat(t, stat, z []float64) bool {
	slack := make([]float64, len(t))
	for i, x := range stat {
		slack[i] = checkStat * (1 + math.Abs(x))
	}
	moved := make([]float64, len(t))
	for j, x := range z {
		for _, by := range []float64{1 - checkStat, 1 + checkStat} {
			z[j] = x * by
			c.f.Stat(moved, z)
			for i, m := range moved {
				if d := math.Abs(m - stat[i]); d > 0 {
					slack[i] += d
				}
			}
		}
		z[j] = x
	}
	for i := range t {
		if math.Abs(t[i]-stat[i]) > slack[i] {
			return false
		}
	}
	return true
}

// gradient returns the gradient of f(p) in η, by differences.
func (c *member) gradient(eta []float64, f func(p *expfam.Member) float64) []float64 {
	p := expfam.New(c.f)
	return diff.Gradient(nil, slices.Clone(eta), func(eta []float64) (float64, bool) {
		if p.SetNatural(eta) != nil {
			return 0, false
		}
		return f(p), true
	})
}

// rounding returns the error of differences, in the direction j, of a function of size v.
func (c *member) rounding(v float64, j int) float64 {
	const eps = 1e-14 // relative error of a function, tens of rounding errors
	return eps * (1 + math.Abs(v)) / (diff.Step * math.Max(math.Abs(c.eta[j]), diff.Scale))
}

// checkSlopes compares Mean with LogPartition and with the draws, and Fisher with either.
func (c *member) checkSlopes() {
	n := len(c.eta)
	fisher := mat.NewSymDense(n, nil)
	c.f.Fisher(fisher, slices.Clone(c.eta))
	slopes := func(eta []float64) []float64 {
		return c.gradient(eta,
			(*expfam.Member).LogPartition)
	}
	// rowOff returns the element of row i of Fisher that is farthest from the slopes of a mean,
	// or -1.
	rowOff := func(i int, slope []float64, tol float64) int {
		at, most := -1, 1.0
		for j, want := range slope {
			scale := math.Sqrt(math.Abs(fisher.At(i, i) * fisher.At(j, j)))
			e := math.Abs(fisher.At(i, j)-want) / (tol*math.Max(math.Abs(want), scale) +
				c.rounding(c.mu[i], j))
			if !(e <= most) {
				at, most = j, e
			}
		}
		return at
	}
	ofMean := func(i int) []float64 {
		return c.gradient(c.eta, func(p *expfam.Member) float64 { return p.MeanParams(nil)[i] })
	}
	ofPartition := func(i int) []float64 {
		return c.gradient(c.eta, func(p *expfam.Member) float64 {
			return slopes(
				p.Natural(nil))[i]
		})
	}
	const twice = 1e-4 // accuracy of differences of differences
	meanBad, partitionBad := false, false
	slope := slopes(c.eta)
	for i, m := range c.mu {
		noise := checkErrors*c.se[i] + checkSlope*math.Abs(c.mean[i])
		meanOff := !(math.Abs(c.mean[i]-m) <= noise)
		slopeOff := !(math.Abs(c.mean[i]-slope[i]) <= noise)
		if math.Abs(slope[i]-m) <= checkSlope*math.Abs(slope[i])+c.rounding(c.q.LogPartition(), i) {
			if meanOff {
				c.bad("Stat or Rand: the mean of element %d of Stat over %d draws is %v, but "+
					"Mean and LogPartition give %v, %.0f standard errors away", i, checkDraws, c.mean[i],
					m, math.Abs(c.mean[i]-m)/c.se[i])
			}
			continue
		}
		judge := "draws of Stat"
		if meanOff == slopeOff { // draws cannot decide
			judge = "Fisher"
			meanOff, slopeOff = rowOff(i, ofMean(i), checkSlope) >= 0,
				rowOff(i, ofPartition(i), twice) >= 0
		}
		switch {
		case meanOff == slopeOff:
			meanBad, partitionBad = true, true
			c.bad("Mean or LogPartition: element %d of Mean is %v, the slope of LogPartition "+
				"%v, the mean of Stat over draws %v", i, m, slope[i], c.mean[i])
		case meanOff:
			meanBad = true
			c.bad("Mean: element %d is %v, the slope of LogPartition is %v, and %s agrees with that", i, m, slope[i], judge)
		default:
			partitionBad = true
			c.bad("LogPartition: its slope in element %d is %v, Mean is %v, and %s agrees with Mean", i, slope[i], m, judge)
		}
	}
	if meanBad && partitionBad {
		return // nothing is left to compare Fisher with
	}
	for i := range n {
		row, tol := ofMean, checkSlope
		if meanBad {
			row, tol = ofPartition, twice
		}
		want := row(i)
		if j := rowOff(i, want, tol); j >= 0 {
			c.bad("Fisher: element (%d, %d) is %v, the slope of the mean %v", i, j, fisher.At(i, j),
				want[j])
		}
	}
	var chol mat.Cholesky
	if !chol.Factorize(fisher) {
		c.bad("Fisher is not positive definite: the elements of Stat must be linearly independent")
	}
}

// checkConvex checks along every axis that A is convex, and that it is not finite again beyond
// the edge of the set of valid η.
func (c *member) checkConvex() {
	const points = 400
	for j := range c.eta {
		for _, sign := range []float64{-1, 1} {
			h := sign * 4 * math.Max(1, math.Abs(c.eta[j])) / points
			x := slices.Clone(c.eta)
			var v [3]float64 // the last three values
			outside := false
			for k := range points {
				x[j] = c.eta[j] + h*float64(k)
				v[0], v[1], v[2] = v[1], v[2], c.f.LogPartition(slices.Clone(x))
				if math.IsNaN(v[2]) || math.IsInf(v[2], 1) {
					outside = true
					continue
				}
				concave := k >= 2 &&
					v[0]+v[2]-2*v[1] < -1e-9*(1+math.Abs(v[0])+math.Abs(v[1])+math.Abs(v[2]))
				if outside || concave || math.IsInf(v[2], -1) {
					c.bad(
						"LogPartition is not convex on the way to element %d = %v, where it is "+
							"%v; it must be +Inf or NaN where eta is not valid", j, x[j], v[2])
					break
				}
			}
		}
	}
}

// checkDensity checks that the density is normalized: E[r(z)/q(z)] = 1 for any density r inside
// the support. It takes the uniform density over a box in the middle of the draws, or over the
// values that are drawn more than once.
func (c *member) checkDensity() {
	if len(c.errs) > 0 {
		return // an error found above explains the wrong density
	}
	logProb := func(i int) float64 {
		return floats.Dot(c.eta, c.stats[i]) - c.q.LogPartition() + c.f.LogBase(c.draws[i])
	}
	half := checkDraws / 2
	inside, logVolume := c.atoms(half)
	if inside == nil {
		if inside, logVolume = c.box(half); inside == nil {
			return
		}
	}
	var sum, square float64
	for i := half; i < checkDraws; i++ {
		if inside(c.draws[i]) {
			w := math.Exp(-logVolume - logProb(i))
			sum, square = sum+w, square+w*w
		}
	}
	n := float64(checkDraws - half)
	mean := sum / n
	se := math.Sqrt((square/n - mean*mean) / n)
	if !(math.Abs(mean-1) <= checkErrors*se+checkSlope) {
		c.bad("LogBase, or a constant in LogPartition: the density is %.4g ± %.2g times too "+
			"small for the draws of Rand", mean, se)
	}
}

// atoms returns the values of a discrete distribution that occur in the first half of the draws,
// and the logarithm of their number. It returns nil if the distribution is not discrete.
func (c *member) atoms(half int) (inside func(z []float64) bool, logVolume float64) {
	count := map[string]int{}
	for _, z := range c.draws[:half] {
		count[fmt.Sprint(z)]++
	}
	often := map[string]bool{}
	for z, n := range count {
		if n > half/1000 {
			often[z] = true
		}
	}
	if len(often) == 0 {
		return nil, 0
	}
	return func(z []float64) bool { return often[fmt.Sprint(z)] }, math.Log(float64(len(often)))
}

// box returns the box between the quartiles of the first half of the draws and the logarithm of
// its volume. It returns nil if the draws lie in a subspace, or if too few are in the box.
func (c *member) box(half int) (inside func(z []float64) bool, logVolume float64) {
	d := c.f.Dim()
	lo, hi := make([]float64, d), make([]float64, d)
	cov := mat.NewSymDense(d, nil)
	center := make([]float64, d)
	for _, z := range c.draws[:half] {
		floats.AddScaled(center, 1/float64(half), z)
	}
	for _, z := range c.draws[:half] {
		x := slices.Clone(z)
		floats.Sub(x, center)
		cov.SymRankOne(cov, 1/float64(half), mat.NewVecDense(d, x))
	}
	sd := make([]float64, d)
	for i := range sd {
		sd[i] = math.Sqrt(cov.At(i, i))
	}
	for i := range d {
		for j := range i + 1 {
			cov.SetSym(i, j, cov.At(i, j)/(sd[i]*sd[j]))
		}
	}
	var chol mat.Cholesky
	if !chol.Factorize(cov) || chol.Cond() > 1e10 {
		return nil, 0
	}
	for j := range d {
		var x []float64
		for _, z := range c.draws[:half] {
			x = append(x, z[j])
		}
		slices.Sort(x)
		lo[j], hi[j] = x[half/4], x[3*half/4]
		logVolume += math.Log(hi[j] - lo[j])
	}
	inside = func(z []float64) bool {
		for j, x := range z {
			if x < lo[j] || x > hi[j] {
				return false
			}
		}
		return true
	}
	n := 0
	for _, z := range c.draws[:half] {
		if inside(z) {
			n++
		}
	}
	if n < 100 {
		return nil, 0
	}
	return inside, logVolume
}

// checkChart checks the Chart of the family, if it has one.
func (c *member) checkChart() {
	f, ok := c.f.(expfam.ChartFamily)
	if !ok {
		return
	}
	n := len(c.eta)
	x, eta, g := make([]float64, n), make([]float64, n), make([]float64, n)
	f.Chart(x, slices.Clone(c.eta))
	f.FromChart(eta, slices.Clone(x))
	if e := floats.Distance(eta, c.eta,
		math.Inf(1)); !(e <= checkTrip*(1+floats.Norm(c.eta, math.Inf(1)))) {
		c.bad("Chart or FromChart: FromChart of Chart is %v, not %v", eta, c.eta)
		return
	}
	for i := range n {
		w := make([]float64, n)
		w[i] = 1
		f.ChartGrad(g, w, slices.Clone(c.eta))
		want := diff.Gradient(nil, x, func(x []float64) (float64, bool) {
			f.FromChart(eta, slices.Clone(x))
			return eta[i], true
		})
		if e := floats.Distance(g, want,
			math.Inf(1)); !(e <= checkSlope*(1+floats.Norm(want, math.Inf(1)))) {
			c.bad("ChartGrad: the gradient of element %d of eta is %v, by differences of "+
				"FromChart %v", i, g, want)
		}
	}
}

// checkFisher checks FisherMul and FisherSolve, if the family has them.
func (c *member) checkFisher() {
	f, ok := c.f.(expfam.FisherFamily)
	if !ok {
		return
	}
	n := len(c.eta)
	fisher := mat.NewSymDense(n, nil)
	c.f.Fisher(fisher, slices.Clone(c.eta))
	e, col := make([]float64, n), make([]float64, n)
	for j := range n {
		clear(e)
		e[j] = 1
		f.FisherMul(col, e, slices.Clone(c.eta))
		for i, x := range col {
			scale := math.Sqrt(fisher.At(i, i) * fisher.At(j, j))
			if !(math.Abs(x-fisher.At(i, j)) <= checkTrip*scale) {
				c.bad("FisherMul or Fisher: element (%d, %d) is %v and %v", i, j, x,
					fisher.At(i, j))
				return
			}
		}
		f.FisherSolve(col, col, slices.Clone(c.eta))
		for i, x := range col {
			scale := math.Sqrt(fisher.At(j, j) / fisher.At(i, i))
			if !(math.Abs(x-e[i]) <= checkTrip*math.Max(1, scale)) {
				c.bad("FisherSolve: from column %d of Fisher, element %d is %v, not %v", j, i, x,
					e[i])
				return
			}
		}
	}
}

// checkEntropy checks the Entropy of the family, if it has one.
func (c *member) checkEntropy() {
	f, ok := c.f.(expfam.EntropyFamily)
	if !ok {
		return
	}
	var sum, square float64
	for i, z := range c.draws {
		v := c.q.LogPartition() - floats.Dot(c.eta, c.stats[i]) - c.f.LogBase(z)
		sum, square = sum+v, square+v*v
	}
	mean := sum / checkDraws
	se := math.Sqrt(math.Max(0, square/checkDraws-mean*mean) / checkDraws)
	h := f.Entropy(slices.Clone(c.eta))
	if math.IsNaN(h) {
		return // unknown, for example for a product with a part without an entropy
	}
	if !(math.Abs(h-mean) <= checkErrors*se+
		checkStat*(1+math.Abs(mean)+math.Abs(c.q.LogPartition()))) {
		c.bad("Entropy is %v, by draws %v ± %.2g", h, mean, se)
	}
}

// checkPath checks RandPath and PathGrad, if the family has them. For each statistic, and for the linear function Σ
// z_j of the draw, the mean slope along the paths must be the covariance of the function and T.
func (c *member) checkPath(rng *rand.Rand) {
	f, ok := c.f.(expfam.PathFamily)
	if !ok || len(c.errs) > 0 {
		return
	}
	n, d := len(c.eta), c.f.Dim()
	fisher := mat.NewSymDense(n, nil)
	c.f.Fisher(fisher, slices.Clone(c.eta))
	z, t, aux := make([]float64, d), make([]float64, n), make([]float64, f.AuxLen())
	dl, coef, g := make([]float64, d), make([]float64, n), make([]float64, n)
	// means of the slopes of T, and of the difference of the two slopes of Σ z_j
	sums, squares := dense.NewRows(n+1, n), dense.NewRows(n+1, n)
	add := func(i int) {
		floats.Add(sums[i], g)
		for j, x := range g {
			squares[i][j] += x * x
		}
	}
	for range checkPaths {
		f.RandPath(z, t, aux, c.eta, rng)
		for i := range n {
			clear(g)
			clear(coef)
			coef[i] = 1
			f.PathGrad(g, dl, coef, z, aux, c.eta)
			add(i)
		}
		clear(g)
		clear(coef)
		floats.AddConst(1, dl)
		f.PathGrad(g, dl, coef, z, aux, c.eta)
		clear(dl)
		sum := floats.Sum(z)
		for j, m := range c.mu {
			g[j] -= sum * (t[j] - m)
		}
		add(n)
	}
	for i := range sums {
		for j, sum := range sums[i] {
			got := sum / checkPaths
			se := math.Sqrt(math.Max(0, squares[i][j]/checkPaths-got*got) / checkPaths)
			want, what := 0.0, "the sum of z along paths less that by scores"
			if i < n {
				want, what = fisher.At(i, j), fmt.Sprintf("statistic %d along paths", i)
			}
			scale := math.Sqrt(fisher.At(j, j))
			if i < n {
				scale *= math.Sqrt(fisher.At(i, i))
			}
			if !(math.Abs(got-want) <= checkErrors*se+checkStat*scale) {
				c.bad("PathGrad or RandPath: the slope of %s in element %d is %v ± %.2g, not %v",
					what, j, got, se, want)
			}
		}
	}
}

// checkExp checks an Exp that is made of the functions.
func (c *member) checkExp(members []*member) {
	n := len(c.eta)
	for _, z := range c.draws[:3] {
		want := c.gradient(c.eta, func(p *expfam.Member) float64 { return p.LogProb(z) })
		got := c.q.Score(nil, z)
		for j := range want {
			most := checkSlope*(math.Abs(c.mu[j])+math.Abs(want[j])) + c.rounding(c.q.LogProb(z), j)
			if e := math.Abs(got[j] - want[j]); !(e <= most) {
				c.bad("Stat or Mean: element %d of Score is %v at z = %v, by differences of "+
					"LogProb %v", j, got[j], z, want[j])
			}
		}
	}
	for _, other := range members {
		p := expfam.New(c.f)
		err := p.SetNatural(other.eta)
		if err == nil {
			err = p.SetMeanParams(c.mu)
		}
		if back := p.Natural(nil); err != nil {
			c.bad("Mean or Fisher: no way back to eta from its mean parameters, from eta %d: %v",
				other.index, err)
		} else {
			for j := range n {
				if e := math.Abs(back[j] - c.eta[j]); !(e <= checkTrip*(1+math.Abs(c.eta[j]))) {
					c.bad(
						"Mean or Fisher: the way back from its mean parameters leads to element "+
							"%d = %v, not %v", j, back[j], c.eta[j])
				}
			}
		}
		if other == c {
			continue
		}
		var sum, square float64
		for _, t := range c.stats {
			var v float64
			for j, x := range t {
				v += (c.eta[j] - other.eta[j]) * x
			}
			v += other.q.LogPartition() - c.q.LogPartition()
			sum, square = sum+v, square+v*v
		}
		mean := sum / checkDraws
		se := math.Sqrt((square/checkDraws - mean*mean) / checkDraws)
		kl := other.q.LogPartition() - c.q.LogPartition()
		for j, mu := range c.mu {
			kl -= (other.eta[j] - c.eta[j]) * mu
		}
		size := math.Abs(other.q.LogPartition()) + math.Abs(c.q.LogPartition())
		if !(kl >= -1e-12*(1+size)) {
			c.bad("LogPartition or Mean: KL to eta %d is %v, which is negative", other.index, kl)
		}
		if !(math.Abs(kl-mean) <= checkErrors*se+1e-9*(1+size)) {
			c.bad("LogPartition, Mean or Stat: KL to eta %d is %v, by draws %v ± %.2g", other.index,
				kl, mean, se)
		}
	}
}
