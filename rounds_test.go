package pgsvi

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/testkit"
)

// travel returns s after saving and loading it.
func travel[R any](t testing.TB, s *Shard[R]) *Shard[R] {
	t.Helper()
	b, err := s.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	u := &Shard[R]{}
	if err := u.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	return u
}

// roundOf returns a round of r on the given number of shards, with blocks assigned and merged at
// random.
func roundOf[R, P any](t testing.TB, r *Rounds[R, P], blocks [][]R, shards int,
	rng *rand.Rand) *Shard[R] {
	t.Helper()
	all := make([]*Shard[R], shards)
	for i := range all {
		all[i] = travel(t, r.Shard())
	}
	for _, b := range rng.Perm(len(blocks)) {
		if err := all[rng.IntN(shards)].Add(context.Background(), uint64(b),
			testkit.Each(blocks[b])); err != nil {
			t.Fatal(err)
		}
	}
	for len(all) > 1 { // any two
		i := rng.IntN(len(all) - 1)
		j := i + 1 + rng.IntN(len(all)-i-1)
		if rng.IntN(2) == 0 {
			all[i], all[j] = all[j], all[i]
		}
		if err := all[i].Merge(travel(t, all[j])); err != nil {
			t.Fatal(err)
		}
		all = append(all[:j], all[j+1:]...)
	}
	return travel(t, all[0])
}
