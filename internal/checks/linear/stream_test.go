package linear

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/testkit"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// Documents cannot be removed, and errors have their number.
func TestCTMStreamErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, err := NewCTMStream(5, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AddAll(ctx, kit.Documents(kit.SmallCorpus())); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveAll(ctx, kit.Documents(kit.SmallCorpus())); !errors.Is(err,
		errors.ErrUnsupported) ||
		!testkit.PrefixedOnce(err) || s.Len() != 3 {
		t.Errorf("%v, %d documents", err, s.Len())
	}
	for i, c := range []struct {
		d    Document
		want error
	}{
		{Document{Words: []int{5}, Counts: []float64{1}}, ErrShape},
		{Document{Words: []int{1, 0}, Counts: []float64{1, 1}}, ErrShape},
		{Document{Words: []int{1}, Counts: nil}, ErrShape},
		{Document{Words: []int{1}, Counts: []float64{-1}}, ErrParam},
		{Document{Words: []int{1}, Counts: []float64{math.Inf(1)}}, ErrNotFinite},
	} {
		if err := s.Add(c.d); !errors.Is(err, c.want) || !testkit.PrefixedOnce(err) ||
			!strings.Contains(err.Error(), fmt.Sprintf("document %d ", 3+i)) {
			t.Errorf("%+v: %v, want %v", c.d, err, c.want)
		}
	}
	if s.Len() != 3 {
		t.Errorf("%d documents, want the 3 good ones", s.Len())
	}
	failure := errors.New("broken pipe")
	broken := func(yield func(Document, error) bool) {
		_ = yield(Document{}, nil) &&
			yield(Document{}, failure)
	}
	if err := s.AddAll(ctx, broken); err != failure || s.Len() != 4 {
		t.Errorf("%v, %d documents", err, s.Len())
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.AddAll(canceled,
		iter.Seq2[Document, error](kit.Documents(kit.SmallCorpus()))); !errors.Is(
		err, context.Canceled) || s.Len() != 4 {
		t.Errorf("%v, %d documents", err, s.Len())
	}
}
