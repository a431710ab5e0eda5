package pgsvi

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
)

// ownDivergence is a Divergence of functions.
type ownDivergence struct {
	value func(q, q0 Dist) float64
	grad  func(dst []float64, q, q0 Dist) []float64
}

func (ownDivergence) Check(Dist) error           { return nil }
func (d ownDivergence) Value(q, q0 Dist) float64 { return d.value(q, q0) }
func (d ownDivergence) Grad(dst []float64, q, q0 Dist) []float64 {
	return d.grad(dst, q, q0)
}

// TestWrongGradient checks that a run whose f, h or D has a wrong gradient ends in the set-up with an
// error that names the function and both slopes, and that correct functions pass.
func TestWrongGradient(t *testing.T) {
	t.Parallel()
	sites, q := Expect(logisticData(1, 60, 4), nil), NewIsotropic(4, 1)
	if _, _, err := sites.Setup(q); err != nil {
		t.Fatal(err)
	}
	kl := KLTo(NewIsotropic(4, 1))
	scaled := func(c float64, g []float64) []float64 {
		floats.Scale(c, g)
		return g
	}
	for _, c := range []float64{1, -1, 2, 0.5, 0} {
		f := SmoothFunc(60, true, func(env *Env, dst []float64, q Dist, batch []int) (float64,
			error) {
			v, err := sites.Grad(context.Background(), env, dst, q, batch)
			scaled(c, dst)
			return v, err
		})
		h := ownConvex{kl.Value, func(dst []float64, q Dist) []float64 {
			return scaled(c, kl.Grad(dst, q))
		}, nil}
		d := ownDivergence{KL().Value, func(dst []float64, q, q0 Dist) []float64 {
			return scaled(c, KL().Grad(dst, q, q0))
		}}
		for _, in := range []Coordinates{MeanParams, Cholesky} {
			for name, fit := range map[string]struct {
				o Objective[*Gaussian]
				s Solver
			}{
				"f = SmoothFunc": {Objective[*Gaussian]{F: f, H: kl, Init: q.In(in)}, Solver{}},
				"h = pgsvi.ownConvex": {Objective[*Gaussian]{F: sites, H: h, Init: q.In(in)},
					Solver{StepSize: ConstantStep(1), MaxPasses: 5}},
				"h = KLTo + pgsvi.ownConvex": {Objective[*Gaussian]{F: sites, H: SumOf(kl, h),
					Init: q.In(in)}, Solver{MaxPasses: 5}},
				"D = pgsvi.ownDivergence": {Objective[*Gaussian]{F: sites, H: kl, Init: q.In(in)},
					Solver{Divergence: d, MaxPasses: 5}},
			} {
				_, _, err := fit.o.Fit(context.Background(), &fit.s)
				if c == 1 {
					if err != nil {
						t.Errorf("%s is correct: %v", name, err)
					}
					continue
				}
				if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), name+": ") ||
					!strings.Contains(err.Error(), "along the direction [") {
					t.Errorf("%s with %v times the gradient: %v", name, c, err)
				}
			}
		}
	}
}

// TestNumericWrongGradient checks that a numeric step without a minimum names the h whose gradient is
// wrong, and that a subgradient at a kink is not an error.
func TestNumericWrongGradient(t *testing.T) {
	t.Parallel()
	square := squares().ownConvex
	h := ownConvex{square.value, func(dst []float64, q Dist) []float64 {
		dst = q.Params(dst)
		floats.Scale(0.5, dst)
		return dst
	}, nil}
	q := NewPoint([]float64{0, 0})
	p := Prox{Grad: []float64{-8, -8}, H: h, D: Euclidean(), From: q, Beta: 10, doubt: doubtGradients}
	err := p.Numeric(NewPoint([]float64{0, 0}))
	if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "found no minimum: h = ") {
		t.Errorf("half the gradient: %v", err)
	}
	corner := ownConvex{func(q Dist) float64 {
		return math.Max(0, q.Params(nil)[0]) + 2*math.Abs(q.Params(nil)[1])
	}, func(dst []float64, q Dist) []float64 {
		dst = q.Params(dst)
		dst[0], dst[1] = 0.5, 1
		return dst
	}, nil}
	for _, c := range slopesOf(corner, Euclidean(), q) {
		if err := c.along(q, []float64{1, 0.5}); err != nil {
			t.Errorf("at a kink: %v", err)
		}
	}
}

// TestWrongLogLikGrad checks that a run with a wrong LogLik.Grad ends in the set-up with an error that
// names the gradient, and that a run with a correct gradient, or without the gradient, does not.
func TestWrongLogLikGrad(t *testing.T) {
	t.Parallel()
	x := []float64{-1, 0, 1, 2, 3}
	for _, c := range []float64{1, -1, 2, 0} {
		ll := LogLik{N: len(x), Dim: 2,
			LogProb: func(n int, z []float64) float64 {
				eta := z[0] + z[1]*x[n]
				return float64(n)*eta - math.Exp(eta)
			},
			Grad: func(dst []float64, n int, z []float64) {
				d := float64(n) - math.Exp(z[0]+z[1]*x[n])
				dst[0] += d
				dst[1] += c * d * x[n]
			}}
		for _, e := range []Estimator{Pathwise(10), ScoreFunction(10)} {
			_, path := e.(pathwise)
			_, _, err := Objective[*Gaussian]{F: Expect(ll, e), H: KLTo(NewIsotropic(2, 4)),
				Init: NewIsotropic(2, 0.1)}.Fit(context.Background(), &Solver{MaxPasses: 30})
			switch wrong := path && c != 1; {
			case !wrong && err != nil:
				t.Errorf("%T with %v times an element of the gradient: %v", e, c, err)
			case wrong && (!errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "LogLik.Grad")):
				t.Errorf("%T with %v times an element of the gradient returns %v", e, c, err)
			}
		}
	}
}
