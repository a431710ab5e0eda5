package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/paper"
	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/plot"
	gonum "gonum.org/v1/plot"
)

// The methods. All of them fit the same model and report the exact ELBO of their q.
const (
	exact   = "exact"                      // nil Solver, to the optimum
	laplace = "Laplace"                    // derivatives at the mean of q instead of expectations
	pgsvi10 = "PG-SVI"                     // as published: score function, mini-batches, ten passes
	batches = "PG-SVI, exact expectations" // the same without draws
)

var methods = []string{exact, laplace, pgsvi10, batches}

// atMean replaces an expectation under η ~ N(m, v) by its value at m, and takes the
// derivatives of log p(y|m). The fixed point of its steps is Laplace's approximation.
type atMean struct{ pgsvi.SiteEstimator }

// EstimateSites implements SiteEstimator.
func (atMean) EstimateSites(e, d1, d2 []float64, lik pgsvi.Likelihood, y, m, _ []float64,
	_ *rand.Rand) error {
	d, ok := lik.(pgsvi.Differentiable)
	if !ok {
		return fmt.Errorf("%T has no derivatives", lik)
	}
	for i := range y {
		e[i] = lik.LogProb(y[i], m[i])
		d1[i], d2[i] = d.Derivs(y[i], m[i])
	}
	return nil
}

// A dataSet is a data set with its model.
type dataSet struct {
	name string
	gp   *paper.Problem // nil for a GLM
	// A GLM has these rows.
	x, xTest *pgsvi.Sparse
	y, yTest []float64
}

// readSets reads sonar and ionosphere from testdata, and USPS and a9a from folder.
func readSets(testdata, folder string) ([]*dataSet, error) {
	var sets []*dataSet
	for _, read := range []func() (*paper.Problem, error){
		func() (*paper.Problem, error) { return paper.Ionosphere(testdata) },
		func() (*paper.Problem, error) { return paper.Sonar(testdata) },
		func() (*paper.Problem, error) { return paper.USPS(folder, 2, 4) },
		func() (*paper.Problem, error) { return paper.USPS(folder, 3, 5) },
	} {
		p, err := read()
		if err != nil {
			return nil, err
		}
		sets = append(sets, &dataSet{name: p.Name, gp: p, yTest: p.YTest})
	}
	s := &dataSet{name: "a9a"}
	var err, errTest error
	s.x, s.y, err = readA9a(filepath.Join(folder, "a9a", "a9a.gz"))
	s.xTest, s.yTest, errTest = readA9a(filepath.Join(folder, "a9a", "a9a.t.gz"))
	return append(sets, s), errors.Join(err, errTest)
}

func readA9a(path string) (*pgsvi.Sparse, []float64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return data.ReadLIBSVM(f, 123)
}

// solver returns the Solver of a method for n rows with the settings of PG-SVI.
func solver(method string, n int, betaN float64, batch int, seed int) *pgsvi.Solver {
	switch method {
	case exact:
		return nil
	case laplace:
		return &pgsvi.Solver{StepSize: pgsvi.ConstantStep(1), MaxPasses: 100,
			Converger: pgsvi.ELBOChange(1e-10, 0)}
	}
	s := paper.PGSVI(n, betaN, batch)
	s.Src, s.Converger = rand.NewPCG(uint64(seed), 0), pgsvi.Never()
	return s
}

// estimator returns the estimator of a method. PG-SVI has the estimator published.
func estimator(method string, published pgsvi.SiteEstimator) pgsvi.SiteEstimator {
	switch method {
	case laplace:
		return atMean{pgsvi.Exact()}
	case pgsvi10:
		return published
	}
	return nil
}

// fit fits the model and returns the log probabilities of the test responses in bits.
func (s *dataSet) fit(ctx context.Context, method string, seed int) (*pgsvi.Result, []float64,
	error) {
	if s.gp != nil {
		m, err := s.gp.Model(pgsvi.GPOptions{Estimator: estimator(method, s.gp.ScoreFunction())})
		if err != nil {
			return nil, nil, err
		}
		p := s.gp
		post, res, err := m.Fit(ctx, solver(method, m.Len(), p.BetaN, p.Batch, seed))
		if err != nil {
			return nil, nil, err
		}
		return res, post.At(p.XTest).LogProb(nil, p.YTest), nil
	}
	// The paper has no settings for a9a. These were chosen by hand.
	const betaN, batch = 500, 500
	m, err := pgsvi.NewGLM(s.x, s.y, pgsvi.BernoulliLogit{}, &pgsvi.GLMOptions{
		Estimator: estimator(method, pgsvi.ScoreFunction(200))})
	if err != nil {
		return nil, nil, err
	}
	post, res, err := m.Fit(ctx, solver(method, m.Len(), betaN, batch, seed))
	if err != nil {
		return nil, nil, err
	}
	return res, post.At(s.xTest).LogProb(nil, s.yTest), nil
}

// A fit is a line of predictions.csv.
type fit struct {
	dataset, method string
	seed            int
	passes          float64
	negELBO         float64
	bits            float64 // test log loss per row
	worse, se       float64 // bits minus the bits of exact, and the standard error over test rows
}

func (*fit) header() []string {
	return []string{"dataset", "method", "seed", "passes", "neg_elbo", "test_bits",
		"test_bits_minus_exact", "standard_error"}
}

func (f *fit) fields() []any {
	return []any{&f.dataset, &f.method, &f.seed, &f.passes, &f.negELBO, &f.bits, &f.worse, &f.se}
}

// measure fits every data set by every method, and writes the fits to file.
func measure(ctx context.Context, file string, sets []*dataSet, seeds int,
	progress io.Writer) error {
	var fits []fit
	for _, s := range sets {
		var best []float64
		for _, method := range methods {
			runs := seeds
			if method == exact || method == laplace {
				runs = 1
			}
			for seed := 1; seed <= runs; seed++ {
				res, logp, err := s.fit(ctx, method, seed)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", s.name, method, err)
				}
				if method == exact {
					best = logp
				}
				f := fit{dataset: s.name, method: method, seed: seed, passes: res.Passes,
					negELBO: -res.ELBO}
				f.score(logp, best)
				fits = append(fits, f)
				fmt.Fprintf(progress, "%s, %s: %.3f bits\n", s.name, method, f.bits)
			}
		}
	}
	return writeTable(file, fits)
}

// score sets the scores from the log probabilities logp of the test responses. The method exact has
// the log probabilities best.
func (f *fit) score(logp, best []float64) {
	n := float64(len(logp))
	for i, l := range logp {
		f.bits -= l / math.Ln2 / n
		f.worse += (best[i] - l) / math.Ln2 / n
	}
	for i, l := range logp {
		d := (best[i]-l)/math.Ln2 - f.worse
		f.se += d * d
	}
	f.se = math.Sqrt(f.se / n / (n - 1))
}

// meanOf returns the mean of v over the fits of a data set by a method, and their number.
func meanOf(fits []fit, dataset, method string, v func(fit) float64) (mean float64, n int) {
	for _, f := range fits {
		if f.dataset == dataset && f.method == method {
			mean += v(f)
			n++
		}
	}
	return mean / float64(n), n
}

// datasets returns the names of the data sets in order.
func datasets(fits []fit) (names []string) {
	for _, f := range fits {
		if !slices.Contains(names, f.dataset) {
			names = append(names, f.dataset)
		}
	}
	return names
}

func predictionTable(fits []fit) string {
	var rows [][]string
	for _, d := range datasets(fits) {
		for _, m := range methods {
			mean := func(v func(fit) float64) float64 { x, _ := meanOf(fits, d, m, v); return x }
			row := []string{d, m,
				fmt.Sprintf("%.4g", mean(func(f fit) float64 { return f.passes })),
				fmt.Sprintf("%.2f", mean(func(f fit) float64 { return f.negELBO })),
				fmt.Sprintf("%.4f", mean(func(f fit) float64 { return f.bits })), ""}
			if m != exact {
				more := fmt.Sprintf("%+.4f", mean(func(f fit) float64 { return f.worse }))
				row[5] = fmt.Sprintf("%s ± %.4f", strings.Replace(more, "-", "−", 1),
					mean(func(f fit) float64 { return f.se }))
			}
			rows = append(rows, row)
		}
	}
	return tables.Markdown([]string{"data", "expectations", "passes", "−ELBO, nats",
		"test bits per row", "more than exact"}, rows)
}

// picture draws the differences from exact with two standard errors.
func picture(fits []fit) *gonum.Plot {
	var all []*pgsvi.Summary
	for _, m := range methods[1:] {
		s := &pgsvi.Summary{Likelihood: m}
		for _, d := range datasets(fits) {
			worse, _ := meanOf(fits, d, m, func(f fit) float64 { return f.worse })
			se, _ := meanOf(fits, d, m, func(f fit) float64 { return f.se })
			s.Rows = append(s.Rows, pgsvi.Effect{Name: d, Mean: worse, SD: se,
				Lo: worse - 2*se, Hi: worse + 2*se})
		}
		all = append(all, s)
	}
	return plot.Coefficients(plot.Labels{Title: "Do exact expectations predict better?",
		X: "test bits per row relative to exact expectations (± 2 standard errors)"}, all...)
}
