package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/formula"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// likelihoods are those of the flag -likelihood.
var likelihoods = map[string]pgsvi.Likelihood{
	"logit": pgsvi.BernoulliLogit{}, "probit": pgsvi.BernoulliProbit{}, "poisson": pgsvi.Poisson{},
	"negbinomial": pgsvi.NegativeBinomial{}, "gaussian": pgsvi.GaussianNoise{}, "studentt": pgsvi.StudentT{},
	"laplace": pgsvi.Laplace{}, "gamma": pgsvi.Gamma{}, "exponential": pgsvi.Exponential{},
	"softmax": pgsvi.Softmax{},
	"zip":     pgsvi.ZeroInflated{}, "zinb": pgsvi.ZeroInflated{Shape: 1}, "hurdle": pgsvi.Hurdle{},
	"hurdlenb": pgsvi.Hurdle{Shape: 1}, "weibull": pgsvi.Weibull{}, "lognormal": pgsvi.LogNormal{},
	"beta": pgsvi.Beta{}, "betabinomial": pgsvi.BetaBinomial{},
}

// kernels are those of the flag -kernel, for lengths that are learned.
var kernels = map[string]func(lengths []float64) pgsvi.Kernel{
	"se":       func(l []float64) pgsvi.Kernel { return pgsvi.SquaredExp{Lengths: l} },
	"matern12": func(l []float64) pgsvi.Kernel { return pgsvi.Matern12{Lengths: l} },
	"matern32": func(l []float64) pgsvi.Kernel { return pgsvi.Matern32{Lengths: l} },
	"matern52": func(l []float64) pgsvi.Kernel { return pgsvi.Matern52{Lengths: l} },
	"rq":       func(l []float64) pgsvi.Kernel { return pgsvi.RationalQuadratic{Lengths: l} },
}

// choose returns the value of a flag by its name; "" means the zero value.
func choose[T any](what string, all map[string]T, name string) (v T, err error) {
	if _, ok := all[name]; !ok && name != "" {
		advice := "there are " + strings.Join(slices.Sorted(maps.Keys(all)), ", ")
		if also, ok := otherNames[strings.ToLower(name)]; ok {
			advice = "it is " + also
		} else if _, ok := all[strings.ToLower(name)]; ok {
			advice = "it is " + strings.ToLower(name)
		}
		err = fmt.Errorf("there is no %s %q; %s: %w", what, name, advice, errUsage)
	}
	return all[name], err
}

// otherNames are what likelihoods and kernels are called elsewhere.
var otherNames = map[string]string{
	"binomial": "logit, of a formula such as 'successes / trials ~ x' or of two labels",
	"logistic": "logit", "bernoulli": "logit", "normal": "gaussian", "student": "studentt",
	"t": "studentt", "multinomial": "softmax", "categorical": "softmax", "nb": "negbinomial",
	"negativebinomial": "negbinomial", "cox": "weibull, of survival(time, event)",
	"rbf": "se", "matern": "matern12, matern32 or matern52",
}

// atLeast0 returns an error unless a number of a flag is 0 or more, and finite.
func atLeast0(name string, v float64) error {
	if v >= 0 && !math.IsInf(v, 0) {
		return nil
	}
	return fmt.Errorf("-%s is %v, want a number above 0, or 0 for the default: %w", name, v, errUsage)
}

// input are the flags of verbs that read a table.
type input struct {
	formula, columns *string
	format           *string
	standardize      *bool
	classes          bool // the outcome is one of several classes, be they numbers
}

func inputFlags(f *flag.FlagSet) (in input) {
	in.formula = f.String("formula", "", "`formula` such as 'y ~ a + s(b) + (1 | g)'; . is all columns;\n"+
		"'successes / trials ~ …' and 'survival(time, event) ~ …' are outcomes")
	in.columns = f.String("columns", "", "a `file` that says what columns are, as check writes it")
	in.format = formatFlag(f)
	in.standardize = f.Bool("standardize", true, "give numbers mean 0 and standard deviation 1")
	return in
}

// read reads a table and the file of columns.
func (in input) read(path string) (t *data.Table, columns []data.Column, err error) {
	format, err := formatOf(*in.format)
	if err != nil {
		return nil, nil, err
	}
	if t, err = format.ReadFile(path); err != nil {
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
	said, err := data.ReadColumns(file)
	return t, append(columns, said...), err
}

// model returns the model of a table for a likelihood, which may be nil, and shows what the columns
// are taken for. Without a formula it is that of the last column by all others.
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
	said := func(c data.Column) bool { _, outcome := c.(data.OutcomeColumn); return outcome }
	if in.classes && !slices.ContainsFunc(columns, said) {
		columns = append(columns, data.Outcome(f.Outcome).Classes())
	}
	m, err := t.ModelOf(f, columns...)
	if err == nil {
		m, err = m.For(lik)
	}
	if err != nil {
		return nil, err
	}
	fmt.Fprint(c.stdout, m)
	if len(m.Names) == 0 && slices.ContainsFunc(f.Terms, isRest) {
		hint := ""
		if len(all) == 1 {
			hint = "; if the table has more than one, say what is between them: -format separator=…"
		}
		fmt.Fprintln(c.stderr, "pgsvi: warning: there is no column for . to stand for"+hint)
	}
	if *in.formula == "" {
		fmt.Fprintf(c.stdout, "the last column is the outcome; -formula says otherwise\n")
	}
	return m, nil
}

// isRest says that a term is . for all other columns.
func isRest(t formula.Term) bool {
	_, ok := t.(formula.Rest)
	return ok
}

// fitted reads the table to fit a model to, and returns it with the likelihood that was named.
func (in input) fitted(c *command, path, likelihood string) (
	m *data.Model, lik pgsvi.Likelihood, err error) {
	if lik, err = choose("likelihood", likelihoods, likelihood); err != nil {
		return nil, nil, err
	}
	t, columns, err := in.read(path)
	if err != nil {
		return nil, nil, err
	}
	in.classes = likelihood == "softmax"
	m, err = in.model(c, t, columns, lik)
	return m, lik, err
}

func check(f *flag.FlagSet) func(*command, []string) error {
	in := inputFlags(f)
	return func(c *command, args []string) error {
		t, columns, err := in.read(args[0])
		write := *in.columns != "" && errors.Is(err, os.ErrNotExist) && t != nil
		if err != nil && !write {
			return err
		}
		_, err = in.model(c, t, columns, nil)
		var undecided *data.DecisionError
		if !errors.As(err, &undecided) {
			return err
		}
		s := &data.Suggestions{Decisions: undecided.Decisions}
		fmt.Fprintf(c.stdout, "%v\nproposals, to read and to change:\n\n%v\n", t, s)
		if err = nil; write {
			err = os.WriteFile(*in.columns, []byte(s.String()), 0o644)
			fmt.Fprintf(c.stdout, "these are in %s now; -columns reads them\n", *in.columns)
		} else {
			fmt.Fprintln(c.stdout, "-columns FILE writes them to a new file, which check, fit and gp then read")
		}
		return errors.Join(errUndecided, err)
	}
}

// learning are the flags of how hyper-parameters are learned.
type learning struct {
	learn, noPrior *bool
	tol, goal      *float64
}

func learningFlags(f *flag.FlagSet) (l learning) {
	l.learn = f.Bool("learn", true, "learn hyper-parameters")
	l.noPrior = f.Bool("no-prior", false, "learn without the weak default priors of hyper-parameters")
	l.tol = f.Float64("tol", 0, "how many `nats` learning may leave (default 1e-4)")
	l.goal = f.Float64("goal", 0, "the gap in `nats` at which the fit ends (default: some 1e-10)")
	return l
}

// check returns an error if a number is none.
func (l learning) check() error {
	return errors.Join(atLeast0("tol", *l.tol), atLeast0("goal", *l.goal))
}

// options are nil where nothing is learned. The search ends where its quadratic model promises less
// than Tol, which is about what is left.
func (l learning) options() *pgsvi.LearnOptions {
	if !*l.learn {
		return nil
	}
	return &pgsvi.LearnOptions{NoPrior: *l.noPrior, Tol: *l.tol / 10}
}

// mostPSIS is the number of weights up to which their draws say how good the approximation is.
const mostPSIS = 1000

func fit(f *flag.FlagSet) func(*command, []string) error {
	in, l := inputFlags(f), learningFlags(f)
	likelihood := f.String("likelihood", "", "`name` (default: by the outcome)\n"+
		"  labels and classes   logit, probit, softmax\n"+
		"  counts               poisson, negbinomial\n"+
		"  with many zeros      zip, zinb, hurdle, hurdlenb\n"+
		"  successes / trials   logit, probit, betabinomial\n"+
		"  real numbers         gaussian, studentt, laplace\n"+
		"  positive, durations  gamma, exponential, weibull, lognormal\n"+
		"  numbers in (0, 1)    beta")
	priorSD := f.Float64("prior-sd", 0, "prior standard deviation of the effects (default: learned, or 1)")
	interceptSD := f.Float64("intercept-sd", 0, "that of the intercept (default 10)")
	out := f.String("o", "", "the `file` to write the model to")
	return func(c *command, args []string) error {
		start := time.Now()
		if *in.formula == "" {
			return fmt.Errorf("a formula is missing: -formula 'y ~ .' takes all columns: %w", errUsage)
		}
		if err := errors.Join(l.check(), atLeast0("prior-sd", *priorSD),
			atLeast0("intercept-sd", *interceptSD)); err != nil {
			return err
		}
		m, lik, err := in.fitted(c, args[0], *likelihood)
		if err != nil {
			return err
		}
		opt := &pgsvi.GLMOptions{PriorSD: *priorSD, InterceptSD: *interceptSD, Learn: l.options()}
		if lik, opt, err = m.Options(lik, opt); err != nil {
			return err
		}
		if !*l.learn {
			opt.Learn = nil
		}
		glm, err := pgsvi.NewGLM(m.X, m.Y, lik, opt)
		if err != nil {
			return m.Locate(err)
		}
		s, done := c.progress(*l.goal)
		defer done()
		var post *pgsvi.GLMPosterior
		var res *pgsvi.Result
		var learned *pgsvi.Learned
		if opt.Learn == nil {
			post, res, err = glm.Fit(c.ctx, s)
		} else if glm, post, learned, err = glm.Learn(c.ctx, s, opt.Learn); err == nil {
			res = learned.Fit
		}
		if err != nil {
			return err
		}
		done()
		fmt.Fprint(c.stdout, m.Summary(post))
		line := strings.Replace(report(m, res), " ", fmt.Sprintf(" weights=%d ", len(post.Names())), 1)
		line += checks(c, glm, post, res)
		return finish(c, m, post, *out, line, res, learned, start)
	}
}

// checks returns what leave-one-out and importance sampling say, as parts of the last line.
// It adds what they warn of to the warnings, and prints why one of them is not there.
func checks(
	c *command, glm *pgsvi.GLM, post *pgsvi.GLMPosterior, res *pgsvi.Result) (parts string) {
	say := func(format string, args ...any) {
		fmt.Fprintf(c.stderr, "pgsvi: "+format+"\n", args...)
	}
	if loo, err := glm.LOO(c.ctx, post); err != nil {
		say("no loo: %v", sentinel.Plain(err))
	} else {
		parts += fmt.Sprintf(" loo=%.6g", loo.ELPD)
	}
	if n := len(post.Names()); n > mostPSIS {
		say("no khat, which is for up to %d weights, as its draws of all weights would take "+
			"longer\nthan the fit; these are %d. Predictions can be checked by loo and predict "+
			"-score", mostPSIS, n)
		return parts
	}
	psis, err := glm.PSIS(c.ctx, nil, post, 0)
	if err != nil {
		say("no khat: %v", sentinel.Plain(err))
		return parts
	}
	if psis.KHat > 0.7 {
		res.Warnings = append(res.Warnings,
			"a khat above 0.7: intervals of the weights may be off, though predictions\n"+
				"may be good (loo, predict -score). More rows, fewer terms or a smaller\n"+
				"-prior-sd help")
	}
	return parts + fmt.Sprintf(" khat=%.3g", psis.KHat)
}

// report returns what a fit says of itself. Where there is no proof gap_bound is +Inf.
func report(m *data.Model, res *pgsvi.Result) string {
	bound := res.GapBound
	if math.IsNaN(bound) {
		bound = math.Inf(1)
	}
	return fmt.Sprintf("rows=%d neg_elbo=%.12g gap_bound=%.3g", len(m.Kept), -res.ELBO, bound)
}

// finish saves a model, and prints the line that ends a fit.
func finish(c *command, m *data.Model, post data.Posterior, out, line string, res *pgsvi.Result, learned *pgsvi.Learned, start time.Time) error {
	p, err := m.Predictor(post)
	if err != nil {
		return err
	}
	if learned == nil { // one fit, at the hyper-parameters as they are
		learned = &pgsvi.Learned{Evaluations: 1}
	}
	line += fmt.Sprintf(" evaluations=%d", learned.Evaluations)
	sds := ""
	for _, q := range learned.Params {
		if !q.Fixed {
			sds += fmt.Sprintf(" %s=%.9g", m.ParamName(q.Name), q.Value)
		}
	}
	for _, w := range slices.Concat(learned.Warnings, res.Warnings) {
		fmt.Fprintln(c.stderr, "pgsvi: warning:", w)
	}
	if err := c.save(out, p.SaveFile); err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "%s seconds=%.2f%s\n", line, time.Since(start).Seconds(), sds)
	return nil
}

func fitGP(f *flag.FlagSet) func(*command, []string) error {
	in, l := inputFlags(f), learningFlags(f)
	kernel := f.String("kernel", "se", "`name`: se, matern12, matern32, matern52 or rq")
	ard := f.Bool("ard", false, "learn a length for each feature")
	likelihood := f.String("likelihood", "", "`name` as of fit (default: by the outcome)")
	out := f.String("o", "", "the `file` to write the model to")
	return func(c *command, args []string) error {
		start := time.Now()
		newKernel, err := choose("kernel", kernels, *kernel)
		if err != nil {
			return err
		}
		if err := l.check(); err != nil {
			return err
		}
		m, lik, err := in.fitted(c, args[0], *likelihood)
		if err != nil {
			return err
		}
		var lengths []float64
		if *ard {
			lengths = make([]float64, len(m.Names))
		}
		s, done := c.progress(*l.goal)
		defer done()
		post, res, learned, err := m.FitGP(c.ctx, newKernel(lengths), lik, s, l.options())
		if err != nil {
			return err
		}
		done()
		if learned != nil {
			fmt.Fprintln(c.stdout, learned)
		}
		return finish(c, m, post, *out, report(m, res), res, learned, start)
	}
}
