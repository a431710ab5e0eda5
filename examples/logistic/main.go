// Command logistic fits a Bayesian logistic regression: it prints a table of the
// weights, scores the predictions on test data and draws how well calibrated
// the predicted probabilities are.
//
// Run it in the root of the repository, where testdata is:
//
//	go run ./examples/logistic
//	go run ./examples/logistic -data sonar
//
// or anywhere on data of your own:
//
//	logistic -train train.csv -response ill -positive yes
//	logistic -train a9a.gz -test a9a.t.gz -intercept=false
//
// Files named .csv or .csv.gz have the names of their columns in the first line
// and may have categories among the numbers; all others are taken for LIBSVM.
// Labels are two texts or two numbers. The columns are those of the training
// data. Without -test, a fifth of the rows, drawn at random, is held out to test on.
//
// The last line of the output is meant for programs: the negative ELBO in nats,
// nan with -stream, which has none; the mean negative log predictive probability
// of the test labels in nats; the fraction of them that were given less than even
// odds; the passes over the training data and the seconds that the fit took.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"time"

	"github.com/pgsvi/pgsvi"
)

// fit sees the rows as often as it takes. Nothing has to be tuned: the zero Solver
// stops when the ELBO is proved to be as good as at its maximum, or within the goal of it.
func fit(ctx context.Context, train data, opt *pgsvi.GLMOptions, goal float64) (*pgsvi.GLMPosterior, *pgsvi.Result, error) {
	glm, err := pgsvi.NewGLM(train.x, train.y, pgsvi.BernoulliLogit{}, opt)
	if err != nil {
		return nil, nil, err
	}
	return glm.Fit(ctx, &pgsvi.Solver{Goal: goal})
}

// fitStream sees each row once. The rows need not be in memory, as they are here:
// AddAll takes those of a file as well; see examples/stream.
func fitStream(ctx context.Context, train data, opt *pgsvi.GLMOptions) (*pgsvi.GLMPosterior, error) {
	_, cols := train.x.Dims()
	s, err := pgsvi.NewGLMStream(cols, pgsvi.BernoulliLogit{}, opt)
	if err != nil {
		return nil, err
	}
	if err := s.AddAll(ctx, pgsvi.Rows(train.x, train.y)); err != nil {
		return nil, err
	}
	return s.Posterior()
}

// check prints whether the posterior, a Gaussian, can be trusted, and how it predicts each row of
// the training data from the others.
func check(ctx context.Context, train data, opt *pgsvi.GLMOptions, post *pgsvi.GLMPosterior) error {
	glm, err := pgsvi.NewGLM(train.x, train.y, pgsvi.BernoulliLogit{}, opt)
	if err != nil {
		return err
	}
	psis, err := glm.PSIS(ctx, pgsvi.NewEnv(nil, runtime.GOMAXPROCS(0)), post, 0)
	if err != nil {
		return err
	}
	loo, err := glm.LOO(ctx, post)
	if err == nil {
		fmt.Printf("\n%v\n%v\nkhat=%.2f loo=%.6f\n", psis, loo, psis.KHat, -loo.ELPD/float64(glm.Len()))
	}
	return err
}

func run(ctx context.Context, opt *options) error {
	train, test, err := opt.load()
	if err != nil {
		return err
	}
	fmt.Printf("%s; predicted is P(%s = %s)\n\n", train.about, train.response, train.positive)
	opt.glm.Names = train.names

	start := time.Now()
	var post *pgsvi.GLMPosterior
	elbo, bound, passes := math.NaN(), math.NaN(), 1.0
	if opt.stream {
		post, err = fitStream(ctx, train, &opt.glm)
	} else {
		var res *pgsvi.Result
		if post, res, err = fit(ctx, train, &opt.glm, opt.goal); err == nil {
			elbo, bound, passes = res.ELBO, res.GapBound, res.Passes
		}
	}
	if err != nil {
		return err
	}
	seconds := time.Since(start).Seconds()

	printWeights(post)
	m, base := test.score(post), test.scoreOf(train.baseRate())
	fmt.Printf("\n%d test rows       nats     error\n", len(test.y))
	fmt.Printf("predictions   %9.6f  %8.6f\n", m.nats, m.error)
	fmt.Printf("base rate     %9.6f  %8.6f   (P = %.4f for every row)\n", base.nats, base.error, train.baseRate())

	if opt.check {
		if err := check(ctx, train, &opt.glm, post); err != nil {
			return err
		}
	}

	if opt.out != "" {
		prob := post.At(test.x).Prob(nil, +1)
		if err := savePlot(opt.out, train.name, prob, test.y); err != nil {
			return err
		}
		fmt.Printf("\nwrote %s\n", opt.out)
	}
	_, err = fmt.Printf("\nneg_elbo=%s gap_bound=%s test_nats=%.6f error=%.6f passes=%g seconds=%.2f\n",
		number("%.6f", -elbo), number("%.1e", bound), m.nats, m.error, passes, seconds)
	return err
}

// printWeights prints the table of the weights, or of those that stand out of many.
func printWeights(post *pgsvi.GLMPosterior) {
	s := post.Summary()
	if len(s.Rows) > 40 {
		slices.SortStableFunc(s.Rows, func(a, b pgsvi.SummaryRow) int {
			return -cmp.Compare(math.Abs(a.Mean)/a.SD, math.Abs(b.Mean)/b.SD)
		})
		s.Rows = s.Rows[:30]
		fmt.Println("the 30 weights with the most standard deviations between mean and 0:")
	}
	fmt.Print(s)
}

// number formats x, which may be NaN, as a program wants it.
func number(format string, x float64) string {
	if math.IsNaN(x) {
		return "nan"
	}
	return fmt.Sprintf(format, x)
}

// A score measures predictions: the mean negative log probability of the labels in
// nats and the fraction of labels that were given less than even odds.
type score struct{ nats, error float64 }

func (d data) score(post *pgsvi.GLMPosterior) score {
	return meanScore(post.At(d.x).LogProb(nil, d.y))
}

// scoreOf is the score of one probability of +1 for all rows.
func (d data) scoreOf(p float64) score {
	logp := make([]float64, len(d.y))
	for i, y := range d.y {
		logp[i] = math.Log(0.5 + y*(p-0.5))
	}
	return meanScore(logp)
}

func meanScore(logp []float64) (s score) {
	n := float64(len(logp))
	for _, l := range logp {
		s.nats -= l / n
		if l < -math.Ln2 {
			s.error += 1 / n
		}
	}
	return s
}

// baseRate is the fraction of labels +1, or near it, for it is never 0 or 1.
func (d data) baseRate() float64 {
	k := 0.5
	for _, y := range d.y {
		if y > 0 {
			k++
		}
	}
	return k / float64(len(d.y)+1)
}

// options are what the command line says.
type options struct {
	source
	glm    pgsvi.GLMOptions
	goal   float64 // of the fit, in nats
	check  bool    // whether the posterior can be trusted
	stream bool
	out    string
}

func parseFlags() (*options, error) {
	o := &options{}
	flag.StringVar(&o.data, "data", "ionosphere", "data set of testdata: ionosphere or sonar")
	flag.StringVar(&o.train, "train", "", "CSV or LIBSVM `file` to train on instead, which may be packed by gzip")
	flag.StringVar(&o.test, "test", "", "`file` to test on, with -train (default: a fifth of the rows of -train)")
	flag.StringVar(&o.response, "response", "", "`name` of the column of labels of a CSV file (default: the last column)")
	flag.StringVar(&o.positive, "positive", "", "`label` of a CSV file whose probability is predicted (default: the second in sorted order)")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the rows held out without -test")
	flag.Float64Var(&o.glm.PriorSD, "prior-sd", 1, "prior standard deviation of the weights: how many logits a feature may well move the odds,\n"+
		"for each standard deviation of the feature with -autoscale, for each unit of it without")
	flag.BoolVar(&o.glm.Intercept, "intercept", true, "have an intercept, with a prior standard deviation of 10")
	flag.BoolVar(&o.glm.Autoscale, "autoscale", true, "measure features in their standard deviations\n"+
		"(default: true for CSV; false for LIBSVM, whose features mostly are of one scale, and with -stream)")
	flag.BoolVar(&o.check, "check", false, "print how far the posterior can be trusted, and how it predicts each training row from the others")
	flag.Float64Var(&o.goal, "goal", 0, "stop where the -ELBO is proved to be within so many `nats` of its minimum (default: as near as is of use)")
	flag.BoolVar(&o.stream, "stream", false, "see each row once, in one pass, as if there were too many for memory")
	covariance := flag.String("covariance", "auto", "covariance of the weights: auto, full, lowrank or diagonal")
	flag.StringVar(&o.out, "out", "logistic.png", "PNG `file` to draw to; empty for none")
	flag.Parse()

	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["autoscale"] {
		o.glm.Autoscale = !o.stream && (o.train == "" || isCSV(o.train))
	}
	var known bool
	o.glm.Covariance, known = map[string]pgsvi.Covariance{
		"auto": pgsvi.AutoCovariance, "full": pgsvi.FullCovariance,
		"lowrank": pgsvi.LowRankCovariance, "diagonal": pgsvi.DiagonalCovariance,
	}[*covariance]
	switch {
	case flag.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case !known:
		return nil, fmt.Errorf("-covariance is %q, want auto, full, lowrank or diagonal", *covariance)
	case given["data"] && o.train != "":
		return nil, fmt.Errorf("give -data or -train, not both")
	case (o.response != "" || o.positive != "") && !isCSV(o.train):
		return nil, fmt.Errorf("-response and -positive need a -train in CSV")
	case o.test != "" && o.train == "":
		return nil, fmt.Errorf("-test needs -train")
	case !(o.glm.PriorSD > 0): // the library reads 0 as 1
		return nil, fmt.Errorf("-prior-sd is %v, want a positive number", o.glm.PriorSD)
	}
	return o, nil
}

//go:generate go run -C ../.. ./examples/logistic -out examples/logistic/logistic.png

func main() {
	log.SetFlags(0)
	log.SetPrefix("logistic: ")
	// Ctrl-C ends a fit early, with an error that says so.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	opt, err := parseFlags()
	if err == nil {
		err = run(ctx, opt)
	}
	if err != nil {
		log.Fatal(err)
	}
}
