package pgsvi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// TopicRank says what makes a word a top word of a topic. Below, β_kv is the
// probability of word v in topic k, p_v how often it occurs, as a fraction of all
// tokens, and φ_kv = β_kv / Σ_j β_jv how exclusive it is to the topic.
type TopicRank int

const (
	// ByProbability ranks words by β_kv.
	ByProbability TopicRank = iota
	// ByFREX ranks words by how frequent and exclusive they are at once: the
	// harmonic mean of the two, each as its empirical distribution function over
	// the words of the topic,
	//
	//	1 / (½ / F_k(φ_kv) + ½ / G_k(β_kv)).
	//
	// J. M. Bischof and E. M. Airoldi, Summarizing topical content with word
	// frequency and exclusivity, ICML 2012.
	ByFREX
	// ByLift ranks words by β_kv / p_v. It is given to rare words. M. Taddy, On
	// estimation and selection for topic models, AISTATS 2012.
	ByLift
	// ByRelevance ranks words by 0.6 log β_kv + 0.4 log(β_kv / p_v), the weight
	// that readers recognised topics best with. C. Sievert and K. E. Shirley,
	// LDAvis: a method for visualizing and interpreting topics, ACL workshop on
	// interactive language learning, visualization, and interfaces, 2014.
	ByRelevance
)

// String returns the name of the rank, such as "FREX".
func (r TopicRank) String() string {
	switch r {
	case ByProbability:
		return "probability"
	case ByFREX:
		return "FREX"
	case ByLift:
		return "lift"
	case ByRelevance:
		return "relevance"
	}
	return fmt.Sprintf("TopicRank(%d)", int(r))
}

// TopTerms returns, for each of the K topics, the indices of its n top words, the
// first ranked first; of equals, the more probable comes first, then the one with
// the smaller index. If there are fewer than n words, all are returned. The rows
// of topics are distributions over the V words. Frequencies are how often each
// word occurs, as of Corpus.TermFreq; they need not sum to one, and nil means that
// all topics are equally common. Words of frequency zero are the last by lift and
// relevance. Probability and FREX do not use frequencies.
//
// The errors wrap ErrEmpty if topics has no elements, ErrShape if freq is neither
// nil nor of length V, ErrNotFinite if an element of either is not finite, and
// ErrParam if one is negative, a row of topics does not sum to one within 1e-3,
// the frequencies are all zero, n is not positive or the rank is none of the above.
func TopTerms(topics *mat.Dense, freq []float64, n int, rank TopicRank) ([][]int, error) {
	if err := checkDistributions("topic", topics); err != nil {
		return nil, err
	}
	k, v := topics.Dims()
	if n <= 0 {
		return nil, fmt.Errorf("pgsvi: %d top words, want at least 1: %w", n, ErrParam)
	}
	sums := wordSums(topics)
	if freq == nil {
		freq = sums
	}
	if len(freq) != v {
		return nil, fmt.Errorf("pgsvi: frequencies of %d words for topics of %d: %w", len(freq), v, ErrShape)
	}
	total := 0.0
	for w, f := range freq {
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("pgsvi: word %d has frequency %v: %w", w, f, ErrNotFinite)
		}
		if f < 0 {
			return nil, fmt.Errorf("pgsvi: word %d has frequency %v: %w", w, f, ErrParam)
		}
		total += f
	}
	if total == 0 {
		return nil, fmt.Errorf("pgsvi: no word has a frequency above 0: %w", ErrParam)
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
			return nil, fmt.Errorf("pgsvi: unknown %v of words: %w", rank, ErrParam)
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

// TopWords returns the words that TopTerms finds with the frequencies of c, the
// corpus that the topics are of, by their names as of Corpus.Word. The errors are
// those of Corpus.Validate and of TopTerms.
func TopWords(topics *mat.Dense, c *Corpus, n int, rank TopicRank) ([][]string, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	top, err := TopTerms(topics, c.TermFreq(), n, rank)
	if err != nil {
		return nil, err
	}
	words := make([][]string, len(top))
	for k, ids := range top {
		for _, w := range ids {
			words[k] = append(words[k], c.Word(w))
		}
	}
	return words, nil
}

// UMass returns, for each list of top words, the most probable first, its
// coherence by the documents of c, those the topics were fitted to:
//
//	Σ_{i>j} log((D(i, j) + 1) / D(j))
//
// where D counts the documents that have word j, or both. It is larger, mostly
// less negative, for words that occur together, and only lists of equal length
// compare. A pair whose word j occurs nowhere adds nothing. D. Mimno, H. M.
// Wallach, E. Talley, M. Leenders and A. McCallum, Optimizing semantic coherence
// in topic models, EMNLP 2011.
//
// The errors are those of Corpus.Validate, and wrap ErrEmpty if c has no documents
// and ErrShape if a list has an index that is not that of a word of c.
func UMass(top [][]int, c *Corpus) ([]float64, error) {
	return coherence(top, c, func(i, j, both, docs int) float64 {
		if j == 0 {
			return 0
		}
		return math.Log(float64(both+1) / float64(j))
	})
}

// NPMI returns, for each list of top words, in any order, the mean over its pairs
// of words of their normalised pointwise mutual information in the documents of
// c, the corpus of the topics or another over the same vocabulary:
//
//	log(P(i, j) / (P(i) P(j))) / −log P(i, j)
//
// where P is the fraction of documents that have a word, or both. It is between
// −1, for words that never occur together, and 1, for words that only occur
// together; 0 is chance. A list of less than two words has NaN. G. Bouma,
// Normalized (pointwise) mutual information in collocation extraction, GSCL 2009;
// J. H. Lau, D. Newman and T. Baldwin, Machine reading tea leaves, EACL 2014,
// found it to agree best with people.
//
// The errors are those of UMass.
func NPMI(top [][]int, c *Corpus) ([]float64, error) {
	score, err := coherence(top, c, func(i, j, both, docs int) float64 {
		if both == 0 {
			return -1
		}
		if both == docs {
			return 1
		}
		n := float64(docs)
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

// Exclusivity returns, for each topic, the mean over its top words, as of
// TopTerms, of φ_kv = β_kv / Σ_j β_jv: 1 if no other topic has them, 1/K if all
// have them alike. It is what coherence alone does not see, for topics that share
// their words may well be coherent. A list without words has NaN. The measure is
// that of Bischof and Airoldi (see ByFREX), without its ranks.
//
// The errors wrap ErrEmpty, ErrNotFinite and ErrParam as those of TopTerms, and
// ErrShape if there are not as many lists as topics or a list has an index that is
// not that of a word.
func Exclusivity(topics *mat.Dense, top [][]int) ([]float64, error) {
	if err := checkDistributions("topic", topics); err != nil {
		return nil, err
	}
	k, v := topics.Dims()
	if len(top) != k {
		return nil, fmt.Errorf("pgsvi: %d lists of top words for %d topics: %w", len(top), k, ErrShape)
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

// WriteLDAvis writes what the topic browser LDAvis asks for, as a JSON object:
//
//	topic_term_dists  K rows of V probabilities, topics
//	doc_topic_dists   D rows of K probabilities, docTopics
//	doc_lengths       tokens of each document of c
//	vocab             V words, as of Corpus.Word
//	term_frequency    how often each occurs in c
//
// These are the arguments of prepare in pyLDAvis, so that
//
//	pyLDAvis.prepare(**json.load(open("topics.json")))
//
// takes them as they are. In R they are phi, theta, doc.length, vocab and
// term.frequency of LDAvis::createJSON. Both take logarithms: smooth topics that
// have zeros.
//
// The errors are those of Corpus.Validate, and wrap ErrShape if the sizes of
// topics, docTopics and c disagree, ErrEmpty if there are none, and ErrNotFinite
// or ErrParam if a row of a matrix is not a distribution, that sums to one within
// 1e-3; nothing has been written then. A failure of w is wrapped as it is.
func WriteLDAvis(w io.Writer, topics, docTopics *mat.Dense, c *Corpus) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := checkDistributions("topic", topics); err != nil {
		return err
	}
	if err := checkDistributions("document", docTopics); err != nil {
		return err
	}
	k, v := topics.Dims()
	if n, kd := docTopics.Dims(); v != c.Terms || n != len(c.Docs) || kd != k {
		return fmt.Errorf("pgsvi: topics are %d×%d and their shares in documents %d×%d, want %d×%d for a corpus of %d documents and %d terms: %w",
			k, v, n, kd, len(c.Docs), k, len(c.Docs), c.Terms, ErrShape)
	}
	lengths, vocab := make([]float64, len(c.Docs)), make([]string, v)
	for i, d := range c.Docs {
		lengths[i] = d.Tokens()
	}
	for i := range vocab {
		vocab[i] = c.Word(i)
	}
	err := json.NewEncoder(w).Encode(struct {
		Topics    [][]float64 `json:"topic_term_dists"`
		DocTopics [][]float64 `json:"doc_topic_dists"`
		Lengths   []float64   `json:"doc_lengths"`
		Vocab     []string    `json:"vocab"`
		Freq      []float64   `json:"term_frequency"`
	}{rowViews(topics), rowViews(docTopics), lengths, vocab, c.TermFreq()})
	if err != nil {
		return fmt.Errorf("pgsvi: writing LDAvis: %w", err)
	}
	return nil
}

// checkDistributions returns an error unless the rows of p are distributions.
func checkDistributions(what string, p *mat.Dense) error {
	if p == nil || p.IsEmpty() {
		return fmt.Errorf("pgsvi: no %s has a distribution: %w", what, ErrEmpty)
	}
	for i, row := range rowViews(p) {
		sum := 0.0
		for j, v := range row {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("pgsvi: %s %d has the probability %v at %d: %w", what, i, v, j, ErrNotFinite)
			}
			if v < 0 {
				return fmt.Errorf("pgsvi: %s %d has the probability %v at %d: %w", what, i, v, j, ErrParam)
			}
			sum += v
		}
		if math.Abs(sum-1) > 1e-3 {
			return fmt.Errorf("pgsvi: %s %d has probabilities that sum to %v, want 1: %w", what, i, sum, ErrParam)
		}
	}
	return nil
}

// checkTop returns an error unless the top words are below terms.
func checkTop(top [][]int, terms int) error {
	for k, words := range top {
		for _, w := range words {
			if w < 0 || w >= terms {
				return fmt.Errorf("pgsvi: topic %d has the top word %d, want one of 0 to %d: %w", k, w, terms-1, ErrShape)
			}
		}
	}
	return nil
}

// coherence returns for each list the sum of pair over its words i and those j
// before them, given in how many documents i, j and both occur, and how many there are.
func coherence(top [][]int, c *Corpus, pair func(i, j, both, docs int) float64) ([]float64, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if len(c.Docs) == 0 {
		return nil, fmt.Errorf("pgsvi: coherence by a corpus without documents: %w", ErrEmpty)
	}
	if err := checkTop(top, c.Terms); err != nil {
		return nil, err
	}
	in := map[int][]int{} // documents of each top word, increasing
	for _, words := range top {
		for _, w := range words {
			in[w] = nil
		}
	}
	for i, d := range c.Docs {
		for _, w := range d.Words {
			if docs, ok := in[w]; ok {
				in[w] = append(docs, i)
			}
		}
	}
	score := make([]float64, len(top))
	for k, words := range top {
		for i, wi := range words {
			for _, wj := range words[:i] {
				score[k] += pair(len(in[wi]), len(in[wj]), shared(in[wi], in[wj]), len(c.Docs))
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
	for _, row := range rowViews(topics) {
		floats.Add(sums, row)
	}
	return sums
}

// rowViews returns the rows of m, which they share.
func rowViews(m *mat.Dense) [][]float64 {
	n, _ := m.Dims()
	rows := make([][]float64, n)
	for i := range rows {
		rows[i] = m.RawRowView(i)
	}
	return rows
}

// maxDraws bounds HeldOutOptions.Draws.
const maxDraws = 10000000

// HeldOutOptions are the options of CTMPosterior.HeldOut and LDAPosterior.HeldOut; the zero value is the protocol.
type HeldOutOptions struct {
	// Draws is the number of draws of z for each document, in antithetic pairs, at most 10,000,000. Zero means 10,000.
	// An LDA needs none.
	Draws int
	// Smoothing is the share of the uniform distribution mixed into each topic, in [0, 1]. Zero means 0.01.
	Smoothing float64
	// ByWord scores the tokens of a word together, as Khan et al. (2016) write it,
	//
	//	−Σ_v log E_q[(Σ_k β_kv softmax(z)_k)^y²_v]
	//
	// and not each on its own. The score is never larger, by Jensen's inequality, and is the same where
	// no word occurs twice. An LDA does not offer it.
	ByWord bool
	// Workers is the number of goroutines. Zero means GOMAXPROCS. The result does not depend on it.
	Workers int
}

// HeldOut is how well the second halves of documents are predicted from their first
// halves: −log probability per token, in nats, the lower the better.
type HeldOut struct {
	PerToken       float64   // over all tokens; NaN if there are none
	InVocab        float64   // over tokens whose word occurs in the training data
	Tokens         float64   // how many tokens PerToken is over
	TokensInVocab  float64   // and InVocab
	DocumentScores []float64 // Σ over the tokens of each document
}

// heldOutOptions returns opt with its defaults, for the documents of c and a model of so many terms.
func heldOutOptions(opt *HeldOutOptions, c *Corpus, terms int) (o HeldOutOptions, err error) {
	if opt != nil {
		o = *opt
	}
	if o.Draws < 0 || o.Draws > maxDraws || o.Workers < 0 || !(o.Smoothing >= 0 && o.Smoothing <= 1) {
		return o, fmt.Errorf("pgsvi: HeldOutOptions %+v: %w", o, ErrParam)
	}
	if c == nil || len(c.Docs) == 0 {
		return o, fmt.Errorf("pgsvi: a corpus without documents: %w", ErrEmpty)
	}
	if err := c.fits(terms); err != nil {
		return o, err
	}
	if o.Draws == 0 {
		o.Draws = 10000
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	o.Workers = min(o.Workers, len(c.Docs))
	o.Smoothing = orDefault(o.Smoothing, 0.01)
	return o, nil
}

// score scores the documents of c. loss stores the nats of each word of the second half of a document, of which the first
// is seen; a worker has one call of it at a time. In seen are the words of the training data.
func (o HeldOutOptions) score(c *Corpus, seen []bool, loss func(worker int, nats []float64, first, second Document) error) (*HeldOut, error) {
	n := len(c.Docs)
	h := &HeldOut{DocumentScores: make([]float64, n)}
	in, tokens, tokensIn, errs := make([]float64, n), make([]float64, n), make([]float64, n), make([]error, n)
	parallel.For(n, 1, o.Workers, func(worker, i, _ int) {
		first, second, err := c.Docs[i].halves()
		nats := make([]float64, len(second.Words))
		if err == nil {
			err = loss(worker, nats, first, second)
		}
		if err != nil {
			errs[i] = fmt.Errorf("pgsvi: document %d: %w", i, bare{err})
			return
		}
		for j, v := range second.Words {
			h.DocumentScores[i] += nats[j]
			tokens[i] += second.Counts[j]
			if seen[v] {
				in[i] += nats[j]
				tokensIn[i] += second.Counts[j]
			}
		}
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i, s := range h.DocumentScores {
		h.PerToken += s
		h.InVocab += in[i]
		h.Tokens += tokens[i]
		h.TokensInVocab += tokensIn[i]
	}
	h.PerToken /= h.Tokens
	h.InVocab /= h.TokensInVocab
	return h, nil
}

// smoothed returns −y log((1−s)p + s/V), the nats of y tokens of a word of probability p, mixed with the uniform distribution.
func (o HeldOutOptions) smoothed(p, y float64, terms int) float64 {
	return -y * math.Log((1-o.Smoothing)*p+o.Smoothing/float64(terms))
}
