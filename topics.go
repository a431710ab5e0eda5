package pgsvi

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/topic"
	"gonum.org/v1/gonum/mat"
)

// TopicStart selects the initial topics of a CTM or an LDA.
type TopicStart int

const (
	// StartAuto is StartKMeans for up to 20 topics and StartAnchors for more.
	StartAuto TopicStart = iota
	// StartKMeans makes four small clusters of documents per topic, by the cosine of their TF-IDF
	// weights. It divides them among K clusters so that the words are most likely, and keeps the
	// best of three tries. A topic is 0.2 times the word frequencies of a cluster plus 0.8 times
	// the word frequencies of the corpus. On the AP corpus, this weak start gave a higher ELBO and
	// better held-out predictions than the clusters alone.
	StartKMeans
	// StartAnchors finds anchor words, whose co-occurring words are far from any mixture of the
	// co-occurring words of other anchors (Arora et al., 2013). The documents with an anchor word
	// replace a cluster of StartKMeans.
	StartAnchors
	// StartDocs replaces each cluster by three documents drawn at random.
	StartDocs
	// StartRandom multiplies the word frequencies of the corpus by random numbers. It is as good as
	// the others for many topics and long documents. With few topics, two of them may remain equal.
	StartRandom
)

var topicStartNames = [...]string{"auto", "k-means", "anchor words", "documents", "random"}

// String returns the name of the start, such as "k-means".
func (s TopicStart) String() string { return nameOf("TopicStart", topicStartNames[:], int(s)) }

// nameOf returns the name of value i of an enumeration.
func nameOf(kind string, names []string, i int) string {
	if i < 0 || i >= len(names) {
		return fmt.Sprintf("%s(%d)", kind, i)
	}
	return names[i]
}

// TopicRank selects the ranking of the top words of a topic. Below, β_kv is the probability of word
// v in topic k, p_v is the fraction of all tokens that are v, and φ_kv = β_kv / Σ_j β_jv measures
// how exclusive v is to the topic.
type TopicRank int

const (
	// ByProbability ranks words by β_kv.
	ByProbability TopicRank = iota
	// ByFREX ranks words by frequency and exclusivity together. It uses the harmonic mean of their
	// empirical distribution functions over the words of the topic,
	//
	//	1 / (½ / F_k(φ_kv) + ½ / G_k(β_kv)).
	//
	// See J. M. Bischof and E. M. Airoldi, Summarizing topical content with word frequency and
	// exclusivity, ICML 2012.
	ByFREX
	// ByLift ranks words by β_kv / p_v, which favors rare words. See M. Taddy, On estimation and
	// selection for topic models, AISTATS 2012.
	ByLift
	// ByRelevance ranks words by 0.6 log β_kv + 0.4 log(β_kv / p_v). With this weight, readers
	// recognized topics best. See C. Sievert and K. E. Shirley, LDAvis: a method for visualizing
	// and interpreting topics, ACL workshop on interactive language learning, visualization, and
	// interfaces, 2014.
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

// TopTerms returns the indices of the n top words of each of the K topics, best first. Among equal
// words, the more probable word comes first, and then the word with the smaller index. If there are
// fewer than n words, it returns all. The rows of topics are distributions over the V words.
//
// The frequencies freq give the number of times each word occurs, as Corpus.TermFreq returns them.
// They need not sum to one. Nil means that all topics are equally common. Words of frequency zero
// come last by lift and relevance. Probability and FREX ignore freq.
//
// The error wraps
//   - ErrEmpty if topics has no elements;
//   - ErrShape if freq is neither nil nor of length V;
//   - ErrNotFinite if an element of topics or freq is not finite;
//   - ErrParam if an element is negative, a row of topics does not sum to one within 1e-3, all
//     frequencies are zero, n is not positive, or rank is unknown.
func TopTerms(topics *mat.Dense, freq []float64, n int, rank TopicRank) ([][]int, error) {
	top, err := topic.TopTerms(topics, freq, n, topic.Rank(rank))
	return top, prefixed(err)
}

// TopWords returns the words of TopTerms, with the frequencies of c and the names that Corpus.Word
// returns. The topics must be topics of c. TopWords returns the errors of Corpus.Validate and
// TopTerms.
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

// docTopics returns a row of k topics for each document of c, which infer stores. If c is nil, it
// returns a row for each of the count training documents, which train stores.
func docTopics(c *Corpus, terms, k int, count func() int, train func(dst []float64, n int),
	infer func(dst []float64, d Document) error) (*mat.Dense, error) {
	var n int
	if c == nil {
		n = count()
	} else if err := c.fits(terms); err != nil {
		return nil, err
	} else {
		n = len(c.Docs)
	}
	if n == 0 {
		return nil, nil
	}
	t := mat.NewDense(n, k, nil)
	one := func(_, i int) error {
		if c == nil {
			train(t.RawRowView(i), i)
			return nil
		}
		if err := infer(t.RawRowView(i), c.Docs[i]); err != nil {
			return fmt.Errorf("pgsvi: document %d: %w", i, sentinel.Bare(err))
		}
		return nil
	}
	if err := parallel.Each(context.Background(), n, runtime.GOMAXPROCS(0), one); err != nil {
		return nil, err
	}
	return t, nil
}

// similarTo implements Similar of a topic model.
func similarTo(p interface {
	Infer(d Document) (*DocPosterior, error)
	DocTopics(c *Corpus) (*mat.Dense, error)
}, d Document, n int) (index []int, distance []float64, err error) {
	q, err := p.Infer(d)
	if err != nil {
		return nil, nil, err
	}
	docs, err := p.DocTopics(nil)
	if err != nil {
		return nil, nil, err
	}
	return similarDocs(docs, q.means(), n)
}

// similarDocs returns the rows of docs that are nearest to p by Hellinger distance, and their
// distances.
func similarDocs(docs *mat.Dense, p []float64, n int) (index []int, distance []float64, err error) {
	switch {
	case n < 1:
		return nil, nil, fmt.Errorf("pgsvi: the number of similar documents is %d; it must be "+
			"positive: %w", n, ErrParam)
	case docs == nil:
		return nil, nil, fmt.Errorf("pgsvi: the posterior has no training documents: %w", ErrEmpty)
	}
	rows, _ := docs.Dims()
	all := make([]float64, rows)
	for i := range all {
		var sum float64
		for k, q := range docs.RawRowView(i) {
			d := math.Sqrt(p[k]) - math.Sqrt(q)
			sum += d * d / 2
		}
		all[i] = math.Min(1, math.Sqrt(sum))
		index = append(index, i)
	}
	slices.SortStableFunc(index, func(a, b int) int { return cmp.Compare(all[a], all[b]) })
	index = index[:min(n, rows)]
	for _, i := range index {
		distance = append(distance, all[i])
	}
	return index, distance, nil
}

// UMass returns the UMass coherence of each list of top words, most probable first, in the
// documents of c, which must be the corpus of the fit:
//
//	Σ_{i>j} log((D(i, j) + 1) / D(j))
//
// Here D counts the documents with word j, or with both words. The coherence is larger, that is,
// usually less negative, for words that occur together. Compare only lists of equal length. A pair
// whose word j never occurs adds nothing. See D. Mimno, H. M. Wallach, E. Talley, M. Leenders and
// A. McCallum, Optimizing semantic coherence in topic models, EMNLP 2011.
//
// The error wraps ErrEmpty if c has no documents, and ErrShape if a list has an index that is not
// the index of a word of c. Otherwise it is an error of Corpus.Validate.
func UMass(top [][]int, c *Corpus) ([]float64, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	score, err := topic.UMass(top, plain(c.Docs), c.Terms)
	return score, prefixed(err)
}

// NPMI returns the coherence of each list of top words, in any order. It is the mean normalized
// pointwise mutual information of the pairs of words in the documents of c, which may be the corpus
// of the fit or another corpus with the same vocabulary. The value of a pair is
//
//	log(P(i, j) / (P(i) P(j))) / −log P(i, j)
//
// with P the fraction of documents with a word, or with both words. It is −1 for words that
// never occur together, 0 for independent words, and 1 for words that occur only together. It is
// NaN for a list of fewer than two words. See G. Bouma, Normalized (pointwise) mutual information
// in collocation extraction, GSCL 2009. J. H. Lau, D. Newman and T. Baldwin, Machine reading tea
// leaves, EACL 2014, found that it agrees best with human judgment.
//
// NPMI returns the errors of UMass.
func NPMI(top [][]int, c *Corpus) ([]float64, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	score, err := topic.NPMI(top, plain(c.Docs), c.Terms)
	return score, prefixed(err)
}

// Exclusivity returns the mean of φ_kv = β_kv / Σ_j β_jv over the top words of each topic, which
// come from TopTerms. It is 1 if no other topic has the words, 1/K if all topics have them equally,
// and NaN for a list without words. It detects topics that share their words, which coherence does
// not. The measure is due to Bischof and Airoldi (see ByFREX), but without ranks.
//
// The error wraps ErrEmpty, ErrNotFinite and ErrParam like TopTerms. It wraps ErrShape if the
// number of lists differs from the number of topics, or if a list has an index that is not the
// index of a word.
func Exclusivity(topics *mat.Dense, top [][]int) ([]float64, error) {
	score, err := topic.Exclusivity(topics, top)
	return score, prefixed(err)
}

// WriteLDAvis writes a JSON object that the topic browser LDAvis reads:
//
//	topic_term_dists  K rows of V probabilities, topics
//	doc_topic_dists   D rows of K probabilities, docTopics
//	doc_lengths       tokens of each document of c
//	vocab             the V words, as Corpus.Word returns them
//	term_frequency    how often each word occurs in c
//
// The fields are the arguments of prepare in pyLDAvis:
//
//	pyLDAvis.prepare(**json.load(open("topics.json")))
//
// In R they are phi, theta, doc.length, vocab and term.frequency of LDAvis::createJSON. Both
// functions take logarithms, so smooth topics with zeros.
//
// The error wraps ErrShape if the sizes of topics, docTopics and c disagree, ErrEmpty if they are
// empty, and ErrNotFinite or ErrParam if a row of a matrix is not a distribution that sums to one
// within 1e-3. Errors of Corpus.Validate are also returned. After these errors nothing has been
// written. An error of w is wrapped unchanged.
func WriteLDAvis(w io.Writer, topics, docTopics *mat.Dense, c *Corpus) error {
	if err := c.Validate(); err != nil {
		return err
	}
	vocab := make([]string, c.Terms)
	for i := range vocab {
		vocab[i] = c.Word(i)
	}
	return prefixed(topic.WriteLDAvis(w, topics, docTopics, plain(c.Docs), vocab, c.TermFreq()))
}

// maxDraws is the largest HeldOutOptions.Draws.
const maxDraws = 10000000

// HeldOutOptions holds the options of CTMPosterior.HeldOut and LDAPosterior.HeldOut. The zero value
// selects the standard protocol.
type HeldOutOptions struct {
	// Draws is the number of draws of z per document, in antithetic pairs. It must be at most
	// 10,000,000. Zero means 10,000. An LDA uses no draws.
	Draws int
	// Smoothing is the share of the uniform distribution mixed into each topic, in [0, 1]. Zero
	// means 0.01.
	Smoothing float64
	// ByWord scores the tokens of a word together, as in Khan et al. (2016),
	//
	//	−Σ_v log E_q[(Σ_k β_kv softmax(z)_k)^y²_v]
	//
	// instead of separately. By Jensen's inequality the score is never larger. It is the same if no
	// word occurs twice. An LDA returns an error if ByWord is set.
	ByWord bool
	// Workers is the number of goroutines. Zero means GOMAXPROCS. The result does not depend on
	// Workers.
	Workers int
}

// HeldOut is the out-of-sample score of a topic model. It measures how well the first halves of
// documents predict their second halves. It is the −log probability per token, in nats, so lower is
// better.
type HeldOut struct {
	PerToken       float64   // over all tokens; NaN if there are no tokens
	InVocab        float64   // over tokens whose word occurs in the training data
	Tokens         float64   // number of tokens in PerToken
	TokensInVocab  float64   // number of tokens in InVocab
	DocumentScores []float64 // sum over the tokens of each document
}

// heldOutOptions returns opt with its defaults, for the documents of c and a model with the given
// number of terms.
func heldOutOptions(opt *HeldOutOptions, c *Corpus, terms int) (o HeldOutOptions, err error) {
	if opt != nil {
		o = *opt
	}
	if o.Draws < 0 || o.Draws > maxDraws || o.Workers < 0 ||
		!(o.Smoothing >= 0 && o.Smoothing <= 1) {
		return o, fmt.Errorf("pgsvi: HeldOutOptions is %+v; Draws must be 0 to %d, Smoothing in "+
			"[0, 1], and Workers not negative: %w", o, maxDraws, ErrParam)
	}
	if c == nil || len(c.Docs) == 0 {
		return o, fmt.Errorf("pgsvi: the corpus has no documents: %w", ErrEmpty)
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

// Document is a bag of words. It holds the words of the vocabulary that occur and their counts. The
// zero value is a document without words.
type Document struct {
	Words  []int     // indices into the vocabulary, from 0, strictly increasing
	Counts []float64 // positive counts of the words
}

// Tokens returns the number of words of d, counted with repetition.
func (d Document) Tokens() (n float64) { return topic.Doc(d).Tokens() }

// Halves splits the tokens of d into two new documents, to score how well one half predicts the
// other. It takes the tokens in the order of Words, each word as often as its count. Tokens at even
// positions, from 0, go to first, and the others to second. Halves panics if a count is not a whole
// number.
func (d Document) Halves() (first, second Document) {
	first, second, err := d.halves()
	if err != nil {
		panic(err.Error())
	}
	return first, second
}

// halves is Halves with an error that wraps ErrParam if a count is not a whole number.
func (d Document) halves() (first, second Document, err error) {
	a, b, err := topic.Doc(d).Halves()
	return Document(a), Document(b), prefixed(err)
}

// Corpus is a collection of documents over one vocabulary. The zero value has neither documents nor
// words. A Corpus is safe for concurrent use unless it is being changed.
//
// The counting methods need a corpus that Validate accepts, and may panic for others.
type Corpus struct {
	Docs  []Document
	Terms int      // size of the vocabulary
	Vocab []string // words of the vocabulary, or nil if they are unknown
}

// String returns the sizes of c in one line, such as "2246 documents, 10473 terms, 435838 words".
func (c *Corpus) String() string {
	if c == nil {
		return "no corpus"
	}
	return fmt.Sprintf("%s, %s, %.12g words", countOf(len(c.Docs), "document"),
		countOf(c.Terms, "term"), c.Tokens())
}

// Validate returns an error with the index of the document. It wraps ErrShape if lengths disagree,
// or if words are out of range or not increasing. It wraps ErrNotFinite or ErrParam if a count is
// not a positive finite number, and ErrEmpty if c is nil.
func (c *Corpus) Validate() error {
	if c == nil {
		return fmt.Errorf("pgsvi: the *Corpus is nil: %w", ErrEmpty)
	}
	if c.Terms < 0 || c.Vocab != nil && len(c.Vocab) != c.Terms {
		return fmt.Errorf("pgsvi: the corpus has %d terms, but Corpus.Vocab has %d names: %w",
			c.Terms, len(c.Vocab), ErrShape)
	}
	for i, d := range c.Docs {
		if err := d.check(c.Terms); err != nil {
			return fmt.Errorf("pgsvi: document %d %w", i, err)
		}
	}
	return nil
}

// fits returns an error unless c is valid and has the given number of terms.
func (c *Corpus) fits(terms int) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.Terms != terms {
		return fmt.Errorf("pgsvi: the corpus has %d terms, but the model has %d: %w", c.Terms,
			terms, ErrShape)
	}
	return nil
}

// check returns an error unless d is a valid document over a vocabulary with the given number of
// terms. The caller adds the number of the document.
func (d Document) check(terms int) error { return topic.Doc(d).Check(terms) }

// Tokens returns the number of words in all documents, counted with repetition.
func (c *Corpus) Tokens() (n float64) {
	for _, d := range c.Docs {
		n += d.Tokens()
	}
	return n
}

// DocFreq returns the number of documents that contain each word of the vocabulary.
func (c *Corpus) DocFreq() []int {
	freq := make([]int, c.Terms)
	for _, d := range c.Docs {
		for _, w := range d.Words {
			freq[w]++
		}
	}
	return freq
}

// TermFreq returns the number of times that each word of the vocabulary occurs in all documents.
func (c *Corpus) TermFreq() []float64 {
	freq := make([]float64, c.Terms)
	for _, d := range c.Docs {
		for k, w := range d.Words {
			freq[w] += d.Counts[k]
		}
	}
	return freq
}

// Word returns the word with index i, or i in decimal if the vocabulary is unknown. It panics if
// Vocab is not nil and has no word i.
func (c *Corpus) Word(i int) string {
	if c.Vocab == nil {
		return strconv.Itoa(i)
	}
	return c.Vocab[i]
}

// Subset returns the corpus of the documents at index, in that order. A document may occur more
// than once. The result shares documents and vocabulary with c. Subset panics if an index is out of
// range.
func (c *Corpus) Subset(index []int) *Corpus {
	docs := make([]Document, len(index))
	for at, i := range index {
		docs[at] = c.Docs[i]
	}
	return &Corpus{Docs: docs, Terms: c.Terms, Vocab: c.Vocab}
}

// EvenOdd returns the documents with even indices, from 0, and the documents with odd indices. The
// held-out scores in this repository use them as training and test set. The results share documents
// and vocabulary with c.
func (c *Corpus) EvenOdd() (even, odd *Corpus) {
	even = &Corpus{Terms: c.Terms, Vocab: c.Vocab}
	odd = &Corpus{Terms: c.Terms, Vocab: c.Vocab}
	for i, d := range c.Docs {
		part := even
		if i%2 == 1 {
			part = odd
		}
		part.Docs = append(part.Docs, d)
	}
	return even, odd
}

// plain returns the documents in the type of the topic engines. The result shares the slices of
// docs.
func plain(docs []Document) []topic.Doc {
	all := make([]topic.Doc, len(docs))
	for i, d := range docs {
		all[i] = topic.Doc(d)
	}
	return all
}

// savedDocs holds documents in a file: the number of words per document, and the words and counts
// of one document after the other.
type savedDocs struct {
	Sizes  save.List[int]     `json:"sizes,omitempty"`
	Words  save.List[int]     `json:"words,omitempty"`
	Counts save.List[float64] `json:"counts,omitempty"`
}

// saveDocs returns docs in their saved form.
func saveDocs(docs []topic.Doc) (s savedDocs) {
	for _, d := range docs {
		s.Sizes = append(s.Sizes, len(d.Words))
		s.Words, s.Counts = append(s.Words, d.Words...), append(s.Counts, d.Counts...)
	}
	return s
}

// docs returns the given number of documents, which share the lists of s, or nil if the file has no
// documents. An error of check describes the fault of a document.
func (s *savedDocs) docs(number int, check func(topic.Doc) error) ([]topic.Doc, error) {
	if len(s.Sizes) == 0 {
		return nil, nil
	}
	if len(s.Sizes) != number {
		return nil, fmt.Errorf("%d documents have parameters, but %d have words: %w", number,
			len(s.Sizes), ErrShape)
	}
	words, counts := s.Words, s.Counts
	docs := make([]topic.Doc, len(s.Sizes))
	for i, n := range s.Sizes {
		if n < 0 || n > len(words) || n > len(counts) {
			return nil, fmt.Errorf("document %d has %d words, but only %d words and %d counts are "+
				"left: %w", i, n, len(words), len(counts), ErrShape)
		}
		docs[i] = topic.Doc{Words: words[:n:n], Counts: counts[:n:n]}
		words, counts = words[n:], counts[n:]
		if err := check(docs[i]); err != nil {
			return nil, fmt.Errorf("document %d %w", i, err)
		}
	}
	if len(words)+len(counts) > 0 {
		return nil, fmt.Errorf("%d words and %d counts belong to no document: %w", len(words),
			len(counts), ErrShape)
	}
	return docs, nil
}
