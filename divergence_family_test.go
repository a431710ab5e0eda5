package pgsvi_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/floats"
)

// Each pair of h and D that has a closed form on a family agrees with the numeric step, and each that has none has a numeric step where
// the slope of what it minimises vanishes.
func TestFamilyProx(t *testing.T) {
	t.Parallel()
	for _, c := range families {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			seeds := uint64(6)
			if testing.Short() {
				seeds = 2
			}
			steps := 0
			defer func() {
				if least := 12 * int(seeds); steps < least {
					t.Errorf("%d steps, at least %d", steps, least)
				}
			}()
			for seed := range seeds {
				rng := rand.New(rand.NewPCG(seed, 4))
				from, err := c.make(rng, mildSize(rng))
				if err != nil {
					t.Fatal(err)
				}
				prior := from.Clone().(*pgsvi.Exp)
				x := from.Chart(nil)
				for i := range x {
					x[i] += 0.3 * rng.NormFloat64()
				}
				if err := prior.SetChart(x); err != nil {
					t.Fatal(err)
				}
				fisher := fisherOf(from)
				for _, coords := range []pgsvi.Coordinates{pgsvi.MeanParams, pgsvi.Natural} {
					for _, h := range []pgsvi.Convex{pgsvi.Zero{}, pgsvi.KLTo(prior)} {
						for _, d := range []pgsvi.Divergence{pgsvi.KL{}, pgsvi.ReverseKL{}, pgsvi.SymKL{}, pgsvi.Euclidean{}} {
							q0 := from.In(coords)
							what := fmt.Sprintf("seed %d, h = %T, D = %T, %v, from %.4g", seed, h, d, coords, from.Natural(nil))
							// A gradient of a tenth of a standard deviation, and a step that is short where D is in the units of λ.
							g, beta := make([]float64, len(x)), 0.5
							for i := range g {
								sd := math.Sqrt(fisher.At(i, i))
								if coords == pgsvi.MeanParams {
									sd = 1 / sd
								}
								g[i] = 0.02 * rng.NormFloat64() * sd
							}
							if _, ok := d.(pgsvi.Euclidean); ok {
								var most float64
								for i := range x {
									v := fisher.At(i, i)
									if coords == pgsvi.MeanParams {
										v = 1 / v
									}
									most = math.Max(most, v)
								}
								beta = 0.1 / most
							}
							p := &pgsvi.Prox{Grad: g, H: h, D: d, From: q0, Beta: beta}
							q, num := q0.Clone().(*pgsvi.Exp), q0.Clone().(*pgsvi.Exp)
							closed, err := p.Solve(q)
							if coords == pgsvi.Natural && errors.Is(err, pgsvi.ErrNotFinite) {
								continue // KL(q‖q0) is not convex in η, and of a discrete q bounded: there may be no minimum
							}
							if err != nil {
								t.Errorf("%s: %v", what, err)
								continue
							}
							steps++
							kl := d == pgsvi.Divergence(pgsvi.KL{}) && coords == pgsvi.MeanParams
							_, zero := h.(pgsvi.Zero)
							reverse := d == pgsvi.Divergence(pgsvi.ReverseKL{}) && coords == pgsvi.Natural && zero
							euclidean := d == pgsvi.Divergence(pgsvi.Euclidean{}) && zero
							if want := kl || reverse || euclidean; closed != want {
								t.Errorf("%s: closed is %v", what, closed)
							}
							if !closed {
								num = q
							} else if err := p.Numeric(num); err != nil {
								t.Errorf("%s: numerically: %v", what, err)
								continue
							}
							eta := q.Natural(nil)
							e := floats.Distance(eta, num.Natural(nil), math.Inf(1)) / floats.Norm(eta, math.Inf(1))
							if d := math.Sqrt(2 * q.KL(num)); !(e <= 2e-7) || !(d <= 1e-6) {
								t.Errorf("%s: the closed form is %.3g of η from the numeric step, %.3g standard deviations", what, e, d)
							}
							// The slope of the objective there, in terms of x, beside that at the start.
							slope := func(q *pgsvi.Exp) float64 {
								r := h.Grad(nil, q)
								floats.Add(r, g)
								floats.AddScaled(r, 1/beta, d.Grad(nil, q, q0))
								q.ChartGrad(r, r)
								return floats.Norm(r, math.Inf(1))
							}
							if s, s0 := slope(q), slope(q0); !(s <= 1e-3*s0+1e-7) {
								t.Errorf("%s: the slope at the step is %.3g, at its start %.3g", what, s, s0)
							}
						}
					}
				}
			}
		})
	}
}
