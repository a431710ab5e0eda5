package pgsvi

import (
	"fmt"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/gram"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

var (
	_ = registerParts[Sum]("pgsvi.Sum")
	_ = registerParts[Product]("pgsvi.Product")
)

// registerParts registers a composite kernel, like Register.
func registerParts[K Sum | Product](name string) struct{} {
	parts := func(v any) (parts []any) {
		for _, k := range v.(K) {
			parts = append(parts, k)
		}
		return parts
	}
	join := func(parts []any) (any, error) {
		ks := make(K, len(parts))
		for i, p := range parts {
			k, ok := p.(Kernel)
			if !ok {
				return nil, fmt.Errorf("part %d of %s is a %T, which is not a Kernel", i, name, p)
			}
			ks[i] = k
		}
		return ks, nil
	}
	registerComposite(name, K(nil), parts, join)
	return struct{}{}
}

// Sum is the kernel k(x, x′) = Σ_i k_i(x, x′), the covariance function of a sum of independent
// functions, such as a trend and a season. Its parameters are the parameters of its terms, in
// order. It must not be empty.
type Sum []Kernel

// Cov implements Kernel.
func (k Sum) Cov(x, y []float64) float64 {
	gram.MustLen(y, len(x))
	var val float64
	for _, term := range k {
		val += term.Cov(x, y)
	}
	return val
}

// Params implements Kernel.
func (k Sum) Params() []Param { return partParams(k) }

// WithParams implements Kernel.
func (k Sum) WithParams(values []float64) Kernel { return Sum(partsWith(k, values)) }

// Grad implements Kernel.
func (k Sum) Grad(dst, x, y []float64) float64 { return k.grad(dst, x, y, Kernel.Grad) }

// SelfCov is the optional method of Kernel. It returns the sum of the diagonal elements of the terms.
func (k Sum) SelfCov(x []float64) float64 {
	var val float64
	for _, term := range k {
		val += kernelSelf(term, x)
	}
	return val
}

// GradSelf is the optional method of Kernel.
func (k Sum) GradSelf(dst, x []float64) float64 { return k.grad(dst, x, x, kernelGradSelf) }

// Dim returns the Dim of the first term that has one.
func (k Sum) Dim() int { return partsDim(k) }

func (k Sum) grad(dst, x, y []float64,
	grad func(term Kernel, dst, x, y []float64) float64) float64 {
	gram.MustLen(dst, k.numParams())
	var val float64
	for _, term := range k {
		n := numParams(term)
		val += grad(term, dst[:n:n], x, y)
		dst = dst[n:]
	}
	return val
}

func (Sum) is(k Kernel) bool { return isType[Sum](k) }

func (k Sum) numParams() int { return partsNum(k) }

func (k Sum) parts() []Kernel { return k }

func (k Sum) fill(dst []float64, t *gram.Tile) {
	clear(dst)
	buf := t.Get(len(dst))
	for _, term := range k {
		kernelFill(term, buf, t)
		for i, v := range buf {
			dst[i] += v
		}
	}
}

func (k Sum) pull(dst, w []float64, t *gram.Tile) {
	for _, term := range k {
		n := numParams(term)
		kernelPull(term, dst[:n:n], w, t)
		dst = dst[n:]
	}
}

// Product is the kernel k(x, x′) = Π_i k_i(x, x′), which is also a covariance function (Schur
// 1911). Its parameters are the parameters of its factors, in order. It must not be empty.
type Product []Kernel

// Cov implements Kernel.
func (k Product) Cov(x, y []float64) float64 {
	gram.MustLen(y, len(x))
	val := 1.0
	for _, factor := range k {
		val *= factor.Cov(x, y)
	}
	return val
}

// Params implements Kernel.
func (k Product) Params() []Param { return partParams(k) }

// WithParams implements Kernel.
func (k Product) WithParams(values []float64) Kernel { return Product(partsWith(k, values)) }

// Grad implements Kernel.
func (k Product) Grad(dst, x, y []float64) float64 { return k.grad(dst, x, y, Kernel.Grad) }

// SelfCov is the optional method of Kernel. It returns the product of the diagonal elements of the factors.
func (k Product) SelfCov(x []float64) float64 {
	val := 1.0
	for _, factor := range k {
		val *= kernelSelf(factor, x)
	}
	return val
}

// GradSelf is the optional method of Kernel.
func (k Product) GradSelf(dst, x []float64) float64 { return k.grad(dst, x, x, kernelGradSelf) }

// Dim returns the Dim of the first factor that has one.
func (k Product) Dim() int { return partsDim(k) }

// grad applies the product rule without a division: it multiplies the derivatives of each factor by
// the factors before it and after it.
func (k Product) grad(dst, x, y []float64,
	grad func(factor Kernel, dst, x, y []float64) float64) float64 {
	gram.MustLen(dst, k.numParams())
	val, end := 1.0, 0
	for _, factor := range k {
		n := numParams(factor)
		own := dst[end : end+n : end+n]
		v := grad(factor, own, x, y)
		for p := range own {
			own[p] *= val
		}
		for p := range end {
			dst[p] *= v
		}
		val *= v
		end += n
	}
	return val
}

func (Product) is(k Kernel) bool { return isType[Product](k) }

func (k Product) numParams() int { return partsNum(k) }

func (k Product) parts() []Kernel { return k }

func (k Product) fill(dst []float64, t *gram.Tile) {
	for i := range dst {
		dst[i] = 1
	}
	buf := t.Get(len(dst))
	for _, factor := range k {
		kernelFill(factor, buf, t)
		for i, v := range buf {
			dst[i] *= v
		}
	}
}

func (k Product) pull(dst, w []float64, t *gram.Tile) {
	buf, val := t.Get(len(w)), t.Get(len(w))
	for f, factor := range k {
		k.timesOthers(buf, w, val, f, t)
		n := numParams(factor)
		kernelPull(factor, dst[:n:n], buf, t)
		dst = dst[n:]
	}
}

// timesOthers stores in dst the weights w times every factor of the tile except factor f. val is
// working memory.
func (k Product) timesOthers(dst, w, val []float64, f int, t *gram.Tile) {
	copy(dst, w)
	for g, other := range k {
		if g == f {
			continue
		}
		kernelFill(other, val, t)
		for i, v := range val {
			dst[i] *= v
		}
	}
}

// On is the kernel k(x_c, x′_c), where x_c holds the given Columns of x, in that order ("active
// dimensions"). A function of time and place with a season is
//
//	Sum{On{Kernel: Periodic{}, Columns: []int{0}}, On{Kernel: Matern32{}, Columns: []int{1, 2}}}
//
// Lists inside Kernel, such as Lengths, have one element for each of Columns. Columns must be
// distinct columns of the data; nil means all columns. The parameters are the parameters of Kernel,
// in order.
type On struct {
	Kernel  Kernel
	Columns []int
}

// columns is the saved form of the Columns of an On.
type columns []int

var _ = builtin{"pgsvi.columns": columns(nil)}.register()

var _ = registerOn()

// registerOn registers On, which is saved as its Kernel and its Columns.
func registerOn() struct{} {
	parts := func(v any) []any { return []any{v.(On).Kernel, columns(v.(On).Columns)} }
	registerComposite("pgsvi.On", On{}, parts, func(parts []any) (any, error) {
		if len(parts) != 2 {
			return nil, fmt.Errorf("an On has %d parts instead of a kernel and its columns",
				len(parts))
		}
		k, isKernel := parts[0].(Kernel)
		c, isColumns := parts[1].(columns)
		if !isKernel || !isColumns {
			return nil, fmt.Errorf("an On has a %T and a %T instead of a kernel and its columns",
				parts[0], parts[1])
		}
		return On{Kernel: k, Columns: c}, nil
	})
	return struct{}{}
}

// asOn returns k as an On. It returns false if k only embeds one.
func asOn(k Kernel) (On, bool) {
	own, _ := asNative(k)
	switch k := own.(type) {
	case On:
		return k, true
	case *On:
		return *k, true
	}
	return On{}, false
}

// compound reports whether k, or the kernel that an On applies, is a Sum or Product.
func compound(k Kernel) bool {
	if on, ok := asOn(k); ok {
		return compound(on.Kernel)
	}
	_, ok := kernelParts(k)
	return ok
}

// check returns an error that wraps ErrParam unless Kernel is set and Columns is nil or holds
// distinct columns of d.
func (k On) check(name string, d int) error {
	if isNil(k.Kernel) {
		return fmt.Errorf("pgsvi: %s.Kernel is nil; set it to the kernel of these columns: %w",
			name,
			ErrParam)
	}
	ok := k.Columns == nil || len(k.Columns) > 0
	for i, c := range k.Columns {
		ok = ok && c >= 0 && c < d && !slices.Contains(k.Columns[:i], c)
	}
	if !ok {
		return fmt.Errorf("pgsvi: %s.Columns are %v; they must be distinct and from 0 to %d, the "+
			"last column of the data: %w", name, k.Columns, d-1, ErrParam)
	}
	return nil
}

// width returns the number of columns that Kernel gets if the data have d columns.
func (k On) width(d int) int {
	if k.Columns == nil {
		return d
	}
	return len(k.Columns)
}

// row stores the Columns of x in memory of t. It returns x itself if they are nil.
func (k On) row(t *gram.Tile, x []float64) []float64 {
	if k.Columns == nil {
		return x
	}
	to := t.Get(len(k.Columns))
	for i, c := range k.Columns {
		to[i] = x[c]
	}
	return to
}

// rows stores the Columns of x in memory of t.
func (k On) rows(t *gram.Tile, x blas64.General) blas64.General {
	n := len(k.Columns)
	to := blas64.General{Rows: x.Rows, Cols: n, Stride: n, Data: t.Get(x.Rows * n)}
	for i := range x.Rows {
		row := gram.Row(x, i)
		for j, c := range k.Columns {
			to.Data[i*n+j] = row[c]
		}
	}
	return to
}

// matrix returns the Columns of x.
func (k On) matrix(x *mat.Dense) *mat.Dense {
	if k.Columns == nil {
		return x
	}
	return columnsOf(x, k.Columns)
}

// columnsOf returns the given columns of x.
func columnsOf(x *mat.Dense, columns []int) *mat.Dense {
	n, _ := x.Dims()
	to := mat.NewDense(n, len(columns), nil)
	for j, c := range columns {
		to.SetCol(j, mat.Col(nil, c, x))
	}
	return to
}

// tile calls f with the tile for the Columns of t.
func (k On) tile(t *gram.Tile, f func(t *gram.Tile)) {
	if k.Columns == nil {
		f(t)
		return
	}
	own := gram.Take()
	own.X, own.Y = k.rows(t, t.X), k.rows(t, t.Y)
	if t.Centre != nil {
		own.Centre = k.row(t, t.Centre)
	}
	f(own)
	own.Free()
}

// Cov implements Kernel.
func (k On) Cov(x, y []float64) float64 {
	gram.MustLen(y, len(x))
	t := gram.Take()
	val := k.Kernel.Cov(k.row(t, x), k.row(t, y))
	t.Free()
	return val
}

// Params implements Kernel.
func (k On) Params() []Param {
	params, of := slices.Clone(k.Kernel.Params()), kernelName(k.Kernel)
	for i := range params {
		params[i].Name = paramName(of, params[i].Name)
	}
	return params
}

// WithParams implements Kernel.
func (k On) WithParams(values []float64) Kernel {
	return On{Kernel: k.Kernel.WithParams(values), Columns: k.Columns}
}

// Grad implements Kernel.
func (k On) Grad(dst, x, y []float64) float64 {
	gram.MustLen(y, len(x))
	t := gram.Take()
	val := k.Kernel.Grad(dst, k.row(t, x), k.row(t, y))
	t.Free()
	return val
}

// SelfCov is the optional method of Kernel.
func (k On) SelfCov(x []float64) float64 {
	t := gram.Take()
	val := kernelSelf(k.Kernel, k.row(t, x))
	t.Free()
	return val
}

// GradSelf is the optional method of Kernel.
func (k On) GradSelf(dst, x []float64) float64 {
	t := gram.Take()
	val := kernelGradSelf(k.Kernel, dst, k.row(t, x), nil)
	t.Free()
	return val
}

// Dim returns the number of columns that Kernel fixes if Columns is nil, and 0 otherwise.
func (k On) Dim() int {
	if f, ok := k.Kernel.(dimensional); ok && k.Columns == nil {
		return f.Dim()
	}
	return 0
}

// inner implements columned.
func (k On) inner() Kernel { return k.Kernel }

func (On) is(k Kernel) bool { return isType[On](k) }

func (k On) numParams() int { return numParams(k.Kernel) }

func (k On) fill(dst []float64, t *gram.Tile) {
	k.tile(t, func(t *gram.Tile) { kernelFill(k.Kernel, dst, t) })
}

func (k On) pull(dst, w []float64, t *gram.Tile) {
	k.tile(t, func(t *gram.Tile) { kernelPull(k.Kernel, dst, w, t) })
}

func (k On) pullRows(dst, w []float64, t *gram.Tile) {
	k.tile(t, func(t *gram.Tile) { kernelPullRows(k.Kernel, dst, w, t) })
}

func (k On) pullInputs(dst, w []float64, t *gram.Tile, step []float64) {
	if k.Columns == nil {
		kernelPullInputs(k.Kernel, dst, w, t, step)
		return
	}
	n := len(k.Columns)
	own := t.Get(t.X.Rows * n)
	clear(own)
	steps := k.row(t, step)
	k.tile(t, func(t *gram.Tile) { kernelPullInputs(k.Kernel, own, w, t, steps) })
	for i := range t.X.Rows {
		for j, c := range k.Columns {
			dst[i*t.X.Cols+c] += own[i*n+j]
		}
	}
}

// basis returns the basisOf of Kernel, scattered over d columns.
func (k On) basis(d int) *mat.Dense {
	own := basisOf(k.Kernel, k.width(d))
	if own == nil || k.Columns == nil {
		return own
	}
	n, _ := own.Dims()
	all := mat.NewDense(n, d, nil)
	for j, c := range k.Columns {
		all.SetCol(c, mat.Col(nil, j, own))
	}
	return all
}

// basisOf returns inputs with d columns, one for each feature of k, at which only that feature is
// nonzero. It returns nil if k is not known to have such inputs.
func basisOf(k Kernel, d int) *mat.Dense {
	if on, ok := asOn(k); ok {
		return on.basis(d)
	}
	own, _ := asNative(k)
	if isType[Product](k) {
		parts, _ := kernelParts(k)
		product := mat.NewDense(1, d, nil) // the basis of a constant
		for _, factor := range parts {
			switch basis := basisOf(factor, d); {
			case basis == nil:
				return nil
			case mat.Norm(basis, 1) == 0: // the part is a constant
			case mat.Norm(product, 1) > 0:
				return nil // products of features
			default:
				product = basis
			}
		}
		return product
	}
	f, ok := own.(featured)
	if !ok {
		return nil
	}
	at := f.basis(d)
	return mat.NewDense(len(at)/d, d, at)
}

// roles implements roled. If Kernel contains an On, its columns index the Columns of k.
func (k On) roles() []paramRole {
	roles := slices.Clone(kernelRoles(k.Kernel))
	for i := range roles {
		r := &roles[i]
		switch {
		case k.Columns == nil:
		case r.columns == nil:
			r.columns = k.Columns
		default:
			inner := r.columns
			r.columns = make([]int, len(inner))
			for j, c := range inner {
				r.columns[j] = k.Columns[c]
			}
		}
	}
	return roles
}

func partParams(parts []Kernel) []Param {
	var all []Param
	for i, k := range parts {
		of := fmt.Sprintf("[%d].%s", i, kernelName(k))
		for _, p := range k.Params() {
			p.Name = paramName(of, p.Name)
			all = append(all, p)
		}
	}
	return all
}

func partsWith(parts []Kernel, values []float64) []Kernel {
	gram.MustLen(values, partsNum(parts))
	out := make([]Kernel, len(parts))
	for i, k := range parts {
		n := numParams(k)
		out[i] = k.WithParams(values[:n:n])
		values = values[n:]
	}
	return out
}

func partsNum(parts []Kernel) int {
	n := 0
	for _, k := range parts {
		n += numParams(k)
	}
	return n
}

func partsDim(parts []Kernel) int {
	for _, k := range parts {
		if f, ok := k.(dimensional); ok && f.Dim() != 0 {
			return f.Dim()
		}
	}
	return 0
}

var _ = builtin{
	"pgsvi.Linear":   Linear{},
	"pgsvi.Constant": Constant{},
	"pgsvi.White":    White{},
}.register()

// featured is a kernel k(x, x′) = φ(x)ᵀφ(x′) with few features: a linear model in them, with
// weights N(0, I).
type featured interface {
	Kernel
	// features appends φ(x) to dst.
	features(dst, x []float64) []float64
	// basis returns one input with d columns for each feature, one after the other, at which only
	// that feature is nonzero.
	basis(d int) []float64
}

// Linear is the kernel of linear regression without an intercept (add a Constant for an intercept),
//
//	k(x, x′) = Σ_d s_d² x_d x′_d.
//
// s_d is Scale, or Scales[d] if Scales is set, which then replaces Scale. s_d is the prior
// standard deviation of the weight of feature d. Zero fields and elements mean 1. The parameters
// are Scale, or Scale[d] for each of Scales.
//
// In a Sum with a Constant it is the linear trend β_0 + βᵀx of a Gaussian process, with β ~ N(0,
// diag(s_0², …, s_D²)) integrated out. Predictions far from the data follow the trend. GP.Learn
// learns its scales, and GPPosterior.Part returns its coefficients.
type Linear struct {
	Scale  float64
	Scales []float64
}

// scale returns s_d.
func (k Linear) scale(d int) float64 {
	if len(k.Scales) == 0 {
		return gram.One(k.Scale)
	}
	return gram.One(k.Scales[d])
}

// Cov implements Kernel.
func (k Linear) Cov(x, y []float64) float64 {
	gram.MustLen(y, len(x))
	if len(k.Scales) > 0 {
		gram.MustLen(k.Scales, len(x))
	}
	var sum float64
	for d, v := range x {
		s := k.scale(d)
		sum += (s * v) * (s * y[d])
	}
	return sum
}

// Params implements Kernel.
func (k Linear) Params() []Param { return scaleParams("Scale", k.Scale, k.Scales) }

// WithParams implements Kernel.
func (k Linear) WithParams(values []float64) Kernel {
	gram.MustLen(values, k.numParams())
	k.Scale, k.Scales = withScales(k.Scale, k.Scales, values)
	return k
}

// Grad implements Kernel.
func (k Linear) Grad(dst, x, y []float64) float64 {
	gram.MustLen(dst, k.numParams())
	val := k.Cov(x, y)
	if len(k.Scales) == 0 {
		dst[0] = 2 * val
		return val
	}
	for d, v := range x {
		s := k.scale(d)
		dst[d] = 2 * (s * v) * (s * y[d])
	}
	return val
}

// Dim returns the number of Scales.
func (k Linear) Dim() int { return len(k.Scales) }

// features implements featured.
func (k Linear) features(dst, x []float64) []float64 {
	for d, v := range x {
		dst = append(dst, k.scale(d)*v)
	}
	return dst
}

// basis implements featured.
func (Linear) basis(d int) []float64 {
	at := make([]float64, d*d)
	for j := range d {
		at[j*d+j] = 1
	}
	return at
}

func (Linear) is(k Kernel) bool { return isType[Linear](k) }

func (k Linear) numParams() int { return max(1, len(k.Scales)) }

// fill stores the covariances in the same order of operations as Cov.
func (k Linear) fill(dst []float64, t *gram.Tile) {
	gram.Products(dst, t, k.scale)
}

func (k Linear) pull(dst, w []float64, t *gram.Tile) { pullPairs(k, dst, w, t) }

// White is the kernel of independent noise with standard deviation Scale; zero means 1. Its
// parameter is Scale.
//
// Its SelfCov adds Scale² to the diagonal of the training Gram matrix. It is zero
// everywhere else: between equal training rows, between training and test rows, and in the prior
// variance at new points. Therefore predictions describe the latent function without noise. Inside
// a Product it restricts the other factors to the diagonal.
type White struct {
	Scale float64
}

// Cov implements Kernel. It returns 0.
func (k White) Cov(x, y []float64) float64 {
	gram.MustLen(y, len(x))
	return 0
}

// Params implements Kernel.
func (k White) Params() []Param { return Constant(k).Params() }

// WithParams implements Kernel.
func (k White) WithParams(values []float64) Kernel {
	gram.MustLen(values, 1)
	return White{Scale: values[0]}
}

// Grad implements Kernel. It stores zeros and returns 0.
func (k White) Grad(dst, x, y []float64) float64 {
	gram.MustLen(dst, 1)
	dst[0] = 0
	return k.Cov(x, y)
}

// SelfCov is the optional method of Kernel. It returns Scale².
func (k White) SelfCov(x []float64) float64 { return Constant(k).Cov(x, x) }

// GradSelf is the optional method of Kernel.
func (k White) GradSelf(dst, x []float64) float64 { return Constant(k).Grad(dst, x, x) }

func (White) is(k Kernel) bool { return isType[White](k) }

func (White) numParams() int { return 1 }

func (White) fill(dst []float64, _ *gram.Tile) { clear(dst) }

func (White) pull(_, _ []float64, _ *gram.Tile) {}

// paramKind is the role of a hyperparameter, which determines its start and its default prior.
type paramKind int

const (
	otherParam    paramKind = iota // starts at its value
	scaleParam                     // standard deviation of the latent function
	lengthParam                    // distance over which the latent function changes
	offsetParam                    // standard deviation of an offset
	weightParam                    // standard deviation of the weight of a column
	noiseParam                     // standard deviation of noise
	relativeParam                  // number without units, about 1
	periodParam                    // period, to which the fit is sensitive
)

// amplitude reports whether the parameter is a standard deviation of latent values.
func (k paramKind) amplitude() bool {
	return k == scaleParam || k == offsetParam || k == weightParam || k == noiseParam
}

// paramRole describes a hyperparameter of a kernel beyond its Param.
type paramRole struct {
	kind   paramKind
	column int // column of the parameter; −1 for all columns
	// columns of the data that the kernel gets, which column indexes; nil means all columns
	columns []int
	unset   bool // its field is zero
	held    bool // fixed, because it would only repeat another parameter
	// there are also weights of columns, whose lines the offset moves from the origin to the rows
	beside bool
}

// roled is a kernel that returns the roles of its parameters.
type roled interface {
	native
	// roles returns the roles of Params, in that order.
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

// scaleRoles returns the roles of scaleParams.
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
	roles := append(scaleRoles(scaleParam, k.Scale, nil),
		scaleRoles(lengthParam, k.Length, k.Lengths)...)
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

// roles implements roled. Only the product of the scales matters, so the scales of the factors
// after the first stay at 1 unless they are set.
func (k Product) roles() (roles []paramRole) {
	for i, part := range k {
		for _, r := range kernelRoles(part) {
			if r.kind == offsetParam { // a factor of the product
				r.kind = scaleParam
			}
			r.held = r.held || i > 0 && r.kind == scaleParam && r.unset
			roles = append(roles, r)
		}
	}
	return roles
}

// rowPuller is a kernel that sums the derivatives for all rows of a tile at once, which is faster
// than pull for each row.
type rowPuller interface {
	tiled
	// pullRows is pull for each row of the tile, into the corresponding row of dst.
	pullRows(dst, w []float64, t *gram.Tile)
}

// kernelPullRows adds Σ_j w_ij ∂k_ij/∂θ to row i of dst, for each row i of the tile.
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

// pullParts is pullRows for a kernel with parts. weights returns the weights of a part.
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

// inputPuller is a kernel with derivatives with respect to its inputs.
type inputPuller interface {
	tiled
	// pullInputs is kernelPullInputs for this kernel.
	pullInputs(dst, w []float64, t *gram.Tile, step []float64)
}

// kernelPullInputs adds Σ_j w_ij ∂k(x_i, y_j)/∂x_i to row i of dst, for each row i of the tile.
// Each row has one element per column of x. For a kernel without such derivatives it uses
// differences of Cov, with the given step in each column.
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

// diffKernel is a kernel whose Grad has no derivatives. It uses differences of Cov instead.
type diffKernel struct{ Kernel }

// diffStep is the step in θ (see Param) of the differences. They are of fourth order, and their
// error is about the rounding error of Cov divided by diffStep.
const diffStep = 1e-3

// Grad implements Kernel.
func (k diffKernel) Grad(dst, x, y []float64) float64 {
	differences(dst, k.Kernel, diffStep, func(k Kernel) float64 { return k.Cov(x, y) })
	return k.Cov(x, y)
}

// SelfCov is the optional method of Kernel.
func (k diffKernel) SelfCov(x []float64) float64 { return kernelSelf(k.Kernel, x) }

// GradSelf is the optional method of Kernel.
func (k diffKernel) GradSelf(dst, x []float64) float64 {
	differences(dst, k.Kernel, diffStep, func(k Kernel) float64 { return kernelSelf(k, x) })
	return k.SelfCov(x)
}

// WithParams implements Kernel.
func (k diffKernel) WithParams(values []float64) Kernel {
	return diffKernel{k.Kernel.WithParams(values)}
}

// differences stores the derivatives of f with respect to the parameters of k in dst, like
// Kernel.Grad, using steps of size h.
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

// derivable compares the derivatives of a kernel with differences in checkedPairs pairs of rows.
// They must agree to checkedSlope, relative to the largest derivative.
const (
	checkedPairs   = 8
	checkedSlope   = 1e-3
	kernelUnproven = "pgsvi: %s: Grad returns %v for the derivative in %s at rows %d and %d, but " +
		"differences of Cov give %v; fix Grad, or store NaN to use differences: %w"
)

// derivable returns a kernel with the derivatives of k. The result is k itself, or a copy in which
// differences replace every part whose Grad stores NaN; derivable also returns the names of these
// parts. If a derivative is wrong, the error names it and wraps ErrParam.
func derivable(k Kernel, x *mat.Dense) (Kernel, []string, error) {
	if on, ok := asOn(k); ok {
		d, names, err := derivable(on.Kernel, on.matrix(x))
		if len(names) == 0 || err != nil {
			return k, nil, err
		}
		return On{Kernel: d, Columns: on.Columns}, []string{kernelName(k)}, nil
	}
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
		if _, iso := k.(profiled); !iso { // a Profile may be custom
			return k, nil, nil
		}
	}
	rows, _ := x.Dims()
	params := k.Params()
	got, want, again := make([]float64, len(params)), make([]float64, len(params)),
		make([]float64, len(params))
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
				return nil, nil, fmt.Errorf(kernelUnproven, kernelName(k), g, params[p].Name, i, j,
					want[p], ErrParam)
			}
		}
	}
	return k, nil, nil
}
