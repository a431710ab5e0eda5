// Package score measures how well predictions agree with responses: means with standard errors,
// AUC, R², differences of two models, and calibration. The root package calls it for
// Prediction.Scores, Calibration, CompareLOO and PredictiveCheck.
package score

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/mathext"
)

// MeanVariance returns the mean and the sample variance of x. Both are +Inf if x contains +Inf.
func MeanVariance(x []float64) (mean, variance float64) {
	var squares float64
	for i, v := range x { // West (1979)
		d := v - mean
		mean += d / float64(i+1)
		squares += d * (v - mean)
	}
	if slices.ContainsFunc(x, func(v float64) bool { return math.IsInf(v, 1) }) {
		return math.Inf(1), math.Inf(1)
	}
	if len(x) < 2 {
		return mean, math.Inf(1)
	}
	return mean, squares / float64(len(x)-1)
}

// StandardError returns the standard error of a mean of n values with this variance.
func StandardError(variance float64, n int) float64 { return math.Sqrt(variance / float64(n)) }

// AUC returns the probability that a value of up is larger than a value of down, where ties count
// half, and its standard error. The error comes from the variance over up, and over down, of the
// fraction of the other values that are smaller (DeLong, DeLong and Clarke-Pearson 1988). AUC
// sorts both slices.
func AUC(up, down []float64) (value, se float64) {
	slices.Sort(up)
	slices.Sort(down)
	shares := func(of, among []float64) []float64 { // fraction of smaller values
		share := make([]float64, len(of))
		less, most := 0, 0 // counts of smaller values, and of values that are not larger
		for i, x := range of {
			for less < len(among) && among[less] < x {
				less++
			}
			for most < len(among) && among[most] <= x {
				most++
			}
			share[i] = float64(less+most) / 2 / float64(len(among))
		}
		return share
	}
	value, v1 := MeanVariance(shares(up, down))
	_, v0 := MeanVariance(shares(down, up))
	return value, math.Sqrt(v1/float64(len(up)) + v0/float64(len(down)))
}

// Indicator returns 1 if b is true and 0 otherwise.
func Indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// RMSE returns the root of the mean of the given squares, and its standard error by the delta
// method.
func RMSE(squares []float64) (rmse, se float64) {
	mse, v := MeanVariance(squares)
	if rmse = math.Sqrt(mse); rmse > 0 {
		se = StandardError(v, len(squares)) / (2 * rmse)
	}
	return rmse, se
}

// R2 returns 1 − Σ squares/Σ(y − ȳ)² and its standard error by the delta method. It reports false
// if all y are equal.
func R2(y, squares []float64) (r2, se float64, ok bool) {
	n := len(y)
	mse, _ := MeanVariance(squares)
	mean, spread := MeanVariance(y)
	if !(n > 1 && spread > 0) {
		return 0, 0, false
	}
	spread *= float64(n-1) / float64(n)
	r2 = 1 - mse/spread
	influence := make([]float64, n)
	for i, yi := range y {
		influence[i] = (squares[i] - (1-r2)*(yi-mean)*(yi-mean)) / spread
	}
	_, v := MeanVariance(influence)
	return r2, StandardError(v, n), true
}

// Difference returns the weighted sum Σ w_n (a_n − b_n) with w_n = weight(n), and its standard
// error. It leaves out the observations at the sorted indices skip. The standard error is +Inf
// unless the weights add up to more than 1.
func Difference(a, b []float64, skip []int, weight func(n int) float64) (diff, se float64) {
	var sum, mean, squares float64 // West (1979)
	for n, l := range a {
		if _, found := slices.BinarySearch(skip, n); found {
			continue
		}
		w, x := weight(n), l-b[n]
		sum += w
		diff += w * x
		delta := x - mean
		mean += delta * w / sum
		squares += w * delta * (x - mean)
	}
	if se = math.Inf(1); sum > 1 {
		se = math.Sqrt(math.Max(0, sum*squares/(sum-1)))
	}
	return diff, se
}

// A Bin groups rows with similar predicted probabilities of the label +1, like
// pgsvi.CalibrationBin.
type Bin struct {
	Rows      int
	Predicted float64
	Observed  float64
	Lo, Hi    float64
}

// Calibrate compares the probabilities of +1 with the labels y. It sorts rows by probability and
// cuts them into bins of about equal size, where rows of equal probability share a bin. It
// returns the bins and the miscalibration Σ_b n_b KL(observed_b‖predicted_b)/n in nats per row.
// The last result is the miscalibration that a calibrated model has by chance.
func Calibrate(rows []int, prob, y, weight []float64, bins int) (found []Bin, nats,
	chance float64) {
	slices.SortStableFunc(rows, func(a, b int) int { return cmp.Compare(prob[a], prob[b]) })
	bins = min(bins, len(rows))
	var all float64
	for b, lo := 0, 0; lo < len(rows); b++ {
		hi := max(lo+1, (b+1)*len(rows)/bins)
		for hi < len(rows) && prob[rows[hi]] == prob[rows[hi-1]] {
			hi++
		}
		bin, n, gap := newBin(rows[lo:hi], prob, y, weight)
		found = append(found, bin)
		nats += n * gap
		all += n
		lo = hi
		for b+2 < bins && (b+2)*len(rows)/bins <= lo {
			b++ // skip the bins that ties have filled
		}
	}
	nats /= all
	return found, nats, float64(len(found)) / (2 * all)
}

// newBin returns a bin of the given rows, the sum of their weights, and KL(observed‖predicted).
func newBin(rows []int, prob, y, weight []float64) (bin Bin, n, nats float64) {
	var yes, sum float64
	for _, i := range rows {
		n += weight[i]
		sum += weight[i] * prob[i]
		if y[i] > 0 {
			yes += weight[i]
		}
	}
	bin = Bin{Rows: len(rows), Predicted: sum / n, Observed: yes / n, Hi: 1}
	const tail = 0.025
	if yes > 0 {
		bin.Lo = mathext.InvRegIncBeta(yes+0.5, n-yes+0.5, tail)
	}
	if yes < n {
		bin.Hi = mathext.InvRegIncBeta(yes+0.5, n-yes+0.5, 1-tail)
	}
	term := func(o, p float64) float64 {
		if o <= 0 {
			return 0
		}
		return o * math.Log(o/p)
	}
	nats = math.Max(0, term(bin.Observed, bin.Predicted)+term(1-bin.Observed, 1-bin.Predicted))
	return bin, n, nats
}
