package score

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat"
)

// TestMeans checks means and variances against gonum, and that a value of +Inf makes both
// infinite.
func TestMeans(t *testing.T) {
	x := []float64{3, -1, 4, 1, 5}
	m, v := MeanVariance(x)
	if math.Abs(m-stat.Mean(x, nil)) > 1e-15 || math.Abs(v-stat.Variance(x, nil)) > 1e-14 {
		t.Errorf("mean %v, variance %v", m, v)
	}
	if m, v := MeanVariance([]float64{1, math.Inf(1)}); !math.IsInf(m, 1) || !math.IsInf(v, 1) {
		t.Errorf("mean %v, variance %v of infinite values", m, v)
	}
	if _, v := MeanVariance(x[:1]); !math.IsInf(v, 1) {
		t.Errorf("variance %v of one value", v)
	}
}

// TestAUC checks the AUC against a count of all pairs, including ties.
func TestAUC(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	up, down := make([]float64, 30), make([]float64, 20)
	for i := range up {
		up[i] = float64(rng.IntN(8)) + 2
	}
	for i := range down {
		down[i] = float64(rng.IntN(8))
	}
	var want float64
	for _, u := range up {
		for _, d := range down {
			want += (Indicator(u > d) + Indicator(u == d)/2) / float64(len(up)*len(down))
		}
	}
	if got, se := AUC(up, down); math.Abs(got-want) > 1e-14 || !(se > 0 && se < 0.2) {
		t.Errorf("%v ± %v, want %v", got, se, want)
	}
}

// TestR2 checks that R² is 1 for a perfect prediction, 0 for the mean, and missing if all
// responses are equal.
func TestR2(t *testing.T) {
	y := []float64{1, 2, 4, 9}
	if r2, se, ok := R2(y, make([]float64, 4)); !ok || r2 != 1 || se != 0 {
		t.Errorf("%v ± %v of a perfect prediction", r2, se)
	}
	if r2, _, ok := R2(y, []float64{9, 4, 0, 25}); !ok || math.Abs(r2) > 1e-14 {
		t.Errorf("%v of the mean", r2)
	}
	if _, _, ok := R2([]float64{2, 2}, []float64{1, 0}); ok {
		t.Error("equal responses have an R²")
	}
	if rmse, se := RMSE([]float64{4, 4}); rmse != 2 || se != 0 {
		t.Errorf("RMSE %v ± %v", rmse, se)
	}
}

// TestDifference checks that weight 2 counts as two observations in the sum and in its standard
// error.
func TestDifference(t *testing.T) {
	a, b := []float64{1, 2, 5, 7}, []float64{0, 3, 1, 0}
	w := []float64{1, 2, 1, 1}
	diff, se := Difference(a, b, []int{3}, func(n int) float64 { return w[n] })
	x := []float64{1, -1, -1, 4} // the differences, where −1 has weight 2
	if want := math.Sqrt(4 * stat.Variance(x, nil)); diff != 3 || math.Abs(se-want) > 1e-14 {
		t.Errorf("%v ± %v, want 3 ± %v", diff, se, want)
	}
}

// TestCalibrate checks the bins, the miscalibration and its value by chance, with ties that share
// a bin.
func TestCalibrate(t *testing.T) {
	prob := []float64{0.9, 0.1, 0.1, 0.1, 0.8, 0.9}
	y := []float64{1, -1, -1, 1, 1, 1}
	one := []float64{1, 1, 1, 1, 1, 1}
	bins, nats, chance := Calibrate([]int{0, 1, 2, 3, 4, 5}, prob, y, one, 2)
	if len(bins) != 2 || bins[0].Rows != 3 || bins[1].Rows != 3 {
		t.Fatalf("bins %+v", bins)
	}
	kl := math.Log(1./3/0.1)/3 + 2./3*math.Log(2./3/0.9)
	top := math.Log(3 / 2.6)
	if want := (kl + top) / 2; math.Abs(nats-want) > 1e-14 || math.Abs(chance-2./12) > 1e-15 {
		t.Errorf("%v nats, %v by chance, want %v and 1/6", nats, chance, want)
	}
	if b := bins[1]; b.Hi != 1 || !(b.Lo > 0.2 && b.Lo < 0.6) {
		t.Errorf("interval of three of three: %v to %v", b.Lo, b.Hi)
	}
}
