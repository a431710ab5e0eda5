package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/tables"
	"gonum.org/v1/gonum/mat"
)

// A mixed is a mixed model of generated rows: y by x, with effects of the levels of a factor.
type mixed struct {
	rows, levels int
	slope        bool // whether the slope of x differs between levels
	lik          pgsvi.Likelihood
	fits         []string // fits by groups.R
}

var mixedModels = []mixed{
	{10000, 1000, false, pgsvi.BernoulliLogit{}, []string{"glmer", "nAGQ = 25"}},
	{10000, 1000, true, pgsvi.BernoulliLogit{}, []string{"glmer"}},
	{100000, 10000, true, pgsvi.GaussianNoise{}, []string{"lmer"}},
}

// Standard deviations, correlation and noise of the generated effects.
const (
	interceptSD = 0.8
	slopeSD     = 0.4
	slopeCorr   = 0.5
)

// binary reports whether the responses are labels.
func (m *mixed) binary() bool { _, ok := m.lik.(pgsvi.BernoulliLogit); return ok }

// name returns the name of the data set.
func (m *mixed) name() string {
	kind, effects := "real", "intercepts"
	if m.binary() {
		kind = "logit"
	}
	if m.slope {
		effects = "intercepts and slopes"
	}
	return fmt.Sprintf("%s, %d rows, %s of %d levels", kind, m.rows, effects, m.levels)
}

// generate returns rows of x and the level, and the responses.
func (m *mixed) generate() (x *mat.Dense, y []float64) {
	rng := rand.New(rand.NewPCG(5, 7))
	effects := mat.NewDense(m.levels, 2, nil)
	for g := range m.levels {
		a, b := rng.NormFloat64(), rng.NormFloat64()
		effects.Set(g, 0, interceptSD*a)
		if m.slope {
			effects.Set(g, 1, slopeSD*(slopeCorr*a+math.Sqrt(1-slopeCorr*slopeCorr)*b))
		}
	}
	x, y = mat.NewDense(m.rows, 2, nil), make([]float64, m.rows)
	for i := range y {
		v, g := rng.NormFloat64(), rng.IntN(m.levels)
		x.SetRow(i, []float64{v, float64(g)})
		if y[i] = -0.5 + 0.7*v + effects.At(g, 0) + v*effects.At(g, 1); m.binary() {
			y[i] = label(rng, y[i])
		} else {
			y[i] += rng.NormFloat64()
		}
	}
	return x, y
}

// fit fits the model with the default stopping rule. It includes making the columns of the levels.
func (m *mixed) fit(ctx context.Context, x *mat.Dense, y []float64) (*pgsvi.GLMPosterior,
	*pgsvi.Result, error) {
	group := pgsvi.Group{Name: "g", First: 1, Levels: m.levels}
	if m.slope {
		group.Effects = []string{"(Intercept)", "x"}
	}
	q := max(1, len(group.Effects))
	columns := pgsvi.NewSparse(1 + q*m.levels)
	for i := range y {
		v, first := x.At(i, 0), 1+q*int(x.At(i, 1))
		ind, val := []int{0, first, first + 1}, []float64{v, 1, v}
		columns.Append(ind[:1+q], val[:1+q])
	}
	opt := &pgsvi.GLMOptions{Intercept: true, PriorSD: 10, Groups: []pgsvi.Group{group}}
	if !m.binary() {
		opt.Learn = &pgsvi.LearnOptions{Fixed: []string{"GLM.PriorSD"}}
	}
	glm, err := pgsvi.NewGLM(columns, y, m.lik, opt)
	if err != nil {
		return nil, nil, err
	}
	return glm.Fit(ctx, nil)
}

// groups compares mixed models with lme4. Each program stops by its default rule.
func (o *options) groups(ctx context.Context) (all []row, err error) {
	for _, m := range mixedModels {
		if m.rows = min(m.rows, o.rows); m.levels > m.rows/10 {
			m.levels = m.rows / 10
		}
		x, y := m.generate()
		s := &split{name: m.name(), x: x, y: y, train: filepath.Join(o.temp, "groups.train")}
		if err := writeRows(s.train, x, y); err != nil {
			return nil, err
		}
		rows, err := inTurn(func() ([]row, error) { return o.groupsRows(ctx, &m, s) })
		if err != nil {
			return nil, err
		}
		relate(rows, rows[0].label())
		all = append(all, rows...)
	}
	return all, nil
}

// groupsRows fits a model once by each program.
func (o *options) groupsRows(ctx context.Context, m *mixed, s *split) ([]row, error) {
	var post *pgsvi.GLMPosterior
	ours, err := o.fit(s, "GLM", "groups", "nil Solver",
		func() (_ predictor, res *pgsvi.Result, err error) {
			post, res, err = m.fit(ctx, s.x.(*mat.Dense), s.y)
			return post, res, err
		})
	if err != nil {
		return nil, err
	}
	var sd, corr []string
	for _, g := range post.Groups() {
		for _, e := range g.Effects {
			sd = append(sd, fmt.Sprintf("%.4f", e.SD))
		}
		for _, c := range g.Corr {
			corr = append(corr, fmt.Sprintf("%.4f", c.Value))
		}
	}
	ours.note = strings.Join(append(sd, corr...), ", ")
	theirs, err := o.script(ctx, s.name, "groups.R", s.train, m.slope, strings.Join(m.fits, ";"))
	return append([]row{ours}, theirs...), err
}

// groupsTable returns the table of part groups.
func groupsTable(rows []row) string {
	var lines [][]string
	before := ""
	for _, r := range rows {
		work := r.work
		if work == before {
			work = ""
		}
		before = r.work
		lines = append(lines, []string{work, r.label(), number("%.3f", r.seconds),
			number("%.1f", r.ratio), r.note})
	}
	return tables.Markdown([]string{"data", "", "seconds", "ratio",
		"sd of intercepts, of slopes, correlation"}, lines)
}

// lme4 returns an error if lme4 is missing.
func (o *options) lme4(ctx context.Context) error {
	return o.need(ctx, "lme4 (Debian: r-cran-lme4)", o.rscript, "-e",
		"cat('lme4', format(packageVersion('lme4')))")
}
