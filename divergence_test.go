package pgsvi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
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

func testDivergences(n int) map[string]Divergence {
	scale := make([]float64, n)
	for i := range scale {
		scale[i] = 0.5 + float64(i%3)
	}
	return map[string]Divergence{
		"Euclidean":      Euclidean(),
		"KL":             KL(),
		"ReverseKL":      ReverseKL(),
		"SymKL":          SymKL(),
		"Diagonal":       diagonalMetric{scale},
		"Bregman":        Bregman(quadratic{1, 3, 0.5}),
		"DivergenceFunc": DivergenceFunc(ReverseKL().Value),
	}
}

// Every gradient of a divergence against differences of its value; the value
// vanishes, with its gradient, for equal arguments and only there.
func TestDivergenceGradients(t *testing.T) {
	for name := range testDivergences(1) {
		rng := testRand(20)
		for _, f := range testFamilies() {
			what := name + ", " + f.name
			q, q0 := f.rand(rng), f.rand(rng)
			d := testDivergences(q.NumParams())[name]
			tol := 1e-9
			if _, ok := d.(divergenceFunc); ok {
				tol = 1e-8 // the comment promises about ten digits of the value
			}
			checkClose(t, what, d.Grad(nil, q, q0), paramGrad(q, func(p Dist) float64 { return d.Value(p, q0) }), tol)
			if v := d.Value(q, q0); !(v > 0) {
				t.Errorf("%s: D is %v for distinct arguments", what, v)
			}
			checkNear(t, what+": D(q‖q)", d.Value(q, q.Clone()), 0, 1e-13)
			checkClose(t, what+": ∇D(q‖q)", d.Grad(nil, q, q.Clone()), make([]float64, q.NumParams()), 1e-9)
		}
	}
}

// KL and KLTo between full and diagonal Gaussians, in all coordinates.
func TestKLGradientsMixed(t *testing.T) {
	rng := testRand(21)
	for _, f := range testFamilies() {
		q := f.rand(rng)
		for _, p := range []*Gaussian{randomGaussian(rng, f.dim, MeanCov), randomMeanField(rng, f.dim, Natural)} {
			what := fmt.Sprintf("%s to %T", f.name, p)
			h := KLTo(p)
			checkNear(t, what, h.Value(q), q.KL(p), 1e-15)
			want := paramGrad(q, h.Value)
			checkClose(t, what, h.Grad(nil, q), want, 1e-9)
			checkClose(t, what, KL().Grad(nil, q, p), want, 1e-9)
		}
		// Any ExpFamily will do, not only the Gaussians of the package.
		p := f.rand(rng)
		e, ep := onlyExpFamily{q}, onlyExpFamily{p}
		checkClose(t, f.name+" as ExpFamily", klGrad(nil, e, ep), klGrad(nil, q, p), 1e-11)
	}
}

// onlyExpFamily hides that a distribution is Gaussian.
type onlyExpFamily struct{ ExpFamily }

func (e onlyExpFamily) KL(p Dist) float64 { return e.ExpFamily.KL(p.(onlyExpFamily).ExpFamily) }
func (e onlyExpFamily) naturalOf(p ExpFamily) []float64 {
	if o, ok := p.(onlyExpFamily); ok {
		return e.ExpFamily.naturalOf(o.ExpFamily)
	}
	return nil
}
func (e onlyExpFamily) Clone() Dist { return onlyExpFamily{e.ExpFamily.Clone().(ExpFamily)} }

// ReverseKL turns KL around, SymKL is the mean of the two, and all three agree
// to second order.
func TestKLRelations(t *testing.T) {
	rng := testRand(22)
	for _, f := range testFamilies() {
		q, p := f.rand(rng), f.rand(rng)
		a, b := KL().Value(q, p), ReverseKL().Value(q, p)
		checkNear(t, f.name+": KL", a, q.KL(p), 0)
		checkNear(t, f.name+": ReverseKL", b, p.KL(q), 0)
		checkNear(t, f.name+": SymKL", SymKL().Value(q, p), 0.5*(a+b), 1e-15)

		// KL is the Bregman divergence in μ of A*(μ) = ηᵀμ − A(η), ∇A* = η.
		conj := func(q *Gaussian) float64 { return floats.Dot(q.Natural(nil), q.MeanParams(nil)) - q.LogPartition() }
		diff := q.MeanParams(nil)
		floats.Sub(diff, p.MeanParams(nil))
		checkNear(t, f.name+": KL as Bregman", a, conj(q)-conj(p)-floats.Dot(p.Natural(nil), diff), 1e-12)

		// Closer by a factor of 100 in η the relative difference is 100 times less.
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
	checkClose(t, "∇F", f.Grad(nil, x), numGrad(f.Value, x), 1e-9)
	checkClose(t, "∇F⁻¹", f.InvGrad(nil, f.Grad(nil, x)), x, 1e-15)
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

// saddle is a potential that is convex along each coordinate, and not between them.
type saddle struct{ quadratic }

func (saddle) Grad(dst, l []float64) []float64 {
	dst = dense.Dest(dst, len(l))
	dst[0], dst[1] = l[0]+3*l[1], l[1]+3*l[0]
	return dst
}

// TestBregmanNotConvex: the set-up says so, and where the potential has no gradient.
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
		if c.wants == "" && err != nil || c.wants != "" && (!errors.Is(err, ErrParam) || !strings.Contains(err.Error(), c.wants) || !strings.Contains(err.Error(), "Bregman")) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// noGrad has a wrong gradient.
type noGrad struct{ Divergence }

func (noGrad) Grad(dst []float64, q, _ Dist) []float64 { return Zero().Grad(dst, q) }

// twiceKL means to be another divergence, but has the closed form of KL.
type twiceKL struct{ forwardKL }

func (twiceKL) Value(q, q0 Dist) float64 { return 2 * KL().Value(q, q0) }

func (twiceKL) Grad(dst []float64, q, q0 Dist) []float64 {
	dst = KL().Grad(dst, q, q0)
	floats.Scale(2, dst)
	return dst
}

// Where D is not strongly monotone in λ, the error says in which coordinates that was tried and in
// which it holds: KL(q0‖q) is convex in natural parameters, and not in log-Cholesky factors.
func TestCheckDivergenceNamesCoordinates(t *testing.T) {
	away, err := NewMeanField([]float64{30}, []float64{1})
	if err != nil {
		t.Fatal(err)
	}
	in := func(c Coordinates) (qs []Dist) {
		for _, q := range []*Gaussian{NewIsotropicMeanField(1, 0.01), NewIsotropicMeanField(1, 100), away} {
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
			t.Errorf("%v: α = %v, and the error says %q", c, alpha, would)
		}
	}
	// What is negative holds in none.
	negative := DivergenceFunc(func(q, q0 Dist) float64 { return -Euclidean().Value(q, q0) })
	if _, err := CheckDivergence(negative, in(MeanParams)...); err == nil ||
		!strings.Contains(err.Error(), "no α > 0 in any others") {
		t.Error(err)
	}
}

func TestCheckDivergence(t *testing.T) {
	rng := testRand(23)
	var points, gaussians []Dist
	for range 4 {
		points = append(points, NewPoint(normals(rng, 3)))
		gaussians = append(gaussians, randomGaussian(rng, 2, MeanParams))
	}
	points = append(points, points[0].Clone()) // equal arguments are allowed

	alpha, err := CheckDivergence(Euclidean(), points...)
	if err != nil || math.Abs(alpha-1) > 1e-12 {
		t.Errorf("Euclidean: α = %v, %v; want 1", alpha, err)
	}
	alpha, err = CheckDivergence(Bregman(quadratic{2, 3, 7}), points...)
	if err != nil || alpha < 2 || alpha > 7 {
		t.Errorf("quadratic Bregman: α = %v, %v; want it between the curvatures 2 and 7", alpha, err)
	}
	for _, d := range []Divergence{KL(), ReverseKL(), SymKL(), DivergenceFunc(KL().Value)} {
		// In mean parameters KL is a Bregman divergence, so A6 holds; the others
		// must at least have right gradients.
		alpha, err := CheckDivergence(d, gaussians...)
		if err != nil && (strings.Contains(err.Error(), "Grad") || strings.Contains(err.Error(), "D =")) {
			t.Errorf("%T: %v", d, err)
		}
		if _, ok := d.(forwardKL); ok && (err != nil || !(alpha > 0)) {
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
		{"negative", DivergenceFunc(func(q, q0 Dist) float64 { return -Euclidean().Value(q, q0) }), points, ErrParam, []string{"not positive", "α"}},
		{"not zero", DivergenceFunc(func(q, q0 Dist) float64 { return 1 + Euclidean().Value(q, q0) }), points, ErrParam, []string{"equal arguments"}},
		{"wrong gradient", noGrad{Euclidean()}, points, ErrParam, []string{"differences", "α"}},
		{"the closed form of another", twiceKL{}, gaussians, ErrParam, []string{"closed form", "embeds"}},
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

func solveProx(q Dist, g []float64, h Convex, d Divergence, q0 Dist, beta float64) (closed bool, err error) {
	return (&Prox{Grad: g, H: h, D: d, From: q0, Beta: beta}).Solve(q)
}

func numericProx(q Dist, g []float64, h Convex, d Divergence, q0 Dist, beta float64) error {
	return (&Prox{Grad: g, H: h, D: d, From: q0, Beta: beta}).Numeric(q)
}

// proxGrad is the gradient of what a proximal step minimises: it vanishes there.
func proxGrad(q Dist, g []float64, h Convex, d Divergence, q0 Dist, beta float64) []float64 {
	r := h.Grad(nil, q)
	floats.Add(r, g)
	floats.AddScaled(r, 1/beta, d.Grad(nil, q, q0))
	return r
}

// nearby returns the distribution a fraction t of the way from q to p, in natural parameters.
func nearby(q, p *Gaussian, t float64) *Gaussian {
	eta := q.Natural(nil)
	floats.Scale(1-t, eta)
	floats.AddScaled(eta, t, p.Natural(nil))
	r := q.Clone().(*Gaussian)
	if err := r.SetNatural(eta); err != nil {
		panic(err)
	}
	return r
}

// gradFor returns the g for which a proximal step from q0 leads to q.
func gradFor(q Dist, h Convex, d Divergence, q0 Dist, beta float64) []float64 {
	g := proxGrad(q, make([]float64, q.NumParams()), h, d, q0, beta)
	floats.Scale(-1, g)
	return g
}

// closedForms lists the table in the comment of Prox, by D and h, with the
// coordinates in which the step is closed for a Gaussian, full or diagonal.
var closedForms = map[string][]Coordinates{
	"Euclidean/Zero": allCoordinates,
	"Euclidean/L1":   allCoordinates,
	"Euclidean/KLTo": {Cholesky},
	"Diagonal/Zero":  allCoordinates,
	"Diagonal/L1":    allCoordinates,
	"Bregman/Zero":   allCoordinates,
	"KL/Zero":        {MeanParams, MeanCov},
	"KL/KLTo":        {MeanParams, MeanCov},
	"ReverseKL/Zero": {Natural},
}

// All pairs (h, D) on all families, with a g for which the step is known by
// its optimality equation. The step is closed exactly where the table says so;
// there it is the known one, and so is the numeric one within 1e-7. Elsewhere the
// numeric step is stationary; where the problem is not convex it may have no
// minimum, and then says so.
func TestProxTable(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	rng := testRand(30)
	for _, f := range testFamilies() {
		q0, prior := f.rand(rng), f.rand(rng)
		target := nearby(q0, f.rand(rng), 0.1)
		for dn, d := range testDivergences(q0.NumParams()) {
			for hn, h := range map[string]Convex{"Zero": Zero(), "L1": L1(1e-3, f.dim), "KLTo": KLTo(prior)} {
				pair := dn + "/" + hn
				want := slices.Contains(closedForms[pair], q0.Coordinates())
				if _, isFunc := d.(divergenceFunc); isFunc && f.dim > 1 || hn == "L1" && !want {
					continue // slow; not smooth
				}
				for _, beta := range []float64{0.02, 1} {
					what := fmt.Sprintf("%s, %s, β = %v", f.name, pair, beta)
					g := gradFor(target, h, d, q0, beta)
					q, num := q0.Clone().(*Gaussian), q0.Clone().(*Gaussian)
					closed, err := solveProx(q, g, h, d, q0, beta)
					if closed != want {
						t.Errorf("%s: closed = %v, the table says %v", what, closed, want)
					}
					if !closed {
						if err != nil {
							convex := hn == "KLTo" && dn == "KL" && q0.Coordinates() == MeanParams
							if !errors.Is(err, ErrNotFinite) || convex {
								t.Errorf("%s: %v", what, err)
							}
							checkClose(t, what+": q after an error", momentsOf(q), momentsOf(q0), 0)
							continue
						}
						checkClose(t, what+": optimality", proxGrad(q, g, h, d, q0, beta), make([]float64, len(g)), 1e-6*(1+1/beta))
						continue
					}
					seen[pair] = true
					if err != nil {
						t.Errorf("%s: %v", what, err)
						continue
					}
					checkClose(t, what, momentsOf(q), momentsOf(target), 1e-11)
					if hn == "L1" {
						continue
					}
					if err := numericProx(num, g, h, d, q0, beta); err != nil {
						t.Errorf("%s: numeric: %v", what, err)
						continue
					}
					checkClose(t, what+": numeric", momentsOf(num), momentsOf(q), 1e-7)
				}
			}
		}
	}
	for pair := range closedForms {
		if !seen[pair] {
			t.Errorf("%s was not tested", pair)
		}
	}
}

// Every row of the table in the comment of Prox is one of closedForms, and
// the other way round.
func TestProxTableIsComplete(t *testing.T) {
	src, err := os.ReadFile("divergence_prox.go")
	if err != nil {
		t.Fatal(err)
	}
	head := regexp.MustCompile(`//\tD +H +coordinates`).FindIndex(src)
	if head == nil {
		t.Fatal("no table in divergence_prox.go")
	}
	table, _, _ := strings.Cut(string(src[head[1]:]), "//\n")
	rows := map[string]bool{}
	for _, line := range strings.Split(table, "\n")[1:] {
		if w := strings.Fields(strings.TrimPrefix(line, "//")); len(w) > 2 {
			d, _, _ := strings.Cut(w[0], "(")
			rows[d+"/"+w[1]] = true
		}
	}
	for pair := range closedForms {
		if !rows[pair] {
			t.Errorf("%s is not in the comment of Prox", pair)
		}
	}
	for pair := range rows {
		if closedForms[pair] == nil {
			t.Errorf("%s is in the comment of Prox, but not tested", pair)
		}
	}
}

// The rows of the table, written out for one dimension.
func TestProxFormulas(t *testing.T) {
	const m, v, mu, pv, beta = 0.7, 0.6, -1.3, 2.5, 0.4
	const gm, gv = 0.9, 0.35 // with respect to m and v
	const r = 1 / (1 + beta)
	newPrec := r/v + (1-r)*(1/pv+2*gv)
	for _, c := range []struct {
		name         string
		h            Convex
		d            Divergence
		coords       Coordinates
		wantM, wantV float64
	}{
		{"gradient descent", Zero(), Euclidean(), MeanCov, m - beta*gm, v - beta*gv},
		{"natural gradient in mean parameters", Zero(), KL(), MeanParams,
			// V₊⁻¹ = V⁻¹ + 2βG and V₊⁻¹m₊ = V⁻¹m − β(g − 2Gm)
			(m/v - beta*(gm-2*gv*m)) / (1/v + 2*beta*gv), 1 / (1/v + 2*beta*gv)},
		{"natural gradient in moments", Zero(), KL(), MeanCov, m - beta*v*gm, 1 / (1/v + 2*beta*gv)},
		{"main text", KLTo(must(NewMeanField([]float64{mu}, []float64{pv}))), KL(), MeanParams,
			m - (1-r)/newPrec*((m-mu)/pv+gm), 1 / newPrec},
		{"appendix", KLTo(must(NewMeanField([]float64{mu}, []float64{pv}))), KL(), MeanCov,
			m - (1-r)/((1-r)/pv+r/v)*((m-mu)/pv+gm), 1 / newPrec},
	} {
		q0 := must(NewMeanField([]float64{m}, []float64{v})).In(c.coords)
		q := q0.Clone().(*Gaussian)
		g := q0.form.FromMomentGrad(nil, []float64{gm}, []float64{gv})
		if closed, err := solveProx(q, g, c.h, c.d, q0, beta); err != nil || !closed {
			t.Errorf("%s: closed = %v, %v", c.name, closed, err)
		}
		checkClose(t, c.name, []float64{q.form.MeanAt(0), q.form.CovAt(0, 0)}, []float64{c.wantM, c.wantV}, 1e-14)
	}
}

// The soft threshold satisfies the inclusion −(g + (λ−λ0)/β) ∈ w ∂|λ|, and only
// the first count elements are thresholded.
func TestSoftThreshold(t *testing.T) {
	const beta = 0.5
	h := L1(0.8, 5)
	q0 := NewPoint([]float64{2, -2, 0.1, -0.1, 0, 0.1})
	g := []float64{0.3, 0.3, 0.3, -0.3, 5, 0.3}
	q := NewPoint(make([]float64, 6))
	if closed, err := solveProx(q, g, h, Euclidean(), q0, beta); err != nil || !closed {
		t.Fatal(closed, err)
	}
	for i, l := range q.z {
		s := -(g[i] + (l-q0.z[i])/beta)
		switch {
		case i >= 5:
			checkNear(t, "beyond count", s, 0, 1e-15)
		case l != 0:
			checkNear(t, "subgradient", s, math.Copysign(0.8, l), 1e-15)
		case math.Abs(s) > 0.8:
			t.Errorf("element %d is 0 with subgradient %v", i, s)
		}
	}
	if math.Signbit(q.z[2]) || math.Signbit(q.z[3]) {
		t.Error("a zero is negative")
	}
	if q.z[2] != 0 || q.z[3] != 0 || q.z[4] == 0 {
		t.Errorf("unexpected zeros in %v", q.z)
	}
	if v := h.Value(q0); math.Abs(v-0.8*4.2) > 1e-15 {
		t.Errorf("L1 is %v", v)
	}
	checkClose(t, "∇L1", h.Grad(nil, q0), []float64{0.8, -0.8, 0.8, -0.8, 0, 0}, 0)
}

// β = +Inf leaves the minimiser of gᵀλ + h, whatever q0 was. In natural
// parameters that problem is not convex.
func TestProxInfiniteStep(t *testing.T) {
	rng := testRand(32)
	for _, f := range testFamilies() {
		q0, prior := f.rand(rng), f.rand(rng)
		for pair, d := range map[string]Divergence{"KL/KLTo": KL(), "Euclidean/KLTo": Euclidean()} {
			if !slices.Contains(closedForms[pair], q0.Coordinates()) {
				continue
			}
			h, target := KLTo(prior), nearby(prior, f.rand(rng), 0.2)
			g := gradFor(target, h, d, q0, math.Inf(1))
			q := q0.Clone().(*Gaussian)
			closed, err := solveProx(q, g, h, d, q0, math.Inf(1))
			if err != nil || !closed {
				t.Errorf("%s: closed = %v, %v", f.name, closed, err)
			}
			checkClose(t, f.name, momentsOf(q), momentsOf(target), 1e-12)
			if err := numericProx(q, g, h, d, q0, math.Inf(1)); err != nil {
				t.Errorf("%s: numeric: %v", f.name, err)
			}
			checkClose(t, f.name+": numeric", momentsOf(q), momentsOf(target), 1e-7)
		}
	}
}

// A diagonal prior is a special case of a full one.
func TestProxDiagonalPrior(t *testing.T) {
	rng := testRand(34)
	for _, c := range []Coordinates{MeanParams, MeanCov} {
		q0, prior := randomGaussian(rng, 3, c), randomMeanField(rng, 3, c)
		g := gradFor(nearby(q0, randomGaussian(rng, 3, c), 0.1), KLTo(toDense(prior)), KL(), q0, 0.7)
		q, want := q0.Clone().(*Gaussian), q0.Clone().(*Gaussian)
		if closed, err := solveProx(q, g, KLTo(prior), KL(), q0, 0.7); err != nil || !closed {
			t.Errorf("%v: closed = %v, %v", c, closed, err)
		}
		if _, err := solveProx(want, g, KLTo(toDense(prior)), KL(), q0, 0.7); err != nil {
			t.Fatal(err)
		}
		checkClose(t, c.String(), momentsOf(q), momentsOf(want), 1e-12)
	}
}

// Where the minimiser is not a valid distribution the step is refused and q holds q0.
func TestProxInvalid(t *testing.T) {
	rng := testRand(36)
	for _, f := range testFamilies() {
		q0, prior := f.rand(rng), f.rand(rng)
		gv := make([]float64, q0.form.NumGradV())
		q0.form.AddPrecision(gv, -100) // pulls V⁻¹ far below zero
		down := q0.form.FromMomentGrad(nil, make([]float64, f.dim), gv)
		up := append([]float64(nil), down...)
		floats.Scale(-1, up)
		for _, c := range []struct {
			name string
			g    []float64
			h    Convex
			d    Divergence
			in   []Coordinates
			want error
		}{
			{"KL/Zero", down, Zero(), KL(), []Coordinates{MeanParams, MeanCov}, ErrNotPosDef},
			{"KL/KLTo", down, KLTo(prior), KL(), []Coordinates{MeanParams, MeanCov}, ErrNotPosDef},
			{"Euclidean/Zero", up, Zero(), Euclidean(), []Coordinates{MeanCov}, ErrNotPosDef},
			{"ReverseKL/Zero", up, Zero(), ReverseKL(), []Coordinates{Natural}, ErrNotPosDef},
		} {
			for _, in := range c.in {
				if in != q0.Coordinates() {
					continue
				}
				for _, nan := range []bool{false, true} {
					g, want := append([]float64(nil), c.g...), c.want
					if nan {
						g[0], want = math.NaN(), ErrNotFinite
					}
					q := f.rand(rng)
					_, err := solveProx(q, g, c.h, c.d, q0, 10)
					if !errors.Is(err, want) {
						t.Errorf("%s, %s: error %v, want %v", f.name, c.name, err, want)
					}
					checkClose(t, f.name+", "+c.name+": q", momentsOf(q), momentsOf(q0), 1e-14)
				}
			}
		}
	}
	// The numeric step from a start where the objective is not finite.
	q0 := randomGaussian(rng, 2, MeanParams)
	bad := DivergenceFunc(func(q, q0 Dist) float64 { return math.NaN() })
	q := randomGaussian(rng, 2, MeanParams)
	if _, err := solveProx(q, make([]float64, 5), Zero(), bad, q0, 1); !errors.Is(err, ErrNotFinite) {
		t.Errorf("NaN divergence: error %v", err)
	}
	checkClose(t, "NaN divergence: q", momentsOf(q), momentsOf(q0), 0)
}

// chartless is a Dist that is only a vector of parameters.
type chartless struct{ Dist }

func (c chartless) Clone() Dist { return chartless{c.Dist.Clone()} }

// userConvex is a Convex with a closed form of its own.
type userConvex struct{ Convex }

func (userConvex) Prox(q Dist, p *Prox) (bool, error) {
	l := p.From.Params(nil)
	floats.Scale(0.5, l)
	return true, q.SetParams(l)
}

// Without a closed form and without a chart there is no step, and the error at
// set-up names the pair and the family; either closed form is enough.
func TestNoProx(t *testing.T) {
	q := chartless{NewPoint([]float64{1, 2})}
	f := lineFit{{1, 0}, {0, 1}}
	_, err := Objective[chartless]{F: f, H: KLTo(NewIsotropic(2, 1)), Init: q}.NewStepper(context.Background(), nil, Euclidean())
	if !errors.Is(err, ErrShape) {
		t.Errorf("KLTo a Gaussian: %v", err)
	}
	_, err = Objective[chartless]{F: f, H: Zero(), Init: q}.NewStepper(context.Background(), nil, Bregman(slope{quadratic{1}}))
	if !errors.Is(err, ErrNoProx) {
		t.Fatalf("error %v, want ErrNoProx", err)
	}
	for _, s := range []string{"h = Zero", "D = Bregman", "pgsvi.chartless"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not name %s", err, s)
		}
	}
	if err := numericProx(q, make([]float64, 2), Zero(), Euclidean(), q, 1); !errors.Is(err, ErrNoProx) {
		t.Errorf("Numeric: %v", err)
	}
	for _, d := range []Divergence{KL(), ReverseKL(), SymKL()} {
		if _, err := (Objective[*Point]{F: f, Init: NewPoint([]float64{1, 2})}).NewStepper(context.Background(), nil, d); !errors.Is(err, ErrNoProx) {
			t.Errorf("%T on a Point: %v", d, err)
		}
	}
	st, err := Objective[chartless]{F: f, H: userConvex{Zero()}, Init: q}.NewStepper(context.Background(), nil, Bregman(slope{quadratic{1}}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Step(context.Background(), &Env{Rng: testRand(1)}, nil, 1); err != nil {
		t.Fatal(err)
	}
	checkClose(t, "a Convex that is a Proxer", st.(*objectiveStepper).Dist().Params(nil),
		[]float64{0.5, 1}, 0)
}

// A conjugate model is solved by one step with r = 0, from anywhere: the
// posterior of linear regression.
func TestConjugateInOneStep(t *testing.T) {
	rng := testRand(37)
	const n, d, noise = 12, 3, 0.3
	x, y := dense.NewRows(n, d), normals(rng, n)
	prec := mat.NewSymDense(d, nil)
	prior := randomGaussian(rng, d, MeanParams)
	prec.CopySym(prior.precisionMatrix())
	rhs := mat.NewVecDense(d, nil)
	rhs.MulVec(prec, mat.NewVecDense(d, prior.Mean(nil)))
	for i := range x {
		copy(x[i], normals(rng, d))
		v := mat.NewVecDense(d, x[i])
		prec.SymRankOne(prec, 1/noise, v)
		rhs.AddScaledVec(rhs, y[i]/noise, v)
	}
	var cov mat.Dense
	if err := cov.Inverse(prec); err != nil {
		t.Fatal(err)
	}
	mean := mat.NewVecDense(d, nil)
	mean.MulVec(&cov, rhs)
	f := Expect(Sites{X: x, Y: y, Lik: GaussianNoise{Var: noise}}, nil)
	for _, beta := range []float64{math.Inf(1), 1e300} { // r = 0
		q0 := randomGaussian(rng, d, MeanParams)
		g := make([]float64, q0.NumParams())
		if _, err := f.Grad(context.Background(), &Env{Rng: rng}, g, q0, nil); err != nil {
			t.Fatal(err)
		}
		q := q0.Clone().(*Gaussian)
		if _, err := solveProx(q, g, KLTo(prior), KL(), q0, beta); err != nil {
			t.Fatal(err)
		}
		checkClose(t, "mean", q.Mean(nil), mean.RawVector().Data, 1e-9)
		checkClose(t, "covariance", q.Cov().RawSymmetric().Data, cov.RawMatrix().Data, 1e-9)
	}
}

// A nil divergence is KL and a nil h Zero: the same closed form, and the same steps of every model.
func TestRecognised(t *testing.T) {
	rng := testRand(38)
	q0, prior := randomGaussian(rng, 2, MeanParams), randomGaussian(rng, 2, MeanParams)
	h := klTo{prior}
	g := gradFor(nearby(q0, prior, 0.2), h, KL(), q0, 1)
	zeros := []Convex{nil, Zero()}
	step := func(h Convex, d Divergence) []float64 {
		t.Helper()
		q := q0.Clone().(*Gaussian)
		if closed, err := solveProx(q, g, h, d, q0, 0.01); err != nil || !closed {
			t.Errorf("%T with %T: closed = %v, %v", h, d, closed, err)
		}
		if c, err := checkProx(q0, h, d); h != nil && (err != nil || !c) {
			t.Errorf("%T with %T: at set-up closed = %v, %v", h, d, c, err)
		}
		return momentsOf(q)
	}
	for _, d := range []Divergence{KL(), Euclidean()} {
		for _, h := range zeros {
			checkClose(t, fmt.Sprintf("%T with %T", h, d), step(h, d), step(Zero(), d), 0)
		}
	}
	for _, d := range []Divergence{nil, KL()} {
		st := must(Objective[*Gaussian]{H: h, Init: q0}.NewStepper(context.Background(), nil, d)).(*objectiveStepper)
		step, err := st.Step(context.Background(), &Env{}, nil, math.Inf(1))
		if !st.infinite || err != nil || !math.IsInf(step.Beta, 1) {
			t.Errorf("%T: an Objective steps with β = %v, %v", d, step.Beta, err)
		}
	}
	l1 := L1(0.1, 0)
	if err := numericProx(q0.Clone(), g, l1, Euclidean(), q0, 0.01); err != nil {
		t.Errorf("%T has a kink: %v", l1, err)
	}
	// An adaptive divergence is in another metric, and has not the closed form of Euclidean.
	for name, a := range adaptives() {
		if _, ok := a.d.(Proxer); ok {
			t.Errorf("%s has a closed form outside of a run", name)
		}
	}

	x, y := mat.NewDense(4, 1, []float64{-2, -1, 1, 2}), []float64{-1, 1, -1, 1}
	gp := must(NewGP(x, y, SquaredExp{}, BernoulliLogit{}, nil))
	glm := must(NewGLM(x, y, BernoulliLogit{}, nil))
	ctm := must(NewCTM(smallCorpus(), 2, nil))
	for _, d := range []Divergence{nil, KL()} {
		if s := must(gp.NewStepper(context.Background(), nil, d)).(*siteStepper); s.curve != nil {
			t.Errorf("%T: a GP takes it for another divergence", d)
		}
		if s, ok := must(glm.NewStepper(context.Background(), nil, d)).(*objectiveStepper); ok {
			t.Errorf("%T: a GLM takes it for another divergence: %v", d, s)
		}
		if _, err := ctm.NewStepper(context.Background(), nil, d); err != nil {
			t.Errorf("%T: %v", d, err)
		}
	}
	if s := must(gp.NewStepper(context.Background(), nil, ReverseKL())).(*siteStepper); s.curve == nil {
		t.Error("a GP takes ReverseKL for KL")
	}
	if _, err := ctm.NewStepper(context.Background(), nil, ReverseKL()); !errors.Is(err, ErrNoProx) {
		t.Errorf("a CTM takes ReverseKL: %v", err)
	}
}

// A Prox without a divergence is an error; one without an h has Zero.
func TestProxZeroValue(t *testing.T) {
	q0 := NewPoint([]float64{1, 2})
	q := NewPoint([]float64{0, 0})
	p := &Prox{Grad: []float64{1, 1}, From: q0, Beta: 1}
	if _, err := p.Solve(q); !errors.Is(err, ErrParam) {
		t.Errorf("no divergence: %v", err)
	}
	if err := p.Numeric(q); !errors.Is(err, ErrParam) {
		t.Errorf("no divergence: %v", err)
	}
	p.D = Euclidean()
	if closed, err := p.Solve(q); err != nil || !closed || !slices.Equal(q.z, []float64{0, 1}) || p.H != nil {
		t.Errorf("no h: closed = %v, %v at %v, p is %v", closed, err, q.z, p)
	}
	if err := p.Numeric(q); err != nil || p.H != nil {
		t.Errorf("no h: %v", err)
	}
	checkClose(t, "numeric", q.z, []float64{0, 1}, 1e-9)
}

// The step of Euclidean with KLTo in (m, L) for every pair of a full or diagonal
// q and prior, in many dimensions, and where it leads far: it is stationary, is the
// numeric step, and for a diagonal q is the formula in the comment of Prox.
func TestProxCholesky(t *testing.T) {
	rng := testRand(39)
	for _, d := range []int{1, 2, 5} {
		full, diag := randomGaussian(rng, d, Cholesky), randomMeanField(rng, d, Cholesky)
		for _, q0 := range []*Gaussian{full, diag} {
			for _, prior := range []*Gaussian{randomGaussian(rng, d, MeanCov), randomMeanField(rng, d, Natural)} {
				for _, beta := range []float64{1e-3, 0.3, 50, math.Inf(1)} {
					what := fmt.Sprintf("%d: %T to %T, β = %v", d, q0, prior, beta)
					h := KLTo(prior)
					g := normals(rng, q0.NumParams())
					floats.Scale(4, g)
					q, num := q0.Clone().(*Gaussian), q0.Clone().(*Gaussian)
					if closed, err := solveProx(q, g, h, Euclidean(), q0, beta); err != nil || !closed {
						t.Errorf("%s: closed = %v, %v", what, closed, err)
						continue
					}
					checkClose(t, what+": optimality", proxGrad(q, g, h, Euclidean(), q0, beta), make([]float64, len(g)), 1e-12*(1+1/beta))
					if err := numericProx(num, g, h, Euclidean(), q0, beta); err != nil {
						t.Errorf("%s: numeric: %v", what, err)
						continue
					}
					checkClose(t, what+": numeric", momentsOf(num), momentsOf(q), 1e-7)
					if q.form.NumGradV() > d {
						continue
					}
					for i, s := range q.Params(nil)[d:] {
						c := prior.form.PrecisionAt(i, i) + 1/beta
						b := q0.Params(nil)[d+i]/beta - g[d+i]
						checkNear(t, what+": formula", s, (b+math.Sqrt(b*b+4*c))/(2*c), 1e-12)
					}
				}
			}
		}
	}
	// No cancellation where G is large: s = 2/(√(b² + 4c) − b) = 1/|b|.
	q0 := must(NewMeanField(nil, []float64{1})).In(Cholesky)
	q := q0.Clone()
	if _, err := solveProx(q, []float64{0, 1e12}, KLTo(q0), Euclidean(), q0, 1); err != nil {
		t.Fatal(err)
	}
	checkNear(t, "large G", 1e12*q.Params(nil)[1], 1, 1e-11)
}

// Logistic regression with a diagonal q by the proximal gradient method in
// (m, sd), against the negative ELBOs of an independent program, step by step.
func TestProxCholeskyTruth(t *testing.T) {
	var truth struct {
		L        float64     `json:"L"`
		Optimum  float64     `json:"neg_elbo_optimum"`
		Mean     []float64   `json:"m"`
		SD       []float64   `json:"sd"`
		NegELBOs [][]float64 `json:"rows"`
	}
	data, err := os.ReadFile(filepath.Join(sharedData(t), "..", "truth", "diag_logistic_euclid.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &truth); err != nil {
		t.Fatal(err)
	}
	const n = 30
	s := Sites{X: dense.NewRows(n, 3), Y: make([]float64, n), Lik: BernoulliLogit{}}
	for i, x := range s.X {
		k := float64(i + 1)
		x[0], x[1], x[2] = 1.5*math.Sin(k), 1.5*math.Cos(2*k), 1.5*math.Sin(3*k+1)
		s.Y[i] = plusMinus(math.Sin(5*k)+x[0]-x[1] > 0)
	}
	ctx := context.Background()
	prior := NewIsotropicMeanField(3, 1)
	o := Objective[*Gaussian]{F: Expect(s, nil), H: KLTo(prior), Init: prior.In(Cholesky)}
	st := must(o.NewStepper(ctx, nil, Euclidean()))
	negELBO := func() float64 { return -must(st.Evaluate(ctx, nil)).ELBO }
	for k := range 240 {
		if k < len(truth.NegELBOs) {
			checkNear(t, fmt.Sprintf("negative ELBO after %d steps", k), negELBO(), truth.NegELBOs[k][0], 1e-10)
		}
		if step := must(st.Step(ctx, nil, nil, 1/truth.L)); !step.ClosedForm {
			t.Errorf("step %d is not in closed form", k)
		}
	}
	checkNear(t, "optimum", negELBO(), truth.Optimum, 1e-10)
	checkClose(t, "λ", must(o.Posterior(st)).Params(nil), append(truth.Mean, truth.SD...), 1e-6)
}
