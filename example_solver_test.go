package pgsvi_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"gonum.org/v1/gonum/mat"

	"github.com/pgsvi/pgsvi"
)

// A run can end for the first of several reasons. Result.Status tells which one it was.
func ExampleAnyOf() {
	s := pgsvi.Solver{Converger: pgsvi.AnyOf(
		pgsvi.GapBelow(0.01, 0),        // at most 0.01 nats below the best ELBO
		pgsvi.Deadline(10*time.Minute), // or ten minutes
		pgsvi.ELBOChange(1e-12, 5)),    // or no change over five evaluations
	}
	_, res, err := doseModel().Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Status, res.Gap < 0.01)
	// Output:
	// converged true
}

var _ pgsvi.Converger = &patience{}

// patience ends a run when the ELBO has not reached a new best value for some evaluations.
type patience struct {
	most, waited int
	best         float64
}

// Init implements Converger.
func (p *patience) Init() { p.waited, p.best = 0, math.Inf(-1) }

// Converged implements Converger.
func (p *patience) Converged(it pgsvi.Iteration) pgsvi.Status {
	if it.ELBO > p.best+1e-9 {
		p.best, p.waited = it.ELBO, 0
		return pgsvi.NotTerminated
	}
	if p.waited++; p.waited < p.most {
		return pgsvi.NotTerminated
	}
	return pgsvi.Converged
}

// A run that stops after one pass can continue from its file.
func ExampleCheckpoint() {
	x := mat.NewDense(200, 1, nil)
	y := make([]float64, 200)
	for i := range y {
		x.Set(i, 0, float64(i%21-10)/10)
		y[i] = float64(i * i % 5)
	}
	glm, err := pgsvi.NewGLM(x, y, pgsvi.Poisson{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pgsvi")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "run")
	ctx := context.Background()
	first := &pgsvi.Solver{MaxPasses: 1, BatchSize: 20, Checkpoint: pgsvi.Checkpoint{Path: path}}
	if _, err := first.Run(ctx, glm); err != nil {
		log.Fatal(err)
	}

	f, err := os.Open(path) // in practice, in another process
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	rest := &pgsvi.Solver{MaxPasses: 20, BatchSize: 20}
	run, err := rest.LoadResult(ctx, f, glm)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("passes in the file:", run.Passes)
	if run, err = rest.Resume(ctx, run); err != nil {
		log.Fatal(err)
	}
	whole, err := rest.Run(ctx, glm)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("same ELBO as one run:", run.ELBO == whole.ELBO)
	// Output:
	// passes in the file: 1
	// same ELBO as one run: true
}

// A stopping rule of your own implements Converger. The default rule can run next to it.
func ExampleDefaultConverger() {
	s := pgsvi.Solver{Converger: pgsvi.AnyOf(&patience{most: 3}, pgsvi.DefaultConverger())}
	_, res, err := doseModel().Fit(context.Background(), &s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Status)
	// Output:
	// converged
}

// The samplers differ in how they cut the terms into batches.
func ExampleSampler() {
	for _, s := range []struct {
		name string
		pgsvi.Sampler
	}{
		{"in order", pgsvi.InOrder()},
		{"new order in each pass", pgsvi.Reshuffle()},
		{"one order for all passes", pgsvi.ShuffleOnce()},
		{"with replacement", pgsvi.WithReplacement()},
	} {
		seen := make(map[int]int)
		next, stop := iter.Pull(s.Batches(6, 2, rand.New(rand.NewPCG(1, 2))))
		for range 3 { // one pass over six terms
			batch, _ := next()
			for _, n := range batch {
				seen[n]++
			}
		}
		stop()
		fmt.Printf("%s: %d of 6 terms\n", s.name, len(seen))
	}
	// Output:
	// in order: 6 of 6 terms
	// new order in each pass: 6 of 6 terms
	// one order for all passes: 6 of 6 terms
	// with replacement: 4 of 6 terms
}

// Record receives every iteration of a run.
func ExampleSolver_record() {
	var trace []float64
	s := &pgsvi.Solver{Record: func(it pgsvi.Iteration) {
		if !math.IsNaN(it.ELBO) { // an iteration that was not evaluated has no ELBO
			trace = append(trace, it.ELBO)
		}
	}}
	if _, _, err := doseModel().Fit(context.Background(), s); err != nil {
		log.Fatal(err)
	}
	rises := true
	for i := 1; i < len(trace); i++ {
		rises = rises && trace[i] >= trace[i-1]
	}
	fmt.Println(len(trace) > 1, rises)
	// Output:
	// true true
}

// A Learner is a Model for the Solver. Use it instead of Learn to record, stop or resume the search
// for hyperparameters.
func ExampleLearner() {
	x := mat.NewDense(8, 1, []float64{0, 1, 2, 3, 4, 5, 6, 7})
	y := []float64{0.1, 0.9, 0.8, 0.2, -0.8, -0.9, -0.3, 0.7}
	gp, err := pgsvi.NewGP(x, y, pgsvi.SquaredExp{}, pgsvi.GaussianNoise{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	var l pgsvi.Learner[*pgsvi.GP, *pgsvi.GPPosterior]
	if l, err = gp.Learner(nil); err != nil {
		log.Fatal(err)
	}
	res, err := (&pgsvi.Solver{}).Run(ctx, l)
	if err != nil {
		log.Fatal(err)
	}
	_, _, learned, err := l.Learned(ctx, nil, res)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range learned.Params {
		fmt.Println(p.Name)
	}
	// Output:
	// SquaredExp.Scale
	// SquaredExp.Length
	// GaussianNoise.Var
}

// The errors of a user's function name the term and contain its panic.
func ExamplePanicError() {
	ll := pgsvi.LogLik{N: 3, Dim: 1, LogProb: func(n int, z []float64) float64 {
		if n == 2 {
			panic("no such observation")
		}
		return -z[0] * z[0]
	}}
	m := pgsvi.Objective[*pgsvi.Gaussian]{
		F:    pgsvi.Expect(ll, pgsvi.ScoreFunction(10)),
		H:    pgsvi.KLTo(pgsvi.NewIsotropic(1, 1)),
		Init: pgsvi.NewIsotropic(1, 1),
	}
	_, _, err := m.Fit(context.Background(), &pgsvi.Solver{Recover: true})
	var p *pgsvi.PanicError
	if errors.As(err, &p) {
		fmt.Println(p.Where, "panics:", p.Value)
	}
	// Output:
	// term 2 panics: no such observation
}
