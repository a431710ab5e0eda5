package topic

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomParts returns parts with words from a vocabulary of the given number of terms.
func randomParts(n, terms int, rng *rand.Rand) []Doc {
	parts := make([]Doc, n)
	for i := range parts {
		for v := range terms {
			if c := math.Floor(6 * rng.Float64() * rng.Float64()); c > 0 {
				parts[i].Words = append(parts[i].Words, v)
				parts[i].Counts = append(parts[i].Counts, c+float64(i%2)/2)
			}
		}
	}
	return parts
}

// TestPartitionSearch checks the search against all divisions of a few parts.
func TestPartitionSearch(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		topics, terms := 1+int(seed%3), 8
		parts := randomParts(8, terms, rng)
		p := newPartition(parts, topics, terms)
		best, of := math.Inf(-1), make([]int, len(parts))
		for code := range int(math.Pow(float64(topics), float64(len(parts)))) {
			for i := range of {
				of[i] = code % topics
				code /= topics
			}
			p.set(of)
			best = max(best, p.likelihood())
		}
		p.set(search(parts, topics, terms, rng))
		if l := p.likelihood(); !(l >= best-1e-9*math.Abs(best)) {
			t.Errorf("%d topics: likelihood %v, the best is %v", topics, l, best)
		}
	}
}

// TestPartitionGain checks that a move raises the likelihood by the difference of two gains, after
// any moves.
func TestPartitionGain(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	parts := randomParts(9, 30, rng)
	p := newPartition(parts, 3, 30)
	p.set(make([]int, len(parts)))
	for range 200 {
		i, k := rng.IntN(len(parts)), rng.IntN(3)
		if k == p.of[i] {
			continue
		}
		before, rise := p.likelihood(), p.gain(i, k)-p.gain(i, p.of[i])
		p.move(i, k)
		after := p.likelihood()
		near(t, "rise", rise, after-before, 1e-9*math.Abs(after))
		near(t, "likelihood", after, likelihood(p.count), 1e-9*math.Abs(after))
	}
	of := make([]int, len(parts))
	for i := range of {
		of[i] = i % 3
	}
	p.set(of)
	q := newPartition(parts, 3, 30)
	q.set(of)
	near(t, "after set", p.likelihood(), q.likelihood(), 1e-9*math.Abs(q.likelihood()))
}

// TestFewerWords checks that all words are counted, and that words without information are merged.
func TestFewerWords(t *testing.T) {
	parts := []Doc{
		{[]int{0, 1, 2, 3}, []float64{5, 2, 9, 1}}, {[]int{0, 1, 3, 4}, []float64{5, 2, 1, 7}},
	}
	got, terms := fewerWords(parts, 5, 3)
	want := []Doc{{[]int{0, 2}, []float64{9, 8}}, {[]int{1, 2}, []float64{7, 8}}}
	for i := range want {
		if terms != 3 || !slices.Equal(got[i].Words, want[i].Words) ||
			!slices.Equal(got[i].Counts, want[i].Counts) {
			t.Errorf("part %d is %v over %d terms, want %v over 3", i, got[i], terms, want[i])
		}
	}
}

// TestStartOddities checks starts of corpora with hardly any documents or words, with equal
// documents, and with more documents than k-means clusters.
func TestStartOddities(t *testing.T) {
	same := slices.Repeat([]Doc{{[]int{1, 2}, []float64{1, 2}}}, 30)
	for name, docs := range map[string][]Doc{
		"one document": {{[]int{0}, []float64{1}}}, "no words": {{}, {}}, "equal": same,
		"large counts": {{[]int{0, 1}, []float64{1e99, 1}}, {[]int{2}, []float64{1e-9}}},
		"many":         slices.Repeat(same, 1+startSample/30),
	} {
		for _, k := range []int{1, 2, 7} {
			rng := rand.New(rand.NewPCG(1, 2))
			for _, row := range StartKMeans.Topics(context.Background(), 1, docs, 3, k, rng) {
				var sum float64
				for _, x := range row {
					if !(x >= 0 && x <= math.MaxFloat64) {
						t.Errorf("%s, %d topics: %v", name, k, row)
					}
					sum += x
				}
				if !(sum > 0) {
					t.Errorf("%s, %d topics: the sum is %v", name, k, sum)
				}
			}
		}
	}
}

// TestStartWorkers checks that where topics start from does not depend on the number of workers.
func TestStartWorkers(t *testing.T) {
	docs := randomParts(120, 40, rand.New(rand.NewPCG(3, 4)))
	for _, start := range []Start{StartKMeans, StartAnchors} {
		topics := func(workers int) [][]float64 {
			rng := rand.New(rand.NewPCG(7, 8))
			return start.Topics(context.Background(), workers, docs, 40, 5, rng)
		}
		want := topics(1)
		for _, workers := range []int{2, 3, 16} {
			for k, row := range topics(workers) {
				if !slices.Equal(row, want[k]) {
					t.Errorf("start %d: %d workers change topic %d", start, workers, k)
				}
			}
		}
	}
}
