package pgsvi

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expect"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/predict"
	"github.com/pgsvi/pgsvi/internal/score"
)

// classRow is what is predicted of the classes of a row.
type classRow struct {
	pi, d2 []float64 // E π_c and E π_c(1 − π_c)
	lse    float64   // E log Σ e^η
}

// classes calls f with what is predicted of each row of a Softmax, or NaN where it has no
// prediction. Rows are shared between goroutines; f has calls for different rows at once.
func (p *Prediction) classes(f func(i int, r *classRow)) {
	k := latentsOf(p.lik)
	chunk := max(1, predictBlock/k)
	parallel.For(p.Len(), chunk, runtime.GOMAXPROCS(0), func(_, lo, hi int) {
		r := &classRow{pi: make([]float64, k), d2: make([]float64, k)}
		for i := lo; i < hi; i++ {
			if p.rowErr(i) != nil || p.err != nil {
				fillNaN(r.pi)
				fillNaN(r.d2)
				r.lse = math.NaN()
			} else {
				r.lse, _ = expect.SoftmaxExpect(p.m[i*k:(i+1)*k], p.v[i*k:(i+1)*k], r.pi, r.d2)
			}
			f(i, r)
		}
	})
}

// logProb returns log E π_c, of scores with the means m. Where π_c underflows it is the bound
// E log π_c.
func (r *classRow) logProb(c int, m []float64) float64 {
	return math.Max(math.Log(r.pi[c]), m[c]-r.lse)
}

// rowErr returns why row i has no prediction, nil where it has one.
func (p *Prediction) rowErr(i int) error {
	k := latentsOf(p.lik)
	for j := i * k; j < (i+1)*k; j++ {
		if err := checkLatent(p.m[j], p.v[j]); err != nil {
			return err
		}
	}
	return nil
}

// ProbSD stores, for each row, the posterior standard deviation of the probability p(y|η) of the
// response y, whose mean is Prob: what more data like those of the fit would take away. It is NaN
// where Prob is, and accurate to about 1e-7. It panics if the Likelihood has densities instead of
// probabilities.
func (p *Prediction) ProbSD(dst []float64, y float64) []float64 {
	facts := factsOf(p.lik)
	if !facts.discrete() {
		panic(fmt.Sprintf("pgsvi: ProbSD needs probabilities, and %s has a density on %s; use Quantile",
			typeName(p.lik), facts.Support.describe(0)))
	}
	dst = dense.Dest(dst, p.Len())
	if latentsOf(p.lik) > 1 {
		if !facts.contain(y) {
			fillNaN(dst)
			return dst
		}
		p.classes(func(i int, r *classRow) {
			q := r.pi[int(y)]
			dst[i] = math.Sqrt(math.Max(0, q*(1-q)-r.d2[int(y)]))
		})
		return dst
	}
	for i := range dst {
		lik := p.likOf(i)
		if dst[i] = math.NaN(); !factsOf(lik).contain(y) || p.err != nil {
			continue
		}
		first, _ := predictiveLogProb(lik, y, p.m[i], p.v[i])
		second, _ := predict.LogProb(squared{lik}, y, p.m[i], p.v[i])
		dst[i] = math.Exp(first) * math.Sqrt(math.Max(0, math.Expm1(second-2*first)))
	}
	return dst
}

// squared has the squares of the probabilities of a Likelihood.
type squared struct{ Likelihood }

func (s squared) LogProb(y, eta float64) float64 { return 2 * s.Likelihood.LogProb(y, eta) }

// classes adds the scores of K classes.
func (m *Scores) classes(p *Prediction, y []float64, errs []error) {
	right, square := make([]float64, p.Len()), make([]float64, p.Len())
	p.classes(func(i int, r *classRow) {
		c := int(y[i])
		most := 0.0
		for j, q := range r.pi {
			square[i] += (q - score.Indicator(j == c)) * (q - score.Indicator(j == c))
			most = math.Max(most, q)
		}
		right[i] = score.Indicator(r.pi[c] == most)
	})
	keep := func(x []float64) (kept []float64) {
		for i, v := range x {
			if errs[i] == nil {
				kept = append(kept, v)
			}
		}
		return kept
	}
	m.add("accuracy", keep(right))
	m.add("Brier", keep(square))
}

// printedClasses is how many classes of a row a Prediction prints.
const printedClasses = 3

// classSentence says a prediction of the classes of one row in words.
func (p *Prediction) classSentence() string {
	var parts []string
	p.classes(func(_ int, r *classRow) {
		order := make([]int, len(r.pi))
		for c := range order {
			order[c] = c
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(r.pi[b], r.pi[a]) })
		for _, c := range order[:min(len(order), printedClasses)] {
			sd := math.Sqrt(math.Max(0, r.pi[c]*(1-r.pi[c])-r.d2[c]))
			parts = append(parts, fmt.Sprintf("class %d: %.2f ± %.2f", c, r.pi[c], sd))
		}
	})
	return strings.Join(parts, ", ")
}
