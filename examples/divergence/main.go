// How do I add my own divergence, and what does it change?
//
// Data: generated labels of 60 points on a line, for a Gaussian process classifier.
// A step minimizes the linearized objective plus D(q, q_k)/β, so D changes the path to the optimum
// but not the optimum. The program compares KL, reverse KL, symmetric KL, the Euclidean distance
// and Rényi's divergence of order 1/2, which is not in the library. Their steps have equal length
// (except for the Euclidean distance): Rényi's divergence is half of KL to second order, so it uses
// half the β. The program prints and draws the distance from the optimum after each step.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/plot"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

var (
	out   = flag.String("out", "pictures/divergence.png", "picture to write")
	steps = flag.Int("steps", 15, "number of steps")
	seed  = flag.Uint64("seed", 1, "seed of the data")
)

// renyi returns Rényi's divergence of order alpha in (0, 1) between Gaussians,
//
//	D(q, q0) = log ∫ q^α q0^(1−α) dz / (α − 1)
//	         = ½ α δᵀW⁻¹δ + (log|W| − (1−α) log|V| − α log|V0|) / (2(1−α)),
//
// with δ = m − m0 and W = (1−α)V + αV0. It is α KL(q, q0) to second order.
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

// model returns a classifier of points on a line.
func model() (*pgsvi.GP, error) {
	rng := rand.New(rand.NewPCG(*seed, 0))
	x, y := mat.NewDense(60, 1, nil), make([]float64, 60)
	for i := range y {
		at := 10 * rng.Float64()
		x.Set(i, 0, at)
		y[i] = -1
		if rng.Float64() < 1/(1+math.Exp(-3*math.Sin(at))) {
			y[i] = 1
		}
	}
	// The covariance must not be singular, because Rényi's divergence factorizes it.
	kernel, opt := pgsvi.Matern32{Scale: 2, Length: 1}, &pgsvi.GPOptions{Jitter: 1e-6}
	return pgsvi.NewGP(x, y, kernel, pgsvi.BernoulliLogit{}, opt)
}

// A method is a divergence with the β for which its steps are as long as KL steps with β = 1.
type method struct {
	name string
	d    pgsvi.Divergence
	beta float64
}

func main() {
	flag.Parse()
	ctx := context.Background()
	gp, err := model()
	check(err)
	_, best, err := gp.Fit(ctx, nil) // the optimum of all methods
	check(err)
	methods := []method{
		{"KL", pgsvi.KL(), 1}, // the steps of KL have a closed form, and the others are numeric
		{"reverse KL", pgsvi.ReverseKL(), 1},
		{"symmetric KL", pgsvi.SymKL(), 1},
		{"Rényi 1/2", renyi(0.5), 1},
		{"Euclidean", pgsvi.Euclidean(), 1}, // no step size suits all directions
	}
	// For two Gaussians that are close to each other, D/KL is the ratio of the step lengths.
	one, two := pgsvi.NewIsotropic(1, 1), pgsvi.NewIsotropic(1, 1.0001)
	for i, m := range methods {
		if m.name != "Euclidean" {
			methods[i].beta = m.d.Value(two, one) / pgsvi.KL().Value(two, one)
		}
	}
	fmt.Printf("nats below the optimum, an ELBO of %.9f, after each step:\n\nstep", best.ELBO)
	var runs []plot.Run
	for _, m := range methods {
		s := pgsvi.Solver{Divergence: m.d, StepSize: pgsvi.ConstantStep(m.beta),
			BatchSize: gp.Len(), MaxIter: *steps, Converger: pgsvi.Never()}
		_, res, err := gp.Fit(ctx, &s)
		check(err)
		name := fmt.Sprintf("%s, β = %.3g", m.name, m.beta)
		fmt.Printf("  %s", name)
		runs = append(runs, plot.Run{Name: name, Trace: res.Trace})
	}
	for k := range *steps {
		fmt.Printf("\n%4d", k+1)
		for _, r := range runs {
			fmt.Printf("  %*.2e", len([]rune(r.Name)), best.ELBO-r.Trace[k].ELBO)
		}
	}

	// Without a step size, the library chooses one for this divergence.
	_, res, err := gp.Fit(ctx, &pgsvi.Solver{Divergence: renyi(0.5)})
	check(err)
	fmt.Printf("\n\nRényi 1/2 without a step size: %v\n", res)
	alpha, err := pgsvi.CheckDivergence(renyi(0.5),
		pgsvi.NewIsotropic(2, 1), pgsvi.NewIsotropic(2, 3), pgsvi.NewIsotropic(2, 0.5))
	check(err)
	fmt.Printf("CheckDivergence: Rényi 1/2 passes, α = %.3g on a sample of Gaussians\n", alpha)
	fmt.Println("wrote", *out)
	labels := plot.Labels{Title: "One path per divergence (generated data)", X: "steps"}
	check(plot.Save(*out, plot.Trace(labels, best.ELBO, runs...), 0))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
