package sparse

import (
	"slices"
	"testing"
)

// Stages of a part of the rows are in the sample, which of wide rows has fewer than the first.
func TestStages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rows, sample int
		want         []int
	}{
		{1_000_000, SampleRows, []int{firstStage, SampleRows, 1_000_000}},
		{100_000, SampleRows, []int{firstStage, 25_000, 100_000}},
		{6010, sampleOf(8000), []int{1000, 6010}},
		{200_000, sampleOf(2700), []int{2961, 200_000}},
		{1500, sampleOf(8000), []int{1500}},
		{500, 500, []int{500}},
	} {
		if got := stagesOf(c.rows, c.sample); !slices.Equal(got, c.want) {
			t.Errorf("%d rows, of which %d are kept: stages %v, want %v", c.rows, c.sample, got,
				c.want)
		}
	}
}
