package trust

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// classProblem is a random softmax problem. It is a GP if p has a kernel, and otherwise a GLM of
// the rows of p.
type classProblem struct {
	*trustProblem
	k         int
	offset    []float64 // for each class of each row
	intercept bool
}

// randomClasses draws a problem with 2 to 100 classes. Some problems have constant labels,
// classes that never occur, or labels that a plane separates.
func randomClasses(seed uint64) *classProblem {
	rng := rand.New(rand.NewPCG(seed, 21))
	c := &classProblem{trustProblem: randomProblemOf(rng, BernoulliLogit{}), k: 2}
	switch {
	case chance(rng, 0.03):
		c.k = 100
	case chance(rng, 0.8):
		c.k = 2 + int(logUniform(rng, 0, 1.3))
	}
	if chance(rng, 0.35) {
		generateGP(rng, c.trustProblem)
	}
	n, d := c.dims()
	// Problems with many classes get few columns and rows, to save time.
	if most := 1 + 30/c.k; c.kernel == nil && d > most && chance(rng, 0.9) {
		c.narrow(most)
	}
	if most := max(1, 150/c.k); n > most {
		c.trustProblem = c.selectRows(sameRowsOrder(most))
		n = most
	}
	c.lik, c.trustProblem.offset = Softmax{Classes: c.k}, nil
	c.intercept = c.kernel == nil && chance(rng, 0.5)
	if c.kernel == nil && chance(rng, 0.2) {
		c.offset = make([]float64, n*c.k)
		sd := logUniform(rng, -1, 1.5)
		for i := range c.offset {
			c.offset[i] = sd * rng.NormFloat64()
		}
		c.scales += fmt.Sprintf(", offsets of %.1g", sd)
	}
	c.label(rng)
	c.calm()
	return c
}

// calm limits the prior standard deviations of scores to 1e4, because larger expectations take
// seconds.
func (c *classProblem) calm() {
	most := 0.0
	for i := range c.y {
		sum := 0.0
		for j, v := range c.variance {
			sum += c.x.At(i, j) * c.x.At(i, j) * v
		}
		most = max(most, sum)
	}
	if by := 1e8 / most; by < 1 {
		floats.Scale(by, c.variance)
	}
}

// label draws the labels from scores to which each column contributes about 1.
func (c *classProblem) label(rng *rand.Rand) {
	n, d := c.dims()
	used := c.k
	kind := rng.IntN(6)
	switch kind {
	case 0:
		used = 1
		c.scales += ", constant labels"
	case 1:
		used = 1 + rng.IntN(c.k)
		c.scales += fmt.Sprintf(", %d classes occur", used)
	}
	column := make([]float64, d)
	for j := range column {
		for i := range n {
			column[j] = math.Max(column[j], math.Abs(c.x.At(i, j)))
		}
	}
	scores, w := make([]float64, used), mat.NewDense(used, d, nil)
	for k := range used {
		for j := range d {
			w.Set(k, j, 2*rng.NormFloat64()/(column[j]+1e-300))
		}
	}
	names := rng.Perm(c.k)
	c.y = make([]float64, n)
	for i := range c.y {
		for k := range scores {
			scores[k] = floats.Dot(w.RawRowView(k), c.x.RawRowView(i))
			if kind != 2 { // for kind 2, the class with the highest score is the label
				scores[k] -= math.Log(rng.ExpFloat64())
			}
		}
		c.y[i] = float64(names[floats.MaxIdx(scores)])
	}
	if kind == 2 {
		c.scales += ", separable"
	}
}

func (c *classProblem) String() string {
	s := c.trustProblem.String()
	if c.intercept {
		s += ", with an intercept"
	}
	return s
}

// classFit holds a fit of a classProblem.
type classFit struct {
	res         *Result
	probs, read *mat.Dense // probabilities before and after saving and loading
	model       Model
}

// fit fits the problem with the given labels and offsets.
func (c *classProblem) fit(y, offset []float64, s *Solver) (f *classFit, err error) {
	ctx := context.Background()
	f = &classFit{}
	var file bytes.Buffer
	if c.kernel != nil {
		g, err := NewGP(c.x, y, c.kernel, c.lik, nil)
		if err != nil {
			return nil, err
		}
		post, res, err := g.Fit(ctx, s)
		if err != nil {
			return nil, err
		}
		f.res, f.model, f.probs = res, g, post.At(c.x).Probs()
		if err := post.Save(&file); err != nil {
			return nil, err
		}
		read, err := Load[*GPPosterior](&file)
		if err != nil {
			return nil, err
		}
		f.read = read.At(c.x).Probs()
		return f, nil
	}
	g, err := NewGLM(c.x, y, c.lik, c.options(offset))
	if err != nil {
		return nil, err
	}
	post, res, err := g.Fit(ctx, s)
	if err != nil {
		return nil, err
	}
	at := func(post *GLMPosterior) *mat.Dense {
		p := post.At(c.x)
		if offset != nil {
			p = p.Offset(offset)
		}
		return p.Probs()
	}
	f.res, f.model, f.probs = res, g, at(post)
	if err := post.Save(&file); err != nil {
		return nil, err
	}
	read, err := Load[*GLMPosterior](&file)
	if err != nil {
		return nil, err
	}
	f.read = at(read)
	return f, nil
}

// options returns the options of the GLM.
func (c *classProblem) options(offset []float64) *GLMOptions {
	opt := &GLMOptions{Offset: offset, Weights: c.weight, Intercept: c.intercept}
	if c.intercept {
		opt.PriorSD, opt.InterceptSD = math.Sqrt(c.variance[0]), 5
		return opt
	}
	opt.Prior, _ = NewMeanField(make([]float64, len(c.variance)), c.variance)
	return opt
}

// classFault describes a fault of a fit.
type classFault struct{ what, detail string }

// loss returns the allowed distance in nats between a fit with the zero Solver and a longer fit.
// It is almost nothing for a GLM. A GP ends by an estimate of its gap, so the loss includes ten
// times the gap.
func (c *classProblem) loss(gap float64) float64 {
	if c.kernel != nil {
		return 1e-3 + 10*gap
	}
	return 1e-4
}

// classLong is the number of passes of a long fit.
const classLong = 60

// judgeClasses draws the problem of a seed and returns the faults of its fit.
func judgeClasses(seed uint64) (c *classProblem, faults []classFault) {
	fault := func(what, format string, args ...any) {
		faults = append(faults, classFault{what, fmt.Sprintf(format, args...)})
	}
	defer func() {
		if r := recover(); r != nil {
			fault("panic", "%v", r)
		}
	}()
	c = randomClasses(seed)
	rng := rand.New(rand.NewPCG(seed, 22))
	f, err := c.fit(c.y, c.offset, nil)
	if err != nil {
		fault("error", "%v", err)
		return c, faults
	}
	best, err := c.fit(c.y, c.offset, &Solver{Goal: 1e-11, MaxPasses: classLong})
	if err != nil {
		fault("error of a long fit", "%v", err)
		return c, faults
	}
	c.repeat(rng, f, fault)
	c.check(f, best, c.restate(rng, best, fault), fault)
	return c, faults
}

// check compares a fit with a longer fit and with the ELBO of another form of the problem, and
// checks what holds for every fit.
func (c *classProblem) check(
	f, best *classFit, other float64, fault func(what, format string, args ...any)) {
	n, _ := c.dims()
	most := max(f.res.ELBO, best.res.ELBO, other)
	tiny := 1e-9 * (1 + math.Abs(most))
	if math.IsNaN(f.res.ELBO) || math.IsInf(f.res.ELBO, 0) || !(f.res.ELBO <= 0) {
		fault("ELBO", "%v", f.res.ELBO)
	}
	if lost := most - f.res.ELBO; !(lost <= c.loss(f.res.Gap)+1e4*tiny) {
		fault("loss", "%.3g nats below %v: %v", lost, most, f.res)
	}
	for _, it := range append(slices.Clone(f.res.Trace), best.res.Trace...) {
		if math.IsNaN(it.ELBO) {
			fault("NaN", "%v", it)
			break
		}
		if proved := it.ELBO + it.GapBound; !(proved >= most-f.res.ELBOErr-tiny) &&
			!math.IsNaN(proved) {
			fault("GapBound", "pass %v: %v + %v < %v", it.Passes, it.ELBO, it.GapBound, most)
			break
		}
	}
	weights := float64(n)
	if c.weight != nil {
		weights += floats.Sum(c.weight)
	}
	if !(f.res.ELBOErr < 1e-4*(1+weights)+1e-3*math.Abs(most)) {
		fault("ELBOErr", "%v", f.res.ELBOErr)
	}
	for i := range n {
		row := f.probs.RawRowView(i)
		if s := floats.Sum(row); !(math.Abs(s-1) < 1e-8) || !(floats.Min(row) >= 0) {
			fault("probabilities", "of row %d: %v, sum %v", i, row, s)
			break
		}
	}
	if !mat.Equal(f.probs, f.read) {
		fault("file", "it predicts otherwise when read")
	}
}

// repeat checks that the same fit has the same bits with two workers, and after saving and
// resuming.
func (c *classProblem) repeat(
	rng *rand.Rand, f *classFit, fault func(what, format string, args ...any)) {
	ctx := context.Background()
	two, err := c.fit(c.y, c.offset, &Solver{Workers: 2})
	if err != nil || two.res.ELBO != f.res.ELBO || !mat.Equal(two.probs, f.probs) {
		fault("workers", "%v of two, want %v, %v", two, f.res.ELBO, err)
	}
	if f.res.Stepper == nil { // all rows have weight 0
		return
	}
	const passes = 7
	whole, err := (&Solver{MaxPasses: passes}).Run(ctx, f.model)
	if err != nil {
		fault("run", "%v", err)
		return
	}
	part, err := (&Solver{MaxPasses: float64(1 + rng.IntN(passes-1))}).Run(ctx, f.model)
	var file bytes.Buffer
	if err == nil {
		err = part.Save(&file)
	}
	s := &Solver{MaxPasses: passes}
	if err == nil {
		part, err = s.LoadResult(ctx, &file, f.model)
	}
	if err == nil {
		part, err = s.Resume(ctx, part)
	}
	if err != nil || part.ELBO != whole.ELBO {
		fault("resume", "%v, want %v, %v", part, whole, err)
	}
}

// restate checks that other forms of the problem have the same ELBO. One form has its classes in
// another order. If there are two classes, another form is a logit with twice the prior variance.
// restate returns the ELBO with the classes in another order.
func (c *classProblem) restate(rng *rand.Rand, best *classFit,
	fault func(what, format string, args ...any)) (elbo float64) {
	elbo = math.Inf(-1)
	long := &Solver{Goal: 1e-11, MaxPasses: classLong}
	n, _ := c.dims()
	perm := rng.Perm(c.k)
	y, offset := make([]float64, n), slices.Clone(c.offset)
	for i, label := range c.y {
		y[i] = float64(perm[int(label)])
	}
	for i := range offset {
		offset[i/c.k*c.k+perm[i%c.k]] = c.offset[i]
	}
	near := func(what string, res *Result) {
		gap := best.res.Gap + res.Gap // both fits may end at the limit of passes
		got, want := res.ELBO, best.res.ELBO
		if !(math.Abs(got-want) <= c.loss(gap)+10*gap+1e-5*math.Abs(want)) {
			fault(what, "%v, want %v", res, best.res)
		}
	}
	if other, err := c.fit(y, offset, long); err != nil {
		fault("permuted classes", "%v", err)
	} else {
		elbo = other.res.ELBO
		near("permuted classes", other.res)
		for i := range n {
			for k := range c.k {
				a, b := best.probs.At(i, k), other.probs.At(i, perm[k])
				if !(math.Abs(a-b) < 1e-2) && best.res.Gap+other.res.Gap < 1e-6 {
					fault("permuted classes", "row %d: probability %v, want %v", i, b, a)
					return elbo
				}
			}
		}
	}
	if c.k != 2 {
		return elbo
	}
	q := c.trustProblem.clone()
	q.lik, q.y = BernoulliLogit{}, make([]float64, n)
	for i, label := range c.y {
		q.y[i] = 2*label - 1
	}
	var res *Result
	var err error
	if c.kernel != nil {
		var g *GP
		if g, err = NewGP(c.x, q.y, Sum{c.kernel, c.kernel}, q.lik, nil); err == nil {
			_, res, err = g.Fit(context.Background(), nil)
		}
	} else {
		one := make([]float64, 0, n)
		for i := 0; i < len(c.offset); i += 2 {
			one = append(one, c.offset[i+1]-c.offset[i])
		}
		opt := c.options(one)
		if len(one) == 0 {
			opt.Offset = nil
		}
		opt.PriorSD, opt.InterceptSD = opt.PriorSD*math.Sqrt2, opt.InterceptSD*math.Sqrt2
		if opt.Prior != nil {
			twice := slices.Clone(c.variance)
			floats.Scale(2, twice)
			opt.Prior, _ = NewMeanField(make([]float64, len(twice)), twice)
		}
		opt.Covariance = FullCovariance
		var g *GLM
		if g, err = NewGLM(c.x, q.y, q.lik, opt); err == nil {
			_, res, err = g.Fit(context.Background(), nil)
		}
	}
	if err != nil {
		fault("a logit", "%v", err)
		return elbo
	}
	near("a logit", res)
	return elbo
}

// knownClassFailures maps the seeds that fail to the causes.
var knownClassFailures = map[uint64]string{
	56: "a row of units 1e-8…1e8 under offsets of 30: it stalls 0.001 nats below, with a " +
		"gap of 3e8",
	3021: "units 1e-8…1e8: 1000 passes are not enough, as the gap of 2e12 and the ELBOErr of 9 " +
		"show",
	3216: "means of 1e4 sd: 60 passes are not enough, as the GapBound of 3e5 shows",
	3778: "it stalls far below, as the gap of 2e10 and the ELBOErr of 950 show",
	3103: "columns that are the same to 1e-12: it stalls 1.2 nats below, with a gap " +
		"of 2e7",
}

// TestClassesResumed checks a problem whose steps of the means have a limited reach. A resumed
// run must continue with the same reach.
func TestClassesResumed(t *testing.T) {
	t.Parallel()
	_, faults := judgeClasses(19)
	for _, f := range faults {
		t.Errorf("%s: %s", f.what, f.detail)
	}
}

// TestSeedsClasses fits random softmax problems and checks what must hold for each of them.
//
//	go test -run SeedsClasses -seeds 2000 -v ./internal/trust
//	go test -run SeedsClasses -seed 17 -v ./internal/trust
func TestSeedsClasses(t *testing.T) {
	t.Parallel()
	if *trustSeed >= 0 {
		c, faults := judgeClasses(uint64(*trustSeed))
		t.Logf("%v", c)
		for _, f := range faults {
			t.Errorf("%s: %s", f.what, f.detail)
		}
		return
	}
	n := testkit.GivenSeeds()
	if n == 0 {
		n = testkit.Shorter(28, 12)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var next atomic.Int64
	found := map[string][]uint64{}
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				seed := testkit.FirstSeed() + uint64(i)
				c, faults := judgeClasses(seed)
				mu.Lock()
				if why, known := knownClassFailures[seed]; known {
					if len(faults) == 0 {
						t.Errorf("seed %d passes, and is known to fail: %s", seed, why)
					}
					faults = nil
				}
				for _, f := range faults {
					found[f.what] = append(found[f.what], seed)
					t.Errorf("seed %d, %s: %s\n%v", seed, f.what, f.detail, c)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	var lines []string
	for what, seeds := range found {
		slices.Sort(seeds)
		lines = append(lines, fmt.Sprintf("%s: %d, %v", what, len(seeds),
			seeds[:min(len(seeds), 20)]))
	}
	slices.Sort(lines)
	t.Logf("%d problems\n%s", n, strings.Join(lines, "\n"))
}

// TestClassesPredictedGain checks a run that was resumed. The resumed run must remember the
// predicted gain of Newton's step of the precisions.
func TestClassesPredictedGain(t *testing.T) {
	c, faults := judgeClasses(1300110)
	for _, f := range faults {
		t.Errorf("%s: %s\n%v", f.what, f.detail, c)
	}
}

// TestClassesFlat checks problems in which a flat valley or a saddle of the precisions stopped
// the fit up to 0.14 nats below the optimum, with a Gap that was a hundred times too small.
func TestClassesFlat(t *testing.T) {
	t.Parallel()
	seeds := []uint64{1400177, 7320167, 52000314, 3868}
	for _, seed := range seeds[:testkit.Shorter(4, 3)] {
		c, faults := judgeClasses(seed)
		for _, f := range faults {
			t.Errorf("seed %d, %s: %s\n%v", seed, f.what, f.detail, c)
		}
	}
}

// TestClassesFar checks problems in which curvatures vanish far from the optimum. Newton's step
// of the means was 10⁴ to 10⁷ standard deviations long, and fits stalled 643 and 334 nats below
// other fits.
func TestClassesFar(t *testing.T) {
	t.Parallel()
	seeds := []uint64{52000812, 52001016}
	for _, seed := range seeds[:testkit.Shorter(2, 1)] {
		c, faults := judgeClasses(seed)
		for _, f := range faults {
			t.Errorf("seed %d, %s: %s\n%v", seed, f.what, f.detail, c)
		}
	}
}

// TestClassesWide checks a problem with 7 rows, 300 columns and 14 classes. If a pass read all
// columns, it would take seconds, and the fits of this test more than 25 minutes.
func TestClassesWide(t *testing.T) {
	t.Parallel()
	c, faults := judgeClasses(52000772)
	for _, f := range faults {
		t.Errorf("%s: %s\n%v", f.what, f.detail, c)
	}
}

// TestTwoClasses checks runs with two classes and columns in very different units, in which
// rounding errors once added up to several nats.
func TestTwoClasses(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{3397, 7320251} {
		c, faults := judgeClasses(seed)
		for _, f := range faults {
			t.Errorf("seed %d, %s: %s\n%v", seed, f.what, f.detail, c)
		}
	}
}
