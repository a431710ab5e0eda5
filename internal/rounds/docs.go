package rounds

import (
	"math"
	"slices"

	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/topic"
)

// Docs is a random sample of documents: those whose block and place in it have the least hashes,
// as many as there is room for. So it is the same however the documents are dealt out.
type Docs struct {
	Most  int // documents
	Words int // different words of all of them, but for the first
	terms int
	docs  []sampledDoc
	held  int // words of docs
	// the least of the documents for which there was no room: no larger one is of the sample
	edge key
}

type sampledDoc struct {
	topic.Doc
	key
}

// NewDocs returns an empty sample, of at most so many documents over so many terms, and of so many
// words.
func NewDocs(most, words, terms int) *Docs {
	return &Docs{Most: most, Words: words, terms: terms, edge: noKey}
}

var noKey = key{math.MaxUint64, math.MaxUint64, math.MaxUint64}

// Add adds the document at a place of a block, of which it keeps a copy. A document without words
// is none of the sample.
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

// cut sorts the documents and drops those for which there is no room.
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

// All returns the documents, in the order of the hashes.
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
func (s *Docs) State(c *save.State) {
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

func (d *sampledDoc) state(c *save.State, terms int) {
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
