package pgsvi

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// division says how a sparse GP sees the terms of its kernel. A term of few features, such as Linear, can be seen whole:
// by one value for each of its weights, which are its values at inputs where one feature alone is not zero. Nothing of
// it is left to a residual variance, whatever the units of the columns. The rest is seen at inducing inputs.
type division struct {
	kernel Kernel
	whole  []wholeTerm // terms that are seen whole
	rest   Kernel      // what is left of the kernel; nil means nothing
	open   bool        // the rest has latent values, and is not noise alone
}

// wholeTerm is a term of a kernel that is seen whole.
type wholeTerm struct {
	kernel Kernel
	term   int // the number of the term of the kernel that it is, or is in
	param  int // the first of its parameters among those of the kernel
	basis  *mat.Dense
}

// undivided returns the division that sees all of k at inducing inputs.
func undivided(k Kernel) division { return division{kernel: k, rest: k, open: true} }

// divided returns the division of k, of inputs of d columns, that sees whole what can be.
func divided(k Kernel, d int) division {
	v, param := division{kernel: k}, 0
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
			v.whole = append(v.whole, wholeTerm{k, max(0, term), from, basis})
			return silent{k}, false
		}
		v.open = v.open || !isType[White](k)
		return k, true
	}
	if rest, some := walk(k, -1); some {
		v.rest = rest
	}
	return v
}

// again returns the division of k, which is the kernel of v with other parameters, that v is.
func (v *division) again(k Kernel) division {
	if len(v.whole) == 0 {
		return undivided(k)
	}
	_, d := v.whole[0].basis.Dims()
	return divided(k, d)
}

// wholes returns the number of values by which terms are seen whole.
func (v *division) wholes() (n int) {
	for _, t := range v.whole {
		r, _ := t.basis.Dims()
		n += r
	}
	return n
}

// restVar returns the prior variances of the rest at the rows of x.
func (v *division) restVar(x *mat.Dense) []float64 {
	if v.rest == nil {
		n, _ := x.Dims()
		return make([]float64, n)
	}
	return PriorVar(nil, v.rest, x)
}

// noise returns the noise of a row, whose variance under the rest is self.
func (v *division) noise(row []float64, self float64) float64 {
	if n, ok := v.rest.(Noisy); ok {
		return n.SelfCov(row) - self
	}
	return 0
}

// inducingPart is a part of the inducing values: those at rows lo … hi−1 of x are values of a term, which has a covariance with
// no others. The first of its parameters is number param of the kernel.
type inducingPart struct {
	kernel                Kernel
	number, lo, hi, param int
}

// parts calls f for the parts of u.
func (u *inducing) parts(f func(p inducingPart)) {
	lo := 0
	for i, t := range u.whole {
		n, _ := t.basis.Dims()
		f(inducingPart{t.kernel, i, lo, lo + n, t.param})
		lo += n
	}
	if m := u.rank(); lo < m {
		f(inducingPart{u.rest, len(u.whole), lo, m, 0})
	}
}

// term returns u for predictions of term i of its kernel, a Sum: the covariances of its values with those of the
// function that the term is.
func (u *inducing) term(i int) *inducing {
	k := sumTerm(u.kernel, i)
	if len(u.whole) == 0 {
		v := undivided(k)
		return &inducing{division: v, x: u.x, l: u.l}
	}
	v := division{kernel: k}
	if u.rest != nil {
		v.rest, v.open = sumTerm(u.rest, i), true
	}
	for _, t := range u.whole {
		if t.term != i {
			t.kernel = silent{t.kernel}
		}
		v.whole = append(v.whole, t)
	}
	return &inducing{division: v, x: u.x, l: u.l}
}

// basisOf returns inputs of d columns at which one feature of k alone is not zero, one for each feature. It is nil
// where k is not known to have such.
func basisOf(k Kernel, d int) *mat.Dense {
	own, _ := asNative(k)
	if isType[Product](k) {
		parts, _ := kernelParts(k)
		product := mat.NewDense(1, d, nil) // that of constants
		for _, factor := range parts {
			switch basis := basisOf(factor, d); {
			case basis == nil:
				return nil
			case mat.Norm(basis, 1) == 0: // a constant
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

// silent stands for a term of a Sum that is seen elsewhere: it has the parameters of the term, and no covariance.
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

func (silent) fill(dst []float64, _ *kernelTile) { clear(dst) }

func (silent) pull(_, _ []float64, _ *kernelTile) {}

func (silent) pullInputs(_, _ []float64, _ *kernelTile, _ []float64) {}

// lostNats returns about how many nats are lost at so many rows if so large a part of each of these variances is, which
// have these costs.
func lostNats(rows int, part float64, variance, cost []float64) float64 {
	sum := 0.0
	for i, c := range cost {
		if lost := part * c * variance[i]; lost > 0 {
			sum += lost
		}
	}
	return math.Min(math.MaxFloat64, sum*float64(rows)/float64(len(cost)))
}
