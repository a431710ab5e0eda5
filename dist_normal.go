package pgsvi

// normal is what the two kinds of Gaussian do in their own way: *fullGaussian and
// *diagonalGaussian. Gradients with respect to V have length numGradV: a full d×d
// matrix, of which the symmetric part counts, or the diagonal.
type normal interface {
	Coordinates() Coordinates
	Dim() int
	NumParams() int
	Params(dst []float64) []float64
	SetParams(lambda []float64) error
	LogProb(z []float64) float64
	Score(dst, z []float64) []float64
	Natural(dst []float64) []float64
	SetNatural(eta []float64) error
	MeanParams(dst []float64) []float64
	SetMeanParams(mu []float64) error
	LogPartition() float64
	MeanGrad(dst, grad []float64) []float64
	FromMeanGrad(dst, grad []float64) []float64
	FromNaturalGrad(dst, grad []float64) []float64
	Chart(dst []float64) []float64
	SetChart(x []float64) error
	ChartGrad(dst, grad []float64) []float64

	// in returns a copy in the coordinates c.
	in(c Coordinates) normal
	// setForm makes it the distribution p, in its own coordinates, without the rounding
	// of λ. It reports false and changes nothing if p is of the other kind or another dimension.
	setForm(p normal) bool
	mean() []float64 // not a copy
	meanAt(i int) float64
	covAt(i, j int) float64
	precisionAt(i, j int) float64
	mulPrecision(dst, x []float64)
	logDetV() float64
	numGradV() int
	// setPrecision replaces q by N(m, V) with V⁻¹ = p, of length numGradV,
	// under the contract of SetParams.
	setPrecision(m, p []float64) error
	fromMomentGrad(dst, gm, gv []float64) []float64
	toMomentGrad(gm, gv, grad []float64)
	// marginal returns the mean and the variance of xᵀz.
	marginal(x []float64) (m, v float64)
	// addOuter adds c·uwᵀ, and addPrecision c·V⁻¹, to a gradient with respect to V.
	addOuter(gv []float64, c float64, u, w []float64)
	addPrecision(gv []float64, c float64)
	// transform replaces a standard normal ε by a draw z; standardize stores V⁻¹(z − m) in dst.
	transform(eps []float64)
	standardize(dst, eps []float64)
}

const log2Pi = 1.8378770664093454835606594728112352797227949472755668 // log 2π
