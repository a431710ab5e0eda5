package data

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// ReadLDAC reads a corpus in the format of Blei's programs lda-c and ctm-c, one
// document a line:
//
//	n word:count word:count …
//
// n is how many pairs follow, and words count from 0. The vocabulary has the
// given number of terms, or with terms 0 as many as the largest word needs.
//
// Words may come in any order; one that is given twice has the sum of its
// counts, and counts of zero are left out. Counts need not be whole. Blank lines,
// CRLF line ends and a UTF-8 byte order mark are skipped, and gzip, known by its
// first bytes, is unpacked. A document without words is a line "0".
//
// The errors name the line and what was found. They wrap ErrShape where that is
// not of this form or a word is not below terms, ErrNotFinite where a count is
// not a finite number, ErrParam where it is negative or terms is negative or
// above math.MaxInt32, ErrEmpty if there are no documents, and ErrMemory where a
// line or the file as a whole is more than there is memory for, gzip unpacks to more than 300
// times its size, or, with terms 0, a word is so large that the smallest of models would
// not have the memory for so many terms, at 120 bytes each. A failure of r is wrapped as it is.
func ReadLDAC(r io.Reader, terms int) (*pgsvi.Corpus, error) {
	if terms < 0 || terms > math.MaxInt32 {
		return nil, sentinel.Wrap(pgsvi.ErrParam, "pgsvi: lda-c with %d terms", terms)
	}
	most := terms
	if terms == 0 {
		most = math.MaxInt32
	}
	s, err := newCorpusScanner(r, "lda-c")
	if err != nil {
		return nil, err
	}
	var entries []corpusEntry
	asked := terms > 0
	docs := 0
	for {
		text, err := s.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		field, text := libsvmField(text)
		n, err := s.integer(field, "number of words", 0, math.MaxInt32)
		if err != nil {
			return nil, err
		}
		start := len(entries)
		for field, text = libsvmField(text); len(field) > 0; field, text = libsvmField(text) {
			word, count, ok := bytes.Cut(field, []byte{':'})
			if !ok {
				return nil, s.fail(pgsvi.ErrShape, "found %s, want word:count",
					csvQuote(string(field)))
			}
			w, err := s.integer(word, "word", 0, most-1)
			if err != nil {
				return nil, err
			}
			v, err := s.count(count)
			if err != nil {
				return nil, err
			}
			terms = max(terms, w+1)
			entries = append(entries, corpusEntry{int32(docs), int32(w), v})
		}
		line := entries[start:]
		slices.SortFunc(line, corpusEntry.compare) // faster than all of them at the end
		if found := len(line); found != n {
			return nil, s.fail(pgsvi.ErrShape, "found %d words, want %d as the line begins",
				found, n)
		}
		if docs == math.MaxInt32 {
			return nil, s.fail(pgsvi.ErrShape, "found more than %d documents", docs)
		}
		docs++
		if err := s.keep(1, n); err != nil {
			return nil, err
		}
		if !asked {
			const instead = "renumber the words, or say how many terms there are"
			if err := s.checkTerms(terms, instead); err != nil {
				return nil, err
			}
		}
	}
	return newCorpus(s.format, entries, docs, terms)
}

// ReadUCI reads a corpus in the format of the bag-of-words collections at UCI,
// the docword files: three lines with the numbers of documents, of words in the
// vocabulary, and of the entries that follow, one a line:
//
//	document word count
//
// Documents and words count from 1 here, and from 0 in the Corpus. Entries may
// come in any order, and documents may have none. What is said of words, counts,
// lines and gzip at ReadLDAC holds here too.
//
// The errors name the line and what was found. They wrap ErrShape where that is
// not of this form, or a document or word is not within the numbers of the
// header, or there are more or fewer entries than it says, or nearly all
// documents have none — more than 65,536 + 16·entries documents are taken for a
// damaged header, lest it cost memory. They wrap ErrNotFinite where a count is
// not a finite number, ErrParam where it is negative, ErrEmpty if there are
// no documents, and ErrMemory as at ReadLDAC, the terms being those of the header.
// A failure of r is wrapped as it is.
func ReadUCI(r io.Reader) (*pgsvi.Corpus, error) {
	s, err := newCorpusScanner(r, "UCI docword")
	if err != nil {
		return nil, err
	}
	var size [3]int
	for i, what := range corpusSizes {
		text, err := s.next()
		if err == io.EOF && i == 0 {
			return nil, sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: %s without documents", s.format)
		}
		if err == io.EOF {
			return nil, s.fail(pgsvi.ErrShape, "found the end, want the %s", what)
		}
		if err != nil {
			return nil, err
		}
		size[i], err = s.integer(bytes.TrimSpace(text), what, 0, corpusMost[i])
		if err == nil && i == 1 {
			err = s.checkTerms(size[i], headerTerms)
		}
		if err != nil {
			return nil, err
		}
	}
	return s.coordinates(size, false)
}

// ReadMatrixMarket reads a corpus from a sparse matrix in the exchange format
// Matrix Market: documents are rows and words columns, as gensim and others
// write them. The first line is
//
//	%%MatrixMarket matrix coordinate integer general
//
// or has real or pattern for integer; in a pattern every count is 1. Other lines
// that begin with % are comments. The sizes come on one line, rows, columns and
// entries, and then the entries as in ReadUCI, from 1.
//
// The errors are those of ReadUCI; the first line, if it is another than these,
// wraps ErrShape.
func ReadMatrixMarket(r io.Reader) (*pgsvi.Corpus, error) {
	s, err := newCorpusScanner(r, "Matrix Market")
	if err != nil {
		return nil, err
	}
	text, err := s.next()
	if err == io.EOF {
		return nil, sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: %s without documents", s.format)
	}
	if err != nil {
		return nil, err
	}
	kind := ""
	if f := strings.Fields(strings.ToLower(string(text[:min(len(text), 200)]))); len(f) == 5 &&
		f[0] == "%%matrixmarket" && f[1] == "matrix" && f[2] == "coordinate" && f[4] == "general" {
		kind = f[3]
	}
	if kind != "integer" && kind != "real" && kind != "pattern" {
		return nil, s.fail(pgsvi.ErrShape, "found %s, want %%%%MatrixMarket matrix coordinate "+
			"integer, real or pattern general", csvQuote(string(bytes.TrimSpace(text))))
	}
	s.comment = '%'
	if text, err = s.next(); err == io.EOF {
		return nil, s.fail(pgsvi.ErrShape, "found the end, want the numbers of rows, "+
			"columns and entries")
	}
	if err != nil {
		return nil, err
	}
	var size [3]int
	for i, what := range corpusSizes {
		var field []byte
		field, text = libsvmField(text)
		if size[i], err = s.integer(field, what, 0, corpusMost[i]); err != nil {
			return nil, err
		}
	}
	if err := s.checkTerms(size[1], headerTerms); err != nil {
		return nil, err
	}
	if field, _ := libsvmField(text); len(field) > 0 {
		return nil, s.fail(pgsvi.ErrShape, "found %s after rows, columns and entries",
			csvQuote(string(field)))
	}
	return s.coordinates(size, kind == "pattern")
}

// WriteLDAC writes c in the format that ReadLDAC reads, counts to the last bit.
// Documents without words are kept; Terms and Vocab leave no trace. The errors
// are those of Validate, upon which nothing has been written. A failure of w is
// wrapped as it is.
func WriteLDAC(w io.Writer, c *pgsvi.Corpus) error {
	return writeCorpus(w, c, "lda-c", "", func(text []byte, _ int, d pgsvi.Document) []byte {
		text = strconv.AppendInt(text, int64(len(d.Words)), 10)
		for k, word := range d.Words {
			text = append(text, ' ')
			text = strconv.AppendInt(text, int64(word), 10)
			text = append(text, ':')
			text = appendCount(text, d.Counts[k])
		}
		return append(text, '\n')
	})
}

// WriteUCI writes c in the format that ReadUCI reads, counts to the last bit.
// Vocab leaves no trace. The errors are those of Validate, upon which nothing has
// been written. A failure of w is wrapped as it is.
func WriteUCI(w io.Writer, c *pgsvi.Corpus) error {
	header := fmt.Sprintf("%d\n%d\n%d\n", len(c.Docs), c.Terms, corpusEntries(c))
	return writeCorpus(w, c, "UCI docword", header, appendEntries)
}

// WriteMatrixMarket writes c as a matrix that ReadMatrixMarket reads, counts to
// the last bit: of integers if all counts are whole numbers below 1e15, and else
// of reals. Vocab leaves no trace. The errors are those of Validate, upon which
// nothing has been written. A failure of w is wrapped as it is.
func WriteMatrixMarket(w io.Writer, c *pgsvi.Corpus) error {
	kind := "integer"
	for _, d := range c.Docs {
		if slices.ContainsFunc(d.Counts, func(v float64) bool { return !isWhole(v) }) {
			kind = "real"
			break
		}
	}
	header := fmt.Sprintf("%%%%MatrixMarket matrix coordinate %s general\n%d %d %d\n", kind,
		len(c.Docs), c.Terms, corpusEntries(c))
	return writeCorpus(w, c, "Matrix Market", header, appendEntries)
}

// ReadVocab reads the words of a vocabulary, one a line, in the order of their
// indices. Spaces around them, blank lines at the end, CRLF line ends and a UTF-8
// byte order mark are skipped, and gzip is unpacked. The errors wrap ErrShape,
// naming the line, at a blank line before the last word, ErrEmpty if there
// are no words, and ErrMemory as at ReadLDAC. A failure of r is wrapped as it is.
func ReadVocab(r io.Reader) ([]string, error) {
	s, err := newCorpusScanner(r, "vocabulary")
	if err != nil {
		return nil, err
	}
	var vocab []string
	for {
		text, err := s.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if s.line != len(vocab)+1 {
			return nil, sentinel.Wrap(pgsvi.ErrShape,
				"pgsvi: vocabulary, line %d: found nothing, want a word",
				len(vocab)+1)
		}
		word := string(bytes.Trim(text, vocabSpace))
		if err := s.budget.Keep(16 + len(word)); err != nil {
			return nil, sentinel.Wrap(pgsvi.ErrMemory,
				"pgsvi: vocabulary, line %d: %w", s.line, err)
		}
		vocab = append(vocab, word)
	}
	if len(vocab) == 0 {
		return nil, sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: vocabulary without a word")
	}
	return vocab, nil
}

// WriteVocab writes words one a line, as ReadVocab reads them. The error wraps
// ErrParam, naming the word, at one that would not be read back as it is: empty,
// with spaces around it or more than a line, or the first and with the first
// bytes of gzip or a byte order mark; nothing has been written then. A failure of
// w is wrapped as it is.
func WriteVocab(w io.Writer, vocab []string) error {
	for i, word := range vocab {
		if word == "" || strings.Trim(word, vocabSpace) != word || strings.Contains(word, "\n") ||
			i == 0 && (strings.HasPrefix(word, "\ufeff") || strings.HasPrefix(word, "\x1f\x8b")) {
			return sentinel.Wrap(pgsvi.ErrParam,
				"pgsvi: vocabulary: word %d is %s, want a line of text", i,
				csvQuote(word))
		}
	}
	bw := bufio.NewWriterSize(w, 1<<16)
	for _, word := range vocab {
		bw.WriteString(word)
		bw.WriteByte('\n')
	}
	if err := bw.Flush(); err != nil { // that of the first failed write
		return fmt.Errorf("pgsvi: writing a vocabulary: %w", err)
	}
	return nil
}

// vocabSpace is not part of a word, at either end of it.
const vocabSpace = " \t\r\n"

// corpusEntry says how often a word occurs in a document.
type corpusEntry struct {
	doc, word int32
	count     float64
}

// compare orders entries by document and then by word.
func (e corpusEntry) compare(f corpusEntry) int {
	return cmp.Compare(int64(e.doc)<<32|int64(e.word), int64(f.doc)<<32|int64(f.word))
}

// newCorpus returns the corpus of entries, which it puts in order. Its documents
// are pieces of two slices.
func newCorpus(format string, entries []corpusEntry, docs, terms int) (*pgsvi.Corpus, error) {
	if docs == 0 {
		return nil, sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: %s without documents", format)
	}
	if !slices.IsSortedFunc(entries, corpusEntry.compare) {
		slices.SortFunc(entries, corpusEntry.compare)
	}
	c := &pgsvi.Corpus{Docs: make([]pgsvi.Document, docs), Terms: terms}
	words, counts := make([]int, 0, len(entries)), make([]float64, 0, len(entries))
	for k := 0; k < len(entries); {
		doc, start := entries[k].doc, len(words)
		for ; k < len(entries) && entries[k].doc == doc; k++ {
			e := entries[k]
			if last := len(words) - 1; last >= start && words[last] == int(e.word) {
				counts[last] += e.count
			} else if e.count > 0 {
				words, counts = append(words, int(e.word)), append(counts, e.count)
			}
		}
		if end := len(words); end > start {
			c.Docs[doc] = pgsvi.Document{Words: words[start:end:end], Counts: counts[start:end:end]}
		}
	}
	if err := c.Validate(); err != nil { // the sum of counts may be infinite
		return nil, err
	}
	return c, nil
}

// corpusScanner reads the lines of a file that holds a corpus.
type corpusScanner struct {
	*libsvmScanner
	format  string
	comment byte // lines that begin with it are skipped; 0 for none
	budget  *memory.Budget
}

func newCorpusScanner(r io.Reader, format string) (*corpusScanner, error) {
	s, err := newLIBSVMScanner(r, 0)
	if err != nil {
		return nil, err
	}
	return &corpusScanner{libsvmScanner: s, format: format, budget: memory.NewBudget("the corpus",
		corpusTooLarge)}, nil
}

// What to do about a corpus that is larger than memory, and about a header of too many terms.
const (
	corpusTooLarge = "read fewer documents and stream the rest, or raise the limit (GOMEMLIMIT)"
	headerTerms    = "renumber the words, or raise the limit (GOMEMLIMIT)"
)

// keep takes documents and entries out of the budget.
func (s *corpusScanner) keep(docs, entries int) error {
	// a Document; an entry, and its word and count
	if err := s.budget.Keep(48*docs + 32*entries); err != nil {
		return sentinel.Wrap(pgsvi.ErrMemory, "pgsvi: %s, line %d: %w", s.format, s.line, err)
	}
	return nil
}

// checkTerms is checkWidth of terms that nobody has asked for.
func (s *corpusScanner) checkTerms(terms int, instead string) error {
	if err := checkWidth(terms, "terms", instead); err != nil {
		return fmt.Errorf("pgsvi: %s, line %d: %w", s.format, s.line, err)
	}
	return nil
}

// next returns the next line that is neither blank nor a comment, valid until
// the one after it, or io.EOF.
func (s *corpusScanner) next() ([]byte, error) {
	for {
		text, err := s.readLine()
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("pgsvi: %s, line %d: %w", s.format, s.line, err)
		}
		if field, _ := libsvmField(text); len(field) > 0 && (s.comment == 0 ||
			field[0] != s.comment) {
			return text, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// fail returns an error that names the line last read.
func (s *corpusScanner) fail(wraps error, format string, args ...any) error {
	return sentinel.Wrap(wraps, "pgsvi: %s, line %d: %s", s.format, s.line,
		fmt.Sprintf(format, args...))
}

// integer parses an integer from least to most.
func (s *corpusScanner) integer(field []byte, what string, least, most int) (int, error) {
	n, ok := parseDigits(field)
	if !ok || n < least || n > most {
		return 0, s.fail(pgsvi.ErrShape, "found the %s %s, want one from %d to %d", what,
			csvQuote(string(field)), least, most)
	}
	return n, nil
}

// count parses a finite number that is not negative.
func (s *corpusScanner) count(field []byte) (float64, error) {
	if n, ok := parseDigits(field); ok && int64(n) < 1<<53 {
		return float64(n), nil
	}
	v, ok := libsvmFloat(field)
	if !ok {
		return 0, s.fail(pgsvi.ErrNotFinite, "found the count %s, want a finite number",
			csvQuote(string(field)))
	}
	if v < 0 {
		return 0, s.fail(pgsvi.ErrParam, "found the count %s, want none below 0",
			csvQuote(string(field)))
	}
	return v, nil
}

// parseDigits parses a number of digits only; one too large is math.MaxInt.
func parseDigits(field []byte) (n int, ok bool) {
	for _, c := range field {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n > (math.MaxInt-9)/10 {
			n = math.MaxInt
			continue
		}
		n = 10*n + int(c-'0')
	}
	return n, len(field) > 0
}

// The numbers of a header of coordinates, in their order, and the most they may be. A number that
// parseDigits cuts off is above that of documents and terms on systems of 32 bits too.
var (
	corpusSizes = [3]string{"number of documents", "number of terms", "number of entries"}
	corpusMost  = [3]int{math.MaxInt32 - 1, math.MaxInt32 - 1, math.MaxInt}
)

// coordinates reads size[2] entries of a matrix of size[0] documents and size[1] terms.
func (s *corpusScanner) coordinates(size [3]int, pattern bool) (*pgsvi.Corpus, error) {
	width := 3
	if pattern {
		width = 2
	}
	// grows with what is read, not with what is claimed
	entries := make([]corpusEntry, 0, min(size[2], 1<<12))
	for {
		text, err := s.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(entries) == size[2] {
			return nil, s.fail(pgsvi.ErrShape, "found more entries than the %d of the header",
				size[2])
		}
		var fields [3][]byte
		found := 0
		for field, rest := libsvmField(text); len(field) > 0; field, rest = libsvmField(rest) {
			if found < width {
				fields[found] = field
			}
			found++
		}
		if found != width {
			return nil, s.fail(pgsvi.ErrShape, "found %d fields, want %d", found, width)
		}
		doc, err := s.integer(fields[0], "document", 1, size[0])
		if err != nil {
			return nil, err
		}
		word, err := s.integer(fields[1], "word", 1, size[1])
		if err != nil {
			return nil, err
		}
		count := 1.0
		if !pattern {
			if count, err = s.count(fields[2]); err != nil {
				return nil, err
			}
		}
		if err := s.keep(0, 1); err != nil {
			return nil, err
		}
		entries = append(entries, corpusEntry{int32(doc - 1), int32(word - 1), count})
	}
	if len(entries) < size[2] {
		return nil, s.fail(pgsvi.ErrShape, "found the end after %d entries, want %d as in the "+
			"header", len(entries), size[2])
	}
	if most := 1<<16 + 16*len(entries); size[0] > most {
		return nil, sentinel.Wrap(pgsvi.ErrShape,
			"pgsvi: %s: the header has %d documents, want at most %d for %d "+
				"entries", s.format, size[0], most, len(entries))
	}
	if err := s.keep(size[0], 0); err != nil {
		return nil, err
	}
	return newCorpus(s.format, entries, size[0], size[1])
}

// corpusEntries returns the number of different words of each document, summed.
func corpusEntries(c *pgsvi.Corpus) (n int) {
	for _, d := range c.Docs {
		n += len(d.Words)
	}
	return n
}

// writeCorpus writes the header and what line appends for each document.
func writeCorpus(w io.Writer, c *pgsvi.Corpus, format, header string, line func(text []byte, i int,
	d pgsvi.Document) []byte) error {
	if err := c.Validate(); err != nil {
		return err
	}
	bw := bufio.NewWriterSize(w, 1<<16)
	bw.WriteString(header)
	var text []byte
	for i, d := range c.Docs {
		text = line(text[:0], i, d)
		if _, err := bw.Write(text); err != nil {
			return fmt.Errorf("pgsvi: writing %s: %w", format, err)
		}
	}
	if err := bw.Flush(); err != nil {
		return fmt.Errorf("pgsvi: writing %s: %w", format, err)
	}
	return nil
}

// appendEntries appends a line for each word of document i.
func appendEntries(text []byte, i int, d pgsvi.Document) []byte {
	for k, word := range d.Words {
		text = strconv.AppendInt(text, int64(i)+1, 10)
		text = append(text, ' ')
		text = strconv.AppendInt(text, int64(word)+1, 10)
		text = append(text, ' ')
		text = appendCount(text, d.Counts[k])
		text = append(text, '\n')
	}
	return text
}

// appendCount appends a positive number to the last bit, in digits only if it is
// whole, for readers that know nothing else.
func appendCount(text []byte, v float64) []byte {
	if isWhole(v) {
		return strconv.AppendInt(text, int64(v), 10)
	}
	return strconv.AppendFloat(text, v, 'g', -1, 64)
}

func isWhole(v float64) bool { return v == math.Floor(v) && v < 1e15 }
