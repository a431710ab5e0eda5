// What are these documents about, and which topics occur together?
//
// Data: the comments of the Go standard library, one document per source file. Documents with even
// numbers are for training, and the others are held out.
// The program fits a correlated topic model. It prints the words of each topic, the correlations
// between topics and the score of held-out words, and draws the topics as a graph.
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
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/plot"
)

var (
	folder = flag.String("data", build.Default.GOROOT+"/src", "`folder` of documents")
	topics = flag.Int("topics", 10, "number of topics")
	out    = flag.String("out", "pictures/ctm.png", "picture to write")

	document = regexp.MustCompile(`\.(go|txt|md)$`)
	skip     = regexp.MustCompile(`testdata|vendor|internal|/cmd/|_test\.go$`)
	comment  = regexp.MustCompile(`(?m)^\s*// .*$`)
	notice   = regexp.MustCompile(`(?s)should be an internal detail.*?issue/`) // occurs in many files
)

// read returns the documents in a folder. It keeps only the comments of Go files.
func read(folder string) (*pgsvi.Corpus, error) {
	b := data.CorpusBuilder{MinDocs: 5, MaxDocs: 0.3}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
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
	c, _ := b.Corpus()
	return c, err
}

func main() {
	flag.Parse()
	ctx := context.Background()
	corpus, err := read(*folder)
	check(err)
	train, test := corpus.EvenOdd()
	ctm, err := pgsvi.NewCTM(train, *topics, nil)
	check(err)
	post, res, err := ctm.Fit(ctx, &pgsvi.Solver{MaxPasses: 10})
	check(err)
	fmt.Printf("%d documents, %d words; %v\n\nshare  words\n", len(corpus.Docs), corpus.Terms, res)
	words, err := pgsvi.TopWords(post.Topics(), train, 8, pgsvi.ByFREX)
	check(err)
	share, _, _ := post.Proportions(0.95)
	names := make([]string, len(words))
	for k, w := range words {
		fmt.Printf("%5.3f  %s\n", share[k], strings.Join(w, " "))
		names[k] = strings.Join(w[:min(3, len(w))], " ")
	}
	links := plot.TopicLinks(post.Sigma())
	fmt.Println("\ncorrelations between topics, corrected because the shares add up to one")
	for i := range names {
		for j := range i {
			if math.Abs(links.At(i, j)) > 0.3 {
				fmt.Printf("%+.2f  %s — %s\n", links.At(i, j), names[j], names[i])
			}
		}
	}
	score, err := post.HeldOut(test, nil)
	check(err)
	fmt.Printf("\n%.3f nats per held-out word\nwrote %s\n", score.PerToken, *out)
	labels := plot.Labels{Title: "Topics and their correlations"}
	check(plot.Save(*out, plot.TopicGraph(labels, names, share, links), 13))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
