package pgsvi

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/gram"
	"gonum.org/v1/gonum/mat"
)

// paramKind is what a hyper-parameter does, which decides its start and its default prior.
type paramKind int

const (
	otherParam    paramKind = iota // starts where it is
	scaleParam                     // the standard deviation of the latent function
	lengthParam                    // a distance at which it changes
	offsetParam                    // the standard deviation of an offset
	weightParam                    // the standard deviation of the weight of a column
	noiseParam                     // the standard deviation of noise
	relativeParam                  // a number without units, about 1
	periodParam                    // a period, to which the fit is sensitive
)

// amplitude reports whether it is a standard deviation of latent values.
func (k paramKind) amplitude() bool {
	return k == scaleParam || k == offsetParam || k == weightParam || k == noiseParam
}

// paramRole is what is known of a hyper-parameter of a kernel beyond its Param.
type paramRole struct {
	kind   paramKind
	column int  // that it is of; −1 for all
	unset  bool // its field is zero
	held   bool // it would only repeat another one
	// weights of columns are beside it, whose lines it takes from the origin to the rows
	beside bool
}

// roled is a kernel that knows the roles of its parameters.
type roled interface {
	native
	// roles are those of Params, in that order.
	roles() []paramRole
}

// kernelRoles returns the roles of the parameters of k.
func kernelRoles(k Kernel) []paramRole {
	own, _ := asNative(k)
	if r, ok := own.(roled); ok {
		return r.roles()
	}
	roles := make([]paramRole, len(k.Params()))
	for i := range roles {
		roles[i].column = -1
	}
	return roles
}

// scaleRoles are those of scaleParams.
func scaleRoles(kind paramKind, one float64, list []float64) []paramRole {
	if len(list) == 0 {
		return []paramRole{{kind: kind, column: -1, unset: one == 0}}
	}
	roles := make([]paramRole, len(list))
	for d, v := range list {
		roles[d] = paramRole{kind: kind, column: d, unset: v == 0}
	}
	return roles
}

func (k Iso[P]) roles() []paramRole {
	roles := append(scaleRoles(scaleParam, k.Scale, nil), scaleRoles(lengthParam, k.Length, k.Lengths)...)
	if len(roles) < k.numParams() {
		roles = append(roles, paramRole{kind: relativeParam, column: -1})
	}
	return roles
}

func (k Periodic) roles() []paramRole {
	return []paramRole{
		{kind: scaleParam, column: -1, unset: k.Scale == 0},
		{kind: relativeParam, column: -1, unset: k.Length == 0},
		{kind: periodParam, column: -1, unset: k.Period == 0},
	}
}

func (k Linear) roles() []paramRole { return scaleRoles(weightParam, k.Scale, k.Scales) }

func (k Constant) roles() []paramRole { return scaleRoles(offsetParam, k.Scale, nil) }

func (k White) roles() []paramRole { return scaleRoles(noiseParam, k.Scale, nil) }

func (k Sum) roles() (roles []paramRole) {
	for _, part := range k {
		roles = append(roles, kernelRoles(part)...)
	}
	weights := slices.ContainsFunc(roles, func(r paramRole) bool { return r.kind == weightParam })
	for i := range roles {
		roles[i].beside = weights
	}
	return roles
}

// roles: of the scales only the product matters, and those of the factors after the first that are
// not set stay at 1.
func (k Product) roles() (roles []paramRole) {
	for i, part := range k {
		for _, r := range kernelRoles(part) {
			if r.kind == offsetParam { // as a factor
				r.kind = scaleParam
			}
			r.held = r.held || i > 0 && r.kind == scaleParam && r.unset
			roles = append(roles, r)
		}
	}
	return roles
}

// rowPuller is a kernel that sums the derivatives of a tile row by row, faster than a row at a
// time.
type rowPuller interface {
	tiled
	// pullRows is pull of each row of the tile, into a row of dst.
	pullRows(dst, w []float64, t *gram.Tile)
}

// kernelPullRows adds Σ_j w_ij ∂k_ij/∂θ, for each row i of the tile, to row i of dst.
func kernelPullRows(k Kernel, dst, w []float64, t *gram.Tile) {
	own, _ := asNative(k)
	if r, ok := own.(rowPuller); ok {
		mark := t.Mark()
		r.pullRows(dst, w, t)
		t.Release(mark)
		return
	}
	m, np := t.Y.Rows, len(dst)/t.X.Rows
	t.EachRow(func(i int) { kernelPull(k, dst[i*np:(i+1)*np], w[i*m:(i+1)*m], t) })
}

// PullRows implements gram.Kernel.
func (k kernelView) PullRows(dst, w []float64, t *gram.Tile) {
	kernelPullRows(k.Kernel, dst, w, t)
}

func (k Sum) pullRows(dst, w []float64, t *gram.Tile) {
	pullParts(k, dst, t, func(int) []float64 { return w })
}

func (k Product) pullRows(dst, w []float64, t *gram.Tile) {
	buf, val := t.Get(len(w)), t.Get(len(w))
	pullParts(k, dst, t, func(f int) []float64 {
		k.timesOthers(buf, w, val, f, t)
		return buf
	})
}

// pullParts is pullRows of a kernel with parts, of which weights returns the weights of a part.
func pullParts(parts []Kernel, dst []float64, t *gram.Tile, weights func(part int) []float64) {
	np, from := len(dst)/t.X.Rows, 0
	for f, part := range parts {
		n, w := numParams(part), weights(f)
		mark := t.Mark()
		own := t.Get(t.X.Rows * n)
		clear(own)
		kernelPullRows(part, own, w, t)
		for i := range t.X.Rows {
			for p, v := range own[i*n : (i+1)*n] {
				dst[i*np+from+p] += v
			}
		}
		t.Release(mark)
		from += n
	}
}

// inputPuller is a kernel with derivatives in its inputs.
type inputPuller interface {
	tiled
	// pullInputs is kernelPullInputs.
	pullInputs(dst, w []float64, t *gram.Tile, step []float64)
}

// kernelPullInputs adds Σ_j w_ij ∂k(x_i, y_j)/∂x_i, for each row i of the tile, to row i of dst,
// with as many elements as x has columns. Of a kernel without such derivatives they are differences
// of Cov, with the given step in each column.
func kernelPullInputs(k Kernel, dst, w []float64, t *gram.Tile, step []float64) {
	own, _ := asNative(k)
	if p, ok := own.(inputPuller); ok {
		mark := t.Mark()
		p.pullInputs(dst, w, t, step)
		t.Release(mark)
		return
	}
	cols, m := t.X.Cols, t.Y.Rows
	at := make([]float64, cols)
	for i := range t.X.Rows {
		copy(at, gram.Row(t.X, i))
		for d, h := range step {
			v := at[d]
			for j, wij := range w[i*m : (i+1)*m] {
				y := gram.Row(t.Y, j)
				at[d] = v + h
				up := k.Cov(at, y)
				at[d] = v - h
				dst[i*cols+d] += wij * (up - k.Cov(at, y)) / (2 * h)
			}
			at[d] = v
		}
	}
}

func (k Sum) pullInputs(dst, w []float64, t *gram.Tile, step []float64) {
	for _, part := range k {
		kernelPullInputs(part, dst, w, t, step)
	}
}

func (k Product) pullInputs(dst, w []float64, t *gram.Tile, step []float64) {
	buf, val := t.Get(len(w)), t.Get(len(w))
	for f, factor := range k {
		k.timesOthers(buf, w, val, f, t)
		kernelPullInputs(factor, dst, buf, t, step)
	}
}

// diffKernel is a kernel whose Grad has no derivatives: differences of Cov stand in.
type diffKernel struct{ Kernel }

// diffStep is the step in θ, see Param, of the differences, which are of fourth order: their error
// is about the rounding of Cov divided by it.
const diffStep = 1e-3

// Grad implements Kernel.
func (k diffKernel) Grad(dst, x, y []float64) float64 {
	differences(dst, k.Kernel, diffStep, func(k Kernel) float64 { return k.Cov(x, y) })
	return k.Cov(x, y)
}

// SelfCov implements Noisy.
func (k diffKernel) SelfCov(x []float64) float64 { return kernelSelf(k.Kernel, x) }

// GradSelf implements Noisy.
func (k diffKernel) GradSelf(dst, x []float64) float64 {
	differences(dst, k.Kernel, diffStep, func(k Kernel) float64 { return kernelSelf(k, x) })
	return k.SelfCov(x)
}

// WithParams implements Kernel.
func (k diffKernel) WithParams(values []float64) Kernel {
	return diffKernel{k.Kernel.WithParams(values)}
}

// differences stores the derivatives of f in the parameters of k, as those of Kernel.Grad, in dst,
// by steps of size h.
func differences(dst []float64, k Kernel, h float64, f func(Kernel) float64) {
	params := k.Params()
	values := make([]float64, len(params))
	for i, p := range params {
		values[i] = p.Value
	}
	for i, p := range params {
		at := func(h float64) float64 {
			values[i] = p.moved(h)
			return f(k.WithParams(values))
		}
		dst[i] = (8*(at(h)-at(-h)) - (at(2*h) - at(-2*h))) / (12 * h) / p.slope()
		values[i] = p.Value
	}
}

// The derivatives of a kernel are looked at in so many pairs of rows, and must agree with
// differences to that, relative to the largest of them all.
const (
	checkedPairs   = 8
	checkedSlope   = 1e-3
	kernelUnproven = "pgsvi: %s: Grad gives %v for the derivative in %s at rows %d and %d, and differences of Cov %v; mend it, or store NaN for Learn to take differences: %w"
)

// derivable returns k as a kernel that has derivatives: k itself, or with differences in place of
// those parts whose Grad stores NaN, which are named. The error wraps ErrParam and names a
// derivative that is wrong.
func derivable(k Kernel, x *mat.Dense) (Kernel, []string, error) {
	if parts, ok := kernelParts(k); ok {
		var names []string
		out := make([]Kernel, len(parts))
		for i, part := range parts {
			d, n, err := derivable(part, x)
			if err != nil {
				return nil, nil, err
			}
			out[i] = d
			for _, name := range n {
				names = append(names, fmt.Sprintf("[%d].%s", i, name))
			}
		}
		if len(names) == 0 {
			return k, nil, nil
		}
		if isType[Sum](k) {
			return Sum(out), names, nil
		}
		return Product(out), names, nil
	}
	if _, own := asNative(k); own {
		if _, iso := k.(profiled); !iso { // a Profile may be the caller's
			return k, nil, nil
		}
	}
	rows, _ := x.Dims()
	params := k.Params()
	got, want, again := make([]float64, len(params)), make([]float64, len(params)), make([]float64, len(params))
	for pair := range checkedPairs {
		i, j := pair*(rows-1)/checkedPairs, (pair+1)*(rows-1)/checkedPairs
		a, b := x.RawRowView(i), x.RawRowView(j)
		cov := k.Grad(got, a, b)
		if slices.ContainsFunc(got, math.IsNaN) {
			return diffKernel{k}, []string{kernelName(k)}, nil
		}
		cov2 := func(k Kernel) float64 { return k.Cov(a, b) }
		differences(want, k, diffStep, cov2)
		differences(again, k, diffStep/8, cov2)
		size := math.Abs(cov) + math.Sqrt(math.Abs(k.Cov(a, a)*k.Cov(b, b)))
		for p, g := range got {
			size = max(size, math.Abs(g))
			// steps of either size are short enough
			known := math.Abs(again[p]-want[p]) <= 0.1*checkedSlope*size
			if known && math.Abs(g-want[p]) > checkedSlope*size {
				return nil, nil, fmt.Errorf(kernelUnproven, kernelName(k), g, params[p].Name, i, j, want[p], ErrParam)
			}
		}
	}
	return k, nil, nil
}
