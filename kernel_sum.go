package pgsvi

import "fmt"

var (
	_ = registerParts[Sum]("pgsvi.Sum")
	_ = registerParts[Product]("pgsvi.Product")
)

// registerParts is Register of a composite kernel.
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
				return nil, fmt.Errorf("part %d of %s is a %T and no Kernel", i, name, p)
			}
			ks[i] = k
		}
		return ks, nil
	}
	registerComposite(name, K(nil), parts, join)
	return struct{}{}
}

// Sum is k(x, x′) = Σ_i k_i(x, x′), the covariance function of a sum of
// independent functions. Its parameters are those of its terms, in order. It
// must not be empty.
type Sum []Kernel

// Cov implements Kernel.
func (k Sum) Cov(x, y []float64) float64 {
	kernelLen(y, len(x))
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

// SelfCov implements Noisy: the sum of the terms' own diagonals.
func (k Sum) SelfCov(x []float64) float64 {
	var val float64
	for _, term := range k {
		val += kernelSelf(term, x)
	}
	return val
}

// GradSelf implements Noisy.
func (k Sum) GradSelf(dst, x []float64) float64 { return k.grad(dst, x, x, kernelGradSelf) }

// Dim implements Dimensional: that of the first term that fixes it.
func (k Sum) Dim() int { return partsDim(k) }

func (k Sum) grad(dst, x, y []float64, grad func(term Kernel, dst, x, y []float64) float64) float64 {
	kernelLen(dst, k.numParams())
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

func (k Sum) fill(dst []float64, t *kernelTile) {
	clear(dst)
	buf := t.get(len(dst))
	for _, term := range k {
		kernelFill(term, buf, t)
		for i, v := range buf {
			dst[i] += v
		}
	}
}

func (k Sum) pull(dst, w []float64, t *kernelTile) {
	for _, term := range k {
		n := numParams(term)
		kernelPull(term, dst[:n:n], w, t)
		dst = dst[n:]
	}
}

// Product is k(x, x′) = Π_i k_i(x, x′), which is again a covariance function
// (Schur 1911). Its parameters are those of its factors, in order. It must not
// be empty.
type Product []Kernel

// Cov implements Kernel.
func (k Product) Cov(x, y []float64) float64 {
	kernelLen(y, len(x))
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

// SelfCov implements Noisy: the product of the factors' own diagonals.
func (k Product) SelfCov(x []float64) float64 {
	val := 1.0
	for _, factor := range k {
		val *= kernelSelf(factor, x)
	}
	return val
}

// GradSelf implements Noisy.
func (k Product) GradSelf(dst, x []float64) float64 { return k.grad(dst, x, x, kernelGradSelf) }

// Dim implements Dimensional: that of the first factor that fixes it.
func (k Product) Dim() int { return partsDim(k) }

// grad is the product rule without a division: each factor's derivatives are
// multiplied by the factors before it and those after it.
func (k Product) grad(dst, x, y []float64, grad func(factor Kernel, dst, x, y []float64) float64) float64 {
	kernelLen(dst, k.numParams())
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

func (k Product) fill(dst []float64, t *kernelTile) {
	for i := range dst {
		dst[i] = 1
	}
	buf := t.get(len(dst))
	for _, factor := range k {
		kernelFill(factor, buf, t)
		for i, v := range buf {
			dst[i] *= v
		}
	}
}

func (k Product) pull(dst, w []float64, t *kernelTile) {
	buf, val := t.get(len(w)), t.get(len(w))
	for f, factor := range k {
		k.timesOthers(buf, w, val, f, t)
		n := numParams(factor)
		kernelPull(factor, dst[:n:n], buf, t)
		dst = dst[n:]
	}
}

// timesOthers stores in dst the weights w times every factor of the tile but factor f, with val to work in.
func (k Product) timesOthers(dst, w, val []float64, f int, t *kernelTile) {
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
	kernelLen(values, partsNum(parts))
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
		if f, ok := k.(Dimensional); ok && f.Dim() != 0 {
			return f.Dim()
		}
	}
	return 0
}
