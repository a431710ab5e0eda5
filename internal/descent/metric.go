package descent

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/save"
)

// Metric is a running diagonal metric: see pgsvi.Metric.
type Metric interface {
	// Next stores the diagonal after the gradient g and the step size beta in s, and may replace g.
	Next(s, g []float64, beta float64)
	State(c *save.Coder)
}

// AdaGrad returns the metric s_k = √(ε + Σ_{j≤k} g_j²) over n parameters.
func AdaGrad(n int, eps float64) Metric {
	return &rootMeanSquare{old: 1, now: 1, eps: eps, square: make([]float64, n)}
}

// RMSprop returns the metric s_k = √(ε + e_k), e_k = ρe_{k−1} + (1−ρ)g_k².
func RMSprop(n int, rho, eps float64) Metric {
	return &rootMeanSquare{old: rho, now: 1 - rho, eps: eps, square: make([]float64, n)}
}

type rootMeanSquare struct {
	old, now, eps float64
	square        []float64
}

func (r *rootMeanSquare) Next(s, g []float64, _ float64) {
	for i, x := range g {
		r.square[i] = r.old*r.square[i] + r.now*x*x
		s[i] = math.Sqrt(r.square[i] + r.eps)
	}
}

func (r *rootMeanSquare) State(c *save.Coder) { c.Floats(len(r.square), &r.square) }

// Adadelta returns the metric s_k = √(ε + e_k)/√(ε + d_{k−1}) with the e_k of RMSprop and
// d_k = ρd_{k−1} + (1−ρ)(β_k g_k/s_k)².
func Adadelta(n int, rho, eps float64) Metric {
	return &adadelta{rho: rho, eps: eps, square: make([]float64, n), step: make([]float64, n)}
}

type adadelta struct {
	rho, eps     float64
	square, step []float64 // e and d
}

func (a *adadelta) Next(s, g []float64, beta float64) {
	for i, x := range g {
		a.square[i] = a.rho*a.square[i] + (1-a.rho)*x*x
		s[i] = math.Sqrt(a.square[i]+a.eps) / math.Sqrt(a.step[i]+a.eps)
		x *= beta / s[i]
		a.step[i] = a.rho*a.step[i] + (1-a.rho)*x*x
	}
}

func (a *adadelta) State(c *save.Coder) { c.Floats(len(a.square), &a.square, &a.step) }

// Adam returns the metric of running means of gradients, with decay mean, and of their squares,
// with decay square: see pgsvi.Adam.
func Adam(n int, mean, square, eps float64) Metric {
	return &adam{rhoMean: mean, rhoSquare: square, eps: eps, powMean: 1, powSquare: 1,
		mean: make([]float64, n), square: make([]float64, n)}
}

type adam struct {
	rhoMean, rhoSquare, eps float64
	powMean, powSquare      float64 // ρ to the power of the number of steps
	mean, square            []float64
}

func (a *adam) Next(s, g []float64, _ float64) {
	a.powMean *= a.rhoMean
	a.powSquare *= a.rhoSquare
	for i, x := range g {
		a.mean[i] = a.rhoMean*a.mean[i] + (1-a.rhoMean)*x
		a.square[i] = a.rhoSquare*a.square[i] + (1-a.rhoSquare)*x*x
		s[i] = a.eps + math.Sqrt(a.square[i]/(1-a.powSquare))
		g[i] = a.mean[i] / (1 - a.powMean)
	}
}

func (a *adam) State(c *save.Coder) {
	c.Float(&a.powMean, &a.powSquare)
	c.Floats(len(a.mean), &a.mean, &a.square)
}
