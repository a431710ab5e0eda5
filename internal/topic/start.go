package topic

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/batches"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/fma"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/floats"
)

const (
	startMix    = 0.2  // weight of a start in the first topics; 1 − startMix goes to the corpus
	startDocs   = 3    // documents per topic of StartDocs
	startTries  = 3    // times that StartKMeans clusters the documents; it keeps the best
	startParts  = 4    // clusters of k-means for each topic
	startRounds = 5    // rounds of k-means
	startSample = 4096 // most documents that k-means clusters
	startMoves  = 3    // rounds in which documents move between topics
	startSmooth = 0.3  // count added to each word of a topic in these rounds
	startFew    = 20   // most topics for which StartAuto is StartKMeans
	anchorDim   = 400  // dimension of the random projection, which keeps distances to about 5%
	// An anchor word occurs in at least anchorMin documents, and in at least the fraction
	// anchorPart of them, because the co-occurrence row of a rare word is noisy.
	anchorMin, anchorPart = 3, 0.01
)

// Start is the method that initializes topics.
type Start int

const (
	// StartAuto is StartKMeans up to startFew topics and StartAnchors above.
	StartAuto Start = iota
	// StartKMeans clusters the documents by the cosine of their TF-IDF weights. It makes more
	// clusters than topics, and divides them among the topics so that their words are most likely.
	StartKMeans
	// StartAnchors finds anchor words, whose co-occurrences differ from any mixture of the rows of
	// other words (Arora et al., 2013). A topic starts from the documents with its anchor word.
	StartAnchors
	// StartDocs starts each topic from a few documents drawn at random.
	StartDocs
	// StartRandom multiplies the word frequencies of the corpus by random numbers.
	StartRandom
)

// of returns s, or the method for the given number of topics if s is StartAuto.
func (s Start) of(topics int) Start {
	switch {
	case s != StartAuto:
		return s
	case topics > startFew:
		return StartAnchors
	}
	return StartKMeans
}

// Bytes returns the memory that s needs to initialize topics.
func (s Start) Bytes(topics, terms int) float64 {
	if s.of(topics) == StartAnchors {
		return memory.Bytes(anchorDim, 1, terms)
	}
	return 0
}

// starter initializes k topics.
type starter struct {
	docs     []Doc
	terms, k int
	workers  int
}

// Topics returns the initial k topics for docs. Each is a row of numbers, one per term, with a
// positive sum. They do not depend on the number of workers, and are meaningless once ctx is done.
func (s Start) Topics(
	ctx context.Context, workers int, docs []Doc, terms, k int, rng *rand.Rand,
) [][]float64 {
	m, start := starter{docs, terms, k, workers}, s.of(k)
	unigram := make([]float64, m.terms)
	total := Tokens(m.docs)
	for _, d := range m.docs {
		for i, v := range d.Words {
			unigram[v] += d.Counts[i] / total
		}
	}
	if total == 0 {
		for v := range unigram {
			unigram[v] = 1 / float64(m.terms)
		}
	}
	out := dense.NewRows(k, m.terms)
	switch start {
	case StartKMeans:
		m.clusters(ctx, out, rng)
	case StartAnchors:
		m.anchorTopics(ctx, out, rng)
	case StartDocs:
		for _, row := range out {
			for range startDocs {
				addDoc(row, m.docs[rng.IntN(len(m.docs))])
			}
		}
	}
	for _, row := range out {
		var sum float64
		for _, x := range row {
			sum += x
		}
		for v, u := range unigram {
			switch {
			case start != StartRandom && sum > 0:
				row[v] = startMix*row[v]/sum + (1-startMix)*u
			default: // StartRandom, or a topic without documents
				row[v] = u * (0.5 + rng.Float64())
			}
		}
	}
	return out
}

// addDoc adds the counts of d to row.
func addDoc(row []float64, d Doc) {
	for i, v := range d.Words {
		row[v] += d.Counts[i]
	}
}

// tfidf returns the documents with their counts replaced by TF-IDF weights y_v log(D/D_v), scaled to
// norm 1.
func (m starter) tfidf() []Doc {
	idf := make([]float64, m.terms)
	for _, d := range m.docs {
		for _, v := range d.Words {
			idf[v]++
		}
	}
	for v, n := range idf {
		idf[v] = math.Log(float64(len(m.docs)) / max(1, n))
	}
	out := make([]Doc, len(m.docs))
	for n, d := range m.docs {
		x := make([]float64, len(d.Words))
		var norm float64
		for i, v := range d.Words {
			x[i] = d.Counts[i] * idf[v]
			norm += x[i] * x[i]
		}
		for i := range x {
			x[i] /= math.Sqrt(max(norm, math.SmallestNonzeroFloat64))
		}
		out[n] = Doc{d.Words, x}
	}
	return out
}

// clusters stores the word counts of K clusters of documents in out. It makes startParts·K clusters
// by k-means, divides them among the topics (see partition), and moves single documents between
// topics. It repeats this a few times, in parallel, and keeps the best result. K clusters by k-means
// alone are worse, because most groups of documents end up in one cluster if there are more groups
// than topics.
func (m starter) clusters(ctx context.Context, out [][]float64, rng *rand.Rand) {
	few := m
	if n := len(m.docs); n > startSample {
		few.docs = make([]Doc, startSample)
		for i, at := range rng.Perm(n)[:startSample] {
			few.docs[i] = m.docs[at]
		}
	}
	var tries [startTries]struct {
		rng        *rand.Rand // its own, so the order of the tries does not matter
		rows       [][]float64
		likelihood float64
	}
	for i := range tries {
		tries[i].rng = rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
	}
	x := few.tfidf()
	words := newPostings(x, m.terms)
	parallel.For(startTries, 1, m.workers, func(_, i, _ int) {
		t := &tries[i]
		t.rows = dense.NewRows(m.k, m.terms)
		parts := few.parts(few.kMeans(ctx, x, words, t.rng))
		if ctx.Err() != nil {
			return
		}
		for i, k := range search(parts, m.k, m.terms, t.rng) {
			addDoc(t.rows[k], parts[i])
		}
		for range startMoves {
			if m.reassign(t.rows); ctx.Err() != nil {
				return
			}
		}
		t.likelihood = likelihood(t.rows)
	})
	best := 0
	for i, t := range tries {
		if t.likelihood > tries[best].likelihood {
			best = i
		}
	}
	for k, row := range tries[best].rows {
		copy(out[k], row)
	}
}

// parts returns the word counts of each cluster of documents.
func (m starter) parts(cluster []int) []Doc {
	parts := make([]Doc, max(m.k, min(startParts*m.k, len(m.docs))))
	members := make([][]int, len(parts))
	for n, j := range cluster {
		members[j] = append(members[j], n)
	}
	sum := make([]float64, m.terms)
	for j := range parts {
		clear(sum)
		for _, n := range members[j] {
			addDoc(sum, m.docs[n])
		}
		for v, c := range sum {
			if c > 0 {
				parts[j].Words, parts[j].Counts = append(parts[j].Words, v), append(parts[j].Counts, c)
			}
		}
	}
	return parts
}

// reassign puts each document into the topic in which its words are most likely, and stores the
// words of the documents of each topic in rows.
func (m starter) reassign(rows [][]float64) {
	logs := make([]float64, m.terms*m.k) // log β, so that the topics of a word are adjacent
	for k, row := range rows {
		total := math.Log(floats.Sum(row) + startSmooth*float64(m.terms))
		for v, c := range row {
			logs[v*m.k+k] = math.Log(c+startSmooth) - total
		}
		clear(row)
	}
	value := make([]float64, m.k)
	for _, d := range m.docs {
		clear(value)
		for i, v := range d.Words {
			floats.AddScaled(value, d.Counts[i], logs[v*m.k:(v+1)*m.k])
		}
		addDoc(rows[floats.MaxIdx(value)], d)
	}
}

// likelihood returns the log-likelihood of the counts in rows when each topic has the frequencies
// of its row.
func likelihood(rows [][]float64) (l float64) {
	for _, row := range rows {
		for _, c := range row {
			l += xlogx(c)
		}
		l -= xlogx(floats.Sum(row))
	}
	return l
}

// kMeans returns the cluster of each document by spherical k-means on the TF-IDF weights x. The first
// centers are drawn by k-means++. A document that shares no word with any center goes to a random
// cluster.
func (m starter) kMeans(ctx context.Context, x []Doc, words postings, rng *rand.Rand) []int {
	k := max(m.k, min(startParts*m.k, len(x)))
	centers := make([]float64, m.terms*k) // word by word, so that the centers of a word are adjacent
	m.seed(centers, k, x, words, rng)
	cluster := make([]int, len(x))
	cos, norm := make([]float64, k), make([]float64, k)
	for j := range norm {
		norm[j] = 1
	}
	for round := range startRounds {
		if ctx.Err() != nil {
			break
		}
		for n := range x {
			clear(cos)
			for i, v := range x[n].Words {
				fma.Axpy(x[n].Counts[i], centers[v*k:(v+1)*k], cos)
			}
			for j := range cos {
				cos[j] *= norm[j]
			}
			cluster[n] = floats.MaxIdx(cos)
			if cos[cluster[n]] <= 0 {
				cluster[n] = rng.IntN(k)
			}
		}
		if round == startRounds-1 {
			break
		}
		clear(centers)
		for n, j := range cluster {
			for i, v := range x[n].Words {
				centers[v*k+j] += x[n].Counts[i]
			}
		}
		clear(norm)
		for v := range m.terms {
			fma.AddSquares(norm, 0, centers[v*k:(v+1)*k])
		}
		for j, s := range norm {
			norm[j] = 1 / math.Sqrt(max(s, math.SmallestNonzeroFloat64))
		}
	}
	return cluster
}

// seed draws k documents as centers. Each is drawn with a probability proportional to its distance
// from the centers before it (k-means++, Arthur and Vassilvitskii 2007).
func (m starter) seed(centers []float64, k int, x []Doc, words postings, rng *rand.Rand) {
	far, cos := make([]float64, len(x)), make([]float64, len(x))
	for n := range far {
		far[n] = 1
	}
	for j := range k {
		d := x[batches.Pick(far, rng)]
		clear(cos)
		for i, v := range d.Words {
			centers[v*k+j] = d.Counts[i]
			words.add(cos, d.Counts[i], v)
		}
		for n, c := range cos {
			far[n] = min(far[n], max(0, 1-c))
		}
	}
}

// postings holds the documents with each word, one word after the other.
type postings struct {
	from   []int // where the documents of each word begin
	doc    []int32
	weight []float64
}

// newPostings returns the postings of documents over the given number of terms.
func newPostings(docs []Doc, terms int) (p postings) {
	p.from = make([]int, terms+1)
	for _, d := range docs {
		for _, v := range d.Words {
			p.from[v+1]++
		}
	}
	for v := range terms {
		p.from[v+1] += p.from[v]
	}
	p.doc, p.weight = make([]int32, p.from[terms]), make([]float64, p.from[terms])
	at := slices.Clone(p.from)
	for n, d := range docs {
		for i, v := range d.Words {
			p.doc[at[v]], p.weight[at[v]] = int32(n), d.Counts[i]
			at[v]++
		}
	}
	return p
}

// add adds c times the weight of word v in each document to dst.
func (p postings) add(dst []float64, c float64, v int) {
	weight := p.weight[p.from[v]:p.from[v+1]]
	for i, n := range p.doc[p.from[v]:p.from[v+1]] {
		dst[n] += c * weight[i]
	}
}

// anchorTopics stores in out the words of the documents of each of K anchor words. Row v of the
// matrix of word pairs, which says with which words v occurs, is projected at random to few
// dimensions; anchors are found one at a time as the row furthest from the span of those before.
func (m starter) anchorTopics(ctx context.Context, out [][]float64, rng *rand.Rand) {
	words, q := m.wordPairs(ctx, rng)
	for k := range out {
		if ctx.Err() != nil {
			return
		}
		far, at := 0.0, -1
		for i, row := range q {
			var norm float64
			for _, x := range row {
				norm += x * x
			}
			if norm > far {
				far, at = norm, i
			}
		}
		if at < 0 {
			return // fewer directions than topics: the rest start at random
		}
		for _, d := range m.docs {
			if hasWord(d, words[at]) {
				addDoc(out[k], d)
			}
		}
		unit := make([]float64, anchorDim)
		for j, x := range q[at] {
			unit[j] = x / math.Sqrt(far)
		}
		for _, row := range q {
			var c float64
			for j, x := range row {
				c += x * unit[j]
			}
			for j := range row {
				row[j] -= c * unit[j]
			}
		}
		clear(q[at])
	}
}

// wordPairs returns the words that are frequent enough for anchors, and their rows of the matrix of
// word pairs, projected at random and centred.
func (m starter) wordPairs(ctx context.Context, rng *rand.Rand) (words []int, q [][]float64) {
	const dim = anchorDim
	words, index := m.frequent()
	project := make([]float32, m.terms*dim)
	for i := range project {
		project[i] = float32(rng.NormFloat64())
	}
	q = dense.NewRows(len(words), dim)
	weight := make([]float64, len(words))
	sum := make([]float64, dim)
	for _, d := range m.docs {
		w := d.Tokens()
		if ctx.Err() != nil {
			return
		}
		if w < 2 {
			continue
		}
		clear(sum)
		for i, v := range d.Words {
			for j, x := range project[v*dim : (v+1)*dim] {
				sum[j] += d.Counts[i] * float64(x)
			}
		}
		for i, v := range d.Words {
			at := index[v]
			if at < 0 {
				continue
			}
			c := d.Counts[i] / (w * (w - 1)) // pairs of different tokens
			weight[at] += c * (w - 1)
			for j, x := range project[v*dim : (v+1)*dim] {
				q[at][j] += c * (sum[j] - float64(x))
			}
		}
	}
	mean := make([]float64, dim)
	for i, row := range q {
		for j := range row {
			row[j] /= max(weight[i], math.SmallestNonzeroFloat64)
			mean[j] += row[j] / float64(len(q))
		}
	}
	for _, row := range q {
		for j := range row {
			row[j] -= mean[j]
		}
	}
	return words, q
}

// frequent returns the words that occur in enough documents, and the place of each word among them,
// −1 of those that do not.
func (m starter) frequent() (words, index []int) {
	docs := make([]float64, m.terms)
	for _, d := range m.docs {
		for _, v := range d.Words {
			docs[v]++
		}
	}
	least := max(anchorMin, math.Ceil(anchorPart*float64(len(m.docs))))
	index = make([]int, m.terms)
	for v, n := range docs {
		index[v] = -1
		if n >= least {
			index[v] = len(words)
			words = append(words, v)
		}
	}
	return words, index
}

// hasWord reports whether word v occurs in d.
func hasWord(d Doc, v int) bool {
	_, ok := slices.BinarySearch(d.Words, v)
	return ok
}
