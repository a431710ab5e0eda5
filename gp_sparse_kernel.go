package pgsvi

import (
	"github.com/pgsvi/pgsvi/internal/gram"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sparse"
)

var _ sparse.Kernel = kernelView{}

// kernelOf returns the view of k that a sparse GP uses, and kernelIn returns the Kernel in a view.
func kernelOf(k Kernel) sparse.Kernel { return kernelView{k} }

func kernelIn(k sparse.Kernel) Kernel { return k.(kernelView).Kernel }

// Chain implements sparse.Kernel.
func (k kernelView) Chain(dst []float64) { chainParams(dst, k.Kernel) }

// Name implements sparse.Kernel.
func (k kernelView) Name() string { return kernelName(k.Kernel) }

// Identify implements sparse.Kernel.
func (k kernelView) Identify(d *save.Digest) { digestValue(d, k.Kernel) }

// PullInputs implements sparse.Kernel.
func (k kernelView) PullInputs(dst, w []float64, t *gram.Tile, step []float64) {
	kernelPullInputs(k.Kernel, dst, w, t, step)
}

// Whole implements sparse.Kernel.
func (k kernelView) Whole(cols int) sparse.Division { return divided(k.Kernel, cols) }

// Shorter implements sparse.Kernel.
func (k kernelView) Shorter(by float64) sparse.Kernel {
	params, roles := k.Params(), kernelRoles(k.Kernel)
	values := make([]float64, len(params))
	for i, p := range params {
		if values[i] = p.Value; roles[i].kind == lengthParam {
			values[i] *= by
		}
	}
	return kernelOf(k.WithParams(values))
}

// divided returns the division of k, for inputs with d columns, that represents every possible term
// exactly.
func divided(k Kernel, d int) sparse.Division {
	v, param := sparse.Division{Kernel: kernelOf(k)}, 0
	var walk func(k Kernel, term int) (rest Kernel, some bool)
	walk = func(k Kernel, term int) (Kernel, bool) {
		if parts, ok := kernelParts(k); ok && isType[Sum](k) {
			rest, some := make(Sum, len(parts)), false
			for i, part := range parts {
				at := term
				if at < 0 {
					at = i
				}
				r, left := walk(part, at)
				rest[i], some = r, some || left
			}
			return rest, some
		}
		from := param
		param += numParams(k)
		if basis := basisOf(k, d); basis != nil {
			v.Whole = append(v.Whole, sparse.Whole{
				Kernel: kernelOf(k), Term: max(0, term), Param: from, Basis: basis})
			return silent{k}, false
		}
		v.Open = v.Open || !isType[White](k)
		return k, true
	}
	if rest, some := walk(k, -1); some {
		v.Rest = kernelOf(rest)
	}
	return v
}

// silent replaces a term of a Sum that is represented elsewhere. It has the parameters of the term
// and covariance 0.
type silent struct{ of Kernel }

// Cov implements Kernel.
func (silent) Cov(x, y []float64) float64 { return 0 }

// Params implements Kernel.
func (k silent) Params() []Param { return k.of.Params() }

// WithParams implements Kernel.
func (k silent) WithParams(values []float64) Kernel { return silent{k.of.WithParams(values)} }

// Grad implements Kernel.
func (k silent) Grad(dst, x, y []float64) float64 {
	clear(dst)
	return 0
}

func (silent) is(k Kernel) bool { return isType[silent](k) }

func (k silent) numParams() int { return numParams(k.of) }

func (silent) fill(dst []float64, _ *gram.Tile) { clear(dst) }

func (silent) pull(_, _ []float64, _ *gram.Tile) {}

func (silent) pullInputs(_, _ []float64, _ *gram.Tile, _ []float64) {}

// termOf returns u for predictions of term i of its kernel, which must be a Sum. The result uses
// the covariances between the values of u and that term alone.
func termOf(u *sparse.Inducing, i int) *sparse.Inducing {
	k := kernelOf(sumTerm(kernelIn(u.Kernel), i))
	if len(u.Whole) == 0 {
		return &sparse.Inducing{Division: sparse.Undivided(k), X: u.X, L: u.L}
	}
	v := sparse.Division{Kernel: k}
	if u.Rest != nil {
		v.Rest, v.Open = kernelOf(sumTerm(kernelIn(u.Rest), i)), true
	}
	for _, t := range u.Whole {
		if t.Term != i {
			t.Kernel = kernelOf(silent{kernelIn(t.Kernel)})
		}
		v.Whole = append(v.Whole, t)
	}
	return &sparse.Inducing{Division: v, X: u.X, L: u.L}
}
