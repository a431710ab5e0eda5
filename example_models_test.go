package pgsvi_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// ExampleNewCTMRounds fits topics to documents on two machines, which are simulated by shards here.
func ExampleNewCTMRounds() {
	sport := pgsvi.Document{Words: []int{0, 1}, Counts: []float64{3, 2}}
	money := pgsvi.Document{Words: []int{2, 3}, Counts: []float64{4, 1}}
	machines := [][]pgsvi.Document{slices.Repeat([]pgsvi.Document{sport, money}, 30),
		slices.Repeat([]pgsvi.Document{money}, 40)}
	ctx := context.Background()
	r, err := pgsvi.NewCTMRounds(4, 2, nil)
	for round := 0; err == nil && round <= 5; round++ { // the first round reads a sample
		all := r.Shard()
		for i, docs := range machines {
			part := r.Shard() // in practice, MarshalBinary sends it to a machine and back
			if err = part.Add(ctx, uint64(i), each(docs)); err == nil {
				err = all.Merge(part)
			}
			if err != nil {
				fmt.Println(err)
				return
			}
		}
		_, err = r.Step(all)
	}
	p, err := r.Posterior()
	if err != nil {
		fmt.Println(err)
		return
	}
	topics := p.Topics()
	for k := range 2 {
		fmt.Printf("%.2f\n", topics.RawRowView(k))
	}
	// Unordered output:
	// [0.60 0.40 0.00 0.00]
	// [0.00 0.00 0.80 0.20]
}

func ExampleGP_Learn() {
	x, y := mat.NewDense(40, 1, nil), make([]float64, 40)
	for i := range y {
		x.Set(i, 0, float64(i)/4)
		y[i] = 3*math.Sin(x.At(i, 0)) + 0.1*math.Cos(float64(37*i))
	}
	gp, err := pgsvi.NewGP(x, y, pgsvi.SquaredExp{}, pgsvi.GaussianNoise{}, nil)
	if err != nil {
		panic(err)
	}
	// The length scale is about 1, between 1/3 and 3 with a probability of 97%.
	opt := &pgsvi.LearnOptions{Prior: map[string]pgsvi.Prior{"SquaredExp.Length": {SD: 0.5}}}
	_, post, learned, err := gp.Learn(context.Background(), nil, opt)
	if err != nil {
		panic(err)
	}
	for _, p := range learned.Params {
		fmt.Printf("%s %.1f\n", p.Name, p.Value)
	}
	m, _ := post.At(mat.NewDense(1, 1, []float64{math.Pi / 2})).Latent(nil, nil)
	fmt.Printf("%.1f\n", m[0])
	// Output:
	// SquaredExp.Scale 2.5
	// SquaredExp.Length 1.4
	// GaussianNoise.Var 0.0
	// 3.0
}

// Each class has its own prior standard deviation. The features separate class 0 from the others
// but nothing separates the other two, so their weights are smaller.
func ExampleGLM_Learn_classes() {
	const rows, cols = 200, 6
	x, y := mat.NewDense(rows, cols, nil), make([]float64, rows)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range y {
		score := rng.NormFloat64()
		for j := range cols {
			x.Set(i, j, rng.NormFloat64())
			score += 2 * x.At(i, j) * float64(1-j%2*2)
		}
		if score < 0 {
			y[i] = float64(1 + i%2)
		}
	}
	var blocks []int // class of each column in each class
	for class := range 3 {
		blocks = append(blocks, slices.Repeat([]int{class}, cols)...)
	}
	glm, err := pgsvi.NewGLM(x, y, pgsvi.Softmax{}, &pgsvi.GLMOptions{Blocks: blocks})
	if err != nil {
		panic(err)
	}
	_, _, learned, err := glm.Learn(context.Background(), nil, nil)
	if err != nil {
		panic(err)
	}
	for _, p := range learned.Params {
		fmt.Printf("%s %.1f\n", p.Name, p.Value)
	}
	// Output:
	// GLM.PriorSD[0] 2.6
	// GLM.PriorSD[1] 0.5
	// GLM.PriorSD[2] 0.5
}

func ExampleGPPosterior_Part() {
	x, y := mat.NewDense(60, 1, nil), make([]float64, 60)
	for i := range y {
		year := float64(i) / 4
		x.Set(i, 0, 2000+year)
		y[i] = 50 + 1.5*(year-5) + 2*math.Sin(2*year) + 0.3*math.Cos(float64(37*i*i))
	}
	gp, err := pgsvi.NewGP(x, y, pgsvi.Sum{pgsvi.SquaredExp{}, pgsvi.Linear{}, pgsvi.Constant{}},
		pgsvi.GaussianNoise{}, nil)
	if err != nil {
		panic(err)
	}
	_, post, _, err := gp.Learn(context.Background(), nil, nil)
	if err != nil {
		panic(err)
	}
	slope, variance := post.Part(1, mat.NewDense(1, 1, []float64{1})).Latent(nil, nil)
	fmt.Printf("%.1f ± %.1f per year\n", slope[0], math.Sqrt(variance[0]))
	forecast, _ := post.At(mat.NewDense(1, 1, []float64{2045})).Latent(nil, nil)
	fmt.Printf("%.0f in 2045\n", forecast[0])
	// Output:
	// 1.4 ± 0.3 per year
	// 105 in 2045
}

func ExampleGram() {
	x := mat.NewDense(3, 1, []float64{0, 1, 3})
	k := pgsvi.Sum{pgsvi.SquaredExp{Scale: 2, Length: 1}, pgsvi.White{Scale: 0.1}}
	fmt.Printf("%.4f\n", mat.Formatted(pgsvi.Gram(nil, k, x)))
	// Output:
	// ⎡4.0100  2.4261  0.0444⎤
	// ⎢2.4261  4.0100  0.5413⎥
	// ⎣0.0444  0.5413  4.0100⎦
}

func ExampleProduct() {
	// a yearly rhythm that may change its shape over a decade, and a trend
	k := pgsvi.Sum{
		pgsvi.Product{pgsvi.SquaredExp{Scale: 2, Length: 10}, pgsvi.Periodic{Period: 1}},
		pgsvi.Linear{Scale: 0.1},
	}
	fmt.Printf("%.3f\n", k.Cov([]float64{1}, []float64{3}))
	fmt.Println(len(k.Params()), "parameters")
	// Output:
	// 3.951
	// 6 parameters
}

func ExampleOn() {
	// Column 0 is the day, and columns 1 and 2 are a place.
	k := pgsvi.Sum{
		pgsvi.On{Kernel: pgsvi.Periodic{Period: 7}, Columns: []int{0}},
		pgsvi.On{Kernel: pgsvi.Matern32{Length: 2}, Columns: []int{1, 2}},
	}
	here, there := []float64{1, 0, 0}, []float64{8, 100, 100}
	fmt.Printf("%.3f\n", k.Cov(here, there)) // the same day of the week, far away
	fmt.Println(k.Params()[2].Name)
	// Output:
	// 1.000
	// [0].On.Periodic.Period
}

func ExampleKernel() {
	var k pgsvi.Kernel = pgsvi.Sum{pgsvi.Matern52{Scale: 2, Lengths: []float64{1, 10}},
		pgsvi.White{}}
	var values []float64
	for _, p := range k.Params() {
		fmt.Println(p.Name, p.Value)
		values = append(values, p.Value)
	}
	values[2] = 5
	k = k.WithParams(values)
	fmt.Println(k.Params()[2].Value)
	// Output:
	// [0].Matern52.Scale 2
	// [0].Matern52.Length[0] 1
	// [0].Matern52.Length[1] 10
	// [1].White.Scale 1
	// 5
}

func ExampleGramGrad() {
	// The gradient of the log marginal likelihood of y ~ N(0, K) is ½ Σ_ij (a_i a_j − K⁻¹_ij)
	// ∂K_ij/∂log θ with a = K⁻¹y.
	x := mat.NewDense(4, 1, []float64{0, 1, 2, 3})
	y := mat.NewVecDense(4, []float64{0.1, 0.9, 0.8, 0.2})
	var k pgsvi.Kernel = pgsvi.Sum{pgsvi.SquaredExp{}, pgsvi.White{Scale: 0.1}}

	var chol mat.Cholesky
	chol.Factorize(pgsvi.Gram(nil, k, x))
	var a mat.VecDense
	var w mat.SymDense
	chol.SolveVecTo(&a, y)
	chol.InverseTo(&w)
	w.ScaleSym(-1, &w)
	w.SymRankOne(&w, 1, &a)
	w.ScaleSym(0.5, &w)
	fmt.Printf("%.3f\n", pgsvi.GramGrad(nil, k, x, &w))
	// Output:
	// [-2.787 1.998 -0.085]
}

// ExampleNewCTMStream learns topics from documents that arrive one by one and are not kept.
func ExampleNewCTMStream() {
	stream, err := pgsvi.NewCTMStream(4, 2, &pgsvi.CTMOptions{Start: pgsvi.StartKMeans})
	if err != nil {
		fmt.Println(err)
		return
	}
	sport := pgsvi.Document{Words: []int{0, 1}, Counts: []float64{3, 2}}
	money := pgsvi.Document{Words: []int{2, 3}, Counts: []float64{4, 1}}
	for range 300 {
		for _, d := range []pgsvi.Document{sport, money} {
			if err := stream.Add(d); err != nil {
				fmt.Println(err)
				return
			}
		}
	}
	post, err := stream.Posterior()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(stream.Len(), "documents")
	topics := post.Topics()
	for k := range 2 {
		fmt.Printf("%.1f\n", topics.RawRowView(k))
	}
	// Unordered output:
	// 600 documents
	// [0.6 0.4 0.0 0.0]
	// [0.0 0.0 0.8 0.2]
}

func ExampleNewLDA() {
	// Documents with two topics, as counts of the words of a vocabulary.
	c := &pgsvi.Corpus{Vocab: strings.Fields("sea ship wind rate bank loan"), Terms: 6}
	for n := range 40 {
		first := 3 * (n % 2)
		c.Docs = append(c.Docs,
			pgsvi.Document{Words: []int{first, first + 1, first + 2},
				Counts: []float64{6, 4, float64(1 + n%3)}})
	}
	m, err := pgsvi.NewLDA(c, 2, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	post, _, err := m.Fit(context.Background(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	words, _ := pgsvi.TopWords(post.Topics(), c, 3, pgsvi.ByProbability)
	slices.SortFunc(words, slices.Compare)
	fmt.Println(words)
	d := pgsvi.Document{Words: []int{0, 2}, Counts: []float64{5, 5}}
	q, err := post.Infer(d)
	if err != nil {
		fmt.Println(err)
		return
	}
	mean, _, _ := q.Proportions(0.9)
	fmt.Printf("%.2f\n", slices.Max(mean))
	// Output:
	// [[rate bank loan] [sea ship wind]]
	// 0.98
}

func ExampleGP_CertifyScale() {
	x, y := mat.NewDense(6, 1, []float64{1, 2, 3, 6, 7, 8}), []float64{1, 1, 1, -1, -1, 1}
	gp, err := pgsvi.NewGP(x, y, pgsvi.SquaredExp{}, pgsvi.BernoulliLogit{}, nil)
	if err != nil {
		panic(err)
	}
	_, best, err := gp.CertifyScale(context.Background(), 0.05, 50, 0.1)
	if err != nil {
		panic(err)
	}
	fmt.Printf("no scale has an ELBO above %.2f + 0.1\n", best.ELBO)
	fmt.Println("proved", best.Scope)
	// Output:
	// no scale has an ELBO above -3.77 + 0.1
	// proved over q and scale
}

func ExampleExpectLogProb() {
	// E[log σ(η)] for η ~ N(1, 4), with the derivatives that variational inference needs.
	e := pgsvi.ExpectLogProb(pgsvi.BernoulliLogit{}, +1, 1, 4)
	fmt.Printf("%.6f %.6f %.6f\n", e.Value, e.D1, e.D2)
	// Output: -0.642495 0.352274 -0.140498
}

// cauchit is p(y|η) = ½ + arctan(yη)/π for y = ±1. LogProb is its only method.
type cauchit struct{}

func (cauchit) LogProb(y, eta float64) float64 { return math.Log(0.5 + math.Atan(y*eta)/math.Pi) }

func (cauchit) Facts() pgsvi.Facts { return pgsvi.Facts{Support: pgsvi.SignLabels} }

func ExampleLikelihood() {
	e := pgsvi.ExpectLogProb(cauchit{}, +1, 1, 4)
	p := pgsvi.NewPrediction(cauchit{}, []float64{1}, []float64{4}).Prob(nil, +1)
	fmt.Printf("%.6f within %.0e: %t\n", e.Value, 1e-12, e.Err < 1e-12)
	fmt.Printf("%.6f\n", p[0])
	// Output:
	// -0.611444 within 1e-12: true
	// 0.635640
}

func ExampleOrdinal() {
	// Answers on a scale from 0 to 4, at a latent value η ~ N(0.3, 0.25).
	l := pgsvi.Ordinal{Cuts: []float64{-2, -0.5, 0.5, 2}}
	p := pgsvi.NewPrediction(l, []float64{0.3}, []float64{0.25})
	for y, prob := range p.Probs().RawRowView(0) {
		fmt.Printf("P(Y = %d) = %.4f\n", y, prob)
	}
	mean, variance, err := p.Moments(nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	median, err := p.Quantile(nil, 0.5)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("mean %.3f, variance %.3f, median %.0f\n", mean[0], variance[0], median[0])
	// Output:
	// P(Y = 0) = 0.0996
	// P(Y = 1) = 0.2197
	// P(Y = 2) = 0.2278
	// P(Y = 3) = 0.2876
	// P(Y = 4) = 0.1653
	// mean 2.199, variance 1.527, median 2
}

func ExampleNegativeBinomial() {
	// The same mean, e^1, for Poisson counts and for overdispersed counts.
	l := pgsvi.NegativeBinomial{Shape: 2}
	mean, variance := l.Moments(1)
	fmt.Printf("%.4f %.4f\n", mean, variance)
	e := pgsvi.ExpectLogProb(l, 3, 1, 0.5)
	fmt.Printf("%.6f %.6f %.6f\n", e.Value, e.D1, e.D2)
	// Output:
	// 2.7183 6.4128
	// -2.274316 0.157368 -1.103653
}

func ExampleSurvival() {
	// Months until a machine fails. The third machine has not failed yet.
	y, err := pgsvi.Survival([]float64{4, 7, 12}, []float64{1, 1, 0})
	if err != nil {
		fmt.Println(err)
		return
	}
	l := pgsvi.Weibull{Shape: 1.5}
	e := pgsvi.ExpectLogProb(l, y[2], 2, 0.1) // log P(Y > 12|η), η ~ N(2, 0.1)
	fmt.Printf("%v %.4f\n", y, e.Value)
	_, err = pgsvi.Survival([]float64{4, 7}, []float64{1, 2})
	fmt.Println(err)
	// Output:
	// [4 7 -12] -2.3160
	// pgsvi: row 1: the event is 2; it must be 1 if it was observed or 0 if the time is censored: label outside the support of the likelihood
}

func ExampleSuccesses() {
	y, err := pgsvi.Successes([]float64{3, 10}, []float64{12, 40})
	if err != nil {
		fmt.Println(err)
		return
	}
	l := pgsvi.BetaBinomial{Precision: 8}
	fmt.Printf("%.4f %.4f\n", math.Exp(l.LogProb(y[0], -1)), math.Exp(l.LogProb(y[1], -1)))
	p := pgsvi.NewPrediction(l, []float64{-1}, []float64{0.04}).Trials([]float64{20})
	mean, variance, err := p.Moments(nil, nil)
	fmt.Printf("%.3f %.3f %v\n", mean[0], variance[0], err)
	// Output:
	// 0.1608 0.0577
	// 5.415 12.806 <nil>
}

func ExampleZeroInflated() {
	// Three counts in ten are additional zeros. The others are Poisson with mean e.
	l := pgsvi.ZeroInflated{Zero: 0.3}
	for y := range 4 {
		fmt.Printf("P(Y = %d) = %.4f\n", y, math.Exp(l.LogProb(float64(y), 1)))
	}
	mean, variance := l.Moments(1)
	fmt.Printf("mean %.3f, variance %.3f\n", mean, variance)
	// Output:
	// P(Y = 0) = 0.3462
	// P(Y = 1) = 0.1256
	// P(Y = 2) = 0.1707
	// P(Y = 3) = 0.1546
	// mean 1.903, variance 3.454
}

func ExampleHurdle() {
	l := pgsvi.Hurdle{Zero: 0.3} // counts above 0 are zero-truncated Poisson
	for y := range 4 {
		fmt.Printf("P(Y = %d) = %.4f\n", y, math.Exp(l.LogProb(float64(y), 1)))
	}
	// Output:
	// P(Y = 0) = 0.3000
	// P(Y = 1) = 0.1344
	// P(Y = 2) = 0.1827
	// P(Y = 3) = 0.1656
}

func ExampleWeibull() {
	p := pgsvi.NewPrediction(pgsvi.Weibull{Shape: 2}, []float64{1}, []float64{0.25})
	median, err := p.Quantile(nil, 0.5)
	fmt.Printf("%.4f %v\n", median[0], err)
	fmt.Printf("P(Y > 5) = %.4f\n", p.Prob(nil, -5)[0])
	// Output:
	// 2.1683 <nil>
	// P(Y > 5) = 0.1214
}

func ExampleLogNormal() {
	p := pgsvi.NewPrediction(pgsvi.LogNormal{Scale: 0.5}, []float64{1}, []float64{0.25})
	median, err := p.Quantile(nil, 0.5)
	fmt.Printf("%.4f %v\n", median[0], err)
	// Output:
	// 2.7183 <nil>
}

func ExampleBeta() {
	p := pgsvi.NewPrediction(pgsvi.Beta{Precision: 12}, []float64{1}, []float64{0.25})
	mean, variance, err := p.Moments(nil, nil)
	fmt.Printf("%.4f %.5f %v\n", mean[0], variance[0], err)
	// Output:
	// 0.7206 0.02417 <nil>
}

func ExampleBetaBinomial() {
	l := pgsvi.BetaBinomial{Trials: 3, Precision: 4}
	for y, p := range pgsvi.NewPrediction(l, []float64{0.5}, []float64{0}).Probs().RawRowView(0) {
		fmt.Printf("P(Y = %d) = %.4f\n", y, p)
	}
	// Output:
	// P(Y = 0) = 0.1109
	// P(Y = 1) = 0.2360
	// P(Y = 2) = 0.3280
	// P(Y = 3) = 0.3251
}

func ExamplePrediction() {
	// Waiting times in days at two desks: a gamma GLM without an intercept.
	x := mat.NewDense(6, 2, []float64{1, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0, 1})
	g, err := pgsvi.NewGLM(x, []float64{1.2, 0.7, 1.6, 5.1, 7.9, 6.4}, pgsvi.Gamma{Shape: 4}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	post, _, err := g.Fit(context.Background(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := post.At(mat.NewDense(2, 2, []float64{1, 0, 0, 1}))
	mean, variance, err := p.Moments(nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	longest, err := p.Quantile(nil, 0.95)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range mean {
		fmt.Printf("desk %d: %.2f ± %.2f days, 95%% within %.2f\n", i, mean[i],
			math.Sqrt(variance[i]), longest[i])
	}
	// Output:
	// desk 0: 1.24 ± 0.73 days, 95% within 2.63
	// desk 1: 6.03 ± 3.51 days, 95% within 12.70
}

// each yields the items of a slice.
func each[R any](rows []R) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// ExampleNewGLMRounds fits a logistic regression to rows on three machines, which are simulated by
// shards here.
func ExampleNewGLMRounds() {
	machines := [][]pgsvi.Row{
		{{Val: []float64{1, 0.5}, Y: 1}, {Val: []float64{1, -0.4}, Y: -1}},
		{{Val: []float64{1, 1.2}, Y: 1}, {Val: []float64{1, -1}, Y: -1}},
		{{Val: []float64{1, 0.1}, Y: -1}, {Val: []float64{1, 0.3}, Y: 1}},
	}
	ctx := context.Background()
	r, err := pgsvi.NewGLMRounds(2, pgsvi.BernoulliLogit{}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for proved := false; !proved; {
		all := r.Shard()
		for i, rows := range machines {
			part := r.Shard() // in practice, MarshalBinary sends it to a machine and back
			if err := part.Add(ctx, uint64(i), each(rows)); err != nil {
				fmt.Println(err)
				return
			}
			if err := all.Merge(part); err != nil {
				fmt.Println(err)
				return
			}
		}
		it, err := r.Step(all)
		if err != nil {
			fmt.Println(err)
			return
		}
		proved = it.GapBound <= 1e-6
	}
	p, err := r.Posterior()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("means %.3f of %d rows\n", p.Mean(nil), p.Len())
	// Output:
	// means [-0.068 1.058] of 6 rows
}

// ExampleNewGLMRows fits a logistic regression to more rows than fit into memory. The rows are
// generated here; use a data.RowFile or a data reader for rows of a file.
func ExampleNewGLMRows() {
	rows := func(yield func(pgsvi.Row, error) bool) { // yields the same rows every time
		for i := range 20_000 {
			x := float64(i%7) - 3
			y := -1.0
			if i%5 < i%7 {
				y = 1
			}
			if !yield(pgsvi.Row{Val: []float64{x}, Y: y}, nil) {
				return
			}
		}
	}
	glm, err := pgsvi.NewGLMRows(context.Background(), rows, 1, pgsvi.BernoulliLogit{},
		&pgsvi.GLMOptions{Intercept: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	post, res, err := glm.Fit(context.Background(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(post.Summary())
	fmt.Printf("%v after %.0f passes, proved to be within 0.01 nats: %t\n", res.Status, res.Passes,
		res.GapBound <= 0.01)
	// Output:
	// BernoulliLogit, 20000 rows, 2 weights, full covariance
	//                 mean       sd     2.5%    97.5%
	// (Intercept)  0.64045  0.02246  0.59643  0.68446 *
	// x1           1.25056  0.01636  1.21850  1.28262 *
	// * zero is outside the interval from 2.5% to 97.5%
	//
	// converged after 2 passes, proved to be within 0.01 nats: true
}

// counts is a ConjugateModel without local variables: x_n ~ Poisson(z), for a q over z of the Gamma
// family, T(z) = (log z, z).
type counts struct {
	x    []float64
	fail map[int]error // errors of Local, by term
}

func (c counts) Len() int { return len(c.x) }

func (c counts) Local(dst, mu []float64, n int, weight float64) (float64, error) {
	if err := c.fail[n]; err != nil {
		return 0, err
	}
	dst[0] += weight * c.x[n]
	dst[1] -= weight
	lg, _ := math.Lgamma(c.x[n] + 1)
	return c.x[n]*mu[0] - mu[1] - lg, nil
}

func ExampleConjugate() {
	// These are counts of a Poisson distribution, with a Gamma prior of its rate. The model has no
	// local variables, so one step reaches the posterior.
	prior, _ := pgsvi.NewGamma(2, 0.5)
	o := pgsvi.Objective[*pgsvi.Exp]{F: pgsvi.Conjugate(counts{x: []float64{3, 1, 4, 1, 5}}),
		H:    pgsvi.KLTo(prior),
		Init: prior}
	q, res, err := o.Fit(context.Background(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("shape %.1f, rate %.1f, %v\n", q.Natural(nil)[0]-prior.Natural(nil)[0]+2,
		-q.Natural(nil)[1], res.Status)
	// Output:
	// shape 16.0, rate 5.5, converged
}
