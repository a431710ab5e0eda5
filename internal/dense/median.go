package dense

import (
	"cmp"
	"slices"
)

// Median returns the median of v, or the mean of the two middle numbers. The slice must have at
// least one number and no NaN. Median reorders v.
func Median(v []float64) float64 {
	half := len(v) / 2
	m := Select(v, half)
	if len(v)%2 == 0 {
		m = (slices.Max(v[:half]) + m) / 2
	}
	return m
}

// WeightedMedian returns the median of v, where v[i] counts weights[i] times. Nil weights are 1.
// WeightedMedian may reorder v.
func WeightedMedian(v, weights []float64) float64 {
	if weights == nil {
		return Median(v)
	}
	order := make([]int, len(v))
	total := 0.0
	for i, w := range weights {
		order[i] = i
		total += w
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(v[a], v[b]) })
	sum, lower, found := 0.0, 0.0, false
	for _, i := range order {
		sum += weights[i]
		if !found && 2*sum >= total && weights[i] > 0 {
			lower, found = v[i], true
		}
		if 2*sum > total {
			return (lower + v[i]) / 2
		}
	}
	return lower
}

// Select moves the element of rank k to v[k], and returns it (Hoare 1961). No earlier element is
// larger, and no later element is smaller. The slice must not contain NaN.
func Select(v []float64, k int) float64 {
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
