package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/internal/cputime"
)

const (
	topicsOfAP   = 10
	topicsRounds = 10
	heldOutDraws = 1000 // 10,000 draws, as in the protocol, change the third decimal
)

var topicsHeader = append([]string{"documents", "shards", "rounds", "neg_elbo", "held_out"},
	header[5:]...)

// readAP returns the training and test documents of AP.
func readAP(folder string) (train, test *pgsvi.Corpus, err error) {
	f, err := os.Open(filepath.Join(folder, "ap", "ap.dat.gz"))
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	all, err := data.ReadLDAC(f, 0)
	if err != nil {
		return nil, nil, err
	}
	train, test = all.EvenOdd()
	return train, test, nil
}

// measureTopics fits topics of AP on increasing numbers of shards, with one document per block, and
// writes the file.
func measureTopics(ctx context.Context, out, folder string, quick bool, stderr io.Writer) error {
	train, test, err := readAP(folder)
	if err != nil {
		return err
	}
	records := [][]string{topicsHeader}
	blocks := slices.Collect(slices.Chunk(train.Docs, 1))
	for shards := 1; shards <= mostShards && !(quick && shards > 16); shards *= 4 {
		x, p, err := fitTopics(ctx, blocks, train.Terms, shards)
		if err != nil {
			return fmt.Errorf("%d shards: %w", shards, err)
		}
		h, err := p.HeldOut(test, &pgsvi.HeldOutOptions{Draws: heldOutDraws})
		if err != nil {
			return err
		}
		r := x.record()
		r[0], r[3] = strconv.Itoa(len(train.Docs)), strconv.FormatFloat(-x.elbo, 'f', 0, 64)
		r[4] = strconv.FormatFloat(h.PerToken, 'f', 4, 64)
		fmt.Fprintln(stderr, r)
		records = append(records, r)
	}
	return writeRecords(out, records)
}

// fitTopics fits topics on the given number of shards.
func fitTopics(
	ctx context.Context, blocks [][]pgsvi.Document, terms, shards int,
) (row, *pgsvi.CTMPosterior, error) {
	x := row{shards: shards}
	start := cputime.Seconds()
	r, err := pgsvi.NewCTMRounds(terms, topicsOfAP, nil)
	if err != nil {
		return x, nil, err
	}
	enough := func(it pgsvi.Iteration) bool { return it.K == topicsRounds }
	if err := drive(ctx, r, blocks, &x, enough); err != nil {
		return x, nil, err
	}
	p, err := r.Posterior()
	if err != nil {
		return x, nil, err
	}
	x.sha, err = checksum(p)
	x.seconds = cputime.Seconds() - start
	return x, p, err
}

// topicsTable returns the table of a file of measureTopics.
func topicsTable(file string) (string, error) {
	records, err := readRecords(file)
	if err != nil {
		return "", err
	}
	for i, r := range records {
		r[len(r)-1] = "`" + r[len(r)-1] + "`"
		if i > 0 {
			r[0] = ""
		}
	}
	return tables.Markdown([]string{"documents", "shards", "rounds", "−ELBO", "held out",
		"sample MB", "MB to a shard", "MB back", "ms per shard", "slowest", "ms per round", "CPU s",
		"posterior"}, records), nil
}
