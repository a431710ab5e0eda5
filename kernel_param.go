package pgsvi

import (
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/blas/blas64"
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
	pullRows(dst, w []float64, t *kernelTile)
}

// kernelPullRows adds Σ_j w_ij ∂k_ij/∂θ, for each row i of the tile, to row i of dst.
func kernelPullRows(k Kernel, dst, w []float64, t *kernelTile) {
	own, _ := asNative(k)
	if r, ok := own.(rowPuller); ok {
		mark := t.top
		r.pullRows(dst, w, t)
		t.top = mark
		return
	}
	x, m, np := t.x, t.y.Rows, len(dst)/t.x.Rows
	for i := range x.Rows {
		t.x = kernelSlice(x, i, i+1)
		kernelPull(k, dst[i*np:(i+1)*np], w[i*m:(i+1)*m], t)
	}
	t.x = x
}

func (k Iso[P]) pullRows(dst, w []float64, t *kernelTile) {
	r2, rho, slope := t.get(len(w)), t.get(len(w)), t.get(len(w))
	k.lengths().fill(r2, t)
	copy(rho, r2)
	k.Profile.Values(rho)
	k.Profile.Slopes(slope, r2, rho)
	s2, x, m, np := k.variance(), t.x, t.y.Rows, k.numParams()
	s, shaped := shapeOf(k.Profile, &t.profile)
	mark := t.top
	for i := range x.Rows {
		row, lo, hi := dst[i*np:(i+1)*np], i*m, (i+1)*m
		t.x = kernelSlice(x, i, i+1)
		k.lengths().pull(row, w[lo:hi], r2[lo:hi], rho[lo:hi], slope[lo:hi], s2, t)
		t.top = mark
		if shaped {
			s.GradShape(slope[lo:hi], r2[lo:hi], rho[lo:hi])
			for j, g := range slope[lo:hi] {
				row[np-1] += s2 * w[lo+j] * g
			}
		}
	}
	t.x = x
}

func (k Sum) pullRows(dst, w []float64, t *kernelTile) {
	pullParts(k, dst, t, func(int) []float64 { return w })
}

func (k Product) pullRows(dst, w []float64, t *kernelTile) {
	buf, val := t.get(len(w)), t.get(len(w))
	pullParts(k, dst, t, func(f int) []float64 {
		k.timesOthers(buf, w, val, f, t)
		return buf
	})
}

// pullParts is pullRows of a kernel with parts, of which weights returns the weights of a part.
func pullParts(parts []Kernel, dst []float64, t *kernelTile, weights func(part int) []float64) {
	np, from := len(dst)/t.x.Rows, 0
	for f, part := range parts {
		n, w := numParams(part), weights(f)
		mark := t.top
		own := t.get(t.x.Rows * n)
		clear(own)
		kernelPullRows(part, own, w, t)
		for i := range t.x.Rows {
			for p, v := range own[i*n : (i+1)*n] {
				dst[i*np+from+p] += v
			}
		}
		t.top = mark
		from += n
	}
}

// inputPuller is a kernel with derivatives in its inputs.
type inputPuller interface {
	tiled
	// pullInputs is kernelPullInputs.
	pullInputs(dst, w []float64, t *kernelTile, step []float64)
}

// kernelPullInputs adds Σ_j w_ij ∂k(x_i, y_j)/∂x_i, for each row i of the tile, to row i of dst,
// with as many elements as x has columns. Of a kernel without such derivatives they are differences
// of Cov, with the given step in each column.
func kernelPullInputs(k Kernel, dst, w []float64, t *kernelTile, step []float64) {
	own, _ := asNative(k)
	if p, ok := own.(inputPuller); ok {
		mark := t.top
		p.pullInputs(dst, w, t, step)
		t.top = mark
		return
	}
	cols, m := t.x.Cols, t.y.Rows
	at := make([]float64, cols)
	for i := range t.x.Rows {
		copy(at, kernelRow(t.x, i))
		for d, h := range step {
			v := at[d]
			for j, wij := range w[i*m : (i+1)*m] {
				y := kernelRow(t.y, j)
				at[d] = v + h
				up := k.Cov(at, y)
				at[d] = v - h
				dst[i*cols+d] += wij * (up - k.Cov(at, y)) / (2 * h)
			}
			at[d] = v
		}
	}
}

func (k Iso[P]) pullInputs(dst, w []float64, t *kernelTile, _ []float64) {
	r2, rho, slope := t.get(len(w)), t.get(len(w)), t.get(len(w))
	k.lengths().fill(r2, t)
	copy(rho, r2)
	k.Profile.Values(rho)
	k.Profile.Slopes(slope, r2, rho)
	s2, l, cols, m := k.variance(), k.lengths(), t.x.Cols, t.y.Rows
	for i := range t.x.Rows {
		x, sum := kernelRow(t.x, i), dst[i*cols:(i+1)*cols]
		for j, wij := range w[i*m : (i+1)*m] {
			g := s2 * wij * slope[i*m+j]
			for d, v := range kernelRow(t.y, j) {
				length := l.one
				if len(l.each) > 0 {
					length = kernelOne(l.each[d])
				}
				sum[d] -= g * (x[d] - v) / (length * length)
			}
		}
	}
}

func (k Sum) pullInputs(dst, w []float64, t *kernelTile, step []float64) {
	for _, part := range k {
		kernelPullInputs(part, dst, w, t, step)
	}
}

func (k Product) pullInputs(dst, w []float64, t *kernelTile, step []float64) {
	buf, val := t.get(len(w)), t.get(len(w))
	for f, factor := range k {
		k.timesOthers(buf, w, val, f, t)
		kernelPullInputs(factor, dst, buf, t, step)
	}
}

// gramGradMul stores U, with U_ip = Σ_j (∂K_ij/∂θ_p) a_j, row by row in dst, which it makes room in
// and returns: the derivatives of Ka for the training Gram matrix K of the rows of p, noise
// included, in the parameters of Kernel.Grad. The result does not depend on GOMAXPROCS, and is of
// no use where h has stopped.
func gramGradMul(h *parallel.Halt, dst []float64, k Kernel, p *rowPairs, a []float64) []float64 {
	np, raw := numParams(k), p.x.RawMatrix()
	dst = slices.Grow(dst[:0], raw.Rows*np)[:raw.Rows*np]
	clear(dst)
	j := kernelNewJob(k, p.x, p.x)
	loop := parallel.Loop{Halt: h}
	loop.Run((raw.Rows+kernelRows-1)/kernelRows, 1, runtime.GOMAXPROCS(0), parallel.Func(func(_, task, _ int) {
		t := kernelTiles.Get().(*kernelTile)
		t.centre = j.centre
		i0, i1 := task*kernelRows, min((task+1)*kernelRows, raw.Rows)
		t.x = kernelSlice(raw, i0, i1)
		for j0 := 0; j0 < raw.Rows; j0 += kernelCols {
			j1 := min(j0+kernelCols, raw.Rows)
			t.y = kernelSlice(raw, j0, j1)
			t.known(p.r2, raw.Rows, i0, j0)
			w := t.get(t.len())
			for i := range t.x.Rows {
				copy(w[i*t.y.Rows:], a[j0:j1])
				if at := i0 + i - j0; at >= 0 && at < t.y.Rows {
					w[i*t.y.Rows+at] = 0
				}
			}
			kernelPullRows(k, dst[i0*np:i1*np], w, t)
			t.top = 0
		}
		self := t.get(np)
		for i := i0; i < i1; i++ {
			row := kernelRow(raw, i)
			kernelGradSelf(k, self, row, row)
			for p, v := range self {
				dst[i*np+p] += v * a[i]
			}
		}
		t.x, t.y, t.centre = blas64.General{}, blas64.General{}, nil
		t.known(nil, 0, 0, 0)
		t.free()
	}))
	j.free()
	return dst
}

// medianRows is the number of rows from which on the median of their distances is that of a sample,
// every so manyth row.
const medianRows = 5000

// medianDistance returns the median distance of two rows of p, and 1 where that is 0 or there is
// one row.
func medianDistance(p *rowPairs) float64 {
	n, _ := p.x.Dims()
	every := (n + medianRows - 1) / medianRows
	rows := (n + every - 1) / every
	all := make([]float64, 0, rows*(rows-1)/2)
	for i := 0; i < n; i += every {
		if every == 1 && p.r2 != nil {
			all = append(all, p.r2[i*n:i*n+i]...)
			continue
		}
		for j := 0; j < i; j += every {
			all = append(all, lengthScales{one: 1}.dist2(p.x.RawRowView(i), p.x.RawRowView(j)))
		}
	}
	if len(all) == 0 {
		return 1
	}
	m := math.Sqrt(dense.Median(all))
	if !(m > 0) || math.IsInf(m, 0) {
		return 1
	}
	return m
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
