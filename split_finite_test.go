package pgsvi

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// spoiltLik is a logit whose log-likelihood is value for the label 1 where eta is in a range.
type spoiltLik struct{ value, from, to float64 }

func (l spoiltLik) LogProb(y, eta float64) float64 {
	if y == 1 && eta > l.from && eta < l.to {
		return l.value
	}
	return BernoulliLogit{}.LogProb(y, eta)
}

// spoiltSlope is a logit whose derivatives are not finite there.
type spoiltSlope struct{ spoiltLik }

func (l spoiltSlope) LogProb(y, eta float64) float64 { return BernoulliLogit{}.LogProb(y, eta) }

func (l spoiltSlope) Derivs(y, eta float64) (d1, d2 float64) {
	d1, d2 = BernoulliLogit{}.Derivs(y, eta)
	if y == 1 && eta > l.from && eta < l.to {
		d1 = l.value
	}
	return d1, d2
}

// A log-likelihood or gradient of a user's that is not finite ends a run with an error that names the term, the point and
// the value, and says what to do.
func TestNotFiniteNamesTheTerm(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := logisticData(93, 20, 8)
	for i := range s.Y {
		s.Y[i] = -1
	}
	s.Y[17] = 1
	x := mat.NewDense(20, 8, nil)
	for i, row := range s.X {
		x.SetRow(i, row)
	}
	prior := NewIsotropic(8, 4)
	logLik := func(lik Likelihood) LogLik {
		eta := func(n int, z []float64) (e float64) {
			for j, zj := range z {
				e += s.X[n][j] * zj
			}
			return e
		}
		return LogLik{N: 20, Dim: 8, LogProb: func(n int, z []float64) float64 { return lik.LogProb(s.Y[n], eta(n, z)) },
			Grad: func(dst []float64, n int, z []float64) {
				d1, _ := lik.(Differentiable).Derivs(s.Y[n], eta(n, z))
				for j, xj := range s.X[n] {
					dst[j] += d1 * xj
				}
			}}
	}
	for _, value := range []float64{math.NaN(), math.Inf(-1), math.Inf(1)} {
		for where, span := range map[string][2]float64{"everywhere": {math.Inf(-1), math.Inf(1)}, "below zero": {math.Inf(-1), 0}, "in a gap": {-0.1, 0.1}} {
			if where == "below zero" && (testing.Short() || value != math.Inf(-1)) {
				continue // no q of a GP helps, which takes seconds to find out
			}
			if testing.Short() && (where == "everywhere") != math.IsInf(value, -1) {
				continue
			}
			lik := spoiltLik{value, span[0], span[1]}
			sites := s
			sites.Lik = lik
			slope := spoiltSlope{lik}
			steep := s
			steep.Lik = slope
			objective := func(l LogLikelihood, e Estimator) Model {
				return Objective[*Gaussian]{F: Expect(l, e), H: KLTo(prior), Init: prior}
			}
			names := map[float64]string{math.Inf(-1): "-Inf", math.Inf(1): "+Inf"}
			bad := names[value]
			if bad == "" {
				bad = "NaN"
			}
			for name, c := range map[string]struct {
				m    Model
				want []string
			}{
				"LogLik, score function": {objective(logLik(lik), ScoreFunction{}), []string{"term 17", "log-likelihood " + bad, "at z = [", "… 2 more]"}},
				"LogLik, pathwise":       {objective(logLik(slope), Pathwise{}), []string{"term 17", strings.TrimLeft(bad, "+-"), "gradient", "at z = [", "… 2 more]"}},
				"Sites, exact":           {objective(sites, nil), []string{"term 17, with label 1", "log-likelihood " + bad, "η = "}},
				"Sites, score function":  {objective(sites, ScoreFunction{}), []string{"term 17, with label 1", "log-likelihood " + bad, "η = "}},
				"Sites, pathwise":        {objective(steep, Pathwise{}), []string{"term 17, with label 1", "derivatives " + bad, "η = ", "(z = ["}},
				"GP":                     {must(NewGP(x, s.Y, SquaredExp{}, lik, nil)), []string{"row 17, with response 1", "log-likelihood " + bad, "η = "}},
				"GLM":                    {must(NewGLM(x, s.Y, lik, nil)), []string{"row 17, with response 1", "log-likelihood " + bad, "η = "}},
				"GLM, score function":    {must(NewGLM(x, s.Y, lik, &GLMOptions{Estimator: ScoreFunction{}})), []string{"row 17, with response 1", "log-likelihood " + bad, "η = "}},
			} {
				what := name + ", " + bad + " " + where
				sol := Solver{MaxPasses: 100, Src: rand.NewPCG(1, 2)}
				if name == "GLM, score function" {
					sol.StepSize = ConstantStep(0.2)
				}
				res, err := sol.Run(ctx, c.m)
				if err == nil || res != nil && res.Status != Failed {
					t.Errorf("%s: error %v, result %v", what, err, res)
					continue
				}
				if !errors.Is(err, ErrNotFinite) && !errors.Is(err, ErrDiverged) || !prefixedOnce(err) {
					t.Errorf("%s: error %v", what, err)
				}
				for _, w := range c.want {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("%s: no %q in %q", what, w, err)
					}
				}
				if value < 0 && !strings.Contains(name, "pathwise") && !strings.Contains(err.Error(), "support") {
					t.Errorf("%s: %q does not say what to do", what, err)
				}
			}
		}
	}
}
