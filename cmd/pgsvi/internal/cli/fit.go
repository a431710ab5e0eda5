package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
)

// Learning are the flags of how hyper-parameters are learned.
type Learning struct {
	learn, noPrior *bool
	tol            *float64
	Goal           *float64 // of the fit
}

// LearningFlags defines them.
func LearningFlags(f *flag.FlagSet) (l Learning) {
	l.learn = f.Bool("learn", true, "learn hyper-parameters")
	l.noPrior = f.Bool("no-prior", false, "learn without the weak default priors of "+
		"hyper-parameters")
	l.tol = f.Float64("tol", 0, "how many `nats` learning may leave (default 1e-4)")
	l.Goal = f.Float64("goal", 0, "stop when the gap in `nats` is below this (default: 1e-4 or less)")
	return l
}

// Learns reports whether anything is learned.
func (l Learning) Learns() bool { return *l.learn }

// Check returns an error if a number is none.
func (l Learning) Check() error {
	return errors.Join(AtLeast0("tol", *l.tol), AtLeast0("goal", *l.Goal))
}

// Options are nil where nothing is learned. The search ends where its quadratic model promises less
// than Tol, which is about what is left.
func (l Learning) Options() *pgsvi.LearnOptions {
	if !l.Learns() {
		return nil
	}
	return &pgsvi.LearnOptions{NoPrior: *l.noPrior, Tol: *l.tol / 10}
}

// MostPSIS is the number of weights up to which their draws say how good the approximation is. Of
// classes, whose scores are taken as independent, it is less: the draws of many say that they are
// not, and would take longer than the fit.
const (
	MostPSIS        = 1000
	mostClassesPSIS = 200
)

// Checks returns what leave-one-out and importance sampling say, as parts of the last line.
// It adds what they warn of to the warnings, and prints why one of them is not there. The error is
// the cause if ctx is done.
func Checks(
	ctx context.Context, stderr io.Writer, m *data.Model, glm *pgsvi.GLM, post *pgsvi.GLMPosterior,
	res *pgsvi.Result) (parts string, err error) {
	say := func(format string, args ...any) {
		fmt.Fprintf(stderr, "pgsvi: "+format+"\n", args...)
	}
	loo, err := glm.LOO(ctx, post)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		say("no loo: %s", PlainError(err))
	default:
		parts += fmt.Sprintf(" loo=%.6g", loo.ELPD)
		if m.Trials != nil && m.Labels != nil {
			say("loo and neg_elbo are of single trials: compare them with those of logit and " +
				"probit,\nnot of betabinomial, which are of rows")
		}
	}
	n, most, of := len(post.Names()), MostPSIS, ""
	if len(m.Labels) > 2 {
		most, of = mostClassesPSIS, " of classes"
	}
	if n > most {
		say("no khat, which is for up to %d weights%s, as its draws of all weights would take "+
			"longer\nthan the fit; these are %d. Predictions can be checked by loo and predict "+
			"-score", most, of, n)
		return parts, nil
	}
	psis, err := glm.PSIS(ctx, nil, post, 0)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		say("no khat: %s", PlainError(err))
		return parts, nil
	}
	if text := psisWarning(psis); text != "" {
		res.Warnings = append(res.Warnings, text)
	}
	return parts + fmt.Sprintf(" khat=%.3g", psis.KHat), nil
}

// psisWarning returns what p warns of, and "" if that is nothing. Weights that are nearly equal
// leave nothing to improve in a fit, so only a low effective sample size comes with a remedy.
func psisWarning(p *pgsvi.PSIS) string {
	const most, nearlyEqual = 0.7, 0.9
	size := fmt.Sprintf("a khat above %v, with an effective sample size of %.0f of %d draws",
		most, p.ESS, p.Draws)
	switch {
	case !(p.KHat > most):
		return ""
	case p.ESS >= nearlyEqual*float64(p.Draws):
		return size + ":\nthe approximation is close, but may miss rare values of the weights"
	}
	return size + ":\nintervals of the weights may be off, though predictions may be good (loo,\n" +
		"predict -score). More rows, fewer terms or a smaller -prior-sd help"
}

// ScoreText returns bits, the log loss of a row to the base 2, and error, the share of labels that
// are not the likelier one, or the root of the mean squared error.
func ScoreText(s *pgsvi.Scores) string {
	loss, _ := s.Value("log loss")
	failed, ok := s.Value("RMSE")
	if !ok {
		accuracy, _ := s.Value("accuracy")
		failed = 1 - accuracy
	}
	return fmt.Sprintf(" bits=%.6g error=%.6g", loss/math.Ln2, failed)
}
