// Command gp1d fits Gaussian processes to functions of one variable, which can
// be looked at.
//
// The first panel has counts: accidents in each of 110 years, Poisson with a
// rate that changes over time, whose logarithm is a Gaussian process. The
// second has measurements with outliers, and what becomes of them under a
// Student-t likelihood, which expects outliers, and under a Gaussian one, which
// does not. Both data sets are generated, so that the truth is known.
//
// Run it from anywhere in the repository; it draws gp1d.png in the current directory:
//
//	go run ./examples/gp1d
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

func fitCounts(ctx context.Context, rng *rand.Rand) (*counts, error) {
	c := &counts{}
	for year := 1851.0; year <= 1960; year++ {
		c.x = append(c.x, year)
		c.y = append(c.y, distuv.Poisson{Lambda: rate(year), Src: rng}.Rand())
	}

	// The log rate is a constant, its level, plus a smooth function of the year.
	kernel := pgsvi.Sum{pgsvi.Constant{Scale: 1}, pgsvi.Matern52{Scale: 1, Length: 20}}
	gp, err := pgsvi.NewGP(column(c.x), c.y, kernel, pgsvi.Poisson{}, nil)
	if err != nil {
		return nil, err
	}
	post, res, err := gp.Fit(ctx, nil) // a nil Solver has nothing to tune
	if err != nil {
		return nil, err
	}
	c.res = res

	// Latent is the posterior of the log rate. A quantile of the rate is the
	// exponential of that of its logarithm; the mean is not, so ask Moments, as
	// the mean of a count is that of the rate.
	c.grid = floats.Span(make([]float64, 400), 1846, 1965)
	at := post.At(column(c.grid))
	m, v := at.Latent(nil, nil)
	for i, year := range c.grid {
		sd := math.Sqrt(v[i])
		c.lo = append(c.lo, math.Exp(m[i]-1.96*sd))
		c.hi = append(c.hi, math.Exp(m[i]+1.96*sd))
		c.truth = append(c.truth, rate(year))
	}
	if c.mean, _, err = at.Moments(nil, nil); err != nil {
		return nil, err
	}
	// Quantiles of a count add the spread of the Poisson distribution.
	if c.countLo, err = at.Quantile(nil, 0.025); err != nil {
		return nil, err
	}
	if c.countHi, err = at.Quantile(nil, 0.975); err != nil {
		return nil, err
	}
	return c, nil
}

// column makes a matrix of one column: the inputs of a function of one variable.
func column(x []float64) *mat.Dense { return mat.NewDense(len(x), 1, x) }

func fitRobust(ctx context.Context, rng *rand.Rand) (*robust, error) {
	f := func(x float64) float64 { return math.Sin(x) + 0.3*x }
	r := &robust{grid: floats.Span(make([]float64, 300), 0, 10)}
	for _, x := range r.grid {
		r.truth = append(r.truth, f(x))
	}
	for i := range 80 {
		x := 10 * rng.Float64()
		y := f(x) + 0.15*rng.NormFloat64()
		if i%6 == 0 {
			y += 2.5 * rng.NormFloat64() // one in six is off
		}
		r.x, r.y = append(r.x, x), append(r.y, y)
	}

	// To be fair to both, each gets the scale of the noise with the highest ELBO,
	// a lower bound of the log evidence.
	var students, gaussians []pgsvi.Likelihood
	for _, scale := range []float64{0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1, 1.5} {
		students = append(students, pgsvi.StudentT{DF: 3, Scale: scale})
		gaussians = append(gaussians, pgsvi.GaussianNoise{Var: scale * scale})
	}
	var err error
	if r.studentT, err = r.best(ctx, students); err != nil {
		return nil, err
	}
	r.gaussian, err = r.best(ctx, gaussians)
	return r, err
}

// best returns the fit with the highest ELBO.
func (r *robust) best(ctx context.Context, liks []pgsvi.Likelihood) (*regression, error) {
	var best *regression
	for _, lik := range liks {
		gp, err := pgsvi.NewGP(column(r.x), r.y, pgsvi.SquaredExp{Scale: 2, Length: 1.5}, lik, nil)
		if err != nil {
			return nil, err
		}
		post, res, err := gp.Fit(ctx, nil)
		if err != nil {
			return nil, fmt.Errorf("%+v: %w", lik, err)
		}
		if best != nil && res.ELBO <= best.res.ELBO {
			continue
		}
		best = &regression{lik: lik, res: res}
		m, v := post.At(column(r.grid)).Latent(nil, nil)
		best.mean = m
		for _, vi := range v {
			best.sd = append(best.sd, math.Sqrt(vi))
		}
		best.rms = rms(m, r.truth)
	}
	return best, nil
}

// counts is the first panel.
type counts struct {
	x, y             []float64
	grid, truth      []float64
	mean, lo, hi     []float64 // of the rate
	countLo, countHi []float64 // of a count
	res              *pgsvi.Result
}

// rate is the true rate of accidents a year.
func rate(year float64) float64 {
	fall := 1 / (1 + math.Exp((year-1892)/4)) // safer, within a few years
	return 0.8 + 2.6*fall + 0.9*math.Exp(-math.Pow((year-1935)/9, 2)/2)
}

// robust is the second panel.
type robust struct {
	x, y               []float64
	grid, truth        []float64
	studentT, gaussian *regression
}

// regression is a fit of the second panel.
type regression struct {
	lik      pgsvi.Likelihood
	res      *pgsvi.Result
	mean, sd []float64 // of the function on the grid
	rms      float64   // distance of the mean from the truth
}

// rms returns the root mean square of the differences.
func rms(a, b []float64) float64 {
	return floats.Distance(a, b, 2) / math.Sqrt(float64(len(a)))
}

func run(ctx context.Context, out string, seed uint64) error {
	counts, err := fitCounts(ctx, rand.New(rand.NewPCG(seed, 1)))
	if err != nil {
		return fmt.Errorf("counts: %w", err)
	}
	robust, err := fitRobust(ctx, rand.New(rand.NewPCG(seed, 2)))
	if err != nil {
		return fmt.Errorf("outliers: %w", err)
	}
	if err := printTable(os.Stdout, counts, robust); err != nil {
		return err
	}
	if out == "" {
		return nil
	}
	if err := savePlot(out, counts, robust); err != nil {
		return err
	}
	_, err = fmt.Println("\nwrote", out)
	return err
}

func printTable(w io.Writer, c *counts, r *robust) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "data\tlikelihood\trows\t-ELBO\tgap\tpasses\trms error\tended\t")
	row := func(data string, lik any, n int, res *pgsvi.Result, rms float64) {
		name := strings.TrimPrefix(fmt.Sprintf("%T", lik), "pgsvi.")
		fmt.Fprintf(tw, "%s\t%s\t%d\t%.6f\t%.0e\t%.4g\t%.3f\t%v\t\n", data, name, n, -res.ELBO, res.Gap, res.Passes, rms, res.Status)
	}
	row("counts", pgsvi.Poisson{}, len(c.y), c.res, rms(c.mean, c.truth))
	for _, f := range []*regression{r.studentT, r.gaussian} {
		row("outliers", f.lik, len(r.y), f.res, f.rms)
	}
	return tw.Flush()
}

//go:generate go run -C ../.. ./examples/gp1d -out examples/gp1d/gp1d.png

func main() {
	out := flag.String("out", "gp1d.png", "PNG `file` to draw to; empty for none")
	seed := flag.Uint64("seed", 1, "seed of the data")
	flag.Parse()
	if err := run(context.Background(), *out, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "gp1d:", err)
		os.Exit(1)
	}
}
