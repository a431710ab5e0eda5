package rounds

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/topic"
)

// TestDocs checks that a sample of documents is the least by hash that there is room for, in any
// order and tree, and after it was saved.
func TestDocs(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 200 {
		const terms = 30
		n, most, words := 1+rng.IntN(120), 1+rng.IntN(40), 1+rng.IntN(300)
		docs := make([]topic.Doc, n)
		for i := range docs {
			for v := range terms {
				if rng.IntN(6) == 0 {
					docs[i].Words = append(docs[i].Words, v)
					docs[i].Counts = append(docs[i].Counts, float64(1+i))
				}
			}
		}
		order := rng.Perm(n)
		by := slices.Clone(order)
		slices.SortFunc(by, func(a, b int) int {
			return keyOf(uint64(a/9),
				uint64(a%9)).compare(keyOf(uint64(b/9), uint64(b%9)))
		})
		var want []topic.Doc
		held := 0
		for _, i := range by {
			if len(docs[i].Words) == 0 {
				continue
			}
			if held += len(docs[i].Words); len(want) == most || len(want) > 0 && held > words {
				break
			}
			want = append(want, docs[i])
		}
		parts := make([]*Docs, 1+rng.IntN(6))
		for i := range parts {
			parts[i] = NewDocs(most, words, terms)
		}
		for _, i := range order {
			parts[rng.IntN(len(parts))].Add(uint64(i/9), uint64(i%9), docs[i])
		}
		for len(parts) > 1 {
			i := rng.IntN(len(parts) - 1)
			b, err := save.Marshal(parts[i+1].State)
			if err != nil {
				t.Fatal(err)
			}
			back := NewDocs(most, words, terms)
			if err := save.Unmarshal(b, back.State); err != nil {
				t.Fatal(err)
			}
			parts[i].Merge(back)
			parts = slices.Delete(parts, i+1, i+2)
		}
		if got := parts[0].All(); len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got,
			want) {
			t.Fatalf("%d documents, want %d", len(got), len(want))
		}
	}
}
