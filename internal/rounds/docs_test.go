package rounds

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/topic"
)

// TestDocs checks that a sample of documents is the least by hash that there is room for, in any
// order and tree, and after it was saved.
func TestDocs(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for trial := range 400 {
		const terms = 30
		n, most, words := 1+rng.IntN(120), 1+rng.IntN(40), 1+rng.IntN(300)
		// a long document ends the sample, and short ones behind it are none of it
		if trial%2 == 0 {
			n, words = 1+rng.IntN(12), 1+rng.IntN(20)
		}
		docs := make([]topic.Doc, n)
		for i := range docs {
			for v, rare := 0, 2+rng.IntN(20); v < terms; v++ {
				if rng.IntN(rare) == 0 {
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

// TestShapes checks that parts of the same ID whose sums have other shapes are not merged.
func TestShapes(t *testing.T) {
	part := func(size int, sums bool) *Part {
		p := &Part{ID: ID{Model: "M"}, Size: size}
		if sums {
			p.Sums = NewSums(size)
		} else {
			p.Docs = NewDocs(3, 5, size)
		}
		return p
	}
	for _, o := range []*Part{part(5, true), part(4, false)} {
		if err := part(4, true).Merge(o); !errors.Is(err, sentinel.ErrParam) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if err := part(4, true).Merge(part(4, true)); err != nil {
		t.Error(err)
	}
}
