package cli

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// A TopicModel is a *pgsvi.CTMPosterior or a *pgsvi.LDAPosterior.
type TopicModel interface {
	Topics() *mat.Dense
	Vocab() []string
	Infer(d pgsvi.Document) (*pgsvi.DocPosterior, error)
	HeldOut(c *pgsvi.Corpus, opt *pgsvi.HeldOutOptions) (*pgsvi.HeldOut, error)
}

// WriteTopics writes the topic proportions of documents as CSV, one document per line: its name, the
// mean and the interval of each topic, and a note. It returns the number of documents with an error,
// which the note holds. If ctx is done, it returns the cause of ctx.
func WriteTopics(ctx context.Context, w io.Writer, m TopicModel, docs *pgsvi.Corpus,
	names []string, level float64) (failed int, err error) {
	out := csv.NewWriter(w)
	k, _ := m.Topics().Dims()
	header := []string{"document"}
	for i := range k {
		header = append(header, fmt.Sprintf("topic %d", i+1), fmt.Sprintf("lo %d", i+1),
			fmt.Sprintf("hi %d", i+1))
	}
	out.Write(append(header, "note"))
	for n, d := range docs.Docs {
		if ctx.Err() != nil {
			return failed, context.Cause(ctx)
		}
		line := make([]string, len(header)+1)
		line[0] = names[n]
		note := &line[len(header)]
		if len(d.Words) == 0 {
			*note = "no word of the document is in the model"
		}
		if q, err := m.Infer(d); err != nil {
			failed++
			*note = PlainError(err)
		} else {
			mean, lo, hi := q.Proportions(level)
			for i := range k {
				for j, v := range []float64{mean[i], lo[i], hi[i]} {
					line[1+3*i+j] = strconv.FormatFloat(v, 'g', 6, 64)
				}
			}
		}
		out.Write(line)
	}
	out.Flush()
	return failed, out.Error()
}
