package graph

import (
	"errors"
	"fmt"
	"math"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// Draw stores T(z) of a draw from q in t, for the copies that begin at the given elements of μ.
type Draw func(t []float64, starts []int)

const (
	mostRows  = 100  // rows of a factor whose derivatives are tested
	drawnRows = 10   // rows that are tested by draws
	draws     = 2000 // draws per row
	mostErr   = 6    // standard errors between a mean over draws and the value
)

// Test compares the kernels of f and its parts at μ with differences and with draws. It returns
// the first mistake of each kernel.
func Test(f Factor, mu []float64, draw Draw) error {
	var errs []error
	for _, p := range f.Parts() {
		errs = append(errs, Test(p, mu, draw))
	}
	if p, ok := f.(*Plain); ok {
		errs = append(errs, p.test(mu, draw))
	}
	return errors.Join(errs...)
}

func (f *Plain) test(mu []float64, draw Draw) (err error) {
	row := 0
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("factor %s, row %d: panic: %v: %w", f.name, row,
				parallel.Caught(r).Value, sentinel.ErrPanic)
		}
	}()
	if err := errors.Join(checkTerms(f, mu)...); err != nil {
		return err
	}
	w := f.Work(1).(*plainWork)
	out := []float64{0}
	step := (f.rows + mostRows - 1) / mostRows
	for row = 0; row < f.rows; row += step {
		w.Value(out, mu, []int{row})
		if !finiteNumber(out[0]) {
			return fmt.Errorf("factor %s, row %d: the value is %v%s: %w", f.name, row, out[0],
				missing(f, mu, row), sentinel.ErrParam)
		}
		if err := w.slopesAgree(row); err != nil {
			return fmt.Errorf("factor %s, row %d: %w", f.name, row, err)
		}
	}
	step = (f.rows + drawnRows - 1) / drawnRows
	for row = 0; row < f.rows; row += step {
		if err := w.drawsAgree(mu, row, draw); err != nil {
			return fmt.Errorf("factor %s, row %d: %w", f.name, row, err)
		}
	}
	return nil
}

// purity is a Kernel that can test whether its functions depend only on their arguments.
type purity interface {
	pure(row int, m []*Moments) error
}

// pure returns an error if Of changes its argument or has another value when called again.
func (k *Custom[P]) pure(row int, m []*Moments) error {
	p := make([]P, len(m))
	k.row(p, m, 0)
	first := k.Of(row, p)
	for j := range p {
		x := point(p[j])
		for c, v := range [...]float64{x.Mean, x.Square, x.Log} {
			if math.Float64bits(v) != math.Float64bits(*m[j].row0()[c]) {
				return fmt.Errorf("the value function changes the moments of term %d: %w", j,
					sentinel.ErrParam)
			}
		}
	}
	if again := k.Of(row, p); again != first {
		return fmt.Errorf("the value is %v and then %v for the same moments: %w", first, again,
			sentinel.ErrParam)
	}
	return nil
}

// straight is a Kernel that may require a value that is affine in the moments of each term.
type straight interface{ affine() bool }

// affine reports whether the kernel requires a value that is affine in the moments of each term.
func (k *Custom[P]) affine() bool { return k.Slope == nil }

// slopesAgree compares the derivatives at the loaded moments of a row with differences.
func (w *plainWork) slopesAgree(row int) error {
	rows := []int{row}
	if k, ok := w.kernel.(purity); ok {
		if err := k.pure(row, w.m); err != nil {
			return err
		}
	}
	k, ok := w.kernel.(straight)
	affine := ok && k.affine()
	w.slopes(rows)
	v := w.out[0]
	out := []float64{0}
	for i, t := range w.terms {
		if IsKnown(t) {
			continue
		}
		d := w.d[i].row0()
		for c, p := range w.m[i].row0() {
			x := *p
			if math.IsNaN(x) {
				continue
			}
			h := 1e-4 * (1e-2 + math.Abs(x))
			if affine {
				h = 0.3 * (1 + math.Abs(x))
			}
			value := func(k float64) float64 {
				*p = x + k*h
				w.kernel.Density(out, rows, w.m)
				*p = x
				return out[0]
			}
			a, b, c1, c2 := value(1), value(-1), value(2), value(-2)
			want, got := (8*(a-b)-(c1-c2))/(12*h), *d[c]
			name := momentNames[c] + " of " + w.names[i]
			if affine && math.Abs(a-2*v+b) > 1e-9*(1+math.Abs(v)+math.Abs(a)+math.Abs(b)) {
				return fmt.Errorf("the value is not affine in %s; give NewFactor a gradient: %w",
					name,
					sentinel.ErrParam)
			}
			if tol := 1e-6*(1+math.Abs(want)) + 1e-11*math.Abs(v)/h; !(math.Abs(got-want) <= tol) {
				return fmt.Errorf("the derivative with respect to %s is %v, but differences "+
					"give %v: %w",
					name, got, want, sentinel.ErrParam)
			}
		}
	}
	return nil
}

// drawsAgree compares the value of a row with the mean of the values at draws, where terms are
// known numbers and the value must be log f. The value may not be above the mean, as neither
// E[log f] nor a lower bound is.
func (w *plainWork) drawsAgree(mu []float64, row int, draw Draw) error {
	rows, out := []int{row}, []float64{0}
	w.Value(out, mu, rows)
	v := out[0]
	var starts []int
	for _, t := range w.terms {
		touch(t, row, func(s int) { starts = append(starts, s) })
	}
	if len(starts) == 0 {
		return nil
	}
	t := append([]float64(nil), mu...)
	var mean, square float64
	for n := 1; n <= draws; n++ {
		draw(t, starts)
		w.Value(out, t, rows)
		if math.IsNaN(out[0]) {
			return fmt.Errorf("the value is NaN for known numbers, at a draw from q: %w",
				sentinel.ErrParam)
		}
		d := out[0] - mean
		mean += d / float64(n)
		square += d * (out[0] - mean)
	}
	stderr := math.Sqrt(square) / draws
	if v > mean+mostErr*stderr+1e-9*(1+math.Abs(v)) {
		return fmt.Errorf("the value is %.6g, but its mean over draws from q is %.6g ± %.2g; "+
			"it is neither "+
			"E[log f] nor a lower bound: %w", v, mean, stderr, sentinel.ErrParam)
	}
	return nil
}
