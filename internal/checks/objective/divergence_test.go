package objective

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// quadratic is the potential ½ Σ a_i λ_i².
type quadratic []float64

func (a quadratic) Value(l []float64) (v float64) {
	for i, x := range l {
		v += 0.5 * a[i%len(a)] * x * x
	}
	return v
}

func (a quadratic) Grad(dst, l []float64) []float64 {
	dst = dense.Dest(dst, len(l))
	for i, x := range l {
		dst[i] = a[i%len(a)] * x
	}
	return dst
}

func (a quadratic) InvGrad(dst, y []float64) []float64 {
	dst = dense.Dest(dst, len(y))
	for i, x := range y {
		dst[i] = x / a[i%len(a)]
	}
	return dst
}

// slope is a potential without InvGrad.
type slope struct{ Potential }

func (slope) InvGrad(_, _ []float64) []float64 { return nil }

func testDivergences() map[string]Divergence {
	return map[string]Divergence{
		"Euclidean":      Euclidean(),
		"KL":             KL(),
		"ReverseKL":      ReverseKL(),
		"SymKL":          SymKL(),
		"Bregman":        Bregman(quadratic{1, 3, 0.5}),
		"DivergenceFunc": DivergenceFunc(ReverseKL().Value),
	}
}

// TestDivergenceGradients compares the gradients of all divergences with differences of their
// values. The value and its gradient must be zero for equal arguments, and the value must be
// positive for others.
func TestDivergenceGradients(t *testing.T) {
	for name := range testDivergences() {
		rng := testkit.Rand(20)
		for _, f := range testFamilies() {
			what := name + ", " + f.name
			q, q0 := f.rand(rng), f.rand(rng)
			d := testDivergences()[name]
			tol := 1e-9
			if name == "DivergenceFunc" {
				tol = 1e-8 // the value has about ten digits, according to its comment
			}
			testkit.CheckClose(t, what, d.Grad(nil, q, q0),
				paramGrad(q, func(p Dist) float64 { return d.Value(p, q0) }), tol)
			if v := d.Value(q, q0); !(v > 0) {
				t.Errorf("%s: D is %v for distinct arguments", what, v)
			}
			testkit.CheckNear(t, what+": D(q‖q)", d.Value(q, q.Clone()), 0, 1e-13)
			testkit.CheckClose(t, what+": ∇D(q‖q)", d.Grad(nil, q, q.Clone()),
				make([]float64, q.NumParams()), 1e-9)
		}
	}
}

// TestKLGradientsMixed checks KL and KLTo between full and diagonal Gaussians, in all
// coordinates.
func TestKLGradientsMixed(t *testing.T) {
	rng := testkit.Rand(21)
	for _, f := range testFamilies() {
		q := f.rand(rng)
		for _, p := range []*Gaussian{randomGaussian(rng, f.dim, MeanCov),
			randomMeanField(rng, f.dim, Natural)} {
			what := fmt.Sprintf("%s to %T", f.name, p)
			h := KLTo(p)
			testkit.CheckNear(t, what, h.Value(q), q.KL(p), 1e-15)
			want := paramGrad(q, h.Value)
			testkit.CheckClose(t, what, h.Grad(nil, q), want, 1e-9)
			testkit.CheckClose(t, what, KL().Grad(nil, q, p), want, 1e-9)
		}
	}
}

// TestKLRelations checks that ReverseKL swaps the arguments of KL, that SymKL is the mean of
// both, and that all three agree to second order.
func TestKLRelations(t *testing.T) {
	rng := testkit.Rand(22)
	for _, f := range testFamilies() {
		q, p := f.rand(rng), f.rand(rng)
		a, b := KL().Value(q, p), ReverseKL().Value(q, p)
		testkit.CheckNear(t, f.name+": KL", a, q.KL(p), 0)
		testkit.CheckNear(t, f.name+": ReverseKL", b, p.KL(q), 0)
		testkit.CheckNear(t, f.name+": SymKL", SymKL().Value(q, p), 0.5*(a+b), 1e-15)

		// KL is the Bregman divergence in μ of A*(μ) = ηᵀμ − A(η), with ∇A* = η.
		conj := func(q *Gaussian) float64 {
			return floats.Dot(q.Natural(nil),
				q.MeanParams(nil)) - q.LogPartition()
		}
		diff := q.MeanParams(nil)
		floats.Sub(diff, p.MeanParams(nil))
		testkit.CheckNear(t, f.name+": KL as Bregman", a,
			conj(q)-conj(p)-floats.Dot(p.Natural(nil), diff), 1e-12)

		// If q is closer by a factor of 100 in η, the relative difference falls by a factor of
		// 100.
		near := q.Clone().(*Gaussian)
		differ := func(step float64) float64 {
			eta := q.Natural(nil)
			for i := range eta {
				eta[i] *= 1 + step*float64(1+i%2)
			}
			if err := near.SetNatural(eta); err != nil {
				t.Fatal(err)
			}
			return KL().Value(near, q)/SymKL().Value(near, q) - 1
		}
		if r := differ(1e-2) / differ(1e-4); !(r > 80 && r < 120) {
			t.Errorf("%s: KL/SymKL − 1 falls by a factor %v, want about 100", f.name, r)
		}
	}
}

func TestNegEntropy(t *testing.T) {
	x := []float64{0.2, 1, 3}
	f := NegEntropy()
	testkit.CheckClose(t, "∇F", f.Grad(nil, x), testkit.NumGrad(f.Value, x), 1e-9)
	testkit.CheckClose(t, "∇F⁻¹", f.InvGrad(nil, f.Grad(nil, x)), x, 1e-15)
	if v := f.Value([]float64{0, 1}); v != -1 {
		t.Errorf("F(0, 1) = %v, want -1", v)
	}
	if v := f.Value([]float64{1, -1}); !math.IsInf(v, 1) {
		t.Errorf("F = %v outside its domain, want +Inf", v)
	}
	if err := (Bregman(nil)).Check(NewPoint(x)); !errors.Is(err, ErrParam) {
		t.Errorf("Bregman without a potential: %v", err)
	}
}

// saddle is a potential that is convex along each coordinate but not along other directions.
type saddle struct{ quadratic }

func (saddle) Grad(dst, l []float64) []float64 {
	dst = dense.Dest(dst, len(l))
	dst[0], dst[1] = l[0]+3*l[1], l[1]+3*l[0]
	return dst
}

// TestBregmanNotConvex checks that set-up reports a potential that is not convex or has no
// gradient.
func TestBregmanNotConvex(t *testing.T) {
	for _, c := range []struct {
		name  string
		f     Potential
		at    []float64
		wants string
	}{
		{"convex", quadratic{1, 2}, []float64{3, -1}, ""},
		{"flat", quadratic{1, 0}, []float64{3, -1}, ""},
		{"large", quadratic{1, 1e-3}, []float64{1e9, 1e-9}, ""},
		{"concave along one", quadratic{1, -1e-3}, []float64{3, 1}, "element 1"},
		{"saddle", saddle{}, []float64{1, 1}, "all elements"},
		{"entropy", NegEntropy(), []float64{1e-9, 1e9}, ""},
		{"outside", NegEntropy(), []float64{1, -1}, "element 1"},
	} {
		o := Objective[*Point]{F: lineFit{{1, 1}}, Init: NewPoint(c.at)}
		_, err := o.NewStepper(t.Context(), nil, Bregman(c.f))
		if c.wants == "" && err != nil ||
			c.wants != "" &&
				(!errors.Is(err, ErrParam) || !strings.Contains(err.Error(), c.wants) ||
					!strings.Contains(err.Error(), "Bregman")) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// noGrad has a wrong gradient.
type noGrad struct{ Divergence }

func (noGrad) Grad(dst []float64, q, _ Dist) []float64 { return Zero().Grad(dst, q) }

// twiceKL is meant as another divergence, but it has the closed form of KL.
type twiceKL struct{ closedKL }

// closedKL is KL with its closed form.
type closedKL interface {
	Divergence
	proxer
}

// proxer has closed forms of proximal steps.
type proxer interface {
	Prox(q Dist, p *Prox) (known bool, err error)
}

func (twiceKL) Value(q, q0 Dist) float64 { return 2 * KL().Value(q, q0) }

func (twiceKL) Grad(dst []float64, q, q0 Dist) []float64 {
	dst = KL().Grad(dst, q, q0)
	floats.Scale(2, dst)
	return dst
}

// TestCheckDivergenceNamesCoordinates checks the error for a D that is not strongly monotone in
// λ. The error must name the coordinates that were tried, and the coordinates in which the
// condition holds: KL(q0‖q) is convex in natural parameters but not in log-Cholesky factors.
func TestCheckDivergenceNamesCoordinates(t *testing.T) {
	away, err := NewMeanField([]float64{30}, []float64{1})
	if err != nil {
		t.Fatal(err)
	}
	in := func(c Coordinates) (qs []Dist) {
		for _, q := range []*Gaussian{NewIsotropicMeanField(1, 0.01), NewIsotropicMeanField(1, 100),
			away} {
			qs = append(qs, q.In(c))
		}
		return qs
	}
	_, err = CheckDivergence(ReverseKL(), in(LogCholesky)...)
	if err == nil || !strings.Contains(err.Error(), " in log-Cholesky factor; ") {
		t.Fatalf("does not name what was tried: %v", err)
	}
	_, would, _ := strings.Cut(err.Error(), "holds for an α > 0 in ")
	for _, c := range []Coordinates{MeanParams, MeanCov, Natural, Cholesky} {
		alpha, _ := CheckDivergence(ReverseKL(), in(c)...)
		if holds := alpha > 0; holds != strings.Contains(would, c.String()) {
			t.Errorf("%v: α = %v, and the error is %q", c, alpha, would)
		}
	}
	// A negative divergence satisfies the condition in no coordinates.
	negative := DivergenceFunc(func(q, q0 Dist) float64 { return -Euclidean().Value(q, q0) })
	if _, err := CheckDivergence(negative, in(MeanParams)...); err == nil ||
		!strings.Contains(err.Error(), "in no other coordinates") {
		t.Error(err)
	}
}

func TestCheckDivergence(t *testing.T) {
	rng := testkit.Rand(23)
	var points, gaussians []Dist
	for range 4 {
		points = append(points, NewPoint(testkit.Normals(rng, 3)))
		gaussians = append(gaussians, randomGaussian(rng, 2, MeanParams))
	}
	points = append(points, points[0].Clone()) // equal arguments are allowed

	alpha, err := CheckDivergence(Euclidean(), points...)
	if err != nil || math.Abs(alpha-1) > 1e-12 {
		t.Errorf("Euclidean: α = %v, %v; want 1", alpha, err)
	}
	alpha, err = CheckDivergence(Bregman(quadratic{2, 3, 7}), points...)
	if err != nil || alpha < 2 || alpha > 7 {
		t.Errorf("quadratic Bregman: α = %v, %v; want it between the curvatures 2 and 7", alpha,
			err)
	}
	for _, d := range []Divergence{KL(), ReverseKL(), SymKL(), DivergenceFunc(KL().Value)} {
		// In mean parameters, KL is a Bregman divergence, so A6 holds. The others must at least
		// have correct gradients.
		alpha, err := CheckDivergence(d, gaussians...)
		if err != nil &&
			(strings.Contains(err.Error(), "Grad") || strings.Contains(err.Error(), "D =")) {
			t.Errorf("%T: %v", d, err)
		}
		if d == KL() && (err != nil || !(alpha > 0)) {
			t.Errorf("KL: α = %v, %v", alpha, err)
		}
	}
	for _, c := range []struct {
		name string
		d    Divergence
		qs   []Dist
		want error
		say  []string
	}{
		{"one distribution", Euclidean(), points[:1], ErrEmpty, nil},
		{"no ExpFamily", KL(), points, ErrNoProx, []string{"KL", "Point"}},
		{"no potential", Bregman(nil), points, ErrParam, []string{"Potential"}},
		{"negative", DivergenceFunc(func(q, q0 Dist) float64 { return -Euclidean().Value(q, q0) }),
			points, ErrParam, []string{"must be positive", "α"}},
		{"not zero", DivergenceFunc(func(q, q0 Dist) float64 {
			return 1 + Euclidean().Value(q, q0)
		}), points, ErrParam, []string{"equal arguments"}},
		{"wrong gradient", noGrad{Euclidean()}, points, ErrParam, []string{"differences", "α"}},
		{"the closed form of another", twiceKL{KL().(closedKL)}, gaussians, ErrParam,
			[]string{"closed form", "embeds"}},
		{"nil function", DivergenceFunc(nil), points, ErrParam, []string{"nil"}},
		{"a linear term", DivergenceFunc(func(q, q0 Dist) float64 {
			a, b := q.Params(nil), q0.Params(nil)
			return Euclidean().Value(q, q0) + 1e-3*math.Abs(a[0]-b[0]) + 0.01*(a[0]-b[0])
		}), points, ErrParam, []string{"gradient"}},
	} {
		_, err := CheckDivergence(c.d, c.qs...)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
			continue
		}
		for _, s := range c.say {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: error %q does not mention %q", c.name, err, s)
			}
		}
	}
}
