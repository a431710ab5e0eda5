package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/paper"
	"github.com/pgsvi/pgsvi/bench/tables"
)

// A proof is a line of theory.csv: what a Certificate reports of a run of PG.
type proof struct {
	dataset, coordinates, gradient string
	beta                           float64
	batch, steps                   int
	alpha, l, maxStep              float64
	c0                             float64 // best ELBO − first ELBO
	gradMap2                       float64 // the smallest ‖G_k‖², or the mean if steps are noisy
	bound, floor                   float64
	violations, tooLong            int
	sigma2, unbiasedZ, negELBO     float64
}

func (*proof) header() []string {
	return []string{"dataset", "coordinates", "gradient", "beta", "batch", "steps", "alpha", "L",
		"max_step", "C0", "grad_map2", "bound", "floor", "violations", "too_long", "sigma2",
		"unbiased_z", "neg_elbo"}
}

func (p *proof) fields() []any {
	return []any{&p.dataset, &p.coordinates, &p.gradient, &p.beta, &p.batch, &p.steps, &p.alpha,
		&p.l, &p.maxStep, &p.c0, &p.gradMap2, &p.bound, &p.floor, &p.violations, &p.tooLong,
		&p.sigma2, &p.unbiasedZ, &p.negELBO}
}

// certify runs PG and PG-SVI under a Certificate, and writes the results to file. The coordinates
// are mean parameters in the main text of the paper, and (m, V) in its appendix. One run of each
// data set has half the longest step size that another run allows (Proposition 1).
func certify(ctx context.Context, file string, problems []*paper.Problem) error {
	var all []proof
	for _, p := range problems {
		published := p.BetaN / float64(len(p.Y))
		var limit float64
		for _, c := range []struct {
			gp     *pgsvi.GP
			coords pgsvi.Coordinates
			beta   float64 // 0 means half of limit
			batch  int
		}{
			{p.GP, pgsvi.MeanParams, 0.1, 0},
			{p.GP, pgsvi.MeanParams, 0, 0},
			{p.GP, pgsvi.MeanParams, 1, 0},
			{p.GP, pgsvi.MeanCov, 0.001, 0},
			{p.GP, pgsvi.MeanCov, 0.1, 0},
			{p.GP, pgsvi.MeanParams, published, p.Batch},
			{p.Noisy, pgsvi.MeanParams, published, p.Batch},
		} {
			r := proof{dataset: p.Name, coordinates: c.coords.String(), gradient: "exact",
				beta: c.beta, batch: c.batch}
			if c.batch > 0 {
				r.gradient = "mini-batch"
			}
			if c.gp == p.Noisy {
				r.gradient = "mini-batch, draws"
			}
			if c.beta == 0 {
				r.beta = limit / 2
			}
			if err := r.prove(ctx, p, c.gp, c.coords); err != nil {
				return fmt.Errorf("%s, β = %v: %w", p.Name, r.beta, err)
			}
			if limit == 0 {
				limit = r.maxStep
			}
			all = append(all, r)
		}
	}
	return writeTable(file, all)
}

// proofSteps is the number of steps of a run.
const proofSteps = 20

// prove runs some steps of gp under a Certificate. Batches are drawn independently (A3).
func (r *proof) prove(ctx context.Context, p *paper.Problem, gp *pgsvi.GP,
	coords pgsvi.Coordinates) error {
	_, best, err := p.GP.Fit(ctx, nil)
	if err != nil {
		return err
	}
	o, err := gp.Objective()
	if err != nil {
		return err
	}
	o.Init = o.Init.In(coords)
	c := pgsvi.Certificate{Optimum: best.ELBO + best.GapBound}
	s := pgsvi.Solver{StepSize: pgsvi.ConstantStep(r.beta), BatchSize: r.batch, MaxIter: proofSteps,
		MaxPasses: proofSteps + 1, EvalEvery: -1, Record: c.Record, Src: rand.NewPCG(1, 0)}
	if r.batch > 0 {
		s.Sampler = pgsvi.WithReplacement()
	}
	_, res, err := o.Fit(ctx, &s)
	if err != nil {
		return err
	}
	r.steps, r.alpha, r.l, r.maxStep, r.c0 = c.Steps, c.Alpha, c.L, c.MaxStep, c.C0
	r.gradMap2, r.bound, r.floor = c.MinGradMap2, c.Bound, c.Floor
	if r.batch > 0 {
		r.gradMap2 = c.MeanGradMap2
	}
	r.violations, r.tooLong, r.sigma2 = c.Violations, c.TooLong, c.Sigma2
	r.unbiasedZ, r.negELBO = c.UnbiasedZ, -res.ELBO
	return c.Err()
}

func theoryTable(proofs []proof) string {
	var rows [][]string
	for _, p := range proofs {
		rows = append(rows, []string{p.dataset, p.coordinates, p.gradient, fmt.Sprintf("%.2g", p.beta),
			fmt.Sprintf("%.2g", p.maxStep), fmt.Sprintf("%d of %d", p.tooLong, p.steps),
			fmt.Sprint(p.violations), fmt.Sprintf("%.3g", p.gradMap2),
			fmt.Sprintf("%.3g", p.bound), fmt.Sprintf("%.1f", p.negELBO)})
	}
	return tables.Markdown([]string{"data", "coordinates", "gradient", "β", "2α/L", "steps too long",
		"violations", "‖G‖²", "bound", "−ELBO at the end"}, rows)
}
