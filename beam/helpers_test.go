package beam

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	beamlog "github.com/apache/beam/sdks/v2/go/pkg/beam/log"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/prism"
	"github.com/parquet-go/parquet-go"
	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
)

func TestMain(m *testing.M) {
	flag.Parse()
	beam.Init()
	beamlog.SetupLogging("error", "text")
	if folder := os.Getenv("PGSVI_BEAM_KILLED"); folder != "" {
		killed(folder) // the process that TestKilled kills
		return
	}
	os.Exit(m.Run())
}

// onPrism runs a pipeline on Prism in this process.
func onPrism(ctx context.Context, p *beam.Pipeline) error {
	_, err := prism.Execute(ctx, p)
	return err
}

const testCols = 5

// labels returns n rows of a logistic regression. A third of the values are 0.
func labels(n int) []pgsvi.Row {
	rng := rand.New(rand.NewPCG(1, 2))
	rows := make([]pgsvi.Row, n)
	for i := range rows {
		r := pgsvi.Row{Val: make([]float64, testCols)}
		eta := 0.0
		for j := range r.Val {
			if rng.IntN(3) > 0 {
				r.Val[j] = math.Round(8*rng.NormFloat64()) / 8
			}
			eta += 0.5 * float64(j-1) * r.Val[j]
		}
		r.Y = math.Copysign(1, 1/(1+math.Exp(-eta))-rng.Float64())
		rows[i] = r
	}
	return rows
}

func writeTo(t testing.TB, path string, b []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func libsvmOf(rows []pgsvi.Row) []byte {
	var b bytes.Buffer
	for _, r := range rows {
		fmt.Fprint(&b, r.Y)
		for k, v := range r.Val {
			if v != 0 {
				fmt.Fprintf(&b, " %d:%v", k+1, v)
			}
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

func csvOf(rows []pgsvi.Row) []byte {
	b := bytes.NewBufferString("a,b,c,d,e,label\n")
	for _, r := range rows {
		for _, v := range r.Val {
			fmt.Fprintf(b, "%v,", v)
		}
		fmt.Fprintln(b, r.Y)
	}
	return b.Bytes()
}

func gzipOf(text []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(text)
	z.Close()
	return b.Bytes()
}

func rowFileOf(t testing.TB, rows []pgsvi.Row, sparse bool) []byte {
	t.Helper()
	var b bytes.Buffer
	w := data.NewRowWriter(&b, testCols, &data.RowOptions{Sparse: sparse})
	for _, r := range rows {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type parquetLine struct {
	A, B, C, D, E float64
	Label         int32
}

func parquetOf(t testing.TB, rows []pgsvi.Row) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[parquetLine](&b, parquet.MaxRowsPerRowGroup(100))
	for _, r := range rows {
		v := r.Val
		if _, err := w.Write([]parquetLine{{v[0], v[1], v[2], v[3], v[4],
			int32(r.Y)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// parts writes rows to three part files with the function of, and returns a pattern for them.
func parts(t testing.TB, rows []pgsvi.Row, ending string, of func([]pgsvi.Row) []byte) string {
	t.Helper()
	dir := t.TempDir()
	for i, end := range []int{700, 800, len(rows)} {
		start := []int{0, 700, 800}[i]
		writeTo(t, filepath.Join(dir, fmt.Sprintf("part-%d%s", i, ending)), of(rows[start:end]))
	}
	return filepath.Join(dir, "part-*"+ending)
}

// sumOf returns a checksum of the saved posterior.
func sumOf(t testing.TB, p interface{ Save(io.Writer) error }) string {
	t.Helper()
	h := sha256.New()
	if err := p.Save(h); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// glm fits a job and returns a checksum of the posterior.
func glm(t testing.TB, job *Job) (string, Result) {
	t.Helper()
	p, res, err := FitGLM(context.Background(), testCols, pgsvi.BernoulliLogit{}, nil, job)
	if err != nil {
		t.Fatal(err)
	}
	return sumOf(t, p), res
}

// wants checks that fitting a job returns the expected error.
func wants(t testing.TB, job *Job, is error, texts ...string) {
	t.Helper()
	_, _, err := FitGLM(context.Background(), testCols, pgsvi.BernoulliLogit{}, nil, job)
	wantsError(t, err, is, texts...)
}

func wantsError(t testing.TB, err, is error, texts ...string) {
	t.Helper()
	if !errors.Is(err, is) {
		t.Errorf("error %v, want %v", err, is)
		return
	}
	for _, text := range texts {
		if !bytes.Contains([]byte(err.Error()), []byte(text)) {
			t.Errorf("error %q does not say %q", err, text)
		}
	}
}
