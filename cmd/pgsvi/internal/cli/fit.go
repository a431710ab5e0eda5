package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
)

// Learning holds the flags that control how hyperparameters are learned.
type Learning struct {
	learn, noPrior, integrate *bool

	tol  *float64
	Goal *float64 // gap in nats at which a fit ends; 0 means the default
}

// LearningFlags defines the flags of Learning.
func LearningFlags(f *flag.FlagSet) (l Learning) {
	l.learn = f.Bool("learn", true, "learn the hyperparameters")
	l.noPrior = f.Bool("no-prior", false, "learn without the weak default priors on "+
		"hyperparameters")
	l.integrate = f.Bool("integrate", false, "integrate over the hyperparameters; slow, for few rows")
	l.tol = f.Float64("tol", 0, "stop learning when the gap in `nats` is below this (default 1e-4)")
	l.Goal = f.Float64("goal", 0, "stop a fit when the gap in `nats` is below this "+
		"(default 1e-4 or less)")
	return l
}

// Learns reports whether any hyperparameters are learned.
func (l Learning) Learns() bool { return *l.learn }

// Check returns an error that wraps ErrUsage if -tol or -goal is negative or not finite, or if
// -integrate is set without -learn.
func (l Learning) Check() error {
	var err error
	if *l.integrate && !l.Learns() {
		err = fmt.Errorf("-integrate needs hyperparameters that are learned; remove -learn=false: %w",
			ErrUsage)
	}
	return errors.Join(err, AtLeast0("tol", *l.tol), AtLeast0("goal", *l.Goal))
}

// Options returns the options for Learn, or nil without -learn. A search ends when the predicted
// gain of its quadratic model, which estimates the gap, is below LearnOptions.Tol. Tol is a tenth of
// the flag -tol, because the gap may be larger than the estimate.
func (l Learning) Options() *pgsvi.LearnOptions {
	if !l.Learns() {
		return nil
	}
	return &pgsvi.LearnOptions{NoPrior: *l.noPrior, Tol: *l.tol / 10, Integrate: *l.integrate}
}

// MostPSIS is the largest number of weights for which the command draws from the approximation to
// check it. The limit is lower for classes, because their approximation treats the scores of the
// classes as independent: with many weights, the draws would only show that they are not, and would
// take longer than the fit.
const (
	MostPSIS        = 1000
	mostClassesPSIS = 200
)

// Checks runs leave-one-out and PSIS and returns their results for the line that ends a fit. It
// appends their warnings to res.Warnings, and prints the reason to stderr if either is not
// available. If ctx is done, it returns the cause of ctx.
func Checks(
	ctx context.Context, stderr io.Writer, m *data.Model, glm *pgsvi.GLM, post *pgsvi.GLMPosterior,
	res *pgsvi.Result) (parts string, err error) {
	parts, err = LOO(ctx, stderr, m, func(ctx context.Context) (*pgsvi.LOO, error) {
		return glm.LOO(ctx, post)
	})
	if err != nil {
		return "", err
	}
	say := func(format string, args ...any) {
		fmt.Fprintf(stderr, "pgsvi: "+format+"\n", args...)
	}
	n, most, of := len(post.Names()), MostPSIS, ""
	if len(m.Labels) > 2 {
		most, of = mostClassesPSIS, " of classes"
	}
	if n > most {
		say("khat is not available for more than %d weights%s, because it would take longer\n"+
			"than the fit, and this model has %d; check predictions with loo or predict -score",
			most, of, n)
		return parts, nil
	}
	psis, err := glm.PSIS(ctx, nil, post, 0)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		say("khat is not available: %s", PlainError(err))
		return parts, nil
	}
	if text := psisWarning(psis); text != "" {
		res.Warnings = append(res.Warnings, text)
	}
	return parts + fmt.Sprintf(" khat=%.3g", psis.KHat), nil
}

// LOO runs leave-one-out and returns its score for the line that ends a fit, or prints the reason
// to stderr if the score is not available. If ctx is done, it returns the cause of ctx.
func LOO(
	ctx context.Context, stderr io.Writer, m *data.Model,
	run func(context.Context) (*pgsvi.LOO, error)) (part string, err error) {
	loo, err := run(ctx)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		fmt.Fprintln(stderr, "pgsvi: loo is not available:", PlainError(err))
		return "", nil
	}
	if m.Trials != nil && m.Labels != nil {
		fmt.Fprintln(stderr, "pgsvi: loo and neg_elbo are sums over trials; compare them with "+
			"logit and probit fits,\nbut not with betabinomial fits, whose values are sums over rows")
	}
	if m.Precision != nil {
		fmt.Fprintln(stderr, "pgsvi: loo and neg_elbo leave out a constant of the precisions; compare "+
			"them only with\nfits that have the same precisions")
	}
	return fmt.Sprintf(" loo=%.6g", loo.ELPD), nil
}

// psisWarning returns the warning of p, or "" if p has no warning. If the effective sample size is
// high, a better fit cannot improve much, so the warning has no remedy.
func psisWarning(p *pgsvi.PSIS) string {
	const most, nearlyEqual = 0.7, 0.9
	size := fmt.Sprintf("khat is above %v, and the effective sample size is %.0f of %d draws",
		most, p.ESS, p.Draws)
	switch {
	case !(p.KHat > most):
		return ""
	case p.ESS >= nearlyEqual*float64(p.Draws):
		return size + ":\nthe approximation is close, but may miss rare values of the weights"
	}
	return size + ":\nintervals of the weights may be inaccurate, although predictions may be " +
		"good (check loo or\npredict -score); use more rows, fewer terms or a smaller -prior-sd"
}

// ScoreText returns two scores for the line that ends a fit: bits, the log loss per row to base 2,
// and error. The error is the share of labels that differ from the most probable label or, for
// numbers, the root of the mean squared error.
func ScoreText(s *pgsvi.Scores) string {
	loss, _ := s.Value("log loss")
	failed, ok := s.Value("RMSE")
	if !ok {
		accuracy, _ := s.Value("accuracy")
		failed = 1 - accuracy
	}
	return fmt.Sprintf(" bits=%.6g error=%.6g", loss/math.Ln2, failed)
}

// LearnedTable returns the table of the hyperparameters of a Gaussian process, with the columns of m in
// their names, and the units of the length scales. It leaves out the warnings.
func LearnedTable(m *data.Model, learned *pgsvi.Learned, standardized bool) string {
	named := *learned
	named.Warnings, named.Params = nil, slices.Clone(learned.Params)
	lengths := false
	for i := range named.Params {
		p := &named.Params[i]
		p.Name = m.ParamName(p.Name)
		lengths = lengths || strings.Contains(p.Name, ".Length")
	}
	text := named.String()
	switch {
	case !lengths:
	case standardized:
		text += "length scales are in standard deviations of the columns; categories are 0 or 1\n"
	default:
		text += "length scales are in units of the columns\n"
	}
	return text
}
