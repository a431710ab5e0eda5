package pgsvi

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/diff"
	"gonum.org/v1/gonum/floats"
)

// CheckConvex tests h at the given distributions, which must belong to one family and have λ in the
// same coordinates. If there is only one distribution, it adds a few neighbors, drawn with a fixed
// seed. It checks that
//
//   - Check accepts every q;
//
//   - Value and Grad are finite, do not change q and return the same result twice;
//
//   - Grad fills dst and agrees with differences of Value;
//
//   - h lies above its tangents and below its chords for every pair, as a convex function does
//     (Khan et al., 2016, A2):
//
//     h(λ') ≥ h(λ) + ∇h(λ)ᵀ(λ' − λ),   h((1−t)λ + tλ') ≤ (1−t)h(λ) + t h(λ');
//
//   - the closed form of a step, if there is one with KL, ReverseKL or Euclidean, minimizes the
//     problem of Prox for step sizes from 0.001 to +Inf. The gradient is chosen such that the
//     minimizer is known. Prox must not change the problem.
//
// Convexity depends on the coordinates. The error lists other coordinates in which h lies below its
// chords on these distributions. No finite number of points proves that h is convex.
//
// The error joins all violations and wraps ErrParam. It wraps ErrEmpty if there is no distribution,
// or only one and no neighbor can be made. An error of h.Check is returned unchanged.
func CheckConvex(h Convex, qs ...Dist) error {
	if isNil(h) {
		return fmt.Errorf("pgsvi: the h of CheckConvex is nil; give it a Convex: %w", ErrParam)
	}
	for i, q := range qs {
		if isNil(q) {
			return fmt.Errorf("pgsvi: distribution %d of CheckConvex is nil: %w", i, ErrParam)
		}
		if err := h.Check(q); err != nil {
			return err
		}
	}
	if len(qs) == 1 {
		qs = append(qs[:1:1], neighbors(qs[0], 6)...)
	}
	if len(qs) < 2 {
		return fmt.Errorf("pgsvi: CheckConvex has %d distributions; give it two or more of one "+
			"family: %w", len(qs), ErrEmpty)
	}
	c := &convexCheck{h: h, qs: qs}
	for i := range qs {
		c.point(i)
	}
	for i := range qs {
		for j := range qs {
			c.pair(i, j)
		}
	}
	if c.bent {
		c.errs = append(c.errs, fmt.Errorf("pgsvi: %s is not convex%s: %w", spell(h),
			c.otherCoordinates(), ErrParam))
	}
	if len(c.errs) == 0 {
		for i := range qs {
			for j := range qs {
				c.steps(i, j)
			}
		}
	}
	return errors.Join(c.errs...)
}

// neighbors returns distributions around q: pairs of opposite random moves, which change each element
// of the chart, or of λ without a chart, by about 0.3 or 1. Neighbors that are not valid are left out.
func neighbors(q Dist, pairs int) (near []Dist) {
	rng := rand.New(rand.NewPCG(0x636f6e766578, 1))
	c, charted := q.(Charted)
	for k := range pairs {
		x := q.Params(nil)
		if charted {
			x = c.Chart(nil)
		}
		move := make([]float64, len(x))
		for i := range move {
			move[i] = rng.NormFloat64()
		}
		// Long vectors move less per element, so that the whole move stays short.
		size := 1 / math.Sqrt(math.Max(1, float64(len(x))/8))
		if k < 2 {
			size *= 0.3
		}
		for _, sign := range [2]float64{-1, 1} {
			p := q.Clone()
			to := floats.AddScaledTo(make([]float64, len(x)), x, sign*size, move)
			set := p.SetParams
			if at, ok := p.(Charted); ok && charted {
				set = at.SetChart
			}
			if set(to) == nil {
				near = append(near, p)
			}
		}
	}
	return near
}

// convexCheck holds the points of a CheckConvex and the violations so far.
type convexCheck struct {
	h     Convex
	qs    []Dist
	value []float64
	grad  [][]float64 // nil if Grad is wrong
	bent  bool        // h is not convex
	errs  []error
}

// bad adds a violation at a place such as "distributions 0 and 1".
func (c *convexCheck) bad(place, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("pgsvi: %s at %s: %s: %w", spell(c.h), place,
		fmt.Sprintf(format, args...), ErrParam))
}

// point checks Value and Grad at distribution i and stores both.
func (c *convexCheck) point(i int) {
	q := c.qs[i]
	place := fmt.Sprintf("distribution %d", i)
	lambda := q.Params(nil)
	v := c.h.Value(q)
	again := c.h.Value(q)
	g := c.h.Grad(nil, q)
	c.value, c.grad = append(c.value, v), append(c.grad, nil)
	switch {
	case !slices.Equal(lambda, q.Params(nil)):
		c.bad(place, "Value or Grad changes q; work on a copy of its parameters")
		_ = q.SetParams(lambda)
		return
	case math.IsNaN(v) || math.IsInf(v, 0):
		c.bad(place, "Value is %v; it must be finite, or Check must reject q", v)
		return
	case v != again:
		c.bad(place, "Value is %v and then %v; it must depend on q alone", v, again)
		return
	case len(g) != len(lambda):
		c.bad(place, "Grad returns %d elements, but λ has %d", len(g), len(lambda))
		return
	}
	if k, ok := dense.AllFinite(g); !ok {
		c.bad(place, "element %d of Grad is %v; it must be finite", k, g[k])
		return
	}
	dst := make([]float64, len(g))
	for k := range dst {
		dst[k] = math.NaN()
	}
	if c.h.Grad(dst, q); !slices.Equal(dst, g) {
		c.bad(place, "Grad does not store in dst what it returns for a nil dst; fill every "+
			"element of dst, and allocate only if dst is nil")
		return
	}
	if wrong := c.gradError(q, g); wrong != "" {
		c.bad(place, "%s; check the derivative with respect to λ, in the coordinates of q", wrong)
		return
	}
	c.grad[i] = g
}

// mostDifferences is the number of elements of a gradient that are compared with differences.
const mostDifferences = 64

// gradError compares the gradient g of h at q with differences of Value, for all elements or a
// random choice of mostDifferences. It returns "" if they agree.
func (c *convexCheck) gradError(q Dist, g []float64) string {
	rng := rand.New(rand.NewPCG(0x636f6e766578, uint64(len(c.value))))
	chosen := rng.Perm(len(g))[:min(len(g), mostDifferences)]
	slices.Sort(chosen)
	lambda, p := q.Params(nil), q.Clone()
	x, got := make([]float64, len(chosen)), make([]float64, len(chosen))
	for k, i := range chosen {
		x[k], got[k] = lambda[i], g[i]
	}
	// Two step sizes bound the error of the differences.
	differences := func(shrink float64) []float64 {
		dst := diff.Gradient(nil, x, func(x []float64) (float64, bool) {
			at := slices.Clone(lambda)
			for k, i := range chosen {
				at[i] += (x[k] - at[i]) / shrink
			}
			if p.SetParams(at) != nil {
				return 0, false
			}
			return c.h.Value(p), true
		})
		floats.Scale(shrink, dst)
		return dst
	}
	long, num := differences(1), differences(8)
	worst, at := 0.0, -1
	for k, x := range num {
		// Differences are NaN where λ has no room to move.
		if e := math.Abs(got[k]-x) - 2*math.Abs(long[k]-x); e > worst {
			worst, at = e, k
		}
	}
	if at < 0 || worst <= 1e-5*(1+floats.Norm(num, math.Inf(1))) {
		return ""
	}
	text := fmt.Sprintf("element %d of Grad is %.6g, but differences of Value give %.6g",
		chosen[at], got[at], num[at])
	ratio := floats.Dot(got, num) / floats.Dot(num, num)
	floats.AddScaled(got, -ratio, num)
	if floats.Norm(got, math.Inf(1)) < 1e-3*worst && math.Abs(ratio) > 1e-9 {
		text += fmt.Sprintf(" (all of Grad is %.4g times as large as the differences)", ratio)
	}
	return text
}

// pair checks the tangent at i and the chord from i to j.
func (c *convexCheck) pair(i, j int) {
	from, to := c.qs[i].Params(nil), c.qs[j].Params(nil)
	d := floats.SubTo(make([]float64, len(to)), to, from)
	v, vo := c.value[i], c.value[j]
	if i == j || floats.Norm(d, 2) == 0 || !finiteAll(v, vo) {
		return
	}
	place := fmt.Sprintf("distributions %d and %d", i, j)
	if g := c.grad[i]; g != nil {
		slope, size := 0.0, 0.0
		for k, x := range d {
			slope += g[k] * x
			size += math.Abs(g[k] * x)
		}
		if below := v + slope - vo; below > 1e-9*(1+math.Abs(v)+math.Abs(vo)+size) {
			c.bad(place, "h(λ') is %.6g, which is %.3g below its tangent %.6g at λ", vo, below,
				v+slope)
			c.bent = true
		}
	}
	if t, at, chord := aboveChord(c.h, c.qs[i], d, v, vo); i < j && t > 0 {
		c.bad(place, "h is %.6g at the fraction %.3g of the segment, which is %.3g above its chord "+
			"%.6g", at, t, at-chord, chord)
		c.bent = true
	}
}

func finiteAll(x ...float64) bool {
	_, ok := dense.AllFinite(x)
	return ok
}

// aboveChord returns the first fraction t at which h lies above its chord from q to q + d, with
// the value there and the value of the chord, or 0. v and vo are the values at the ends.
func aboveChord(h Convex, q Dist, d []float64, v, vo float64) (t, at, chord float64) {
	p := q.Clone()
	for _, t := range [...]float64{0.5, 0.25, 0.75, 0.05, 0.95} {
		lambda := q.Params(nil)
		if floats.AddScaled(lambda, t, d); p.SetParams(lambda) != nil {
			continue // the valid λ are not a convex set
		}
		at, chord := h.Value(p), (1-t)*v+t*vo
		if !(at-chord <= 1e-9*(1+math.Abs(v)+math.Abs(vo))) {
			return t, at, chord
		}
	}
	return 0, 0, 0
}

// otherCoordinates names the coordinates of the distributions, and those in which h lies below all
// its chords. It returns "" if the distributions have only one λ.
func (c *convexCheck) otherCoordinates() string {
	first, ok := c.qs[0].(ExpFamily)
	if !ok {
		return " in λ"
	}
	var good []string
	for k := range Coordinates(len(coordinateNames)) {
		if in := allIn(c.qs, k); k != first.Coordinates() && in != nil && c.chordsHold(in) {
			good = append(good, k.String())
		}
	}
	if len(good) == 0 {
		return fmt.Sprintf(" in %v, nor in any other coordinates", first.Coordinates())
	}
	return fmt.Sprintf(" in %v; on these distributions it lies below its chords in %s, so use In",
		first.Coordinates(), strings.Join(good, ", "))
}

// chordsHold reports whether h lies below its chords between all of qs.
func (c *convexCheck) chordsHold(qs []Dist) bool {
	for i, q := range qs {
		if c.h.Check(q) != nil {
			return false
		}
		for _, to := range qs[:i] {
			d := to.Params(nil)
			floats.Sub(d, q.Params(nil))
			if t, _, _ := aboveChord(c.h, q, d, c.h.Value(q), c.h.Value(to)); t > 0 {
				return false
			}
		}
	}
	return true
}

// steps checks the closed forms of steps from i to j. The gradient −∇h(λ_j) − ∇D(λ_j‖λ_i)/β makes
// λ_j the minimizer, because h and D are convex in λ.
func (c *convexCheck) steps(i, j int) {
	from, to := c.qs[i], c.qs[j]
	for _, d := range [...]Divergence{forwardKL{}, reverseKL{}, euclidean{}} {
		if d.Check(from) != nil {
			continue
		}
		for _, beta := range [...]float64{1, 1e-3, math.Inf(1)} {
			g := d.Grad(nil, to, from)
			floats.Scale(-1/beta, g)
			floats.Sub(g, c.h.Grad(nil, to))
			p := &Prox{Grad: g, H: c.h, D: d, From: from, Beta: beta}
			if wrong := stepError(p, to); wrong != "" {
				c.bad(fmt.Sprintf("distributions %d and %d", i, j),
					"the closed step with %s and β = %v %s; correct Prox, or return false to get "+
						"the numeric step", spell(d), beta, wrong)
				return
			}
		}
	}
}

// stepError describes what is wrong with the closed form of p, whose minimizer is to. It returns ""
// if nothing is, or if there is no closed form.
func stepError(p *Prox, to Dist) string {
	q := p.From.Clone()
	g, from := slices.Clone(p.Grad), p.From.Params(nil)
	known, err := p.ask(q)
	switch {
	case !slices.Equal(g, p.Grad) || !slices.Equal(from, p.From.Params(nil)):
		copy(p.Grad, g)
		_ = p.From.SetParams(from)
		return "changes Grad or From of its Prox"
	case !known && !slices.Equal(from, q.Params(nil)):
		return "returns false but changes q"
	case !known:
		return ""
	case err != nil && math.IsInf(p.Beta, 1):
		return "" // without D, there need not be a minimum
	case err != nil:
		return fmt.Sprintf("returns the error %q although the minimizer is valid", err)
	}
	objective := func(q Dist) (v, size float64) {
		for k, x := range q.Params(nil) {
			v += g[k] * (x - from[k])
			size += math.Abs(g[k]) * (math.Abs(x) + math.Abs(from[k]))
		}
		h, d := p.H.Value(q), p.D.Value(q, p.From)/p.Beta
		return v + h + d, size + math.Abs(h) + math.Abs(d)
	}
	got, size := objective(q)
	want, most := objective(to)
	if !(got <= want+1e-9*(1+size+most)) {
		return fmt.Sprintf("ends at the objective %.8g, but the minimum is %.8g", got, want)
	}
	return ""
}
