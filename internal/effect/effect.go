// Package effect averages the effects of features on responses over rows (average marginal
// effects), under a Gaussian of the weights of a linear model. The standard deviations follow
// from the gradients of the averages in the weights (delta method). classes.go holds the effects
// on class probabilities.
package effect

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"gonum.org/v1/gonum/floats"
)

// Effect is a Mean with its posterior standard deviation.
type Effect struct{ Mean, SD float64 }

// sqrtOf returns the square root of a variance that rounding may have made negative. It is +Inf
// if the variance overflows.
func sqrtOf(variance float64) float64 {
	if math.IsNaN(variance) {
		return math.Inf(1)
	}
	return math.Sqrt(math.Max(0, variance))
}

// Average holds the rows over which effects are averaged. The weights are N(Mean, Cov), for the
// features and then for an intercept, if there is one.
type Average struct {
	X    *design.Matrix
	Mean []float64
	Cov  gauss.Cov
	M, V []float64 // moments of the latent values, including offsets

	// Expect stores E[μ(η)], E[μ′(η)] and E[μ″(η)] for each η ~ N(m, v), where μ is the expected
	// response. A nil slice is not filled.
	Expect func(m, v, value, first, second []float64) error

	binary []bool    // whether each feature is 0 or 1 in all rows
	diag   []float64 // diagonal of V
}

// Begin reads the first features columns of X.
func (a *Average) Begin(features int) {
	a.diag = make([]float64, a.X.Cols)
	a.Cov.Diag(a.diag)
	a.binary = BinaryColumns(a.X, features)
}

// BinaryColumns reports which of the first features columns of x are 0 or 1 in all rows.
func BinaryColumns(x *design.Matrix, features int) []bool {
	binary := make([]bool, features)
	for j := range binary {
		binary[j] = true
	}
	for i := range x.Rows {
		ind, val := x.Row(i)
		for k, v := range val {
			j := k
			if ind != nil {
				j = int(ind[k])
			}
			if v != 0 && v != 1 && j < features {
				binary[j] = false
			}
		}
	}
	return binary
}

// Binary reports whether feature j is 0 or 1 in all rows.
func (a *Average) Binary(j int) bool { return a.binary[j] }

// Slopes stores the effects of the features that are not binary. With η_i ~ N(m_i, v_i), s = mean
// of E[μ′(η_i)] and u = mean of E[μ″(η_i)] x_i, the effect of feature j is s m_j + (Vu)_j. Its
// gradient in the weights is m_j u + s e_j.
func (a *Average) Slopes(effects []Effect) error {
	if !slices.Contains(a.binary, false) {
		return nil
	}
	n, d := len(a.M), a.X.Cols
	first, second := make([]float64, n), make([]float64, n)
	if err := a.Expect(a.M, a.V, nil, first, second); err != nil {
		return err
	}
	s := floats.Sum(first) / float64(n)
	floats.Scale(1/float64(n), second)
	u, vu := make([]float64, d), make([]float64, d)
	a.X.AddMulT(u, second, nil)
	a.Cov.Mul(vu, u)
	square := floats.Dot(u, vu)
	for j := range effects {
		if m := a.Mean[j]; !a.binary[j] {
			effects[j].Mean = s*m + vu[j]
			effects[j].SD = sqrtOf(m*m*square + 2*m*s*vu[j] + s*s*a.diag[j])
		}
	}
	return nil
}

// levels holds the binary features of a column, and the latent values of N(mean, cov) with and
// without them. x0_i is row i with all of them 0, and x0_i + e_j is row i at level j.
type levels struct {
	at           []int
	mean         []float64
	cov, cross   [][]float64 // Ve_j and x_iᵀVe_j
	value        [][]float64 // x_ij
	m0, v0       []float64   // at x0_i
	m1, v1, unit []float64
}

// newLevels returns the binary features of x in a column. m and v hold the moments of the latent
// values of its rows.
func newLevels(at []int, x *design.Matrix, mean []float64, cov gauss.Cov, m, v []float64) *levels {
	n, d := len(m), x.Cols
	l := &levels{at: at, mean: mean, m0: slices.Clone(m), v0: slices.Clone(v),
		m1: make([]float64, n), v1: make([]float64, n), unit: make([]float64, d)}
	for _, j := range at {
		c, cross, value := make([]float64, d), make([]float64, n), make([]float64, n)
		l.unit[j] = 1
		cov.Mul(c, l.unit)
		x.Mul(cross, c, nil)
		x.Mul(value, l.unit, nil)
		l.unit[j] = 0
		l.cov, l.cross, l.value = append(l.cov, c), append(l.cross, cross), append(l.value, value)
	}
	for i := range n {
		for k := range at {
			if l.value[k][i] == 0 {
				continue
			}
			l.m0[i] -= mean[at[k]]
			l.v0[i] -= 2 * l.cross[k][i]
			for o := range at {
				l.v0[i] += l.value[o][i] * l.cov[k][at[o]]
			}
		}
		l.v0[i] = math.Max(0, l.v0[i])
	}
	return l
}

// set stores the moments at level k in m1 and v1.
func (l *levels) set(k int) {
	j := l.at[k]
	for i := range l.m1 {
		c := l.cross[k][i]
		for o := range l.at {
			c -= l.value[o][i] * l.cov[k][l.at[o]]
		}
		l.m1[i], l.v1[i] = l.m0[i]+l.mean[j], math.Max(0, l.v0[i]+2*c+l.cov[k][j])
	}
}

// Levels stores the effects of the binary features of a column. The gradient in the weights is
// the mean of E[μ′] at x0_i + e_j times x0_i + e_j, minus E[μ′] at x0_i times x0_i.
func (a *Average) Levels(effects []Effect, at []int) error {
	if len(at) == 0 {
		return nil
	}
	n, d := len(a.M), a.X.Cols
	l := newLevels(at, a.X, a.Mean, a.Cov, a.M, a.V)
	f0, s0 := make([]float64, n), make([]float64, n)
	if err := a.Expect(l.m0, l.v0, f0, s0, nil); err != nil {
		return err
	}
	f1, s1 := make([]float64, n), make([]float64, n)
	g, vg := make([]float64, d), make([]float64, d)
	for k, j := range at {
		l.set(k)
		if err := a.Expect(l.m1, l.v1, f1, s1, nil); err != nil {
			return err
		}
		effects[j].Mean = (floats.Sum(f1) - floats.Sum(f0)) / float64(n)
		up := floats.Sum(s1) / float64(n)
		floats.Sub(s1, s0)
		floats.Scale(1/float64(n), s1)
		slope(g, a.X, s1, at, j, up)
		a.Cov.Mul(vg, g)
		effects[j].SD = sqrtOf(floats.Dot(g, vg))
	}
	return nil
}

// slope stores Xᵀh in g. For the features at, which belong to one column, it stores 0, and up for
// feature j.
func slope(g []float64, x *design.Matrix, h []float64, at []int, j int, up float64) {
	clear(g)
	x.AddMulT(g, h, nil)
	for _, o := range at {
		g[o] = 0
	}
	g[j] = up
}

// Difference returns the mean of E[μ] over the rows of a, minus the mean over the rows of b. Its
// gradient in the weights is the difference of the means of E[μ′]x.
func Difference(a, b *Average) (e Effect, err error) {
	n, d := len(a.M), a.X.Cols
	g, vg := make([]float64, d), make([]float64, d)
	for _, side := range []struct {
		*Average
		sign float64
	}{{a, 1}, {b, -1}} {
		value, first := make([]float64, n), make([]float64, n)
		if err := side.Expect(side.M, side.V, value, first, nil); err != nil {
			return e, err
		}
		e.Mean += side.sign * floats.Sum(value) / float64(n)
		floats.Scale(side.sign/float64(n), first)
		side.X.AddMulT(g, first, nil)
	}
	a.Cov.Mul(vg, g)
	e.SD = sqrtOf(floats.Dot(g, vg))
	return e, nil
}

// Contributions returns the effect (x − x̄)_cᵀm_c of the features c of each column on the latent
// value of the row x, with standard deviation √((x − x̄)_cᵀV_cc(x − x̄)_c).
func Contributions(row, base []float64, columns [][]int, mean []float64, cov gauss.Cov) []Effect {
	effects := make([]Effect, len(columns))
	parts := &design.Rows{Cols: len(mean), Ptr: []int{0}}
	for c, features := range columns {
		for _, j := range features {
			d := row[j] - base[j]
			effects[c].Mean += d * mean[j]
			parts.Ind, parts.Val = append(parts.Ind, int32(j)), append(parts.Val, d)
		}
		parts.Ptr = append(parts.Ptr, len(parts.Ind))
	}
	v := make([]float64, len(columns))
	x := &design.Matrix{Rows: len(columns), Cols: len(mean), Sparse: parts}
	cov.Variances(v, x, nil)
	for c := range effects {
		effects[c].SD = sqrtOf(v[c])
	}
	return effects
}

// step is the step of the differences in Derivatives, in units of η. Differences of fourth order
// then have an error of about 1e-10 for links of unit scale, and a rounding error of 1e-12.
const step = 0.01

// Derivatives returns the first and, if wanted, the second derivative of f at m, by differences.
// value is f(m).
func Derivatives(f func(m float64) (float64, error), m, value float64, second bool) (
	d1, d2 float64, err error) {
	var at [4]float64 // values at −2, −1, 1 and 2 steps
	for k, steps := range [4]float64{-2, -1, 1, 2} {
		if at[k], err = f(m + steps*step); err != nil {
			return 0, 0, err
		}
	}
	d1 = (8*(at[2]-at[1]) - (at[3] - at[0])) / (12 * step)
	if second {
		d2 = (16*(at[1]+at[2]) - at[0] - at[3] - 30*value) / (12 * step * step)
	}
	return d1, d2, nil
}
