package expect

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/fma"
)

// NarrowMost is the largest standard deviation for which LogMean is worth trying.
const NarrowMost = narrow

// logMeanTol is the largest allowed difference of the two rules of LogMean.
const logMeanTol = 1e-12

// LogMean returns log E[exp f(η)] under N(m, s²) for a smooth f. It uses the Gauss-Hermite rules
// with 10 and with 16 nodes. Their errors fall geometrically with the number of nodes, so if they
// agree, the second is far more accurate than the difference. LogMean reports false if they do
// not agree to 1e−12.
func LogMean(f func(eta float64) float64, m, s float64) (value float64, ok bool) {
	few, many := logMean(f, hermite10[:], m, s), logMean(f, hermite16[:], m, s)
	return many, math.Abs(few-many) <= logMeanTol*(1+math.Abs(many))
}

// logMean returns log E[exp f(η)] by one rule.
func logMean(f func(eta float64) float64, rule []fma.Node, m, s float64) float64 {
	var x [2 * len(hermite16)]float64
	top := math.Inf(-1)
	for i, n := range rule {
		a, b := f(m-float64(s*n[0])), f(m+float64(s*n[0]))
		x[2*i], x[2*i+1] = a, b
		top = math.Max(top, math.Max(a, b))
	}
	sum := 0.0
	for i, n := range rule {
		sum += float64(n[1] * (math.Exp(x[2*i]-top) + math.Exp(x[2*i+1]-top)))
	}
	return top + math.Log(sum)
}
