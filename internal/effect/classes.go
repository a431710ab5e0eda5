package effect

import (
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"gonum.org/v1/gonum/floats"
)

// Classes averages the effects of features on the probabilities of K classes. The scores are
// x_nᵀw_c, and the weights of the classes are independent before their common part is removed.
// Weights and effects are stored class by class: element c·features + j belongs to feature j and
// class c.
type Classes struct {
	X    *design.Matrix
	K    int
	Mean []float64 // mean of the weights of all classes
	Cov  *gauss.Contrasts
	M, V []float64 // moments of the scores, K per row

	// Expect stores E[π] in p and ∂E[π]/∂m = E[diag π − ππᵀ] in the K×K matrix h.
	Expect func(m, v, p, h []float64)
}

// classStep is the step of differences of E[diag π − ππᵀ] in a mean, whose error is then about
// 1e-11.
const classStep = 1e-3

// Slopes stores the effects of the features that are not binary. Let H = E[diag π − ππᵀ], let T
// be the derivatives of H in the means, and let S_cf and U_cef be the averages of H_cf and T_cef
// x over the rows. Because ∂p_c/∂v_f = ½T_cff, the effect of feature j on class c is
//
//	Σ_f S_cf m_fj + (V_f U_cff)_j.
//
// Its gradient in the weights of class f is Σ_e U_cef m_ej + S_cf e_j.
func (a *Classes) Slopes(effects []Effect, binary []bool) {
	k, d, features, n := a.K, a.X.Cols, len(binary), a.X.Rows
	p, up, down := make([]float64, k), make([]float64, k*k), make([]float64, k*k)
	s := make([]float64, k*k)
	for i := range n {
		a.Expect(a.M[i*k:(i+1)*k], a.V[i*k:(i+1)*k], p, up)
		floats.AddScaled(s, 1/float64(n), up)
	}
	variance := make([]float64, len(effects))
	// T_cef of all rows for one f, with U and VU
	t, u, vu := make([]float64, k*k*n), make([]float64, k*d), make([]float64, k*d)
	diag, m := make([]float64, d), make([]float64, k)
	for f := range k {
		for i := range n {
			copy(m, a.M[i*k:(i+1)*k])
			m[f] += classStep
			a.Expect(m, a.V[i*k:(i+1)*k], p, up)
			m[f] -= 2 * classStep
			a.Expect(m, a.V[i*k:(i+1)*k], p, down)
			for ce := range up {
				t[ce*n+i] = (up[ce] - down[ce]) / (2 * classStep * float64(n))
			}
		}
		a.Cov.Of[f].Diag(diag)
		for c := range k {
			clear(u)
			for e := range k {
				ce := c*k + e
				a.X.AddMulT(u[e*d:(e+1)*d], t[ce*n:(ce+1)*n], nil)
				a.Cov.Of[f].Mul(vu[e*d:(e+1)*d], u[e*d:(e+1)*d])
			}
			a.addSlopes(effects[c*features:(c+1)*features], variance[c*features:], f, s[c*k+f],
				u, vu, diag, binary)
		}
	}
	for i, v := range variance {
		if !binary[i%features] {
			effects[i].SD = sqrtOf(v)
		}
	}
}

// addSlopes adds the parts of class f to the effects on a class, with S_cf = s. u and vu hold
// U_cef and V_fU_cef for each e, and diag the diagonal of V_f.
func (a *Classes) addSlopes(effects []Effect, variance []float64, f int, s float64, u, vu,
	diag []float64, binary []bool) {
	k, d := a.K, a.X.Cols
	square := make([]float64, k*k)
	for e := range k {
		for o := range k {
			square[e*k+o] = floats.Dot(u[e*d:(e+1)*d], vu[o*d:(o+1)*d])
		}
	}
	for j, two := range binary {
		if two {
			continue
		}
		effects[j].Mean += s*a.Mean[f*d+j] + vu[f*d+j]
		variance[j] += s * s * diag[j]
		for e := range k {
			m := a.Mean[e*d+j]
			variance[j] += 2 * s * m * vu[e*d+j]
			for o := range k {
				variance[j] += m * square[e*k+o] * a.Mean[o*d+j]
			}
		}
	}
}

// Levels stores the effects of the binary features of the column at. The gradient in the weights
// of class f is the mean of H_cf(x0_i + e_j)·(x0_i + e_j) − H_cf(x0_i)·x0_i.
func (a *Classes) Levels(effects []Effect, features int, at []int) {
	if len(at) == 0 {
		return
	}
	k, d, n := a.K, a.X.Cols, a.X.Rows
	of := make([]*levels, k)
	m, v := make([]float64, n), make([]float64, n)
	for c := range of {
		for i := range n {
			m[i], v[i] = a.M[i*k+c], a.V[i*k+c]
		}
		of[c] = newLevels(at, a.X, a.Mean[c*d:(c+1)*d], a.Cov.Of[c], m, v)
	}
	p0, h0 := a.expectAt(func(i, c int) (m, v float64) { return of[c].m0[i], of[c].v0[i] })
	g, vg := make([]float64, d), make([]float64, d)
	for l, j := range at {
		for c := range of {
			of[c].set(l)
		}
		p1, h1 := a.expectAt(func(i, c int) (m, v float64) { return of[c].m1[i], of[c].v1[i] })
		for c := range k {
			x := &effects[c*features+j]
			x.Mean = (floats.Sum(p1[c*n:(c+1)*n]) - floats.Sum(p0[c*n:(c+1)*n])) / float64(n)
			variance := 0.0
			for f := range k {
				h, less := h1[(c*k+f)*n:][:n], h0[(c*k+f)*n:][:n]
				up := floats.Sum(h) / float64(n)
				floats.Sub(h, less)
				floats.Scale(1/float64(n), h)
				slope(g, a.X, h, at, j, up)
				a.Cov.Of[f].Mul(vg, g)
				variance += floats.Dot(g, vg)
			}
			x.SD = sqrtOf(variance)
		}
	}
}

// expectAt returns E[π_c] and H_ce of scores with the given moments for each row, class by class
// and pair by pair.
func (a *Classes) expectAt(moments func(i, c int) (m, v float64)) (p, h []float64) {
	k, n := a.K, a.X.Rows
	p, h = make([]float64, k*n), make([]float64, k*k*n)
	m, v, pi, hi := make([]float64, k), make([]float64, k), make([]float64, k), make([]float64, k*k)
	for i := range n {
		for c := range k {
			m[c], v[c] = moments(i, c)
		}
		a.Expect(m, v, pi, hi)
		for c, x := range pi {
			p[c*n+i] = x
		}
		for ce, x := range hi {
			h[ce*n+i] = x
		}
	}
	return p, h
}
