package paper

import (
	"context"
	"fmt"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// The variants of the gradient methods.
const (
	Published = "published" // the gradient of a mini-batch is not scaled
	Corrected = "corrected" // the gradient is scaled by N over the size of the mini-batch
)

// A Method is a method that the paper compares with PG-SVI, with the settings for a data set.
type Method struct {
	Name, Variant string
	// −ELBO, in the coordinates of the published scripts
	Model  pgsvi.Objective[*pgsvi.Gaussian]
	Solver pgsvi.Solver
}

// GradientMethods returns SGD, AdaGrad, RMSprop, Adadelta and Adam, each in both variants, with the
// score-function estimator of gp.
func (p *Problem) GradientMethods(gp *pgsvi.GP, coords pgsvi.Coordinates) ([]Method, error) {
	scaled, err := gp.Objective()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	plain := scaled
	plain.F = unscaled{scaled.F, gp.Len()}
	const eps = 1e-8 // as in the published scripts
	var all []Method
	for _, v := range []struct {
		name      string
		objective pgsvi.Objective[*pgsvi.Gaussian]
	}{{Published, plain}, {Corrected, scaled}} {
		for _, m := range []struct {
			name string
			d    pgsvi.Divergence
			step pgsvi.Schedule
		}{
			{"SGD", pgsvi.Euclidean(), pgsvi.RobbinsMonro(p.SGDN/float64(len(p.Y)), 0, p.SGDPower)},
			{"AdaGrad", pgsvi.AdaGrad(eps), pgsvi.ConstantStep(p.AdaGrad)},
			{"RMSprop", pgsvi.RMSprop(p.RMSpropDecay, eps), pgsvi.ConstantStep(p.RMSprop)},
			{"Adadelta", pgsvi.Adadelta(1-p.AdadeltaForget, eps), pgsvi.ConstantStep(p.Adadelta)},
			{"Adam", pgsvi.Adam(0, 0, 0), pgsvi.ConstantStep(p.Adam)},
		} {
			o := v.objective.Linearized()
			o.Init = o.Init.In(coords)
			all = append(all, Method{m.name, v.name, o,
				pgsvi.Solver{Divergence: m.d, StepSize: m.step, BatchSize: p.Batch}})
		}
	}
	return all, nil
}

// ScoreFunction returns the estimator of the published scripts.
func (p *Problem) ScoreFunction() pgsvi.SiteEstimator {
	return pgsvi.ScoreFunctionPlain(p.Samples)
}

// unscaled is f as the published scripts used it for the methods that they compare with PG-SVI. It
// does not scale the gradient of a mini-batch by N/len(batch), so the methods descend KL + (M/N)·f
// on average. Value returns the value of f.
type unscaled struct {
	pgsvi.Smooth
	terms int // N
}

func (u unscaled) Setup(q pgsvi.Dist) (n int, exact bool, err error) {
	n, exact, err = u.Smooth.Setup(q)
	if err == nil && n != u.terms {
		err = fmt.Errorf("%d terms, not %d", n, u.terms)
	}
	return n, exact, err
}

func (u unscaled) Grad(ctx context.Context, env *pgsvi.Env, dst []float64, q pgsvi.Dist,
	batch []int) (float64, error) {
	v, err := u.Smooth.Grad(ctx, env, dst, q, batch)
	if batch != nil {
		scale := float64(len(batch)) / float64(u.terms)
		for i := range dst {
			dst[i] *= scale
		}
		v *= scale
	}
	return v, err
}

// Rebuilt returns the distribution that the published curves of the gradient methods show instead
// of q. It is the Gaussian with the mean of q and V⁻¹ = K⁻¹ + Γ, where Γ is the diagonal matrix of
// −E_q[∂² log p(y_n|z_n)/∂z_n²].
func (p *Problem) Rebuilt(q *pgsvi.Gaussian) (*pgsvi.Gaussian, error) {
	mean, variance := q.Mean(nil), q.Var(nil)
	var chol mat.Cholesky
	var prec, cov mat.SymDense
	invert := func(dst, a *mat.SymDense) error {
		if !chol.Factorize(a) {
			return fmt.Errorf("%s: %w", p.Name, pgsvi.ErrNotPosDef)
		}
		return chol.InverseTo(dst)
	}
	if err := invert(&prec, p.Cov()); err != nil {
		return nil, err
	}
	for i, y := range p.Y {
		gamma := -pgsvi.ExpectLogProb(pgsvi.BernoulliLogit{}, y, mean[i], variance[i]).D2
		prec.SetSym(i, i, prec.At(i, i)+gamma)
	}
	if err := invert(&cov, &prec); err != nil {
		return nil, err
	}
	return pgsvi.NewGaussian(mean, &cov)
}
