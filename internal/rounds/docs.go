package rounds

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/topic"
)

// Docs is a random sample of documents. It keeps the documents with the smallest hashes of their
// block and place, so the sample does not depend on which machine reads which document.
type Docs struct {
	Most  int // largest number of documents
	Words int // largest number of distinct words, summed over all documents but the first
	terms int
	docs  []sampledDoc
	held  int // distinct words, summed over docs
	// edge is the smallest key that was dropped. Larger keys cannot be in the sample.
	edge key
}

type sampledDoc struct {
	topic.Doc
	key
}

// NewDocs returns an empty sample of at most most documents with words distinct words in all, over a
// vocabulary of terms words.
func NewDocs(most, words, terms int) *Docs {
	return &Docs{Most: most, Words: words, terms: terms, edge: noKey}
}

var noKey = key{math.MaxUint64, math.MaxUint64, math.MaxUint64}

// Add copies the document at a place of a block into the sample if its hash is small enough. It
// ignores documents without words.
func (s *Docs) Add(block, place uint64, d topic.Doc) {
	k := keyOf(block, place)
	if len(d.Words) == 0 || k.compare(s.edge) >= 0 {
		return
	}
	s.docs, s.held = append(s.docs, sampledDoc{d.Clone(), k}), s.held+len(d.Words)
	if len(s.docs) >= 2*s.Most || s.held >= 2*s.Words {
		s.cut()
	}
}

// cut sorts the documents and drops the ones that exceed the limits.
func (s *Docs) cut() {
	slices.SortFunc(s.docs, func(a, b sampledDoc) int { return a.compare(b.key) })
	n := 0
	s.held = 0
	for i, d := range s.docs {
		if more := s.held + len(d.Words); i < s.Most && (i == 0 ||
			more <= s.Words) && d.compare(s.edge) < 0 {
			s.held, n = more, i+1
			continue
		}
		if d.compare(s.edge) < 0 {
			s.edge = d.key
		}
		break
	}
	clear(s.docs[n:])
	s.docs = s.docs[:n]
}

// All returns the documents in the order of their hashes.
func (s *Docs) All() []topic.Doc {
	s.cut()
	all := make([]topic.Doc, len(s.docs))
	for i, d := range s.docs {
		all[i] = d.Doc
	}
	return all
}

// Merge adds the documents of o.
func (s *Docs) Merge(o *Docs) {
	if o.edge.compare(s.edge) < 0 {
		s.edge = o.edge
	}
	s.docs = append(s.docs, o.docs...)
	s.cut()
}

// State writes s, or reads it into an empty sample.
func (s *Docs) State(c *save.Coder) {
	s.cut()
	c.Uint64(&s.edge.hash, &s.edge.block, &s.edge.place)
	n := len(s.docs)
	c.Int(&n)
	c.Check(n <= s.Most, "a sample of %d documents, of at most %d", n, s.Most)
	for i := 0; i < n && c.Err() == nil; i++ {
		if c.Reading() {
			s.docs = append(s.docs, sampledDoc{})
		}
		d := &s.docs[i]
		d.state(c, s.terms)
		c.Check(i == 0 || s.docs[i-1].compare(d.key) < 0, "document %d of a sample is not in order",
			i)
	}
	if c.Reading() {
		s.cut()
		c.Check(len(s.docs) == n, "%d documents of a sample that has room for %d", n, len(s.docs))
	}
}

func (d *sampledDoc) state(c *save.Coder, terms int) {
	c.Uint64(&d.block, &d.place)
	d.key = keyOf(d.block, d.place)
	n := len(d.Words)
	c.Int(&n)
	c.Check(n > 0 && n <= terms, "a document of a sample has %d words of %d", n, terms)
	c.Floats(n, &d.Counts)
	c.Check(len(d.Counts) == n, "a document of a sample has no counts")
	if c.Reading() {
		d.Words = make([]int, n)
	}
	for i := range d.Words {
		c.Int(&d.Words[i])
	}
	if c.Reading() {
		c.Fail(d.Check(terms))
	}
}
