// Command poisson models counts with exposure: the claims of car insurance
// policies, each in force for a part of a year.
//
// The data are generated, with a gamma distributed rate for each policy, so that the truth is
// known and the counts vary more than a Poisson distribution allows. They are
// fitted by a Poisson likelihood and by a negative binomial one, whose shape is
// that of the highest ELBO. The table shows what it costs to ignore the extra
// variation: weights that are surer of themselves than they ought to be.
//
// Run it from anywhere in the repository; it draws poisson.png in the current directory:
//
//	go run ./examples/poisson
//
// The last line of the output is meant for programs: the negative ELBO of both
// fits in nats, the shape chosen, the Pearson statistic of the Poisson fit
// (1 without over-dispersion), and the seconds that all fits took.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/mat"
)

// portfolio is the policies as numbers.
type portfolio struct {
	*data.Data
	encoder *data.Encoder
}

// readPortfolio reads the claims and features of a CSV file with the columns of header.
func readPortfolio(csv string) (*portfolio, error) {
	t, err := data.Read(strings.NewReader(csv), "policies.csv")
	if err != nil {
		return nil, err
	}
	// Categories become indicators of all levels but the reference: region=north, …. The logarithm
	// of the exposure becomes the offset. Numbers stay in their units, which the truth is in.
	e, err := t.Encoder(data.Raw(), data.Outcome("claims").Quantity(), data.Exposure("years"),
		data.Category("region").Reference("east"), data.Category("vehicle").Reference("car"))
	if err != nil {
		return nil, err
	}
	d, err := e.Data(t)
	if err != nil {
		return nil, err
	}
	return &portfolio{d, e}, nil
}

// fit is a model and what became of it.
type fit struct {
	lik  pgsvi.Likelihood
	post *pgsvi.GLMPosterior
	elbo float64
}

// fit models the claims: log E[claims] = log years + weights · features.
func (p *portfolio) fit(ctx context.Context, lik pgsvi.Likelihood) (*fit, error) {
	glm, err := pgsvi.NewGLM(p.X, p.Y, lik, &pgsvi.GLMOptions{Intercept: true, Offset: p.Offset, Names: p.Names})
	if err != nil {
		return nil, err
	}
	post, res, err := glm.Fit(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("%+v: %w", lik, err)
	}
	return &fit{lik, post, res.ELBO}, nil
}

// pearson returns Σ (y − μ)²/μ over the degrees of freedom.
func (p *portfolio) pearson(f *fit) (sum float64, err error) {
	mean, _, err := f.post.At(p.X).Offset(p.Offset).Moments(nil, nil)
	if err != nil {
		return 0, err
	}
	for i, y := range p.Y {
		sum += (y - mean[i]) * (y - mean[i]) / mean[i]
	}
	return sum / float64(len(p.Y)-f.post.Dim()), nil
}

// frequencies returns how many policies have 0, 1, … most claims, and how many the
// fit expects to have: a posterior predictive check, averaged over draws of the weights.
func (p *portfolio) frequencies(f *fit, most int, rng *rand.Rand) (seen, expected []float64, err error) {
	const draws = 20
	w := mat.NewDense(draws, f.post.Dim(), nil)
	if err := f.post.RandWeights(w, rng); err != nil {
		return nil, nil, err
	}
	cols := f.post.Cols()
	var eta mat.Dense // without intercept, the last weight
	eta.Mul(p.X, w.Slice(0, draws, 0, cols).T())
	seen, expected = make([]float64, most+1), make([]float64, most+1)
	for i, y := range p.Y {
		if int(y) <= most {
			seen[int(y)]++
		}
		for k := range expected {
			for s := range draws {
				expected[k] += math.Exp(f.lik.LogProb(float64(k), eta.At(i, s)+w.At(s, cols)+p.Offset[i])) / draws
			}
		}
	}
	return seen, expected, nil
}

func run(ctx context.Context, out string, policies int, seed uint64) error {
	p, err := readPortfolio(generate(policies, seed))
	if err != nil {
		return err
	}
	start := time.Now()
	poisson, err := p.fit(ctx, pgsvi.Poisson{})
	if err != nil {
		return err
	}
	// The ELBO is a lower bound of the log evidence, so that it can choose.
	var shape float64
	var negbin *fit
	for _, s := range []float64{0.25, 0.35, 0.5, 0.7, 1, 1.4, 2, 2.8, 4, 8, 16} {
		f, err := p.fit(ctx, pgsvi.NegativeBinomial{Shape: s})
		if err != nil {
			return err
		}
		if negbin == nil || f.elbo > negbin.elbo {
			shape, negbin = s, f
		}
	}
	seconds := time.Since(start).Seconds()

	printWeights(poisson, negbin)
	dispersion, err := p.pearson(poisson)
	if err != nil {
		return err
	}
	fmt.Printf(`
Pearson's statistic of the Poisson fit is %.3f; 1 would mean no more variation than a Poisson distribution has.
The negative binomial of shape %v (the truth is %v) has an ELBO %.1f nats above that of Poisson.
`, dispersion, shape, trueShape, negbin.elbo-poisson.elbo)
	if out != "" {
		if err := savePlot(out, p, poisson, negbin, rand.New(rand.NewPCG(seed, 1))); err != nil {
			return err
		}
		fmt.Printf("\nwrote %s\n", out)
	}
	_, err = fmt.Printf("\npoisson_neg_elbo=%.6f negbin_neg_elbo=%.6f shape=%v dispersion=%.4f seconds=%.2f\n",
		-poisson.elbo, -negbin.elbo, shape, dispersion, seconds)
	return err
}

// printWeights prints the summary of the negative binomial fit beside the truth
// and the Poisson fit; z is the distance from the truth in standard deviations.
func printWeights(poisson, negbin *fit) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\t\tPoisson\t\t\tnegative binomial\t\t\t\t\t")
	fmt.Fprintln(w, "weight\ttruth\tmean\tsd\tz\tmean\tsd\tz\t2.5%\t97.5%\t")
	rows := negbin.post.Summary().Rows
	for j, a := range poisson.post.Summary().Rows {
		b, t := rows[j], truth[a.Name]
		fmt.Fprintf(w, "%s\t%.2f\t%.4f\t%.4f\t%+.1f\t%.4f\t%.4f\t%+.1f\t%.4f\t%.4f\t\n",
			a.Name, t, a.Mean, a.SD, (a.Mean-t)/a.SD, b.Mean, b.SD, (b.Mean-t)/b.SD, b.Lo, b.Hi)
	}
	w.Flush()
}

//go:generate go run -C ../.. ./examples/poisson -out examples/poisson/poisson.png

func main() {
	log.SetFlags(0)
	log.SetPrefix("poisson: ")
	out := flag.String("out", "poisson.png", "PNG `file` to draw to; empty for none")
	policies := flag.Int("policies", 20000, "number of policies")
	seed := flag.Uint64("seed", 1, "seed of the data")
	flag.Parse()
	if *policies < 100 || flag.NArg() > 0 {
		log.Fatal("want -policies of at least 100, and nothing besides flags")
	}
	if err := run(context.Background(), *out, *policies, *seed); err != nil {
		log.Fatal(err)
	}
}
