package pgsvi

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
)

// ownConvex is a Convex of functions. A nil grad means differences.
type ownConvex struct {
	value func(q Dist) float64
	grad  func(dst []float64, q Dist) []float64
	check error
}

func (h ownConvex) Check(Dist) error     { return h.check }
func (h ownConvex) Value(q Dist) float64 { return h.value(q) }
func (h ownConvex) Grad(dst []float64, q Dist) []float64 {
	if h.grad == nil {
		return gradientByDifferences(dst, q, h.value)
	}
	return h.grad(dst, q)
}

// closedConvex is an ownConvex with a closed step.
type closedConvex struct {
	ownConvex
	prox func(q Dist, p *Prox) (bool, error)
}

func (h closedConvex) Prox(q Dist, p *Prox) (bool, error) { return h.prox(q, p) }

// squares is a correct h = ½‖λ‖² with the closed step λ ← (λ − βg)/(1 + β) of Euclidean.
func squares() closedConvex {
	return closedConvex{ownConvex{
		value: func(q Dist) float64 {
			l := q.Params(nil)
			return floats.Dot(l, l) / 2
		},
		grad: func(dst []float64, q Dist) []float64 { return q.Params(dst) },
	}, func(q Dist, p *Prox) (bool, error) {
		if _, ok := p.D.(euclidean); !ok {
			return false, nil
		}
		l := p.From.Params(nil)
		for i := range l {
			l[i] = (l[i]/p.Beta - p.Grad[i]) / (1 + 1/p.Beta)
		}
		return true, q.SetParams(l)
	}}
}

// TestCheckConvexMistakes checks that CheckConvex finds every mistake in a correct h, with an error
// that describes it, and that it accepts the correct h.
func TestCheckConvexMistakes(t *testing.T) {
	t.Parallel()
	q := must(NewGaussian([]float64{0.3, -0.4}, must(NewGaussian(nil, NewIsotropic(2, 0.8).Cov())).Cov()))
	point := NewPoint([]float64{0.7, -0.2, 1.1})
	for _, q := range []Dist{q, point} {
		if err := CheckConvex(squares(), q); err != nil {
			t.Fatalf("the correct h on %T: %v", q, err)
		}
	}
	kl := KLTo(NewIsotropic(2, 1))
	calls := 0
	scaled := func(c float64) func(dst []float64, q Dist) []float64 {
		return func(dst []float64, q Dist) []float64 {
			dst = kl.Grad(dst, q)
			floats.Scale(c, dst)
			return dst
		}
	}
	withProx := func(prox func(q Dist, p *Prox) (bool, error)) Convex {
		h := squares()
		right := h.prox
		h.prox = func(q Dist, p *Prox) (bool, error) {
			if known, err := prox(q, p); known || err != nil {
				return known, err
			}
			return right(q, p)
		}
		return h
	}
	move := func(by float64, only func(beta float64) bool) Convex {
		return withProx(func(q Dist, p *Prox) (bool, error) {
			if known, err := squares().Prox(q, p); !known || err != nil || !only(p.Beta) {
				return known, err
			}
			l := q.Params(nil)
			l[0] += by
			return true, q.SetParams(l)
		})
	}
	always := func(float64) bool { return true }
	for _, c := range []struct {
		name, want string
		h          Convex
		q          Dist
	}{
		{"the sign of Grad", "all of Grad is -1 times", ownConvex{kl.Value, scaled(-1), nil}, q},
		{"a factor of two in Grad", "all of Grad is 2 times", ownConvex{kl.Value, scaled(2), nil}, q},
		{"a factor of a half in Grad", "all of Grad is 0.5 times", ownConvex{kl.Value, scaled(0.5), nil}, q},
		{"one element of Grad is missing", "element 1 of Grad is 0", ownConvex{kl.Value,
			func(dst []float64, q Dist) []float64 {
				dst = kl.Grad(dst, q)
				dst[1] = 0
				return dst
			}, nil}, q},
		{"off-diagonal elements count once", "element 3 of Grad", ownConvex{
			func(q Dist) float64 { v := q.(*Gaussian).Cov().At(0, 1); return kl.Value(q) + 2*v*v },
			func(dst []float64, q Dist) []float64 {
				dst = kl.Grad(dst, q)
				dst[3] += q.(*Gaussian).Cov().At(0, 1)
				return dst
			}, nil}, q.In(MeanCov)},
		{"a gradient in other coordinates", "of Grad is", ownConvex{kl.Value,
			func(dst []float64, q Dist) []float64 {
				g := kl.Grad(dst, q.(*Gaussian).In(MeanCov))
				return g
			}, nil}, q},
		{"a term of Value is missing in Grad", "of Grad is", ownConvex{
			func(q Dist) float64 { return kl.Value(q) + squares().Value(q) }, kl.Grad, nil}, q},
		{"a concave h", "is not convex", ownConvex{
			func(q Dist) float64 { return -kl.Value(q) }, scaled(-1), nil}, q},
		{"an h of two minima", "is not convex", ownConvex{func(q Dist) float64 {
			l := q.Params(nil)[0]
			return (l*l - 1) * (l*l - 1)
		}, nil, nil}, point},
		{"convex in other coordinates only", "lies below its chords in mean parameters",
			kl, q.In(Natural)},
		{"an entropy of the wrong sign", "is not convex", ownConvex{func(q Dist) float64 {
			return -NaturalPrior(nil).Value(q)
		}, nil, nil}, q},
		{"NaN in Value", "Value is NaN", ownConvex{func(Dist) float64 { return math.NaN() },
			kl.Grad, nil}, q},
		{"an infinite Value", "Value is +Inf", ownConvex{func(q Dist) float64 {
			if q.Params(nil)[0] > 0.8 {
				return math.Inf(1)
			}
			return 0
		}, nil, nil}, point},
		{"NaN in Grad", "element 2 of Grad is NaN", ownConvex{kl.Value,
			func(dst []float64, q Dist) []float64 {
				dst = kl.Grad(dst, q)
				dst[2] = math.NaN()
				return dst
			}, nil}, q},
		{"Grad changes q", "changes q", ownConvex{squares().Value,
			func(dst []float64, q Dist) []float64 {
				dst = q.Params(dst)
				_ = q.SetParams(make([]float64, len(dst)))
				return dst
			}, nil}, point},
		{"Value changes q", "changes q", ownConvex{func(q Dist) float64 {
			l := q.Params(nil)
			l[0]++
			_ = q.SetParams(l)
			return 0
		}, squares().grad, nil}, point},
		{"dst is ignored", "does not store in dst", ownConvex{squares().Value,
			func(_ []float64, q Dist) []float64 { return q.Params(nil) }, nil}, point},
		{"dst is added to", "does not store in dst", ownConvex{squares().Value,
			func(dst []float64, q Dist) []float64 {
				if dst == nil {
					dst = make([]float64, q.NumParams())
				}
				floats.Add(dst, q.Params(nil))
				return dst
			}, nil}, point},
		{"too short a Grad", "returns 1 elements", ownConvex{squares().Value,
			func([]float64, Dist) []float64 { return []float64{1} }, nil}, point},
		{"a random Value", "must depend on q alone", ownConvex{
			func(Dist) float64 { calls++; return float64(calls) }, squares().grad, nil}, point},
		{"a wrong closed step", "the closed step with Euclidean", move(0.1, always), point},
		{"a slightly wrong closed step", "the closed step with Euclidean", move(1e-3, always), point},
		{"a closed step that is wrong without D", "β = +Inf ends at",
			move(0.1, func(beta float64) bool { return math.IsInf(beta, 1) }), point},
		{"a closed step that is wrong for small β", "β = 0.001 ends at",
			move(0.1, func(beta float64) bool { return beta < 0.01 }), point},
		{"a closed step for any D", "the closed step with Euclidean", withProx(
			func(q Dist, p *Prox) (bool, error) { return true, nil }), point},
		{"a closed step that fails", "although the minimizer is valid", withProx(
			func(Dist, *Prox) (bool, error) { return true, ErrNotFinite }), point},
		{"a closed step that changes the gradient", "changes Grad or From", withProx(
			func(_ Dist, p *Prox) (bool, error) { p.Grad[0]++; return false, nil }), point},
		{"an unknown step that changes q", "returns false but changes q", closedConvex{
			squares().ownConvex, func(q Dist, _ *Prox) (bool, error) {
				return false, q.SetParams([]float64{1, 2, 3})
			}}, point},
	} {
		err := CheckConvex(c.h, c.q)
		if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, which does not contain %q", c.name, err, c.want)
		}
	}
}

// TestCheckConvexAccepts checks that every h of the library passes in the coordinates in which it is
// convex.
func TestCheckConvexAccepts(t *testing.T) {
	t.Parallel()
	full := must(NewGaussian([]float64{0.3, -0.4, 1}, randomGaussian(rand.New(rand.NewPCG(7, 7)), 3, MeanParams).Cov()))
	diagonal := must(NewMeanField([]float64{0.3, -0.4, 1}, []float64{0.3, 0.5, 0.2}))
	gamma, dirichlet := must(NewGamma(2, 3)), must(NewDirichlet([]float64{1, 2, 0.5}))
	walk := []float64{0, 0, 0, -0.5, 1, -1, 0, 1, -0.5} // the random walk −½((z_1 − z_0)² + (z_2 − z_1)²)
	point := NewPoint([]float64{0.4, -2, 3})
	all := []Coordinates{MeanParams, MeanCov, Cholesky}
	for _, c := range []struct {
		h  Convex
		q  Dist
		in []Coordinates
	}{
		{Zero(), full, append(slices.Clone(all), Natural, LogCholesky)},
		{Zero(), point, nil},
		{L1(0.7, 0), point, nil},
		{L1(0.7, 2), diagonal, append(slices.Clone(all), Natural, LogCholesky)},
		{KLTo(NewIsotropic(3, 2)), full, append(slices.Clone(all), LogCholesky)},
		{KLTo(NewIsotropicMeanField(3, 2)), full, append(slices.Clone(all), LogCholesky)},
		{KLTo(full), diagonal, all},
		{KLTo(must(NewGamma(1, 1))), gamma, []Coordinates{MeanParams}},
		{KLTo(must(NewDirichlet([]float64{1, 1, 1}))), dirichlet, []Coordinates{MeanParams}},
		{NaturalPrior(nil), full, all},
		{NaturalPrior(nil), diagonal, all},
		{NaturalPrior(nil), gamma, []Coordinates{MeanParams}},
		{NaturalPrior(walk), full, all},
		{LaplacePrior(nil, 1), full.In(Cholesky), []Coordinates{Cholesky}},
		{LaplacePrior([]float64{1, 0, -1}, 0.5, 1, 2), diagonal, []Coordinates{Cholesky}},
		{LaplacePrior(nil, 1), diagonal, []Coordinates{MeanParams, MeanCov}},
		{SumOf(KLTo(NewIsotropic(3, 2)), NaturalPrior(walk)), full, all},
		{SumOf(L1(0.5, 0), NaturalPrior(nil)), diagonal, all},
	} {
		qs := []Dist{c.q}
		for _, in := range c.in {
			qs = append(qs, allIn(qs[:1], in)[0])
		}
		if c.in != nil {
			qs = qs[1:]
		}
		for _, q := range qs {
			if err := CheckConvex(c.h, q); err != nil {
				t.Errorf("%s on %T %v: %v", spell(c.h), c.q, c.in, err)
			}
		}
	}
}
