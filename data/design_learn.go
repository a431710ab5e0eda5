package data

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/formula"
	"github.com/pgsvi/pgsvi/internal/spline"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

// A termLearner collects statistics of a term in a pass over the rows, before the term has
// features.
type termLearner struct {
	center    []bool // columns of a product whose numbers may be centered
	constant  bool   // whether the model contains the constants
	intercept bool
	x, w      []float64        // values and row weights for a curve or a polynomial
	spread    map[uint]*spread // products of two or more numbers, by the set of their columns
	sum       []float64        // weighted sums of the features of a product
	weight    float64          // sum of the row weights
	row       entries
	group     formula.Group       // effects of a group so far, while the design is made
	single    bool                // whether a group has independent effects only
	parts     map[string][]string // values of the columns of each level of a group
	slopes    groupLearner
}

// A spread holds the mean and the variance of weighted values, and the first two different values.
type spread struct {
	n, mean, m2 float64
	values      map[float64]bool
}

func (s *spread) add(x, w float64) {
	if w == 0 {
		return
	}
	s.n += w
	d := x - s.mean
	s.mean += d * w / s.n
	s.m2 += w * d * (x - s.mean)
	if len(s.values) <= 2 {
		if s.values == nil {
			s.values = map[float64]bool{}
		}
		s.values[x] = true
	}
}

// sd returns the standard deviation with divisor n.
func (s *spread) sd() float64 { return math.Sqrt(max(0, s.m2/s.n)) }

// scale returns the standard deviation. If there are only two different values, it returns their
// difference, and if there is only one value, it returns 1.
func (s *spread) scale() float64 {
	if len(s.values) < 2 {
		return 1
	}
	if len(s.values) == 2 {
		lo, hi := math.Inf(1), math.Inf(-1)
		for v := range s.values {
			lo, hi = min(lo, v), max(hi, v)
		}
		return hi - lo
	}
	return s.sd()
}

// begin sets the shifts of the numbers of a product before the pass.
func (t *term) begin() {
	if t.Kind == groupTerm {
		t.beginGroup()
	}
	if t.Kind != productTerm {
		return
	}
	t.Shifts = make([]float64, len(t.cols))
	for i, c := range t.cols {
		switch {
		case !c.hasNumber():
		case t.learner.center[i]:
			t.Shifts[i] = c.Shift
		case c.Kind == kindDate: // time since 1970, as in R
			t.Shifts[i] = -c.Origin / yearSeconds
		}
	}
	if t.learner.sum = nil; t.learner.intercept && t.uncentered() {
		t.learner.sum = make([]float64, len(t.names()))
	}
}

// uncentered reports whether a product has a number whose mean may be far from 0.
func (t *term) uncentered() bool {
	for i, c := range t.cols {
		if c.hasNumber() && !t.learner.center[i] && !c.Unscaled {
			return true
		}
	}
	return false
}

// scaled reports whether the scale of a product depends on the spread of the number at index i. A
// number with two values is treated like a category with two levels, so only its range matters.
func (t *term) scaled(i int) bool {
	c := t.cols[i]
	return c.hasNumber() && !c.Unscaled && !c.binary
}

// see learns from a row of weight w.
func (t *term) see(cells []cell, w float64) error {
	switch t.Kind {
	case groupTerm:
		return t.seeGroup(cells, w)
	case productTerm:
		return t.seeProduct(cells, w)
	}
	c := t.cols[0]
	x, ok, err := c.number(&cells[c.place])
	switch {
	case err != nil:
		return c.wrap(err)
	case !ok:
		return nil
	}
	t.learner.x, t.learner.w = append(t.learner.x, x), append(t.learner.w, w)
	return nil
}

// seeLevel counts a row of a group and returns the index of its level.
func (t *term) seeLevel(cells []cell) (int, error) {
	l, missing := t.levelOf(cells)
	if missing != nil {
		return 0, missing.absent()
	}
	if t.level == nil {
		t.level, t.learner.parts = map[string]int{}, map[string][]string{}
	}
	i, ok := t.level[l]
	if !ok {
		i, l = len(t.Levels), strings.Clone(l)
		t.level[l] = i
		t.Levels, t.Counts = append(t.Levels, l), append(t.Counts, 0)
		for _, c := range t.cols {
			part, _ := c.groupLevel(&cells[c.place])
			t.learner.parts[l] = append(t.learner.parts[l], strings.Clone(part))
		}
	}
	t.Counts[i]++
	return i, nil
}

// seeProduct adds the row to the means of the features, and to the spread of each set of two or
// more numbers of the product. All sets are needed, because the other numbers may be missing and
// imputed.
func (t *term) seeProduct(cells []cell, w float64) error {
	l := t.learner
	if l.sum != nil {
		l.row.reset()
		if err := t.multiply(&l.row, cells); err != nil {
			return err
		}
		for i, k := range l.row.product.ind {
			l.sum[k] += w * l.row.product.val[i]
		}
		l.weight += w
	}
	if len(t.cols) == 1 {
		return nil
	}
	sets, products := []uint{0}, []float64{1}
	for i, c := range t.cols {
		if !t.scaled(i) {
			continue
		}
		x, ok, err := c.number(&cells[c.place])
		if err != nil {
			return c.wrap(err)
		}
		if !ok {
			x = c.Mean
		}
		for j, s := range sets {
			sets, products = append(sets, s|1<<i), append(products, products[j]*(x-t.Shifts[i]))
		}
	}
	for j, s := range sets {
		if s&(s-1) == 0 {
			continue // the scale of a single number is known
		}
		if l.spread == nil {
			l.spread = map[uint]*spread{}
		}
		if l.spread[s] == nil {
			l.spread[s] = &spread{}
		}
		l.spread[s].add(products[j], w)
	}
	return nil
}

// learns reports whether a term needs a pass over the rows before it has features.
func (t *term) learns() bool {
	numbers := 0
	for i := range t.cols {
		if t.Kind == productTerm && t.scaled(i) {
			numbers++
		}
	}
	return t.Kind != productTerm || numbers > 1 || t.learner.sum != nil
}

// finish stores what the term has learned.
func (t *term) finish(raw bool) error {
	l := t.learner
	t.learner = nil
	switch t.Kind {
	case productTerm:
		t.finishProduct(l)
	case polyTerm:
		return t.finishPoly(l, raw)
	case smoothTerm:
		return t.finishCurve(l, raw)
	case groupTerm:
		return t.finishGroup(l, raw)
	}
	return nil
}

// finishProduct sets the means and the scales of the features.
func (t *term) finishProduct(l *termLearner) {
	if l.sum != nil && l.weight > 0 {
		for k := range l.sum {
			l.sum[k] /= l.weight
		}
		t.Means = l.sum
	}
	sets, scales := []uint{0}, []float64{1} // for each feature, its numbers and their ranges
	for i, c := range t.cols {
		var more []uint
		var scaled []float64
		n := len(c.featuresOf(t.Full[i]))
		for j, s := range sets {
			for k := range n {
				switch {
				case k == 0 && t.scaled(i):
					more, scaled = append(more, s|1<<i), append(scaled, scales[j])
				case k == 0 && c.binary:
					more, scaled = append(more, s), append(scaled, scales[j]*c.Scale)
				default:
					more, scaled = append(more, s), append(scaled, scales[j])
				}
			}
		}
		sets, scales = more, scaled
	}
	one := true
	for k, s := range sets {
		scale := scales[k]
		switch {
		case s == 0:
		case s&(s-1) == 0:
			scale *= t.cols[bits.TrailingZeros(s)].Scale
		case l.spread[s] != nil:
			scale *= l.spread[s].scale()
		}
		if !(scale > 0) || math.IsInf(scale, 0) {
			scale = 1
		}
		scales[k] = scale
		one = one && scale == 1
	}
	if !one {
		t.Scales = scales
	}
}

// drop0 removes the values of rows of weight 0.
func (l *termLearner) drop0() {
	n := 0
	for i, w := range l.w {
		if w > 0 {
			l.x[n], l.w[n] = l.x[i], w
			n++
		}
	}
	l.x, l.w = l.x[:n], l.w[:n]
}

// finishCurve makes the curve and standardizes its straight line.
func (t *term) finishCurve(l *termLearner, raw bool) error {
	k := t.Curve.K
	if k == 0 {
		k = defaultBasis
	}
	period := t.Curve.Hi
	l.drop0()
	if t.Curve.Periodic && period == 0 {
		period = spline.Period(l.x)
	}
	curve, err := spline.New(l.x, l.w, k, period)
	if err != nil {
		return fmt.Errorf("pgsvi: %s: %w", t.Text, err)
	}
	t.Curve = curve
	t.Shift, t.Scale = 0, 1
	if !raw || !l.constant {
		t.Shift = stat.Mean(l.x, l.w)
	}
	if sd := math.Sqrt(stat.PopVariance(l.x, l.w)); !raw && sd > 0 {
		t.Scale = sd
	}
	return nil
}

// finishPoly makes polynomials that are orthogonal over the rows, each with mean 0 and variance 1.
// It uses the recurrence p₊ = (u − a)p − (n/n₋)p₋, where a is the mean of u weighted by p² and n is
// the mean square of p (Forsythe 1957).
func (t *term) finishPoly(l *termLearner, raw bool) error {
	l.drop0()
	values := map[float64]bool{}
	for _, x := range l.x {
		if len(values) <= t.Degree {
			values[x] = true
		}
	}
	if n := len(values); n <= t.Degree {
		return fmt.Errorf("pgsvi: %s: the column has %s, but a polynomial of degree %d needs "+
			"%d: %w", t.Text, plural(n, "different value"), t.Degree, t.Degree+1, pgsvi.ErrParam)
	}
	if raw {
		if l.constant {
			return nil
		}
		t.Means = make([]float64, t.Degree)
		means, p := make([]float64, t.Degree), make([]float64, t.Degree)
		total := 0.
		for i, x := range l.x {
			total += l.w[i]
			for k, v := range t.powers(p, x) {
				means[k] += v * l.w[i]
			}
		}
		for k := range means {
			t.Means[k] = means[k] / total
		}
		return nil
	}
	lo, hi := slices.Min(l.x), slices.Max(l.x)
	t.Middle, t.Half = lo/2+hi/2, hi/2-lo/2
	t.Weight = floats.Sum(l.w)
	n := len(l.x)
	u, before, now := make([]float64, n), make([]float64, n), make([]float64, n)
	for i, x := range l.x {
		u[i], now[i] = (x-t.Middle)/t.Half, 1
	}
	square, mean, next := make([]float64, len(u)), 0., 0.
	for k := 0; k <= t.Degree; k++ {
		for i, p := range now {
			square[i] = p * p
		}
		norm := stat.Mean(square, l.w)
		if !(norm > 1e-300) {
			return fmt.Errorf("pgsvi: %s: the values are too close together for this degree; "+
				"use a lower degree: %w", t.Text, pgsvi.ErrParam)
		}
		t.Norms = append(t.Norms, norm)
		if k == t.Degree {
			break
		}
		for i := range square {
			square[i] *= u[i]
		}
		mean = stat.Mean(square, l.w) / norm
		t.Centers = append(t.Centers, mean)
		for i := range u {
			next = (u[i] - mean) * now[i]
			if k > 0 {
				next -= norm / t.Norms[k-1] * before[i]
			}
			before[i], now[i] = now[i], next
		}
	}
	return nil
}

// sortLevels sorts the levels of a group: by the level of the first column, then of the next, as R
// sorts the levels of interactions. parts holds the levels of the columns for each level.
func (t *term) sortLevels(parts map[string][]string) {
	ranks := make([]map[string]int, len(t.cols))
	for i := range t.cols {
		ranks[i] = map[string]int{}
		for _, p := range parts {
			ranks[i][p[i]] = 0
		}
		for rank, l := range sortedKeys(ranks[i]) {
			ranks[i][l] = rank
		}
	}
	counts := make(map[string]int, len(t.Levels))
	for i, l := range t.Levels {
		counts[l] = t.Counts[i]
	}
	slices.SortFunc(t.Levels, func(a, b string) int {
		for i, rank := range ranks {
			if d := rank[parts[a][i]] - rank[parts[b][i]]; d != 0 {
				return d
			}
		}
		return 0
	})
	for i, l := range t.Levels {
		t.Counts[i] = counts[l]
	}
}

// check returns an error if a term from a file is inconsistent.
func (t *term) check() error {
	ok := t != nil && len(t.Columns) > 0
	if ok {
		switch t.Kind {
		case productTerm:
			ok = len(t.Full) == len(t.Columns) && len(t.Shifts) == len(t.Columns)
		case smoothTerm:
			ok = t.Curve != nil && t.Curve.Check() == nil && t.Scale > 0
		case polyTerm:
			ok = t.Degree >= 1 && t.Degree <= 9 && (t.Half == 0 || t.Half > 0 &&
				len(t.Centers) == t.Degree && len(t.Norms) == t.Degree+1 && t.Weight >= 0) &&
				(t.Means == nil || len(t.Means) == t.Degree)
		case groupTerm:
			ok = t.checkGroup()
		default:
			ok = false
		}
	}
	if !ok {
		return fmt.Errorf("the model has an invalid term: %w", pgsvi.ErrFile)
	}
	return nil
}

// checkFeatures returns an error if the number of scales or means of a product from a file differs
// from its number of features.
func (t *term) checkFeatures() error {
	if t.Slopes != nil {
		if n := len(t.Kept); n == 0 || t.Kept[n-1] >= len(t.Slopes.names) {
			return fmt.Errorf("pgsvi: the model has a group without its slopes: %w", pgsvi.ErrFile)
		}
		for _, s := range t.Slopes.Terms {
			if err := s.checkFeatures(); err != nil {
				return err
			}
		}
	}
	if t.Kind == productTerm && (t.Scales != nil && len(t.Scales) != t.n ||
		t.Means != nil && len(t.Means) != t.n) {
		return fmt.Errorf("pgsvi: the model has a term with %d features but %d scales: %w", t.n,
			len(t.Scales), pgsvi.ErrFile)
	}
	return nil
}
