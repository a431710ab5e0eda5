package objective

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distmv"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

var allCoordinates = []Coordinates{MeanParams, MeanCov, Natural, Cholesky, LogCholesky}

func randomGaussian(rng *rand.Rand, d int, c Coordinates) *Gaussian {
	return testkit.Must(NewGaussian(testkit.Normals(rng, d), testkit.RandomCov(rng, d))).In(c)
}

func randomMeanField(rng *rand.Rand, d int, c Coordinates) *Gaussian {
	v := testkit.Normals(rng, d)
	for i := range v {
		v[i] = math.Exp(0.5 * v[i])
	}
	return testkit.Must(NewMeanField(testkit.Normals(rng, d), v)).In(c)
}

// testFamily draws members of a family in one of its coordinates.
type testFamily struct {
	name string
	dim  int
	rand func(*rand.Rand) *Gaussian
}

func testFamilies() []testFamily {
	var fs []testFamily
	for _, c := range allCoordinates {
		for _, d := range []int{1, 3} {
			fs = append(fs,
				testFamily{fmt.Sprintf("Gaussian %d, %v", d, c), d,
					func(r *rand.Rand) *Gaussian { return randomGaussian(r, d, c) }},
				testFamily{fmt.Sprintf("MeanField %d, %v", d, c), d,
					func(r *rand.Rand) *Gaussian { return randomMeanField(r, d, c) }})
		}
	}
	return fs
}

// paramGrad returns the gradient in λ of a function of q.
func paramGrad(q Dist, f func(Dist) float64) []float64 {
	p := q.Clone()
	return testkit.NumGrad(func(x []float64) float64 {
		if err := p.SetParams(x); err != nil {
			return math.NaN()
		}
		return f(p)
	}, q.Params(nil))
}

// meanAt returns element i of the mean.
func meanAt(q *Gaussian, i int) float64 { return q.Mean(nil)[i] }

// covAt returns element (i, j) of the covariance.
func covAt(q *Gaussian, i, j int) float64 { return q.Cov().At(i, j) }

// marginal returns the mean and variance of aᵀz.
func marginal(q *Gaussian, a []float64) (m, v float64) {
	x := mat.NewVecDense(len(a), a)
	return floats.Dot(a, q.Mean(nil)), mat.Inner(x, q.Cov(), x)
}

// isDiagonal reports whether q stores a diagonal covariance. In one dimension, all covariances
// count as full.
func isDiagonal(q *Gaussian) bool { return q.Dim() > 1 && q.NumParams() == 2*q.Dim() }

// precision returns V⁻¹, computed from the natural parameters.
func precision(q *Gaussian) *mat.SymDense {
	d, eta := q.Dim(), q.Natural(nil)
	p := mat.NewSymDense(d, nil)
	for i, at := 0, d; i < d; i++ {
		if isDiagonal(q) {
			p.SetSym(i, i, -2*eta[d+i])
			continue
		}
		for j := range i {
			p.SetSym(i, j, -eta[at+j])
		}
		p.SetSym(i, i, -2*eta[at+i])
		at += i + 1
	}
	return p
}

// fromMoments returns the gradient in λ of a function with gradient gm in m and gradient gv in
// the variances.
func fromMoments(q *Gaussian, gm, gv []float64) []float64 {
	g, m := slices.Concat(gm, gv), q.Mean(nil)
	for i := range m {
		g[i] -= 2 * m[i] * gv[i]
	}
	return q.FromMeanGrad(nil, g)
}

func momentsOf(q *Gaussian) []float64 {
	var x []float64
	for i := range q.Dim() {
		x = append(x, meanAt(q, i))
		for j := range q.Dim() {
			x = append(x, covAt(q, i, j))
		}
	}
	return x
}

// toDense returns q with a full covariance, in the same coordinates.
func toDense(q *Gaussian) *Gaussian {
	d := q.Dim()
	v := mat.NewSymDense(d, nil)
	m := make([]float64, d)
	for i := range d {
		m[i] = meanAt(q, i)
		for j := range d {
			v.SetSym(i, j, covAt(q, i, j))
		}
	}
	return testkit.Must(NewGaussian(m, v)).In(q.Coordinates())
}

func oracleNormal(q *Gaussian) *distmv.Normal {
	g := toDense(q)
	n, ok := distmv.NewNormal(g.Mean(nil), g.Cov(), nil)
	if !ok {
		panic("not positive definite")
	}
	return n
}

// TestParamsRoundTrip checks that all coordinates lead back to the same distribution.
func TestParamsRoundTrip(t *testing.T) {
	rng := testkit.Rand(1)
	for _, f := range testFamilies() {
		t.Run(f.name, func(t *testing.T) {
			q := f.rand(rng)
			ways := map[string]func(dst, src *Gaussian) error{
				"Params": func(dst, src *Gaussian) error { return dst.SetParams(src.Params(nil)) },
				"Natural": func(dst,
					src *Gaussian) error {
					return dst.SetNatural(src.Natural(nil))
				},
				"Mean": func(dst,
					src *Gaussian) error {
					return dst.SetMeanParams(src.MeanParams(nil))
				},
				"Chart": func(dst, src *Gaussian) error { return dst.SetChart(src.Chart(nil)) },
			}
			for name, way := range ways {
				p := f.rand(rng)
				if err := way(p, q); err != nil {
					t.Fatal(name, err)
				}
				testkit.CheckClose(t, name, momentsOf(p), momentsOf(q), 1e-13)
				if p.Coordinates() != q.Coordinates() {
					t.Errorf("%s changed the coordinates to %v", name, p.Coordinates())
				}
				z := testkit.Normals(rng, f.dim)
				testkit.CheckNear(t, name+": LogProb", p.LogProb(z), q.LogProb(z), 1e-13)
				testkit.CheckNear(t, name+": LogPartition", p.LogPartition(), q.LogPartition(),
					1e-13)
				testkit.CheckNear(t, name+": KL", p.KL(q), 0, 1e-13)
			}
			// The parameters must have the documented meaning.
			g, m, v := toDense(q), toDense(q).Mean(nil), toDense(q).Cov()
			var prec mat.Dense
			if err := prec.Inverse(v); err != nil {
				t.Fatal(err)
			}
			i := f.dim - 1
			want := map[Coordinates][2]float64{
				MeanCov:    {m[i], v.At(i, i)},
				MeanParams: {m[i], v.At(i, i) + m[i]*m[i]},
				Natural: {mat.Dot(prec.RowView(i), mat.NewVecDense(f.dim, m)),
					-0.5 * prec.At(i, i)},
				// The last pivot of V is the inverse of the last element of V⁻¹.
				Cholesky:    {m[i], math.Sqrt(1 / prec.At(i, i))},
				LogCholesky: {m[i], -0.5 * math.Log(prec.At(i, i))},
			}[q.Coordinates()]
			l := q.Params(nil)
			testkit.CheckClose(t, "λ", []float64{l[i], l[len(l)-1]}, want[:], 1e-13)
			testkit.CheckClose(t, "Precision", mat.DenseCopyOf(precision(g)).RawMatrix().Data,
				prec.RawMatrix().Data, 1e-12)
		})
	}
}

// TestInAndClone checks that In changes only the coordinates, and that copies share no memory.
func TestInAndClone(t *testing.T) {
	rng := testkit.Rand(2)
	for _, f := range testFamilies() {
		q := f.rand(rng)
		before := momentsOf(q)
		for _, c := range allCoordinates {
			p := q.In(c)
			if p.Coordinates() != c || !slices.Equal(momentsOf(p), before) {
				t.Errorf("%s: In(%v) is %v with moments %v, want %v", f.name, c, p.Coordinates(),
					momentsOf(p), before)
			}
			if err := p.SetMeanParams(f.rand(rng).MeanParams(nil)); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.Clone().SetParams(f.rand(rng).Params(nil)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(momentsOf(q), before) {
			t.Errorf("%s: a change of a copy changed the original", f.name)
		}
	}
	if s := Coordinates(7).String(); s != "invalid coordinates" {
		t.Errorf("Coordinates(7) is %q", s)
	}
	for name, f := range map[string]func(){
		"Gaussian.In":       func() { NewIsotropic(1, 1).In(5) },
		"MeanField.In":      func() { NewIsotropicMeanField(1, 1).In(-1) },
		"dim 0":             func() { NewIsotropic(0, 1) },
		"variance 0":        func() { NewIsotropic(1, 0) },
		"variance NaN":      func() { NewIsotropicMeanField(1, math.NaN()) },
		"variance +Inf":     func() { NewIsotropicMeanField(1, math.Inf(1)) },
		"1/variance = +Inf": func() { NewIsotropicMeanField(1, 1e-310) },
		"Params(dst)":       func() { NewIsotropic(2, 1).Params(make([]float64, 4)) },
		"SetParams":         func() { _ = NewIsotropic(2, 1).SetParams(make([]float64, 4)) },
		"SetChart": func() {
			_ = NewIsotropicMeanField(2,
				1).SetChart(make([]float64, 5))
		},
		"LogProb":          func() { NewIsotropic(2, 1).LogProb(make([]float64, 1)) },
		"KL of dimensions": func() { NewIsotropic(2, 1).KL(NewIsotropic(1, 1)) },
		"KLTo(nil)":        func() { KLTo(nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			f()
		}()
	}
}

func TestDistConstructors(t *testing.T) {
	sym := func(d int, v ...float64) mat.Symmetric { return mat.NewSymDense(d, v) }
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		name string
		make func() (Dist, error)
		want error
	}{
		{"Gaussian without covariance", func() (Dist, error) { return NewGaussian(nil, nil) },
			ErrEmpty},
		{"Gaussian of no dimensions",
			func() (Dist, error) { return NewGaussian(nil, &mat.SymDense{}) }, ErrEmpty},
		{"Gaussian of two shapes", func() (Dist, error) {
			return NewGaussian([]float64{1}, sym(2, 1, 0, 0, 1))
		}, ErrShape},
		{"Gaussian with NaN mean",
			func() (Dist, error) { return NewGaussian([]float64{nan}, sym(1, 1)) }, ErrNotFinite},
		{"Gaussian with +Inf variance",
			func() (Dist, error) { return NewGaussian(nil, sym(1, inf)) }, ErrNotFinite},
		{"Gaussian, indefinite",
			func() (Dist, error) { return NewGaussian(nil, sym(2, 1, 2, 2, 1)) }, ErrNotPosDef},
		{"Gaussian, singular", func() (Dist, error) { return NewGaussian(nil, sym(2, 1, 1, 1, 1)) },
			ErrNotPosDef},
		{"MeanField without variances", func() (Dist, error) { return NewMeanField(nil, nil) },
			ErrEmpty},
		{"MeanField of two shapes",
			func() (Dist, error) { return NewMeanField([]float64{1}, []float64{1, 1}) }, ErrShape},
		{"MeanField with NaN", func() (Dist, error) { return NewMeanField(nil, []float64{nan}) },
			ErrNotFinite},
		{"MeanField with +Inf mean", func() (Dist, error) {
			return NewMeanField([]float64{inf}, []float64{1})
		}, ErrNotFinite},
		{"MeanField with variance 0",
			func() (Dist, error) { return NewMeanField(nil, []float64{0}) }, ErrNotPosDef},
		{"MeanField with variance -1",
			func() (Dist, error) { return NewMeanField(nil, []float64{1, -1}) }, ErrNotPosDef},
	} {
		if _, err := c.make(); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
	}
	// The constructor must copy its arguments.
	m, v := []float64{1, 2}, []float64{3, 4}
	q := testkit.Must(NewMeanField(m, v))
	s := mat.NewSymDense(2, []float64{3, 1, 1, 4})
	g := testkit.Must(NewGaussian(m, s))
	m[0], v[0] = 9, 9
	s.SetSym(0, 0, 9)
	if meanAt(q, 0) != 1 || covAt(q, 0, 0) != 3 || meanAt(g, 0) != 1 ||
		covAt(g, 0, 0) != 3 {
		t.Error("a constructor kept its arguments")
	}
}

// TestInvalidParamsChangeNothing checks that an invalid λ returns an error with the right
// sentinel and changes nothing.
func TestInvalidParamsChangeNothing(t *testing.T) {
	rng := testkit.Rand(3)
	type set struct {
		name string
		f    func([]float64) error
		p    []float64
		bad  float64 // invalid value of the last element
	}
	for _, f := range testFamilies() {
		q := f.rand(rng)
		before := momentsOf(q)
		sets := []set{
			{"SetMean", q.SetMeanParams, q.MeanParams(nil), -1},
			{"SetNatural", q.SetNatural, q.Natural(nil), 1},
			{"SetParams", q.SetParams, q.Params(nil),
				map[Coordinates]float64{MeanParams: -1, MeanCov: -1, Natural: 1, Cholesky: -1,
					LogCholesky: -800}[q.Coordinates()]},
		}
		check := func(what string, err, want error) {
			t.Helper()
			if !errors.Is(err, want) {
				t.Errorf("%s, %s: error %v, want %v", f.name, what, err, want)
			}
			if !slices.Equal(momentsOf(q), before) {
				t.Fatalf("%s, %s changed q", f.name, what)
			}
		}
		for _, s := range sets {
			last := len(s.p) - 1
			p := slices.Clone(s.p)
			p[last] = s.bad
			refused := ErrNotPosDef
			if s.name == "SetParams" && q.Coordinates() == LogCholesky {
				refused = ErrNotFinite // every λ is positive definite until it underflows
			}
			check(s.name+" not positive definite", s.f(p), refused)
			p[last] = math.NaN()
			check(s.name+" NaN", s.f(p), ErrNotFinite)
			p = slices.Clone(s.p)
			p[0] = math.Inf(1)
			check(s.name+" +Inf", s.f(p), ErrNotFinite)
		}
		x := q.Chart(nil)
		for _, v := range []float64{800, -800, -370, math.NaN()} {
			x[len(x)-1] = v
			check(fmt.Sprintf("SetChart with log scale %v", v), q.SetChart(x), ErrNotFinite)
		}
	}
	p := NewPoint([]float64{1, 2})
	if err := p.SetParams([]float64{3, math.NaN()}); !errors.Is(err, ErrNotFinite) ||
		p.Params(nil)[0] != 1 {
		t.Errorf("Point: error %v, now at %v", err, p.Params(nil))
	}
}

// TestDensity compares log q and KL(q‖p) with gonum, and checks q(z) = exp(ηᵀT(z) − A(η)).
func TestDensity(t *testing.T) {
	rng := testkit.Rand(4)
	for _, f := range testFamilies() {
		q, p := f.rand(rng), f.rand(rng)
		nq, np := oracleNormal(q), oracleNormal(p)
		z := testkit.Normals(rng, f.dim)
		testkit.CheckNear(t, f.name+": LogProb", q.LogProb(z), nq.LogProb(z), 1e-12)
		testkit.CheckNear(t, f.name+": KL", q.KL(p), distmv.KullbackLeibler{}.DistNormal(nq, np),
			1e-12)
		stat := make([]float64, 0, q.NumParams()) // T(z), the mean parameters of a point mass
		stat = append(stat, z...)
		for i := range z {
			if isDiagonal(q) {
				stat = append(stat, z[i]*z[i])
				continue
			}
			for j := range i + 1 {
				stat = append(stat, z[i]*z[j])
			}
		}
		testkit.CheckNear(t, f.name+": ηᵀT − A", floats.Dot(q.Natural(nil), stat)-q.LogPartition(),
			q.LogProb(z), 1e-12)
	}
}

// TestLogPartitionAndScore checks that ∇A(η) = μ and that ∇_λ log q is the score.
func TestLogPartitionAndScore(t *testing.T) {
	rng := testkit.Rand(5)
	for _, f := range testFamilies() {
		q := f.rand(rng)
		p := q.Clone().(*Gaussian)
		g := testkit.NumGrad(func(eta []float64) float64 {
			if err := p.SetNatural(eta); err != nil {
				return math.NaN()
			}
			return p.LogPartition()
		}, q.Natural(nil))
		testkit.CheckClose(t, f.name+": ∇A", g, q.MeanParams(nil), 1e-9)
		z := testkit.Normals(rng, f.dim)
		testkit.CheckClose(t, f.name+": Score", q.Score(nil, z),
			paramGrad(q, func(p Dist) float64 { return p.LogProb(z) }), 1e-9)
	}
}

// TestGradientCoordinates checks the chain rules between λ, η, μ and the chart against
// differences of a function.
func TestGradientCoordinates(t *testing.T) {
	rng := testkit.Rand(6)
	for _, f := range testFamilies() {
		q := f.rand(rng)
		a := testkit.Normals(rng, f.dim)
		value := func(q *Gaussian) float64 { // any function that is smooth in m and V
			m, v := marginal(q, a)
			return math.Sin(m) + 0.3*m*v + 0.1*v*v + q.LogProb(a)
		}
		p := q.Clone().(*Gaussian)
		in := func(set func([]float64) error, at []float64) []float64 {
			return testkit.NumGrad(func(x []float64) float64 {
				if err := set(x); err != nil {
					return math.NaN()
				}
				return value(p)
			}, at)
		}
		lambda, mean := in(p.SetParams, q.Params(nil)), in(p.SetMeanParams, q.MeanParams(nil))
		natural, chart := in(p.SetNatural, q.Natural(nil)), in(p.SetChart, q.Chart(nil))
		for _, c := range []struct {
			name    string
			f       func(dst, g []float64) []float64
			g, want []float64
		}{
			{"MeanGrad", q.MeanGrad, lambda, mean},
			{"FromMeanGrad", q.FromMeanGrad, mean, lambda},
			{"FromNaturalGrad", q.FromNaturalGrad, natural, lambda},
			{"ChartGrad", q.ChartGrad, lambda, chart},
		} {
			got := c.f(nil, c.g)
			testkit.CheckClose(t, f.name+": "+c.name, got, c.want, 2e-8)
			same := slices.Clone(c.g)
			if c.f(same, same); !slices.Equal(same, got) {
				t.Errorf("%s: %s in place differs", f.name, c.name)
			}
		}
		// The inverses must be exact, and not only as accurate as differences.
		g := testkit.Normals(rng, q.NumParams())
		testkit.CheckClose(t, f.name+": FromMeanGrad∘MeanGrad",
			q.FromMeanGrad(nil, q.MeanGrad(nil, g)), g,
			1e-12)
	}
}

// TestKLMixed checks that the KL between full and diagonal members equals the KL of their full
// forms, and that the divergence of q from itself is zero.
func TestKLMixed(t *testing.T) {
	rng := testkit.Rand(7)
	for _, d := range []int{1, 3} {
		g, p := randomGaussian(rng, d, MeanCov), randomMeanField(rng, d, Natural)
		testkit.CheckNear(t, "KL(full‖diagonal)", g.KL(p), g.KL(toDense(p)), 1e-13)
		testkit.CheckNear(t, "KL(diagonal‖full)", p.KL(g), toDense(p).KL(g), 1e-13)
		testkit.CheckNear(t, "KL(q‖q), full", g.KL(g), 0, 1e-14)
		testkit.CheckNear(t, "KL(q‖q), diagonal", p.KL(p), 0, 1e-14)
	}
}

// TestRandMonteCarlo checks that draws have the moments of q, and that −E_q log(q/p) is the KL,
// both within 4 standard errors.
func TestRandMonteCarlo(t *testing.T) {
	n := 40000
	for _, f := range testFamilies() {
		rng := testkit.Rand(8)
		q, p := f.rand(rng), f.rand(rng)
		if f.dim == 1 || q.Coordinates() != MeanParams {
			continue
		}
		first, ratio := make([][]float64, f.dim), make([]float64, n)
		cross := make([]float64, n)
		z := make([]float64, f.dim)
		for i := range n {
			q.Rand(z, rng)
			for j := range z {
				first[j] = append(first[j], z[j])
			}
			cross[i] = (z[0] - meanAt(q, 0)) * (z[1] - meanAt(q, 1))
			ratio[i] = q.LogProb(z) - p.LogProb(z)
		}
		check := func(what string, x []float64, want float64) {
			t.Helper()
			m, sd := stat.MeanStdDev(x, nil)
			if e := math.Abs(m-want) / (sd / math.Sqrt(float64(n))); !(e < 4) {
				t.Errorf("%s: %s is %v, want %v: %.1f standard errors", f.name, what, m, want, e)
			}
		}
		for j := range first {
			check("mean", first[j], meanAt(q, j))
			for i, x := range first[j] {
				first[j][i] = (x - meanAt(q, j)) * (x - meanAt(q, j))
			}
			check("variance", first[j], covAt(q, j, j))
		}
		check("covariance", cross, covAt(q, 0, 1))
		check("KL", ratio, q.KL(p))
	}
}

func TestPoint(t *testing.T) {
	z := []float64{1, -2}
	p := NewPoint(z)
	z[0] = 5
	want := []float64{1, -2}
	for name, got := range map[string][]float64{"Params": p.Params(nil), "Rand": p.Rand(nil, nil),
		"Chart": p.Chart(nil)} {
		if !slices.Equal(got, want) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	c := p.Clone()
	if err := c.SetParams([]float64{7, 8}); err != nil || p.Params(nil)[0] != 1 {
		t.Error("a clone shares memory", err)
	}
	if p.LogProb(want) != 0 || !math.IsInf(p.LogProb(z), -1) {
		t.Error("LogProb is wrong")
	}
	if g := p.Score([]float64{1, 1}, want); g[0] != 0 || g[1] != 0 {
		t.Errorf("Score is %v", g)
	}
	if g := p.ChartGrad(nil, []float64{3, 4}); !slices.Equal(g, []float64{3, 4}) {
		t.Errorf("ChartGrad is %v", g)
	}
}

// TestDistConcurrentReads calls the methods that only read a distribution concurrently, because
// several models may share a prior.
func TestDistConcurrentReads(t *testing.T) {
	rng := testkit.Rand(9)
	for _, f := range testFamilies() {
		q, p := f.rand(rng), f.rand(rng)
		z := testkit.Normals(rng, f.dim)
		read := func() []float64 {
			x := []float64{q.LogProb(z), q.LogPartition(), q.KL(p)}
			for _, v := range [][]float64{q.Natural(nil), q.MeanParams(nil), q.Params(nil),
				q.Chart(nil), q.Score(nil, z)} {
				x = append(x, v...)
			}
			g := q.Params(nil)
			return append(append(x, q.MeanGrad(nil, g)...), q.FromNaturalGrad(nil, g)...)
		}
		want := read()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 300 {
					if !slices.Equal(read(), want) {
						t.Errorf("%s: concurrent reads disturb each other", f.name)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

// TestFarMean checks that a state is a valid start of a closed step even if its mean is so large
// that V is lost in V + mmᵀ.
func TestFarMean(t *testing.T) {
	for _, c := range []Coordinates{MeanParams, MeanCov} {
		q := testkit.Must(NewGaussian([]float64{1e9, -1e9},
			mat.NewSymDense(2, []float64{1, 0.5, 0.5, 2}))).In(c)
		p := q.Clone()
		h := KLTo(NewIsotropic(2, 1))
		// With g = 0 and a tiny β, the step has length zero.
		if _, err := solveProx(p, make([]float64, 5), h, KL(), q, 1e-300); err != nil {
			t.Errorf("%v: %v", c, err)
			continue
		}
		testkit.CheckClose(t, c.String(), momentsOf(p.(*Gaussian)), momentsOf(q), 1e-14)
		testkit.CheckNear(t, c.String()+": variance", covAt(p.(*Gaussian), 0, 1), 0.5, 1e-9)
	}
}

// TestDiagonalGaussian checks that a diagonal Gaussian needs memory of order d. A matrix of this
// size would need 8 terabytes.
func TestDiagonalGaussian(t *testing.T) {
	const d = 1 << 20
	q, p := NewIsotropicMeanField(d, 2), NewIsotropicMeanField(d, 1)
	testkit.CheckNear(t, "KL", q.KL(p), 0.5*d*(1-math.Log(2)), 1e-9)
	if err := q.Clone().(*Gaussian).SetNatural(p.Natural(nil)); err != nil || q.NumParams() != 2*d {
		t.Errorf("%d parameters, %v", q.NumParams(), err)
	}
	rng := testkit.Rand(10)
	m := randomMeanField(rng, 3, MeanCov)
	full := toDense(m)
	if !isDiagonal(m) || isDiagonal(full) || !isDiagonal(m.In(Cholesky)) ||
		!isDiagonal(m.Clone().(*Gaussian)) {
		t.Error("Diagonal is wrong")
	}
	if !mat.EqualApprox(m.Cov(), full.Cov(), 1e-15) ||
		!mat.EqualApprox(precision(m), precision(full), 1e-13) {
		t.Errorf("V is %v with inverse %v", m.Cov(), precision(m))
	}
}
