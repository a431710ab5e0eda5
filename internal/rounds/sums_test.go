package rounds

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/save"
)

// random returns a number of any size, some of them 0 or subnormal.
func random(rng *rand.Rand) float64 {
	switch rng.IntN(8) {
	case 0:
		return 0
	case 1:
		return math.Float64frombits(rng.Uint64() & (1<<52 - 1)) // subnormal
	case 2:
		return math.Float64frombits(rng.Uint64() &^ (1 << 62)) // below 2
	case 3:
		return (rng.Float64() - 0.5) * 1e300
	}
	return rng.NormFloat64() * math.Exp(20*rng.NormFloat64())
}

// TestSumsExact compares sums with the results of 3000-bit arithmetic.
func TestSumsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		s := NewSums(1)
		exact, most := new(big.Float).SetPrec(3000), 0.0
		for range 1 + rng.IntN(50) {
			x := random(rng)
			s.Add([]float64{x})
			exact.Add(exact, new(big.Float).SetFloat64(x))
			most = max(most, math.Abs(x))
		}
		var got [1]float64
		s.Value(got[:])
		want, _ := exact.Float64()
		off := new(big.Float).Sub(exact, new(big.Float).SetFloat64(got[0]))
		diff, _ := off.Float64()
		if !(math.Abs(diff) <= 0x1p-52*math.Abs(want)+0x1p-73*most) { // of 50 numbers
			t.Fatalf("%v, want %v: off by %v, of numbers up to %v", got[0], want, diff, most)
		}
	}
}

// TestSumsOrder checks that sums have the same bits in any order and tree, and after they were
// saved.
func TestSumsOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 300 {
		const n = 5
		xs := make([][]float64, 1+rng.IntN(40))
		for i := range xs {
			xs[i] = make([]float64, n)
			for j := range xs[i] {
				xs[i][j] = random(rng)
			}
		}
		whole := NewSums(n)
		for _, x := range xs {
			whole.Add(x)
		}
		parts := make([]*Sums, 1+rng.IntN(8))
		for i := range parts {
			parts[i] = NewSums(n)
		}
		for _, i := range rng.Perm(len(xs)) {
			parts[rng.IntN(len(parts))].Add(xs[i])
		}
		for len(parts) > 1 {
			i := rng.IntN(len(parts) - 1)
			b, err := save.Marshal(func(c *save.Coder) { parts[i+1].State(c, n) })
			if err != nil {
				t.Fatal(err)
			}
			back := &Sums{}
			if err := save.Unmarshal(b, func(c *save.Coder) { back.State(c, n) }); err != nil {
				t.Fatal(err)
			}
			parts[i].Merge(back)
			parts = slices.Delete(parts, i+1, i+2)
		}
		want, got := make([]float64, n), make([]float64, n)
		whole.Value(want)
		parts[0].Value(got)
		if !slices.Equal(whole.digits, parts[0].digits) || !slices.Equal(whole.top, parts[0].top) ||
			!slices.Equal(want, got) {
			t.Fatalf("%v in order, and %v in a tree", want, got)
		}
	}
}

// TestBlocks checks a set of blocks against a map.
func TestBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	draw := func() (Blocks, map[uint64]bool) {
		var b Blocks
		has := map[uint64]bool{}
		for range rng.IntN(40) {
			id := uint64(rng.IntN(60))
			if rng.IntN(8) == 0 {
				id = math.MaxUint64 - id%3
			}
			if b.Add(id) == has[id] {
				t.Fatalf("block %d is new: %t, in %v", id, has[id], b.runs)
			}
			has[id] = true
		}
		for i, r := range b.runs {
			if r.lo > r.hi || i > 0 && b.runs[i-1].hi+1 >= r.lo {
				t.Fatalf("runs %v", b.runs)
			}
		}
		return b, has
	}
	for range 2000 {
		b, in := draw()
		o, out := draw()
		both, only := []uint64{}, []uint64{}
		for id := range out {
			if in[id] {
				both = append(both, id)
			} else {
				only = append(only, id)
			}
		}
		if id, ok := b.Shared(&o); ok != (len(both) > 0) || ok && id != slices.Min(both) {
			t.Fatalf("shared %d, %t: %v and %v", id, ok, b.runs, o.runs)
		}
		if id, ok := b.Missing(&o); ok != (len(only) > 0) || ok && id != slices.Min(only) {
			t.Fatalf("missing %d, %t: %v and %v", id, ok, b.runs, o.runs)
		}
		if len(both) > 0 {
			continue
		}
		b.Merge(&o)
		if _, ok := b.Missing(&o); ok {
			t.Fatalf("merged %v of %v", b.runs, o.runs)
		}
		for id := range in {
			if _, has := b.find(id); !has {
				t.Fatalf("merged %v without %d", b.runs, id)
			}
		}
	}
}

// TestSample checks that a sample is the same in any order and tree, that each row is as likely to
// be one, and that no column is missing.
func TestSample(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	const n, most, cols = 3000, 100, 4
	row := func(i int) Row {
		r := Row{Ind: []int32{0}, Val: []float64{float64(i)}, Weight: 1}
		if i%1500 == 7 { // a rare column
			r.Ind, r.Val = []int32{0, 2}, []float64{float64(i), 1}
		}
		return r
	}
	place := func(i int) (uint64, uint64) { return uint64(i / 100), uint64(i % 100) }
	take := func(s *Sample, i int) {
		r := row(i)
		b, p := place(i)
		if s.Wants(b, p, r.Ind, r.Val) {
			s.Add(b, p, r)
		}
	}
	whole := NewSample(most, cols)
	for i := range n {
		take(whole, i)
	}
	rows := whole.Rows()
	low, rare := 0, 0
	for _, r := range rows {
		if r.Val[0] < n/2 {
			low++
		}
		rare += len(r.Val) - 1
	}
	if len(rows) < most || len(rows) > most+2 || rare != 2 || low < 30 || low > 70 {
		t.Errorf("%d rows, %d of the rare column, %d of the first half", len(rows), rare, low)
	}
	count := []float64{n, 0, 2, 0}
	for i, w := range whole.Stands(n, count) {
		if want := map[bool]float64{false: n / most, true: 1}[len(rows[i].Val) > 1]; w != want {
			t.Errorf("row %d stands for %v, want %v", i, w, want)
		}
	}
	parts := []*Sample{NewSample(most, cols), NewSample(most, cols), NewSample(most, cols)}
	for _, i := range rng.Perm(n) {
		take(parts[rng.IntN(3)], i)
	}
	parts[1].Merge(parts[0])
	b, err := save.Marshal(parts[2].State)
	if err != nil {
		t.Fatal(err)
	}
	last := NewSample(most, cols)
	if err := save.Unmarshal(b, last.State); err != nil {
		t.Fatal(err)
	}
	last.Merge(parts[1])
	if !slices.EqualFunc(rows, last.Rows(),
		func(a, b Row) bool { return a.hash == b.hash && slices.Equal(a.Val, b.Val) }) {
		t.Error("other rows in another order")
	}
}

// TestSumsQuick checks that numbers without a new place have the digits that cut finds.
func TestSumsQuick(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 20_000 {
		got, want := NewSums(1), NewSums(1)
		for range 3 {
			x := random(rng)
			got.Add([]float64{x})
			if x == 0 {
				continue
			}
			d, top := cut(x)
			if x < 0 {
				d[0], d[1], d[2] = -d[0], -d[1], -d[2]
			}
			want.add(0, d, top)
			if !slices.Equal(got.digits, want.digits) || got.top[0] != want.top[0] {
				t.Fatalf("%v of place %d after %v, want %v of place %d", got.digits, got.top[0], x,
					want.digits, want.top[0])
			}
		}
	}
}
