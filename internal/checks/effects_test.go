package checks

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// glmFile is the kind of file of a GLMPosterior.
var glmFile = save.Kind{Name: "GLMPosterior", Version: 1}

// effectNames names the columns of effectCase: two numbers, a feature with three levels, and a
// yes-or-no feature.
var effectNames = []string{"age", "calls", "plan=gold", "plan=basic", "new"}

// effectCase fits simulated rows with the columns effectNames.
func effectCase(t testing.TB, lik Likelihood, n int, sparse bool, opt GLMOptions) (*GLM,
	*GLMPosterior, mat.Matrix) {
	t.Helper()
	rng := testkit.Rand(uint64(n))
	x, y := mat.NewDense(n, 5, nil), make([]float64, n)
	w := []float64{0.5, -0.4, 0.7, -0.3, 0.4}
	for i := range n {
		x.Set(i, 0, rng.NormFloat64())
		x.Set(i, 1, 1+0.5*rng.NormFloat64())
		if k := rng.IntN(3); k > 0 {
			x.Set(i, 1+k, 1)
		}
		x.Set(i, 4, float64(rng.IntN(2)))
		eta := 0.2 + floats.Dot(w, x.RawRowView(i))
		y[i] = quantile(t, lik, rng.Float64(), eta, 0)
	}
	opt.Intercept, opt.Names = true, effectNames
	var m mat.Matrix = x
	if sparse {
		m = SparseOf(x)
	}
	g, err := NewGLM(m, y, lik, &opt)
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := g.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return g, post, m
}

// effectCovariances holds options for each form of the covariance.
var effectCovariances = map[string]GLMOptions{
	"full":     {},
	"diagonal": {Covariance: DiagonalCovariance},
	"low rank": {Covariance: LowRankCovariance, Rank: 2},
}

// TestExplain checks contributions against their formula and their sum.
func TestExplain(t *testing.T) {
	for name, opt := range effectCovariances {
		for _, sparse := range []bool{false, true} {
			_, post, x := effectCase(t, BernoulliLogit{}, 50, sparse, opt)
			means := make([]float64, 5)
			for j := range means {
				means[j] = stat.Mean(mat.Col(nil, j, x), nil)
			}
			row := mat.Row(nil, 7, x)
			e, err := post.Explain(row, nil)
			if err != nil {
				t.Fatal(err)
			}
			cov, weights := post.Cov(), post.Mean(nil)
			want := map[string]Effect{}
			for column, features := range map[string][]int{"age": {0}, "calls": {1}, "plan": {2, 3},
				"new": {4}} {
				r := Effect{Name: column}
				var v float64
				for _, j := range features {
					r.Mean += (row[j] - means[j]) * weights[j]
					for _, k := range features {
						v += (row[j] - means[j]) * cov.At(j, k) * (row[k] - means[k])
					}
				}
				r.SD = math.Sqrt(v)
				want[column] = r
			}
			var sum float64
			for i, r := range e.Rows {
				w := want[r.Name]
				if math.Abs(r.Mean-w.Mean) > 1e-12 || math.Abs(r.SD-w.SD) > 1e-10 {
					t.Errorf("%s: %+v, want %+v", name, r, w)
				}
				if i > 0 && math.Abs(r.Mean) > math.Abs(e.Rows[i-1].Mean) {
					t.Errorf("%s: not sorted by size: %v", name, e.Rows)
				}
				sum += r.Mean
			}
			m, _ := post.At(mat.NewDense(1, 5, row)).Latent(nil, nil)
			m0, _ := post.At(mat.NewDense(1, 5, means)).Latent(nil, nil)
			if len(e.Rows) != 4 || math.Abs(sum-(m[0]-m0[0])) > 1e-12 ||
				math.Abs(e.Value-m[0]) > 1e-12 || math.Abs(e.Base-m0[0]) > 1e-12 {
				t.Errorf("%s: parts of %v add up to %v, from %v to %v", name, len(e.Rows), sum,
					e.Base, e.Value)
			}
		}
	}
}

// TestExplainMeans checks that the means come from weights, files, updates, streams or options.
func TestExplainMeans(t *testing.T) {
	x := mat.NewDense(3, 1, []float64{1, 2, 9})
	g, err := NewGLM(x, []float64{1, -1, 1}, BernoulliLogit{},
		&GLMOptions{Weights: []float64{3, 1, 0}, Intercept: true})
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := g.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const mean = 1.25 // (3·1 + 2)/4
	at := func(p *GLMPosterior) float64 {
		t.Helper()
		e, err := p.Explain([]float64{3}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return 3 - e.Rows[0].Mean/p.Mean(nil)[0]
	}
	if got := at(post); math.Abs(got-mean) > 1e-12 {
		t.Errorf("mean %v, want %v", got, mean)
	}
	var file bytes.Buffer
	if err := post.Save(&file); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load[*GLMPosterior](bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if got := at(loaded); math.Abs(got-mean) > 1e-12 {
		t.Errorf("mean %v from a file, want %v", got, mean)
	}
	updated, err := loaded.Update(t.Context(), Rows(x, []float64{1, -1, 1}))
	if err != nil {
		t.Fatal(err)
	}
	if got := at(updated); math.Abs(got-mean) > 1e-12 {
		t.Errorf("mean %v after an update, want %v", got, mean)
	}
	// A file without means loads, but Explain then requires a base.
	old, err := Load[*GLMPosterior](
		strings.NewReader(testkit.Changed(t, glmFile, file.String(), `"columnMeans":[1.25]`,
			`"unknown":0`)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Explain([]float64{3}, nil); !errors.Is(err, ErrParam) ||
		!testkit.PrefixedOnce(err) {
		t.Errorf("without means: %v", err)
	}
	if e, err := old.Explain([]float64{3}, &EffectOptions{Base: []float64{3}}); err != nil ||
		e.Rows[0].Mean != 0 || e.Rows[0].SD != 0 {
		t.Errorf("from the row itself: %v %v", e, err)
	}
	for want, text := range map[error]string{ErrShape: `"columnMeans":[1.25,1]`,
		ErrNotFinite: `"columnMeans":["NaN"]`} {
		_, err := Load[*GLMPosterior](
			strings.NewReader(testkit.Changed(t, glmFile, file.String(), `"columnMeans":[1.25]`,
				text)))
		if err == nil || want == ErrShape && !errors.Is(err, want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	stream, err := NewGLMStream(1, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	streamed, err := stream.Posterior()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := streamed.Explain([]float64{3}, nil); !errors.Is(err, ErrParam) {
		t.Errorf("of a stream: %v", err)
	}
	for _, c := range []struct {
		row  []float64
		opt  *EffectOptions
		want error
	}{
		{nil, nil, ErrShape},
		{[]float64{1, 2}, nil, ErrShape},
		{[]float64{math.NaN()}, nil, ErrNotFinite},
		{[]float64{1}, &EffectOptions{Base: []float64{math.Inf(1)}}, ErrNotFinite},
		{[]float64{1}, &EffectOptions{Base: []float64{}}, ErrShape},
		{[]float64{1}, &EffectOptions{Columns: []string{"a", "b"}}, ErrShape},
	} {
		if _, err := post.Explain(c.row, c.opt); !errors.Is(err, c.want) ||
			!testkit.PrefixedOnce(err) {
			t.Errorf("%v, %+v: %v, want %v", c.row, c.opt, err, c.want)
		}
	}
}

// ownPoisson is a Poisson likelihood that declares only its log density and its support.
type ownPoisson struct{}

func (ownPoisson) LogProb(y, eta float64) float64 { return Poisson{}.LogProb(y, eta) }

func (ownPoisson) Facts() Facts { return Poisson{}.Facts() }

// TestMarginalEffects checks effects against differences of the mean prediction. It uses finite
// differences if a feature is a number, and sets the feature if it is 0 or 1.
func TestMarginalEffects(t *testing.T) {
	t.Parallel()
	for _, lik := range testkit.Few([]Likelihood{BernoulliLogit{}, Poisson{}, GaussianNoise{},
		Ordinal{Cuts: []float64{-1, 1}}, Binomial{Trials: 4}, BernoulliProbit{},
		ownPoisson{}}[:testkit.Longer(7, 5)], 2) {
		for name, opt := range effectCovariances {
			_, post, m := effectCase(t, lik, 40, name == "diagonal", opt)
			x := mat.DenseCopyOf(m)
			n, _ := x.Dims()
			offset := make([]float64, n)
			for i := range offset {
				offset[i] = 0.02 * float64(i)
			}
			mean := func(x mat.Matrix) float64 {
				y, _, err := post.At(x).Offset(offset).Moments(nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				if kit.FactsOf(lik).Support == SignLabels {
					return (1 + stat.Mean(y, nil)) / 2
				}
				return stat.Mean(y, nil)
			}
			with := func(set map[int]func(float64) float64) float64 {
				z := mat.DenseCopyOf(x)
				for j, f := range set {
					for i := range n {
						z.Set(i, j, f(z.At(i, j)))
					}
				}
				return mean(z)
			}
			one, zero := func(float64) float64 { return 1 }, func(float64) float64 { return 0 }
			const h = 1e-4
			step := with(map[int]func(float64) float64{4: one}) -
				with(map[int]func(float64) float64{4: zero})
			want := []float64{0, 0, 0, 0, step}
			for j := range 2 {
				up := func(x float64) float64 { return x + h }
				down := func(x float64) float64 { return x - h }
				rise := with(map[int]func(float64) float64{j: up}) -
					with(map[int]func(float64) float64{j: down})
				want[j] = rise / (2 * h)
			}
			reference := with(map[int]func(float64) float64{2: zero, 3: zero})
			want[2] = with(map[int]func(float64) float64{2: one, 3: zero}) - reference
			want[3] = with(map[int]func(float64) float64{2: zero, 3: one}) - reference
			e, err := post.MarginalEffects(m, &EffectOptions{Offset: offset})
			if err != nil {
				t.Fatal(err)
			}
			for j, r := range e.Rows {
				if r.Name != effectNames[j] ||
					math.Abs(r.Mean-want[j]) > 1e-6*(1+math.Abs(want[j])) {
					t.Errorf("%T, %s, %s: %v, want %v", lik, name, r.Name, r.Mean, want[j])
				}
			}
		}
	}
}

// TestMarginalEffectsSD checks standard deviations against 4000 draws of the weights.
func TestMarginalEffectsSD(t *testing.T) {
	t.Parallel()
	for _, lik := range testkit.Few([]Likelihood{BernoulliLogit{}, Poisson{}, GaussianNoise{}}, 1) {
		for name, opt := range effectCovariances {
			_, post, m := effectCase(t, lik, testkit.Longer(150, 80), false, opt)
			x := mat.DenseCopyOf(m)
			n, cols := x.Dims()
			e, err := post.MarginalEffects(x, nil)
			if err != nil {
				t.Fatal(err)
			}
			draws := testkit.Longer(4000, testkit.Shorter(2000, 500))
			w := mat.NewDense(draws, cols+1, nil)
			if err := post.RandWeights(w, testkit.Rand(5)); err != nil {
				t.Fatal(err)
			}
			effects := make([][]float64, cols)
			for s := range draws {
				ws := w.RawRowView(s)
				at := func(eta float64) float64 {
					y, _ := lik.(Responder).Moments(eta)
					if kit.FactsOf(lik).Support == SignLabels {
						return (1 + y) / 2
					}
					return y
				}
				sum := make([]float64, cols)
				for i := range n {
					row := slices.Clone(x.RawRowView(i))
					eta := ws[cols] + floats.Dot(row, ws[:cols])
					const h = 1e-4
					slope := (at(eta+h) - at(eta-h)) / (2 * h)
					sum[0] += slope * ws[0]
					sum[1] += slope * ws[1]
					none := eta - row[2]*ws[2] - row[3]*ws[3]
					sum[2] += at(none+ws[2]) - at(none)
					sum[3] += at(none+ws[3]) - at(none)
					none = eta - row[4]*ws[4]
					sum[4] += at(none+ws[4]) - at(none)
				}
				for j := range sum {
					effects[j] = append(effects[j], sum[j]/float64(n))
				}
			}
			for j, r := range e.Rows {
				within := 0.0
				for _, v := range effects[j] {
					if r.Lo <= v && v <= r.Hi {
						within += 1 / float64(draws)
					}
				}
				if math.Abs(within-0.95) > 4*math.Sqrt(0.95*0.05/float64(draws))+0.01 {
					t.Errorf("%T, %s, %s: %v of the draws are between %v and %v", lik, name, r.Name,
						within, r.Lo, r.Hi)
				}
				mean, sd := stat.MeanStdDev(effects[j], nil)
				if math.Abs(r.SD/sd-1) > 3.2/math.Sqrt(float64(draws)) ||
					math.Abs(r.Mean-mean) > 4*sd/math.Sqrt(float64(draws)) {
					t.Errorf("%T, %s, %s: %v ± %v, by draws %v ± %v", lik, name, r.Name, r.Mean,
						r.SD, mean, sd)
				}
			}
		}
	}
}

// classEffectCase fits a softmax model with the given number of classes to rows with the columns
// effectNames.
func classEffectCase(t testing.TB, classes, n int) (*GLMPosterior, *mat.Dense) {
	t.Helper()
	_, _, m := effectCase(t, GaussianNoise{}, n, false, GLMOptions{})
	x, y, rng := mat.DenseCopyOf(m), make([]float64, n), testkit.Rand(3)
	for i := range y {
		best := math.Inf(-1)
		for c := range classes {
			score := math.Cos(float64(c))*x.At(i, 0) + math.Sin(float64(3*c))*x.At(i, 4) +
				float64(c%2)*x.At(i, 2) - math.Log(rng.ExpFloat64())
			if score > best {
				best, y[i] = score, float64(c)
			}
		}
	}
	g, err := NewGLM(x, y, Softmax{Classes: classes},
		&GLMOptions{Intercept: true, Names: effectNames})
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := g.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return post, x
}

// TestMarginalEffectsClasses checks effects on the probabilities of classes against differences
// of the mean probabilities, and that the effects add up to 0 over the classes.
func TestMarginalEffectsClasses(t *testing.T) {
	t.Parallel()
	for _, classes := range []int{2, 3, 5} {
		post, x := classEffectCase(t, classes, 40)
		n, cols := x.Dims()
		offset := make([]float64, n*classes)
		for i := range offset {
			offset[i] = 0.3 * math.Sin(float64(i))
		}
		// means returns the mean probabilities after the functions in set have changed their
		// columns.
		means := func(set map[int]func(float64) float64) []float64 {
			z := mat.DenseCopyOf(x)
			for j, f := range set {
				for i := range n {
					z.Set(i, j, f(z.At(i, j)))
				}
			}
			p, sum := post.At(z).Offset(offset).Probs(), make([]float64, classes)
			for i := range n {
				floats.AddScaled(sum, 1/float64(n), p.RawRowView(i))
			}
			return sum
		}
		to := func(v float64) func(float64) float64 { return func(float64) float64 { return v } }
		by := func(v float64) func(float64) float64 {
			return func(x float64) float64 {
				return x +
					v
			}
		}
		type sets = map[int]func(float64) float64
		const h = 1e-3
		up := []sets{{0: by(h)}, {1: by(h)}, {2: to(1), 3: to(0)}, {2: to(0), 3: to(1)}, {4: to(1)}}
		down := []sets{{0: by(-h)}, {1: by(-h)}, {2: to(0), 3: to(0)}, {2: to(0), 3: to(0)},
			{4: to(0)}}
		for name, m := range map[string]mat.Matrix{"dense": x, "sparse": SparseOf(x)} {
			e, err := post.MarginalEffects(m, &EffectOptions{Offset: offset})
			if err != nil {
				t.Fatal(err)
			}
			for j := range cols {
				want, total := means(up[j]), 0.0
				floats.Sub(want, means(down[j]))
				if j < 2 {
					floats.Scale(1/(2*h), want)
				}
				for c, w := range want {
					r := e.Rows[c*cols+j]
					total += r.Mean
					if full := post.Names()[c*(cols+1)+j]; r.Name != full ||
						!(math.Abs(r.Mean-w) < 2e-6) {
						t.Errorf("%d classes, %s, %s: %v, want %s %v", classes, name, r.Name,
							r.Mean, full, w)
					}
				}
				if !(math.Abs(total) < 1e-8) {
					t.Errorf("%d classes, %s, feature %d: effects add up to %v", classes, name, j,
						total)
				}
			}
		}
	}
}

// TestMarginalEffectsClassesSD checks the standard deviations of these effects against draws.
func TestMarginalEffectsClassesSD(t *testing.T) {
	t.Parallel()
	const classes = 3
	post, x := classEffectCase(t, classes, testkit.Shorter(150, 60))
	n, cols := x.Dims()
	e, err := post.MarginalEffects(x, nil)
	if err != nil {
		t.Fatal(err)
	}
	draws := testkit.Longer(2000, testkit.Shorter(1500, 500))
	w := mat.NewDense(draws, post.Dim(), nil)
	if err := post.RandWeights(w, testkit.Rand(5)); err != nil {
		t.Fatal(err)
	}
	effects := make([][]float64, classes*cols)
	for s := range draws {
		probs := func(row []float64) []float64 {
			p := make([]float64, classes)
			for c := range p {
				p[c] = floats.Dot(append(slices.Clone(row), 1),
					w.RawRowView(s)[c*(cols+1):(c+1)*(cols+1)])
			}
			floats.AddConst(-floats.LogSumExp(p), p)
			for c := range p {
				p[c] = math.Exp(p[c])
			}
			return p
		}
		sum := make([]float64, classes*cols)
		for i := range n {
			for j := range cols {
				row, scale := slices.Clone(x.RawRowView(i)), 1.0
				const h = 1e-4
				switch j {
				case 0, 1:
					row[j] -= h
					scale = 1 / (2 * h)
				case 2, 3:
					row[2], row[3] = 0, 0
				case 4:
					row[4] = 0
				}
				low := probs(row)
				if row[j] += 1; j < 2 {
					row[j] += 2*h - 1
				}
				for c, p := range probs(row) {
					sum[c*cols+j] += scale * (p - low[c])
				}
			}
		}
		for j, v := range sum {
			effects[j] = append(effects[j], v/float64(n))
		}
	}
	for j, r := range e.Rows {
		mean, sd := stat.MeanStdDev(effects[j], nil)
		if !(math.Abs(r.SD/sd-1) < 0.03+3.2/math.Sqrt(2*float64(draws))) ||
			!(math.Abs(r.Mean-mean) < 4*sd/math.Sqrt(float64(draws))) {
			t.Errorf("%s: %v ± %v, by draws %v ± %v", r.Name, r.Mean, r.SD, mean, sd)
		}
	}
}

// TestMarginalEffectsErrors checks errors and the names of columns.
func TestMarginalEffectsErrors(t *testing.T) {
	_, post, m := effectCase(t, BernoulliLogit{}, 20, false, GLMOptions{})
	nan := mat.DenseCopyOf(m)
	nan.Set(3, 1, math.NaN())
	var none *mat.Dense
	for name, c := range map[string]struct {
		x    mat.Matrix
		opt  *EffectOptions
		want error
	}{
		"nil":         {nil, nil, ErrEmpty},
		"nil pointer": {none, nil, ErrEmpty},
		"no rows":     {NewSparse(5), nil, ErrEmpty},
		"columns":     {mat.NewDense(1, 4, nil), nil, ErrShape},
		"NaN":         {nan, nil, ErrNotFinite},
		"offsets":     {m, &EffectOptions{Offset: []float64{1}}, ErrShape},
		"an offset": {mat.NewDense(1, 5, nil), &EffectOptions{Offset: []float64{math.NaN()}},
			ErrNotFinite},
		"named columns": {m, &EffectOptions{Columns: []string{"a"}}, ErrShape},
	} {
		if _, err := post.MarginalEffects(c.x, c.opt); !errors.Is(err, c.want) ||
			!testkit.PrefixedOnce(err) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	// As columns of their own, each level is compared with its own 0, whatever the other columns
	// are.
	a, err := post.MarginalEffects(m, &EffectOptions{Columns: []string{"a", "b", "c", "d", "e"}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := post.MarginalEffects(m, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.Rows[2] == b.Rows[2] || a.Rows[4] != b.Rows[4] {
		t.Errorf("%v and %v", a.Rows, b.Rows)
	}
	text := b.String()
	if !strings.HasPrefix(text, "effect on P(y = +1), mean of 20 rows\n") ||
		strings.Count(text, "\n") != 6 || strings.Contains(text, "×") {
		t.Errorf("%s", text)
	}
}

// TestMarginalEffectsLarge checks effects at larger and larger rows. The means fit into a float64
// at first, then their variances overflow, and then the means are an error.
func TestMarginalEffectsLarge(t *testing.T) {
	x := mat.NewDense(4, 2, []float64{1, 0, 0, 1, -1, 0.5, 0.5, -1})
	g, err := NewGLM(x, []float64{3, 2, 0, 1}, Poisson{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := g.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	overflows := 0
	for far := 1.0; far < 1e6; far *= 1.3 {
		e, err := post.MarginalEffects(mat.NewDense(1, 2, []float64{far, -2 * far}), nil)
		if errors.Is(err, ErrNotFinite) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		for _, r := range e.Rows {
			if math.IsNaN(r.Mean) || math.IsInf(r.Mean, 0) || !(r.SD > 0) {
				t.Errorf("at %v: %v", far, r)
			}
			if math.IsInf(r.SD, 1) {
				overflows++
			}
		}
	}
	if overflows == 0 {
		t.Error("no variance was too large")
	}
}
