// What are these documents about, and what is a new document about?
//
// Data: the comments of the Go standard library, one document per source file. Documents with even
// numbers are for training, and the others are held out.
// The program fits latent Dirichlet allocation. It prints the words of each topic, the topics of a
// document that is held out, and the score of held-out words.
// To use your own text files: -data FOLDER
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"go/build"
	"io/fs"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

var (
	folder = flag.String("data", build.Default.GOROOT+"/src", "`folder` of documents")
	topics = flag.Int("topics", 10, "number of topics")
	seed   = flag.Uint64("seed", 1, "seed of the start and of the batches")

	document = regexp.MustCompile(`\.(go|txt|md)$`)
	skip     = regexp.MustCompile(`testdata|vendor|internal|/cmd/|_test\.go$`)
	comment  = regexp.MustCompile(`(?m)^\s*// .*$`)
	notice   = regexp.MustCompile(`(?s)should be an internal detail.*?issue/`) // occurs in many files
)

// read returns the documents in a folder and their names. It keeps only the comments of Go files.
func read(folder string) (c *pgsvi.Corpus, names []string, err error) {
	b := data.CorpusBuilder{MinDocs: 5, MaxDocs: 0.3}
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !document.MatchString(path) || skip.MatchString(path) {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.HasSuffix(path, ".go") {
			text = notice.ReplaceAll(bytes.Join(comment.FindAll(text, -1), []byte("\n")), nil)
		}
		if len(text) > 500 { // shorter texts have no clear topic
			b.Add(path, string(text))
		}
		return err
	})
	c, names = b.Corpus()
	return c, names, err
}

func main() {
	flag.Parse()
	ctx := context.Background()
	corpus, names, err := read(*folder)
	check(err)
	train, test := corpus.EvenOdd()
	lda, err := pgsvi.NewLDA(train, *topics, nil)
	check(err)
	post, res, err := lda.Fit(ctx, &pgsvi.Solver{Src: rand.NewPCG(*seed, 0)})
	check(err)
	fmt.Printf("%d documents, %d words; %v\n\n", len(corpus.Docs), corpus.Terms, res)
	words, err := pgsvi.TopWords(post.Topics(), train, 8, pgsvi.ByFREX)
	check(err)
	shares, err := post.DocTopics(nil) // one row per training document
	check(err)
	fmt.Println("topic  share  words")
	for k, w := range words {
		share := stat.Mean(mat.Col(nil, k, shares), nil)
		fmt.Printf("%5d  %5.3f  %s\n", k+1, share, strings.Join(w, " "))
	}

	doc, err := post.Infer(test.Docs[0])
	check(err)
	fmt.Printf("\nheld-out document %s:", names[1])
	shareOf, _, _ := doc.Proportions(0.9)
	for k, share := range shareOf {
		if share > 0.1 {
			fmt.Printf(" %.0f%% topic %d", 100*share, k+1)
		}
	}
	score, err := post.HeldOut(test, nil)
	check(err)
	fmt.Printf("\n%.3f nats per held-out word\n", score.PerToken)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
