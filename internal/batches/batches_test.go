package batches

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestApproach checks that the first pass yields each term once, in sorted blocks that double
// from First to Most, and that all terms follow in each later pass. Once Enough terms are done,
// the rest is one block.
func TestApproach(t *testing.T) {
	for _, c := range []struct {
		approach Approach
		want     []int
	}{
		{Approach{First: 10, Most: 100},
			[]int{10, 10, 20, 40, 80, 100, 100, 100, 100, 100, 100, 100, 100, 40}},
		{Approach{First: 10, Most: 100, Enough: 200}, []int{10, 10, 20, 40, 80, 100, 740}},
	} {
		testApproach(t, c.approach, c.want)
	}
}

func testApproach(t *testing.T, a Approach, want []int) {
	t.Helper()
	const n = 1000
	var sizes []int
	seen := make([]int, n)
	for batch := range a.Batches(n, a.First, rand.New(rand.NewPCG(1, 2))) {
		if len(batch) == n {
			break
		}
		sizes = append(sizes, len(batch))
		if !slices.IsSorted(batch) {
			t.Errorf("block %d is not in order", len(sizes))
		}
		for _, i := range batch {
			seen[i]++
		}
	}
	if !slices.Equal(sizes, want) {
		t.Errorf("blocks of %v, want %v", sizes, want)
	}
	for i, k := range seen {
		if k != 1 {
			t.Fatalf("term %d is in %d blocks", i, k)
		}
	}
}
