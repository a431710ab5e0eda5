package beam

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/pgsvi/pgsvi"
)

// testDriver returns the driver and the rounds of a job before its first round.
func testDriver(t *testing.T, job *Job) (*driver, *pgsvi.Rounds[pgsvi.Row, *pgsvi.GLMPosterior]) {
	t.Helper()
	r, err := pgsvi.NewGLMRounds(testCols, pgsvi.BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	j, err := job.filled(rowItems)
	if err != nil {
		t.Fatal(err)
	}
	d, err := newDriver(context.Background(), j, rowItems, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.close() })
	return d, r
}

// TestBlockTwice checks that a repeated element is an error that names its block, in this process
// and on Prism.
func TestBlockTwice(t *testing.T) {
	dir := t.TempDir()
	writeTo(t, filepath.Join(dir, "a"), rowFileOf(t, labels(300), false))
	writeTo(t, filepath.Join(dir, "b"), rowFileOf(t, labels(300), false))
	for _, job := range []*Job{{}, {Run: onPrism}} {
		job.Paths, job.Block, job.Shards = []string{filepath.Join(dir, "*")}, 50, 12
		d, r := testDriver(t, job)
		d.plan = append(d.plan, d.plan[8]) // block 2 of file 1
		var s pgsvi.Shard[pgsvi.Row]
		err := d.round(context.Background(), r.Shard(), &s)
		wantsError(t, err, pgsvi.ErrParam, "block 4294967298 ")
	}
}

// TestOtherParts checks that parts of another round, model or likelihood, and damaged parts, return
// errors that name the difference.
func TestOtherParts(t *testing.T) {
	ctx := context.Background()
	path := writeTo(t, filepath.Join(t.TempDir(), "rows"), rowFileOf(t, labels(300), false))
	d, r := testDriver(t, &Job{Paths: []string{path}, Block: 50, Shards: 6})
	add := &adding{Items: rowItems, Block: 50}
	partOf := func(r *pgsvi.Rounds[pgsvi.Row, *pgsvi.GLMPosterior], k int) []byte {
		state, err := r.Shard().MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		p, err := add.add(ctx, state, d.plan[k])
		if err != nil {
			t.Fatal(err)
		}
		b, err := seal(p)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	merged := func(all ...[]byte) error {
		m := merger{items: rowItems}
		for _, b := range all {
			if err := m.add(b); err != nil {
				return err
			}
		}
		p, err := m.whole()
		if err == nil {
			err = p.err()
		}
		return err
	}
	early := partOf(r, 0)
	var s pgsvi.Shard[pgsvi.Row]
	if err := d.round(ctx, r.Shard(), &s); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Step(&s); err != nil {
		t.Fatal(err)
	}
	late := partOf(r, 1)
	wantsError(t, merged(late, early), pgsvi.ErrParam, "round 0")
	poisson, err := pgsvi.NewGLMRounds(testCols, pgsvi.GaussianNoise{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantsError(t, merged(early, partOf(poisson, 1)), pgsvi.ErrParam, "likelihood")
	if err := merged(late, partOf(r, 2)); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		b := append([]byte(nil), late...)
		b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		if rng.IntN(4) == 0 {
			b = b[:rng.IntN(len(b))]
		}
		if err := merged(b); err == nil {
			t.Fatal("a part that has changed is accepted")
		}
	}
	wantsError(t, merged(late[:20]), pgsvi.ErrFile, "truncated")
	wantsError(t, merged(late[:200]), pgsvi.ErrFile, "checksum")
}

// TestDeal checks that each block is in exactly one element, and that no shard is empty.
func TestDeal(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		var files []blocks
		total := 0
		for i := range 1 + rng.IntN(5) {
			files = append(files, blocks{File: i, To: rng.IntN(20)})
			total += files[i].To
		}
		if total == 0 {
			continue
		}
		shards := 1 + rng.IntN(total)
		all := deal(files, total, shards)
		seen := map[uint64]bool{}
		for _, b := range all {
			if b.To <= b.From {
				t.Fatalf("%+v", b)
			}
			for k := b.From; k < b.To; k++ {
				if seen[b.number(k)] {
					t.Fatalf("block %d of file %d twice", k, b.File)
				}
				seen[b.number(k)] = true
			}
		}
		if len(seen) != total || len(all) < shards || len(all) > shards+len(files) {
			t.Fatalf("%d blocks of %d, %d elements of %d shards", len(seen), total, len(all),
				shards)
		}
	}
}
