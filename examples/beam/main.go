// My rows do not fit on one machine: how do I fit a GLM, a sparse GP or a topic model on many?
//
// The program fits a model to a file or to part files with Apache Beam: in this process, on Prism,
// or on Dataflow, Flink or Spark. README.md has the commands. It prints the ELBO and the gap bound
// after each round. The last line has a checksum of the posterior, which is the same for any number
// of shards and any runner.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strconv"
	"time"

	apache "github.com/apache/beam/sdks/v2/go/pkg/beam"
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/io/filesystem/s3"
	beamlog "github.com/apache/beam/sdks/v2/go/pkg/beam/log"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/x/beamx" // defines the flag -runner
	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/beam"
)

var (
	path   = flag.String("data", "", "`file` of LIBSVM, lda-c (ctm) or rows (data.RowWriter)")
	model  = flag.String("model", "glm", "`model`: glm (logistic regression), sparse (GP) or ctm")
	shards = flag.Int("shards", 0, "`number` of parts of the rows; 0: depends on the number of rows")
	rounds = flag.Int("rounds", 0, "largest number of rounds; 0: 20, or 10 for topics")
	dir    = flag.String("dir", "", "`folder` on all machines for states and the checkpoint")
	resume = flag.Bool("resume", false, "continue from the checkpoint in -dir, if it exists")
	cols   = flag.Int("cols", 0, "columns or terms of remote -data, such as gs://bucket/part-*")
	size   = flag.Int("size", 0, "number of topics or inducing inputs; 0: 10 or 100")
)

func main() {
	flag.Parse()
	apache.Init() // does not return in a worker
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "beam:", err)
		os.Exit(1)
	}
}

// fitted is a posterior that can be saved.
type fitted interface{ Save(io.Writer) error }

func run(ctx context.Context) error {
	switch {
	case *path == "":
		return errors.New("no -data; -h lists the flags")
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q; all flags come before it", flag.Arg(0))
	}
	in, err := open(ctx)
	if err != nil {
		return err
	}
	defer in.close()
	start := time.Now()
	job := &beam.Job{Paths: []string{in.rows}, Block: in.block, Shards: *shards, Rounds: *rounds,
		Dir: *dir, Resume: *resume, Run: beamx.Run}
	switch flag.Lookup("runner").Value.String() {
	case "inprocess":
		job.Run = nil
	case "", "prism": // Prism is the default of Beam
		beamlog.SetupLogging("warn", "text")
	}
	job.Report = func(r beam.Result) {
		if r.K == 0 {
			fmt.Fprintf(os.Stderr, "sample: %d items, %.1f s\n", r.Items,
				time.Since(start).Seconds())
			return
		}
		proved := ""
		if r.GapBound < math.Inf(1) {
			proved = fmt.Sprintf(" proved within %.3g nats,", r.GapBound)
		}
		fmt.Fprintf(os.Stderr, "round %d: ELBO %.4f,%s %.1f s\n", r.K, r.ELBO, proved,
			time.Since(start).Seconds())
	}
	var post fitted
	var res beam.Result
	heldOut := math.NaN()
	switch *model {
	case "glm":
		post, res, err = beam.FitGLM(ctx, in.cols, pgsvi.BernoulliLogit{}, nil, job)
	case "sparse":
		post, res, err = beam.FitSparseGP(ctx, in.inducing, in.kernel, pgsvi.BernoulliLogit{}, nil,
			job)
	case "ctm":
		var p *pgsvi.CTMPosterior
		p, res, err = beam.FitCTM(ctx, in.cols, in.size, nil, job)
		if post = p; err == nil && in.test != nil {
			var h *pgsvi.HeldOut
			if h, err = p.HeldOut(in.test, nil); err == nil {
				heldOut = h.PerToken
			}
		}
	}
	if err != nil {
		return err
	}
	sum := sha256.New()
	if err := post.Save(sum); err != nil {
		return err
	}
	bound := res.GapBound
	if math.IsInf(bound, 0) {
		bound = math.NaN()
	}
	seconds, peak := usage()
	fmt.Printf("rounds=%d neg_elbo=%s gap_bound=%s heldout=%s sha256=%x "+
		"cpu_seconds=%s peak_mb=%s\n",
		res.K, number(8, -res.ELBO), number(6, bound), number(6, heldOut), sum.Sum(nil),
		number(2, seconds), number(0, peak))
	return nil
}

// number formats x with the given number of digits, or as nan.
func number(digits int, x float64) string {
	if math.IsNaN(x) {
		return "nan"
	}
	return strconv.FormatFloat(x, 'f', digits, 64)
}
