package topic

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Rank selects the order of the top words of a topic.
type Rank int

const (
	ByProbability Rank = iota // β_kv
	ByFREX                    // frequency and exclusivity (Bischof and Airoldi, 2012)
	ByLift                    // β_kv / p_v (Taddy, 2012)
	ByRelevance               // 0.6 log β_kv + 0.4 log(β_kv / p_v) (Sievert and Shirley, 2014)
)

// TopTerms returns the indices of the n top words of each topic. topics holds a row of
// probabilities per topic. freq holds the frequencies of the topics; nil means that all are
// equally common.
func TopTerms(topics *mat.Dense, freq []float64, n int, rank Rank) ([][]int, error) {
	if err := checkDistributions("topic", topics); err != nil {
		return nil, err
	}
	k, v := topics.Dims()
	if n <= 0 {
		return nil, fmt.Errorf("%d top words, want at least 1: %w", n, sentinel.ErrParam)
	}
	sums := wordSums(topics)
	if freq == nil {
		freq = sums
	}
	if len(freq) != v {
		return nil, fmt.Errorf("frequencies of %d words for topics of %d: %w",
			len(freq), v, sentinel.ErrShape)
	}
	total := 0.0
	for w, f := range freq {
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("word %d has frequency %v: %w", w, f, sentinel.ErrNotFinite)
		}
		if f < 0 {
			return nil, fmt.Errorf("word %d has frequency %v: %w", w, f, sentinel.ErrParam)
		}
		total += f
	}
	if total == 0 {
		return nil, fmt.Errorf("no word has a frequency above 0: %w", sentinel.ErrParam)
	}

	top := make([][]int, k)
	score, exclusive := make([]float64, v), make([]float64, v)
	for i := range k {
		row := topics.RawRowView(i)
		switch rank {
		case ByProbability:
			copy(score, row)
		case ByFREX:
			for w, p := range row {
				exclusive[w] = ratio(p, sums[w])
			}
			f, g := empiricalCDF(exclusive), empiricalCDF(row)
			for w := range score {
				score[w] = 1 / (0.5/f[w] + 0.5/g[w])
			}
		case ByLift, ByRelevance:
			weight := 0.0
			if rank == ByRelevance {
				weight = 0.6
			}
			for w, p := range row {
				score[w] = math.Inf(-1)
				if p > 0 && freq[w] > 0 {
					score[w] = weight*math.Log(p) + (1-weight)*math.Log(p/(freq[w]/total))
				}
			}
		default:
			return nil, fmt.Errorf("unknown TopicRank(%d) of words: %w",
				int(rank), sentinel.ErrParam)
		}
		order := make([]int, v)
		for w := range order {
			order[w] = w
		}
		slices.SortFunc(order, func(a, b int) int {
			return cmp.Or(cmp.Compare(score[b], score[a]), cmp.Compare(row[b], row[a]), a-b)
		})
		top[i] = slices.Clone(order[:min(n, v)])
	}
	return top, nil
}

// UMass returns for each list of top words Σ_{i>j} log((D(i, j) + 1) / D(j)), where D counts the
// documents that have word j, or both (Mimno et al., 2011).
func UMass(top [][]int, docs []Doc, terms int) ([]float64, error) {
	return coherence(top, docs, terms, func(i, j, both, docs int) float64 {
		if j == 0 {
			return 0
		}
		return math.Log(float64(both+1) / float64(j))
	})
}

// NPMI returns the coherence of each list of top words: the mean over its pairs of words of the
// normalized pointwise mutual information in the documents (Bouma, 2009).
func NPMI(top [][]int, docs []Doc, terms int) ([]float64, error) {
	score, err := coherence(top, docs, terms, func(i, j, both, all int) float64 {
		if both == 0 {
			return -1
		}
		if both == all {
			return 1
		}
		n := float64(all)
		p := float64(both) / n
		return math.Log(p/(float64(i)/n*(float64(j)/n))) / -math.Log(p)
	})
	if err != nil {
		return nil, err
	}
	for k, words := range top {
		score[k] /= float64(len(words)*(len(words)-1)) / 2
	}
	return score, nil
}

// Exclusivity returns for each topic the mean over its top words of β_kv / Σ_j β_jv.
func Exclusivity(topics *mat.Dense, top [][]int) ([]float64, error) {
	if err := checkDistributions("topic", topics); err != nil {
		return nil, err
	}
	k, v := topics.Dims()
	if len(top) != k {
		return nil, fmt.Errorf("%d lists of top words for %d topics: %w",
			len(top), k, sentinel.ErrShape)
	}
	if err := checkTop(top, v); err != nil {
		return nil, err
	}
	sums := wordSums(topics)
	score := make([]float64, k)
	for i, words := range top {
		for _, w := range words {
			score[i] += ratio(topics.At(i, w), sums[w])
		}
		score[i] /= float64(len(words))
	}
	return score, nil
}

// WriteLDAvis writes the input of the topic browser LDAvis, a JSON object with K rows of topics,
// a row of topic proportions, the tokens of each document, the words and their frequencies.
func WriteLDAvis(
	w io.Writer, topics, docTopics *mat.Dense, docs []Doc, vocab []string, freq []float64,
) error {
	if err := checkDistributions("topic", topics); err != nil {
		return err
	}
	if err := checkDistributions("document", docTopics); err != nil {
		return err
	}
	k, v := topics.Dims()
	if n, kd := docTopics.Dims(); v != len(vocab) || n != len(docs) || kd != k {
		return fmt.Errorf(
			"topics are %d×%d and their shares in documents %d×%d, want %d×%d for a corpus of "+
				"%d documents and %d terms: %w",
			k, v, n, kd, len(docs), k, len(docs), len(vocab), sentinel.ErrShape)
	}
	lengths := make([]float64, len(docs))
	for i, d := range docs {
		lengths[i] = d.Tokens()
	}
	err := json.NewEncoder(w).Encode(struct {
		Topics    [][]float64 `json:"topic_term_dists"`
		DocTopics [][]float64 `json:"doc_topic_dists"`
		Lengths   []float64   `json:"doc_lengths"`
		Vocab     []string    `json:"vocab"`
		Freq      []float64   `json:"term_frequency"`
	}{dense.RowsOf(topics), dense.RowsOf(docTopics), lengths, vocab, freq})
	if err != nil {
		return fmt.Errorf("writing LDAvis: %w", err)
	}
	return nil
}

// checkDistributions returns an error unless the rows of p are distributions.
func checkDistributions(what string, p *mat.Dense) error {
	if p == nil || p.IsEmpty() {
		return fmt.Errorf("no %s has a distribution: %w", what, sentinel.ErrEmpty)
	}
	for i, row := range dense.RowsOf(p) {
		sum := 0.0
		for j, v := range row {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("%s %d has the probability %v at %d: %w",
					what, i, v, j, sentinel.ErrNotFinite)
			}
			if v < 0 {
				return fmt.Errorf("%s %d has the probability %v at %d: %w",
					what, i, v, j, sentinel.ErrParam)
			}
			sum += v
		}
		if math.Abs(sum-1) > 1e-3 {
			return fmt.Errorf("%s %d has probabilities that sum to %v, want 1: %w",
				what, i, sum, sentinel.ErrParam)
		}
	}
	return nil
}

// checkTop returns an error unless the top words are below terms.
func checkTop(top [][]int, terms int) error {
	for k, words := range top {
		for _, w := range words {
			if w < 0 || w >= terms {
				return fmt.Errorf("topic %d has the top word %d, want one of 0 to %d: %w",
					k, w, terms-1, sentinel.ErrShape)
			}
		}
	}
	return nil
}

// coherence returns for each list the sum of pair over its words i and those j
// before them, given in how many documents i, j and both occur, and how many there are.
func coherence(
	top [][]int, docs []Doc, terms int, pair func(i, j, both, all int) float64,
) ([]float64, error) {
	if len(docs) == 0 {
		return nil, fmt.Errorf("coherence by a corpus without documents: %w", sentinel.ErrEmpty)
	}
	if err := checkTop(top, terms); err != nil {
		return nil, err
	}
	in := map[int][]int{} // documents of each top word, increasing
	for _, words := range top {
		for _, w := range words {
			in[w] = nil
		}
	}
	for i, d := range docs {
		for _, w := range d.Words {
			if before, ok := in[w]; ok {
				in[w] = append(before, i)
			}
		}
	}
	score := make([]float64, len(top))
	for k, words := range top {
		for i, wi := range words {
			for _, wj := range words[:i] {
				score[k] += pair(len(in[wi]), len(in[wj]), shared(in[wi], in[wj]), len(docs))
			}
		}
	}
	return score, nil
}

// shared returns how many elements two increasing slices have in common.
func shared(a, b []int) (n int) {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			a = a[1:]
		case a[0] > b[0]:
			b = b[1:]
		default:
			n++
			a, b = a[1:], b[1:]
		}
	}
	return n
}

// empiricalCDF returns for each element of x the fraction of elements that are at most it.
func empiricalCDF(x []float64) []float64 {
	sorted := slices.Sorted(slices.Values(x))
	cdf := make([]float64, len(x))
	for i, v := range x {
		at, _ := slices.BinarySearchFunc(sorted, v, func(e, v float64) int {
			if e <= v {
				return -1
			}
			return 1
		})
		cdf[i] = float64(at) / float64(len(x))
	}
	return cdf
}

// ratio returns a/b, or 0 if b is.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// wordSums returns the sum of each column.
func wordSums(topics *mat.Dense) []float64 {
	_, v := topics.Dims()
	sums := make([]float64, v)
	for _, row := range dense.RowsOf(topics) {
		floats.Add(sums, row)
	}
	return sums
}
