// Command divergence brings its own divergence to the proximal-gradient step.
//
// A step minimises the linearised objective plus D(q‖q_k)/β, so D decides the
// path and not where it ends: every D with a positive definite second order
// around q_k has the same fixed points. Here D is Rényi's divergence, which the
// library does not know; it is one Go function and one field of Solver. The
// model is a Gaussian process classifier on 60 points of a line.
//
// Run it from anywhere in the repository; it draws divergence.png in the current directory:
//
//	go run ./examples/divergence
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"text/tabwriter"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// renyi returns Rényi's divergence of order alpha in (0, 1) between Gaussians,
//
//	D(q‖q0) = log ∫ q^α q0^(1−α) dz / (α − 1)
//	        = ½ α δᵀW⁻¹δ + (log|W| − (1−α) log|V| − α log|V0|) / (2(1−α)),
//
// with δ = m − m0 and W = (1−α)V + αV0. It tends to KL(q‖q0) as α → 1, and is α
// times KL to second order, so that steps are about as long as with KL and β/α.
func renyi(alpha float64) pgsvi.Divergence {
	return pgsvi.DivergenceFunc(func(q, q0 pgsvi.Dist) float64 {
		g, g0 := q.(*pgsvi.Gaussian), q0.(*pgsvi.Gaussian)
		v, v0 := g.Cov(), g0.Cov()
		var a, b, w mat.SymDense
		a.ScaleSym(1-alpha, v)
		b.ScaleSym(alpha, v0)
		w.AddSym(&a, &b)

		var chol, cholV, cholV0 mat.Cholesky
		if !chol.Factorize(&w) || !cholV.Factorize(v) || !cholV0.Factorize(v0) {
			return math.NaN() // the library reports it as an error
		}
		delta := g.Mean(nil)
		floats.Sub(delta, g0.Mean(nil))
		d := mat.NewVecDense(len(delta), delta)
		var x mat.VecDense
		if err := chol.SolveVecTo(&x, d); err != nil {
			return math.NaN()
		}
		logs := chol.LogDet() - (1-alpha)*cholV.LogDet() - alpha*cholV0.LogDet()
		return 0.5*alpha*mat.Dot(d, &x) + logs/(2*(1-alpha))
	})
}

func run(ctx context.Context, out string, seed uint64) error {
	gp, err := model(seed)
	if err != nil {
		return err
	}
	// What the paths should lead to: a fit without options.
	_, best, err := gp.Fit(ctx, nil)
	if err != nil {
		return err
	}

	divergences := []struct {
		name string
		d    pgsvi.Divergence
	}{
		{"KL", pgsvi.KL()}, // in closed form; the others take numeric steps
		{"ReverseKL", pgsvi.ReverseKL()},
		{"SymKL", pgsvi.SymKL()},
		{"Euclidean", pgsvi.Euclidean()}, // ignores the geometry of q, and is slow
		{"Renyi 1/2", renyi(0.5)},
	}
	paths := make([]path, 0, len(divergences))
	for _, c := range divergences {
		s := pgsvi.Solver{Divergence: c.d, StepSize: pgsvi.ConstantStep(1), BatchSize: gp.Len(),
			MaxIter: steps, Converger: pgsvi.Never()}
		_, res, err := gp.Fit(ctx, &s)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		p := path{name: c.name, negELBO: -res.ELBO}
		for _, it := range res.Trace {
			p.excess = append(p.excess, best.ELBO-it.ELBO)
		}
		paths = append(paths, p)
	}

	fmt.Printf("Optimum: -ELBO = %.9f. Excess in nats after each step with step size 1:\n\n", -best.ELBO)
	if err := printTable(os.Stdout, paths); err != nil {
		return err
	}

	// Without a step size the library chooses one: the divergence is the only option.
	s := pgsvi.Solver{Divergence: renyi(0.5)}
	_, res, err := gp.Fit(ctx, &s)
	if err != nil {
		return err
	}
	fmt.Printf("\nRenyi 1/2 without a step size: %v after %.0f passes, -ELBO = %.9f, gap %.0e\n",
		res.Status, res.Passes, -res.ELBO, res.Gap)

	// Is it a divergence in the sense that the convergence proof needs?
	alpha, err := pgsvi.CheckDivergence(renyi(0.5), gaussians(seed)...)
	if err != nil {
		return err
	}
	fmt.Printf("CheckDivergence: Renyi 1/2 passes, alpha = %.3g on a sample of Gaussians\n", alpha)
	if out == "" {
		return nil
	}
	if err := savePlot(out, paths); err != nil {
		return err
	}
	_, err = fmt.Println("\nwrote", out)
	return err
}

const steps = 15

// path is the excess of −ELBO after each step.
type path struct {
	name    string
	excess  []float64
	negELBO float64 // in the end
}

// model returns a classifier of points of a line.
func model(seed uint64) (*pgsvi.GP, error) {
	rng := rand.New(rand.NewPCG(seed, 0))
	x, y := mat.NewDense(60, 1, nil), make([]float64, 60)
	for i := range y {
		at := 10 * rng.Float64()
		x.Set(i, 0, at)
		y[i] = -1
		if rng.Float64() < 1/(1+math.Exp(-3*math.Sin(at))) {
			y[i] = 1
		}
	}
	// Divergences without a closed form look at dense covariances, and need one
	// that is not singular.
	return pgsvi.NewGP(x, y, pgsvi.Matern32{Scale: 2, Length: 1}, pgsvi.BernoulliLogit{}, &pgsvi.GPOptions{Jitter: 1e-6})
}

// gaussians returns some distributions over the plane to test a divergence on.
func gaussians(seed uint64) []pgsvi.Dist {
	rng := rand.New(rand.NewPCG(seed, 1))
	var qs []pgsvi.Dist
	for range 6 {
		a, b, c := rng.NormFloat64(), rng.NormFloat64(), rng.NormFloat64()
		cov := mat.NewSymDense(2, []float64{0.5 + a*a, a * b, a * b, 0.5 + b*b + c*c})
		q, err := pgsvi.NewGaussian([]float64{rng.NormFloat64(), rng.NormFloat64()}, cov)
		if err != nil {
			panic(err) // cov is positive definite by construction
		}
		qs = append(qs, q)
	}
	return qs
}

func printTable(w io.Writer, paths []path) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "step\t")
	for _, p := range paths {
		fmt.Fprintf(tw, "%s\t", p.name)
	}
	fmt.Fprintln(tw)
	for k := range steps {
		fmt.Fprintf(tw, "%d\t", k+1)
		for _, p := range paths {
			fmt.Fprintf(tw, "%.2e\t", p.excess[k])
		}
		fmt.Fprintln(tw)
	}
	fmt.Fprint(tw, "-ELBO\t")
	for _, p := range paths {
		fmt.Fprintf(tw, "%.6f\t", p.negELBO)
	}
	fmt.Fprintln(tw)
	return tw.Flush()
}

func main() {
	out := flag.String("out", "divergence.png", "PNG `file` to draw to; empty for none")
	seed := flag.Uint64("seed", 1, "seed of the data")
	flag.Parse()
	if err := run(context.Background(), *out, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "divergence:", err)
		os.Exit(1)
	}
}
