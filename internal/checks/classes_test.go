package checks

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/score"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// irisClasses returns iris with standardized columns.
func irisClasses(t testing.TB) (*mat.Dense, []float64) {
	x, y := loadIris(t)
	n, d := x.Dims()
	for j := range d {
		col := mat.Col(nil, j, x)
		floats.AddConst(-floats.Sum(col)/float64(n), col)
		floats.Scale(math.Sqrt(float64(n))/floats.Norm(col, 2), col)
		x.SetCol(j, col)
	}
	return x, y
}

// fitClasses fits a softmax model.
func fitClasses(t testing.TB, x mat.Matrix, y []float64, lik Likelihood, opt *GLMOptions,
	s *Solver) (*GLMPosterior, *Result) {
	t.Helper()
	g, err := NewGLM(x, y, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	post, res, err := g.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return post, res
}

// TestClassesIris compares fits with references from another program, in multi.json and
// multinomial_iris_full.json.
func TestClassesIris(t *testing.T) {
	x, y := irisClasses(t)
	post, res := fitClasses(t, x, y, Softmax{Classes: 3},
		&GLMOptions{Intercept: true, ClassNames: []string{"setosa", "versicolor", "virginica"}},
		nil)
	if want := -43.097335; !(math.Abs(res.ELBO-want) < 1e-5) || res.Status != Converged {
		t.Errorf("%v, want an ELBO of %v", res, want)
	}
	// A full covariance has an ELBO of −43.09414. The bound must be above this value, but not by
	// much.
	if lost := -43.09414 - res.ELBO; res.Scope != OverLargerFamily ||
		!(res.GapBound > lost && res.GapBound < 2.1*lost) {
		t.Errorf("a gap of %v is proved %v, and a full covariance gains %v", res.GapBound,
			res.Scope, lost)
	}
	if !(res.ELBOErr > 0 && res.ELBOErr < 1e-7) { // about 1e-11 per class and row
		t.Errorf("the ELBO is known to %v", res.ELBOErr)
	}
	first := 0
	for _, it := range res.Trace {
		if first++; it.ELBO > res.ELBO-0.01 {
			break
		}
	}
	if first > 6 { // 8 when starting from the prior and the mode of the means
		t.Errorf("%d passes to 0.01 nats", first)
	}
	// The posterior with a full covariance has about these standard deviations.
	want := []float64{-1.1750085015760376, 1.2585785686025723, -2.096205097209212,
		-1.9608290411616347, -0.3437947837059258}
	for j, m := range post.Mean(nil)[:5] {
		if !(math.Abs(m-want[j]) < 0.02) {
			t.Errorf("weight %d of the first class has mean %v, want %v", j, m, want[j])
		}
	}
	if name := post.Summary().Rows[1].Name; name != "class=setosa · x1" {
		t.Errorf("the second row of the summary is %q", name)
	}
	// Probabilities must sum to 1, and draws of the weights must have the right means.
	p := post.At(x)
	probs := p.Probs()
	draws := mat.NewDense(4000, post.Dim(), nil)
	if err := post.RandWeights(draws, rand.New(rand.NewPCG(1, 2))); err != nil {
		t.Fatal(err)
	}
	sd := p.ProbSD(nil, 1)
	for _, i := range []int{0, 70, 77, 133} {
		if s := floats.Sum(probs.RawRowView(i)); !(math.Abs(s-1) < 1e-8) {
			t.Errorf("the probabilities of row %d sum to %v", i, s)
		}
		row := append(mat.Row(nil, i, x), 1)
		var sum, square float64
		for k := range 4000 {
			var eta [3]float64
			for c := range eta {
				eta[c] = floats.Dot(row, draws.RawRowView(k)[c*5:(c+1)*5])
			}
			q := math.Exp(eta[1] - floats.LogSumExp(eta[:]))
			sum, square = sum+q/4000, square+q*q/4000
		}
		if got := probs.At(i, 1); !(math.Abs(got-sum) < 0.01) {
			t.Errorf("row %d has probability %v of class 1, and %v by draws", i, got, sum)
		}
		if drawn := math.Sqrt(square - sum*sum); !(math.Abs(sd[i]-drawn) < 0.05*drawn+1e-4) {
			t.Errorf("row %d has probability sd %v of class 1, and %v by draws", i, sd[i], drawn)
		}
	}
	// The variances of the contrasts must match their covariance and draws.
	cov, sds := post.Cov(), post.SD(nil)
	for j, s := range sds {
		if got := cov.At(j, j); !(math.Abs(got-s*s) < 1e-12*got) {
			t.Errorf("weight %d has variance %v and sd %v", j, got, s)
		}
		col := mat.Col(nil, j, draws)
		if _, v := score.MeanVariance(col); !(math.Abs(v-s*s) < 0.15*s*s) {
			t.Errorf("weight %d has variance %v, and %v by draws", j, s*s, v)
		}
	}
	var buf bytes.Buffer
	if err := post.Save(&buf); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load[*GLMPosterior](&buf)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := loaded.Summary().String(), post.Summary().String(); a != b ||
		!mat.Equal(loaded.At(x).Probs(), probs) {
		t.Errorf("loaded, it is another:\n%s\n%s", a, b)
	}
}

func TestClassesDigits(t *testing.T) {
	x, y := testkit.ReadCSV(t, testkit.Open(t, testkit.SharedData(t)+"/digits/digits_train.csv.gz"))
	post, res := fitClasses(t, x, y, Softmax{}, &GLMOptions{Intercept: true}, &Solver{Goal: 1e-5})
	if want := -391.22560281197104; !(math.Abs(res.ELBO-want) < 1e-4) {
		t.Errorf("ELBO %v, want %v", res.ELBO, want)
	}
	xt, yt := testkit.ReadCSV(t,
		testkit.Open(t, testkit.SharedData(t)+"/digits/digits_test.csv.gz"))
	s, err := post.At(xt).Scores(yt)
	if err != nil {
		t.Fatal(err)
	}
	loss, _ := s.Value("log loss")
	right, _ := s.Value("accuracy")
	if !(math.Abs(loss/math.Ln2-0.1772406589991916) < 1e-3) ||
		!(math.Abs(1-right-0.027816411682892908) < 1e-9) {
		t.Errorf("%v bits and %v errors", loss/math.Ln2, 1-right)
	}
}

// TestClassesTwo checks that two classes equal BernoulliLogit with weights w_1 − w_0.
func TestClassesTwo(t *testing.T) {
	x, y := irisClasses(t)
	two, sign := make([]float64, len(y)), make([]float64, len(y))
	for i, c := range y {
		two[i], sign[i] = score.Indicator(c == 1), testkit.PlusMinus(c == 1)
	}
	offset, each := make([]float64, len(y)), make([]float64, 2*len(y))
	weights := make([]float64, len(y))
	for i := range y {
		offset[i], weights[i] = math.Sin(float64(i)), float64(i%3)
		each[2*i] = 0.5
		each[2*i+1] = 0.5 + offset[i]
	}
	s := &Solver{Goal: 1e-9}
	post, res := fitClasses(t, x, two, Softmax{Classes: 2},
		&GLMOptions{Intercept: true, Offset: each, Weights: weights}, s)
	want, ref := fitClasses(t, x, sign, BernoulliLogit{},
		&GLMOptions{Intercept: true, PriorSD: math.Sqrt2, InterceptSD: 10 * math.Sqrt2,
			Offset: offset, Weights: weights}, s)
	if !(math.Abs(res.ELBO-ref.ELBO) < 1e-8) {
		t.Errorf("ELBO %v, want %v", res.ELBO, ref.ELBO)
	}
	a, b := post.At(x), want.At(x)
	pa, pb := a.Prob(nil, 1), b.Prob(nil, 1)
	sa, sb := a.ProbSD(nil, 1), b.ProbSD(nil, 1)
	for i := range pa {
		if !(math.Abs(pa[i]-pb[i]) < 1e-5) || !(math.Abs(sa[i]-sb[i]) < 1e-5) {
			t.Fatalf("row %d: %v ± %v, want %v ± %v", i, pa[i], sa[i], pb[i], sb[i])
		}
	}
	m, sd := post.Mean(nil), post.SD(nil) // half of the difference
	for j, w := range want.Mean(nil) {
		if s := want.SD(nil)[j]; !(math.Abs(2*m[5+j]-w) < 1e-4*s) ||
			!(math.Abs(2*sd[5+j]-s) < 1e-4*s) {
			t.Errorf("weight %d: %v ± %v, want %v ± %v", j, 2*m[5+j], 2*sd[5+j], w, s)
		}
	}
}

// TestClassesTwoWeights compares two classes with the logit if the weights of rows differ by
// factors of 10⁸ and the first column has units of up to 10⁷. Such runs once stalled up to 10⁵
// nats below the logit, or ended at its ELBO with a Gap of +Inf.
func TestClassesTwoWeights(t *testing.T) {
	for _, c := range []struct {
		seed, label uint64
		unit        float64
	}{{231, 1, 1}, {77, 2, 1}, {39, 1, 1e7}, {107, 3, 1e3}, {141, 3, 1e7}, {298, 0, 1e7},
		{395, 3, 1e3}, {412, 1, 1e3}, {508, 0, 1e3}, {531, 2, 1e7}, {756, 2, 1e3}, {737, 3, 1}} {
		rng := rand.New(rand.NewPCG(c.seed, c.label))
		n, d := 2+rng.IntN(20), 1+rng.IntN(4)
		x := testkit.NormalMatrix(rng, n, d)
		y, sign, weights := make([]float64, n), make([]float64, n), make([]float64, n)
		for i := range n {
			x.Set(i, 0, c.unit*x.At(i, 0))
			switch c.label {
			case 0:
				y[i] = float64(rng.IntN(2))
			case 2:
				y[i] = score.Indicator(x.At(i, 0) > 0)
			case 3:
				y[i] = float64(i % 2)
			}
			sign[i], weights[i] = testkit.PlusMinus(y[i] == 1), math.Exp(10*rng.NormFloat64())
		}
		opt := GLMOptions{Weights: weights, Intercept: rng.IntN(2) == 0}
		_, res := fitClasses(t, x, y, Softmax{Classes: 2}, &opt, nil)
		opt.PriorSD, opt.InterceptSD = math.Sqrt2, 10*math.Sqrt2
		_, want := fitClasses(t, x, sign, BernoulliLogit{}, &opt, nil)
		if !(math.Abs(res.ELBO-want.ELBO) < 1e-6+1e-12*math.Abs(want.ELBO)) ||
			res.Status != Converged || !(res.Gap < 1e-3) {
			t.Errorf("seed %d, labels %d, unit %v: %v with a gap of %v, want %v", c.seed, c.label,
				c.unit, res, res.Gap, want)
		}
	}
}

// TestClassesWidePrior checks classes that a plane separates, under a prior that is far wider
// than the labels require. The scores must grow as large as the prior allows. The run must not
// end with small scores and a small Gap.
func TestClassesWidePrior(t *testing.T) {
	const n = 12
	for _, c := range []struct {
		classes int
		sd      float64
		label   func(i int) int
	}{
		{2, 1e3, func(int) int { return 0 }},
		{2, 1e5, func(i int) int { return i / 6 }},
		{3, 200, func(int) int { return 2 }},
		{5, 100, func(i int) int { return i / 6 }},
	} {
		x, y, sign := mat.NewDense(n, 2, nil), make([]float64, n), make([]float64, n)
		for i := range n {
			x.SetRow(i, []float64{float64(2*i - 11), 3})
			y[i] = float64(c.label(i))
			sign[i] = testkit.PlusMinus(y[i] == 1)
		}
		_, res := fitClasses(t, x, y, Softmax{Classes: c.classes}, &GLMOptions{PriorSD: c.sd}, nil)
		_, long := fitClasses(t, x, y, Softmax{Classes: c.classes}, &GLMOptions{PriorSD: c.sd},
			&Solver{Goal: 1e-9, MaxPasses: 1000})
		want := long.ELBO
		if c.classes == 2 {
			_, ref := fitClasses(t, x, sign, BernoulliLogit{},
				&GLMOptions{PriorSD: math.Sqrt2 * c.sd}, nil)
			want = ref.ELBO
		}
		if !(math.Abs(res.ELBO-want) < 1e-4) || res.Status != Converged || res.Passes > 100 {
			t.Errorf("%d classes, a prior sd of %v: %v, want %v", c.classes, c.sd, res, want)
		}
	}
}

// TestClassesPredictiveCheck draws the shares of classes. Their means must match the
// probabilities, and their spread must be at least multinomial. The check must reject labels that
// do not come from the model.
func TestClassesPredictiveCheck(t *testing.T) {
	x, y := irisClasses(t)
	n := len(y)
	weights, offset := make([]float64, n), make([]float64, 3*n)
	for i := range y {
		weights[i] = float64(1 + i%3)
	}
	for i := range offset {
		offset[i] = math.Sin(float64(i))
	}
	lik, ctx := Softmax{Classes: 3}, context.Background()
	opt := &GLMOptions{Intercept: true, ClassNames: []string{"a", "b", "c"}, Weights: weights,
		Offset: offset}
	g, err := NewGLM(x, y, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := g.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	second := map[string]func([]float64) float64{
		"class of the second row": func(y []float64) float64 { return y[1] }}
	const draws = 4000
	check, err := g.PredictiveCheck(ctx, nil, post, draws, second)
	if err != nil {
		t.Fatal(err)
	}
	probs, total := post.At(x).Offset(offset).Probs(), floats.Sum(weights)
	for c, name := range []string{"share of class=a", "share of class=b", "share of class=c"} {
		want, seen := 0.0, 0.0
		for i, w := range weights {
			want += w * probs.At(i, c) / total
			seen += w * score.Indicator(y[i] == float64(c)) / total
		}
		lo, observed, hi := check.Lo[c], check.Observed[c], check.Hi[c]
		if check.Names[c] != name || !(math.Abs(observed-seen) < 1e-12) ||
			!(math.Abs(check.Mean[c]-want) < 0.002) || !(lo < observed && observed < hi) ||
			!(hi-lo < 0.1) {
			t.Errorf("%v, want %s, %v, a mean of %v", check, name, seen, want)
		}
	}
	if want := probs.At(1, 1) + 2*probs.At(1, 2); len(check.Names) != 4 ||
		check.Observed[3] != 0 || !(math.Abs(check.Mean[3]-want) < 0.02) {
		t.Errorf("%v, want a mean of %v", check, want)
	}
	other := make([]float64, n) // all labels have the same class
	h, err := NewGLM(x, other, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	if check, err = h.PredictiveCheck(ctx, nil, post, 200, nil); err != nil || check.P[0] != 0 {
		t.Errorf("labels of one class: %v, %v", check, err)
	}
}

// TestClassesSame checks that the order of the classes, the number of workers, and offsets that
// all classes share do not change the fit.
func TestClassesSame(t *testing.T) {
	x, y := testkit.Shorter(irisClasses, irisPart)(t)
	n := len(y)
	fit := func(y []float64, opt GLMOptions, s Solver) float64 {
		opt.Intercept, s.MaxPasses, s.Goal = true, 14, 1e-12
		_, res := fitClasses(t, x, y, Softmax{Classes: 3}, &opt, &s)
		return res.ELBO
	}
	want := fit(y, GLMOptions{}, Solver{})
	if got := fit(y, GLMOptions{}, Solver{Workers: 2}); got != want {
		t.Errorf("two workers: %v, want %v", got, want)
	}
	other, same := make([]float64, n), make([]float64, 3*n)
	for i, c := range y {
		other[i] = math.Mod(c+1, 3)
		for c := range 3 {
			same[3*i+c] = float64(i % 7)
		}
	}
	if got := fit(other, GLMOptions{}, Solver{}); !(math.Abs(got-want) < 1e-10) {
		t.Errorf("other classes: %v, want %v", got, want)
	}
	if got := fit(y, GLMOptions{Offset: same}, Solver{}); !(math.Abs(got-want) < 1e-9) {
		t.Errorf("the same offset: %v, want %v", got, want)
	}
	// A row of weight 2 counts as two equal rows.
	twice, weights := mat.NewDense(2*n, 4, nil), make([]float64, n)
	for i := range 2 * n {
		twice.SetRow(i, x.RawRowView(i%n))
	}
	for i := range weights {
		weights[i] = 2
	}
	s := &Solver{MaxPasses: 14, Goal: 1e-12}
	_, a := fitClasses(t, x, y, Softmax{}, &GLMOptions{Weights: weights}, s)
	_, b := fitClasses(t, twice, append(slices.Clone(y), y...), Softmax{}, nil, s)
	if !(math.Abs(a.ELBO-b.ELBO) < 1e-9*math.Abs(b.ELBO)) {
		t.Errorf("weights of 2: %v, rows twice: %v", a.ELBO, b.ELBO)
	}
}

// TestClassesFew fits classes that never occur, a single class, fewer rows than columns, and no
// rows.
func TestClassesFew(t *testing.T) {
	x, y := irisClasses(t)
	for _, c := range []struct {
		name string
		x    mat.Matrix
		y    []float64
		k    int
	}{
		{"an empty class", x, y, 5},
		{"constant labels", x, make([]float64, len(y)), 3},
		{"fewer rows than columns",
			mat.NewDense(2, 6, []float64{1, 2, 3, 4, 5, 6, 3, 1, 4, 1, 5, 9}), []float64{0, 2}, 4},
		{"a row", mat.NewDense(1, 1, []float64{1e4}), []float64{1}, 2},
		{"thirty classes", x.Slice(0, 60, 0, 2), floats.Span(make([]float64, 60), 0, 59), 60},
	} {
		post, res := fitClasses(t, c.x, c.y, Softmax{Classes: c.k}, &GLMOptions{Intercept: true},
			&Solver{Goal: 1e-6})
		if res.Status != Converged || math.IsNaN(res.ELBO) || !(res.ELBOErr < 1e-6) {
			t.Errorf("%s: %v", c.name, res)
		}
		probs := post.At(c.x).Probs()
		for i := range c.y {
			if s := floats.Sum(probs.RawRowView(i)); !(math.Abs(s-1) < 1e-8) {
				t.Errorf("%s: the probabilities of row %d sum to %v", c.name, i, s)
			}
		}
	}
	g, err := NewGLM(NewSparse(2), nil, Softmax{Classes: 3}, nil)
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := g.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if p := post.At(mat.NewDense(1, 2, []float64{1, 2})).Prob(nil,
		1); !(math.Abs(p[0]-1./3) < 1e-9) {
		t.Errorf("without rows a class has probability %v", p)
	}
}

// TestClassesResume checks that a run that is saved and resumed has the same bits as an
// uninterrupted run.
func TestClassesResume(t *testing.T) {
	x, y := testkit.Shorter(irisClasses, irisPart)(t)
	g, err := NewGLM(x, y, Softmax{}, &GLMOptions{Intercept: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for _, passes := range testkit.Few([]float64{2, 1, 8}, 1) {
		_, whole, err := g.Fit(ctx, &Solver{MaxPasses: 12})
		if err != nil {
			t.Fatal(err)
		}
		_, part, err := g.Fit(ctx, &Solver{MaxPasses: passes})
		if err != nil {
			t.Fatal(err)
		}
		var buf bytes.Buffer
		if err := part.Save(&buf); err != nil {
			t.Fatal(err)
		}
		s := &Solver{MaxPasses: 12}
		loaded, err := s.LoadResult(ctx, &buf, g)
		if err != nil {
			t.Fatal(err)
		}
		again, err := s.Resume(ctx, loaded)
		if err != nil {
			t.Fatal(err)
		}
		if again.ELBO != whole.ELBO {
			t.Errorf("resumed after %v passes: %v, want %v", passes, again.ELBO, whole.ELBO)
		}
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := g.Fit(canceled, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	// The steps of the paper must reach the same optimum.
	_, best, err := g.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, res, err := g.Fit(ctx, &Solver{StepSize: ConstantStep(0.5), MaxPasses: 200})
	if err != nil {
		t.Fatal(err)
	}
	if !(res.ELBO > best.ELBO-1e-3) {
		t.Errorf("steps of the paper: %v, want %v", res.ELBO, best.ELBO)
	}
}

// TestClassesSeparable checks classes that planes separate, under a wide prior. Precisions that
// are far too large in some direction must not end the run.
func TestClassesSeparable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	x, y := mat.NewDense(300, 4, nil), make([]float64, 300)
	for i := range y {
		y[i] = float64(i % 3)
		for j := range 4 {
			x.Set(i, j, 0.3*rng.NormFloat64())
		}
		x.Set(i, i%3, x.At(i, i%3)+4)
	}
	_, res := fitClasses(t, x, y, Softmax{}, &GLMOptions{PriorSD: 30}, nil)
	if !(res.ELBO > -7.7864) || res.Status != Converged {
		t.Errorf("%v, want an ELBO of −7.7863", res)
	}
}

func TestClassesRefused(t *testing.T) {
	x, y := irisClasses(t)
	nan := append([]float64(nil), y...)
	nan[7] = math.NaN()
	half := append([]float64(nil), y...)
	half[7] = 0.5
	for _, c := range []struct {
		name string
		y    []float64
		lik  Softmax
		opt  GLMOptions
		want error
	}{
		{"one class", y, Softmax{Classes: 1}, GLMOptions{}, ErrParam},
		{"a negative number", y, Softmax{Classes: -2}, GLMOptions{}, ErrParam},
		{"one label", make([]float64, len(y)), Softmax{}, GLMOptions{}, ErrLabel},
		{"a label out of range", y, Softmax{Classes: 2}, GLMOptions{}, ErrLabel},
		{"half a label", half, Softmax{}, GLMOptions{}, ErrLabel},
		{"NaN", nan, Softmax{}, GLMOptions{}, ErrNotFinite},
		{"too many", y, Softmax{Classes: 1e9}, GLMOptions{}, ErrMemory},
		{"diagonal", y, Softmax{}, GLMOptions{Covariance: DiagonalCovariance}, ErrParam},
		{"low rank", y, Softmax{}, GLMOptions{Covariance: LowRankCovariance}, ErrParam},
		{"appendix", y, Softmax{}, GLMOptions{Coordinates: MeanCov}, ErrParam},
		{"an estimator", y, Softmax{}, GLMOptions{Estimator: GaussHermite(0)}, ErrNoEstimator},
		{"offsets of rows", y, Softmax{}, GLMOptions{Offset: make([]float64, len(y))}, ErrShape},
		{"names", y, Softmax{}, GLMOptions{ClassNames: []string{"a"}}, ErrShape},
	} {
		if _, err := NewGLM(x, c.y, c.lik, &c.opt); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// Ten classes with 300 weights need 144 MB, and their bound needs 108 MB.
	wide, ten := mat.NewDense(20, 300, nil), make([]float64, 20)
	for most, want := range map[int64]error{200e6: ErrMemory, 300e6: nil} {
		opt := &GLMOptions{MaxMemory: most}
		if _, err := NewGLM(wide, ten, Softmax{Classes: 10}, opt); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v", most, err)
		}
	}
	if _, err := NewGLM(x, y, Poisson{}, &GLMOptions{ClassNames: []string{"a"}}); !errors.Is(err,
		ErrParam) {
		t.Errorf("class names of counts: %v", err)
	}
	post, _ := fitClasses(t, x, y, Softmax{}, nil, nil)
	g, err := NewGLM(x, y, Softmax{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, p, all := context.Background(), post.At(x), make([]float64, len(y))
	for name, f := range map[string]func() error{
		"Objective":    func() error { _, err := g.Objective(); return err },
		"CertifyScale": func() error { _, _, err := g.CertifyScale(ctx, 0.1, 10, 1); return err },
		"Stream":       func() error { _, err := post.Stream(); return err },
		"NewGLMStream": func() error {
			_,
				err := NewGLMStream(4, Softmax{Classes: 3}, nil)
			return err
		},
		"Moments":       func() error { _, _, err := p.Moments(nil, nil); return err },
		"Quantile":      func() error { _, err := p.Quantile(nil, 0.5); return err },
		"MeanInterval":  func() error { _, _, err := p.MeanInterval(nil, nil, 0.9); return err },
		"Interval":      func() error { _, _, err := p.Interval(nil, nil, 0.9); return err },
		"Trials":        func() error { return p.Trials(all).Err() },
		"NewPrediction": func() error { return NewPrediction(Softmax{}, all, all).Err() },
		"blocks": func() error {
			_, _,
				err := g.Fit(ctx, &Solver{BatchSize: 10})
			return err
		},
	} {
		if err := f(); !errors.Is(err, ErrParam) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := g.Fit(ctx, &Solver{Divergence: Euclidean()}); !errors.Is(err, ErrNoProx) {
		t.Errorf("another divergence: %v", err)
	}
	if _, _, err := g.Fit(ctx,
		&Solver{MaxPasses: 3, StepSize: ConstantStep(1), BatchSize: 30}); err != nil {
		t.Errorf("batches of the paper: %v", err)
	}
}

// TestClassesLearn checks that the learned scale maximizes the best ELBO.
func TestClassesLearn(t *testing.T) {
	x, y := irisClasses(t)
	for i := range y { // so that no plane separates the classes and the scale stays small
		if i%7 == 0 {
			y[i] = math.Mod(y[i]+1, 3)
		}
	}
	at := func(sd float64) float64 {
		_, res := fitClasses(t, x, y, Softmax{}, &GLMOptions{Intercept: true, PriorSD: sd},
			&Solver{Goal: 1e-9})
		return res.ELBO
	}
	g, err := NewGLM(x, y, Softmax{}, &GLMOptions{Intercept: true})
	if err != nil {
		t.Fatal(err)
	}
	_, post, res, err := g.Learn(context.Background(), nil, &LearnOptions{NoPrior: true})
	if err != nil {
		t.Fatal(err)
	}
	sd := res.Params[0].Value
	if best := at(sd); !(best > at(1.05*sd)) || !(best > at(sd/1.05)) ||
		!(math.Abs(res.Fit.ELBO-best) < 1e-6) {
		t.Errorf("a scale of %v with ELBO %v: %v, %v, %v there, with one a little smaller and "+
			"one a little larger", sd, res.Fit.ELBO, at(sd/1.05), best, at(1.05*sd))
	}
	if post.Dim() != 15 {
		t.Errorf("%d weights", post.Dim())
	}
}

// irisPart returns every second row of iris.
func irisPart(t testing.TB) (*mat.Dense, []float64) {
	x, y := irisClasses(t)
	var index []int
	for i := 0; i < len(y); i += 2 {
		index = append(index, i)
	}
	part, labels := SelectRows(x, y, index)
	return part.(*mat.Dense), labels
}

// nextClass returns the labels y of three classes with permuted class numbers.
func nextClass(y []float64) []float64 {
	other := make([]float64, len(y))
	for i, c := range y {
		other[i] = math.Mod(c+1, 3)
	}
	return other
}
