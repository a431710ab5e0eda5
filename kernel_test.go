package pgsvi

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"math/big"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgsvi/pgsvi/internal/special"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// userKernel knows nothing but the four methods; it goes the generic way.
type userKernel struct {
	s      Kernel
	params []Param
}

func newUserKernel(k Kernel) userKernel { return userKernel{k, k.Params()} }

func (k userKernel) Cov(x, y []float64) float64     { return k.s.Cov(x, y) }
func (k userKernel) Params() []Param                { return k.params }
func (k userKernel) WithParams(v []float64) Kernel  { return newUserKernel(k.s.WithParams(v)) }
func (k userKernel) Grad(d, x, y []float64) float64 { return k.s.Grad(d, x, y) }

// halfCov embeds a kernel of the package and overrides Cov.
type halfCov struct{ SquaredExp }

func (k halfCov) Cov(x, y []float64) float64 { return k.SquaredExp.Cov(x, y) / 2 }

// matern72 is a user's Profile, (1 + a + 2a²/5 + a³/15) exp(−a) with a = √7 r.
type matern72 struct{}

func (matern72) Values(r2 []float64) { PolyExp(r2, 7, 1, 1, 2./5, 1./15) }

func (matern72) Slopes(dst, r2, _ []float64) {
	copy(dst, r2)
	PolyExp(dst, 7, 7./5, 7./5, 7./15)
}

type Matern72 = Iso[matern72]

// hump is a user's ShapedProfile, (1 + Power r²) exp(−r²/2), with a parameter that may be
// of either sign and is therefore not learned in logs. It is a pointer.
type hump struct{ Power float64 }

func (h *hump) Values(r2 []float64) {
	for i, x := range r2 {
		r2[i] = math.Exp(-x/2) * (1 + h.Power*x)
	}
}

func (h *hump) Slopes(dst, r2, _ []float64) {
	for i, x := range r2 {
		dst[i] = math.Exp(-x/2) * (1 + h.Power*x - 2*h.Power)
	}
}

func (h *hump) Shape() Param { return Param{"Power", h.Power, -1, 1} }

func (h *hump) WithShape(v float64) Profile { return &hump{v} }

func (h *hump) GradShape(dst, r2, _ []float64) {
	for i, x := range r2 {
		dst[i] = math.Exp(-x/2) * x
	}
}

// kernelR is r for one length, by the textbook.
func kernelR(x, y []float64, length func(d int) float64) float64 {
	var sum float64
	for d := range x {
		t := (x[d] - y[d]) / length(d)
		sum += t * t
	}
	return math.Sqrt(sum)
}

type kernelCase struct {
	name string
	k    Kernel
	want func(x, y []float64) float64 // closed form, written independently
}

// kernelCases has every exported kernel; TestKernelTable sees to that.
func kernelCases(d int) []kernelCase {
	ls := make([]float64, d)
	for i := range ls {
		ls[i] = 0.7 + 0.4*float64(i%5)
	}
	one := func(l float64) func(int) float64 { return func(int) float64 { return l } }
	ard := func(i int) float64 { return ls[i] }
	se := func(x, y []float64) float64 { return 1.69 * math.Exp(-0.5*math.Pow(kernelR(x, y, one(2.5)), 2)) }
	m32 := func(s float64, l func(int) float64) func(x, y []float64) float64 {
		return func(x, y []float64) float64 {
			r := kernelR(x, y, l) * math.Sqrt(3)
			return s * s * (math.Exp(-r) + r*math.Exp(-r))
		}
	}
	linear := func(x, y []float64) float64 {
		var sum float64
		for i := range x {
			sum += x[i] * y[i] * ls[i] * ls[i]
		}
		return sum
	}
	periodic := func(s, l, p float64) func(x, y []float64) float64 {
		return func(x, y []float64) float64 {
			var sum float64
			for i := range x {
				v := math.Sin(math.Pi * (x[i] - y[i]) / p)
				sum += v * v
			}
			return s * s * math.Exp(-2*sum/(l*l))
		}
	}
	return []kernelCase{
		{"SquaredExp/zero", SquaredExp{}, func(x, y []float64) float64 { return math.Exp(-0.5 * math.Pow(kernelR(x, y, one(1)), 2)) }},
		{"SquaredExp", SquaredExp{Scale: 1.3, Length: 2.5}, se},
		{"SquaredExp/ARD", SquaredExp{Scale: 0.5, Lengths: ls}, func(x, y []float64) float64 { return 0.25 * math.Exp(-0.5*math.Pow(kernelR(x, y, ard), 2)) }},
		{"Matern12", Matern12{Scale: 1.3, Length: 2.5}, func(x, y []float64) float64 { return 1.69 * math.Exp(-kernelR(x, y, one(2.5))) }},
		{"Matern12/ARD", Matern12{Scale: 2, Lengths: ls}, func(x, y []float64) float64 { return 4 * math.Exp(-kernelR(x, y, ard)) }},
		{"Matern32", Matern32{Scale: 1.3, Length: 2.5}, m32(1.3, one(2.5))},
		{"Matern32/ARD", Matern32{Scale: 0.8, Lengths: ls}, m32(0.8, ard)},
		{"Matern52", Matern52{Scale: 1.3, Length: 2.5}, func(x, y []float64) float64 {
			r := kernelR(x, y, one(2.5))
			return 1.69 * math.Exp(-math.Sqrt(5)*r) * (1 + math.Sqrt(5)*r + 5*r*r/3)
		}},
		{"Matern52/ARD", Matern52{Lengths: ls}, func(x, y []float64) float64 {
			r := kernelR(x, y, ard)
			return math.Exp(-math.Sqrt(5)*r) * (1 + math.Sqrt(5)*r + 5*r*r/3)
		}},
		{"RationalQuadratic", RationalQuadratic{Scale: 1.3, Length: 2.5, Profile: Rational{Alpha: 0.6}}, func(x, y []float64) float64 {
			r := kernelR(x, y, one(2.5))
			return 1.69 * math.Pow(1+r*r/1.2, -0.6)
		}},
		{"RationalQuadratic/ARD", RationalQuadratic{Lengths: ls}, func(x, y []float64) float64 {
			r := kernelR(x, y, ard)
			return 1 / (1 + r*r/2)
		}},
		{"Periodic", Periodic{Scale: 1.3, Length: 1.8, Period: 2.2}, periodic(1.3, 1.8, 2.2)},
		{"Periodic/zero", Periodic{}, periodic(1, 1, 1)},
		{"Linear", Linear{Scale: 1.4}, func(x, y []float64) float64 {
			return 1.96 * mat.Dot(mat.NewVecDense(len(x), x), mat.NewVecDense(len(y), y))
		}},
		{"Linear/ARD", Linear{Scales: ls}, linear},
		{"Constant", Constant{Scale: 3}, func(x, y []float64) float64 { return 9 }},
		{"White", White{Scale: 0.3}, func(x, y []float64) float64 { return 0 }},
		{"Sum", Sum{SquaredExp{Scale: 1.3, Length: 2.5}, Linear{Scales: ls}, White{Scale: 0.3}}, func(x, y []float64) float64 { return se(x, y) + linear(x, y) }},
		{"Product", Product{SquaredExp{Scale: 1.3, Length: 2.5}, Linear{Scales: ls}, Constant{Scale: 2}}, func(x, y []float64) float64 { return 4 * se(x, y) * linear(x, y) }},
		{"Product/nested", Product{Sum{SquaredExp{Scale: 1.3, Length: 2.5}, Constant{Scale: 2}}, Sum{Periodic{}, Linear{Scales: ls}}}, func(x, y []float64) float64 {
			return (se(x, y) + 4) * (periodic(1, 1, 1)(x, y) + linear(x, y))
		}},
		{"Product/White", Product{Sum{SquaredExp{Scale: 1.3, Length: 2.5}}, White{Scale: 2}}, func(x, y []float64) float64 { return 0 }},
		{"Matern72", Matern72{Scale: 1.3, Length: 2.5}, func(x, y []float64) float64 {
			a := math.Sqrt(7) * kernelR(x, y, one(2.5))
			return 1.69 * math.Exp(-a) * (1 + a + 0.4*a*a + a*a*a/15)
		}},
		{"Matern72/ARD", Matern72{Scale: 0.8, Lengths: ls}, func(x, y []float64) float64 {
			a := math.Sqrt(7) * kernelR(x, y, ard)
			return 0.64 * math.Exp(-a) * (1 + a + 0.4*a*a + a*a*a/15)
		}},
		{"hump", Iso[*hump]{Scale: 2, Length: 2.5, Profile: &hump{-0.01}}, func(x, y []float64) float64 {
			r := kernelR(x, y, one(2.5))
			return 4 * math.Exp(-r*r/2) * (1 - 0.01*r*r)
		}},
		{"pointer", &Sum{&SquaredExp{Scale: 1.3, Length: 2.5}, &White{Scale: 0.3}}, se},
		{"user", newUserKernel(SquaredExp{Scale: 1.3, Length: 2.5}), se},
		{"user/embedding", halfCov{SquaredExp{Scale: 1.3, Length: 2.5}}, func(x, y []float64) float64 { return se(x, y) / 2 }},
		{"Sum/user", Sum{newUserKernel(Constant{Scale: 2}), SquaredExp{Scale: 1.3, Length: 2.5}}, func(x, y []float64) float64 { return 4 + se(x, y) }},
	}
}

func kernelPoints(seed uint64, n, d int, spread float64) *mat.Dense {
	rng := rand.New(rand.NewPCG(seed, 1))
	x := mat.NewDense(n, d, nil)
	for i := range n {
		for j := range d {
			x.Set(i, j, spread*rng.NormFloat64())
		}
	}
	return x
}

// kernelClose is agreement to tol relative to the larger of want and floor.
func kernelClose(got, want, tol, floor float64) bool {
	return math.Abs(got-want) <= tol*max(math.Abs(want), floor)
}

// packageKernels reads the sources of the package: a kernel is an exported type
// with methods Cov and Grad, or an alias of Iso.
func packageKernels(t *testing.T) []string {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	methods := map[string]int{}
	var kernels []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil || d.Name.Name != "Cov" && d.Name.Name != "Grad" {
					continue
				}
				recv := d.Recv.List[0].Type
				if star, ok := recv.(*ast.StarExpr); ok {
					recv = star.X
				}
				if id, ok := recv.(*ast.Ident); ok && id.IsExported() {
					if methods[id.Name]++; methods[id.Name] == 2 {
						kernels = append(kernels, id.Name)
					}
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok && s.Assign.IsValid() && s.Name.IsExported() {
						if of, ok := s.Type.(*ast.IndexExpr); ok && fmt.Sprint(of.X) == "Iso" {
							kernels = append(kernels, s.Name.Name)
						}
					}
				}
			}
		}
	}
	if len(kernels) < 11 {
		t.Fatalf("found the kernels %q in the sources, want at least 11", kernels)
	}
	return kernels
}

// TestKernelTable: every kernel of the package is tested, registered under its
// name, and comes back from a file as it was.
func TestKernelTable(t *testing.T) {
	cases := kernelCases(3)
	for _, name := range packageKernels(t) {
		found := 0
		for _, c := range cases {
			if registered, ok := savedTypes.Name(c.k); !ok || registered != "pgsvi."+name {
				continue
			}
			found++
			if kernelName(c.k) != name {
				t.Errorf("%s: kernelName %q", name, kernelName(c.k))
			}
			if strings.Contains(c.name, "user") {
				continue // has a part that is not registered
			}
			s, err := saveValue(c.k)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			if back, err := loadAny[Kernel](s); err != nil || !reflect.DeepEqual(back, c.k) {
				t.Errorf("%s: %#v comes back as %#v, %v", c.name, c.k, back, err)
			}
		}
		if found == 0 {
			t.Errorf("kernel %s is not in kernelCases, or not registered as pgsvi.%s", name, name)
		}
	}
}

func TestKernelNames(t *testing.T) {
	for _, c := range []struct {
		k    Kernel
		want string
	}{
		{Matern72{}, "matern72"}, {Iso[*hump]{}, "hump"}, {halfCov{}, "halfCov"}, {newUserKernel(White{}), "userKernel"},
		{&SquaredExp{}, "squaredExp"}, {&Linear{}, "Linear"}, {genericKernel[Matern72]{}, "genericKernel"},
	} {
		if got := kernelName(c.k); got != c.want {
			t.Errorf("%T: name %q, want %q", c.k, got, c.want)
		}
	}
	k := Product{Sum{SquaredExp{Lengths: []float64{1, 2}}, White{}}, RationalQuadratic{}, Linear{Scales: []float64{3}}}
	var names []string
	for _, p := range k.Params() {
		names = append(names, paramName(kernelName(k), p.Name))
	}
	want := []string{
		"Product[0].Sum[0].SquaredExp.Scale", "Product[0].Sum[0].SquaredExp.Length[0]", "Product[0].Sum[0].SquaredExp.Length[1]",
		"Product[0].Sum[1].White.Scale", "Product[1].RationalQuadratic.Scale", "Product[1].RationalQuadratic.Length",
		"Product[1].RationalQuadratic.Alpha", "Product[2].Linear.Scale[0]",
	}
	if !slices.Equal(names, want) {
		t.Errorf("parameters %q, want %q", names, want)
	}
}

// genericKernel is a user's kernel of a generic type.
type genericKernel[K Kernel] struct{ Kernel }

// TestRegisterPanics: a name is of one type, and a type has one name.
func TestRegisterPanics(t *testing.T) {
	type first struct{ Matern72 }
	type second struct{ Matern72 }
	Register("test.First", first{})
	Register("test.First", first{})
	for name, f := range map[string]func(){
		"name taken":   func() { Register("test.First", second{}) },
		"another name": func() { Register("test.Second", first{}) },
		"own kernel":   func() { Register("test.SE", SquaredExp{}) },
		"own name":     func() { Register("pgsvi.Sum", second{}) },
		"nil":          func() { Register("test.Nil", nil) },
		"no name":      func() { Register("", first{}) },
	} {
		func() {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "pgsvi: ") {
					t.Errorf("%s: panic %q", name, s)
				}
			}()
			f()
		}()
	}
}

func TestKernelClosedForm(t *testing.T) {
	for _, d := range []int{1, 3, 7} {
		x := kernelPoints(1, 12, d, 1.5)
		for _, c := range kernelCases(d) {
			for i := range 12 {
				for j := range 12 {
					a, b := x.RawRowView(i), x.RawRowView(j)
					got, want := c.k.Cov(a, b), c.want(a, b)
					floor := 0.0
					if strings.Contains(c.name, "Linear") || strings.Contains(c.name, "Sum") || strings.Contains(c.name, "Product") {
						floor = 1
					}
					if !kernelClose(got, want, 1e-13, floor) {
						t.Fatalf("%s, D=%d: Cov = %v, want %v", c.name, d, got, want)
					}
					if back := c.k.Cov(b, a); back != got {
						t.Fatalf("%s: not symmetric: %v, %v", c.name, got, back)
					}
				}
			}
		}
	}
	// Values by hand.
	for _, c := range []struct {
		k    Kernel
		x, y []float64
		want float64
	}{
		{SquaredExp{}, []float64{0}, []float64{1}, 0.60653065971263342},
		{SquaredExp{Scale: 12, Length: 2.7}, []float64{1, 2}, []float64{1, 2}, 144},
		{Matern12{}, []float64{0, 0}, []float64{3, 4}, 0.0067379469990854671},
		{Matern32{}, []float64{0}, []float64{1}, 0.48335772459650765},
		{Matern52{}, []float64{0}, []float64{1}, 0.52399410883182029},
		{RationalQuadratic{}, []float64{0}, []float64{2}, 1. / 3},
		{RationalQuadratic{Profile: Rational{Alpha: 2}}, []float64{0}, []float64{2}, 0.25},
		{Periodic{}, []float64{0}, []float64{0.5}, 0.13533528323661270},
		{Periodic{Period: 0.75}, []float64{0.125}, []float64{750000.125}, 1},
		{Linear{Scales: []float64{2, 3}}, []float64{1, 2}, []float64{5, -1}, 2},
	} {
		if got := c.k.Cov(c.x, c.y); !kernelClose(got, c.want, 4e-16, 0) {
			t.Errorf("%#v: Cov = %.17g, want %.17g", c.k, got, c.want)
		}
	}
}

func TestKernelFarAway(t *testing.T) {
	far := []float64{1e200}
	for _, k := range []Kernel{SquaredExp{}, Matern12{}, Matern32{}, Matern52{}, RationalQuadratic{}} {
		if got := k.Cov(far, []float64{-1e200}); got != 0 {
			t.Errorf("%T at distance 2e200: %v, want 0", k, got)
		}
		if got := k.Cov(far, far); got != 1 {
			t.Errorf("%T at distance 0: %v, want 1", k, got)
		}
		if got := k.Cov([]float64{math.NaN()}, far); !math.IsNaN(got) {
			t.Errorf("%T at NaN: %v, want NaN", k, got)
		}
	}
}

// kernelValues are the values of the parameters of k.
func kernelValues(k Kernel) []float64 {
	var v []float64
	for _, p := range k.Params() {
		v = append(v, p.Value)
	}
	return v
}

func TestKernelParams(t *testing.T) {
	x := kernelPoints(2, 2, 3, 1)
	for _, c := range kernelCases(3) {
		p := c.k.Params()
		if numParams(c.k) != len(p) {
			t.Errorf("%s: %d parameters, numParams %d", c.name, len(p), numParams(c.k))
		}
		before := c.k.Cov(x.RawRowView(0), x.RawRowView(1))
		seen := map[string]bool{}
		v := kernelValues(c.k)
		for i := range p {
			if seen[p[i].Name] || p[i].Name == "" {
				t.Errorf("%s: two parameters are named %q", c.name, p[i].Name)
			}
			seen[p[i].Name] = true
			if !(p[i].Min < p[i].Value && p[i].Value < p[i].Max) {
				t.Errorf("%s: %+v is out of range", c.name, p[i])
			}
			v[i] *= 1 + 0.1*float64(i+1)
			p[i].Value = v[i]
		}
		k := c.k.WithParams(v)
		if strings.TrimPrefix(fmt.Sprintf("%T", k), "*") != strings.TrimPrefix(fmt.Sprintf("%T", c.k), "*") && c.name != "user/embedding" {
			t.Errorf("%s: WithParams returns %T", c.name, k)
		}
		if got := k.Params(); !slices.Equal(got, p) && c.name != "pointer" { // its parts lose their pointers and get other names
			t.Errorf("%s: parameters %v after the round trip, want %v", c.name, got, p)
		}
		want := slices.Clone(v)
		clear(v)
		if got := c.k.Cov(x.RawRowView(0), x.RawRowView(1)); got != before {
			t.Errorf("%s: WithParams changed the kernel it was called on", c.name)
		}
		if got := kernelValues(k); !slices.Equal(got, want) {
			t.Errorf("%s: WithParams kept its argument", c.name)
		}
	}
}

// kernelDiff returns the derivative of f in parameter p, or in its logarithm where
// it is learned so, by central differences extrapolated twice.
func kernelDiff(k Kernel, p int, f func(Kernel) float64) float64 {
	logs := k.Params()[p].Min >= 0
	at := func(step float64) float64 {
		theta := kernelValues(k)
		if logs {
			theta[p] *= math.Exp(step)
		} else {
			theta[p] += step
		}
		return f(k.WithParams(theta))
	}
	diff := func(h float64) float64 { return (at(h) - at(-h)) / (2 * h) }
	const h = 4e-4
	return (64*diff(h) - 20*diff(2*h) + diff(4*h)) / 45
}

func TestKernelGradients(t *testing.T) {
	t.Parallel()
	for _, d := range []int{1, 3, 6} {
		x := kernelPoints(3, 5, d, 1)
		copy(x.RawRowView(4), x.RawRowView(0)) // r = 0 between two rows
		for _, c := range kernelCases(d) {
			if c.name == "user/embedding" {
				continue // its gradient is not that of its Cov
			}
			grad := make([]float64, len(c.k.Params()))
			for i := range 5 {
				for j := range 5 {
					a, b := x.RawRowView(i), x.RawRowView(j)
					if v := c.k.Grad(grad, a, b); v != c.k.Cov(a, b) {
						t.Fatalf("%s: Grad returns %v, Cov %v", c.name, v, c.k.Cov(a, b))
					}
					for p := range grad {
						want := kernelDiff(c.k, p, func(k Kernel) float64 { return k.Cov(a, b) })
						if !kernelClose(grad[p], want, 1e-9, 1) {
							t.Fatalf("%s, D=%d, parameter %d: %v, want %v", c.name, d, p, grad[p], want)
						}
					}
				}
			}
			n, ok := c.k.(Noisy)
			if !ok {
				continue
			}
			a := x.RawRowView(1)
			if v := n.GradSelf(grad, a); !kernelClose(v, n.SelfCov(a), 1e-15, 0) {
				t.Errorf("%s: GradSelf returns %v, SelfCov %v", c.name, v, n.SelfCov(a))
			}
			for p := range grad {
				want := kernelDiff(c.k, p, func(k Kernel) float64 { return k.(Noisy).SelfCov(a) })
				if !kernelClose(grad[p], want, 1e-9, 1) {
					t.Errorf("%s, diagonal, parameter %d: %v, want %v", c.name, p, grad[p], want)
				}
			}
		}
	}
}

// kernelData are the point sets on which matrices are compared with Cov.
func kernelData() map[string]*mat.Dense {
	dup := kernelPoints(5, 70, 9, 1)
	for i := range 35 {
		copy(dup.RawRowView(69-i), dup.RawRowView(i))
	}
	near := kernelPoints(6, 40, 12, 1)
	for i := 1; i < 40; i++ { // distances 1e-15 … 1
		copy(near.RawRowView(i), near.RawRowView(0))
		near.Set(i, i%12, near.At(0, i%12)+math.Pow(10, -float64(i)/2.6))
	}
	offset := kernelPoints(7, 40, 6, 1)
	offset.Apply(func(_, _ int, v float64) float64 { return v + 1e6 }, offset)
	same := mat.NewDense(5, 6, nil)
	same.Apply(func(_, _ int, _ float64) float64 { return 0.1 }, same)
	half := kernelPoints(8, 30, 33, 1)
	for i := range 30 {
		for j := 1; j < 33; j += 2 {
			half.Set(i, j, 7)
		}
	}
	// Squared norms at which products of matrices are just accurate enough, with
	// every term of one size and mostly of one sign.
	edge := func(d int, norms float64) *mat.Dense {
		x := kernelPoints(12, 40, d, 1)
		x.Apply(func(i, _ int, v float64) float64 {
			size := math.Sqrt(norms / 2 / float64(d))
			if v < -0.8 || i%2 == 0 {
				return -size
			}
			return size
		}, x)
		return x
	}
	pairs := edge(34, 3900) // near pairs, r from 0.01 to 0.8 at Length 2.5, far out
	for i := 1; i < 40; i += 2 {
		copy(pairs.RawRowView(i), pairs.RawRowView(i-1))
		for d := range 34 {
			pairs.Set(i, d, pairs.At(i, d)+math.Pow(1.23, float64(i-40)/2)*math.Sin(float64(i*d)))
		}
	}
	digits := kernelPoints(9, 90, 256, 0.3)
	digits.Apply(func(_, _ int, v float64) float64 { return min(max(v, -0.5), 1) }, digits)
	return map[string]*mat.Dense{
		"one":        kernelPoints(1, 1, 1, 1),
		"one row":    kernelPoints(1, 1, 8, 1),
		"D=1":        kernelPoints(2, 150, 1, 2),
		"D=3":        kernelPoints(3, 66, 3, 1),
		"D=34":       kernelPoints(4, 140, 34, 0.7),
		"duplicates": dup,
		"near":       near,
		"offset":     offset,
		"constant":   same,
		"half":       half,
		"edge 34":    edge(34, 640),
		"edge 256":   edge(256, 320),
		"pairs":      pairs,
		"wide":       kernelPoints(10, 40, 8, 30),
		"digits":     digits,
		"view":       kernelPoints(11, 200, 20, 1).Slice(20, 170, 3, 16).(*mat.Dense),
	}
}

// TestGram compares Gram and CrossCov with Cov, pair by pair, and Gram with its
// own properties.
func TestGram(t *testing.T) {
	t.Parallel()
	for name, x := range kernelData() {
		n, d := x.Dims()
		if n > 140 && testing.Short() {
			continue
		}
		for _, c := range kernelCases(d) {
			k := Gram(nil, c.k, x)
			kx := CrossCov(nil, c.k, x, x)
			v := PriorVar(nil, c.k, x)
			step := shorter(1, 7)
			for i := range n {
				for j := i % step; j < n; j += step {
					a, b := x.RawRowView(i), x.RawRowView(j)
					want := c.k.Cov(a, b)
					if !kernelClose(kx.At(i, j), want, 1e-12, 0) {
						t.Fatalf("%s, %s: CrossCov[%d,%d] = %v, Cov %v, off by %.2g", name, c.name, i, j, kx.At(i, j), want, kx.At(i, j)/want-1)
					}
					if i == j {
						if v[i] != want {
							t.Fatalf("%s, %s: PriorVar[%d] = %v, Cov %v", name, c.name, i, v[i], want)
						}
						if n, ok := c.k.(Noisy); ok {
							want = n.SelfCov(a)
						}
						if !kernelClose(k.At(i, i), want, 1e-14, 0) {
							t.Fatalf("%s, %s: diagonal %d of Gram is %v, want %v", name, c.name, i, k.At(i, i), want)
						}
						continue
					}
					if k.At(i, j) != kx.At(i, j) {
						t.Fatalf("%s, %s: Gram[%d,%d] = %v, CrossCov %v", name, c.name, i, j, k.At(i, j), kx.At(i, j))
					}
					if slices.Equal(a, b) && kx.At(i, j) != kx.At(i, i) {
						t.Fatalf("%s, %s: equal rows %d, %d: %v, diagonal %v", name, c.name, i, j, kx.At(i, j), kx.At(i, i))
					}
				}
			}
		}
	}
}

// counted is a user's Profile that counts the calls of Values and Slopes.
type counted struct{ calls *atomic.Int64 }

func (c counted) Values(r2 []float64) {
	c.calls.Add(1)
	matern72{}.Values(r2)
}

func (c counted) Slopes(dst, r2, rho []float64) {
	c.calls.Add(1)
	matern72{}.Slopes(dst, r2, rho)
}

// TestIsoTiles: a user's Profile is called a few times for each tile and not for
// each pair, alone and in a Sum.
func TestIsoTiles(t *testing.T) {
	var calls atomic.Int64
	k := Iso[counted]{Length: 2, Profile: counted{&calls}}
	x := kernelPoints(90, 280, 6, 1)
	w := Gram(nil, White{}, x)
	tiles := int64((280 + kernelRows - 1) / kernelRows * ((280 + kernelCols - 1) / kernelCols))
	for _, c := range []struct {
		name string
		f    func()
		most int64
	}{
		{"Gram", func() { Gram(nil, k, x) }, tiles + 1},
		{"CrossCov", func() { CrossCov(nil, k, x, x) }, tiles + 1},
		{"Gram of a Sum", func() { Gram(nil, Sum{Linear{}, k}, x) }, tiles + 281},
		{"Gram of a pointer", func() { Gram(nil, &k, x) }, tiles + 1},
		{"GramGrad", func() { GramGrad(nil, k, x, w) }, 2*tiles + 2*281},
	} {
		calls.Store(0)
		if c.f(); calls.Load() == 0 || calls.Load() > c.most {
			t.Errorf("%s: %d calls, want at most %d", c.name, calls.Load(), c.most)
		}
	}
}

func TestGramPositiveSemidefinite(t *testing.T) {
	t.Parallel()
	for name, x := range kernelData() {
		n, d := x.Dims()
		if n > 60 && testing.Short() {
			continue
		}
		for _, c := range kernelCases(d) {
			var eig mat.EigenSym
			if !eig.Factorize(Gram(nil, c.k, x), false) {
				t.Fatalf("%s, %s: no eigenvalues", name, c.name)
			}
			v := eig.Values(nil)
			if v[0] < -1e-10*v[n-1] {
				t.Errorf("%s, %s: eigenvalues from %v to %v", name, c.name, v[0], v[n-1])
			}
		}
	}
}

// TestGramBits checks that no entry depends on the number of processors or on
// what else is in the call.
func TestGramBits(t *testing.T) {
	x, y := kernelPoints(20, 150, 34, 0.8), kernelPoints(21, 300, 34, 0.8)
	copy(y.RawRowView(7), x.RawRowView(3))
	w := Gram(nil, SquaredExp{Length: 3}, x)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, c := range kernelCases(34) {
		runtime.GOMAXPROCS(1)
		k, kxy, g := Gram(nil, c.k, x), CrossCov(nil, c.k, x, y), GramGrad(nil, c.k, x, w)
		for _, procs := range []int{2, 5} {
			runtime.GOMAXPROCS(procs)
			if !mat.Equal(k, Gram(nil, c.k, x)) || !mat.Equal(kxy, CrossCov(nil, c.k, x, y)) || !slices.Equal(g, GramGrad(nil, c.k, x, w)) {
				t.Errorf("%s: another result with GOMAXPROCS=%d", c.name, procs)
			}
		}
		for _, part := range [][2]int{{0, 1}, {1, 4}, {5, 7}, {3, 131}, {200, 300}} {
			got := CrossCov(nil, c.k, x, y.Slice(part[0], part[1], 0, 34).(*mat.Dense))
			if !mat.Equal(got, kxy.Slice(0, 150, part[0], part[1])) {
				t.Errorf("%s: rows %v alone give another result", c.name, part)
			}
		}
	}
}

// TestCovByDifferences: covariances by differences are those of Cov to rounding, and depend neither on the other columns nor on the other rows of their tile.
func TestCovByDifferences(t *testing.T) {
	const n, d = 70, 34
	x := kernelPoints(20, n, d, 0.8)
	copy(x.RawRowView(67), x.RawRowView(3))
	var at, others []int
	for i := range n {
		if i%2 == 1 {
			at = append(at, n-i)
		}
		others = append(others, i)
	}
	for _, c := range kernelCases(d) {
		whole := mat.NewDense(len(at), n, nil)
		covByDifferences(c.k, whole.RawMatrix().Data, x.RawMatrix(), at, others)
		for a, i := range at {
			for _, j := range others {
				if got, want := whole.At(a, j), c.k.Cov(x.RawRowView(i), x.RawRowView(j)); !kernelClose(got, want, 1e-13, 0) {
					t.Fatalf("%s: covariance %d, %d is %v, Cov %v", c.name, i, j, got, want)
				}
			}
		}
		for _, part := range [][4]int{{0, 1, 0, 1}, {3, 4, 0, n}, {0, len(at), 67, 68}, {5, 29, 11, 64}} {
			got := mat.NewDense(part[1]-part[0], part[3]-part[2], nil)
			covByDifferences(c.k, got.RawMatrix().Data, x.RawMatrix(), at[part[0]:part[1]], others[part[2]:part[3]])
			if !mat.Equal(got, whole.Slice(part[0], part[1], part[2], part[3])) {
				t.Errorf("%s: rows and columns %v alone give another result", c.name, part)
			}
		}
	}
}

func TestGramGrad(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{1, 1}, {9, 1}, {12, 3}, {80, 7}} {
		n, d := size[0], size[1]
		if n > 20 && testing.Short() {
			continue
		}
		x := kernelPoints(30, n, d, 1)
		rng := rand.New(rand.NewPCG(31, 1))
		w := mat.NewSymDense(n, nil)
		for i := range n {
			for j := i; j < n; j++ {
				w.SetSym(i, j, rng.NormFloat64())
			}
		}
		for _, c := range kernelCases(d) {
			if strings.HasSuffix(c.name, "embedding") {
				continue
			}
			got := GramGrad(nil, c.k, x, w)
			abs := 0.0
			for p := range got {
				want := kernelDiff(c.k, p, func(k Kernel) float64 {
					g := Gram(nil, k, x)
					sum := 0.0
					abs = 0
					for i := range n {
						for j := range n {
							sum += w.At(i, j) * g.At(i, j)
							abs += math.Abs(w.At(i, j) * g.At(i, j))
						}
					}
					return sum
				})
				if !kernelClose(got[p], want, 1e-10, 1+abs) {
					t.Errorf("%s, N=%d, D=%d, parameter %d: %v, want %v", c.name, n, d, p, got[p], want)
				}
			}
		}
	}
}

func TestGramComposite(t *testing.T) {
	x := kernelPoints(40, 90, 6, 1)
	k1, k2 := SquaredExp{Scale: 2, Length: 1.5}, Linear{Scale: 0.5}
	var want mat.SymDense
	want.AddSym(Gram(nil, k1, x), Gram(nil, k2, x))
	if !mat.EqualApprox(&want, Gram(nil, Sum{k1, k2}, x), 1e-15) {
		t.Error("Gram of a Sum is not the sum of the Grams")
	}
	var prod mat.Dense
	prod.MulElem(Gram(nil, k1, x), Gram(nil, k2, x))
	if !mat.EqualApprox(&prod, Gram(nil, Product{k1, k2}, x), 1e-15) {
		t.Error("Gram of a Product is not the element-wise product of the Grams")
	}
}

func TestWhite(t *testing.T) {
	x := mat.NewDense(3, 1, []float64{0, 1, 1})
	se := SquaredExp{Scale: 3, Length: 2}
	for _, c := range []struct {
		name        string
		k           Kernel
		diag, prior float64
		cross       float64 // between the two equal rows
	}{
		{"White", White{Scale: 0.5}, 0.25, 0, 0},
		{"Sum", Sum{se, White{Scale: 0.5}}, 9.25, 9, 9},
		{"Product", Product{se, White{Scale: 0.5}}, 2.25, 0, 0},
		{"Sum of Product", Sum{se, Product{Constant{Scale: 2}, White{Scale: 0.5}}}, 10, 9, 9},
		{"Product of Sums", Product{Sum{Constant{}, White{}}, Sum{se, White{}}}, 20, 9, 9},
		{"pointer", &Sum{se, &White{Scale: 0.5}}, 9.25, 9, 9},
	} {
		k := Gram(nil, c.k, x)
		for i := range 3 {
			if k.At(i, i) != c.diag {
				t.Errorf("%s: diagonal %v, want %v", c.name, k.At(i, i), c.diag)
			}
		}
		if k.At(1, 2) != c.cross {
			t.Errorf("%s: covariance of equal rows %v, want %v", c.name, k.At(1, 2), c.cross)
		}
		kx := CrossCov(nil, c.k, x, x)
		if kx.At(1, 1) != c.prior || PriorVar(nil, c.k, x)[1] != c.prior {
			t.Errorf("%s: CrossCov %v, PriorVar %v, want %v", c.name, kx.At(1, 1), PriorVar(nil, c.k, x)[1], c.prior)
		}
	}
}

func TestCheckKernel(t *testing.T) {
	for _, c := range kernelCases(3) {
		if err := checkKernel(c.k, 3); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		d, ok := c.k.(Dimensional)
		ard := strings.Contains(c.name, "ARD") || ok && d.Dim() != 0
		if err := checkKernel(c.k, 4); ard != errors.Is(err, ErrShape) {
			t.Errorf("%s, 4 columns: %v", c.name, err)
		}
	}
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		k    Kernel
		d    int
		want error
		says []string
	}{
		{nil, 1, ErrParam, []string{"nil"}},
		{SquaredExp{Scale: -1, Length: nan}, 1, ErrParam, []string{"SquaredExp.Scale is -1", "SquaredExp.Length is NaN"}},
		{Matern12{Scale: inf}, 1, ErrParam, []string{"Matern12.Scale is +Inf"}},
		{Matern32{Lengths: []float64{1, -2}}, 2, ErrParam, []string{"Matern32.Length[1] is -2"}},
		{Matern52{Lengths: []float64{1, 2}}, 3, ErrShape, []string{"Matern52 is for 2 columns, the data have 3"}},
		{Sum{White{}, Product{Matern52{Lengths: []float64{1, 2}}, Linear{Scales: []float64{1, 2, -3}}}}, 3, ErrShape,
			[]string{"Sum[1].Product[0].Matern52 is for 2 columns", "Sum[1].Product[1].Linear.Scale[2] is -3"}},
		{Matern72{Scale: -1}, 1, ErrParam, []string{"matern72.Scale is -1"}},
		{&Product{&Linear{Scale: -1}}, 1, ErrParam, []string{"Product[0].Linear.Scale is -1"}},
		{Iso[*hump]{Profile: &hump{1}}, 1, ErrParam, []string{"hump.Power is 1, want a number between -1 and 1"}},
		{RationalQuadratic{Profile: Rational{Alpha: -1}, Length: -2}, 3, ErrParam, []string{"Alpha is -1", "Length is -2"}},
		{Periodic{Period: nan}, 3, ErrParam, []string{"Periodic.Period is NaN"}},
		{Linear{Scales: []float64{1}}, 3, ErrShape, []string{"Linear is for 1 columns, the data have 3"}},
		{Linear{Scale: nan}, 3, ErrParam, []string{"Linear.Scale"}},
		{Constant{Scale: -1}, 3, ErrParam, []string{"Constant.Scale"}},
		{White{Scale: -1}, 3, ErrParam, []string{"White.Scale"}},
		{Sum{}, 3, ErrParam, []string{"Sum of no kernels"}},
		{Product{}, 3, ErrParam, []string{"Product of no kernels"}},
		{Sum{SquaredExp{Scale: -1}, nil, Product{White{Scale: nan}}}, 3, ErrParam, []string{"Sum[0].SquaredExp.Scale is -1", "Sum[1] is nil", "Sum[2].Product[0].White.Scale is NaN"}},
	} {
		err := checkKernel(c.k, c.d)
		if !errors.Is(err, c.want) {
			t.Errorf("%#v: error %v, want one that is %v", c.k, err, c.want)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%#v: error %q does not say %q", c.k, err, s)
			}
		}
		for line := range strings.Lines(err.Error()) {
			if !strings.HasPrefix(line, "pgsvi: ") {
				t.Errorf("%#v: error line %q without prefix", c.k, line)
			}
		}
	}
}

func TestKernelPanics(t *testing.T) {
	x := kernelPoints(50, 4, 2, 1)
	wrong := mat.NewDense(4, 3, nil)
	for name, f := range map[string]func(){
		"Cov":              func() { SquaredExp{}.Cov([]float64{1}, []float64{1, 2}) },
		"Cov Lengths":      func() { SquaredExp{Lengths: []float64{1}}.Cov([]float64{1, 2}, []float64{1, 2}) },
		"Gram Lengths":     func() { Gram(nil, Sum{Matern32{Lengths: []float64{1}}}, x) },
		"Gram dst":         func() { Gram(mat.NewSymDense(3, nil), SquaredExp{}, x) },
		"Gram empty":       func() { Gram(nil, SquaredExp{}, new(mat.Dense)) },
		"CrossCov columns": func() { CrossCov(nil, SquaredExp{}, x, wrong) },
		"CrossCov linear":  func() { CrossCov(nil, Linear{}, x, wrong) },
		"CrossCov dst":     func() { CrossCov(mat.NewDense(4, 3, nil), SquaredExp{}, x, x) },
		"PriorVar dst":     func() { PriorVar(make([]float64, 3), SquaredExp{}, x) },
		"GramGrad w":       func() { GramGrad(nil, SquaredExp{}, x, mat.NewSymDense(3, nil)) },
		"GramGrad dst":     func() { GramGrad(make([]float64, 3), SquaredExp{}, x, mat.NewSymDense(4, nil)) },
		"WithParams":       func() { Periodic{}.WithParams(make([]float64, 2)) },
		"WithParams Sum":   func() { Sum{White{}}.WithParams(make([]float64, 2)) },
		"Grad":             func() { Linear{}.Grad(make([]float64, 2), []float64{1}, []float64{1}) },
	} {
		func() {
			defer func() {
				if r := recover(); r == nil {
					t.Errorf("%s: no panic", name)
				} else if s, ok := r.(string); !ok || !strings.HasPrefix(s, "pgsvi: ") {
					t.Errorf("%s: panic %v", name, r)
				}
			}()
			f()
		}()
	}
}

func TestGramAllocs(t *testing.T) {
	var pool sync.Pool
	for range 100 {
		if pool.Put(t); pool.Get() != any(t) {
			t.Skip("sync.Pool forgets at random under the race detector")
		}
	}
	x, y := kernelPoints(60, 100, 9, 1), kernelPoints(61, 30, 9, 1)
	for _, c := range kernelCases(9) {
		k, kxy := Gram(nil, c.k, x), CrossCov(nil, c.k, x, y)
		v, g := PriorVar(nil, c.k, x), GramGrad(nil, c.k, x, k)
		w := mat.NewSymDense(100, nil)
		w.CopySym(k)
		if n := testing.AllocsPerRun(10, func() {
			Gram(k, c.k, x)
			CrossCov(kxy, c.k, x, y)
			PriorVar(v, c.k, x)
		}); n > 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
		if c.name == "user/embedding" {
			continue // its Params makes a list each time
		}
		if n := testing.AllocsPerRun(10, func() { GramGrad(g, c.k, x, w) }); n > 0 {
			t.Errorf("%s: %v allocations in GramGrad", c.name, n)
		}
	}
}

// TestKernelExp compares with math.Exp, which has larger errors, in many places,
// and with math/big in some.
func TestKernelExp(t *testing.T) {
	rng := rand.New(rand.NewPCG(70, 1))
	n := 200_000
	v := make([]float64, n)
	for i := range v {
		v[i] = -math.Exp(rng.Float64()*50 - 43)
	}
	copy(v, []float64{0, math.Copysign(0, -1), -1e-300, -0x1p-53, -699.9999, -700, -708.5, -745, -746, math.Inf(-1)})
	got := slices.Clone(v)
	special.ExpRate(got, 1)
	for i, x := range v {
		want := math.Exp(x)
		if !kernelClose(got[i], want, 1e-13, 5e-311) {
			t.Fatalf("exp(%v) = %v, want %v", x, got[i], want)
		}
	}
	if got[0] != 1 || got[1] != 1 {
		t.Errorf("exp(0) = %v, %v", got[0], got[1])
	}
	worst := 0.0
	for range 500 {
		x := []float64{-1400 * math.Pow(rng.Float64(), 4)}
		want := kernelBigExp(x[0] / 2)
		special.ExpRate(x, 0.5)
		diff, _ := new(big.Float).Sub(big.NewFloat(x[0]).SetPrec(200), want).Float64()
		worst = max(worst, math.Abs(diff)/(math.Nextafter(x[0], 2)-x[0]))
	}
	if worst > 0.8 || worst < 0.3 {
		t.Errorf("largest error %v units in the last place", worst)
	}
	nan := []float64{math.NaN()}
	if special.ExpRate(nan, -1); !math.IsNaN(nan[0]) {
		t.Errorf("exp(NaN) = %v", nan[0])
	}
}

// TestPolyExp compares with the formula, for polynomials of every length.
func TestPolyExp(t *testing.T) {
	p := []float64{2, -1, 0.5, 0.25, 3, 0.125}
	for n := range len(p) + 1 {
		v := make([]float64, 150)
		for i := range v {
			v[i] = float64(i*i) / 100
		}
		v[149] = math.Inf(1)
		PolyExp(v, 3, p[:n]...)
		for i, got := range v[:149] {
			a, poly := math.Sqrt(3*float64(i*i)/100), 0.0
			for k := n - 1; k >= 0; k-- {
				poly = poly*a + p[k]
			}
			if want := poly * math.Exp(-a); !kernelClose(got, want, 2e-14, 1e-14) {
				t.Errorf("%d coefficients, a = %v: %v, want %v", n, a, got, want)
			}
		}
		if v[149] != 0 {
			t.Errorf("%d coefficients at infinity: %v", n, v[149])
		}
	}
}

// kernelBigExp sums the series of exp(x/1024) and squares it ten times.
func kernelBigExp(x float64) *big.Float {
	const prec = 200
	z := new(big.Float).SetPrec(prec).SetMantExp(big.NewFloat(x), -10)
	sum, term := big.NewFloat(1).SetPrec(prec), big.NewFloat(1).SetPrec(prec)
	for i := 1; i < 40; i++ {
		term.Mul(term, z).Quo(term, big.NewFloat(float64(i)))
		sum.Add(sum, term)
	}
	for range 10 {
		sum.Mul(sum, sum)
	}
	return sum
}

func ExampleGram() {
	x := mat.NewDense(3, 1, []float64{0, 1, 3})
	k := Sum{SquaredExp{Scale: 2, Length: 1}, White{Scale: 0.1}}
	fmt.Printf("%.4f\n", mat.Formatted(Gram(nil, k, x)))
	// Output:
	// ⎡4.0100  2.4261  0.0444⎤
	// ⎢2.4261  4.0100  0.5413⎥
	// ⎣0.0444  0.5413  4.0100⎦
}

func ExampleProduct() {
	// A yearly rhythm that may change its shape over a decade, and a trend.
	k := Sum{
		Product{SquaredExp{Scale: 2, Length: 10}, Periodic{Period: 1}},
		Linear{Scale: 0.1},
	}
	fmt.Printf("%.3f\n", k.Cov([]float64{1}, []float64{3}))
	fmt.Println(len(k.Params()), "parameters")
	// Output:
	// 3.951
	// 6 parameters
}

func ExampleKernel() {
	var k Kernel = Sum{Matern52{Scale: 2, Lengths: []float64{1, 10}}, White{}}
	var values []float64
	for _, p := range k.Params() {
		fmt.Println(p.Name, p.Value)
		values = append(values, p.Value)
	}
	values[2] = 5
	k = k.WithParams(values)
	fmt.Println(k.Params()[2].Value)
	// Output:
	// [0].Matern52.Scale 2
	// [0].Matern52.Length[0] 1
	// [0].Matern52.Length[1] 10
	// [1].White.Scale 1
	// 5
}

func ExampleGramGrad() {
	// The gradient of the log marginal likelihood of y ~ N(0, K) is
	// ½ Σ_ij (a_i a_j − K⁻¹_ij) ∂K_ij/∂log θ with
	// a = K⁻¹y.
	x := mat.NewDense(4, 1, []float64{0, 1, 2, 3})
	y := mat.NewVecDense(4, []float64{0.1, 0.9, 0.8, 0.2})
	var k Kernel = Sum{SquaredExp{}, White{Scale: 0.1}}

	var chol mat.Cholesky
	chol.Factorize(Gram(nil, k, x))
	var a mat.VecDense
	var w mat.SymDense
	chol.SolveVecTo(&a, y)
	chol.InverseTo(&w)
	w.ScaleSym(-1, &w)
	w.SymRankOne(&w, 1, &a)
	w.ScaleSym(0.5, &w)
	fmt.Printf("%.3f\n", GramGrad(nil, k, x, &w))
	// Output:
	// [-2.787 1.998 -0.085]
}

// BenchmarkCrossCov reports the cost relative to the triangular solve that a
// prediction needs besides it.
func BenchmarkCrossCov(b *testing.B) {
	const rows = 1000
	for _, size := range [][2]int{{280, 34}, {767, 256}} {
		n, d := size[0], size[1]
		x, y := kernelPoints(80, n, d, 0.5), kernelPoints(81, rows, d, 0.5)
		length := math.Sqrt(float64(d)) / 2
		tri := blas64.Triangular{Uplo: blas.Lower, Diag: blas.NonUnit, N: n, Stride: n, Data: kernelPoints(82, n, n, 1).RawMatrix().Data}
		for i := range n {
			tri.Data[i*n+i] = float64(n)
		}
		rhs := CrossCov(nil, SquaredExp{}, x, y).RawMatrix()
		solve := time.Duration(math.MaxInt64)
		for range 7 {
			start := time.Now()
			blas64.Trsm(blas.Left, blas.NoTrans, 1, tri, rhs)
			solve = min(solve, time.Since(start))
		}
		for _, k := range []Kernel{
			SquaredExp{Length: length}, Matern12{Length: length}, Matern52{Length: length}, RationalQuadratic{Length: length},
			Linear{}, Sum{SquaredExp{Length: length}, Constant{}},
		} {
			b.Run(fmt.Sprintf("N=%d/D=%d/pgsvi.%s", n, d, kernelName(k)), func(b *testing.B) {
				dst := CrossCov(nil, k, x, y)
				b.ReportAllocs()
				for b.Loop() {
					CrossCov(dst, k, x, y)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(solve), "of-Trsm")
			})
		}
	}
}

func BenchmarkGram(b *testing.B) {
	for _, size := range [][2]int{{280, 34}, {767, 256}} {
		x := kernelPoints(80, size[0], size[1], 0.5)
		b.Run(fmt.Sprintf("N=%d/D=%d", size[0], size[1]), func(b *testing.B) {
			var k Kernel = SquaredExp{Length: math.Sqrt(float64(size[1])) / 2}
			dst := Gram(nil, k, x)
			b.ReportAllocs()
			for b.Loop() {
				Gram(dst, k, x)
			}
		})
	}
}

// BenchmarkGramProfile compares a user's Profile with one of the package, and with
// the same kernel pair by pair.
func BenchmarkGramProfile(b *testing.B) {
	for _, d := range []int{3, 34} {
		x := kernelPoints(80, 280, d, 0.5)
		length := math.Sqrt(float64(d)) / 2
		for name, k := range map[string]Kernel{
			"Matern52": Matern52{Scale: 2, Length: length}, "Matern72": Matern72{Scale: 2, Length: length},
			"pairs": newUserKernel(Matern72{Scale: 2, Length: length}),
		} {
			b.Run(fmt.Sprintf("D=%d/%s", d, name), func(b *testing.B) {
				dst := Gram(nil, k, x)
				b.ReportAllocs()
				for b.Loop() {
					Gram(dst, k, x)
				}
			})
		}
	}
}

func BenchmarkGramGrad(b *testing.B) {
	for _, size := range [][2]int{{280, 34}, {767, 256}} {
		n, d := size[0], size[1]
		x := kernelPoints(80, n, d, 0.5)
		lengths := make([]float64, d)
		for i := range lengths {
			lengths[i] = math.Sqrt(float64(d)) / 2
		}
		for name, k := range map[string]Kernel{"one": SquaredExp{Length: lengths[0]}, "ARD": SquaredExp{Lengths: lengths}} {
			b.Run(fmt.Sprintf("N=%d/D=%d/%s", n, d, name), func(b *testing.B) {
				w := Gram(nil, k, x)
				dst := GramGrad(nil, k, x, w)
				b.ReportAllocs()
				for b.Loop() {
					GramGrad(dst, k, x, w)
				}
			})
		}
	}
}

func BenchmarkKernelExp(b *testing.B) {
	src := make([]float64, 4096)
	for i := range src {
		src[i] = -20 * float64(i) / 4096
	}
	dst := make([]float64, len(src))
	b.Run("math", func(b *testing.B) {
		for b.Loop() {
			for i, v := range src {
				dst[i] = math.Exp(v)
			}
		}
	})
	b.Run("vectors", func(b *testing.B) {
		for b.Loop() {
			copy(dst, src)
			special.ExpRate(dst, 1)
		}
	})
}
