package data

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
)

func TestTokenizer(t *testing.T) {
	none := map[string]bool{}
	for _, c := range []struct {
		t    Tokenizer
		in   string
		want string // words with bars
	}{
		{Tokenizer{}, "", ""},
		{Tokenizer{}, "The quick brown fox jumps over the lazy dogs.",
			"quick|brown|fox|jumps|lazy|dogs"},
		{Tokenizer{}, "It's Bill's; don't, O'Brien’s 'quoted' rock'n'roll dogs'",
			"bill|o'brien|quoted|rock'n'roll|dogs"},
		{Tokenizer{Stop: none}, "It's Bill's; don’t", "it|bill|don't"},
		{Tokenizer{}, "1990 3d 1990s x2 4x4 covid-19 a b c", "3d|1990s|x2|4x4|covid"},
		{Tokenizer{MinLen: 1, Stop: none}, "1990 a b'", "a|b"},
		{Tokenizer{MinLen: 4, Stop: none}, "new newt été étés", "newt|étés"},
		{Tokenizer{Stop: map[string]bool{"der": true, "die": false}}, "Der Ärger, die the",
			"ärger|die|the"},
		{Tokenizer{}, "cafe\u0301 café CAFÉ e\u0301te\u0301", "café|café|café|été"},
		{Tokenizer{}, "ﬁnal soft\u00adware a\u200db", "final|software|a\u200db"},
		{Tokenizer{}, "Москва Ελλάδα हिन्दी می\u200cخواهم", "москва|ελλάδα|हिन्दी|می\u200cخواهم"},
		{Tokenizer{}, "e-mail me@example.com/path_name", "mail|example|com|path|name"},
		{Tokenizer{}, "bro\xffken \xf0 '' ' 's ’", "bro|ken"},
	} {
		var want []string
		if c.want != "" {
			want = strings.Split(c.want, "|")
		}
		words := c.t.Words(c.in)
		for range 2 { // again and again
			if got := slices.Collect(words); !slices.Equal(got, want) {
				t.Errorf("%q: %q, want %q", c.in, got, want)
			}
		}
	}
	for range (Tokenizer{}).Words("quick brown fox") {
		break
	}
}

func TestEnglishStopWords(t *testing.T) {
	stop := EnglishStopWords()
	if n := len(stop); n < 170 || n > 400 {
		t.Errorf("%d stop words", n)
	}
	for w, ok := range stop {
		if !ok || w != strings.ToLower(w) {
			t.Errorf("stop word %q is %v", w, ok)
		}
		// It must be a text that a Tokenizer can produce, or the test is useless.
		if got := slices.Collect(Tokenizer{MinLen: 1, Stop: map[string]bool{}}.Words(w)); len(
			got) != 1 || got[0] != w {
			t.Errorf("stop word %q is cut into %q", w, got)
		}
	}
	stop["quick"] = true
	if EnglishStopWords()["quick"] || slices.Collect(Tokenizer{}.Words("quick"))[0] != "quick" {
		t.Error("a change of the copy changes the list")
	}
	if got := slices.Collect(Tokenizer{Stop: stop}.Words("the quick fox")); !slices.Equal(got,
		[]string{"fox"}) {
		t.Errorf("more stop words: %q", got)
	}
}

func TestCorpusBuilder(t *testing.T) {
	texts := []string{"zebra apple apple, the", "", "apple cherry zebra!",
		"banana apple cherry zebra", "apple apple zebra"}
	build := func(b *CorpusBuilder) *pgsvi.Corpus {
		t.Helper()
		for i, s := range texts {
			b.Add(fmt.Sprint("no. ", i), s)
		}
		c, names := b.Corpus()
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		if len(c.Docs) != len(texts) || len(names) != len(texts) || names[3] != "no. 3" {
			t.Errorf("%d documents, names %q", len(c.Docs), names)
		}
		return c
	}
	got := build(&CorpusBuilder{})
	want := &pgsvi.Corpus{Terms: 4, Vocab: []string{"apple", "banana", "cherry", "zebra"},
		Docs: []pgsvi.Document{
			{Words: []int{0, 3}, Counts: []float64{2, 1}}, {},
			{Words: []int{0, 2, 3}, Counts: []float64{1, 1, 1}},
			{Words: []int{0, 1, 2, 3}, Counts: []float64{1, 1, 1, 1}},
			{Words: []int{0, 3}, Counts: []float64{2, 1}},
		}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	// apple and zebra occur in 4 of five documents, cherry in 2 and banana in 1.
	for _, c := range []struct {
		b    CorpusBuilder
		want string
	}{
		{CorpusBuilder{MinDocs: 1, MaxDocs: 1, MaxTerms: 4}, "apple banana cherry zebra"},
		{CorpusBuilder{MinDocs: 2}, "apple cherry zebra"},
		{CorpusBuilder{MinDocs: 3}, "apple zebra"},
		{CorpusBuilder{MaxDocs: 0.8}, "apple banana cherry zebra"},
		{CorpusBuilder{MaxDocs: 0.79}, "banana cherry"},
		{CorpusBuilder{MinDocs: 2, MaxDocs: 0.4}, "cherry"},
		{CorpusBuilder{MaxTerms: 3}, "apple cherry zebra"},
		{CorpusBuilder{MaxTerms: 1}, "apple"},
		{CorpusBuilder{MaxTerms: 1, MaxDocs: 0.5}, "cherry"},
		{CorpusBuilder{MinDocs: 9}, ""},
		{CorpusBuilder{MinDocs: -1, MaxDocs: -1, MaxTerms: -1}, "apple banana cherry zebra"},
		{CorpusBuilder{Vocab: []string{"cherry", "pear", "apple", "pear"}, MinDocs: 9, MaxTerms: 1},
			"cherry pear apple pear"},
		{CorpusBuilder{Vocab: []string{}}, ""},
		{CorpusBuilder{Tokenizer: Tokenizer{MinLen: 6, Stop: map[string]bool{"banana": true}}},
			"cherry"},
	} {
		got := build(&c.b)
		if v := strings.Join(got.Vocab, " "); v != c.want || got.Vocab == nil {
			t.Errorf("%+v: %q, want %q", c.b, v, c.want)
		}
		for i, d := range got.Docs {
			counts := map[string]float64{}
			for k, w := range d.Words {
				counts[got.Vocab[w]] = d.Counts[k]
			}
			for k, w := range want.Docs[i].Words {
				if word := want.Vocab[w]; slices.Contains(got.Vocab, word) &&
					counts[word] != want.Docs[i].Counts[k] {
					t.Errorf("%+v: document %d has %v", c.b, i, counts)
				} else {
					delete(counts, word)
				}
			}
			if len(counts) > 0 {
				t.Errorf("%+v: document %d has %v more", c.b, i, counts)
			}
		}
	}
	// more documents, and words that were split elsewhere
	var b CorpusBuilder
	if c, names := b.Corpus(); len(c.Docs) != 0 || len(names) != 0 || c.Terms != 0 ||
		c.Validate() != nil {
		t.Errorf("nothing: %v, %v", c, names)
	}
	b.Add("first", "apple")
	first, _ := b.Corpus()
	b.AddWords("second", slices.Values([]string{"The", "北京", "The"}))
	second, names := b.Corpus()
	if !reflect.DeepEqual(first,
		&pgsvi.Corpus{Terms: 1, Vocab: []string{"apple"},
			Docs: []pgsvi.Document{{Words: []int{0}, Counts: []float64{1}}}}) {
		t.Errorf("first %+v", first)
	}
	if !slices.Equal(names, []string{"first", "second"}) ||
		!slices.Equal(second.Vocab, []string{"The", "apple", "北京"}) ||
		!slices.Equal(second.Docs[1].Counts, []float64{2, 1}) {
		t.Errorf("second %+v, %q", second, names)
	}
}

// FuzzTokenizer checks that words are as the documentation of Tokenizer describes, and that a
// corpus of them is valid and complete.
func FuzzTokenizer(f *testing.F) {
	f.Add("The quick brown fox's don’t ﬁ e\u0301 1990s \xff", 0)
	f.Add("İstanbul ǅ ẞ \u200d'a'\u00ad", 1)
	f.Fuzz(func(t *testing.T, text string, least int) {
		tok := Tokenizer{MinLen: least}
		counts := map[string]float64{}
		for w := range tok.Words(text) {
			counts[w]++
			if w == "" || EnglishStopWords()[w] || strings.Trim(w, joiners) == "" ||
				strings.ContainsAny(w, " \n.,-\u00ad’") {
				t.Fatalf("word %q", w)
			}
		}
		b := CorpusBuilder{Tokenizer: tok}
		b.Add("", text)
		c, _ := b.Corpus()
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		if !slices.IsSorted(c.Vocab) || !slices.Equal(c.Vocab, slices.Sorted(maps.Keys(counts))) {
			t.Fatalf("vocabulary %q, want %v", c.Vocab, counts)
		}
		for k, w := range c.Docs[0].Words {
			if c.Docs[0].Counts[k] != counts[c.Vocab[w]] {
				t.Fatalf("%q has count %v, want %v", c.Vocab[w], c.Docs[0].Counts[k],
					counts[c.Vocab[w]])
			}
		}
		// Reading it again with this vocabulary must give the same corpus.
		again := CorpusBuilder{Tokenizer: tok, Vocab: c.Vocab}
		again.Add("", text)
		if c2, _ := again.Corpus(); !reflect.DeepEqual(c2, c) {
			t.Fatalf("%v, want %v", c2, c)
		}
	})
}

func BenchmarkCorpusBuilder(b *testing.B) {
	text := strings.Repeat(
		"It was the best of times, it was the worst of times, it was the age of wisdom, it was "+
			"the age of foolishness. ", 1000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		var cb CorpusBuilder
		cb.Add("", text)
		if c, _ := cb.Corpus(); c.Terms == 0 {
			b.Fatal(errors.New("no words"))
		}
	}
}
