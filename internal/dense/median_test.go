package dense

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestMedian compares the median and each selected element with sorted values, including equal
// values.
func TestMedian(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(93, 0))
	for n := 1; n < 40; n++ {
		for _, values := range []int{1, 3, 1000} {
			v := make([]float64, n)
			for i := range v {
				v[i] = float64(rng.IntN(values))
			}
			sorted := slices.Sorted(slices.Values(v))
			for k, want := range sorted {
				got := slices.Clone(v)
				if Select(got, k) != want || slices.Max(got[:k+1]) != want ||
					slices.Min(got[k:]) != want {
					t.Fatalf("element %d of %v: %v", k, v, got)
				}
			}
			if want := (sorted[(n-1)/2] + sorted[n/2]) / 2; Median(slices.Clone(v)) != want {
				t.Fatalf("the median of %v: %v, not %v", v, Median(slices.Clone(v)), want)
			}
		}
	}
}
