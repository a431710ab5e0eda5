package descent

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/floats"
)

// unit is N(m, I): η = μ = λ = m.
type unit struct{ m []float64 }

func (q *unit) Dim() int                            { return len(q.m) }
func (q *unit) NumParams() int                      { return len(q.m) }
func (q *unit) Params(dst []float64) []float64      { return append(dst[:0], q.m...) }
func (q *unit) Natural(dst []float64) []float64     { return append(dst[:0], q.m...) }
func (q *unit) MeanParams(dst []float64) []float64  { return append(dst[:0], q.m...) }
func (q *unit) MeanGrad(dst, g []float64) []float64 { return append(dst[:0], g...) }
func (q *unit) SetParams(p []float64) error         { return q.SetNatural(p) }

func (q *unit) SetNatural(eta []float64) error {
	for _, x := range eta {
		if math.IsNaN(x) || math.Abs(x) > 1e6 {
			return sentinel.ErrNotFinite
		}
	}
	copy(q.m, eta)
	return nil
}

func (q *unit) KL(p *unit) float64 {
	d := floats.Distance(q.m, p.m, 2)
	return 0.5 * d * d
}

var _ Family[*unit] = &unit{}

// bowl is f(m) = ½aΣ(m_i − c)², from m = far, under h = KL(q‖N(0, I)), whose sum has its minimum at
// m = ac/(1 + a). The gradient has noise of standard deviation sd.
type bowl struct{ a, c, sd, far float64 }

func (b bowl) best() float64 { return b.a * b.c / (1 + b.a) }

// start returns the Stepper of b in d dimensions with the draws of rng.
func (b bowl) start(d int, rng *rand.Rand) *Stepper[*unit] {
	zero := &unit{make([]float64, d)}
	s := new(Stepper[*unit])
	o := Objective[*unit]{
		N: 1, Exact: b.sd == 0, Infinite: true, Family: true, Average: true, Prior: zero.m,
		Rand: func() *rand.Rand { return rng },
		Grad: func(_ context.Context, r *rand.Rand, dst []float64, q *unit, _ []int) (v float64,
			_ error) {
			if r == nil {
				r = rng
			}
			for i, m := range q.m {
				e := 0.0
				if b.sd > 0 {
					e = b.sd * r.NormFloat64()
				}
				dst[i] = b.a*(m-b.c) + e
				v += 0.5*b.a*(m-b.c)*(m-b.c) + e*m
			}
			return v, nil
		},
		Easy: func(q *unit) float64 { return q.KL(zero) },
		Pull: func(q, from *unit) float64 { return q.KL(from) },
		Prox: func(q, from *unit, g []float64, beta float64) error {
			r := 1 / (1 + beta)
			x := make([]float64, d)
			for i, m := range from.m {
				x[i] = r*m - (1-r)*g[i]
			}
			return q.SetNatural(x)
		},
		Set:   func(q, from *unit) error { return q.SetNatural(from.m) },
		Clone: func(q *unit) *unit { return &unit{slices.Clone(q.m)} },
		State: func(c *save.Coder, q *unit) { c.Floats(d, &q.m) },
	}
	o.Value = func(ctx context.Context, r *rand.Rand, q *unit) (float64, float64, error) {
		v, err := o.Grad(ctx, r, make([]float64, d), q, nil)
		return v, 0, err
	}
	q := &unit{make([]float64, d)}
	floats.AddConst(b.far, q.m)
	s.Start(o, q)
	return s
}

func (b bowl) off(q *unit) float64 {
	most := 0.0
	for _, m := range q.m {
		most = math.Max(most, math.Abs(m-b.best()))
	}
	return most
}

func step(t *testing.T, s *Stepper[*unit], beta float64) {
	t.Helper()
	if err := s.Step(context.Background(), nil, true, beta); err != nil {
		t.Fatal(err)
	}
}

// Exact steps must reach the minimum even if the step to the target is much too long, and the gap
// must be at least the true gap.
func TestExactSteps(t *testing.T) {
	for _, b := range []bowl{{a: 0.5, c: 2}, {a: 30, c: -1, far: 5}, {a: 1e4, c: 3, far: -20}} {
		s := b.start(3, rand.New(rand.NewPCG(1, 1)))
		last := math.Inf(1)
		for k := range 200 {
			step(t, s, math.Inf(1))
			v, _, _ := s.o.Value(context.Background(), nil, s.Q)
			if v += s.o.Easy(s.Q); v > last+1e-12*math.Abs(last) {
				t.Fatalf("%+v: step %d raises the objective from %v to %v", b, k, last, v)
			}
			last = v
		}
		if off := b.off(s.Q); off > 1e-7 || s.Gap > 1e-10 {
			t.Errorf("%+v: off by %v, gap %v", b, off, s.Gap)
		}
	}
}

// Steps of a given size must match the formula, and several linearizations per step must reach the
// proximal point.
func TestGivenSteps(t *testing.T) {
	b := bowl{a: 3, c: 2, far: 1}
	s := b.start(2, rand.New(rand.NewPCG(1, 1)))
	step(t, s, 0.5)
	r := 1 / 1.5
	if want := r*1 - (1-r)*3*(1-2); math.Abs(s.Q.m[0]-want) > 1e-15 || s.Took != 0.5 {
		t.Errorf("the step is to %v by %v, want %v by 0.5", s.Q.m[0], s.Took, want)
	}
	s = b.start(2, rand.New(rand.NewPCG(1, 1)))
	s.o.Inner = 100
	step(t, s, 0.5)
	// argmin ½a(m − c)² + ½m² + ½(m − 1)²/β
	if want := (3*2 + 2.) / (3 + 1 + 2); math.Abs(s.Q.m[0]-want) > 1e-6 {
		t.Errorf("the proximal point is %v, want %v", s.Q.m[0], want)
	}
	err := s.Step(context.Background(), nil, true, math.Inf(1))
	if !errors.Is(err, sentinel.ErrParam) {
		t.Errorf("a step of its own with Inner: %v", err)
	}
}

// Under noise the average must be as near the minimum as its gap, and far nearer than the iterates.
func TestNoisySteps(t *testing.T) {
	const dim = 10
	b := bowl{a: 1, c: 2, sd: 1, far: 8}
	s := b.start(dim, rand.New(rand.NewPCG(2, 2)))
	var mean, weights float64 // weighted as in the average, over the iterates
	for k := 0; k < 20000 && !(s.Gap <= s.Goal()); k++ {
		step(t, s, math.Inf(1))
		if s.averaged == 1 {
			mean, weights = 0, 0
		}
		if n := s.averaged; s.averages {
			w := n * (n + 1) * (n + 2)
			mean, weights = mean+w*s.Q.m[0], weights+w
			if got, want := s.avg.m[0], mean/weights; math.Abs(got-want) > 1e-9 {
				t.Fatalf("the average of %v iterates is %v, want %v", n, got, want)
			}
		}
	}
	if !s.averages || !(s.Gap <= s.Goal()) {
		t.Fatalf("averages %v, gap %v, goal %v", s.averages, s.Gap, s.Goal())
	}
	if loss := 0.5 * (1 + b.a) * dim * b.off(s.Dist()) * b.off(s.Dist()); loss > 10*s.Goal() {
		t.Errorf("the average is off by up to %v nats, goal %v", loss, s.Goal())
	}
	at := slices.Clone(s.Dist().m)
	step(t, s, 0.1)
	if s.averages || floats.Distance(s.Trial.m, at, 2) != 0 {
		t.Error("a step of a given size does not go on from the average")
	}
}

// A run that continues from a saved state must have the same bits, and Undo must restore the state.
func TestState(t *testing.T) {
	b := bowl{a: 1, c: 2, sd: 1, far: 8}
	one, two := b.start(3, rand.New(rand.NewPCG(3, 3))), b.start(3, rand.New(rand.NewPCG(4, 4)))
	for range 1000 {
		if one.blocks.span > 1 && one.blocks.passes > 0 {
			break
		}
		step(t, one, math.Inf(1))
	}
	bytes, err := save.Marshal(one.State)
	if err != nil {
		t.Fatal(err)
	}
	if err := save.Unmarshal(bytes, two.State); err != nil {
		t.Fatal(err)
	}
	*one.o.Rand(), *two.o.Rand() = *rand.New(rand.NewPCG(5, 5)), *rand.New(rand.NewPCG(5, 5))
	for range 50 {
		step(t, one, math.Inf(1))
		step(t, two, math.Inf(1))
	}
	if !slices.Equal(one.Dist().m, two.Dist().m) || one.Gap != two.Gap || !one.averages {
		t.Errorf("%v with gap %v, and %v with gap %v", one.Dist().m, one.Gap, two.Dist().m, two.Gap)
	}
	before, _ := save.Marshal(one.State)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	put := one.Undo(ctx, nil)
	step(t, one, math.Inf(1))
	cause := errors.New("enough")
	if err := put(cause); err != cause {
		t.Error(err)
	}
	if after, _ := save.Marshal(one.State); !slices.Equal(before, after) {
		t.Error("a step that is taken back leaves traces")
	}
}

// Blocks are means of consecutive passes, of equal length, at most 15 of them.
func TestBatchMeans(t *testing.T) {
	var b batchMeans
	for i := range 1000 {
		b.add([]float64{float64(i)})
		if n := len(b.means); n >= mostMeans || i >= 8 && n < mostMeans/2 {
			t.Fatalf("%d blocks after %d passes", n, i+1)
		}
		for j, m := range b.means {
			if want := float64(j*b.span) + float64(b.span-1)/2; m[0] != want {
				t.Fatalf("block %d of %d passes has mean %v, want %v", j, b.span, m[0], want)
			}
		}
	}
}

// The metrics must follow their recurrences, also after saving and loading.
func TestMetrics(t *testing.T) {
	const eps, beta = 0.03, 0.5
	gs := []float64{2, -1, 0.5, 3}
	sq := func(x float64) float64 { return x * x }
	for name, c := range map[string]struct {
		start func() Metric
		want  func() func(g float64) (s, to float64)
	}{
		"AdaGrad": {func() Metric { return AdaGrad(1, eps) }, func() func(g float64) (s,
			to float64) {
			e := 0.0
			return func(g float64) (float64, float64) { e += sq(g); return math.Sqrt(eps + e), g }
		}},
		"RMSprop": {func() Metric { return RMSprop(1, 0.9, eps) }, func() func(g float64) (s,
			to float64) {
			e := 0.0
			return func(g float64) (float64, float64) {
				e = 0.9*e +
					0.1*sq(g)
				return math.Sqrt(eps + e), g
			}
		}},
		"Adadelta": {func() Metric { return Adadelta(1, 0.9, eps) }, func() func(g float64) (s,
			to float64) {
			e, d := 0.0, 0.0
			return func(g float64) (float64, float64) {
				e = 0.9*e + 0.1*sq(g)
				s := math.Sqrt(eps+e) / math.Sqrt(eps+d)
				d = 0.9*d + 0.1*sq(beta*g/s)
				return s, g
			}
		}},
		"Adam": {func() Metric { return Adam(1, 0.9, 0.99, eps) }, func() func(g float64) (s,
			to float64) {
			m, e, k := 0.0, 0.0, 0.0
			return func(g float64) (float64, float64) {
				m, e, k = 0.9*m+0.1*g, 0.99*e+0.01*sq(g), k+1
				return eps + math.Sqrt(e/(1-math.Pow(0.99, k))), m / (1 - math.Pow(0.9, k))
			}
		}},
	} {
		metric, want := c.start(), c.want()
		for k, g := range gs {
			s, d := []float64{0}, []float64{g}
			metric.Next(s, d, beta)
			if ws, wd := want(g); math.Abs(s[0]-ws) > 1e-12 || math.Abs(d[0]-wd) > 1e-12 {
				t.Errorf("%s, step %d: %v and %v, want %v and %v", name, k, s[0], d[0], ws, wd)
			}
			b, err := save.Marshal(metric.State)
			if err != nil {
				t.Fatal(err)
			}
			metric = c.start()
			if err := save.Unmarshal(b, metric.State); err != nil {
				t.Fatal(err)
			}
		}
	}
}
