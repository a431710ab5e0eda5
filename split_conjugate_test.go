package pgsvi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
)

// counts is a ConjugateModel without local variables: x_n ~ Poisson(z), for a q over z of the Gamma family, T(z) = (log z, z).
type counts struct {
	x    []float64
	fail map[int]error // of Local, by term
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

// newCounts returns 40 counts, and the Gamma prior.
func newCounts(t testing.TB) (counts, *Exp) {
	t.Helper()
	var c counts
	for n := range 40 {
		c.x = append(c.x, float64((n*n+3*n)%7))
	}
	prior, err := NewGamma(2, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	return c, prior
}

func TestConjugateExact(t *testing.T) {
	c, prior := newCounts(t)
	sum := floats.Sum(c.x)
	for _, coords := range []Coordinates{MeanParams, Natural} {
		o := Objective[*Exp]{F: Conjugate(c), H: KLTo(prior), Init: prior.In(coords)}
		q, res, err := o.Fit(context.Background(), nil)
		if err != nil {
			t.Fatalf("%v: %v", coords, err)
		}
		// The posterior is Gamma(2 + Σx, 0.5 + N), and the ELBO the evidence.
		a, b := 2+sum, 0.5+40
		lg := func(x float64) float64 { l, _ := math.Lgamma(x); return l }
		evidence := 2*math.Log(0.5) - lg(2) - a*math.Log(b) + lg(a)
		for _, x := range c.x {
			evidence -= lg(x + 1)
		}
		if math.Abs(res.ELBO-evidence) > 1e-9 {
			t.Errorf("%v: ELBO %v, evidence %v", coords, res.ELBO, evidence)
		}
		if mean := q.Natural(nil); coords == MeanParams && (math.Abs(mean[0]-prior.Natural(nil)[0]-sum) > 1e-9 || res.K != 1 && res.K > 3) {
			t.Errorf("natural parameters %v after %d steps", mean, res.K)
		}
		if coords == MeanParams && (res.Status != Converged || res.Scope != OverBlock || !(res.GapBound < 1e-9)) {
			t.Errorf("%v, gap %v %v", res.Status, res.GapBound, res.Scope)
		}
	}
}

// A step with the batch B and the fraction ρ is η ← (1−ρ)η + ρ(η_p + N/M Σ_B t), and what is proved is KL(q‖q*).
func TestConjugateFractions(t *testing.T) {
	c, prior := newCounts(t)
	o := Objective[*Exp]{F: Conjugate(c), H: KLTo(prior), Init: prior}
	ctx := context.Background()
	for _, step := range []Schedule{FractionStep{Delay: 3, Power: 0.6}, nil} {
		eta, etaP := prior.Natural(nil), prior.Natural(nil)
		rho := func(k int) float64 { return math.Pow(float64(3+k), -0.6) }
		if step == nil { // that of the Stepper
			rho = func(k int) float64 { return math.Pow(float64(10+k), -0.7) }
		}
		s := &Solver{StepSize: step, BatchSize: 6, Sampler: InOrder{}, MaxPasses: 3, EvalEvery: 1, Converger: Never{}}
		k, at := 0, 0
		s.Recorder = RecorderFunc(func(it Iteration) {
			batch := c.x[at:min(40, at+6)]
			at = (at + len(batch)) % 40
			w := 40 / float64(len(batch))
			target := []float64{etaP[0] + w*floats.Sum(batch), etaP[1] - 40}
			for i, x := range target {
				eta[i] += rho(k) * (x - eta[i])
			}
			q, err := o.Posterior(it.State)
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range q.Natural(nil) {
				if math.Abs(x-eta[i]) > 1e-10*(1+math.Abs(x)) {
					t.Errorf("step %d: natural parameter %d is %v, want %v", k, i, x, eta[i])
				}
			}
			best := prior.Clone().(*Exp)
			if err := best.SetNatural([]float64{etaP[0] + floats.Sum(c.x), etaP[1] - 40}); err != nil {
				t.Fatal(err)
			}
			if want := q.KL(best); it.Scope != OverBlock || math.Abs(it.GapBound-want) > 1e-9*(1+want) {
				t.Errorf("step %d: bound %v %v, want %v", k, it.GapBound, it.Scope, want)
			}
			if want := rho(k) / (1 - rho(k)); math.Abs(it.Beta-want) > 1e-12*want {
				t.Errorf("step %d: step size %v, want %v", k, it.Beta, want)
			}
			k++
		})
		if _, err := s.Run(ctx, o); err != nil || k != 21 {
			t.Fatalf("%v after %d steps", err, k)
		}
	}
}

func TestConjugateErrors(t *testing.T) {
	c, prior := newCounts(t)
	failing := errors.New("out of tea")
	c.fail = map[int]error{17: failing, 23: errors.New("later")}
	var none *counts
	for _, e := range []struct {
		name string
		o    Objective[*Exp]
		want error
		say  string
	}{
		{"nil", Objective[*Exp]{F: Conjugate(nil), Init: prior}, ErrParam, "needs a ConjugateModel"},
		{"nil pointer", Objective[*Exp]{F: Conjugate(none), Init: prior}, ErrParam, "needs a ConjugateModel"},
		{"empty", Objective[*Exp]{F: Conjugate(counts{}), Init: prior}, ErrEmpty, "0 terms"},
		{"failing", Objective[*Exp]{F: Conjugate(c), H: KLTo(prior), Init: prior}, failing, "term 17"},
		{"not finite", Objective[*Exp]{F: Conjugate(counts{x: []float64{1, math.NaN()}}), H: KLTo(prior), Init: prior}, ErrNotFinite, "term 1"},
	} {
		for _, workers := range []int{1, 4} {
			_, _, err := e.o.Fit(context.Background(), &Solver{Workers: workers})
			if !errors.Is(err, e.want) || !strings.Contains(err.Error(), e.say) || strings.Count(err.Error(), "pgsvi: ") != 1 {
				t.Errorf("%s: %v, want %q, %v", e.name, err, e.say, e.want)
			}
		}
	}
	point := Objective[*Point]{F: Conjugate(c), Init: NewPoint([]float64{1, 2})}
	if _, _, err := point.Fit(context.Background(), nil); !errors.Is(err, ErrShape) {
		t.Errorf("a point: %v", err)
	}
	c.fail = nil
	ctx, cancel := context.WithCancel(context.Background())
	o := Objective[*Exp]{F: Conjugate(c), H: KLTo(prior), Init: prior}
	s := &Solver{BatchSize: 4, MaxPasses: 50, Recorder: RecorderFunc(func(it Iteration) {
		if it.K == 7 {
			cancel()
		}
	})}
	if _, res, err := o.Fit(ctx, s); !errors.Is(err, context.Canceled) || res.Status != Canceled || res.K != 7 {
		t.Errorf("canceled: %v, %v after %d", err, res.Status, res.K)
	}
}

// The bits do not depend on the number of workers, nor on a run having been saved and loaded in between.
func TestConjugateSameBits(t *testing.T) {
	c, prior := newCounts(t)
	c.x = slices.Repeat(c.x, 10)
	for n := range c.x {
		c.x[n] = math.Floor(c.x[n] * (1 + 0.01*float64(n)))
	}
	o := Objective[*Exp]{F: Conjugate(c), H: KLTo(prior), Init: prior}
	ctx := context.Background()
	var want []float64
	for _, workers := range []int{1, 2, 7} {
		for _, resumed := range []bool{false, true} {
			s := &Solver{BatchSize: 90, MaxPasses: 4, Workers: workers, Converger: Never{}}
			var res *Result
			var err error
			if resumed {
				half := *s
				half.MaxIter = 7
				if res, err = half.Run(ctx, o); err != nil {
					t.Fatal(err)
				}
				var file bytes.Buffer
				if err := res.Save(&file); err != nil {
					t.Fatal(err)
				}
				if res, err = s.LoadResult(ctx, &file, o); err != nil {
					t.Fatal(err)
				}
				res, err = s.Resume(ctx, res)
			} else {
				res, err = s.Run(ctx, o)
			}
			if err != nil {
				t.Fatal(err)
			}
			q, err := o.Posterior(res.Stepper)
			if err != nil {
				t.Fatal(err)
			}
			got := append(q.Natural(nil), res.ELBO, res.GapBound)
			if want == nil {
				want = got
			} else if !slices.Equal(got, want) {
				t.Errorf("%d workers, resumed %v: %v, want %v", workers, resumed, got, want)
			}
		}
	}
}

// A gradient allocates nothing that grows with the terms once it is warm.
func TestConjugateAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("counts of allocations are others with the race detector")
	}
	c, prior := newCounts(t)
	c.x = slices.Repeat(c.x, 50)
	f, dst := Conjugate(c), make([]float64, 2)
	ctx := context.Background()
	if n := testing.AllocsPerRun(100, func() {
		if _, err := f.Grad(ctx, nil, dst, prior, nil); err != nil {
			t.Fatal(err)
		}
	}); n > 8 {
		t.Errorf("%v allocations", n)
	}
}

func TestFractionStep(t *testing.T) {
	for _, c := range []struct {
		s    FractionStep
		k    int
		want float64
	}{
		{FractionStep{}, 0, 1 / (math.Pow(10, 0.7) - 1)},
		{FractionStep{}, 90, 1 / (math.Pow(100, 0.7) - 1)},
		{FractionStep{Delay: 1, Power: 1}, 0, math.Inf(1)},
		{FractionStep{Delay: 1, Power: 1}, 3, 1.0 / 3},
		{FractionStep{Delay: 64, Power: 0.5}, 36, 1.0 / 9},
	} {
		if got := c.s.StepSize(c.k); !(got == c.want || math.Abs(got-c.want) <= 1e-14*c.want) {
			t.Errorf("%+v at %d: %v, want %v", c.s, c.k, got, c.want)
		}
		if err := c.s.Validate(); err != nil {
			t.Errorf("%+v: %v", c.s, err)
		}
	}
	for _, s := range []FractionStep{{Delay: 0.5}, {Delay: -1}, {Delay: math.Inf(1)}, {Delay: math.NaN()}, {Power: -0.1}, {Power: 1.1}, {Power: math.NaN()}} {
		if err := s.Validate(); !errors.Is(err, ErrParam) {
			t.Errorf("%+v: %v", s, err)
		}
		_, prior := newCounts(t)
		o := Objective[*Exp]{H: KLTo(prior), Init: prior}
		if _, _, err := o.Fit(context.Background(), &Solver{StepSize: s}); !errors.Is(err, ErrParam) {
			t.Errorf("%+v in a Solver: %v", s, err)
		}
	}
}

func ExampleConjugate() {
	// Counts of a Poisson distribution, and a Gamma prior of its rate: no local variables, and one step is the posterior.
	prior, _ := NewGamma(2, 0.5)
	o := Objective[*Exp]{F: Conjugate(counts{x: []float64{3, 1, 4, 1, 5}}), H: KLTo(prior), Init: prior}
	q, res, err := o.Fit(context.Background(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("shape %.1f, rate %.1f, %v\n", q.Natural(nil)[0]-prior.Natural(nil)[0]+2, -q.Natural(nil)[1], res.Status)
	// Output:
	// shape 16.0, rate 5.5, converged
}

// What a Certificate finds on a path does not depend on when the run is evaluated, nor is it put off by a start that was drawn: f is concave in μ,
// and no step of coordinate ascent violates what is proved.
func TestConjugateCertificate(t *testing.T) {
	x, _ := loadIris(t)
	m, err := NewMixture(x, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	var numbers [2]string
	for i, every := range []int{1, -1} {
		for _, batch := range []int{0, 50} {
			c := &Certificate{}
			s := &Solver{StepSize: ConstantStep(0.5), BatchSize: batch, MaxPasses: 4, EvalEvery: every, Recorder: c, Converger: Never{}}
			if _, err := s.Run(context.Background(), m); err != nil || c.Err() != nil {
				t.Fatal(err, c.Err())
			}
			if batch == 0 && (c.Steps != 4 || c.Violations != 0 || c.L > 1e-9 || c.RelL > 1e-9) {
				t.Errorf("%d steps, %d violations, L %v, relative %v", c.Steps, c.Violations, c.L, c.RelL)
			}
			numbers[i] += fmt.Sprintln(c.Steps, c.Violations, c.Alpha, c.L, c.RelL, c.MinGradMap2, c.Sigma2, c.TotalD)
		}
	}
	if numbers[0] != numbers[1] {
		t.Errorf("with evaluations\n%s, without\n%s", numbers[0], numbers[1])
	}
}
