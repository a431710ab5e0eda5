package pgsvi

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/gram"
	"gonum.org/v1/gonum/mat"
)

// userKernel has only the four required methods, so it takes the generic path.
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

// matern72 is a custom Profile, (1 + a + 2a²/5 + a³/15) exp(−a) with a = √7 r.
type matern72 struct{}

func (matern72) Values(r2 []float64) { PolyExp(r2, 7, 1, 1, 2./5, 1./15) }

func (matern72) Slopes(dst, r2, _ []float64) {
	copy(dst, r2)
	PolyExp(dst, 7, 7./5, 7./5, 7./15)
}

type userMatern72 = Iso[matern72]

// hump is a custom Profile with a parameter, (1 + Power r²) exp(−r²/2). The parameter may have
// either sign, so it is not learned as a logarithm. It is a pointer.
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

// kernelR is the textbook formula of r, with one length scale per column.
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

// rationalQuadratic returns a RationalQuadratic with the given parameters.
func rationalQuadratic(scale, length, alpha float64) Kernel {
	return RationalQuadratic{}.WithParams([]float64{scale, length, alpha})
}

func kernelCases(d int) []kernelCase {
	ls := make([]float64, d)
	for i := range ls {
		ls[i] = 0.7 + 0.4*float64(i%5)
	}
	one := func(l float64) func(int) float64 { return func(int) float64 { return l } }
	ard := func(i int) float64 { return ls[i] }
	se := func(x, y []float64) float64 {
		return 1.69 * math.Exp(
			-0.5*math.Pow(kernelR(x, y, one(2.5)), 2))
	}
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
	// on returns a function of the last column and, if there are more, the first
	columns := []int{d - 1}
	if d > 1 {
		columns = append(columns, 0)
	}
	on := func(f func(x, y []float64) float64) func(x, y []float64) float64 {
		return func(x, y []float64) float64 {
			some := func(x []float64) (s []float64) {
				for _, c := range columns {
					s = append(s, x[c])
				}
				return s
			}
			return f(some(x), some(y))
		}
	}
	return []kernelCase{
		{"On", On{Kernel: SquaredExp{Scale: 1.3, Length: 2.5}, Columns: columns}, on(se)},
		{"On/lengths", On{Kernel: SquaredExp{Scale: 0.5, Lengths: ls[:len(columns)]}, Columns: columns},
			on(func(x, y []float64) float64 {
				return 0.25 * math.Exp(-0.5*math.Pow(kernelR(x, y, ard), 2))
			})},
		{"On/all", On{Kernel: Linear{Scales: ls}}, linear},
		{"On/nested", Sum{On{Kernel: Product{Periodic{}, On{Kernel: Linear{Scale: 1.4},
			Columns: []int{0}}, White{}}, Columns: columns}, On{Kernel: Sum{Constant{Scale: 2},
			Linear{}}, Columns: []int{d - 1}}}, func(x, y []float64) float64 {
			return 4 + x[d-1]*y[d-1]
		}},
		{"On/product", Product{On{Kernel: Periodic{}, Columns: columns}, On{Kernel: SquaredExp{
			Scale: 1.3, Length: 2.5}}}, func(x, y []float64) float64 {
			return on(periodic(1, 1, 1))(x, y) * se(x, y)
		}},
		{"SquaredExp/zero", SquaredExp{}, func(x, y []float64) float64 {
			return math.Exp(-0.5 * math.Pow(kernelR(x, y, one(1)), 2))
		}},
		{"SquaredExp", SquaredExp{Scale: 1.3, Length: 2.5}, se},
		{"SquaredExp/ARD", SquaredExp{Scale: 0.5, Lengths: ls}, func(x, y []float64) float64 {
			return 0.25 * math.Exp(-0.5*math.Pow(kernelR(x, y, ard), 2))
		}},
		{"Matern12", Matern12{Scale: 1.3, Length: 2.5},
			func(x, y []float64) float64 { return 1.69 * math.Exp(-kernelR(x, y, one(2.5))) }},
		{"Matern12/ARD", Matern12{Scale: 2, Lengths: ls},
			func(x, y []float64) float64 { return 4 * math.Exp(-kernelR(x, y, ard)) }},
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
		{"RationalQuadratic",
			rationalQuadratic(1.3, 2.5, 0.6),
			func(x, y []float64) float64 {
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
		{"Sum", Sum{SquaredExp{Scale: 1.3, Length: 2.5}, Linear{Scales: ls}, White{Scale: 0.3}},
			func(x, y []float64) float64 { return se(x, y) + linear(x, y) }},
		{"Product", Product{SquaredExp{Scale: 1.3, Length: 2.5}, Linear{Scales: ls},
			Constant{Scale: 2}},
			func(x, y []float64) float64 { return 4 * se(x, y) * linear(x, y) }},
		{"Product/nested", Product{Sum{SquaredExp{Scale: 1.3, Length: 2.5}, Constant{Scale: 2}},
			Sum{Periodic{}, Linear{Scales: ls}}}, func(x, y []float64) float64 {
			return (se(x, y) + 4) * (periodic(1, 1, 1)(x, y) + linear(x, y))
		}},
		{"Product/White", Product{Sum{SquaredExp{Scale: 1.3, Length: 2.5}}, White{Scale: 2}},
			func(x, y []float64) float64 { return 0 }},
		{"Matern72", userMatern72{Scale: 1.3, Length: 2.5}, func(x, y []float64) float64 {
			a := math.Sqrt(7) * kernelR(x, y, one(2.5))
			return 1.69 * math.Exp(-a) * (1 + a + 0.4*a*a + a*a*a/15)
		}},
		{"Matern72/ARD", userMatern72{Scale: 0.8, Lengths: ls}, func(x, y []float64) float64 {
			a := math.Sqrt(7) * kernelR(x, y, ard)
			return 0.64 * math.Exp(-a) * (1 + a + 0.4*a*a + a*a*a/15)
		}},
		{"hump", Iso[*hump]{Scale: 2, Length: 2.5, Profile: &hump{-0.01}},
			func(x, y []float64) float64 {
				r := kernelR(x, y, one(2.5))
				return 4 * math.Exp(-r*r/2) * (1 - 0.01*r*r)
			}},
		{"pointer", &Sum{&SquaredExp{Scale: 1.3, Length: 2.5}, &White{Scale: 0.3}}, se},
		{"user", newUserKernel(SquaredExp{Scale: 1.3, Length: 2.5}), se},
		{"user/embedding", halfCov{SquaredExp{Scale: 1.3, Length: 2.5}},
			func(x, y []float64) float64 { return se(x, y) / 2 }},
		{"Sum/user", Sum{newUserKernel(Constant{Scale: 2}), SquaredExp{Scale: 1.3, Length: 2.5}},
			func(x, y []float64) float64 { return 4 + se(x, y) }},
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

// kernelClose reports whether got and want agree to tol, relative to the larger of want and floor.
func kernelClose(got, want, tol, floor float64) bool {
	return math.Abs(got-want) <= tol*max(math.Abs(want), floor)
}

// packageKernels returns the kernels in the sources of the package. A kernel is an exported type
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
					if s, ok := spec.(*ast.TypeSpec); ok && s.Assign.IsValid() &&
						s.Name.IsExported() {
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

// TestKernelTable checks that every kernel of the package is tested, is registered under its name,
// and is unchanged after saving and loading.
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
				continue // contains a part that is not registered
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
		{userMatern72{}, "matern72"}, {Iso[*hump]{}, "hump"}, {halfCov{}, "halfCov"},
		{newUserKernel(White{}), "userKernel"},
		{&SquaredExp{}, "squaredExp"}, {&Linear{}, "Linear"},
		{genericKernel[userMatern72]{}, "genericKernel"},
	} {
		if got := kernelName(c.k); got != c.want {
			t.Errorf("%T: name %q, want %q", c.k, got, c.want)
		}
	}
	k := Product{Sum{SquaredExp{Lengths: []float64{1, 2}}, White{}}, RationalQuadratic{},
		Linear{Scales: []float64{3}}}
	var names []string
	for _, p := range k.Params() {
		names = append(names, paramName(kernelName(k), p.Name))
	}
	want := []string{
		"Product[0].Sum[0].SquaredExp.Scale", "Product[0].Sum[0].SquaredExp.Length[0]",
		"Product[0].Sum[0].SquaredExp.Length[1]",
		"Product[0].Sum[1].White.Scale", "Product[1].RationalQuadratic.Scale",
		"Product[1].RationalQuadratic.Length",
		"Product[1].RationalQuadratic.Alpha", "Product[2].Linear.Scale[0]",
	}
	if !slices.Equal(names, want) {
		t.Errorf("parameters %q, want %q", names, want)
	}
}

// genericKernel is a custom kernel of a generic type.
type genericKernel[K Kernel] struct{ Kernel }

// TestRegisterPanics checks that a name belongs to one type, and a type has one name.
func TestRegisterPanics(t *testing.T) {
	type first struct{ userMatern72 }
	type second struct{ userMatern72 }
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
					if strings.Contains(c.name, "Linear") || strings.Contains(c.name, "Sum") ||
						strings.Contains(c.name, "Product") {
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
	// values computed by hand
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
		{rationalQuadratic(1, 1, 2), []float64{0}, []float64{2}, 0.25},
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
	for _, k := range []Kernel{SquaredExp{}, Matern12{}, Matern32{}, Matern52{},
		RationalQuadratic{}} {
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

// kernelValues returns the values of the parameters of k.
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
		if strings.TrimPrefix(fmt.Sprintf("%T", k), "*") != strings.TrimPrefix(
			fmt.Sprintf("%T", c.k), "*") && c.name != "user/embedding" {
			t.Errorf("%s: WithParams returns %T", c.name, k)
		}
		// its parts lose their pointers and get other names
		if got := k.Params(); !slices.Equal(got, p) && c.name != "pointer" {
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

// kernelDiff returns the derivative of f in parameter p, or in its logarithm if it is learned as a
// logarithm, by central differences that are extrapolated twice.
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
				continue // its gradient does not belong to its Cov
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
							t.Fatalf("%s, D=%d, parameter %d: %v, want %v", c.name, d, p, grad[p],
								want)
						}
					}
				}
			}
			n, ok := c.k.(gram.Noisy)
			if !ok {
				continue
			}
			a := x.RawRowView(1)
			if v := n.GradSelf(grad, a); !kernelClose(v, n.SelfCov(a), 1e-15, 0) {
				t.Errorf("%s: GradSelf returns %v, SelfCov %v", c.name, v, n.SelfCov(a))
			}
			for p := range grad {
				want := kernelDiff(c.k, p, func(k Kernel) float64 { return k.(gram.Noisy).SelfCov(a) })
				if !kernelClose(grad[p], want, 1e-9, 1) {
					t.Errorf("%s, diagonal, parameter %d: %v, want %v", c.name, p, grad[p], want)
				}
			}
		}
	}
}

// kernelData returns the sets of points on which matrices are compared with Cov.
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
	// edge returns points with squared norms at which products of matrices are just accurate
	// enough. All terms have the same size and mostly the same sign.
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

// TestParamCoordinate checks that the coordinate of a parameter takes exactly the values of its
// range, and that inverse, steps and derivative agree. With Min 0 and no Max it must be exactly the
// logarithm.
func TestParamCoordinate(t *testing.T) {
	t.Parallel()
	inf := math.Inf(1)
	for _, p := range []Param{
		{"log", 3, 0, inf}, {"log", 1e-8, 0, inf}, {"above", 3, 2.5, inf}, {"above", -3, -7, inf},
		{"below", 3, -inf, 4}, {"below", -3e5, -inf, 4},
		{"unit", 0.5, 0, 1}, {"unit", 1 - 1e-9, 0, 1}, {"unit", 1e-9, 0, 1}, {"range", 3, 2, 7},
		{"range", -0.2, -1, 1}, {"range", 0.999, -1, 1}, {"free", -3, -inf, inf},
		{"sane", 3, 0, 1e9},
	} {
		theta := p.theta(p.Value)
		if v := p.value(theta); !(math.Abs(v-p.Value) <= 1e-14*math.Abs(p.Value)) {
			t.Errorf("%+v: %v is θ = %v, which is %v", p, p.Value, theta, v)
		}
		const h = 1e-5
		diff := (p.value(theta+h) - p.value(theta-h)) / (2 * h)
		moved := p.value(theta + 0.3)
		if v := p.moved(0.3); !(math.Abs(v-moved) <= 1e-14*math.Abs(moved)) {
			t.Errorf("%+v: moved to %v, want %v", p, v, moved)
		}
		slope := p.slope()
		if p.Min >= 0 {
			slope *= p.Value
		}
		if !(math.Abs(slope-diff) <= 1e-8*slope+1e-10*math.Abs(p.Value)) {
			t.Errorf("%+v: the value has the derivative %v in θ, by differences %v", p, slope, diff)
		}
		last := -inf
		for theta := -800.0; theta <= 800; theta += 0.5 {
			v := p.value(theta)
			if !(v >= p.Min && v <= p.Max && v >= last) {
				t.Fatalf("%+v: θ = %v is %v, after %v", p, theta, v, last)
			}
			last = v
		}
		if lower, upper := p.ends(); lower && p.theta(p.Min) != -inf ||
			upper && p.theta(p.Max) != inf || lower && !math.IsNaN(p.theta(p.Min-1)) ||
			upper && !math.IsNaN(p.theta(p.Max+1)) {
			t.Errorf("%+v: θ of the ends is %v and %v", p, p.theta(p.Min), p.theta(p.Max))
		}
		if p.Name == "log" && (theta != math.Log(p.Value) || p.value(theta) != math.Exp(theta) ||
			p.moved(0.3) != p.Value*math.Exp(0.3) || p.slope() != 1) {
			t.Errorf("%+v: θ is not the logarithm", p)
		}
	}
}

func TestCheckParams(t *testing.T) {
	t.Parallel()
	inf, nan := math.Inf(1), math.NaN()
	good := []Param{{"Scale", 1e-300, 0, inf}, {"[1].Linear.Scale", 3, 0, inf},
		{"Cuts[0]", -2, -inf, inf}, {"Prob", 0.5, 0, 1}}
	if err := checkParams("Sum", good); err != nil {
		t.Errorf("valid parameters: %v", err)
	}
	err := checkParams("Sum", []Param{
		{"Scale", 0, 0, inf}, good[0], {"[1].Linear.Scale", nan, 0, inf},
		{"Cuts[0]", inf, -inf, inf}, {"Prob", 1, 0, 1}, {"Prob", -0.5, 0, 1},
	})
	want := "pgsvi: Sum.Scale is 0; it must be a positive number: parameter out of range\n" +
		"pgsvi: Sum[1].Linear.Scale is NaN; it must be a positive number: parameter out of range\n" +
		"pgsvi: Sum.Cuts[0] is +Inf; it must be a finite number: parameter out of range\n" +
		"pgsvi: Sum.Prob is 1; it must be a number between 0 and 1: parameter out of range\n" +
		"pgsvi: Sum.Prob is -0.5; it must be a number between 0 and 1: parameter out of range"
	if !errors.Is(err, ErrParam) || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// TestGramGradMul compares the U of gramGradMul with Grad for each pair, for every kernel and more
// rows than a tile holds.
func TestGramGradMul(t *testing.T) {
	t.Parallel()
	for _, d := range few([]int{6, 1}, 1) {
		n := shorter(140, 70)
		x := kernelPoints(90, n, d, 1)
		copy(x.RawRowView(3), x.RawRowView(1))
		rng := testRand(91)
		a := make([]float64, n)
		for i := range a {
			a[i] = rng.NormFloat64()
		}
		cases := kernelCases(d)
		cases = append(cases,
			kernelCase{name: "differences",
				k: diffKernel{Sum{SquaredExp{Length: 2}, White{Scale: 0.3}}}})
		for _, c := range cases {
			np := len(c.k.Params())
			if got := len(kernelRoles(c.k)); got != np {
				t.Errorf("%s: %d roles of %d parameters", c.name, got, np)
			}
			got := (&gram.Pairs{X: x}).SlopesMul(nil, nil, kernelView{c.k}, a)
			g := make([]float64, np)
			for i := range n {
				want, size := make([]float64, np), make([]float64, np)
				for j := range n {
					if i == j {
						kernelGradSelf(c.k, g, x.RawRowView(i), x.RawRowView(i))
					} else {
						c.k.Grad(g, x.RawRowView(i), x.RawRowView(j))
					}
					for p, v := range g {
						want[p] += v * a[j]
						size[p] += math.Abs(v * a[j])
					}
				}
				for p, w := range want {
					if !(math.Abs(got[i*np+p]-w) <= 1e-10*(1+size[p])) {
						t.Fatalf("%s, D=%d, row %d, parameter %d: %v, want %v", c.name, d, i, p,
							got[i*np+p], w)
					}
				}
			}
		}
	}
}

// underived is a kernel whose Grad has no derivatives, and wrongly is a kernel with wrong
// derivatives.
type (
	underived struct{ SquaredExp }
	wrongly   struct{ SquaredExp }
)

func (k underived) WithParams(v []float64) Kernel {
	return underived{k.SquaredExp.WithParams(v).(SquaredExp)}
}

func (k underived) Grad(dst, x, y []float64) float64 {
	for i := range dst {
		dst[i] = math.NaN()
	}
	return k.Cov(x, y)
}

func (k wrongly) WithParams(v []float64) Kernel {
	return wrongly{k.SquaredExp.WithParams(v).(SquaredExp)}
}

func (k wrongly) Grad(dst, x, y []float64) float64 {
	v := k.SquaredExp.Grad(dst, x, y)
	dst[1] *= -1
	return v
}

func TestDerivable(t *testing.T) {
	t.Parallel()
	x := kernelPoints(92, 20, 2, 1)
	for _, c := range kernelCases(2) {
		if k, names, err := derivable(c.k, x); err != nil || len(names) > 0 || k == nil {
			t.Errorf("%s: %v, %q", c.name, err, names)
		}
	}
	for _, k := range []Kernel{underived{}, Sum{White{}, underived{}},
		Product{Constant{}, &Sum{underived{}}}} {
		d, names, err := derivable(k, x)
		if err != nil || len(names) != 1 || !strings.HasSuffix(names[0], "underived") {
			t.Errorf("%T: %q, %v", k, names, err)
			continue
		}
		plain := map[bool]Kernel{true: SquaredExp{}}[len(k.Params()) == 2]
		if plain == nil {
			plain = Sum{White{}, SquaredExp{}}
			if _, ok := k.(Product); ok {
				plain = Product{Constant{}, Sum{SquaredExp{}}}
			}
		}
		w := mat.NewSymDense(20, nil)
		for i := range 20 {
			for j := i; j < 20; j++ {
				w.SetSym(i, j, math.Sin(float64(i*j)))
			}
		}
		got, want := GramGrad(nil, d, x, w), GramGrad(nil, plain, x, w)
		for p := range want {
			if math.Abs(got[p]-want[p]) > 1e-9*(1+math.Abs(want[p])) {
				t.Errorf("%T: parameter %d: %v, want %v", k, p, got[p], want[p])
			}
		}
	}
	_, _, err := derivable(Sum{White{}, wrongly{}}, x)
	if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "wrongly: Grad returns") ||
		!prefixedOnce(err) {
		t.Error(err)
	}
}

// TestDifferencesNearEnd checks that differences stay within the range of a parameter near its
// ends.
func TestDifferencesNearEnd(t *testing.T) {
	t.Parallel()
	x, y := []float64{0.1, 0.4}, []float64{0.5, -0.3}
	for _, k := range []ranged{
		{SquaredExp{Scale: 1.7 - 1e-4, Length: 0.3 + 1e-4}, [2]float64{0.5, 1.7},
			[2]float64{0.3, math.Inf(1)}, true},
		{SquaredExp{Scale: 1.7 - 1e-4, Length: 0.9 - 1e-4}, [2]float64{-1, 1.7},
			[2]float64{math.Inf(-1), 0.9}, true},
	} {
		got, want := make([]float64, 2), make([]float64, 2)
		k.Grad(want, x, y)
		diffKernel{k}.Grad(got, x, y)
		for p := range want {
			if !(math.Abs(got[p]-want[p]) <= 1e-7*math.Abs(want[p])) {
				t.Errorf("%+v: derivative in parameter %d is %v by differences, want %v", k, p,
					got[p], want[p])
			}
		}
	}
}

// TestRowPairs checks that covariances, their derivatives and the products of these do not change
// if the distances of the rows are kept. It tests every kernel with length scales far below and
// above the distances, and rows that are equal, nearly equal, or far from the origin.
func TestRowPairs(t *testing.T) {
	t.Parallel()
	n := 70
	for _, d := range []int{6, 1, 40}[:shorter(3, 1)] {
		x := kernelPoints(90, n, d, 1)
		copy(x.RawRowView(3), x.RawRowView(1))
		copy(x.RawRowView(69), x.RawRowView(1))
		x.Set(69, 0, x.At(69, 0)+1e-7)
		for i := range n {
			x.Set(i, 0, x.At(i, 0)+1e3*float64(i%2))
		}
		rng := testRand(92)
		s := &gram.Weights{N: n, W: make([]float64, n*n), A: make([]float64, n)}
		w := mat.NewSymDense(n, nil)
		for i := range n {
			s.A[i] = rng.NormFloat64()
			for j := range i + 1 {
				s.W[i*n+j] = rng.NormFloat64()
				w.SetSym(i, j, 0.5*(s.W[i*n+j]-s.A[i]*s.A[j]))
			}
		}
		pairs, plain := gram.NewPairs(x), &gram.Pairs{X: x}
		cases := kernelCases(d)
		for _, l := range []float64{1e-8, 1e-2, 30, 1e5} {
			cases = append(cases, kernelCase{name: "short or long", k: SquaredExp{Length: l}},
				kernelCase{name: "rough", k: Matern12{Length: l}})
		}
		for _, c := range cases {
			want, got := Gram(nil, c.k, x), make([]float64, n*n)
			pairs.Gram(nil, got, kernelView{c.k})
			for i, v := range got {
				if k := want.At(i/n, i%n); math.Abs(v-k) > 1e-11*math.Sqrt(
					want.At(i/n, i/n)*want.At(i%n, i%n)) {
					t.Fatalf("%s, D=%d: covariance %d, %d is %v, want %v", c.name, d, i/n, i%n, v,
						k)
				}
			}
			np, size := numParams(c.k), 1.0
			grad, all := GramGrad(nil, c.k, x, w), pairs.Slopes(nil, kernelView{c.k}, s)
			u, kept := plain.SlopesMul(nil, nil, kernelView{c.k}, s.A),
				pairs.SlopesMul(nil, nil, kernelView{c.k}, s.A)
			for _, v := range u {
				size = max(size, math.Abs(v))
			}
			for p := range np {
				if math.Abs(grad[p]-all[p]) > 1e-9*(size*float64(n)+math.Abs(grad[p])) {
					t.Errorf("%s, D=%d: derivative %d is %v, want %v", c.name, d, p, all[p],
						grad[p])
				}
			}
			for i, v := range kept {
				if math.Abs(v-u[i]) > 1e-9*size {
					t.Fatalf("%s, D=%d: product %d of parameter %d is %v, want %v", c.name, d, i/np,
						i%np, v, u[i])
				}
			}
		}
	}
}

// TestSaveKernels checks that loaded posteriors of GPs have the same predictions, for every
// registered kernel.
func TestSaveKernels(t *testing.T) {
	Register("test.savedLinear", savedLinear{})
	rng := testRand(41)
	x := mat.NewDense(8, 2, normals(rng, 16))
	kernels := append(kernelCases(2), kernelCase{name: "registered",
		k: Sum{Linear{Scale: 0.3}, Constant{}, Product{SquaredExp{}, savedLinear{0.5}},
			White{Scale: 0.1}}})
	for _, c := range kernels {
		if strings.Contains(c.name, "user") || strings.HasPrefix(c.name, "Matern72") ||
			c.name == "hump" || c.name == "pointer" {
			continue // it, or a part of it, is not registered
		}
		k := c.k.WithParams(awkward(c.k.Params()))
		saveGPs(t, c.name, k, StudentT{DF: math.Pi}, x,
			[]float64{0.1, -1.0 / 3, 0.7, 2, -1, 0, 1e-3, 0.2})
	}
}
