package pgsvi_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// calls returns customers: how often they called, whether they have a contract, and whether they
// left.
func calls() (x *mat.Dense, y []float64) {
	x = mat.NewDense(16, 2, []float64{
		0, 1, 1, 1, 0, 0, 2, 1, 3, 0, 4, 0, 1, 0, 5, 1,
		0, 1, 2, 0, 3, 1, 6, 0, 1, 1, 4, 1, 0, 0, 5, 0,
	})
	y = []float64{-1, -1, -1, -1, 1, 1, -1, 1, -1, -1, -1, 1, -1, 1, 1, 1}
	return x, y
}

// fitCalls fits a logistic regression to calls.
func fitCalls() (*pgsvi.GLM, *pgsvi.GLMPosterior) {
	x, y := calls()
	glm, err := pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{}, &pgsvi.GLMOptions{
		Intercept: true, Names: []string{"calls", "contract=yes"}})
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	return glm, post
}

// A prediction prints as a sentence with the probability and its 95% credible interval.
func ExamplePrediction_String() {
	_, post := fitCalls()
	fmt.Println(post.At(mat.NewDense(2, 2, []float64{2, 1, 6, 0})))
	// Output:
	// 0.29 (0.06 to 0.64)
	// 0.95 (0.66 to 1.00)
}

// The interval of the mean covers the uncertainty of the mean. The interval of a new response also
// includes its noise.
func ExamplePrediction_Interval() {
	// Events of three days, and a prediction for another day.
	x := mat.NewDense(3, 1, []float64{1, 1, 1})
	glm, err := pgsvi.NewGLM(x, []float64{2, 4, 3}, pgsvi.Poisson{}, &pgsvi.GLMOptions{PriorSD: 2})
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	p := post.At(mat.NewDense(1, 1, []float64{1}))
	mean, _, err := p.Moments(nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	lo, hi, err := p.MeanInterval(nil, nil, 0.9)
	if err != nil {
		log.Fatal(err)
	}
	least, most, err := p.Interval(nil, nil, 0.9)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.1f events per day, between %.1f and %.1f; tomorrow %.0f to %.0f\n",
		mean[0], lo[0],
		hi[0], least[0], most[0])
	// Output:
	// 2.9 events per day, between 1.6 and 4.8; tomorrow 0 to 7
}

// One fit to labels predicts how many of several trials succeed.
func ExamplePrediction_Trials() {
	_, post := fitCalls()
	x := mat.NewDense(1, 2, []float64{2, 1})
	// Ten customers with the same features.
	fmt.Println(post.At(x).Trials([]float64{10}))
	// Output:
	// 2.9 (0.6 to 6.4), a new response 0 to 7
}

// The response is a mean of nine measurements, so its noise has a ninth of the variance.
func ExamplePrediction_Precision() {
	p := pgsvi.NewPrediction(pgsvi.GaussianNoise{Var: 9}, []float64{5}, []float64{1})
	fmt.Println(p)
	fmt.Println(p.Precision([]float64{9}))
	// Output:
	// 5.0 (3.0 to 7.0), a new response -1 to 11
	// 5.0 (3.0 to 7.0), a new response 2.2 to 7.8
}

// Why do customers leave? Explain returns the contribution of each column to the log odds, relative
// to the mean row.
func ExampleGLMPosterior_Explain() {
	_, post := fitCalls()
	e, err := post.Explain([]float64{6, 0}, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(e)
	// Output:
	// calls     +3.9 ± 1.5  odds ×49.3
	// contract  +0.4 ± 0.4   odds ×1.46
	// log odds 3.94; −0.34 at the base row
}

// How much does the probability change with a column, on average over the rows?
func ExampleGLMPosterior_MarginalEffects() {
	_, post := fitCalls()
	x, _ := calls()
	e, err := post.MarginalEffects(x, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(e)
	// Output:
	// effect on P(y = +1), mean of 16 rows
	// calls         +0.120 ± 0.018
	// contract=yes  −0.10 ± 0.11
}

// Is a simpler model good enough? LOO estimates how well each model predicts, and CompareLOO gives
// the difference with its error.
func ExampleCompareLOO() {
	ctx := context.Background()
	x, y := calls()
	loo := func(name string, x mat.Matrix) *pgsvi.LOO {
		glm, err := pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{}, &pgsvi.GLMOptions{Intercept: true})
		if err != nil {
			log.Fatal(err)
		}
		post, _, err := glm.Fit(ctx, nil)
		if err != nil {
			log.Fatal(err)
		}
		l, err := glm.LOO(ctx, post)
		if err != nil {
			log.Fatal(err)
		}
		l.Name = name
		return l
	}
	all := loo("all columns", x)
	c, err := pgsvi.CompareLOO(all, loo("without calls", x.Slice(0, 16, 1, 2)),
		loo("without contract", x.Slice(0, 16, 0, 1)))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(c)
	for _, d := range c.Rows {
		fmt.Printf("%s: %.1f standard errors\n", d.Name, math.Abs(d.Diff)/d.SE)
	}
	// Output:
	// all columns       −8.2        elpd
	// without calls     −3.5 ± 3.4  about the same
	// without contract  −0.4 ± 0.7  about the same
	// without calls: 1.0 standard errors
	// without contract: 0.8 standard errors
}

// Do the probabilities match the frequencies? Each row is predicted from the others.
func ExampleLOO_Calibration() {
	glm, post := fitCalls()
	l, err := glm.LOO(context.Background(), post)
	if err != nil {
		log.Fatal(err)
	}
	c, err := l.Calibration(2)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(c)
	for i, p := range c.Predicted {
		fmt.Println(c.Lo[i] < p && p < c.Hi[i])
	}
	// Output:
	// rows  predicted  observed (95% interval)
	//      8      0.161     0.125 (0.014 to 0.454)
	//      8      0.719     0.750 (0.408 to 0.944)
	// miscalibration 0.0038 nats per row; 0.062 by chance
	// true
	// true
}

// How well does the model predict customers that it has not seen?
func ExampleCrossValidate() {
	x, y := calls()
	p, _, err := pgsvi.CrossValidate(context.Background(), pgsvi.NewEnv(nil, 2), y, 4,
		func(ctx context.Context, train, test []int) (*pgsvi.Prediction, error) {
			xs, ys := pgsvi.SelectRows(x, y, train)
			glm, err := pgsvi.NewGLM(xs, ys, pgsvi.BernoulliLogit{},
				&pgsvi.GLMOptions{Intercept: true})
			if err != nil {
				return nil, err
			}
			post, _, err := glm.Fit(ctx, nil)
			if err != nil {
				return nil, err
			}
			rows, _ := pgsvi.SelectRows(x, nil, test)
			return post.At(rows), nil
		})
	if err != nil {
		log.Fatal(err)
	}
	scores, err := p.Scores(y)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(scores)
	// Output:
	// 16 rows
	// log loss  0.5 ± 0.2
	// accuracy  0.75 ± 0.11
	// AUC       0.84 ± 0.13
	// Brier     0.14 ± 0.06
}

// Scores of counts that were held out.
func ExamplePrediction_Scores() {
	p := pgsvi.NewPrediction(pgsvi.Poisson{}, []float64{0.5, 1, 1.5, 2},
		[]float64{0.1, 0.1, 0.2, 0.2})
	s, err := p.Scores([]float64{2, 1, 6, 9})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(s)
	fmt.Printf("%s %.2f, standard error %.2f\n", s.Names[0], s.Values[0], s.SE[0])
	// Output:
	// 4 rows
	// log loss      2.0 ± 0.3
	// RMSE          1.2 ± 0.3
	// MAE           1.8 ± 0.2
	// R²            0.87 ± 0.08
	// coverage 50%  1.00 ± 0.00
	// coverage 90%  1.00 ± 0.00
	// log loss 2.00, standard error 0.27
}

// Could the model have generated these data? A Poisson model cannot have that many days without an
// event next to that many days with ten.
func ExampleGLM_PredictiveCheck() {
	x := mat.NewDense(12, 1, []float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})
	y := []float64{0, 0, 0, 0, 1, 0, 9, 0, 12, 0, 8, 0}
	glm, err := pgsvi.NewGLM(x, y, pgsvi.Poisson{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	post, _, err := glm.Fit(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	check, err := glm.PredictiveCheck(ctx, nil, post, 1000, nil)
	if err != nil {
		log.Fatal(err)
	}
	for i, name := range check.Names {
		fmt.Printf("%s %.1f, in the data %.1f, unlikely: %t\n", name, check.Mean[i],
			check.Observed[i], check.P[i] < 0.025 || check.P[i] > 0.975)
	}
	// Output:
	// mean 2.4, in the data 2.5, unlikely: false
	// sd 1.5, in the data 4.2, unlikely: true
	// max 5.2, in the data 12.0, unlikely: true
	// share of 0 0.1, in the data 0.7, unlikely: true
}

// Which documents are similar to a new document?
func ExampleLDAPosterior_Similar() {
	c := &pgsvi.Corpus{Vocab: []string{"loan", "bank", "rate", "ship", "sea", "wind"}, Terms: 6,
		Docs: []pgsvi.Document{
			{Words: []int{0, 1, 2}, Counts: []float64{9, 5, 4}},
			{Words: []int{3, 4, 5}, Counts: []float64{7, 5, 6}},
			{Words: []int{0, 2, 3, 4}, Counts: []float64{5, 4, 5, 6}},
		}}
	lda, err := pgsvi.NewLDA(c, 2, nil)
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := lda.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	index, distance, err := post.Similar(
		pgsvi.Document{Words: []int{1, 2}, Counts: []float64{8, 8}}, 2)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("documents %v at %.1f\n", index, distance)
	// Output:
	// documents [0 2] at [0.0 0.5]
}

// Is a Gaussian q close enough to the posterior? PSIS weights draws of q by p(y, z)/q(z). The tail
// of the weights shows whether q is close enough, and the weights correct its errors.
func ExampleGLM_PSIS() {
	// Events of five days.
	x := mat.NewDense(5, 1, []float64{1, 1, 1, 1, 1})
	glm, err := pgsvi.NewGLM(x, []float64{2, 0, 1, 0, 0}, pgsvi.Poisson{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	post, res, err := glm.Fit(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	p, err := glm.PSIS(ctx, nil, post, 10000)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("k̂ = %.1f, reliable up to %.1f\n", p.KHat, p.Limit)
	fmt.Printf("log evidence %.3f, at least the ELBO %.3f\n", p.LogZ, res.ELBO)
	fmt.Printf("log rate %.2f ± %.2f, q has %.2f ± %.2f\n", p.Mean[0], p.SD[0], post.Mean(nil)[0],
		post.SD(nil)[0])
	// Output:
	// k̂ = 0.6, reliable up to 0.7
	// log evidence -6.057, at least the ELBO -6.069
	// log rate -0.48 ± 0.49, q has -0.48 ± 0.47
}

// Which of two kernels predicts new data better? LOO needs no refits.
func ExampleGP_LOO() {
	ctx := context.Background()
	x, y := wave()
	for _, length := range []float64{0.1, 1} {
		gp, err := pgsvi.NewGP(x, y, pgsvi.SquaredExp{Length: length, Scale: 2},
			pgsvi.BernoulliLogit{}, nil)
		if err != nil {
			log.Fatal(err)
		}
		post, _, err := gp.Fit(ctx, nil)
		if err != nil {
			log.Fatal(err)
		}
		loo, err := gp.LOO(ctx, post)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("length %.1f: %v\n", length, loo)
	}
	// Output:
	// length 0.1: elpd -25.831 ± 1.9 over 40 observations, error 0.037; 13.1 effective parameters
	// length 1.0: elpd -17.3648 ± 2.7 over 40 observations, error 0.079; 3.66 effective parameters
}

// Which observations matter most? The leverage of an observation is its share of the information
// about its linear predictor, and its influence is how far it moves the posterior.
func ExampleLOO_leverage() {
	ctx := context.Background()
	x := mat.NewDense(6, 1, []float64{0.5, 0.6, 0.7, 0.8, 0.9, 5}) // the last is far out
	y := []float64{0.4, 0.7, 0.6, 0.9, 0.8, 2}
	glm, err := pgsvi.NewGLM(x, y, pgsvi.GaussianNoise{Var: 0.04},
		&pgsvi.GLMOptions{Intercept: true})
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := glm.Fit(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	loo, err := glm.LOO(ctx, post)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("effective parameters %.2f of %d\n", loo.Parameters, post.Dim())
	worst := slices.Index(loo.Influence, slices.Max(loo.Influence))
	fmt.Printf("row %d: leverage %.2f, moves the posterior by %.0f nats\n", worst,
		loo.Leverage[worst], loo.Influence[worst])
	// Output:
	// effective parameters 2.00 of 2
	// row 5: leverage 0.99, moves the posterior by 2 nats
}

// wave returns labels along a line that change twice.
func wave() (*mat.Dense, []float64) {
	x, y := mat.NewDense(40, 1, nil), make([]float64, 40)
	for i := range y {
		at := float64(i) / 8
		x.Set(i, 0, at)
		y[i] = 1
		if math.Sin(2*at)+0.8*math.Sin(77*at) < 0 {
			y[i] = -1
		}
	}
	return x, y
}

// plants returns leaf lengths in cm and heights in m of ashes, +1, and elms. Package data reads
// such tables from text files.
func plants() (x *mat.Dense, y []float64) {
	x = mat.NewDense(18, 2, []float64{
		4.9, 1.2, 5.4, 1.1, 6.1, 1.6, 5, 1.3, 5.2, 1.4, 6.3, 1.2, 7.1, 1.7, 7.7, 1.4, 5.8, 1.5,
		6.6, 1.3, 8.2, 1.5, 6, 1.2, 7.4, 1.1, 5.6, 1.6, 7.9, 1.3, 6.9, 1.4, 5.1, 1.5, 4.6, 1.2,
	})
	y = []float64{-1, -1, -1, -1, -1, 1, 1, 1, -1, -1, 1, 1, 1, -1, 1, 1, -1, -1}
	return x, y
}

// A table of the weights with their names.
func ExampleGLMPosterior_Summary() {
	x, y := plants()
	glm, err := pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{}, &pgsvi.GLMOptions{
		Intercept: true, PriorSD: 2.5, Autoscale: true, Names: []string{"leaf", "height"},
	})
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(post.Summary())
	// Output:
	// BernoulliLogit, 18 rows, 3 weights, full covariance
	//                 mean      sd      2.5%   97.5%
	// (Intercept)  -9.787   5.533   -20.631   1.057
	// leaf          2.8840  0.8928    1.1341  4.6339 *
	// height       -6.156   3.961   -13.919   1.606
	// * zero is outside the interval from 2.5% to 97.5%
}

// A saved posterior predicts the same as before, and can be updated with more data.
func ExampleGLMPosterior_Save() {
	x, y := plants()
	glm, err := pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{},
		&pgsvi.GLMOptions{Intercept: true, Autoscale: true})
	if err != nil {
		log.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer // or what os.Create returns
	if err := post.Save(&file); err != nil {
		log.Fatal(err)
	}
	loaded, err := pgsvi.Load[*pgsvi.GLMPosterior](&file)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(loaded.At(x).Prob(nil, +1)[0] == post.At(x).Prob(nil, +1)[0])
	more, err := loaded.Update(context.Background(), pgsvi.Rows(x, y))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(loaded.Len(), "rows, then", more.Len())
	// Output:
	// true
	// 18 rows, then 36
}
