package effect

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"gonum.org/v1/gonum/mat"
)

// cov returns a V of d weights and the same as a matrix.
func cov(d int, rng *rand.Rand) (gauss.Cov, *mat.SymDense) {
	s := &gauss.Gaussian{}
	s.Resize(d)
	a := mat.NewDense(d, d, nil)
	for i := range d {
		for j := range d {
			a.Set(i, j, rng.NormFloat64())
		}
	}
	p := mat.NewSymDense(d, nil)
	p.SymOuterK(1, a)
	for i := range d {
		p.SetSym(i, i, p.At(i, i)+1)
		for j := range i + 1 {
			s.P[i*d+j] = p.At(i, j)
		}
	}
	if !s.Factor() {
		panic("no precision")
	}
	c := &gauss.Full{S: s}
	return c, c.Sym()
}

// exponential is Expect of μ(η) = e^η.
func exponential(m, v, value, first, second []float64) error {
	for i := range m {
		e := math.Exp(m[i] + v[i]/2)
		for _, dst := range [][]float64{value, first, second} {
			if dst != nil {
				dst[i] = e
			}
		}
	}
	return nil
}

// problem returns rows of two numbers, two levels of a column and an intercept.
func problem(rng *rand.Rand) (a *Average, v *mat.SymDense) {
	const n, d = 12, 5
	x := &design.Matrix{Rows: n, Cols: d}
	for i := range n {
		row := []float64{rng.NormFloat64(), rng.NormFloat64(), 0, 0, 1}
		if level := i % 3; level > 0 {
			row[1+level] = 1
		}
		x.Dense = append(x.Dense, row...)
	}
	a = &Average{X: x, Mean: make([]float64, d), Expect: exponential}
	a.Cov, v = cov(d, rng)
	for j := range a.Mean {
		a.Mean[j] = rng.NormFloat64() / 2
	}
	a.at(a.Mean)
	return a, v
}

// at makes the latent values those of the given mean of the weights.
func (a *Average) at(mean []float64) {
	a.Mean, a.M, a.V = mean, make([]float64, a.X.Rows), make([]float64, a.X.Rows)
	a.X.Mul(a.M, mean, nil)
	a.Cov.Variances(a.V, a.X, nil)
	a.Begin(a.X.Cols - 1)
}

// all returns the effects of all features.
func (a *Average) all(t *testing.T) []Effect {
	t.Helper()
	effects := make([]Effect, a.X.Cols-1)
	if err := a.Slopes(effects); err != nil {
		t.Fatal(err)
	}
	if err := a.Levels(effects, []int{2, 3}); err != nil {
		t.Fatal(err)
	}
	return effects
}

// mean returns the mean of E[e^η] over the rows that change has changed.
func (a *Average) mean(v *mat.SymDense, change func(row []float64)) (sum float64) {
	for i := range a.X.Rows {
		row := append([]float64(nil), a.X.Dense[i*a.X.Cols:(i+1)*a.X.Cols]...)
		change(row)
		x := mat.NewVecDense(len(row), row)
		m := mat.Dot(x, mat.NewVecDense(len(row), a.Mean))
		sum += math.Exp(m+mat.Inner(x, v, x)/2) / float64(a.X.Rows)
	}
	return sum
}

// TestMeans checks effects against rows that are changed: slopes against differences.
func TestMeans(t *testing.T) {
	a, v := problem(rand.New(rand.NewPCG(1, 2)))
	const h = 1e-4
	for j, e := range a.all(t) {
		if binary := j >= 2; a.Binary(j) != binary {
			t.Fatalf("feature %d is binary: %v", j, !binary)
		}
		var want float64
		if j < 2 {
			up := a.mean(v, func(row []float64) { row[j] += h })
			want = (up - a.mean(v, func(row []float64) { row[j] -= h })) / (2 * h)
		} else {
			without := a.mean(v, func(row []float64) { row[2], row[3] = 0, 0 })
			want = a.mean(v, func(row []float64) { row[2], row[3], row[j] = 0, 0, 1 }) - without
		}
		if math.Abs(e.Mean-want) > 1e-6*(1+math.Abs(want)) {
			t.Errorf("feature %d: %v, want %v", j, e.Mean, want)
		}
	}
}

// TestSDs checks standard deviations √(gᵀVg) with g by differences in the mean of the weights. For
// a slope that is of m_j times the mean of E[μ′].
func TestSDs(t *testing.T) {
	a, v := problem(rand.New(rand.NewPCG(3, 4)))
	mean, d := a.Mean, a.X.Cols
	effects := a.all(t)
	const h = 1e-5
	grads := make([]*mat.VecDense, d-1)
	for j := range grads {
		grads[j] = mat.NewVecDense(d, nil)
	}
	for k := range d {
		for _, side := range []float64{-1, 1} {
			moved := append([]float64(nil), mean...)
			moved[k] += side * h
			a.at(moved)
			slope := a.mean(v, func([]float64) {})
			for j, e := range a.all(t) {
				value := e.Mean
				if j < 2 {
					value = slope * moved[j]
				}
				grads[j].SetVec(k, grads[j].AtVec(k)+side*value/(2*h))
			}
		}
	}
	for j, e := range effects {
		if want := math.Sqrt(mat.Inner(grads[j], v, grads[j])); math.Abs(e.SD-want) > 1e-6*want {
			t.Errorf("feature %d: %v, want %v", j, e.SD, want)
		}
	}
}

// TestContributions checks them against their formula.
func TestContributions(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const d = 4
	c, v := cov(d, rng)
	row, base, mean := []float64{1, 2, -1, 3}, []float64{0, 1, 1, 5}, []float64{2, -1, 0.5, 1}
	columns := [][]int{{0, 2}, {1}, {3}}
	for i, e := range Contributions(row, base, columns, mean, c) {
		delta := mat.NewVecDense(d, nil)
		for _, j := range columns[i] {
			delta.SetVec(j, row[j]-base[j])
		}
		want := mat.Dot(delta, mat.NewVecDense(d, mean))
		sd := math.Sqrt(mat.Inner(delta, v, delta))
		if math.Abs(e.Mean-want) > 1e-14 || math.Abs(e.SD-sd) > 1e-12*sd {
			t.Errorf("column %d: %v, want %v ± %v", i, e, want, sd)
		}
	}
}

// TestDerivatives checks differences against those of a sine.
func TestDerivatives(t *testing.T) {
	f := func(m float64) (float64, error) { return math.Sin(m), nil }
	d1, d2, err := Derivatives(f, 0.7, math.Sin(0.7), true)
	if err != nil || math.Abs(d1-math.Cos(0.7)) > 1e-9 || math.Abs(d2+math.Sin(0.7)) > 1e-9 {
		t.Errorf("%v, %v, %v", d1, d2, err)
	}
	if _, d2, _ := Derivatives(f, 0.7, 0, false); d2 != 0 {
		t.Errorf("a second derivative %v that nobody wants", d2)
	}
}
