package psis

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/floats"
)

const (
	defaultDraws = 2200 // the least n with Limit(n) = 0.7 (Vehtari et al. 2024, section 3.2.4)
	// In few dimensions the largest 6% of 2200 weights are not the tail yet: k̂ of a q near p is
	// then between −0.5 and 1.4, but between 0.3 and 0.5 for the largest 2% of 22,000. If k̂
	// exceeds 0.5, Run therefore repeats with this number of draws.
	moreDraws = 22000
	moreKHat  = 0.5
	moreDim   = 100
	moreTerms = 5000 // with more terms p is nearer to a Gaussian, and a draw takes longer

	// The weights of a q near p are nearly equal, and 5 chunks of draws show that. More draws get
	// weights only while the tail may matter.
	firstDraws = 320

	leastDraws = 25 // five of them are in the tail

	// Chunk is the number of draws that share a random generator, and the largest number of draws
	// per call of a Sampler.
	Chunk = 64

	instead = "take fewer draws, or raise the limit (GOMEMLIMIT)"
)

// A Sampler stores draws of q in z, row by row. If r is not nil, it also stores log p(y, z) − log
// q(z) of each draw in r.
type Sampler func(z, r []float64, rng *rand.Rand) error

// Plan configures the draws of q.
type Plan struct {
	Dim     int // dimension of a draw
	Terms   int // terms of its log-likelihood
	Draws   int // zero means 2200; Run may weight fewer or more
	Workers int
	Rng     *rand.Rand // seeds the generators of the chunks
}

// Check sets the default number of draws if Draws is 0. The error wraps ErrParam if there are too
// few draws for the given purpose.
func (p *Plan) Check(what string) error {
	if p.Draws == 0 {
		p.Draws = defaultDraws
	}
	if p.Draws < leastDraws {
		return fmt.Errorf("%s from %d draws; it takes %d, and %d to be of use: %w",
			what, p.Draws, leastDraws, defaultDraws, sentinel.ErrParam)
	}
	return nil
}

// Chunks returns the number of chunks of draws.
func (p *Plan) Chunks() int { return (p.Draws + Chunk - 1) / Chunk }

// Bounds returns the first draw of chunk c and the draw after its last.
func (p *Plan) Bounds(c int) (lo, hi int) { return c * Chunk, min((c+1)*Chunk, p.Draws) }

// Generator returns the generator of chunk c.
func Generator(seed uint64, c int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(c))) }

// Each calls f for 0 … n−1 from the workers, as parallel.Each does. If ctx is done, the error
// includes its cause and the given activity.
func (p *Plan) Each(ctx context.Context, n int, while string, f func(worker, i int) error) error {
	if err := parallel.Each(ctx, n, p.Workers, f); ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("canceled while %s: %w", while, context.Cause(ctx))
}

// Result holds the estimates of weighted draws of p: the shape of the tail, the evidence in nats,
// moments, and standard errors. See PSIS of the root package.
type Result struct {
	KHat, Limit              float64
	Draws                    int
	ESS                      float64
	LogZ, LogZErr            float64
	Mean, SD, MeanErr, SDErr []float64
}

// Run weights draws of samplers, one sampler per worker. It makes the draws twice: first for
// their weights, and then for their moments. The result is the same for any number of workers.
//
// If Draws is 0, Run weights 320, then 640, 1280 and 2200 draws. It stops at the first number
// after which more draws could not make the tail of the weights matter. The moments use all 2200
// draws in any case. If the dimension is small and k̂ > 0.5, Run makes 22,000 draws.
func Run(ctx context.Context, plan Plan, samplers func() Sampler) (*Result, error) {
	r, err := run(ctx, plan, samplers)
	if err == nil && plan.Draws == 0 && plan.Dim <= moreDim && plan.Terms <= moreTerms &&
		r.KHat > moreKHat {
		plan.Draws = moreDraws
		return run(ctx, plan, samplers)
	}
	return r, err
}

func run(ctx context.Context, plan Plan, samplers func() Sampler) (*Result, error) {
	few := plan.Draws == 0
	if err := plan.Check("PSIS"); err != nil {
		return nil, err
	}
	dim, draws, workers := plan.Dim, plan.Draws, plan.Workers
	what := fmt.Sprintf("PSIS from %d draws of %d elements", draws, dim)
	chunk := memory.Bytes(float64(2*workers), Chunk, dim)
	need := memory.Bytes(4, 1, draws) + chunk + memory.Bytes(vectors, 1, dim)
	if err := memory.Check(0, need, what, instead); err != nil {
		return nil, err
	}
	r := &runner{plan: plan, seed: plan.Rng.Uint64(), samplers: samplers,
		work: make([]Sampler, workers), buf: make([][]float64, workers)}
	for i := range r.buf {
		r.buf[i] = make([]float64, min(Chunk, draws)*dim)
	}
	logw, order := make([]float64, draws), make([]int, draws)
	w := make([]float64, draws) // smoothed weights
	p := new(Result)
	for settled := false; p.Draws < draws && !settled; {
		most := draws
		if few {
			most = min(draws, max(firstDraws, 2*p.Draws))
		}
		if err := r.weigh(ctx, logw[:most], p.Draws/Chunk); err != nil {
			return nil, err
		}
		copy(w, logw[:most])
		p.KHat, settled = smooth(w[:most], order[:most], draws)
		p.Draws = most
	}
	top := floats.Max(logw[:p.Draws])
	if math.IsInf(top, -1) {
		return nil, fmt.Errorf("p(y, z) is 0 at all %d draws of q: %w", draws,
			sentinel.ErrNotFinite)
	}
	p.Limit = Limit(p.Draws)
	p.evidence(w[:p.Draws], top)
	spread(w, p.Draws)
	if err := r.moments(ctx, p, w); err != nil {
		return nil, err
	}
	return p, nil
}

// evidence normalizes the weights exp(w_s) and stores log Z, its error and the effective sample
// size. The largest weight is exp(top).
func (p *Result) evidence(w []float64, top float64) {
	var sum, squares float64
	for s, x := range w {
		w[s] = math.Exp(x - top)
		sum += w[s]
	}
	floats.Scale(1/sum, w)
	for _, ws := range w {
		squares += ws * ws
	}
	n := float64(len(w))
	p.ESS = 1 / squares
	p.LogZ, p.LogZErr = top+math.Log(sum/n), math.Sqrt(math.Max(0, n*squares-1)/(n-1))
}

// spread replaces the weights w_s of the first S of M draws, of sum 1, by weights of all M draws:
//
//	w_s − (M−S)/(MS) for s ≤ S,   1/M beyond.
//
// This adds the difference of two means over draws of q, of all M and of the first S, to a weighted
// mean (control variates; Owen 2013, section 8.9). If the weights are nearly equal the moments are as
// accurate as moments of M weighted draws.
func spread(w []float64, weighted int) {
	all, some := float64(len(w)), float64(weighted)
	for s := range w {
		if s >= weighted {
			w[s] = 1 / all
		} else if weighted < len(w) {
			w[s] -= (all - some) / (all * some)
		}
	}
}

// A runner makes the draws of a run.
type runner struct {
	plan     Plan
	seed     uint64
	samplers func() Sampler
	work     []Sampler   // a Sampler for each worker
	buf      [][]float64 // a chunk of draws for each worker
}

// draw makes chunk c of the draws in buf[at] with the sampler of the worker. It stores the
// logarithms of their weights unless weights is nil.
func (r *runner) draw(worker, c, at int, weights []float64) error {
	if r.work[worker] == nil {
		r.work[worker] = r.samplers()
	}
	lo, hi := r.plan.Bounds(c)
	if weights != nil {
		hi = min(hi, len(weights))
		weights = weights[lo:hi]
	}
	z := r.buf[at][:(hi-lo)*r.plan.Dim]
	return r.work[worker](z, weights, Generator(r.seed, c))
}

// while completes the error of a canceled context.
const while = "q was drawn from"

// weigh stores the logarithms of the weights of len(logw) draws, from a chunk on.
func (r *runner) weigh(ctx context.Context, logw []float64, first int) error {
	chunks := (len(logw)+Chunk-1)/Chunk - first
	return r.plan.Each(ctx, chunks, while, func(worker, c int) error {
		return r.draw(worker, first+c, worker, logw)
	})
}

// moments makes the draws again and stores their moments under the weights w in p. Each worker
// makes one chunk at a time. The chunks are added in order, so the bits do not depend on the
// workers.
func (r *runner) moments(ctx context.Context, p *Result, w []float64) error {
	var m moments
	workers, chunks := len(r.buf), r.plan.Chunks()
	for first := 0; first < chunks; first += workers {
		group := min(workers, chunks-first)
		err := r.plan.Each(ctx, group, while, func(worker, i int) error {
			return r.draw(worker, first+i, i, nil)
		})
		if err != nil {
			return err
		}
		for i := range group {
			lo, hi := r.plan.Bounds(first + i)
			if err := m.add(w[lo:hi], r.buf[i], r.plan.Dim); err != nil {
				return err
			}
		}
	}
	m.store(p, floats.Dot(w, w))
	return nil
}

// vectors is the number of vectors of the dimension of z that moments allocates.
const vectors = 13

// moments holds weighted sums of u = (z − center)/scale, element by element. The center and the
// scale come from the first chunk.
type moments struct {
	centre, scale []float64
	w1, w2        []float64    // Σ w u, Σ w u²
	v             [4][]float64 // Σ w² u^j, j = 1 … 4
}

// add adds draws, row by row, with their weights.
func (m *moments) add(w, z []float64, dim int) error {
	if m.centre == nil {
		m.begin(z, dim)
	}
	for s, ws := range w {
		for j, zj := range z[s*dim : (s+1)*dim] {
			if math.IsNaN(zj) || math.IsInf(zj, 0) {
				return fmt.Errorf("element %d of a draw of q is %v: %w", j, zj,
					sentinel.ErrNotFinite)
			}
			u := (zj - m.centre[j]) / m.scale[j]
			x := ws * u
			m.w1[j] += x
			m.w2[j] += x * u
			x *= ws
			for k := range m.v {
				m.v[k][j] += x
				x *= u
			}
		}
	}
	return nil
}

func (m *moments) begin(z []float64, dim int) {
	v := &m.v
	for _, p := range []*[]float64{&m.centre, &m.scale, &m.w1, &m.w2, &v[0], &v[1], &v[2], &v[3]} {
		*p = make([]float64, dim)
	}
	n := float64(len(z) / dim)
	for i, zi := range z {
		m.centre[i%dim] += zi / n
	}
	for i, zi := range z {
		d := zi - m.centre[i%dim]
		m.scale[i%dim] += d * d / n
	}
	for j, s2 := range m.scale {
		if m.scale[j] = math.Sqrt(s2); !(m.scale[j] > 0) || math.IsInf(m.scale[j], 0) {
			m.scale[j] = 1
		}
	}
}

// store stores the moments and their standard errors. These are errors of ratios of means of
// independent draws (Owen 2013, section 9.2): √Σ w²(z − mean)² of the mean, and of the standard
// deviation
//
//	√Σ w²((z − mean)² − sd²)²/(2 sd).
func (m *moments) store(p *Result, squares float64) {
	dim := len(m.centre)
	for _, x := range []*[]float64{&p.Mean, &p.SD, &p.MeanErr, &p.SDErr} {
		*x = make([]float64, dim)
	}
	for j, scale := range m.scale {
		mu := m.w1[j]
		s2 := math.Max(0, m.w2[j]-mu*mu)
		v1, v2, v3, v4 := m.v[0][j], m.v[1][j], m.v[2][j], m.v[3][j]
		c := mu*mu - s2
		p.Mean[j], p.SD[j] = m.centre[j]+scale*mu, scale*math.Sqrt(s2)
		p.MeanErr[j] = scale * math.Sqrt(math.Max(0, v2-2*mu*v1+mu*mu*squares))
		if s2 > 0 {
			fourth := v4 - 4*mu*v3 + (4*mu*mu+2*c)*v2 - 4*mu*c*v1 + c*c*squares
			p.SDErr[j] = scale * math.Sqrt(math.Max(0, fourth)) / (2 * math.Sqrt(s2))
		}
	}
}
