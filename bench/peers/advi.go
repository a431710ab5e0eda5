package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/paper"
	"github.com/pgsvi/pgsvi/bench/tables"
	"gonum.org/v1/gonum/mat"
)

// advi compares Gaussian approximations of logistic regression with ADVI in rstanarm. Both fit the
// same model, so they differ only by their distance from the optimum and by the family.
func (o *options) advi(ctx context.Context) ([]row, error) {
	splits, err := o.splits()
	if err != nil {
		return nil, err
	}
	var all []row
	for _, s := range splits {
		rows, err := o.adviRows(ctx, s, o.repeats)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		all = append(all, rows...)
	}
	s, err := o.readA9a()
	if o.leftOut("a9a", err) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	if err := o.write(s); err != nil {
		return nil, err
	}
	rows, err := o.adviRows(ctx, s, 1) // one seed, because each takes minutes
	return append(all, rows...), err
}

// adviRows returns fits of this library, and fits of ADVI with several seeds. It compares their
// posteriors with the full posterior.
func (o *options) adviRows(ctx context.Context, s *split, seeds int) ([]row, error) {
	ours, post, err := o.ownRows(ctx, s)
	if err != nil {
		return nil, err
	}
	moments := filepath.Join(o.temp, s.name)
	rows, err := o.script(ctx, s.name, "advi.R", s.train, s.test, s.cols(), seeds, moments)
	if err != nil {
		return nil, err
	}
	g, err := pgsvi.NewGLM(s.x, s.y, pgsvi.BernoulliLogit{}, nil)
	if err != nil {
		return nil, err
	}
	objective, err := g.Objective()
	if err != nil {
		return nil, err
	}
	for i := range rows {
		if err := compare(&rows[i], post, objective, moments); err != nil {
			return nil, err
		}
	}
	rows = append(ours, rows...)
	relate(rows, ours[0].label())
	return rows, nil
}

// ownRows returns fits of this library with either covariance, and the full posterior.
func (o *options) ownRows(ctx context.Context, s *split) ([]row, *pgsvi.GLMPosterior, error) {
	var post *pgsvi.GLMPosterior
	full, err := o.fit(s, "GLM", fullVariant, fullName,
		func() (_ predictor, res *pgsvi.Result, err error) {
			post, res, err = glmFit(ctx, s, pgsvi.BernoulliLogit{}, nil, nil)
			return post, res, err
		})
	if err != nil {
		return nil, nil, err
	}
	diagonal, err := o.fit(s, "GLM", "diagonal", "diagonal posterior, nil Solver",
		func() (predictor, *pgsvi.Result, error) {
			return glmFit(ctx, s, pgsvi.BernoulliLogit{},
				&pgsvi.GLMOptions{Covariance: pgsvi.DiagonalCovariance}, nil)
		})
	return []row{full, diagonal}, post, err
}

// compare sets the −ELBO of r and the distance of its moments from post. It reads the moments from
// the file of the script. Resampled draws and failed runs have no such file.
func compare(r *row, post *pgsvi.GLMPosterior, objective pgsvi.Objective[*pgsvi.Gaussian],
	moments string) error {
	if strings.HasSuffix(r.variant, "resampled") || failed(*r) {
		return nil
	}
	d := post.Dim()
	v, err := readFloats(fmt.Sprintf("%s-%s-%d", moments, r.variant, r.seed), d+d*d)
	if err != nil {
		return err
	}
	q, err := pgsvi.NewGaussian(v[:d], mat.NewSymDense(d, v[d:]))
	if err != nil {
		return err
	}
	if r.negELBO, err = negELBO(objective, q); err != nil {
		return err
	}
	mean, sd := post.Mean(nil), post.SD(nil)
	meanOff, sdOff := make([]float64, d), make([]float64, d)
	for i, variance := range q.Var(nil) {
		meanOff[i] = math.Abs(v[i]-mean[i]) / sd[i]
		sdOff[i] = math.Abs(math.Sqrt(variance)-sd[i]) / sd[i]
	}
	r.more["mean_worst"], r.more["mean_median"] = slices.Max(meanOff), median(meanOff)
	r.more["sd_worst"], r.more["sd_median"] = slices.Max(sdOff), median(sdOff)
	return nil
}

// negELBO returns the −ELBO of q, with exact expectations.
func negELBO(objective pgsvi.Objective[*pgsvi.Gaussian], q *pgsvi.Gaussian) (float64, error) {
	objective.Init = q
	st, err := objective.NewStepper(context.Background(), nil, nil)
	if err != nil {
		return 0, err
	}
	elbo, err := paper.ELBO(st)
	return -elbo, err
}

// adviTable returns the table of part advi: medians over the seeds that did not fail.
func adviTable(rows []row) string {
	header := []string{"data", "", "seconds", "ratio", "−ELBO above", "test bits", "their range",
		"means off, worst (median)",
		"sds off, worst (median)", "Pareto k", "distinct draws", "converged"}
	var lines [][]string
	for _, set := range distinct(rows, func(r row) string { return r.work }) {
		of := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.work != set })
		for _, label := range distinct(of, row.label) {
			group := slices.DeleteFunc(slices.Clone(of),
				func(r row) bool { return r.label() != label })
			lines = append(lines, append([]string{set, label}, cells(group, of[0])...))
		}
	}
	return tables.Markdown(header, lines)
}

// failed reports whether a run ended without a posterior.
func failed(r row) bool { return math.IsNaN(r.bits) }

// cells returns the cells of the fits by one program, compared with the full posterior of this
// library.
func cells(group []row, ours row) []string {
	runs := len(group)
	group = slices.DeleteFunc(group, failed)
	if len(group) == 0 {
		return append(make([]string, 9), fmt.Sprintf("0, failed %d, of %d", runs, runs))
	}
	bits := values(group, func(r row) float64 { return r.bits })
	seconds := median(values(group, func(r row) float64 { return r.seconds }))
	above := median(values(group, func(r row) float64 { return r.negELBO - ours.negELBO }))
	more := func(format, name string) string {
		return number(format, median(values(group, func(r row) float64 { return r.known(name) })))
	}
	var ended string
	if _, ok := group[0].more["converged"]; ok {
		n := 0.0
		for _, r := range group {
			n += r.more["converged"]
		}
		ended = fmt.Sprintf("%.0f, failed %d, of %d", n, runs-len(group), runs)
	}
	return []string{number("%.4f", seconds),
		number("%.1f", median(values(group, func(r row) float64 { return r.ratio }))),
		number("%.3g", above),
		number("%.4f", median(bits)), fmt.Sprintf("%.4f–%.4f", slices.Min(bits), slices.Max(bits)),
		more("%.2f", "mean_worst") + more(" (%.2f)", "mean_median"),
		more("%.2f", "sd_worst") + more(" (%.2f)", "sd_median"),
		more("%.2f", "pareto_k"), more("%.0f", "distinct"), ended}
}

// values returns f of each row.
func values(rows []row, f func(row) float64) []float64 {
	v := make([]float64, len(rows))
	for i, r := range rows {
		v[i] = f(r)
	}
	return v
}
