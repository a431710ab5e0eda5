package trust

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// sparseAll is the subject of sparse GPs with all rows as inducing inputs, in any units, in
// memory or from an iterator of rows. They have the optimum of the GP. Every ELBO must be below
// this optimum, by at most its GapBound, and no loss may go unreported.
var sparseAll = &subject{name: "sparse, all rows", generate: generateSparseAll, fit: fitSparseAll,
	reference: exactReference,
	relations: []relation{{name: "as a dense GP", other: func(_ *rand.Rand,
		p *trustProblem) (*trustProblem, string, []int) {
		return p, "gp", sameRowsOrder(len(p.y))
	}}}}

// sparseBeside is like sparseAll, but the kernels have a linear trend in addition to other terms.
// A dense GP may have no digits left for these.
var sparseBeside = &subject{name: "sparse, beside a trend", generate: generateSparseBeside,
	fit: fitSparseAll, reference: exactReference}

// rawRows gives p up to 200 rows with a few columns. Each column has its own unit, and rawRows
// returns the units.
func rawRows(rng *rand.Rand, p *trustProblem) (unit []float64) {
	n, _ := p.dims()
	if n = min(n, 60); chance(rng, 0.03) {
		n = 100 + rng.IntN(101)
	}
	d := 1 + rng.IntN(4)
	p.x, p.offset, p.weight, p.mean, p.variance, p.scales = mat.NewDense(n, d, nil), nil, nil, nil,
		nil, ""
	unit = make([]float64, d)
	shift := make([]float64, d)
	for j := range unit {
		if unit[j] = 1; chance(rng, 0.6) {
			unit[j] = logUniform(rng, -6, 9)
		}
		if chance(rng, 0.2) {
			shift[j] = logUniform(rng, 0, 3)
		}
	}
	grid := chance(rng, 0.2)
	for i := range n {
		for j, u := range unit {
			v := rng.NormFloat64()
			if grid {
				v = math.Round(v)
			}
			p.x.Set(i, j, u*(v+shift[j]))
		}
	}
	if chance(rng, 0.1) && n > 1 { // one row has another size
		row := p.x.RawRowView(rng.IntN(n))
		by := logUniform(rng, -4, 4)
		for j := range row {
			row[j] *= by
		}
	}
	p.passed = chance(rng, 0.4)
	p.scales = fmt.Sprintf(", units %.1g, shifts %.1g, passed %v", unit, shift, p.passed)
	p.respond(rng, unit, shift)
	return unit
}

// trend returns a kernel with few features. The weights are in the units of the columns, or all
// have the same scale.
func trend(rng *rand.Rand, unit []float64) Kernel {
	scale := logUniform(rng, -1, 1)
	if chance(rng, 0.2) {
		scale = logUniform(rng, -3, 3)
	}
	scales := make([]float64, len(unit))
	for j, u := range unit {
		scales[j] = scale * logUniform(rng, -0.5, 0.5) / u
	}
	constant := Constant{Scale: logUniform(rng, -1, 2)}
	switch rng.IntN(6) {
	case 0:
		return Linear{Scale: scale}
	case 1:
		return Linear{Scales: scales}
	case 2:
		return Sum{Linear{Scale: scale}, constant}
	case 3:
		return Sum{Linear{Scales: scales}, constant}
	case 4:
		return Sum{constant, Sum{Linear{Scales: scales}, Linear{Scale: scale}}}
	}
	return Product{constant, Linear{Scales: scales}}
}

// stationary returns a kernel whose length scales are in the units of the columns.
func stationary(rng *rand.Rand, unit []float64) Kernel {
	scale, length := logUniform(rng, -0.5, 1), logUniform(rng, -0.5, 1)
	if chance(rng, 0.15) {
		scale = logUniform(rng, -3, 3)
	}
	lengths := make([]float64, len(unit))
	for j, u := range unit {
		lengths[j] = u * length * logUniform(rng, -0.3, 0.3)
	}
	switch rng.IntN(4) {
	case 0:
		return SquaredExp{Scale: scale, Lengths: lengths}
	case 1:
		return Matern32{Scale: scale, Lengths: lengths}
	case 2:
		return Matern52{Scale: scale, Lengths: lengths}
	}
	return RationalQuadratic{Scale: scale, Lengths: lengths}
}

func generateSparseAll(rng *rand.Rand, p *trustProblem) {
	unit := rawRows(rng, p)
	switch rng.IntN(4) {
	case 0:
		p.kernel = stationary(rng, unit)
	case 1:
		p.kernel = Sum{stationary(rng, unit), stationary(rng, unit)}
	default:
		p.kernel = trend(rng, unit)
	}
}

func generateSparseBeside(rng *rand.Rand, p *trustProblem) {
	unit := rawRows(rng, p)
	p.kernel = Sum{stationary(rng, unit), trend(rng, unit)}
}

func fitSparseAll(ctx context.Context, p *trustProblem) (*trustFit, error) {
	opt := &SparseGPOptions{Inducing: p.x}
	var g *SparseGP
	var err error
	if _, d := p.dims(); p.passed {
		g, err = NewSparseGPRows(ctx, Rows(p.x, p.y), d, p.kernel, p.lik, opt)
	} else {
		g, err = NewSparseGP(p.x, p.y, p.kernel, p.lik, opt)
	}
	if err != nil {
		return nil, err
	}
	post, res, err := g.Fit(ctx, nil)
	f := &trustFit{result: res}
	if err != nil {
		return f, err
	}
	m, v := post.At(p.x).Latent(nil, nil)
	return f.latents(p, m, v), nil
}

// refTerms appends the features of a row for the terms of k that have features, with twice the
// digits of float64. It returns the other terms.
func refTerms(k Kernel, row []double, features *[]double) (rest []Kernel) {
	switch k := k.(type) {
	case Sum:
		for _, term := range k {
			rest = append(rest, refTerms(term, row, features)...)
		}
	case Constant:
		*features = append(*features, asDouble(cmp.Or(k.Scale, 1)))
	case Linear:
		for j, x := range row {
			s := cmp.Or(k.Scale, 1)
			if k.Scales != nil {
				s = cmp.Or(k.Scales[j], 1)
			}
			*features = append(*features, asDouble(s).times(x))
		}
	case Product: // a Constant times a Linear
		var linear []double
		refTerms(k[1], row, &linear)
		for _, f := range linear {
			*features = append(*features, f.times(asDouble(k[0].(Constant).Scale)))
		}
	default:
		return []Kernel{k}
	}
	return rest
}

// exactReference is like gpReference, for a Sum. Its coordinates are the features of the sum,
// with twice the digits of float64, and a factor of the covariance of the other terms.
func exactReference(p *trustProblem, jiggle func(float64) float64) (*refProblem, error) {
	n, d := p.dims()
	var all []double
	var rest Sum
	count := 0
	for i := range n {
		row := make([]double, d)
		for j := range row {
			row[j] = asDouble(jiggle(p.x.At(i, j)))
		}
		rest = refTerms(p.kernel, row, &all)
		if i == 0 {
			count = len(all)
		}
	}
	var a []double
	r := 0
	if len(rest) > 0 {
		k := make([]double, n*n)
		for i := range n {
			for j := range i + 1 {
				v := rest.Cov(p.x.RawRowView(i), p.x.RawRowView(j))
				if i != j {
					v = jiggle(v)
				}
				k[i*n+j], k[j*n+i] = asDouble(v), asDouble(v)
			}
		}
		a, r = factorDouble(k, n, refRounding)
	}
	ref := &refProblem{lik: p.lik, n: n, r: count + r, y: p.y, a: make([]double, n*(count+r)),
		offset: make([]double, n), extra: make([]float64, n)}
	for i := range n {
		copy(ref.row(i), all[i*count:(i+1)*count])
		copy(ref.row(i)[count:], a[i*r:(i+1)*r])
	}
	return ref, nil
}

// A fit that reads its rows from an iterator takes no further pass if its gap is below goodEnough
// nats.
const goodEnough = 1e-2

// knownSparse lists the seeds of TestSeedsSparse that fail, with their causes.
var knownSparse = map[uint64]string{
	1095: "the dense GP ends at its pass limit, and reports it",
	1465: "few rows of Laplace noise stall near the optimum, and report it",
	2283: "few rows of Laplace noise in raw units stall, and report it",
	2323: "one row in raw units stalls far from the optimum, and reports it",
}

// TestSparseFeatureRounding checks that ELBOErr contains the effect of rounding the features on
// the ELBO. With noise of 1e-7 about a function of size 0.01, which the features can follow only
// in part, the effect was once 14 times the proved bound. With a row at 1e4 under a trend it was
// 1.03 times ELBOErr.
func TestSparseFeatureRounding(t *testing.T) {
	for seed, s := range map[uint64]*subject{66: sparseAll, 1598: sparseBeside} {
		rng := rand.New(rand.NewPCG(seed, 15))
		if v := judge(seed, rng, s, randomProblem(rng)); len(v.violations()) > 0 {
			t.Error(v)
		}
	}
}

// TestSparseShortSteps checks that Gap is at least the true gap in a run whose steps are
// fractions of natural steps. Two rows with the same label, under a prior of 1e9 standard
// deviations of a logistic, once had a Gap of 0.02 to 0.07 nats although the true gap was 1.5
// nats.
func TestSparseShortSteps(t *testing.T) {
	x := mat.NewDense(2, 2, []float64{-7.9e6, 1.496e10, 7.9e6, 1.327e10})
	y, k := []float64{-1, -1}, Sum{Constant{Scale: 90}, Linear{Scale: 0.11}}
	opt := &SparseGPOptions{Inducing: x}
	best, err := NewSparseGP(x, y, k, BernoulliLogit{}, opt)
	if err != nil {
		t.Fatal(err)
	}
	_, want, err := best.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	g, err := NewSparseGPRows(t.Context(), Rows(x, y), 2, k, BernoulliLogit{}, opt)
	if err != nil {
		t.Fatal(err)
	}
	_, got, err := g.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if left := want.ELBO - got.ELBO; !(left > 0.1) {
		t.Fatalf("%v, %g nats short: not a case of short steps", got, left)
	}
	for _, it := range got.Trace {
		if left := want.ELBO - it.ELBO; !(left <= it.Gap) || !(it.Gap <= it.GapBound) {
			t.Errorf("pass %g: Gap %g, GapBound %g, but %g nats are left", it.Passes, it.Gap,
				it.GapBound, left)
		}
	}
}

// TestSparseStalledGap checks that Gap is at least ELBOErr if rounding of the features ends a
// run.
func TestSparseStalledGap(t *testing.T) {
	const seed = 1465
	rng := rand.New(rand.NewPCG(seed, 15))
	p := randomProblem(rng)
	generateSparseAll(rng, p)
	f, err := fitSparseAll(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if r := f.result; r.Status != Stalled || !(r.ELBOErr > 1e-3) || !(r.Gap >= r.ELBOErr) {
		t.Errorf("%v: Gap %g, ELBOErr %g", r, r.Gap, r.ELBOErr)
	}
}

// TestSeedsSparse fits sparse GPs with all rows as inducing inputs, in units from 1e-6 to 1e9,
// and compares them with the GP.
func TestSeedsSparse(t *testing.T) {
	t.Parallel()
	one := func(seed uint64) *verdict {
		s := sparseAll
		if seed%3 == 2 {
			s = sparseBeside
		}
		if *trustOnly != "" && s.name != *trustOnly {
			return nil
		}
		rng := rand.New(rand.NewPCG(seed, 15))
		return judge(seed, rng, s, randomProblem(rng))
	}
	if *trustSeed >= 0 {
		v := one(uint64(*trustSeed))
		t.Logf("%v\n%d fits, %v, proved: %v", v, v.fits, v.elapsed, v.proved)
		if len(v.violations()) > 0 {
			t.Fail()
		}
		return
	}
	verdicts := judgeAll(int(testkit.Seeds(testkit.Longer(160, 60))), one)
	for _, v := range verdicts {
		bad := v.violations()
		// few rows in raw units may take natural steps without end near the optimum, and the
		// status reports it
		if v.problem.passed {
			bad = slices.DeleteFunc(bad, func(f fault) bool {
				return f.kind == faultLimit &&
					f.size <= goodEnough
			})
		}
		if why := knownSparse[v.seed]; why != "" && len(bad) > 0 {
			t.Logf("known: %s: %v", why, v)
			continue
		}
		if len(bad) > 0 {
			t.Errorf("%v", v)
		}
	}
	if len(verdicts) > 0 {
		t.Log(summary(verdicts))
	}
}

// TestGPLinearRaw checks that a GP with a Linear kernel over raw units agrees with the GLM that
// it stands for, although all elements of K are equal in float64. The test compares them at the
// rows, at other rows, jointly, after saving and loading, and after blocks or steps of a given
// size.
func TestGPLinearRaw(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 15))
	for _, lik := range []Likelihood{GaussianNoise{Var: 0.01}, BernoulliLogit{}, Poisson{},
		Laplace{Scale: 0.3}} {
		const n = 25
		x, y := mat.NewDense(n, 3, nil), make([]float64, n)
		for i := range y {
			year, z := 2000+5*rng.NormFloat64(), rng.NormFloat64()
			x.SetRow(i, []float64{1e4 * year, z, 1e-6 * rng.NormFloat64()})
			y[i] = randomResponse(rng, lik, 0.3*z+0.1*(year-2000))
		}
		scales := []float64{1, 1, 1e5}
		prior, err := NewMeanField(make([]float64, 4), []float64{1, 1, 1e10, 100})
		if err != nil {
			t.Fatal(err)
		}
		m, err := NewGLM(x, y, lik, &GLMOptions{Prior: prior, Intercept: true})
		if err != nil {
			t.Fatal(err)
		}
		want, fit, err := m.Fit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		g, err := NewGP(x, y, Sum{Linear{Scales: scales}, Constant{Scale: 10}}, lik, nil)
		if err != nil {
			t.Fatal(err)
		}
		post, res, err := g.Fit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if res.Status != Converged || math.Abs(res.ELBO-fit.ELBO) > res.Gap+fit.Gap+1e-7 ||
			!(res.GapBound < 1e-6) {
			t.Errorf("%T: %v at %.12g after %g passes, proved %.3g; the GLM at %.12g", lik,
				res.Status, res.ELBO, res.Passes, res.GapBound, fit.ELBO)
		}
		at := mat.NewDense(4, 3, []float64{2e7, 0, 0, 1.995e7, 1, 1e-6, 2.003e7, -2, 0, x.At(0, 0),
			x.At(0, 1), x.At(0, 2)})
		wm, wv := want.At(at).Latent(nil, nil)
		check := func(name string, p *GPPosterior) {
			t.Helper()
			pm, pv := p.At(at).Latent(nil, nil)
			jm, jv, err := p.Joint(at)
			if err != nil {
				t.Fatal(err)
			}
			tm, tv := p.Train(nil, nil)
			for i := range wm {
				if i == 3 && (math.Abs(tm[0]-wm[3]) > 1e-4*math.Sqrt(wv[3]) ||
					math.Abs(tv[0]/wv[3]-1) > 1e-4) {
					t.Errorf("%T, %s, row 0: N(%v, %v), the GLM N(%v, %v)", lik, name, tm[0], tv[0],
						wm[3], wv[3])
				}
				for _, z := range []float64{(pm[i] - wm[i]) / math.Sqrt(wv[i]),
					(jm[i] - wm[i]) / math.Sqrt(wv[i]), pv[i]/wv[i] - 1, jv.At(i, i)/wv[i] - 1} {
					if !(math.Abs(z) < 1e-4) {
						t.Errorf("%T, %s, point %d: N(%v, %v), jointly N(%v, %v), the GLM N(%v, "+
							"%v)", lik, name, i, pm[i], pv[i], jm[i], jv.At(i, i), wm[i], wv[i])
						break
					}
				}
			}
		}
		check("fitted", post)
		var file bytes.Buffer
		if err := post.Save(&file); err != nil {
			t.Fatal(err)
		}
		loaded, err := Load[*GPPosterior](&file)
		if err != nil {
			t.Fatal(err)
		}
		check("loaded", loaded)
		begun, err := (&Solver{MaxPasses: 2}).Run(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		file.Reset()
		if err := begun.Save(&file); err != nil {
			t.Fatal(err)
		}
		if begun, err = new(Solver).LoadResult(t.Context(), &file, g); err != nil {
			t.Fatal(err)
		}
		again, err := new(Solver).Resume(t.Context(), begun)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(again.ELBO-res.ELBO) > res.Gap+again.Gap+1e-9 || again.Status != Converged {
			t.Errorf("%T: resumed, %v at %.12g; at once %.12g", lik, again.Status, again.ELBO,
				res.ELBO)
		}
	}
}
