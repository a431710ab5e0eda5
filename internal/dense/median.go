package dense

import "slices"

// Median returns the median of v: the mean of the two in the middle if there are two. v has at
// least one number and no NaN. It reorders v.
func Median(v []float64) float64 {
	half := len(v) / 2
	m := selectAt(v, half)
	if len(v)%2 == 0 {
		m = (slices.Max(v[:half]) + m) / 2
	}
	return m
}

// selectAt puts into v[k] what would be there if v were sorted, nothing greater before it and
// nothing less after (Hoare 1961). There is no NaN in v.
func selectAt(v []float64, k int) float64 {
	for lo, hi := 0, len(v)-1; lo < hi; {
		pivot := v[lo+(hi-lo)/2]
		i, j := lo, hi
		for i <= j {
			for v[i] < pivot {
				i++
			}
			for v[j] > pivot {
				j--
			}
			if i <= j {
				v[i], v[j] = v[j], v[i]
				i++
				j--
			}
		}
		switch {
		case k <= j:
			hi = j
		case k >= i:
			lo = i
		default:
			return v[k]
		}
	}
	return v[k]
}
