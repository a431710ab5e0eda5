package beam

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// TestGLM compares the ELBO with the ELBO of a GLM in memory.
func TestGLM(t *testing.T) {
	rows := labels(2000)
	x, y := mat.NewDense(len(rows), testCols, nil), make([]float64, len(rows))
	for i, r := range rows {
		x.SetRow(i, r.Val)
		y[i] = r.Y
	}
	g, err := pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, want, err := g.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	path := writeTo(t, filepath.Join(t.TempDir(), "rows"), rowFileOf(t, rows, false))
	var reports []Result
	_, res := glm(t, &Job{Paths: []string{path}, Block: 100,
		Report: func(r Result) { reports = append(reports, r) }})
	if d := want.ELBO - res.ELBO; !(math.Abs(d) < 0.0101) || !(res.GapBound <= 0.01) ||
		!res.Converged {
		t.Errorf("ELBO %v, want %v; %+v", res.ELBO, want.ELBO, res)
	}
	if len(reports) != res.K+1 || res.K > 4 || reports[0].Items != len(rows) || reports[0].K != 0 {
		t.Errorf("%d reports of %d rounds: %+v", len(reports), res.K, reports)
	}
	if _, res := glm(t, &Job{Paths: []string{path}, Rounds: 1, Goal: 1e-12}); res.K != 1 ||
		res.Converged {
		t.Errorf("one round: %+v", res)
	}
}

// TestSameBits checks that the posterior does not depend on shards, on the format or compression of
// the files, or on Beam.
func TestSameBits(t *testing.T) {
	rows := labels(2000)
	sparse := func(r []pgsvi.Row) []byte { return rowFileOf(t, r, true) }
	dense := func(r []pgsvi.Row) []byte { return rowFileOf(t, r, false) }
	packed := func(r []pgsvi.Row) []byte { return gzipOf(libsvmOf(r)) }
	tables := func(r []pgsvi.Row) []byte { return parquetOf(t, r) }
	for _, group := range [][]string{
		{parts(t, rows, ".rows", sparse), parts(t, rows, ".svm", libsvmOf),
			parts(t, rows, ".gz", packed)},
		{parts(t, rows, ".rows", dense), parts(t, rows, ".csv", csvOf),
			parts(t, rows, ".parquet", tables)},
	} {
		want := ""
		for _, pattern := range group {
			for _, shards := range []int{1, 2, 7, 32, 0} {
				got, res := glm(t, &Job{Paths: []string{pattern}, Block: 64, Shards: shards})
				if want == "" {
					want = got
				}
				if got != want || res.Items != len(rows) {
					t.Errorf("%s, %d shards: %s with %d rows, want %s", pattern, shards, got,
						res.Items, want)
				}
			}
		}
		got, _ := glm(t, &Job{Paths: group[:1], Block: 64, Shards: 7, Run: onPrism})
		if got != want {
			t.Errorf("on Prism %s, want %s", got, want)
		}
	}
}

// TestSparseGP checks a sparse GP in this process and on Prism.
func TestSparseGP(t *testing.T) {
	rows := labels(1000)
	path := writeTo(t, filepath.Join(t.TempDir(), "rows"), rowFileOf(t, rows, false))
	z := mat.NewDense(12, testCols, nil)
	for i := range 12 {
		z.SetRow(i, rows[i].Val)
	}
	var sums []string
	for _, job := range []*Job{{Shards: 1}, {Shards: 9}, {Shards: 5, Run: onPrism}} {
		job.Paths, job.Block = []string{path}, 50
		p, res, err := FitSparseGP(context.Background(), z, pgsvi.SquaredExp{Length: 2},
			pgsvi.BernoulliLogit{}, nil, job)
		if err != nil || !res.Converged {
			t.Fatal(err, res)
		}
		sums = append(sums, sumOf(t, p))
	}
	if sums[1] != sums[0] || sums[2] != sums[0] {
		t.Errorf("checksums %v", sums)
	}
}

// TestCTM checks topics in this process and on Prism, from lda-c and from row files.
func TestCTM(t *testing.T) {
	text := ""
	for i := range 60 {
		text += []string{"3 0:4 1:2 2:1\n", "2 3:5 4:3\n", "4 0:1 2:3 3:1 4:1\n", "0\n"}[(i*7/3)%4]
	}
	dir := t.TempDir()
	plain := writeTo(t, filepath.Join(dir, "docs.ldac"), []byte(text))
	packed := writeTo(t, filepath.Join(dir, "packed.gz"), gzipOf([]byte(text)))
	docs, err := parseLDAC(bytesReader(text))
	if err != nil {
		t.Fatal(err)
	}
	rows := writeTo(t, filepath.Join(dir, "rows"), rowFileOf(t, docs, true))
	var sums []string
	for _, job := range []*Job{{Paths: []string{plain}}, {Paths: []string{packed}},
		{Paths: []string{rows}, Shards: 1}, {Paths: []string{rows}, Shards: 4},
		{Paths: []string{rows}, Shards: 3, Run: onPrism}} {
		job.Block, job.Rounds = 7, 3
		p, res, err := FitCTM(context.Background(), 5, 2, nil, job)
		if err != nil || res.K != 3 || res.Items != 60 || res.Converged {
			t.Fatal(err, res)
		}
		sums = append(sums, sumOf(t, p))
	}
	for _, s := range sums {
		if s != sums[0] {
			t.Errorf("checksums %v", sums)
			break
		}
	}
	dense := writeTo(t, filepath.Join(dir, "dense"), rowFileOf(t, labels(9), false))
	_, _, err = FitCTM(context.Background(), 5, 2, nil, &Job{Paths: []string{dense}})
	wantsError(t, err, pgsvi.ErrShape, "dense", "document 0")
}

// TestJobErrors checks that invalid jobs return errors.
func TestJobErrors(t *testing.T) {
	dir := t.TempDir()
	rows := writeTo(t, filepath.Join(dir, "rows"), rowFileOf(t, labels(50), false))
	none := writeTo(t, filepath.Join(dir, "none"), rowFileOf(t, nil, false))
	empty := writeTo(t, filepath.Join(dir, "empty.svm"), nil)
	wants(t, nil, pgsvi.ErrEmpty)
	wants(t, &Job{}, pgsvi.ErrEmpty, "Paths")
	wants(t, &Job{Paths: []string{filepath.Join(dir, "no*thing")}}, pgsvi.ErrEmpty, "no*thing")
	wants(t, &Job{Paths: []string{none, empty}}, pgsvi.ErrEmpty)
	wants(t, &Job{Paths: []string{none, empty}, Run: onPrism}, pgsvi.ErrEmpty)
	for _, job := range []Job{{Block: -1}, {Shards: -1}, {Skip: -1}, {Rounds: -1}, {Goal: -1},
		{Goal: math.NaN()}, {Goal: math.Inf(1)}} {
		job.Paths = []string{rows}
		wants(t, &job, pgsvi.ErrParam, "negative")
	}
	wants(t, &Job{Paths: []string{rows}, Resume: true}, pgsvi.ErrParam, "without Dir")
	_, _, err := FitGLM(context.Background(), testCols, pgsvi.BernoulliLogit{},
		&pgsvi.GLMOptions{Covariance: pgsvi.DiagonalCovariance}, &Job{Paths: []string{rows}})
	wantsError(t, err, pgsvi.ErrParam)
	_, _, err = FitGLM(context.Background(), testCols+1, pgsvi.BernoulliLogit{}, nil,
		&Job{Paths: []string{rows}})
	wantsError(t, err, pgsvi.ErrShape, "rows: ", "block 0")
	lost := errors.New("the cluster is lost")
	wants(t, &Job{Paths: []string{rows},
		Run: func(context.Context, *beam.Pipeline) error { return lost }},
		lost, "round 0", "Job.Resume")
	wants(t, &Job{Paths: []string{rows},
		Run: func(context.Context, *beam.Pipeline) error { return nil }},
		os.ErrNotExist, "Job.Dir")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err = FitGLM(ctx, testCols, pgsvi.BernoulliLogit{}, nil, &Job{Paths: []string{rows}})
	wantsError(t, err, context.Canceled)
}

// TestNoProof checks that a fit stops at the estimated gap if the likelihood has no gap bound.
func TestNoProof(t *testing.T) {
	path := writeTo(t, filepath.Join(t.TempDir(), "rows"), rowFileOf(t, labels(500), false))
	_, res, err := FitGLM(context.Background(), testCols, pgsvi.StudentT{}, nil,
		&Job{Paths: []string{path}})
	if err != nil || !res.Converged || res.GapBound <= 0.01 || !(res.Gap <= 0.01) {
		t.Errorf("%+v, %v", res, err)
	}
}
