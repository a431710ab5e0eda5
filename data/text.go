package data

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/pgsvi/pgsvi"
	"golang.org/x/text/unicode/norm"
)

// A Tokenizer splits plain text into words. The zero value is for English. For another language
// with spaces between words, set the stop words of that language. Text without spaces, such as
// Chinese or Thai, needs a dictionary; split it elsewhere and pass the words to
// CorpusBuilder.AddWords.
//
// A word is a run of letters, with their accents, and digits that has at least one letter.
// Apostrophes inside a word belong to it (don't, o'brien), but a final 's is removed. Words are in
// lower case and in Unicode's normal form NFKC, so é is one letter however it was typed, and the
// ligature ﬁ is fi. Hyphens separate words, unless they are soft hyphens.
type Tokenizer struct {
	MinLen int // length of the shortest word in characters; 0 means 2
	// Stop holds the words in lower case that are left out. Nil means EnglishStopWords, and an
	// empty map leaves out no words.
	Stop map[string]bool
}

// Words returns the words of text in order, with repetitions. They may share memory with text. The
// sequence can be used any number of times.
func (t Tokenizer) Words(text string) iter.Seq[string] {
	least, stop := t.MinLen, t.Stop
	if least == 0 {
		least = 2
	}
	if stop == nil {
		stop = englishStop()
	}
	return func(yield func(string) bool) {
		text := strings.ReplaceAll(norm.NFKC.String(text), "\u00ad", "")
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return !inWord(r) }) {
			word = strings.ToLower(strings.ReplaceAll(word, "’", "'"))
			word = strings.TrimSuffix(strings.Trim(word, joiners), "'s")
			if utf8.RuneCountInString(word) < least || stop[word] || !strings.ContainsFunc(word,
				unicode.IsLetter) {
				continue
			}
			if !yield(word) {
				return
			}
		}
	}
}

// joiners may occur inside a word: apostrophes, and the invisible marks that join or separate
// letters in Persian and the languages of India.
const joiners = "'’\u200c\u200d"

func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r) ||
		strings.ContainsRune(joiners, r)
}

// A CorpusBuilder makes a corpus from plain text. The zero value is ready to use for English, and
// keeps every word of the Tokenizer. Fields may be changed until the first document is added.
// MinDocs, MaxDocs and MaxTerms may also be changed later. A CorpusBuilder is not safe for
// concurrent use.
//
// The frequency of a word is the number of documents in which it occurs. A limit of 0 or less means
// no limit.
type CorpusBuilder struct {
	Tokenizer
	MinDocs int     // words in fewer documents are dropped as rare
	MaxDocs float64 // words in more than this share of the documents are dropped as common
	// MaxTerms is the largest number of words. Words in the fewest documents are dropped first, and
	// among equals the last words in the alphabet.
	MaxTerms int

	// Vocab is the vocabulary, if it is not nil. All other words are ignored, and no word is
	// dropped. Use the vocabulary of a training corpus to give new documents the same word indices.
	Vocab []string

	ids   map[string]int // indices of words, in the order of Vocab or of first use
	words []string
	docs  []pgsvi.Document // words by index
	names []string
}

// Add adds a document. The name is for the caller and need not be unique.
func (b *CorpusBuilder) Add(name, text string) { b.AddWords(name, b.Words(text)) }

// AddWords adds a document of words that were split by other means. It does not leave out any
// words.
func (b *CorpusBuilder) AddWords(name string, words iter.Seq[string]) {
	b.begin()
	bag := map[int]float64{}
	for word := range words {
		id, ok := b.ids[word]
		if !ok && b.Vocab != nil {
			continue
		}
		if !ok {
			word = strings.Clone(word) // so that the word does not keep the whole text in memory
			id = len(b.words)
			b.ids[word], b.words = id, append(b.words, word)
		}
		bag[id]++
	}
	b.docs, b.names = append(b.docs, bagDocument(bag)), append(b.names, name)
}

// begin makes the index of words before the first document.
func (b *CorpusBuilder) begin() {
	if b.ids != nil {
		return
	}
	b.ids, b.words = map[string]int{}, slices.Clone(b.Vocab)
	for id, word := range b.words {
		if _, twice := b.ids[word]; !twice {
			b.ids[word] = id
		}
	}
}

func bagDocument(bag map[int]float64) (d pgsvi.Document) {
	d.Words = slices.Sorted(maps.Keys(bag))
	for _, w := range d.Words {
		d.Counts = append(d.Counts, bag[w])
	}
	return d
}

// Corpus returns the corpus of the documents added so far, in order, and their names. The caller
// owns both. The vocabulary is Vocab, or in alphabetical order if Vocab is nil. A document is kept
// even if all its words are dropped. More documents may be added afterwards.
func (b *CorpusBuilder) Corpus() (c *pgsvi.Corpus, names []string) {
	b.begin()
	kept := b.prune()
	c = &pgsvi.Corpus{Docs: make([]pgsvi.Document, len(b.docs)), Terms: len(kept),
		Vocab: make([]string, len(kept))}
	index := map[int]int{} // from id to place in the vocabulary
	for i, id := range kept {
		index[id], c.Vocab[i] = i, b.words[id]
	}
	for i, d := range b.docs {
		bag := map[int]float64{}
		for k, id := range d.Words {
			if w, ok := index[id]; ok {
				bag[w] = d.Counts[k]
			}
		}
		c.Docs[i] = bagDocument(bag)
	}
	return c, slices.Clone(b.names)
}

// prune returns the ids of the vocabulary in order.
func (b *CorpusBuilder) prune() (kept []int) {
	if b.Vocab != nil {
		for id := range b.words {
			kept = append(kept, id)
		}
		return kept
	}
	freq := (&pgsvi.Corpus{Docs: b.docs, Terms: len(b.words)}).DocFreq()
	for id, n := range freq {
		common := b.MaxDocs > 0 && float64(n)/float64(len(b.docs)) > b.MaxDocs
		if n >= b.MinDocs && !common {
			kept = append(kept, id)
		}
	}
	slices.SortFunc(kept, func(i, j int) int { return strings.Compare(b.words[i], b.words[j]) })
	if b.MaxTerms > 0 && len(kept) > b.MaxTerms {
		often := slices.Clone(kept)
		slices.SortStableFunc(often, func(i, j int) int { return freq[j] - freq[i] })
		dropped := map[int]bool{}
		for _, id := range often[b.MaxTerms:] {
			dropped[id] = true
		}
		kept = slices.DeleteFunc(kept, func(id int) bool { return dropped[id] })
	}
	return kept
}

// EnglishStopWords returns a new map of the words that a Tokenizer leaves out by default: articles,
// pronouns, prepositions, conjunctions, auxiliary verbs and similar words.
func EnglishStopWords() map[string]bool { return maps.Clone(englishStop()) }

var englishStop = sync.OnceValue(func() map[string]bool {
	stop := map[string]bool{}
	for word := range strings.FieldsSeq(englishWords) {
		stop[word] = true
	}
	return stop
})

const englishWords = `
a an the this that these those
i me my mine myself you your yours yourself yourselves he him his himself she her hers herself
it its itself we us our ours ourselves they them their theirs themselves one ones
who whom whose which what when where why how
anyone anything each either everyone everything neither nobody none nothing someone something
all another any both enough every few less many more most much no other others own same several some such
about above across after against along among around as at before behind below beneath beside between beyond by
despite down during except for from in inside into near of off on onto out outside over per since through
throughout till to toward towards under until up upon via with within without
and although because but if nor or so than though unless whereas whether while yet
am are be been being did do does doing done had has have having is was were
can cannot could may might must ought shall should will would
again ago almost already also always away else even ever further here hence however indeed just never not
now often once only perhaps quite rather then there therefore thus too very
i'm i've i'd i'll you're you've you'd you'll he'd he'll she'd she'll it'd it'll we're we've we'd we'll they're they've they'd they'll
ain't aren't can't couldn't didn't doesn't don't hadn't hasn't haven't isn't mightn't mustn't needn't
shan't shouldn't wasn't weren't won't wouldn't
etc ie eg vs
`
