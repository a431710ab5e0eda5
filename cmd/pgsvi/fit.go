package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/cmd/pgsvi/internal/cli"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/formula"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// input holds the flags of the verbs that read a table.
type input struct {
	formula, columns *string
	format           *string
	standardize      *bool
	positive         *string
	test             *float64 // share of the rows to hold out; nil for check
}

// testFlag defines the flag -test.
func (in *input) testFlag(f *flag.FlagSet) {
	in.test = cli.ShareFlag(f, "test", 0,
		"hold out a random `share` of the rows and score the predictions for them")
}

func inputFlags(f *flag.FlagSet) (in input) {
	in.formula = f.String("formula", "", "model `formula`, such as 'y ~ a + s(b) + (1 | g)'; "+
		". stands for all\nother columns; the outcome is y, log(y), successes / trials or\n"+
		"survival(time, event)")
	in.columns = f.String("columns", "", "`file` of decisions about columns, written by check")
	in.positive = f.String("positive", "", "`label` whose probability is predicted, if the "+
		"outcome has two labels")
	in.format = cli.FormatFlag(f)
	in.standardize = f.Bool("standardize", true, "standardize columns before applying the prior")
	return in
}

// read reads a table and, if -columns is set, the file of decisions about its columns.
func (in input) read(c *command, path string) (t *data.Table, columns []data.Column, err error) {
	format, err := cli.FormatOf(data.Format{}, *in.format)
	if err != nil {
		return nil, nil, err
	}
	if t, err = c.read(format, path); err != nil {
		return nil, nil, err
	}
	if !*in.standardize {
		columns = append(columns, data.Raw())
	}
	if *in.columns == "" {
		return t, columns, nil
	}
	file, err := os.Open(*in.columns)
	if err != nil {
		return t, columns, err
	}
	defer file.Close()
	declared, err := data.ReadColumns(file)
	if err != nil {
		return t, columns, fmt.Errorf("%s: %w", *in.columns, sentinel.Bare(err))
	}
	return t, append(columns, declared...), nil
}

const lastIsOutcome = "the last column is the outcome; set -formula to choose another"

// model returns the model of a table and prints how it reads the columns. A nil lik means the
// default likelihood of the outcome. If -formula is not set, all other columns predict the last
// column.
func (in input) model(
	c *command, t *data.Table, columns []data.Column, lik pgsvi.Likelihood) (*data.Model, error) {
	all := t.Columns()
	f := &formula.Formula{Outcome: all[len(all)-1], Terms: []formula.Term{formula.Rest{}}}
	if *in.formula != "" {
		var err error
		if f, err = formula.Parse(*in.formula); err != nil {
			return nil, err
		}
	}
	declared := func(c data.Column) bool { _, outcome := c.(data.OutcomeColumn); return outcome }
	if !slices.ContainsFunc(columns, declared) {
		columns = append(columns, cli.OutcomeFor(lik, f.Outcome, *in.positive)...)
	} else if *in.positive != "" {
		return nil, fmt.Errorf("-positive and the Outcome in the -columns file conflict; "+
			"remove one of them: %w", cli.ErrUsage)
	}
	m, err := t.ModelOf(f, columns...)
	if err == nil {
		m, err = m.For(lik)
	}
	if err != nil {
		return nil, cli.ExplainOutcome(err, lik, f.Outcome)
	}
	fmt.Fprint(c.stdout, m)
	if len(m.Names) == 0 && slices.ContainsFunc(f.Terms, isRest) {
		hint := ""
		if len(all) == 1 {
			hint = "; if the table has more than one column, set -format separator=…"
		}
		fmt.Fprintln(c.stderr, "pgsvi: warning: no column is left for the . of the formula"+hint)
	}
	if *in.formula == "" {
		fmt.Fprintln(c.stdout, lastIsOutcome)
	}
	return m, nil
}

// isRest reports whether t is the dot, which stands for all other columns.
func isRest(t formula.Term) bool {
	_, ok := t.(formula.Rest)
	return ok
}

// fitted reads the table and returns the model to fit and the named likelihood. If -test is set,
// held holds the rows to hold out; otherwise held is nil.
func (in input) fitted(c *command, path, likelihood string) (
	m *data.Model, lik pgsvi.Likelihood, held *data.Table, err error) {
	if lik, err = cli.Choose("likelihood", cli.Likelihoods, likelihood); err != nil {
		return nil, nil, nil, err
	}
	t, columns, err := in.read(c, path)
	if err == nil && *in.test != 0 {
		t, held, err = t.Split(*in.test, 1)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	m, err = in.model(c, t, columns, lik)
	return m, lik, held, err
}

// foresee returns suggestions for the given decisions, and for decisions that become necessary
// after the first choice of each. For example, a column may be constant in the rows that are kept.
func (in input) foresee(c *command, t *data.Table, columns []data.Column, lik pgsvi.Likelihood,
	decisions []data.Decision) *data.Suggestions {
	s, twice := &data.Suggestions{Decisions: decisions}, map[string]bool{}
	quiet := *c
	quiet.stdout, quiet.stderr = io.Discard, io.Discard
	for {
		_, err := in.model(&quiet, t, append(slices.Clone(columns), s.Columns()...), lik)
		var more *data.DecisionError
		if !errors.As(err, &more) {
			return s
		}
		changed := false
		for _, d := range more.Decisions {
			i := slices.IndexFunc(s.Decisions,
				func(o data.Decision) bool { return o.Column == d.Column })
			switch {
			case len(d.Choices) == 0 || twice[d.Column]:
				continue
			case i < 0:
				s.Decisions = append(s.Decisions, d)
			default: // the first choice does not suffice
				twice[d.Column] = true
				own := &s.Decisions[i]
				own.Problem += "; then " + d.Problem
				own.Choices = slices.Concat(d.Choices, own.Choices)
			}
			changed = true
		}
		if !changed {
			return s
		}
	}
}

func check(f *flag.FlagSet) func(*command, []string) error {
	in := inputFlags(f)
	likelihood := f.String("likelihood", "", "`name`, as for fit (default: depends on the outcome)")
	return func(c *command, args []string) error {
		t, columns, err := in.read(c, args[0])
		write := *in.columns != "" && errors.Is(err, os.ErrNotExist) && t != nil
		if err != nil && !write {
			return err
		}
		lik, err := cli.Choose("likelihood", cli.Likelihoods, *likelihood)
		if err != nil {
			return err
		}
		_, err = in.model(c, t, columns, lik)
		var undecided *data.DecisionError
		if !errors.As(err, &undecided) {
			return err
		}
		fmt.Fprintln(c.stdout, cli.Flags(t.String()))
		if *in.formula == "" {
			fmt.Fprintln(c.stdout, lastIsOutcome)
		}
		s := in.foresee(c, t, columns, lik, undecided.Decisions)
		if len(s.Columns()) == 0 {
			fmt.Fprintf(c.stdout, "no proposal helps; change the table or the formula:\n\n%v\n", s)
			return errUndecided
		}
		fmt.Fprintf(c.stdout, "proposals to review and edit:\n\n%v\n", s)
		if !write {
			fmt.Fprintln(c.stdout,
				"set -columns FILE to write them to a new file, which check, fit and gp then read")
			return errUndecided
		}
		if err := c.save(*in.columns, func(w io.Writer) error {
			_, err := io.WriteString(w, s.String())
			return err
		}); err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "wrote the proposals to %s; -columns reads them\n", *in.columns)
		return errUndecided
	}
}

func fit(f *flag.FlagSet) func(*command, []string) error {
	in, l := inputFlags(f), cli.LearningFlags(f)
	in.testFlag(f)
	likelihood := f.String("likelihood", "", "`name` (default: depends on the outcome)\n"+
		"  labels and classes   logit, probit, softmax, ordinal (ordered levels)\n"+
		"  counts               poisson, negbinomial\n"+
		"  with many zeros      zip, zinb, hurdle, hurdlenb\n"+
		"  successes / trials   logit, probit, betabinomial\n"+
		"  real numbers         gaussian, studentt, laplace\n"+
		"  positive, in (0, 1)  gamma, exponential, weibull, lognormal; beta")
	priorSD := f.Float64("prior-sd", 0,
		"prior `sd` of the effects (default: learned, or 1 without -learn)")
	interceptSD := f.Float64("intercept-sd", 0,
		"prior `sd` of the intercept (default 10, or 10 times the scale of a real y)")
	effects := f.String("effects", "", "CSV `file` for the effects and ranks of levels; - prints them")
	looGroups := f.Bool("loo-groups", false, "leave out each level of a group and predict its rows")
	out := f.String("o", "", "`file` to write the model to")
	return func(c *command, args []string) error {
		start := time.Now()
		if *in.formula == "" {
			return fmt.Errorf("the formula is missing; -formula 'y ~ .' uses all columns: %w",
				cli.ErrUsage)
		}
		if err := errors.Join(l.Check(), cli.AtLeast0("prior-sd", *priorSD),
			cli.AtLeast0("intercept-sd", *interceptSD)); err != nil {
			return err
		}
		m, lik, held, err := in.fitted(c, args[0], *likelihood)
		if err != nil {
			return err
		}
		opt := &pgsvi.GLMOptions{PriorSD: *priorSD, InterceptSD: *interceptSD, Learn: l.Options()}
		if lik, opt, err = m.Options(lik, opt); err != nil {
			return err
		}
		if !l.Learns() {
			opt.Learn = nil
		}
		glm, err := pgsvi.NewGLM(m.X, m.Y, lik, opt)
		if err != nil {
			return m.Locate(err)
		}
		s, done := c.progress(*l.Goal)
		defer done()
		var post *pgsvi.GLMPosterior
		var res *pgsvi.Result
		var learned *pgsvi.Learned
		if opt.Learn == nil {
			post, res, err = glm.Fit(c.ctx, s)
		} else if glm, post, learned, err = glm.Learn(c.ctx, s, opt.Learn); err == nil {
			res = cmp.Or(learned.Fit, learned.Search) // Fit is nil if the search ended early
		}
		if err != nil {
			return err
		}
		done()
		fmt.Fprint(c.stdout, m.Summary(post))
		line := strings.Replace(report(m, res), " ", fmt.Sprintf(" weights=%d ", len(post.Names())),
			1)
		checks, err := cli.Checks(c.ctx, c.stderr, m, glm, post, res)
		if err != nil {
			return err
		}
		line += checks
		if *looGroups {
			parts, err := cli.LOOGroups(c.ctx, c.stdout, glm, post)
			if err != nil {
				return err
			}
			line += parts
		}
		if err := c.effects(*effects, m, post); err != nil {
			return err
		}
		return finish(c, m, held, post, *out, line, res, learned, start)
	}
}

// effects writes the effects of the levels of groups to a CSV file, or prints them if path is "-". An
// empty path does nothing.
func (c *command) effects(path string, m *data.Model, post *pgsvi.GLMPosterior) error {
	if path == "" {
		return nil
	}
	all, err := m.GroupEffects(post)
	switch {
	case err != nil:
		return err
	case all == nil:
		return fmt.Errorf("-effects needs a group in the formula, such as (1 | g): %w", cli.ErrUsage)
	case path != "-":
		return c.save(path, func(w io.Writer) error { return cli.WriteEffects(w, all) })
	}
	for _, e := range all {
		fmt.Fprintf(c.stdout, "\n%v", e)
	}
	return nil
}

// report returns the first part of the line that ends a fit. gap_bound is +Inf if no bound is
// known.
func report(m *data.Model, res *pgsvi.Result) string {
	return fmt.Sprintf("rows=%d neg_elbo=%.12g gap_bound=%.3g", len(m.Kept), -res.ELBO,
		res.GapBound)
}

// paramsText returns the learned hyperparameters, with a space before each. The standard deviations
// of groups are in units of the table.
func paramsText(m *data.Model, post data.Posterior, learned *pgsvi.Learned) string {
	var groups []data.Component
	if glm, ok := post.(*pgsvi.GLMPosterior); ok {
		groups = m.Summary(glm).Groups
	}
	text, shown := "", map[string]bool{}
	show := func(name string, value float64) {
		shown[name] = true
		text += fmt.Sprintf(" %s=%.9g", name, value)
	}
	for _, q := range learned.Params {
		if q.Fixed {
			continue
		}
		name, value := m.ParamName(q.Name), q.Value
		for _, c := range groups {
			if c.Param == name {
				value = c.SD
			}
		}
		show(name, value)
	}
	for i, c := range groups {
		if !shown[c.Param] && (c.Lo != c.SD || c.Corr != nil) {
			show(c.Param, c.SD)
		}
		name := func(c data.Component) string {
			return strings.TrimSuffix(strings.TrimPrefix(c.Param, "sd["), "]")
		}
		for k, r := range c.Corr {
			pair, other := name(c), name(groups[i-len(c.Corr)+k])
			if !strings.HasPrefix(pair, other+":") { // the other effect is a slope
				pair += "," + other
			}
			show("corr["+pair+"]", r)
		}
	}
	return text
}

// finish saves the model and prints warnings, the scores of the rows held out, and the line that
// ends a fit.
func finish(c *command, m *data.Model, held *data.Table, post data.Posterior, out, line string,
	res *pgsvi.Result, learned *pgsvi.Learned, start time.Time) error {
	p, err := m.Predictor(post)
	if err != nil {
		return err
	}
	if learned == nil { // a single fit with fixed hyperparameters
		learned = &pgsvi.Learned{Evaluations: 1}
	}
	line += fmt.Sprintf(" evaluations=%d", learned.Evaluations)
	sds := paramsText(m, post, learned)
	warnings := slices.Concat(learned.Warnings, res.Warnings)
	for i, w := range warnings {
		if slices.Index(warnings, w) == i {
			fmt.Fprintln(c.stderr, "pgsvi: warning:", cli.Plain(w))
		}
	}
	if err := c.save(out, p.Save); err != nil {
		return err
	}
	if held != nil {
		rows, failed, scores, err := p.ScoreCSV(io.Discard, held, 0.9)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "held out %d rows; %d of them have no prediction\n%v", rows, failed,
			scores)
		line += cli.ScoreText(scores)
	}
	fmt.Fprintf(c.stdout, "%s seconds=%.2f%s\n", line, time.Since(start).Seconds(), sds)
	return nil
}

func fitGP(f *flag.FlagSet) func(*command, []string) error {
	in, l := inputFlags(f), cli.LearningFlags(f)
	in.testFlag(f)
	kernel := f.String("kernel", "se", "`name`: se, matern12, matern32, matern52 or rq")
	ard := f.Bool("ard", false, "learn a length scale for each feature")
	likelihood := f.String("likelihood", "", "`name`, as for fit (default: depends on the outcome)")
	out := f.String("o", "", "`file` to write the model to")
	return func(c *command, args []string) error {
		start := time.Now()
		newKernel, err := cli.Choose("kernel", cli.Kernels, *kernel)
		if err != nil {
			return err
		}
		if err := l.Check(); err != nil {
			return err
		}
		m, lik, held, err := in.fitted(c, args[0], *likelihood)
		if err != nil {
			return err
		}
		var lengths []float64
		if *ard {
			lengths = make([]float64, len(m.Names))
		}
		s, done := c.progress(*l.Goal)
		defer done()
		kernel := cli.WithMean(newKernel(lengths), m, lik)
		g, err := m.FitGP(c.ctx, kernel, lik, s, l.Options())
		if err != nil {
			return err
		}
		done()
		if g.Learned != nil {
			fmt.Fprint(c.stdout, cli.LearnedTable(m, g.Learned, *in.standardize))
		}
		loo, err := cli.LOO(c.ctx, c.stderr, m, g.LOO)
		if err != nil {
			return err
		}
		line := report(m, g.Result) + loo
		return finish(c, m, held, g.Posterior, *out, line, g.Result, g.Learned, start)
	}
}
