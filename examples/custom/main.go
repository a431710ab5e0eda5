// Command custom fits a model of one's own from its log-likelihood alone,
// without derivatives.
//
// The model is a decay curve with Student-t noise,
//
//	y_n = a exp(−t_n/τ) + c + noise,   z = (a, log τ, c),
//
// a nonlinear regression that tolerates outliers. The data are generated, so
// that the truth is known. The answer is checked against importance sampling,
// which shares nothing with the fit but the log-likelihood and the prior.
//
// Run it from anywhere in the repository:
//
//	go run ./examples/custom
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"text/tabwriter"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

const scale = 0.2 // of the noise

// curve returns the mean of an observation at time t.
func curve(z []float64, t float64) float64 {
	return z[0]*math.Exp(-t*math.Exp(-z[1])) + z[2]
}

// prior is that of (a, log τ, c).
var prior = pgsvi.NewIsotropic(3, 25)

// fit returns the posterior of the curve, how the run went, and the log-likelihood.
func fit(ctx context.Context, t, y []float64) (*pgsvi.Gaussian, *pgsvi.Result, pgsvi.LogLik, error) {
	// The log-likelihood of one observation, a Student t with 4 degrees of freedom
	// and scale 0.2. Keep the constants if the ELBO is to be compared with that
	// of another model.
	logNorm := math.Log(3. / 8 / scale)
	ll := pgsvi.LogLik{N: len(y), Dim: 3, LogProb: func(n int, z []float64) float64 {
		r := (y[n] - curve(z, t[n])) / scale
		return logNorm - 2.5*math.Log1p(r*r/4)
	}}

	// The negative ELBO is F + H: the expectation of ll under q, by Monte Carlo,
	// and the divergence of q from the prior N(0, 25 I). There are no step sizes
	// to choose: the Solver takes shorter and shorter steps and averages them,
	// until it estimates to be within 0.002 nats a dimension of the optimum.
	// Converger: pgsvi.GapBelow(0.1, 0) would end the run earlier.
	m := pgsvi.Objective[*pgsvi.Gaussian]{F: pgsvi.Expect(ll, pgsvi.ScoreFunction{Samples: 200}),
		H: pgsvi.KLTo(prior), Init: pgsvi.NewIsotropic(3, 0.1)}
	q, res, err := m.Fit(ctx, &pgsvi.Solver{BatchSize: 50})
	return q, res, ll, err // q has the type of Init
}

func run(ctx context.Context, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 0))
	t, y := generate(100, rng)
	q, res, ll, err := fit(ctx, t, y)
	if err != nil {
		return err
	}
	check := importance(ll, prior, q, 20000, rng)

	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "\ttrue\tq: mean ± sd\timportance sampling\t")
	mean, variance := q.Mean(nil), q.Var(nil)
	for i, name := range names {
		fmt.Fprintf(tw, "%s\t%.3f\t%.4f ± %.4f\t%.4f ± %.4f\t\n", name, truth[i],
			mean[i], math.Sqrt(variance[i]), check.mean[i], check.sd[i])
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Printf("\n%v after %.4g passes in %.2f s\n", res.Status, res.Passes, res.Elapsed.Seconds())
	fmt.Printf("ELBO            %.3f ± %.3f nats, about %.1g below its maximum\n", res.ELBO, res.ELBOErr, res.Gap)
	fmt.Printf("ELBO, anew      %.3f ± %.3f nats from %d draws\n", check.elbo, check.elboErr, check.draws)
	fmt.Printf("log evidence    %.3f ± %.3f nats by importance sampling (the ELBO is a lower bound)\n", check.logEvidence, check.stderr)
	fmt.Printf("effective draws %.0f of %d\n", check.effective, check.draws)
	return nil
}

// generate returns n observations of the true curve, with Student-t noise.
func generate(n int, rng *rand.Rand) (t, y []float64) {
	for range n {
		at := 10 * rng.Float64()
		// A t variate with 4 degrees of freedom: a normal over the root of a
		// χ² with 4 degrees of freedom, divided by 4.
		chi2 := 2 * (rng.ExpFloat64() + rng.ExpFloat64())
		noise := scale * rng.NormFloat64() / math.Sqrt(chi2/4)
		t = append(t, at)
		y = append(y, curve(truth, at)+noise)
	}
	return t, y
}

// importance weights draws from q by p(y, z)/q(z): the weighted draws are from
// the exact posterior, whatever q is, the mean weight is the evidence, and the
// mean of its logarithm is the ELBO of q. It works if q is close to the
// posterior, and effective says whether it is.
func importance(ll pgsvi.LogLik, prior, q pgsvi.Dist, draws int, rng *rand.Rand) estimate {
	e := estimate{mean: make([]float64, q.Dim()), sd: make([]float64, q.Dim()), draws: draws}
	all := ll.Batch(nil) // the sum of all terms
	z := make([][]float64, draws)
	w := make([]float64, draws)
	for i := range z {
		z[i] = q.Rand(nil, rng)
		w[i] = all.LogProb(z[i]) + prior.LogProb(z[i]) - q.LogProb(z[i])
	}
	elbo, sd := stat.MeanStdDev(w, nil)
	e.elbo, e.elboErr = elbo, sd/math.Sqrt(float64(draws))
	sum := floats.LogSumExp(w)
	e.logEvidence = sum - math.Log(float64(draws))
	var squares float64
	for i := range w {
		w[i] = math.Exp(w[i] - sum)
		squares += w[i] * w[i]
		floats.AddScaled(e.mean, w[i], z[i])
	}
	for i := range w {
		for j, m := range e.mean {
			e.sd[j] += w[i] * (z[i][j] - m) * (z[i][j] - m)
		}
	}
	for j := range e.sd {
		e.sd[j] = math.Sqrt(e.sd[j])
	}
	e.effective = 1 / squares
	e.stderr = math.Sqrt(1/e.effective - 1/float64(draws))
	return e
}

// estimate is what importance sampling says of the exact posterior.
type estimate struct {
	mean, sd            []float64
	elbo, elboErr       float64
	logEvidence, stderr float64
	effective           float64 // draws that would be as good, were they from the posterior
	draws               int
}

var (
	names = []string{"a", "log tau", "c"}
	truth = []float64{3, math.Log(2), 0.5}
)

func main() {
	seed := flag.Uint64("seed", 1, "seed of the data and of the check")
	flag.Parse()
	if err := run(context.Background(), *seed); err != nil {
		fmt.Fprintln(os.Stderr, "custom:", err)
		os.Exit(1)
	}
}
