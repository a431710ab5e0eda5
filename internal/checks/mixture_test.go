package checks

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// loadIris reads the iris data.
func loadIris(t testing.TB) (x *mat.Dense, species []float64) {
	t.Helper()
	return testkit.ReadCSV(t,
		testkit.Open(t, filepath.Join("..", "..", "testdata", "iris", "iris.csv")))
}

// speciesStart returns the responsibilities from which the reference values start.
func speciesStart(species []float64) *mat.Dense {
	start := mat.NewDense(len(species), 3, nil)
	for n, s := range species {
		for k := range 3 {
			start.Set(n, k, 0.1)
		}
		start.Set(n, int(s), 0.8)
	}
	return start
}

// irisOptimum is the optimum that coordinate ascent reaches on iris from the species. It and the
// ELBOs of the first states come from an independent program (numpy, Bishop 10.2).
const irisOptimum = -334.1176183723994

var irisFirst = []float64{-425.61219489026325, -379.3082732664951, -354.6187753202744,
	-341.2657820148289, -338.5287257964705, -337.0935066810151}

func TestMixtureIris(t *testing.T) {
	x, species := loadIris(t)
	m, err := NewMixture(x, 3, &MixtureOptions{Start: speciesStart(species)})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	st, err := m.NewStepper(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	start, err := st.Evaluate(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	post, res, err := m.Fit(ctx, &Solver{Goal: 1e-10})
	if err != nil {
		t.Fatal(err)
	}
	elbo := []float64{start.ELBO}
	for _, it := range res.Trace {
		elbo = append(elbo, it.ELBO)
	}
	for i, want := range irisFirst {
		if math.Abs(elbo[i]-want) > 1e-9 {
			t.Errorf("ELBO after %d steps is %.12f, want %.12f", i, elbo[i], want)
		}
	}
	for i := 1; i < len(elbo); i++ {
		if elbo[i] < elbo[i-1]-1e-11*math.Abs(elbo[i]) {
			t.Errorf("step %d made the ELBO fall from %.12f to %.12f", i, elbo[i-1], elbo[i])
		}
	}
	if math.Abs(res.ELBO-irisOptimum) > 1e-8 || res.Status != Converged {
		t.Errorf("%v at %.12f, want %.12f", res.Status, res.ELBO, irisOptimum)
	}
	if res.Scope != OverBlock || !(res.GapBound < 1e-9) || !(res.Gap <= res.Goal) {
		t.Errorf("gap %v, proved %v %v, goal %v", res.Gap, res.GapBound, res.Scope, res.Goal)
	}
	t.Logf("%v passes, gap %.1e, block %.1e", res.Passes, res.Gap, res.GapBound)

	// These are the parameters of the reference at its optimum.
	mean, kappa, df, inverse := post.NormalWishart(1)
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"alpha", 153 * post.Weights(nil)[1], 29.457921585457985},
		{"kappa", kappa, 29.457921585457985},
		{"nu", df, 32.45792158545798},
		{"m", mean[2], 4.129132575770326}, {"W⁻¹(0, 0)", inverse.At(0, 0), 10.650441620904843},
		{"W⁻¹(3, 1)", inverse.At(3, 1), 0.9377956009758776},
		{"weight", post.Weights(nil)[0], 51.00105353678091 / 153},
		{"Cov", post.Cov(2).At(2, 2), 42.15976773321741 / 75.5410248777611},
	} {
		if math.Abs(c.got-c.want) > 1e-5*math.Abs(c.want) {
			t.Errorf("%s is %v, want %v", c.what, c.got, c.want)
		}
	}
	// Most flowers must end in the component that began as their species.
	hits := 0
	for n, s := range species {
		if r := post.Responsibilities(nil, x.RawRowView(n)); math.Abs(floats.Sum(r)-1) > 1e-12 {
			t.Fatalf("row %d has the responsibilities %v", n, r)
		} else if floats.MaxIdx(r) == int(s) {
			hits++
		}
	}
	if hits < 120 {
		t.Errorf("%d of 150 flowers are of their component", hits)
	}
}

// TestMixtureNil checks a mixture without options. The bits must be the same for all numbers of
// workers, and every start must end at a stationary point.
func TestMixtureNil(t *testing.T) {
	x, _ := loadIris(t)
	m, err := NewMixture(x, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	var last float64
	for _, workers := range []int{1, 2, 7} {
		_, res, err := m.Fit(context.Background(), &Solver{Workers: workers})
		if err != nil || res.Status != Converged || !(res.GapBound < 1e-9) {
			t.Fatalf("%v, %v, gap %v", err, res.Status, res.GapBound)
		}
		if workers > 1 && res.ELBO != last {
			t.Errorf("%d workers: %v, with fewer %v", workers, res.ELBO, last)
		}
		last = res.ELBO
	}
	if last < -337 {
		t.Errorf("ELBO %v", last)
	}
	// Stochastic variational inference must work with the schedule of the Stepper and with the
	// schedule of the Solver.
	for _, step := range []Schedule{nil, FractionStep(5, 0.7)} {
		_, res, err := m.Fit(context.Background(),
			&Solver{BatchSize: 10, StepSize: step, MaxPasses: 60, EvalEvery: 150})
		if err != nil {
			t.Fatal(err)
		}
		if res.ELBO < last-25 {
			t.Errorf("%v: ELBO %v, by coordinate ascent %v", step, res.ELBO, last)
		}
		if step == nil && (math.IsInf(res.Beta, 1) || res.Scope != OverBlock) {
			t.Errorf("step size %v, scope %v", res.Beta, res.Scope)
		}
	}
}

// TestMixtureUnits checks that the mixture does not change if the data are scaled, rotated and
// shifted far away. The ELBO changes by the logarithm of the units.
func TestMixtureUnits(t *testing.T) {
	x, species := loadIris(t)
	opt := &MixtureOptions{Start: speciesStart(species)}
	turn := mat.NewDense(4, 4, []float64{1e3, 2e-5, 0, 0, 0, 1e-5, 0, 0, 1e3, 0, 1, 0.5, 0, 1e-5,
		0.1, 2})
	y := mat.NewDense(150, 4, nil)
	y.Mul(x, turn)
	y.Apply(func(_, j int, v float64) float64 { return v + []float64{1e5, -3e-5, 0, 7}[j] }, y)
	fit := func(x *mat.Dense) (*MixturePosterior, float64) {
		m, err := NewMixture(x, 3, opt)
		if err != nil {
			t.Fatal(err)
		}
		p, res, err := m.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return p, res.ELBO
	}
	p, a := fit(x)
	q, b := fit(y)
	log := math.Log(math.Abs(mat.Det(turn)))
	if math.Abs(a-(b+150*log)) > 1e-5 {
		t.Errorf("ELBO %v and %v", a, b+150*log)
	}
	for n := range 150 {
		if d := p.LogProb(x.RawRowView(n)) - q.LogProb(y.RawRowView(n)) - log; math.Abs(d) > 1e-5 {
			t.Fatalf("the density of row %d differs by %v", n, d)
		}
	}
}

// TestMixtureOne checks a single component in one dimension. Its posterior and its prediction
// have closed forms, and the ELBO is the evidence.
func TestMixtureOne(t *testing.T) {
	v := []float64{1.5, -0.3, 2.2, 0.7, 3.1}
	n, mean := float64(len(v)), floats.Sum(v)/float64(len(v))
	var square float64
	for _, x := range v {
		square += (x - mean) * (x - mean)
	}
	m, err := NewMixture(mat.NewDense(len(v), 1, slices.Clone(v)), 1,
		&MixtureOptions{Kappa: 2, DF: 3})
	if err != nil {
		t.Fatal(err)
	}
	post, res, err := m.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	scale := square / (n - 1) // W₀⁻¹; the prior mean is the mean of the rows
	inv := scale + square
	lg := func(x float64) float64 { l, _ := math.Lgamma(x); return l }
	evidence := -0.5*n*math.Log(math.Pi) + 0.5*math.Log(2/(2+n)) +
		1.5*math.Log(scale) - 0.5*(3+n)*math.Log(inv) + lg(0.5*(3+n)) - lg(1.5)
	if math.Abs(res.ELBO-evidence) > 1e-10 {
		t.Errorf("ELBO %v, evidence %v", res.ELBO, evidence)
	}
	nu, kappa := 3+n, 2+n
	student := distuv.StudentsT{Mu: mean, Sigma: math.Sqrt(inv * (1 + kappa) / kappa / nu), Nu: nu}
	for _, x := range []float64{-4, 0.5, mean, 30} {
		if got, want := post.LogProb([]float64{x}),
			student.LogProb(x); math.Abs(got-want) > 1e-11*(1+math.Abs(want)) {
			t.Errorf("log density at %v is %v, want %v", x, got, want)
		}
	}
	if r := post.Responsibilities(nil, []float64{9}); len(r) != 1 || r[0] != 1 {
		t.Errorf("responsibilities %v", r)
	}
}

// groups returns rows of three groups around multiples of some centers, with the given shares.
func groups(n int, apart float64, share [3]float64, seed uint64) *mat.Dense {
	rng := rand.New(rand.NewPCG(seed, 4))
	x := mat.NewDense(n, 2, nil)
	for i := range n {
		k, u := 0, rng.Float64()
		for u > share[k] {
			u -= share[k]
			k++
		}
		center := [][2]float64{{-4, 0}, {4, 1}, {0, 5}}[k]
		x.Set(i, 0, apart*center[0]+rng.NormFloat64())
		x.Set(i, 1, apart*center[1]+0.7*rng.NormFloat64())
	}
	return x
}

// TestMixtureSpare fits ten components to three groups. Without joining components, the fit takes
// 78 to 152 passes, or up to 786 passes for 10,000 rows. It must reach the ELBO of a fit that
// starts with empty spare components.
func TestMixtureSpare(t *testing.T) {
	t.Parallel()
	const rows = 2000
	third := [3]float64{0.334, 0.333, 0.333}
	for _, c := range []struct {
		share  [3]float64
		weight float64
	}{{third, 1}, {third, 0.01}, {[3]float64{0.7, 0.2, 0.1}, 1}} {
		x := groups(rows, 1, c.share, 3)
		m, err := NewMixture(x, 10, &MixtureOptions{Weight: c.weight})
		if err != nil {
			t.Fatal(err)
		}
		p, res, err := m.Fit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		used := 0
		for _, w := range p.Weights(nil) {
			if w*rows > 3 {
				used++
			}
		}
		start := mat.NewDense(rows, 10, nil)
		for n := range rows {
			p.Responsibilities(start.RawRowView(n), x.RawRowView(n))
			for k, w := range p.Weights(nil) { // the rows of spare components move to the others
				if w*rows < 3 {
					start.Set(n, k, 0)
				}
			}
		}
		m, err = NewMixture(x, 10, &MixtureOptions{Weight: c.weight, Start: start})
		if err != nil {
			t.Fatal(err)
		}
		_, best, err := m.Fit(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if used != 3 || res.Status != Converged || !(res.Passes < 65) ||
			math.Abs(res.ELBO-best.ELBO) > 1e-4 {
			t.Errorf("shares %v, weight %v: %v, %v passes, %d components, ELBO %v, want %v",
				c.share, c.weight, res.Status, res.Passes, used, res.ELBO, best.ELBO)
		}
	}
}

// TestMixtureJoin checks fits that join components. The ELBO must never fall, even if groups
// overlap or differ in size. The bits must be the same for all numbers of workers, and after a
// run was saved between two leaps.
func TestMixtureJoin(t *testing.T) {
	t.Parallel()
	for _, apart := range []float64{0.15, 0.4, 1} {
		for seed := range uint64(testkit.Few([]int{8, 3}, 1)[0]) {
			x := groups(150, apart, [3]float64{0.6, 0.3, 0.1}, seed)
			m, err := NewMixture(x, 6, nil)
			if err != nil {
				t.Fatal(err)
			}
			var first float64
			for _, workers := range []int{1, 3} {
				last := math.Inf(-1)
				_, res, err := m.Fit(t.Context(), &Solver{Workers: workers,
					Src: rand.NewPCG(seed, 1), Record: func(it Iteration) {
						if it.ELBO < last-1e-10*math.Abs(last) {
							t.Errorf("apart %v: step %d: ELBO from %v to %v", apart, it.K, last,
								it.ELBO)
						}
						last = it.ELBO
					}})
				if err != nil || res.Status != Converged {
					t.Fatalf("apart %v, seed %d: %v, %v", apart, seed, res.Status, err)
				}
				if workers == 1 {
					first = res.ELBO
				} else if res.ELBO != first {
					t.Errorf("%d workers: ELBO %v, want %v", workers, res.ELBO, first)
				}
			}
		}
	}
	m, err := NewMixture(groups(300, 0.2, [3]float64{0.4, 0.3, 0.3}, 1), 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, steps := range []int{12, 13, 15} {
		kit.SameResumed(t, m, steps, 500)
	}
}

func TestMixtureSave(t *testing.T) {
	x, _ := loadIris(t)
	m, err := NewMixture(x, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := m.Fit(context.Background(), &Solver{MaxPasses: 5})
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := p.Save(&file); err != nil {
		t.Fatal(err)
	}
	text := file.String()
	q, err := Load[*MixturePosterior](strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 150 {
		row := x.RawRowView(n)
		if p.LogProb(row) != q.LogProb(row) || !slices.Equal(p.Responsibilities(nil, row),
			q.Responsibilities(nil, row)) {
			t.Fatalf("row %d differs", n)
		}
	}
	if _, err := Load[*MixturePosterior](strings.NewReader(text[:len(text)/2])); !errors.Is(err,
		ErrFile) {
		t.Errorf("half of a file: %v", err)
	}
}

func TestMixtureErrors(t *testing.T) {
	x := mat.NewDense(4, 2, []float64{1, 2, 3, 5, 5, 7, 8, 8})
	with := func(i, j int, v float64) *mat.Dense {
		y := mat.DenseCopyOf(x)
		y.Set(i, j, v)
		return y
	}
	nan := math.NaN()
	for _, c := range []struct {
		name string
		x    mat.Matrix
		k    int
		opt  *MixtureOptions
		want error
		say  string
	}{
		{"nil", nil, 1, nil, ErrEmpty, "nil matrix"},
		{"nil Dense", (*mat.Dense)(nil), 1, nil, ErrEmpty, "nil matrix"},
		{"one row", mat.NewDense(1, 2, nil), 1, nil, ErrEmpty, "1×2"},
		{"no components", x, 0, nil, ErrParam, "components is 0"},
		{"fewer rows than components", x, 5, nil, ErrParam, "components is 5"},
		{"NaN", with(2, 1, nan), 2, nil, ErrNotFinite, "row 2, column 1"},
		{"Inf", with(3, 0, math.Inf(1)), 2, nil, ErrNotFinite, "row 3, column 0"},
		{"constant column", mat.NewDense(3, 2, []float64{1, 4, 2, 4, 7, 4}), 2, nil, ErrNotPosDef,
			"column 1 is constant"},
		{"constant but for rounding", mat.NewDense(3, 1, []float64{0.1, 0.1, 0.1}), 2, nil,
			ErrNotPosDef, "column 0 is constant"},
		{"collinear", mat.NewDense(4, 2, []float64{1, 2, 3, 6, 4, 8, 9, 18}), 2, nil, ErrNotPosDef,
			"column 1"},
		{"more columns than rows", mat.NewDense(2, 3, []float64{1, 2, 4, 3, 5, 1}), 1, nil,
			ErrNotPosDef, "column 1"},
		{"weight", x, 2, &MixtureOptions{Weight: -1}, ErrParam, "Weight"},
		{"kappa", x, 2, &MixtureOptions{Kappa: nan}, ErrParam, "Kappa"},
		{"df", x, 2, &MixtureOptions{DF: 1}, ErrParam, "DF is 1"},
		{"cov shape", x, 2, &MixtureOptions{Cov: mat.NewSymDense(3, nil)}, ErrShape, "Cov is 3×3"},
		{"cov indefinite", x, 2, &MixtureOptions{Cov: mat.NewSymDense(2, []float64{1, 2, 2, 1})},
			ErrNotPosDef, "column 1"},
		{"cov negative", x, 2, &MixtureOptions{Cov: mat.NewSymDense(2, []float64{1, 0, 0, -1})},
			ErrNotPosDef, "Cov(1, 1)"},
		{"cov NaN", x, 2, &MixtureOptions{Cov: mat.NewSymDense(2, []float64{1, nan, nan, 1})},
			ErrNotFinite, "Cov(1, 0)"},
		{"cov small", x, 2, &MixtureOptions{Cov: mat.NewSymDense(2, []float64{1e-20, 0, 0, 1e-20})},
			ErrParam, "row 0"},
		{"start shape", x, 2, &MixtureOptions{Start: mat.NewDense(4, 3, nil)}, ErrShape,
			"Start is 4×3"},
		{"start empty row", x, 2,
			&MixtureOptions{Start: mat.NewDense(4, 2, []float64{1, 0, 0, 0, 1, 1, 1, 1})}, ErrParam,
			"row 1"},
		{"start negative", x, 2,
			&MixtureOptions{Start: mat.NewDense(4, 2, []float64{1, 0, 1, -1, 1, 1, 1, 1})},
			ErrParam, "Start(1, 1)"},
	} {
		_, err := NewMixture(c.x, c.k, c.opt)
		if !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), "pgsvi: ") ||
			!strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v, want %q, %v", c.name, err, c.say, c.want)
		}
	}
	// With a covariance, columns may be constant, and there may be more columns than rows.
	m, err := NewMixture(mat.NewDense(2, 3, []float64{1, 2, 4, 3, 2, 1}), 2,
		&MixtureOptions{Cov: mat.NewSymDense(3, []float64{1, 0, 0, 0, 1, 0, 0, 0, 1})})
	if err != nil {
		t.Fatal(err)
	}
	if _, res, err := m.Fit(context.Background(), nil); err != nil || res.Status != Converged {
		t.Errorf("%v, %v", err, res.Status)
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := m.Fit(canceled, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	other, err := NewMixture(x, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, res, _ := m.Fit(context.Background(), &Solver{MaxIter: 1})
	if _, err := other.Posterior(res.Stepper); !errors.Is(err, ErrParam) {
		t.Errorf("posterior of another model: %v", err)
	}
}

// TestMixtureSeeds fits random data. The ELBO must never fall, all results must be finite, and
// the run must end by itself.
func TestMixtureSeeds(t *testing.T) {
	t.Parallel()
	seeds := uint64(120)
	if testing.Short() {
		seeds = 12
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 3))
		n, d := 2+rng.IntN(40), 1+rng.IntN(4)
		k := 1 + rng.IntN(min(n, 6))
		opt := &MixtureOptions{Weight: math.Exp(4 * rng.NormFloat64()),
			Kappa: math.Exp(4 * rng.NormFloat64()),
			DF:    float64(d) - 1 + math.Exp(3*rng.NormFloat64())}
		if n <= d+1 || rng.IntN(3) == 0 {
			unit := mat.NewSymDense(d, nil)
			for i := range d {
				unit.SetSym(i, i, math.Exp(3*rng.NormFloat64()))
			}
			opt.Cov = unit
		}
		x, units := mat.NewDense(n, d, nil), math.Exp(5*rng.NormFloat64())
		for i := range n {
			at := 5 * float64(rng.IntN(k))
			for j := range d {
				x.Set(i, j, units*(at+rng.NormFloat64()))
			}
			if i > 0 && rng.IntN(5) == 0 {
				x.SetRow(i, x.RawRowView(i-1)) // repeated rows
			}
		}
		m, err := NewMixture(x, k, opt)
		if errors.Is(err, ErrNotPosDef) && opt.Cov == nil {
			continue // too many repeated rows
		}
		if errors.Is(err, ErrParam) && strings.Contains(err.Error(), "give a larger one") {
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		last := math.Inf(-1)
		post, res, err := m.Fit(context.Background(),
			&Solver{Src: rand.NewPCG(seed, 0), MaxPasses: 3000,
				Record: func(it Iteration) {
					if it.ELBO < last-1e-10*math.Abs(last) {
						t.Errorf("seed %d: ELBO from %v to %v", seed, last, it.ELBO)
					}
					last = it.ELBO
				}})
		if err != nil {
			t.Errorf("seed %d: %d rows × %d, %d components, %+v: %v", seed, n, d, k, opt, err)
			continue
		}
		if res.Status != Converged && res.Status != Stalled && res.Status != PassLimit {
			t.Errorf("seed %d: %v", seed, res.Status)
		}
		if res.Status == PassLimit {
			t.Logf("seed %d: gap %v after %v passes", seed, res.Gap, res.Passes)
		}
		for i := range n {
			if l := post.LogProb(x.RawRowView(i)); math.IsNaN(l) || math.IsInf(l, 0) {
				t.Errorf("seed %d: log density of row %d is %v", seed, i, l)
			}
			if r := post.Responsibilities(nil, x.RawRowView(i)); math.Abs(floats.Sum(r)-1) > 1e-9 {
				t.Errorf("seed %d: responsibilities %v", seed, r)
			}
		}
	}
}

// TestMixtureAsksForMemory checks that a mixture that needs more memory than allowed returns an
// error before it allocates.
func TestMixtureAsksForMemory(t *testing.T) {
	x := mat.NewDense(1200, 1000, nil)
	for i := range x.RawMatrix().Data {
		x.RawMatrix().Data[i] = float64(i * i % 1013)
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 30))
	if _, err := NewMixture(x, 1000, nil); !errors.Is(err, ErrMemory) {
		t.Errorf("1000 components of 1000 columns in 1 GB: %v", err)
	}
	small := x.Slice(0, 100, 0, 5)
	debug.SetMemoryLimit(1e6)
	if _, err := NewMixture(small, 50, nil); err != nil {
		t.Errorf("50 components of 5 columns in 1 MB: %v", err)
	}
	debug.SetMemoryLimit(2e5)
	if _, err := NewMixture(small, 50, nil); !errors.Is(err, ErrMemory) {
		t.Errorf("50 components of 5 columns in 200 kB: %v", err)
	}
}
