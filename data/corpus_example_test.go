package data_test

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/mat"
)

func ExampleCorpusBuilder() {
	b := data.CorpusBuilder{MinDocs: 2}
	b.Add("monday.txt", "The senate's vote on the budget was delayed. A vote is due.")
	b.Add("tuesday.txt", "Budget talks: the senate will vote on Friday.")
	b.Add("wednesday.txt", "The cup final ended in a draw.")
	b.Add("thursday.txt", "A goal decided the final!")
	c, names := b.Corpus()
	fmt.Println(c.Vocab)
	for i, d := range c.Docs {
		fmt.Println(names[i], d.Words, d.Counts)
	}

	// A new document, over the same vocabulary.
	unseen := data.CorpusBuilder{Vocab: c.Vocab}
	unseen.Add("friday.txt", "Senate to vote after the final")
	c, _ = unseen.Corpus()
	fmt.Println(c.Docs[0].Words)
	// Output:
	// [budget final senate vote]
	// monday.txt [0 2 3] [1 1 2]
	// tuesday.txt [0 2 3] [1 1 1]
	// wednesday.txt [1] [1]
	// thursday.txt [1] [1]
	// [1 2 3]
}

func ExampleTokenizer() {
	const text = "Don’t miss Anna's well-kept café of the 1990s."
	fmt.Println(slices.Collect(data.Tokenizer{}.Words(text)))

	stop := data.EnglishStopWords()
	stop["miss"] = true
	fmt.Println(slices.Collect(data.Tokenizer{Stop: stop, MinLen: 4}.Words(text)))
	// Output:
	// [miss anna well kept café 1990s]
	// [anna well kept café 1990s]
}

func ExampleReadLDAC() {
	c, err := data.ReadLDAC(strings.NewReader("3 0:2 4:1 1:1\n0\n1 2:3\n"), 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(c.Docs), "documents,", c.Terms, "terms,", c.Tokens(), "tokens")
	fmt.Println(c.DocFreq(), c.TermFreq())
	data.WriteUCI(os.Stdout, c)

	_, err = data.ReadLDAC(strings.NewReader("1 0:2\n2 2:3\n"), 0)
	fmt.Println(err)
	// Output:
	// 3 documents, 5 terms, 7 tokens
	// [1 1 1 0 1] [2 1 3 0 1]
	// 3
	// 5
	// 4
	// 1 1 2
	// 1 2 1
	// 1 5 1
	// 3 3 3
	// pgsvi: lda-c, line 2: the number of words is 1, but the line begins with 2
}

func ExampleDocument_Halves() {
	d := pgsvi.Document{Words: []int{2, 5, 7}, Counts: []float64{3, 1, 2}} // 2 2 2 5 7 7
	first, second := d.Halves()
	fmt.Println(first, second)
	// Output: {[2 7] [2 1]} {[2 5 7] [1 1 1]}
}

func ExampleTopWords() {
	c := &pgsvi.Corpus{
		Terms: 4, Vocab: []string{"year", "vote", "goal", "senate"},
		Docs: []pgsvi.Document{
			{Words: []int{0, 1, 3}, Counts: []float64{5, 3, 1}},
			{Words: []int{0, 1}, Counts: []float64{4, 2}},
			{Words: []int{0, 2}, Counts: []float64{5, 4}},
			{Words: []int{2}, Counts: []float64{2}},
		},
	}
	topics := mat.NewDense(2, 4, []float64{
		.48, .42, .01, .09,
		.55, .01, .43, .01,
	})
	for _, rank := range []pgsvi.TopicRank{pgsvi.ByProbability, pgsvi.ByFREX, pgsvi.ByLift,
		pgsvi.ByRelevance} {
		words, err := pgsvi.TopWords(topics, c, 2, rank)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%-11v %v\n", rank, words)
	}

	top, _ := pgsvi.TopTerms(topics, nil, 2, pgsvi.ByProbability)
	npmi, _ := pgsvi.NPMI(top, c)
	exclusive, _ := pgsvi.Exclusivity(topics, top)
	fmt.Printf("NPMI %.2f, exclusivity %.2f\n", npmi, exclusive)
	// Output:
	// probability [[year vote] [year goal]]
	// FREX        [[vote year] [year goal]]
	// lift        [[senate vote] [goal year]]
	// relevance   [[vote year] [goal year]]
	// NPMI [0.42 -0.29], exclusivity [0.72 0.76]
}
