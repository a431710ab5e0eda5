// Peers times pgsvi beside the programs that it would take the place of, on the
// same data, with the same prior, in one run and on one core each:
//
//	go run ./bench/peers -data DIR
//
// DIR is the folder of the shared data sets; the default is PGSVI_DATA. It needs
// python3 with scikit-learn (Debian: python3-sklearn).
package main

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

//go:embed glm.py
var scripts embed.FS

var (
	data    = flag.String("data", os.Getenv("PGSVI_DATA"), "folder of the shared data sets")
	python  = flag.String("python", "python3", "python with scikit-learn")
	repeats = flag.Int("repeats", 5, "fits by each program; the median time counts")
	rows    = flag.Int("rows", 1000000, "rows of the dense data set")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	runtime.GOMAXPROCS(1)
	dir, err := os.MkdirTemp("", "peers")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if *data == "" {
		log.Print("no a9a: set PGSVI_DATA or -data")
	} else {
		a9a(dir)
	}
	dense(dir)
}

// entry is a line of a table: a program's time, and how good its answer is.
type entry struct {
	name    string
	seconds float64
	note    string
}

// table prints entries with their times relative to the first.
func table(title string, entries []entry) {
	fmt.Printf("\n%s\n\n| | seconds | ratio | |\n|---|---|---|---|\n", title)
	for _, e := range entries {
		fmt.Printf("| %s | %.3f | %.2f | %s |\n", e.name, e.seconds, e.seconds/entries[0].seconds, e.note)
	}
}

// timed returns the median time of f.
func timed(f func()) float64 {
	t := make([]float64, *repeats)
	for i := range t {
		runtime.GC()
		start := time.Now()
		f()
		t[i] = time.Since(start).Seconds()
	}
	slices.Sort(t)
	return t[len(t)/2]
}

// sklearn runs the script and returns the median time of each of its fits.
func sklearn(dir string, args ...string) []entry {
	src, err := scripts.ReadFile("glm.py")
	if err != nil {
		log.Fatal(err)
	}
	script := filepath.Join(dir, "glm.py")
	if err := os.WriteFile(script, src, 0o600); err != nil {
		log.Fatal(err)
	}
	cmd := exec.Command(*python, append([]string{script}, append(args, fmt.Sprint(*repeats))...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		log.Fatalf("%s %v: %v", *python, cmd.Args, err)
	}
	times, order := map[string][]float64{}, []entry{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), ",")
		n := len(f)
		name := strings.Join(f[:n-3], ",")
		var seconds, nats float64
		var iter int
		if _, err := fmt.Sscan(f[n-3], &seconds); err != nil {
			log.Fatal(err)
		}
		fmt.Sscan(f[n-2], &iter)
		fmt.Sscan(strings.ReplaceAll(f[n-1], "nan", "NaN"), &nats)
		if times[name] == nil {
			e := entry{name: "scikit-learn, " + name, note: fmt.Sprintf("%d iterations", iter)}
			if nats > 0 {
				e.note += fmt.Sprintf("; test log loss %.5f nats", nats)
			}
			order = append(order, e)
		}
		times[name] = append(times[name], seconds)
	}
	for i, e := range order {
		t := times[strings.TrimPrefix(e.name, "scikit-learn, ")]
		slices.Sort(t)
		order[i].seconds = t[len(t)/2]
	}
	return order
}

// a9a compares fits to the sparse rows of a9a.
func a9a(dir string) {
	folder := filepath.Join(*data, "a9a")
	x, y := libsvm(filepath.Join(folder, "a9a.gz"))
	xt, yt := libsvm(filepath.Join(folder, "a9a.t.gz"))
	entries := sklearn(dir, "a9a", folder)
	ctx := context.Background()
	g, err := pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	var post *pgsvi.GLMPosterior
	var best *pgsvi.Result
	fit := func(s *pgsvi.Solver) {
		if post, best, err = g.Fit(ctx, s); err != nil {
			log.Fatal(err)
		}
	}
	note := func() string {
		var nats float64
		for _, l := range post.LogProb(nil, yt, xt) {
			nats -= l / float64(len(yt))
		}
		return fmt.Sprintf("test log loss %.5f nats", nats)
	}
	all := timed(func() { fit(nil) })
	optimum := best.ELBO
	allNote := fmt.Sprintf("%v passes, to a gap of %.0e nats; %s", best.Passes, best.Gap, note())
	stop := &pgsvi.Solver{Converger: within{optimum - 0.01}}
	rough := timed(func() { fit(stop) })
	entries = append(entries,
		entry{"pgsvi, full posterior to 0.01 nats", rough, fmt.Sprintf("%v passes, %.4f nats; %s", best.Passes, optimum-best.ELBO, note())},
		entry{"pgsvi, full posterior, nil Solver", all, allNote})
	stream := timed(func() { post = streamed(123, x, y) })
	entries = append(entries, entry{"pgsvi, one streaming pass", stream, note()})
	// The floor: XᵀX of the sparse rows.
	d := 123
	gram := make([]float64, d*d)
	floor := timed(func() {
		clear(gram)
		for i := range y {
			ind, val := x.Row(i)
			for k, j := range ind {
				for l, c := range ind[:k+1] {
					gram[int(j)*d+int(c)] += val[k] * val[l]
				}
			}
		}
	})
	entries = append(entries, entry{"one XᵀX of the sparse rows", floor, ""})
	table("a9a: 32,561 rows of 14 non-zeros among 123 columns, logit, prior N(0, I), no intercept", entries)
}

// within stops at an ELBO.
type within struct{ elbo float64 }

func (within) Init() {}

func (w within) Converged(it pgsvi.Iteration) pgsvi.Status {
	if it.ELBO >= w.elbo {
		return pgsvi.Converged
	}
	return pgsvi.NotTerminated
}

func libsvm(path string) (*pgsvi.Sparse, []float64) {
	f, err := os.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	x, y, err := pgsvi.ReadLIBSVM(f, 123)
	if err != nil {
		log.Fatal(err)
	}
	return x, y
}

// streamed returns the posterior of one pass.
func streamed(cols int, x mat.Matrix, y []float64) *pgsvi.GLMPosterior {
	s, err := pgsvi.NewGLMStream(cols, pgsvi.BernoulliLogit{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := s.AddAll(context.Background(), pgsvi.Rows(x, y)); err != nil {
		log.Fatal(err)
	}
	p, err := s.Posterior()
	if err != nil {
		log.Fatal(err)
	}
	return p
}

// dense compares a streaming pass over generated rows.
func dense(dir string) {
	const d = 50
	rng := rand.New(rand.NewPCG(1, 2))
	w := make([]float64, d)
	for j := range w {
		w[j] = 0.3 * rng.NormFloat64()
	}
	x, y := mat.NewDense(*rows, d, nil), make([]float64, *rows)
	path := filepath.Join(dir, "rows")
	f, err := os.Create(path)
	if err != nil {
		log.Fatal(err)
	}
	out := bufio.NewWriterSize(f, 1<<20)
	var buf bytes.Buffer
	for i := range y {
		row := x.RawRowView(i)
		var eta float64
		for j := range row {
			row[j] = rng.NormFloat64()
			eta += row[j] * w[j]
		}
		y[i] = -1
		if rng.Float64() < 1/(1+math.Exp(-eta)) {
			y[i] = 1
		}
		buf.Reset()
		binary.Write(&buf, binary.LittleEndian, row)
		binary.Write(&buf, binary.LittleEndian, y[i])
		out.Write(buf.Bytes())
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
	if err := f.Close(); err != nil {
		log.Fatal(err)
	}
	entries := sklearn(dir, "dense", path)
	stream := timed(func() { streamed(d, x, y) })
	gram := blas64.Symmetric{Uplo: blas.Lower, N: d, Data: make([]float64, d*d), Stride: d}
	// Some rows at a time and as columns, which is how Syrk is fastest; the time
	// to lay them out is left aside.
	var chunks []blas64.General
	for lo := 0; lo < *rows; lo += 256 {
		chunks = append(chunks, mat.DenseCopyOf(x.Slice(lo, min(lo+256, *rows), 0, d).T()).RawMatrix())
	}
	floor := timed(func() {
		for _, c := range chunks {
			blas64.Syrk(blas.NoTrans, 1, c, 1, gram)
		}
	})
	entries = append(entries, entry{"pgsvi, one streaming pass", stream, "full posterior"},
		entry{"one XᵀX with gonum", floor, ""})
	table(fmt.Sprintf("%d dense rows of %d columns, logit, prior N(0, I), no intercept", *rows, d), entries)
}
