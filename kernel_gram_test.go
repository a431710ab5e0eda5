package pgsvi

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pgsvi/pgsvi/internal/gram"
	"github.com/pgsvi/pgsvi/internal/special"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// TestGram compares Gram and CrossCov with Cov for each pair of rows, and checks properties of
// Gram.
func TestGram(t *testing.T) {
	t.Parallel()
	for name, x := range kernelData() {
		n, d := x.Dims()
		if n > 140 && !testkit.IsLong() || n*d > 5000 && testing.Short() {
			continue
		}
		for _, c := range kernelCases(d) {
			k := Gram(nil, c.k, x)
			kx := CrossCov(nil, c.k, x, x)
			v := PriorVar(nil, c.k, x)
			step := longer(1, shorter(7, 19))
			for i := range n {
				for j := i % step; j < n; j += step {
					a, b := x.RawRowView(i), x.RawRowView(j)
					want := c.k.Cov(a, b)
					if !kernelClose(kx.At(i, j), want, 1e-12, 0) {
						t.Fatalf("%s, %s: CrossCov[%d,%d] = %v, Cov %v, off by %.2g", name, c.name,
							i, j, kx.At(i, j), want, kx.At(i, j)/want-1)
					}
					if i == j {
						if v[i] != want {
							t.Fatalf("%s, %s: PriorVar[%d] = %v, Cov %v", name, c.name, i, v[i],
								want)
						}
						if n, ok := c.k.(gram.Noisy); ok {
							want = n.SelfCov(a)
						}
						if !kernelClose(k.At(i, i), want, 1e-14, 0) {
							t.Fatalf("%s, %s: diagonal %d of Gram is %v, want %v", name, c.name, i,
								k.At(i, i), want)
						}
						continue
					}
					if k.At(i, j) != kx.At(i, j) {
						t.Fatalf("%s, %s: Gram[%d,%d] = %v, CrossCov %v", name, c.name, i, j,
							k.At(i, j), kx.At(i, j))
					}
					if slices.Equal(a, b) && kx.At(i, j) != kx.At(i, i) {
						t.Fatalf("%s, %s: equal rows %d, %d: %v, diagonal %v", name, c.name, i, j,
							kx.At(i, j), kx.At(i, i))
					}
				}
			}
		}
	}
}

// counted is a custom Profile that counts the calls of Values and Slopes.
type counted struct{ calls *atomic.Int64 }

func (c counted) Values(r2 []float64) {
	c.calls.Add(1)
	matern72{}.Values(r2)
}

func (c counted) Slopes(dst, r2, rho []float64) {
	c.calls.Add(1)
	matern72{}.Slopes(dst, r2, rho)
}

// TestIsoTiles checks that a custom Profile is called a few times per tile and not for each pair,
// alone and in a Sum.
func TestIsoTiles(t *testing.T) {
	var calls atomic.Int64
	k := Iso[counted]{Length: 2, Profile: counted{&calls}}
	x := kernelPoints(90, 280, 6, 1)
	w := Gram(nil, White{}, x)
	tiles := int64((280 + gram.Rows - 1) / gram.Rows * ((280 + gram.Cols - 1) / gram.Cols))
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

// TestGramBits checks that no element depends on the number of processors or on the other rows of
// the call.
func TestGramBits(t *testing.T) {
	n := shorter(150, 130) // more than a tile holds
	x, y := kernelPoints(20, n, 34, 0.8), kernelPoints(21, shorter(300, 140), 34, 0.8)
	copy(y.RawRowView(7), x.RawRowView(3))
	w := Gram(nil, SquaredExp{Length: 3}, x)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, c := range kernelCases(34) {
		runtime.GOMAXPROCS(1)
		k, kxy, g := Gram(nil, c.k, x), CrossCov(nil, c.k, x, y), GramGrad(nil, c.k, x, w)
		for _, procs := range few([]int{5, 2}, 1) {
			runtime.GOMAXPROCS(procs)
			if !mat.Equal(k, Gram(nil, c.k, x)) || !mat.Equal(kxy, CrossCov(nil, c.k, x, y)) ||
				!slices.Equal(g, GramGrad(nil, c.k, x, w)) {
				t.Errorf("%s: another result with GOMAXPROCS=%d", c.name, procs)
			}
		}
		for _, part := range few([][2]int{{5, 7}, {3, 131}, {0, 1}, {1, 4}, {200, 300}}, 2) {
			got := CrossCov(nil, c.k, x, y.Slice(part[0], part[1], 0, 34).(*mat.Dense))
			if !mat.Equal(got, kxy.Slice(0, n, part[0], part[1])) {
				t.Errorf("%s: rows %v alone give another result", c.name, part)
			}
		}
	}
}

// TestFillByDifferences checks that covariances computed by differences equal Cov up to rounding,
// and do not depend on the other columns or rows of their tile.
func TestFillByDifferences(t *testing.T) {
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
		cov := func(at, others []int) *mat.Dense {
			a, b := mat.NewDense(len(at), d, nil), mat.NewDense(len(others), d, nil)
			for r, i := range at {
				a.SetRow(r, x.RawRowView(i))
			}
			for r, i := range others {
				b.SetRow(r, x.RawRowView(i))
			}
			dst := mat.NewDense(len(at), len(others), nil)
			kernelOf(c.k).Fill(dst.RawMatrix().Data, &gram.Tile{X: a.RawMatrix(),
				Y: b.RawMatrix()})
			return dst
		}
		whole := cov(at, others)
		for a, i := range at {
			for _, j := range others {
				if got, want := whole.At(a, j),
					c.k.Cov(x.RawRowView(i), x.RawRowView(j)); !kernelClose(got, want, 1e-13, 0) {
					t.Fatalf("%s: covariance %d, %d is %v, Cov %v", c.name, i, j, got, want)
				}
			}
		}
		for _, part := range [][4]int{{0, 1, 0, 1}, {3, 4, 0, n}, {0, len(at), 67, 68},
			{5, 29, 11, 64}} {
			got := cov(at[part[0]:part[1]], others[part[2]:part[3]])
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
					t.Errorf("%s, N=%d, D=%d, parameter %d: %v, want %v", c.name, n, d, p, got[p],
						want)
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
			t.Errorf("%s: CrossCov %v, PriorVar %v, want %v", c.name, kx.At(1, 1),
				PriorVar(nil, c.k, x)[1], c.prior)
		}
	}
}

func TestCheckKernel(t *testing.T) {
	for _, c := range kernelCases(3) {
		if err := checkKernel(c.k, 3); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		d, ok := c.k.(dimensional)
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
		{SquaredExp{Scale: -1, Length: nan}, 1, ErrParam,
			[]string{"SquaredExp.Scale is -1", "SquaredExp.Length is NaN"}},
		{Matern12{Scale: inf}, 1, ErrParam, []string{"Matern12.Scale is +Inf"}},
		{Matern32{Lengths: []float64{1, -2}}, 2, ErrParam, []string{"Matern32.Length[1] is -2"}},
		{Matern52{Lengths: []float64{1, 2}}, 3, ErrShape,
			[]string{"Matern52 is for 2 columns, but the data have 3"}},
		{Sum{White{}, Product{Matern52{Lengths: []float64{1, 2}},
			Linear{Scales: []float64{1, 2, -3}}}}, 3, ErrShape,
			[]string{"Sum[1].Product[0].Matern52 is for 2 columns",
				"Sum[1].Product[1].Linear.Scale[2] is -3"}},
		{userMatern72{Scale: -1}, 1, ErrParam, []string{"matern72.Scale is -1"}},
		{&Product{&Linear{Scale: -1}}, 1, ErrParam, []string{"Product[0].Linear.Scale is -1"}},
		{Iso[*hump]{Profile: &hump{1}}, 1, ErrParam,
			[]string{"hump.Power is 1; it must be a number between -1 and 1"}},
		{rationalQuadratic(1, -2, -1), 3, ErrParam,
			[]string{"Alpha is -1", "Length is -2"}},
		{Periodic{Period: nan}, 3, ErrParam, []string{"Periodic.Period is NaN"}},
		{Linear{Scales: []float64{1}}, 3, ErrShape,
			[]string{"Linear is for 1 columns, but the data have 3"}},
		{Linear{Scale: nan}, 3, ErrParam, []string{"Linear.Scale"}},
		{Constant{Scale: -1}, 3, ErrParam, []string{"Constant.Scale"}},
		{White{Scale: -1}, 3, ErrParam, []string{"White.Scale"}},
		{Sum{}, 3, ErrParam, []string{"Sum is empty"}},
		{On{}, 3, ErrParam, []string{"On.Kernel is nil"}},
		{Sum{White{}, On{Kernel: White{}, Columns: []int{1, 3}}}, 3, ErrParam,
			[]string{"Sum[1].On.Columns are [1 3]", "from 0 to 2"}},
		{On{Kernel: White{}, Columns: []int{1, 1}}, 3, ErrParam, []string{"distinct"}},
		{On{Kernel: White{}, Columns: []int{}}, 3, ErrParam, []string{"On.Columns are []"}},
		{On{Kernel: Linear{Scales: make([]float64, 3)}, Columns: []int{1}}, 3, ErrShape,
			[]string{"On.Linear is for 3 columns, but the data have 1"}},
		{On{Kernel: &White{Scale: -1}, Columns: []int{1}}, 3, ErrParam,
			[]string{"On.White.Scale is -1"}},
		{Product{}, 3, ErrParam, []string{"Product is empty"}},
		{Sum{SquaredExp{Scale: -1}, nil, Product{White{Scale: nan}}}, 3, ErrParam,
			[]string{"Sum[0].SquaredExp.Scale is -1", "Sum[1] is nil",
				"Sum[2].Product[0].White.Scale is NaN"}},
	} {
		err := checkKernel(c.k, c.d)
		if !errors.Is(err, c.want) {
			t.Errorf("%#v: error %v, want one that is %v", c.k, err, c.want)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%#v: error %q does not contain %q", c.k, err, s)
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
		"Cov": func() { SquaredExp{}.Cov([]float64{1}, []float64{1, 2}) },
		"Cov Lengths": func() {
			SquaredExp{Lengths: []float64{1}}.Cov([]float64{1, 2},
				[]float64{1, 2})
		},
		"Gram Lengths":     func() { Gram(nil, Sum{Matern32{Lengths: []float64{1}}}, x) },
		"Gram dst":         func() { Gram(mat.NewSymDense(3, nil), SquaredExp{}, x) },
		"Gram empty":       func() { Gram(nil, SquaredExp{}, new(mat.Dense)) },
		"CrossCov columns": func() { CrossCov(nil, SquaredExp{}, x, wrong) },
		"CrossCov linear":  func() { CrossCov(nil, Linear{}, x, wrong) },
		"CrossCov dst":     func() { CrossCov(mat.NewDense(4, 3, nil), SquaredExp{}, x, x) },
		"PriorVar dst":     func() { PriorVar(make([]float64, 3), SquaredExp{}, x) },
		"GramGrad w":       func() { GramGrad(nil, SquaredExp{}, x, mat.NewSymDense(3, nil)) },
		"GramGrad dst": func() {
			GramGrad(make([]float64, 3), SquaredExp{}, x,
				mat.NewSymDense(4, nil))
		},
		"WithParams":     func() { Periodic{}.WithParams(make([]float64, 2)) },
		"WithParams Sum": func() { Sum{White{}}.WithParams(make([]float64, 2)) },
		"Grad": func() {
			Linear{}.Grad(make([]float64, 2), []float64{1},
				[]float64{1})
		},
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
		if n := testing.AllocsPerRun(shorter(10, 4), func() {
			Gram(k, c.k, x)
			CrossCov(kxy, c.k, x, y)
			PriorVar(v, c.k, x)
		}); n > 2 { // one per call, for the view of the kernel in tiles
			t.Errorf("%s: %v allocations", c.name, n)
		}
		if c.name == "user/embedding" {
			continue // its Params allocates a list each time
		}
		most := 1.0
		if strings.HasPrefix(c.name, "On") {
			most = 5 // a tile in a tile, and the pool may return either memory
		}
		if n := testing.AllocsPerRun(shorter(10, 4),
			func() { GramGrad(g, c.k, x, w) }); n > most {
			t.Errorf("%s: %v allocations in GramGrad", c.name, n)
		}
	}
}

// TestKernelExp compares the exponential with math.Exp, which has larger errors, at many points,
// and with math/big at some.
func TestKernelExp(t *testing.T) {
	rng := rand.New(rand.NewPCG(70, 1))
	n := 200_000
	v := make([]float64, n)
	for i := range v {
		v[i] = -math.Exp(rng.Float64()*50 - 43)
	}
	copy(v, []float64{0, math.Copysign(0, -1), -1e-300, -0x1p-53, -699.9999, -700, -708.5, -745,
		-746, math.Inf(-1)})
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

// TestPolyExp compares PolyExp with its formula, for polynomials of every length.
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
