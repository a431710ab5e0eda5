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

// ReadLDAC reads a corpus in the format of Blei's programs lda-c and ctm-c, with one document per
// line:
//
//	n word:count word:count …
//
// n is the number of pairs that follow, and words count from 0. The vocabulary has the given number
// of terms. If terms is 0, it has as many terms as the largest word needs.
//
// Words may come in any order. If a word occurs twice in a line, its counts are added, and counts
// of zero are dropped. Counts need not be whole. Blank lines, CRLF line ends and a UTF-8 byte order
// mark are skipped, and a file packed by gzip is unpacked. A document without words is a line "0".
//
// The errors name the line and the problem. They wrap ErrShape if a line does not have this form or
// a word is not below terms, ErrNotFinite if a count is not a finite number, ErrParam if a count is
// negative or terms is not from 0 to math.MaxInt32, and ErrEmpty if the file has no documents. They
// wrap ErrMemory if a line or the whole file does not fit in memory, if gzip unpacks to more than
// 300 times its size, or if terms is 0 and a word is so large that even the smallest model, which
// takes 120 bytes per term, would not fit in memory. They wrap an error of r.
func ReadLDAC(r io.Reader, terms int) (*pgsvi.Corpus, error) {
	if terms < 0 || terms > math.MaxInt32 {
		return nil, sentinel.Wrap(pgsvi.ErrParam, "pgsvi: lda-c: the number of terms is %d; it "+
			"must be 0 or positive, and below 2^31", terms)
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
				return nil, s.fail(pgsvi.ErrShape, "%s is not word:count", csvQuote(string(field)))
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
		slices.SortFunc(line, corpusEntry.compare) // faster than sorting all entries at the end
		if found := len(line); found != n {
			return nil, s.fail(pgsvi.ErrShape, "the number of words is %d, but the line begins "+
				"with %d",
				found, n)
		}
		if docs == math.MaxInt32 {
			return nil, s.fail(pgsvi.ErrShape, "the file has more than %d documents", docs)
		}
		docs++
		if err := s.keep(1, n); err != nil {
			return nil, err
		}
		if !asked {
			const instead = "renumber the words, or set the number of terms"
			if err := s.checkTerms(terms, instead); err != nil {
				return nil, err
			}
		}
	}
	return newCorpus(s.format, entries, docs, terms)
}

// ReadUCI reads a corpus in the format of the bag-of-words collections at UCI (docword files). The
// first three lines have the numbers of documents, of words in the vocabulary, and of entries. Then
// each line has an entry:
//
//	document word count
//
// Documents and words count from 1 in the file, and from 0 in the Corpus. Entries may come in any
// order, and documents may have no entries. Repeated words, counts, blank lines and gzip are
// treated as in ReadLDAC.
//
// The errors name the line and the problem. They wrap ErrShape if a line does not have this form,
// if a document or word exceeds the number in the header, if the number of entries differs from the
// header, or if nearly all documents are empty. The limit is 65,536 + 16·entries documents, because
// a damaged header could otherwise use any amount of memory. They wrap ErrNotFinite if a count is
// not a finite number, ErrParam if a count is negative, ErrEmpty if the file has no documents, and
// ErrMemory as in ReadLDAC, for the number of words in the header. They wrap an error of r.
func ReadUCI(r io.Reader) (*pgsvi.Corpus, error) {
	s, err := newCorpusScanner(r, "UCI docword")
	if err != nil {
		return nil, err
	}
	var size [3]int
	for i, what := range corpusSizes {
		text, err := s.next()
		if err == io.EOF && i == 0 {
			return nil, sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: the %s file has no documents",
				s.format)
		}
		if err == io.EOF {
			return nil, s.fail(pgsvi.ErrShape, "the file ends before the %s", what)
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

// ReadMatrixMarket reads a corpus from a sparse matrix in the Matrix Market exchange format, with
// documents as rows and words as columns, as gensim and other programs write it. The first line is
//
//	%%MatrixMarket matrix coordinate integer general
//
// or has real or pattern in place of integer. In a pattern every count is 1. Other lines that begin
// with % are comments. The next line has the numbers of rows, columns and entries. The entries
// follow, as in ReadUCI.
//
// The errors are the errors of ReadUCI, and also wrap ErrShape if the first line is different.
func ReadMatrixMarket(r io.Reader) (*pgsvi.Corpus, error) {
	s, err := newCorpusScanner(r, "Matrix Market")
	if err != nil {
		return nil, err
	}
	text, err := s.next()
	if err == io.EOF {
		return nil, sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: the %s file has no documents", s.format)
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
		return nil, s.fail(pgsvi.ErrShape, "the header is %s; it must be %%%%MatrixMarket matrix "+
			"coordinate integer, real or pattern general", csvQuote(string(bytes.TrimSpace(text))))
	}
	s.comment = '%'
	if text, err = s.next(); err == io.EOF {
		return nil, s.fail(pgsvi.ErrShape, "the file ends before the numbers of rows, columns and "+
			"entries")
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
		return nil, s.fail(pgsvi.ErrShape, "unexpected %s after the rows, columns and entries",
			csvQuote(string(field)))
	}
	return s.coordinates(size, kind == "pattern")
}

// WriteLDAC writes c in the format that ReadLDAC reads, with exact counts. It keeps documents
// without words, but does not write Terms and Vocab. If Validate returns an error, WriteLDAC
// returns it and writes nothing. It wraps an error of w.
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

// WriteUCI writes c in the format that ReadUCI reads, with exact counts. It does not write Vocab.
// If Validate returns an error, WriteUCI returns it and writes nothing. It wraps an error of w.
func WriteUCI(w io.Writer, c *pgsvi.Corpus) error {
	header := fmt.Sprintf("%d\n%d\n%d\n", len(c.Docs), c.Terms, corpusEntries(c))
	return writeCorpus(w, c, "UCI docword", header, appendEntries)
}

// WriteMatrixMarket writes c as a matrix that ReadMatrixMarket reads, with exact counts. The matrix
// is integer if all counts are whole numbers below 1e15, and real otherwise. WriteMatrixMarket does
// not write Vocab. If Validate returns an error, it returns the error and writes nothing. It wraps
// an error of w.
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

// ReadVocab reads the words of a vocabulary, one per line, in the order of their indices. It skips
// spaces around words, blank lines at the end, CRLF line ends and a UTF-8 byte order mark, and
// unpacks gzip. The errors wrap ErrShape and name the line if it is blank and not at the end,
// ErrEmpty if there are no words, and ErrMemory as in ReadLDAC. They wrap an error of r.
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
				"pgsvi: vocabulary, line %d: the line is blank; remove it or add a word",
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
		return nil, sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: the vocabulary has no words")
	}
	return vocab, nil
}

// WriteVocab writes words, one per line, for ReadVocab. If ReadVocab would not restore a word,
// WriteVocab writes nothing and returns an error that names the word and wraps ErrParam. These
// words are empty, have spaces around them or contain a line feed, or are the first word and begin
// like a gzip file or with a byte order mark. WriteVocab wraps an error of w.
func WriteVocab(w io.Writer, vocab []string) error {
	for i, word := range vocab {
		if word == "" || strings.Trim(word, vocabSpace) != word || strings.Contains(word, "\n") ||
			i == 0 && (strings.HasPrefix(word, "\ufeff") || strings.HasPrefix(word, "\x1f\x8b")) {
			return sentinel.Wrap(pgsvi.ErrParam,
				"pgsvi: vocabulary: word %d is %s; it must be one line without spaces around it", i,
				csvQuote(word))
		}
	}
	bw := bufio.NewWriterSize(w, 1<<16)
	for _, word := range vocab {
		bw.WriteString(word)
		bw.WriteByte('\n')
	}
	if err := bw.Flush(); err != nil { // the error of the first failed write
		return fmt.Errorf("pgsvi: writing a vocabulary: %w", err)
	}
	return nil
}

// vocabSpace holds the characters that are trimmed from both ends of a word.
const vocabSpace = " \t\r\n"

// A corpusEntry is the number of times that a word occurs in a document.
type corpusEntry struct {
	doc, word int32
	count     float64
}

// compare orders entries by document, then by word.
func (e corpusEntry) compare(f corpusEntry) int {
	return cmp.Compare(int64(e.doc)<<32|int64(e.word), int64(f.doc)<<32|int64(f.word))
}

// newCorpus returns the corpus of the entries, which it sorts. Its documents share two slices.
func newCorpus(format string, entries []corpusEntry, docs, terms int) (*pgsvi.Corpus, error) {
	if docs == 0 {
		return nil, sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: the %s file has no documents", format)
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
	if err := c.Validate(); err != nil { // the sum of the counts may be infinite
		return nil, err
	}
	return c, nil
}

// A corpusScanner reads the lines of a corpus file.
type corpusScanner struct {
	*libsvmScanner
	format  string
	comment byte // first character of lines to skip, or 0
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

// Advice for a corpus that does not fit in memory, and for a header with too many terms.
const (
	corpusTooLarge = "read fewer documents and stream the rest, or raise the limit (GOMEMLIMIT)"
	headerTerms    = "renumber the words, or raise the limit (GOMEMLIMIT)"
)

// keep takes the memory of documents and entries from the budget.
func (s *corpusScanner) keep(docs, entries int) error {
	// 48 bytes for a Document; 32 bytes for an entry, its word and its count
	if err := s.budget.Keep(48*docs + 32*entries); err != nil {
		return sentinel.Wrap(pgsvi.ErrMemory, "pgsvi: %s, line %d: %w", s.format, s.line, err)
	}
	return nil
}

// checkTerms is checkWidth for a number of terms that the caller did not set.
func (s *corpusScanner) checkTerms(terms int, instead string) error {
	if err := checkWidth(terms, "terms", instead); err != nil {
		return fmt.Errorf("pgsvi: %s, line %d: %w", s.format, s.line, err)
	}
	return nil
}

// next returns the next line that is neither blank nor a comment, or io.EOF. The line is valid
// until the next call.
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

// fail returns an error that names the last line read.
func (s *corpusScanner) fail(wraps error, format string, args ...any) error {
	return sentinel.Wrap(wraps, "pgsvi: %s, line %d: %s", s.format, s.line,
		fmt.Sprintf(format, args...))
}

// integer parses an integer from least to most.
func (s *corpusScanner) integer(field []byte, what string, least, most int) (int, error) {
	n, ok := parseDigits(field)
	if !ok || n < least || n > most {
		return 0, s.fail(pgsvi.ErrShape, "the %s is %s; it must be from %d to %d", what,
			csvQuote(string(field)), least, most)
	}
	return n, nil
}

// count parses a finite, nonnegative number.
func (s *corpusScanner) count(field []byte) (float64, error) {
	if n, ok := parseDigits(field); ok && int64(n) < 1<<53 {
		return float64(n), nil
	}
	v, ok := libsvmFloat(field)
	if !ok {
		return 0, s.fail(pgsvi.ErrNotFinite, "the count %s is not a finite number",
			csvQuote(string(field)))
	}
	if v < 0 {
		return 0, s.fail(pgsvi.ErrParam, "the count is %s; counts must not be negative",
			csvQuote(string(field)))
	}
	return v, nil
}

// parseDigits parses a number that consists only of digits. It returns math.MaxInt for larger
// numbers.
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

// The numbers in a header of coordinates, in order, and their largest values. The limits for
// documents and terms are below the math.MaxInt that parseDigits returns, also on 32-bit systems.
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
	// grows with the entries read, because the header may be wrong
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
			return nil, s.fail(pgsvi.ErrShape, "the file has more entries than the %d in its "+
				"header",
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
			return nil, s.fail(pgsvi.ErrShape, "the number of fields is %d instead of %d", found,
				width)
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
		return nil, s.fail(pgsvi.ErrShape, "the file ends after entry %d, but its header has %d "+
			"entries",
			len(entries), size[2])
	}
	if most := 1<<16 + 16*len(entries); size[0] > most {
		return nil, sentinel.Wrap(pgsvi.ErrShape,
			"pgsvi: %s: the header has %d documents, above the limit of %d for %d entries",
			s.format, size[0], most, len(entries))
	}
	if err := s.keep(size[0], 0); err != nil {
		return nil, err
	}
	return newCorpus(s.format, entries, size[0], size[1])
}

// corpusEntries returns the total number of entries of all documents.
func corpusEntries(c *pgsvi.Corpus) (n int) {
	for _, d := range c.Docs {
		n += len(d.Words)
	}
	return n
}

// writeCorpus writes the header and one text per document, which line appends.
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

// appendEntries appends one line for each word of document i.
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

// appendCount appends a positive number exactly. A whole number has only digits, because some
// programs read only integers.
func appendCount(text []byte, v float64) []byte {
	if isWhole(v) {
		return strconv.AppendInt(text, int64(v), 10)
	}
	return strconv.AppendFloat(text, v, 'g', -1, 64)
}

func isWhole(v float64) bool { return v == math.Floor(v) && v < 1e15 }
