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
		{1_000_000, SampleRows, []int{firstStage, mostStage, 1_000_000}},
		{100_000, SampleRows, []int{firstStage, 20_000, 100_000}},
		{22_500, 22_500, []int{firstStage, 4500, 22_500}},
		{22_000, 22_000, []int{firstStage, 22_000}},
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
