package pgsvi

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gonum.org/v1/gonum/mat"
)

// The trust tests fit random problems, in any units, and compare with a slow reference that shares
// nothing with the package but the definitions, and with what the same problem says in other words.
//
//	go test -run Seeds .                  # 200 problems, 20 under -short
//	go test -run Seeds -seeds 20000 .     # with a summary
//	go test -run Seeds -seed 1234 -v .    # one of them
//	go test -run Seeds -seeds 5000 -subject gp .
var (
	trustSeeds = flag.Int("seeds", 0, "number of random problems of TestSeeds; 0 means 200, and 20 under -short")
	trustSeed  = flag.Int64("seed", -1, "the one problem that TestSeeds fits and prints")
	trustOnly  = flag.String("subject", "", "the one kind of model that TestSeeds fits, by its name in subjects")
	trustFrom  = flag.Int("from", 0, "the first seed of TestSeeds")
)

// subject is one kind of model that the trust tests fit. A new model joins by an entry in subjects.
type subject struct {
	name  string
	share int // how often it is drawn, relative to the others
	// generate makes a problem of the subject, given one that is random in all that subjects share.
	generate func(rng *rand.Rand, p *trustProblem)
	// fit fits it with the zero Solver.
	fit func(ctx context.Context, p *trustProblem) (*trustFit, error)
	// reference is the problem in whitened coordinates; jiggle changes each number of the data by a
	// rounding. It is nil where there is none.
	reference func(p *trustProblem, jiggle func(float64) float64) (*refProblem, error)
	// loose is how far, in nats and standard deviations, the optimum of the reference is from
	// what is fitted, for an approximation of it; 0 otherwise.
	loose float64
	// below says that the reference is only a bound: a family of its own, of fewer parameters.
	below     bool
	relations []relation
}

// relation says a problem in other words.
type relation struct {
	name string
	// prepare makes a problem one to which the relation applies.
	prepare func(rng *rand.Rand, p *trustProblem)
	// other returns the problem in other words, under which subject it is fitted ("" means
	// the same), and its row for each row of p, −1 for none.
	other func(rng *rand.Rand, p *trustProblem) (q *trustProblem, name string, rows []int)
}

// trustProblem is the data of one problem. A GLM has the weights of x, with prior N(mean, variance); a GP the kernel.
type trustProblem struct {
	lik            Likelihood
	x              *mat.Dense
	y              []float64
	offset, weight []float64 // nil: 0 and 1
	mean, variance []float64
	kernel         Kernel
	inducing       int  // of a sparse GP
	passed         bool // which goes through its rows
	rank           int  // of a low-rank covariance
	sparse         bool
	scales         string // what is unusual about it
}

func (p *trustProblem) dims() (n, d int) { return p.x.Dims() }

func (p *trustProblem) weightAt(i int) float64 {
	if p.weight == nil {
		return 1
	}
	return p.weight[i]
}

func (p *trustProblem) offsetAt(i int) float64 {
	if p.offset == nil {
		return 0
	}
	return p.offset[i]
}

func (p *trustProblem) clone() *trustProblem {
	q := *p
	q.x = mat.DenseCopyOf(p.x)
	for _, s := range []*[]float64{&q.y, &q.offset, &q.weight, &q.mean, &q.variance} {
		*s = slices.Clone(*s)
	}
	return &q
}

// narrow leaves the first d columns.
func (p *trustProblem) narrow(d int) {
	if n, all := p.dims(); all > d {
		p.x = mat.DenseCopyOf(p.x.Slice(0, n, 0, d))
		p.mean, p.variance = p.mean[:d], p.variance[:d]
	}
}

// selectRows returns p with the given rows.
func (p *trustProblem) selectRows(rows []int) *trustProblem {
	q := *p
	_, d := p.dims()
	q.x = mat.NewDense(len(rows), d, nil)
	pick := func(s []float64) []float64 {
		if s == nil {
			return nil
		}
		t := make([]float64, len(rows))
		for k, i := range rows {
			t[k] = s[i]
		}
		return t
	}
	for k, i := range rows {
		q.x.SetRow(k, p.x.RawRowView(i))
	}
	q.y, q.offset, q.weight = pick(p.y), pick(p.offset), pick(p.weight)
	return &q
}

func (p *trustProblem) String() string {
	n, d := p.dims()
	s := fmt.Sprintf("%#v, %d×%d", p.lik, n, d)
	if p.kernel != nil {
		s += fmt.Sprintf(", %#v", p.kernel)
	}
	if p.inducing > 0 {
		s += fmt.Sprintf(", %d inducing", p.inducing)
	}
	if p.rank > 0 {
		s += fmt.Sprintf(", rank %d", p.rank)
	}
	return s + p.scales
}

// trustFit is what a fit says.
type trustFit struct {
	result   *Result   // nil for a stream, which has none
	mean, sd []float64 // of the weights; nil for a GP
	m, v     []float64 // latent moments at the rows of x, with offsets
}

// ---- problems

// logUniform returns 10^U(lo, hi).
func logUniform(rng *rand.Rand, lo, hi float64) float64 {
	return math.Pow(10, lo+(hi-lo)*rng.Float64())
}

func chance(rng *rand.Rand, p float64) bool { return rng.Float64() < p }

// randomLikelihood returns one of the likelihoods of the package, with random parameters. TestSeedsComplete
// finds what is missing here.
func randomLikelihood(rng *rand.Rand) Likelihood {
	all := trustLikelihoods(rng)
	return all[rng.IntN(len(all))]
}

func trustLikelihoods(rng *rand.Rand) []Likelihood {
	trials := math.Ceil(logUniform(rng, 0, 3))
	if chance(rng, 0.1) {
		trials = 1e6
	}
	cuts := []float64{rng.NormFloat64()}
	for range rng.IntN(4) {
		cuts = append(cuts, cuts[len(cuts)-1]+logUniform(rng, -2, 0.5))
	}
	shape := logUniform(rng, -1, 2)
	if chance(rng, 0.1) {
		shape = logUniform(rng, -3, 5)
	}
	noise := logUniform(rng, -2, 1)
	if chance(rng, 0.2) {
		noise = logUniform(rng, -8, 6)
	}
	return []Likelihood{
		BernoulliLogit{},
		BernoulliProbit{},
		Poisson{Exposure: logUniform(rng, -1, 1)},
		Binomial{Trials: trials},
		NegativeBinomial{Shape: shape},
		Ordinal{Cuts: cuts},
		GaussianNoise{Var: noise},
		StudentT{DF: 1 + logUniform(rng, 0, 1.5), Scale: math.Sqrt(noise)},
		Laplace{Scale: math.Sqrt(noise)},
		Gamma{Shape: shape},
		Exponential{},
	}
}

// randomResponse draws y given η, which is first brought to where counts stay below 1e6.
func randomResponse(rng *rand.Rand, l Likelihood, eta float64) float64 {
	rate := math.Exp(math.Max(-30, math.Min(13.8, eta)))
	poisson := func(r float64) float64 {
		if r > 50 {
			return math.Max(0, math.Round(r+math.Sqrt(r)*rng.NormFloat64()))
		}
		k, t := 0.0, rng.ExpFloat64()
		for ; t < r; k++ {
			t += rng.ExpFloat64()
		}
		return k
	}
	p := 1 / (1 + math.Exp(-eta))
	switch l := l.(type) {
	case BernoulliLogit, BernoulliProbit:
		return plusMinus(rng.Float64() < p)
	case Poisson, NegativeBinomial:
		return poisson(rate)
	case Binomial:
		if l.Trials > 1000 {
			return math.Round(l.Trials * p)
		}
		k := 0.0
		for range int(l.Trials) {
			if rng.Float64() < p {
				k++
			}
		}
		return k
	case Ordinal:
		t := eta + math.Log(1/(1-rng.Float64())-1+1e-300)
		for j, c := range l.Cuts {
			if t < c {
				return float64(j)
			}
		}
		return float64(len(l.Cuts))
	case GaussianNoise:
		return eta + math.Sqrt(l.Var)*rng.NormFloat64()
	case StudentT:
		return eta + l.Scale*rng.NormFloat64()/math.Max(0.05, rng.Float64())
	case Laplace:
		return eta + l.Scale*(rng.ExpFloat64()-rng.ExpFloat64())
	case Gamma, Exponential:
		return rate * math.Max(1e-12, rng.ExpFloat64())
	}
	panic(fmt.Sprintf("no responses of %T: say in randomResponse how they are drawn", l))
}

// randomProblem returns what all subjects share: a likelihood, rows, a prior and responses, mostly tame, and with each of many kinds
// of trouble now and then.
func randomProblem(rng *rand.Rand) *trustProblem {
	p := &trustProblem{lik: randomLikelihood(rng)}
	var scales strings.Builder
	note := func(format string, a ...any) { fmt.Fprintf(&scales, ", "+format, a...) }
	n, d := int(logUniform(rng, 0, math.Log10(61))), int(logUniform(rng, 0, math.Log10(26)))
	switch {
	case chance(rng, 0.02):
		n = 300
	case chance(rng, 0.02):
		d = 300
		n = min(n, 30)
	case chance(rng, 0.1):
		d = 26 + rng.IntN(15)
	}
	unit := make([]float64, d) // of each column
	for j := range unit {
		unit[j] = 1
	}
	switch rng.IntN(8) {
	case 0:
		u := logUniform(rng, -8, 8)
		for j := range unit {
			unit[j] = u
		}
		note("unit %.1g", u)
	case 1:
		for j := range unit {
			unit[j] = logUniform(rng, -8, 8)
		}
		note("units 1e-8…1e8")
	case 2:
		j := rng.IntN(d)
		unit[j] = logUniform(rng, 3, 8)
		note("unit %.1g of column %d", unit[j], j)
	}
	p.x = mat.NewDense(n, d, nil)
	shift := make([]float64, d)
	if chance(rng, 0.15) {
		for j := range shift {
			if chance(rng, 0.5) {
				shift[j] = logUniform(rng, 0, 4)
			}
		}
		note("means up to 1e4 sd")
	}
	for j := range d {
		kind := rng.IntN(6)
		for i := range n {
			v := rng.NormFloat64()
			switch kind {
			case 0:
				v = 1
			case 1:
				v = float64(rng.IntN(2))
			}
			p.x.Set(i, j, unit[j]*(v+shift[j]))
		}
	}
	if d > 1 && chance(rng, 0.2) {
		for range 1 + rng.IntN(3) {
			j, k := rng.IntN(d), rng.IntN(d)
			c := []float64{1, -1, 100, 1e-3, logUniform(rng, -6, 6)}[rng.IntN(5)]
			noise := []float64{0, 0, 1e-6, 1e-12}[rng.IntN(4)]
			for i := range n {
				v := p.x.At(i, k) * c * (1 + noise*rng.NormFloat64())
				if !(math.Abs(v) < 1e10) {
					v = p.x.At(i, k)
				}
				p.x.Set(i, j, v)
			}
			note("column %d is %.1g of %d within %g", j, c, k, noise)
		}
	}
	if chance(rng, 0.2) {
		for range 1 + rng.IntN(n) {
			p.x.SetRow(rng.IntN(n), slices.Clone(p.x.RawRowView(rng.IntN(n))))
		}
		note("rows twice")
	}
	if chance(rng, 0.08) {
		for range 1 + rng.IntN(n) {
			p.x.SetRow(rng.IntN(n), make([]float64, d))
		}
		note("rows of zeros")
	}
	if chance(rng, 0.05) {
		j := rng.IntN(d)
		for i := range n {
			p.x.Set(i, j, 0)
		}
		note("column %d is zero", j)
	}
	p.mean, p.variance = make([]float64, d), make([]float64, d)
	switch k := rng.IntN(5); {
	case k == 0:
		sd := logUniform(rng, -3, 3)
		for j := range d {
			p.variance[j] = sd * sd
		}
		note("prior sd %.1g", sd)
	case k == 1:
		for j := range d {
			sd := logUniform(rng, -3, 3)
			p.variance[j] = sd * sd
		}
		note("prior sds 1e-3…1e3")
	case k < 4:
		sd := logUniform(rng, -0.5, 1)
		for j := range d {
			p.variance[j] = math.Pow(sd/unit[j], 2)
		}
		note("prior sd %.1g per unit", sd)
	default:
		for j := range d {
			p.variance[j] = 1
		}
	}
	if chance(rng, 0.3) {
		p.weight = make([]float64, n)
		lo, hi := -1.0, 1.0
		if chance(rng, 0.3) {
			lo, hi = -6, 6
		}
		for i := range p.weight {
			if p.weight[i] = logUniform(rng, lo, hi); chance(rng, 0.1) {
				p.weight[i] = 0
			}
		}
		note("weights 1e%g…1e%g and 0", lo, hi)
	}
	if chance(rng, 0.3) {
		p.offset = make([]float64, n)
		sd := 1.0
		if chance(rng, 0.2) {
			sd = logUniform(rng, 0, 3)
		}
		for i := range p.offset {
			p.offset[i] = math.Max(-1e3, math.Min(1e3, sd*rng.NormFloat64()))
		}
		note("offsets of %.1g", sd)
	}
	p.scales = scales.String()
	p.respond(rng, unit, shift)
	return p
}

// respond draws the responses, of weights whose effects are of order 1 whatever the units, and of a rate up to 1e6.
func (p *trustProblem) respond(rng *rand.Rand, unit, shift []float64) {
	n, d := p.dims()
	effect := logUniform(rng, -0.7, 0.7) / math.Sqrt(float64(d))
	beta := make([]float64, d)
	for j := range beta {
		beta[j] = effect * rng.NormFloat64()
		if unit != nil {
			beta[j] /= unit[j]
		}
	}
	base := 0.0
	switch p.lik.(type) {
	case Poisson, NegativeBinomial, Gamma, Exponential:
		if base = rng.NormFloat64(); chance(rng, 0.2) {
			base = 14 * rng.Float64()
			p.scales += fmt.Sprintf(", rate %.1g", math.Exp(base))
		}
	}
	p.y = make([]float64, n)
	for i := range n {
		eta := base
		for j, b := range beta {
			v := p.x.At(i, j)
			if shift != nil {
				v -= unit[j] * shift[j]
			}
			eta += v * b
		}
		p.y[i] = randomResponse(rng, p.lik, eta)
	}
}

// ---- subjects

var (
	permuteRows = relation{name: "permuted rows", other: func(rng *rand.Rand, p *trustProblem) (*trustProblem, string, []int) {
		n, _ := p.dims()
		perm := rng.Perm(n)
		rows := make([]int, n)
		for k, i := range perm {
			rows[i] = k
		}
		return p.selectRows(perm), "", rows
	}}
	permuteColumns = relation{name: "permuted columns", other: func(rng *rand.Rand, p *trustProblem) (*trustProblem, string, []int) {
		q := p.clone()
		n, d := p.dims()
		for k, j := range rng.Perm(d) {
			q.mean[k], q.variance[k] = p.mean[j], p.variance[j]
			for i := range n {
				q.x.Set(i, k, p.x.At(i, j))
			}
		}
		return q, "", sameRowsOrder(n)
	}}
	scaledColumn = relation{name: "column and its prior in other units", other: func(rng *rand.Rand, p *trustProblem) (*trustProblem, string, []int) {
		q := p.clone()
		n, d := p.dims()
		for j := range d {
			k := rng.IntN(41) - 20
			q.mean[j], q.variance[j] = math.Ldexp(q.mean[j], -k), math.Ldexp(q.variance[j], -2*k)
			for i := range n {
				q.x.Set(i, j, math.Ldexp(q.x.At(i, j), k))
			}
		}
		return q, "", sameRowsOrder(n)
	}}
	weightsAsRepeats = relation{
		name: "weights as repeated rows",
		prepare: func(rng *rand.Rand, p *trustProblem) {
			n, _ := p.dims()
			p.weight = make([]float64, n)
			for i := range p.weight {
				p.weight[i] = float64(rng.IntN(4))
			}
			p.weight[rng.IntN(n)] = 1
		},
		other: func(_ *rand.Rand, p *trustProblem) (*trustProblem, string, []int) {
			var all []int
			rows := make([]int, len(p.y))
			for i, w := range p.weight {
				if rows[i] = -1; w > 0 {
					rows[i] = len(all)
				}
				for range int(w) {
					all = append(all, i)
				}
			}
			q := p.selectRows(all)
			q.weight = nil
			return q, "", rows
		},
	}
	meanAsOffset = relation{
		name: "prior mean as offset",
		prepare: func(rng *rand.Rand, p *trustProblem) {
			for j := range p.mean {
				most := 0.0
				for i := range p.y {
					most = math.Max(most, math.Abs(p.x.At(i, j)))
				}
				p.mean[j] = rng.NormFloat64() * math.Min(math.Sqrt(p.variance[j]), 1/(most+1e-300))
			}
		},
		other: func(_ *rand.Rand, p *trustProblem) (*trustProblem, string, []int) {
			q := p.clone()
			q.offset = make([]float64, len(p.y))
			for i := range q.offset {
				sum := asDouble(p.offsetAt(i))
				for j, m := range p.mean {
					sum = sum.plus(asDouble(m).times(asDouble(p.x.At(i, j))))
				}
				q.offset[i] = sum.float()
			}
			clear(q.mean)
			return q, "", sameRowsOrder(len(p.y))
		},
	}
	weightlessRow = relation{name: "rows of weight 0", other: func(rng *rand.Rand, p *trustProblem) (*trustProblem, string, []int) {
		n, d := p.dims()
		at := rng.IntN(n + 1)
		all := append(append(sameRowsOrder(n)[:at:at], rng.IntN(n)), sameRowsOrder(n)[at:]...)
		q := p.selectRows(all)
		if q.weight == nil {
			q.weight = make([]float64, n+1)
			for i := range q.weight {
				q.weight[i] = 1
			}
		}
		q.weight[at] = 0
		row := make([]float64, d)
		if chance(rng, 0.5) {
			for j := range row {
				row[j] = logUniform(rng, -8, 8)
			}
		}
		q.x.SetRow(at, row)
		rows := sameRowsOrder(n)
		for i := at; i < n; i++ {
			rows[i]++
		}
		return q, "", rows
	}}
	linearGP = relation{
		name: "GP with a Linear kernel",
		prepare: func(_ *rand.Rand, p *trustProblem) {
			p.weight, p.offset = nil, nil
			clear(p.mean)
		},
		other: func(_ *rand.Rand, p *trustProblem) (*trustProblem, string, []int) {
			q := p.clone()
			scales := make([]float64, len(p.variance))
			for j, v := range p.variance {
				scales[j] = math.Sqrt(v)
			}
			q.kernel = Linear{Scales: scales}
			return q, "gp", sameRowsOrder(len(p.y))
		},
	}
)

func sameRowsOrder(n int) []int {
	rows := make([]int, n)
	for i := range rows {
		rows[i] = i
	}
	return rows
}

// subjects are filled by init, as relations name subjects.
var subjects []*subject

func init() {
	subjects = []*subject{
		{name: "glm", share: 40, fit: fitTrustGLM(FullCovariance), reference: glmReference(false),
			relations: []relation{permuteRows, permuteColumns, scaledColumn, weightsAsRepeats, meanAsOffset, weightlessRow, linearGP}},
		{name: "diagonal", share: 10, generate: func(_ *rand.Rand, p *trustProblem) { p.narrow(40) }, fit: fitTrustGLM(DiagonalCovariance), reference: glmReference(true),
			relations: []relation{permuteRows, permuteColumns, scaledColumn, weightsAsRepeats, meanAsOffset, weightlessRow}},
		{name: "low-rank", share: 6, generate: func(rng *rand.Rand, p *trustProblem) {
			p.rank = 1 + rng.IntN(5)
		}, fit: fitTrustGLM(LowRankCovariance), reference: glmReference(false), below: true,
			relations: []relation{weightlessRow}},
		{name: "stream", share: 8, fit: fitTrustStream, reference: glmReference(false), loose: 0.02},
		{name: "objective", share: 6, generate: func(rng *rand.Rand, p *trustProblem) {
			n, _ := p.dims()
			*p = *p.selectRows(rng.Perm(n)[:min(n, 25)])
			p.narrow(6)
		}, fit: fitTrustObjective, reference: glmReference(false)},
		{name: "gp", share: 18, generate: generateGP, fit: fitTrustGP, reference: gpReference, relations: []relation{permuteRows}},
		{name: "sparse", share: 12, generate: func(rng *rand.Rand, p *trustProblem) {
			generateGP(rng, p)
			n, _ := p.dims()
			if p.inducing = 1 + rng.IntN(n); chance(rng, 0.3) {
				p.inducing = 0
			}
		}, fit: fitTrustSparse, reference: sparseReference},
	}
}

// generateGP makes a problem of a GP, without weights, offsets or many columns.
func generateGP(rng *rand.Rand, p *trustProblem) {
	n, d := p.dims()
	n = min(n, 60)
	if chance(rng, 0.03) {
		n = 110
	}
	d = min(d, 1+rng.IntN(4))
	unit := 1.0
	if chance(rng, 0.2) {
		unit = logUniform(rng, -8, 8)
	}
	p.x, p.offset, p.weight, p.mean, p.variance = mat.NewDense(n, d, nil), nil, nil, nil, nil
	p.scales = ""
	grid := chance(rng, 0.3)
	for i := range n {
		for j := range d {
			v := 3 * rng.NormFloat64()
			if grid {
				v = math.Round(v)
			}
			p.x.Set(i, j, unit*v)
		}
	}
	scale, length := logUniform(rng, -0.5, 1), unit*logUniform(rng, -0.5, 1)
	if chance(rng, 0.25) {
		scale = logUniform(rng, -3, 3)
	}
	if chance(rng, 0.25) {
		length = unit * logUniform(rng, -2, 4)
	}
	switch rng.IntN(7) {
	case 0:
		p.kernel = SquaredExp{Scale: scale, Length: length}
	case 1:
		p.kernel = Matern12{Scale: scale, Length: length}
	case 2:
		p.kernel = Matern32{Scale: scale, Length: length}
	case 3:
		p.kernel = Matern52{Scale: scale, Length: length}
	case 4:
		p.kernel = RationalQuadratic{Scale: scale, Length: length}
	case 5:
		p.kernel = Linear{Scale: scale / unit}
	case 6:
		p.kernel = Sum{SquaredExp{Scale: scale, Length: length}, Constant{Scale: logUniform(rng, -1, 2)}}
	}
	units := make([]float64, d)
	for j := range units {
		units[j] = 3 * unit
	}
	p.respond(rng, units, make([]float64, d))
}

func (p *trustProblem) matrix() mat.Matrix {
	if p.sparse {
		return SparseOf(p.x)
	}
	return p.x
}

// glm returns the GLM of p, with the prior as the plainest option that says it.
func (p *trustProblem) glm(cov Covariance) (*GLM, error) {
	opt := &GLMOptions{Offset: p.offset, Weights: p.weight, Covariance: cov, Rank: p.rank}
	v := p.variance[0]
	sd := math.Sqrt(v)
	plain := sd*sd == v
	for j := range p.variance {
		plain = plain && p.variance[j] == v && p.mean[j] == 0
	}
	if opt.PriorSD = sd; !plain {
		q, err := NewMeanField(p.mean, p.variance)
		if err != nil {
			return nil, err
		}
		opt.PriorSD, opt.Prior = 0, q
	}
	return NewGLM(p.matrix(), p.y, p.lik, opt)
}

// latents adds the offsets to latent moments at the rows.
func (f *trustFit) latents(p *trustProblem, m, v []float64) *trustFit {
	f.m, f.v = m, v
	for i := range m {
		f.m[i] += p.offsetAt(i)
	}
	return f
}

func fitTrustGLM(cov Covariance) func(context.Context, *trustProblem) (*trustFit, error) {
	return func(ctx context.Context, p *trustProblem) (*trustFit, error) {
		g, err := p.glm(cov)
		if err != nil {
			return nil, err
		}
		post, res, err := g.Fit(ctx, nil)
		if err != nil {
			return &trustFit{result: res}, err
		}
		f := &trustFit{result: res, mean: post.Mean(nil), sd: post.SD(nil)}
		m, v := post.At(p.matrix()).Latent(nil, nil)
		return f.latents(p, m, v), nil
	}
}

func fitTrustStream(ctx context.Context, p *trustProblem) (*trustFit, error) {
	q, err := NewMeanField(p.mean, p.variance)
	if err != nil {
		return nil, err
	}
	n, d := p.dims()
	s, err := NewGLMStream(d, p.lik, &GLMOptions{Prior: q})
	if err != nil {
		return nil, err
	}
	err = s.AddAll(ctx, func(yield func(Row, error) bool) {
		for i := range n {
			if w := p.weightAt(i); w > 0 && !yield(Row{Val: p.x.RawRowView(i), Y: p.y[i], Offset: p.offsetAt(i), Weight: w}, nil) {
				return
			}
		}
	})
	if err != nil {
		return nil, err
	}
	post, err := s.Posterior()
	if err != nil {
		return nil, err
	}
	f := &trustFit{mean: post.Mean(nil), sd: post.SD(nil)}
	m, v := post.At(p.x).Latent(nil, nil)
	return f.latents(p, m, v), nil
}

func fitTrustObjective(ctx context.Context, p *trustProblem) (*trustFit, error) {
	g, err := p.glm(FullCovariance)
	if err != nil {
		return nil, err
	}
	o, err := g.Objective()
	if err != nil {
		return nil, err
	}
	q, res, err := o.Fit(ctx, nil)
	f := &trustFit{result: res}
	if err != nil {
		return f, err
	}
	f.mean, f.sd = q.Mean(nil), q.Var(nil)
	for j := range f.mean {
		f.mean[j] += p.mean[j]
		f.sd[j] = math.Sqrt(f.sd[j])
	}
	n, _ := p.dims()
	m, v := make([]float64, n), make([]float64, n)
	cov := q.Cov()
	for i := range n {
		x := p.x.RowView(i)
		m[i], v[i] = mat.Dot(x, mat.NewVecDense(len(f.mean), f.mean)), mat.Inner(x, cov, x)
	}
	return f.latents(p, m, v), nil
}

func fitTrustGP(ctx context.Context, p *trustProblem) (*trustFit, error) {
	g, err := NewGP(p.x, p.y, p.kernel, p.lik, nil)
	if err != nil {
		return nil, err
	}
	post, res, err := g.Fit(ctx, nil)
	f := &trustFit{result: res}
	if err != nil {
		return f, err
	}
	m, v := post.Train(nil, nil)
	return f.latents(p, m, v), nil
}

func (p *trustProblem) sparseGP() (*SparseGP, error) {
	opt := &SparseGPOptions{}
	if p.inducing > 0 {
		n, _ := p.dims()
		rows := make([]int, p.inducing)
		for k := range rows {
			rows[k] = k * n / p.inducing
		}
		opt.Inducing = p.selectRows(rows).x
	}
	return NewSparseGP(p.x, p.y, p.kernel, p.lik, opt)
}

func fitTrustSparse(ctx context.Context, p *trustProblem) (*trustFit, error) {
	g, err := p.sparseGP()
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

// ---- the reference of each subject

// glmReference keeps the weights as coordinates, a_n = x_n∘sd, unless there are many more of them than rows.
func glmReference(diagonal bool) func(*trustProblem, func(float64) float64) (*refProblem, error) {
	return func(p *trustProblem, jiggle func(float64) float64) (*refProblem, error) {
		n, d := p.dims()
		r := &refProblem{lik: p.lik, n: n, r: d, y: p.y, weight: p.weight, diagonal: diagonal,
			a: make([]double, n*d), offset: make([]double, n), extra: make([]float64, n)}
		for j, v := range p.variance {
			sd := asDouble(v).sqrt()
			for i := range n {
				x := asDouble(jiggle(p.x.At(i, j)))
				r.a[i*d+j] = x.times(sd)
				r.offset[i] = r.offset[i].plus(x.times(asDouble(p.mean[j])))
			}
		}
		for i := range n {
			r.offset[i] = r.offset[i].plus(asDouble(jiggle(p.offsetAt(i))))
		}
		if d > 2*n && d > 60 && !diagonal {
			k := make([]double, n*n)
			for i := range n {
				for j := range n {
					k[i*n+j] = dotDouble(r.row(i), r.row(j))
				}
			}
			r.a, r.r = factorDouble(k, n, 1e-30)
		}
		return r, nil
	}
}

// refRounding is the least pivot of a covariance matrix of float64, relative to the largest.
const refRounding = 0x1p-52

func gpReference(p *trustProblem, jiggle func(float64) float64) (*refProblem, error) {
	n, d := p.dims()
	if k, ok := p.kernel.(Linear); ok {
		q := *p
		q.mean, q.variance = make([]float64, d), make([]float64, d)
		for j := range d {
			s := cmp.Or(k.Scale, 1)
			if k.Scales != nil {
				s = cmp.Or(k.Scales[j], 1)
			}
			q.variance[j] = s * s
		}
		return glmReference(false)(&q, jiggle)
	}
	c := make([]double, n*n)
	for i := range n {
		for j := range i + 1 {
			v := p.kernel.Cov(p.x.RawRowView(i), p.x.RawRowView(j))
			if i != j {
				v = jiggle(v)
			}
			c[i*n+j], c[j*n+i] = asDouble(v), asDouble(v)
		}
	}
	r := &refProblem{lik: p.lik, n: n, y: p.y, offset: make([]double, n), extra: make([]float64, n)}
	r.a, r.r = factorDouble(c, n, refRounding)
	return r, nil
}

func sparseReference(p *trustProblem, jiggle func(float64) float64) (*refProblem, error) {
	g, err := p.sparseGP()
	if err != nil {
		return nil, err
	}
	z := g.Inducing()
	n, _ := p.dims()
	m, _ := z.Dims()
	c := make([]double, m*m)
	for i := range m {
		for j := range i + 1 {
			v := p.kernel.Cov(z.RawRowView(i), z.RawRowView(j))
			if i != j {
				v = jiggle(v)
			}
			c[i*m+j] = asDouble(v)
		}
	}
	if !choleskyDouble(c, m) {
		return nil, fmt.Errorf("inducing inputs of singular covariance: %w", errReference)
	}
	r := &refProblem{lik: p.lik, n: n, r: m, y: p.y, a: make([]double, n*m), offset: make([]double, n), extra: make([]float64, n)}
	for i := range n {
		a := r.row(i)
		for j := range m {
			a[j] = asDouble(jiggle(p.kernel.Cov(p.x.RawRowView(i), z.RawRowView(j))))
		}
		forwardDouble(c, a)
		k := asDouble(p.kernel.Cov(p.x.RawRowView(i), p.x.RawRowView(i)))
		r.extra[i] = math.Max(0, k.minus(dotDouble(a, a)).float())
	}
	return r, nil
}

// ---- one seed

// fault is what is wrong with a fit.
type fault struct {
	kind   string // of the table below
	detail string
	size   float64 // how bad, to find the worst
}

// The kinds of faults. Those of the second group are no violations: nothing better can be had in float64.
const (
	faultPanic     = "panic"
	faultNaN       = "NaN"
	faultError     = "error"            // of a problem that the reference solves
	faultLimit     = "not converged"    // at the limit of passes, or stalled
	faultGap       = "wrong gap"        // converged, with a true gap above 2·Gap + 1e-6
	faultProof     = "false proof"      // a true gap above GapBound + 1e-9
	faultAbove     = "above optimum"    // an ELBO that no q has
	faultMoments   = "wrong moments"    // mean or variance further from the reference than the gap allows
	faultRelation  = "relation"         // another answer to the same problem in other words
	faultTime      = "slow"             // above 5 s
	faultUnsolved  = "no reference"     // the reference did not find the optimum either
	faultUnsettled = "not determined"   // the answer changes by as much if the data are rounded
	faultRefused   = "refused, rightly" // a typed error where the reference has no answer, or it is not determined
)

// trustTime is the time after which a fit is slow.
const trustTime = 5 * time.Second

// trustSlack is the part of a true gap that may go unsaid, in nats.
const trustSlack = 1e-6

// provedSlack is that of a gap that is proved.
const provedSlack = 1e-9

// verdict is what came of a seed.
type verdict struct {
	seed        uint64
	subject     *subject
	problem     *trustProblem
	fits        int
	elapsed     time.Duration // of the slowest fit
	faults      []fault
	proved      bool
	steps, work int
}

func (v *verdict) String() string {
	s := fmt.Sprintf("seed %d: %s: %v", v.seed, v.subject.name, v.problem)
	for _, f := range v.faults {
		s += fmt.Sprintf("\n    %s: %s", f.kind, f.detail)
	}
	return s
}

// violations are the faults that no limit of float64 excuses. Times are measured by the clock on the wall, and count
// where -seeds or -seed ask for them: beside other tests they say more of the machine.
func (v *verdict) violations() (all []fault) {
	for _, f := range v.faults {
		switch f.kind {
		case faultUnsolved, faultUnsettled, faultRefused:
		case faultTime:
			if *trustSeeds > 0 || *trustSeed >= 0 {
				all = append(all, f)
			}
		default:
			all = append(all, f)
		}
	}
	return all
}

func (v *verdict) add(kind string, size float64, format string, a ...any) {
	v.faults = append(v.faults, fault{kind, fmt.Sprintf(format, a...), size})
}

// run fits p under s, with panics and long runs caught.
func (v *verdict) run(s *subject, p *trustProblem) (f *trustFit, err error) {
	type answer struct {
		f      *trustFit
		err    error
		panics string
	}
	done := make(chan answer, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 2*trustTime)
	defer cancel()
	start := time.Now()
	go func() {
		var a answer
		defer func() {
			if r := recover(); r != nil {
				a = answer{panics: fmt.Sprintf("%v\n%s", r, debug.Stack())}
			}
			done <- a
		}()
		a.f, a.err = s.fit(ctx, p)
	}()
	v.fits++
	var a answer
	select {
	case a = <-done:
	case <-time.After(12 * trustTime):
		v.add(faultTime, 60, "no end after %v", 12*trustTime)
		return nil, context.DeadlineExceeded
	}
	took := time.Since(start)
	v.elapsed = max(v.elapsed, took)
	if took > trustTime {
		v.add(faultTime, took.Seconds(), "%s took %v", s.name, took.Round(time.Millisecond))
	}
	if a.panics != "" {
		v.add(faultPanic, 1, "%s: %s", s.name, a.panics)
		return nil, errors.New("panic")
	}
	return a.f, a.err
}

// judgeSeed makes the problem of a seed, fits it, and compares.
func judgeSeed(seed uint64) *verdict {
	rng := rand.New(rand.NewPCG(seed, 12))
	total := 0
	for _, s := range subjects {
		total += s.share
	}
	k := rng.IntN(total)
	s := subjects[0]
	for _, s = range subjects {
		if k -= s.share; k < 0 {
			break
		}
	}
	return judge(seed, rng, s)
}

// judge is judgeSeed of a problem of s.
func judge(seed uint64, rng *rand.Rand, s *subject) *verdict {
	p := randomProblem(rng)
	if s.generate != nil {
		s.generate(rng, p)
	}
	p.sparse = p.kernel == nil && chance(rng, 0.2)
	var rel *relation
	if len(s.relations) > 0 && chance(rng, 0.6) {
		rel = &s.relations[rng.IntN(len(s.relations))]
		if rel.prepare != nil {
			rel.prepare(rng, p)
		}
	}
	v := &verdict{seed: seed, subject: s, problem: p}
	if *trustOnly != "" && s.name != *trustOnly {
		return v
	}
	f, err := v.run(s, p)
	sol := v.compare(s, p, f, err)
	if rel == nil || err != nil {
		return v
	}
	q, name, rows := rel.other(rng, p)
	t := s
	for _, u := range subjects {
		if u.name == name {
			t = u
		}
	}
	g, err := v.run(t, q)
	v.relate(rel, p, s, f, g, err, rows, sol)
	return v
}

var trustSentinels = []error{ErrShape, ErrEmpty, ErrLabel, ErrNotFinite, ErrNotPosDef, ErrParam, ErrNoProx, ErrNoEstimator, ErrFile, ErrDiverged, context.DeadlineExceeded}

func sentinelOf(err error) string {
	for _, s := range trustSentinels {
		if errors.Is(err, s) {
			return s.Error()
		}
	}
	return "untyped"
}

// solve returns the optimum of the reference, sought from where the fit is, or from the prior.
func (v *verdict) solve(s *subject, p *trustProblem, f *trustFit) (sol *refSolution, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v: %w", r, errReference)
		}
	}()
	ref, err := s.reference(p, func(x float64) float64 { return x })
	if err != nil {
		return nil, err
	}
	var m, va []float64
	if f != nil && f.m != nil {
		m, va = f.m, f.v
		for i := range va {
			if !(va[i] >= 0) || math.IsNaN(m[i]) {
				m = nil
				break
			}
		}
	}
	if ref.diagonal && f != nil && f.mean != nil {
		mu, sd := make([]double, ref.r), make([]double, ref.r)
		for j, c := range p.variance {
			scale := asDouble(c).sqrt()
			mu[j] = asDouble(f.mean[j]).minus(asDouble(p.mean[j])).over(scale)
			sd[j] = asDouble(f.sd[j]).over(scale)
		}
		m = f.mean
		sol, err = ref.solveDiagonal(mu, sd)
	} else {
		sol, err = ref.solve(m, va)
	}
	if err != nil && m != nil && ref.concave() { // otherwise the optimum may be another
		sol, err = ref.solve(nil, nil)
	}
	v.work += ref.work
	if sol != nil {
		v.steps += sol.steps
	}
	return sol, err
}

// trustSpread is how many roundings of the data count as one: sums of some dozens of products are what any method rounds.
const trustSpread = 16

// spread is how far rounding the data moves the answer: the ELBO in nats, and the marginals of the terms in
// standard deviations.
func (v *verdict) spread(s *subject, p *trustProblem, sol *refSolution) (elbo, z float64) {
	rng := rand.New(rand.NewPCG(v.seed, 13))
	for range 2 {
		ref, err := s.reference(p, func(x float64) float64 { return x * (1 + 0x1p-52*(2*rng.Float64()-1)) })
		if err != nil {
			return math.Inf(1), math.Inf(1)
		}
		other, err := ref.solve(sol.m, sol.v)
		if err != nil {
			return math.Inf(1), math.Inf(1)
		}
		elbo = math.Max(elbo, trustSpread*math.Abs(other.elbo-sol.elbo))
		for i := range sol.m {
			if sd := spreadOf(sol.curvature, sol.problem.row(i)); sd > 0 {
				z = math.Max(z, trustSpread*math.Abs(other.m[i]-sol.m[i])/sd)
			}
			z = math.Max(z, trustSpread*math.Abs(math.Log(other.v[i]/sol.v[i])))
		}
	}
	return elbo, z
}

// compare compares a fit with the reference, whose solution it returns, nil where there is none.
func (v *verdict) compare(s *subject, p *trustProblem, f *trustFit, err error) *refSolution {
	if err != nil && len(v.faults) > 0 {
		return nil // a panic, or too slow
	}
	if errors.Is(err, ErrEmpty) && s.name == "objective" {
		v.add(faultRefused, 0, "%v", err) // all weights are 0
		return nil
	}
	if err != nil {
		sol, e := v.solve(s, p, nil)
		if e != nil {
			v.add(faultRefused, 0, "%s: %v; reference: %v", sentinelOf(err), err, e)
			return nil
		}
		if elbo, z := v.spread(s, p, sol); elbo > 1e-3 || z > 1e-3 {
			v.add(faultRefused, 0, "%s: %v; rounding the data moves the answer by %.2g nats, %.2g sd", sentinelOf(err), err, elbo, z)
			return nil
		}
		v.add(faultError, 1, "%s: %v; the reference has ELBO %.10g ± %.2g after %d steps", sentinelOf(err), err, sol.elbo, sol.err+sol.gap, sol.steps)
		return nil
	}
	numbers := slices.Concat(f.mean, f.sd, f.m, f.v)
	if f.result != nil {
		numbers = append(numbers, f.result.ELBO)
		if f.result.Status == Converged {
			numbers = append(numbers, cmp.Or(f.result.Gap, 1))
		}
	}
	for i, x := range numbers {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			v.add(faultNaN, 1, "number %d of %d is %v: ELBO, Gap %v", i, len(numbers), x, numbers[len(numbers)-2:])
			return nil
		}
	}
	var ev Evaluation
	if f.result != nil {
		ev = f.result.Evaluation
		if f.result.Status != Converged {
			sol, e := v.solve(s, p, f)
			short := math.NaN()
			if e == nil {
				short = sol.elbo - ev.ELBO
			}
			if f.result.Status == Stalled && ev.ELBOErr > unknownNats && !math.IsInf(ev.Gap, 0) && short <= 2*ev.Gap+ev.ELBOErr {
				v.add(faultUnsettled, short, "an ELBO of %.10g that is known to %.2g nats, gap %.2g; short by %.3g", ev.ELBO, ev.ELBOErr, ev.Gap, short)
				return nil
			}
			v.add(faultLimit, short, "%v after %.4g passes at ELBO %.10g, gap %.2g; short by %.3g (%v)", f.result.Status, f.result.Passes, ev.ELBO, ev.Gap, short, e)
			return nil
		}
	}
	sol, e := v.solve(s, p, f)
	if e != nil {
		v.add(faultUnsolved, 0, "%v; fit: %v", e, ev)
		return nil
	}
	v.proved = sol.proved
	gap := ev.Gap
	if math.IsNaN(gap) {
		gap = 0
	}
	known := sol.err + finite(ev.ELBOErr)
	allowed := 2*gap + trustSlack + known
	elboSpread, zSpread := -1.0, 0.0
	excuse := func() {
		if elboSpread < 0 {
			elboSpread, zSpread = v.spread(s, p, sol)
		}
	}
	if f.result != nil {
		short := sol.elbo - ev.ELBO
		if short > allowed && !s.below {
			if excuse(); short > allowed+elboSpread {
				v.add(faultGap, short, "short by %.4g nats of %.10g, Gap %.2g, ELBOErr %.2g, %.3g passes; reference ± %.2g", short, sol.elbo, ev.Gap, ev.ELBOErr, f.result.Passes, sol.err+sol.gap)
			} else {
				v.add(faultUnsettled, short, "short by %.4g nats, Gap %.2g; rounding moves the ELBO by %.2g", short, ev.Gap, elboSpread)
			}
		}
		if proof := ev.GapBound + provedSlack + known; ev.Scope != Unproved && short > proof {
			if excuse(); short > proof+elboSpread {
				v.add(faultProof, short, "short by %.4g nats of %.10g, proved to be within %.3g (%v), ELBOErr %.2g; reference ± %.2g", short, sol.elbo, ev.GapBound, ev.Scope, ev.ELBOErr, sol.err+sol.gap)
			}
		}
		for _, it := range f.result.Trace { // every bound of the run, not the last alone
			short, proof := sol.elbo-it.ELBO, it.GapBound+provedSlack+sol.err+finite(it.ELBOErr)
			if it.Scope == Unproved || !(short > proof) {
				continue
			}
			if excuse(); short > proof+elboSpread {
				v.add(faultProof, short, "pass %v: short by %.4g nats of %.10g, proved to be within %.3g (%v)", it.Passes, short, sol.elbo, it.GapBound, it.Scope)
				break
			}
		}
		if -short > trustSlack+known+sol.gap {
			if excuse(); -short > trustSlack+known+sol.gap+elboSpread {
				v.add(faultAbove, -short, "ELBO %.10g is %.4g nats above the optimum ± %.2g, Gap %.2g, ELBOErr %.2g", ev.ELBO, -short, sol.err+sol.gap, ev.Gap, ev.ELBOErr)
			} else {
				v.add(faultUnsettled, -short, "%.4g nats above, Gap %.2g; rounding moves the ELBO by %.2g", -short, ev.Gap, elboSpread)
			}
		}
	}
	if s.below {
		return sol
	}
	// ELBO* − ELBO ≥ ½z² of any mean, z in standard deviations of the full covariance, and about ¼ of the square of the
	// logarithm of a variance.
	limit := 3*math.Sqrt(2*(2*gap+trustSlack+sol.gap)) + s.loose
	worst, at := 0.0, ""
	see := func(z float64, format string, a ...any) {
		if z > worst {
			worst, at = z, fmt.Sprintf(format, a...)
		}
	}
	for i := range f.m {
		if p.weightAt(i) == 0 || !(sol.v[i] > 0) {
			continue
		}
		sd := spreadOf(sol.curvature, sol.problem.row(i))
		if sd > 0 {
			see(math.Abs(f.m[i]-sol.m[i])/sd, "latent mean %d is %.10g, not %.10g, sd %.4g", i, f.m[i], sol.m[i], sd)
		}
		see(0.5*math.Abs(math.Log(f.v[i]/(sol.v[i]))), "latent variance %d is %.10g, not %.10g", i, f.v[i], sol.v[i])
	}
	if mean, sd, curved := sol.weights(p); f.mean != nil && mean != nil {
		for j := range mean {
			see(math.Abs(f.mean[j]-mean[j])/curved[j], "weight %d is %.10g, not %.10g, sd %.4g", j, f.mean[j], mean[j], curved[j])
			see(math.Abs(math.Log(f.sd[j]/sd[j])), "sd %d is %.10g, not %.10g", j, f.sd[j], sd[j])
		}
	}
	if worst > limit {
		if excuse(); worst > limit+zSpread {
			v.add(faultMoments, worst, "off by %.3g sd (%.2g allowed): %s; Gap %.2g", worst, limit, at, gap)
		} else {
			v.add(faultUnsettled, worst, "off by %.3g sd: %s; rounding moves it by %.2g", worst, at, zSpread)
		}
	}
	return sol
}

func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

// weights returns the moments of the weights of a GLM, nil where the reference does not have them as its coordinates.
func (sol *refSolution) weights(p *trustProblem) (mean, sd, curved []float64) {
	s := sol.state
	if p.variance == nil || len(s.mu) != len(p.variance) {
		return nil, nil, nil
	}
	r := len(s.mu)
	mean, sd, curved = make([]float64, r), make([]float64, r), make([]float64, r)
	for j, v := range p.variance {
		scale := asDouble(v).sqrt()
		mean[j] = asDouble(p.mean[j]).plus(scale.times(s.mu[j])).float()
		e := make([]double, r)
		e[j] = scale
		curved[j] = spreadOf(sol.curvature, e)
		if sd[j] = curved[j]; s.sd != nil {
			sd[j] = scale.times(s.sd[j]).float()
		}
	}
	return mean, sd, curved
}

// relate compares two fits of one problem.
func (v *verdict) relate(rel *relation, p *trustProblem, s *subject, f, g *trustFit, err error, rows []int, sol *refSolution) {
	if err != nil {
		if len(v.faults) == 0 || v.faults[len(v.faults)-1].kind != faultPanic {
			if sol != nil {
				if elbo, z := v.spread(s, p, sol); elbo < 1e-3 && z < 1e-3 {
					v.add(faultRelation, 1, "%s: %v", rel.name, err)
				}
			}
		}
		return
	}
	if f.result.Status != Converged || s.below || !factsOf(p.lik).LogConcave {
		return // optima that are not the only ones
	}
	if g.result.Status != Converged {
		v.add(faultRelation, 1, "%s: %v at ELBO %.10g, and %.10g", rel.name, g.result.Status, g.result.ELBO, f.result.ELBO)
		return
	}
	a, b := f.result.Evaluation, g.result.Evaluation
	gap := finite(a.Gap) + finite(b.Gap)
	off := math.Abs(a.ELBO - b.ELBO)
	allowed := 2*gap + trustSlack + finite(a.ELBOErr) + finite(b.ELBOErr)
	limit := 3 * math.Sqrt(2*(2*gap+trustSlack))
	worst, at := 0.0, 0
	for i, k := range rows {
		if k < 0 || p.weightAt(i) == 0 {
			continue
		}
		sd := math.Sqrt(f.v[i])
		if sol != nil {
			sd = spreadOf(sol.curvature, sol.problem.row(i))
		}
		if z := math.Max(math.Abs(f.m[i]-g.m[k])/sd, 0.5*math.Abs(math.Log(f.v[i]/g.v[k]))); f.v[i] > 0 && (z > worst || math.IsNaN(z)) {
			worst, at = z, i
		}
	}
	if off <= allowed && worst <= limit {
		return
	}
	elbo, z := 0.0, 0.0
	if sol != nil {
		elbo, z = v.spread(s, p, sol)
	}
	if off > allowed+elbo || worst > limit+z {
		v.add(faultRelation, off, "%s: ELBO %.12g and %.12g, apart by %.3g of %.2g allowed; marginals by %.3g sd of %.2g at row %d", rel.name, a.ELBO, b.ELBO, off, allowed, worst, limit, at)
	}
}

// ---- all seeds

// knownFailures are the seeds of CI that fail, by cause. A seed that passes fails the test: take it out. Those that take too long are
// not fitted, unless -seed asks for one.
var knownFailures = map[string][]uint64{}

const tooSlow = "more than 5 s"

// known returns why a seed is known to fail, "" where it is not.
func known(seed uint64) string {
	for why, seeds := range knownFailures {
		if slices.Contains(seeds, seed) {
			return why
		}
	}
	return ""
}

// TestSeeds fits random problems of all models, likelihoods, shapes and scales.
func TestSeeds(t *testing.T) {
	t.Parallel()
	if *trustSeed >= 0 {
		v := judgeSeed(uint64(*trustSeed))
		t.Logf("%v\n%d fits, %v, proved: %v", v, v.fits, v.elapsed, v.proved)
		if len(v.violations()) > 0 {
			t.Fail()
		}
		return
	}
	n := *trustSeeds
	if n == 0 {
		if n = 200; testing.Short() {
			n = 20
		}
	}
	verdicts := judgeAll(n, func(seed uint64) *verdict {
		if known(seed) == tooSlow {
			return nil
		}
		return judgeSeed(seed)
	})
	for _, v := range verdicts {
		switch why, bad := known(v.seed), len(v.violations()) > 0; {
		case bad && why == "":
			t.Errorf("%v", v)
		case !bad && why != "":
			t.Errorf("seed %d passes; take it off the list (%s)", v.seed, why)
		}
	}
	t.Log(summary(verdicts))
}

// judgeAll judges so many seeds, on all cores, and returns what came of those that were fitted.
func judgeAll(n int, judge func(seed uint64) *verdict) []*verdict {
	verdicts := make([]*verdict, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				verdicts[i] = judge(uint64(*trustFrom + i))
			}
		})
	}
	wg.Wait()
	return slices.DeleteFunc(verdicts, func(v *verdict) bool { return v == nil || v.fits == 0 })
}

// TestSeedsMended: seeds beyond those of CI that failed once.
func TestSeedsMended(t *testing.T) {
	t.Parallel()
	for why, seeds := range map[string][]uint64{
		"a bound without the rounding of K, or of a mean that is not Ka":      {839, 872, 1328, 2094, 3360, 3446, 3810, 4127},
		"a bound by the rows without what the mean gains by V's move":         {4395},
		"exact steps of an Objective that take more than a thousand passes":   {1198, 2010, 2839, 3040, 3116, 3637},
		"an ELBO without the rounding of marginals of raw features":           {1104, 2157},
		"the end of a run whose ELBO is all error, or no end where it is not": {6407, 7564},
		"the end of an Objective whose last step brought more than its gap":   {10858, 14416, 17519},
		"an absurd state whose step promises nothing":                         {2024},
		"a mean of raw units without its last digits":                         {2438, 16002, 19638},
		"a bound by rows whose tangents are far off":                          {390, 1188, 1992, 2336, 2558, 3036},
		"a bound of the mean that is all rounding":                            {300, 674, 1117, 1581, 2557, 2794},
		"a start from where the rates of rows contradict each other":          {466, 658, 1676, 4397, 6084, 6668, 8875, 9786, 12691, 14694, 15624, 16918, 17159, 18254},
		"a block that is not solved where other rows have led":                {4159},
		"an error of log|P| that depends on the order of the weights":         {15657},
		"counts under priors of 1e6 standard deviations":                      {1187, 5704, 5905, 7902, 14167},
		"a start from where expectations overflow":                            {1070, 2311, 4603},
		"a block of a stream under priors far wider than the data":            {11999, 13978, 14056, 15359},
		"steps that bring more than those before, and end":                    {1278},
		"a diagonal V whose mean is not solved for":                           {13958},
		"a proof of a diagonal V in raw units":                                {3997, 8836, 9389, 12796, 16603},
		"a V that rounding leaves no step":                                    {41946},
		"sites alone under a prior far wider than they tell":                  {3630},
		"few rows and many weights in raw units":                              {1491},
		"a proof of slopes whose rounding a wide prior blows up":              {3769, 1066, 2142, 4011, 5751, 6716, 18238, 18684},
		"a proof of sites that wake or fall asleep":                           {10136, 19852},
		"an end at the optimum, of which rounding is what the proof lacks":    {1062, 13957},
		"rates of which a prior far wider than the data lets go":              {1963, 1144, 1175, 3812, 6270, 10539, 12161, 12905, 13977, 14762},
		"an Objective whose steps do not get on":                              {3584, 5969, 7616, 10435, 12142, 16177, 16263, 22530},
		"a short step of an Objective that says nothing of its gap":           {8215},
		"a gap by curvature that steps learnt elsewhere, under an outlier's":  {9277},
		"a proof after a step of the mean by a V that has lost correlations":  {23211, 25208},
		"a mean that is not Ka, and cannot be but by moving a with it":        {31496},
		"a start where half of a residual variance is in the exponent":        {5559, 28739, 30259, 31389, 28990},
		"conjugate gradients of columns that have next to all in common":      {6001, 33198, 34041, 35134, 26287, 29272, 9228},
		"a GP with a Linear kernel in raw units":                              {741, 1001, 1155, 2197, 3390, 3831, 6974, 7507, 18427, 18796},
	} {
		if testing.Short() {
			seeds = seeds[:1]
		}
		for _, seed := range seeds {
			if v := judgeSeed(seed); len(v.violations()) > 0 {
				t.Errorf("%s: %v", why, v)
			}
		}
	}
}

// TestStreamUnsolved: a stream that finds no q with an ELBO for a block says so and names a row. It once answered as if
// there had been no such rows.
func TestStreamUnsolved(t *testing.T) {
	s, err := NewGLMStream(1, Poisson{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []Row{{Val: []float64{1}, Y: 2}, {Val: []float64{0}, Y: 1, Offset: 1000}} { // e¹⁰⁰⁰ whatever the weight is
		if err := s.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if p, err := s.Posterior(); p != nil || !errors.Is(err, ErrNotFinite) || !strings.Contains(err.Error(), "row 1") {
		t.Errorf("%v, %v", p, err)
	}
}

// summary counts the faults and names the worst of each kind.
func summary(verdicts []*verdict) string {
	var b strings.Builder
	fits, proved := 0, 0
	byKind := map[string][]*verdict{}
	size := func(v *verdict, kind string) (x float64) {
		for _, f := range v.faults {
			if f.kind == kind && !(f.size <= x) {
				x = f.size
			}
		}
		return x
	}
	errorsBy := map[string]int{}
	var total time.Duration
	var slowest *verdict
	for _, v := range verdicts {
		fits += v.fits
		total += v.elapsed
		if slowest == nil || v.elapsed > slowest.elapsed {
			slowest = v
		}
		if v.proved {
			proved++
		}
		seen := map[string]bool{}
		for _, f := range v.faults {
			if !seen[f.kind] {
				byKind[f.kind] = append(byKind[f.kind], v)
			}
			seen[f.kind] = true
			if f.kind == faultError || f.kind == faultRefused {
				sentinel, _, _ := strings.Cut(f.detail, ": ")
				errorsBy[f.kind+": "+sentinel]++
			}
		}
	}
	fmt.Fprintf(&b, "%d seeds, %d fits, optimum proved for %d; slowest %v (seed %d)\n", len(verdicts), fits, proved, slowest.elapsed.Round(time.Millisecond), slowest.seed)
	for _, kind := range []string{faultPanic, faultNaN, faultError, faultLimit, faultGap, faultProof, faultAbove, faultMoments, faultRelation, faultTime, faultUnsolved, faultUnsettled, faultRefused} {
		all := byKind[kind]
		slices.SortStableFunc(all, func(x, y *verdict) int { return cmp.Compare(size(y, kind), size(x, kind)) })
		fmt.Fprintf(&b, "%-18s %5d", kind, len(all))
		models := map[string]int{}
		for i, v := range all {
			models[v.subject.name+"/"+typeName(v.problem.lik)]++
			if i < 6 {
				fmt.Fprintf(&b, "  %d (%.3g)", v.seed, size(v, kind))
			}
		}
		b.WriteString("\n")
		if len(models) > 0 {
			fmt.Fprintf(&b, "    %s\n", tally(models))
		}
	}
	if len(errorsBy) > 0 {
		fmt.Fprintf(&b, "errors: %s\n", tally(errorsBy))
	}
	return b.String()
}

func tally(n map[string]int) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(n)) {
		all = append(all, fmt.Sprintf("%s %d", k, n[k]))
	}
	return strings.Join(all, ", ")
}
