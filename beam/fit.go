package beam

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// A Job holds the input files of a fit, its limits, and the way to run it.
type Job struct {
	// Paths are the part files, or patterns such as "rows/part-*". Files are read in the order of
	// their names. For names with a scheme, such as "gs://…", import the file system, for example _
	// "github.com/apache/beam/sdks/v2/go/pkg/beam/io/filesystem/gcs". The local file system is
	// imported already.
	Paths []string
	// Block is the number of rows per block. The result depends on it slightly. Zero means 8192.
	Block int
	// Shards is the number of elements over which the blocks of row files are distributed. The
	// result does not depend on it. Zero means one element per 32 blocks, but at least 16. A file
	// that can only be read from its beginning is one element.
	Shards int
	// Skip is the number of unreadable rows that a fit leaves out, which are lines of text with the
	// wrong format. Result counts them. The fit fails if there are more. Rows that can be read but
	// are wrong, such as a label outside the support of the likelihood, are always errors.
	Skip int

	// Rounds is the largest number of rounds, not counting the round that takes the sample. Zero
	// means 20, or 10 for topics.
	Rounds int
	// Goal is the gap in nats at which a fit ends. The gap is GapBound, or Gap if the likelihood
	// has no gap bound. Zero means 0.01.
	Goal float64

	// Dir is a folder for states, sums and the checkpoint, on a file system that all machines can
	// access. Empty means a temporary folder, which is deleted at the end and is enough if all
	// workers run on this machine.
	Dir string
	// Resume continues from the checkpoint in Dir, if it exists. Without Resume, a checkpoint in
	// Dir is an error.
	Resume bool
	// Run runs a pipeline until it ends. beamx.Run takes the runner from the command line. Nil does
	// not use Beam: this process sums the rows on all its cores.
	Run func(context.Context, *beam.Pipeline) error
	// Report is called after each round, including the round that takes the sample. Nil means no
	// reports.
	Report func(Result)
}

// A Result describes the progress of a fit.
type Result struct {
	// Iteration is the result of pgsvi.Rounds.Step. Its K is the number of rounds, which is 0 after
	// the round that takes the sample.
	pgsvi.Iteration
	Items     int    // rows or documents
	Skipped   int    // rows that could not be read
	Why       string // file, line and error of the first skipped row
	Converged bool   // whether Job.Goal is reached
}

// FitGLM fits a GLM to rows of the given number of columns. See pgsvi.NewGLMRounds for cols, lik,
// opt and their errors. With one of GLMOptions.Groups (a mixed model), the pipeline adds up the sums of
// each level, and each part of a round has 25 bytes per sum.
//
// The errors name the file, and its line or row. They wrap
//   - pgsvi.ErrEmpty if there is no file or no row;
//   - pgsvi.ErrParam if a number in job is negative, if Dir has the checkpoint of another fit or a
//     checkpoint but Job.Resume is false, if Job.Resume is true but Dir is empty, or if files have
//     changed between rounds;
//   - pgsvi.ErrFile if a checkpoint or the output of a round is damaged;
//   - the errors of the readers in package data and of pgsvi.Shard.Add for bad rows;
//   - the error of ctx, of a file system, or of Run.
//
// A fit that ends at Job.Rounds returns no error; see Result.Converged.
func FitGLM(ctx context.Context, cols int, lik pgsvi.Likelihood, opt *pgsvi.GLMOptions,
	job *Job) (*pgsvi.GLMPosterior, Result, error) {
	r, err := pgsvi.NewGLMRounds(cols, lik, opt)
	return fit(ctx, r, err, rowItems, job)
}

// FitSparseGP fits a sparse GP to rows. The rows of inducing are the inducing inputs. See
// pgsvi.NewSparseGPRounds for the arguments and their errors, and FitGLM for the other errors.
func FitSparseGP(ctx context.Context, inducing mat.Matrix, k pgsvi.Kernel, lik pgsvi.Likelihood,
	opt *pgsvi.SparseGPOptions, job *Job) (*pgsvi.SparseGPPosterior, Result, error) {
	r, err := pgsvi.NewSparseGPRounds(inducing, k, lik, opt)
	return fit(ctx, r, err, rowItems, job)
}

// FitCTM fits a correlated topic model to documents: lda-c files, or sparse rows whose columns are
// words and whose values are counts. It ignores responses. It takes Job.Rounds rounds, and
// Result.Converged stays false. See pgsvi.NewCTMRounds for terms, topics, opt and their errors, and
// FitGLM for the other errors.
func FitCTM(ctx context.Context, terms, topics int, opt *pgsvi.CTMOptions,
	job *Job) (*pgsvi.CTMPosterior, Result, error) {
	r, err := pgsvi.NewCTMRounds(terms, topics, opt)
	return fit(ctx, r, err, docItems, job)
}

// Defaults of a Job.
const (
	defaultBlock  = 8192
	defaultRounds = 20
	defaultTopics = 10 // rounds for topics
	defaultGoal   = 0.01
)

// filled returns the job with its defaults.
func (job *Job) filled(items itemKind) (*Job, error) {
	if job == nil {
		return nil, fmt.Errorf("pgsvi: Job is nil: %w", pgsvi.ErrEmpty)
	}
	j := *job
	if j.Block < 0 || j.Block > math.MaxInt32 || j.Shards < 0 || j.Skip < 0 || j.Rounds < 0 ||
		!(j.Goal >= 0) || math.IsInf(j.Goal, 0) {
		return nil, fmt.Errorf("pgsvi: Job has Block %d, Shards %d, Skip %d, Rounds %d and Goal "+
			"%v; none may be negative or infinite: %w", j.Block, j.Shards, j.Skip, j.Rounds, j.Goal,
			pgsvi.ErrParam)
	}
	if j.Resume && j.Dir == "" {
		return nil, fmt.Errorf("pgsvi: Job has Resume without Dir; set Dir to the folder of the "+
			"checkpoint: %w", pgsvi.ErrParam)
	}
	if j.Block == 0 {
		j.Block = defaultBlock
	}
	if j.Rounds == 0 {
		j.Rounds = defaultRounds
		if items == docItems {
			j.Rounds = defaultTopics
		}
	}
	if j.Goal == 0 {
		j.Goal = defaultGoal
	}
	return &j, nil
}

// fit takes rounds of r until the job is done. It returns err if that is not nil, because r is then
// not usable.
func fit[R, P any](ctx context.Context, r *pgsvi.Rounds[R, P], err error, items itemKind,
	job *Job) (p P, res Result, _ error) {
	if err != nil {
		return p, res, err
	}
	j, err := job.filled(items)
	if err != nil {
		return p, res, err
	}
	d, err := newDriver(ctx, j, items, r)
	if err != nil {
		return p, res, err
	}
	defer d.close()
	for !d.done() {
		var s pgsvi.Shard[R]
		err := d.round(ctx, r.Shard(), &s)
		if err == nil {
			d.at.Iteration, err = r.Step(&s)
		}
		if err == nil {
			d.at.Items, d.at.Converged = s.Len(), d.at.gap() <= j.Goal
			d.rounds++
			err = d.save(ctx, r)
		}
		if err != nil {
			return p, d.at, named(fmt.Sprintf("round %d", d.rounds), err)
		}
		if j.Report != nil {
			j.Report(d.at)
		}
	}
	p, err = r.Posterior()
	return p, d.at, err
}

// gap returns the gap bound, or the estimated gap if there is no bound.
func (r *Result) gap() float64 {
	if r.GapBound < math.Inf(1) {
		return r.GapBound
	}
	return r.Gap
}

// A saver is a Rounds of any type, or one of its shards.
type saver interface {
	MarshalBinary() ([]byte, error)
	UnmarshalBinary([]byte) error
}

// A driver runs the rounds of a job.
type driver struct {
	job    *Job
	items  itemKind
	plan   []blocks
	store  *store
	print  [32]byte // fingerprint of the model before its first round and of the files
	rounds int      // rounds taken, including the sample
	at     Result
}

// newDriver returns the driver of a job. If a checkpoint exists, it sets the driver and r to it.
func newDriver(ctx context.Context, j *Job, items itemKind, r saver) (*driver, error) {
	d := &driver{job: j, items: items}
	d.at.ELBO, d.at.GapBound, d.at.Gap = math.NaN(), math.Inf(1), math.Inf(1)
	plan, files, err := j.plan(ctx)
	if err != nil {
		return nil, err
	}
	d.plan = plan
	model, err := r.MarshalBinary()
	if err != nil {
		return nil, err
	}
	d.print = printOf(model, files)
	if d.store, err = newStore(ctx, j.Dir); err != nil {
		return nil, err
	}
	if err := d.load(ctx, r); err != nil {
		return nil, errors.Join(err, d.store.close())
	}
	return d, nil
}

func (d *driver) close() { d.store.close() }

// done reports whether there is no further round.
func (d *driver) done() bool {
	return d.rounds > 0 && (d.at.Converged || d.at.K >= d.job.Rounds)
}

// round sets sum to the sum over all rows, starting from empty.
func (d *driver) round(ctx context.Context, empty, sum saver) error {
	state, err := empty.MarshalBinary()
	if err != nil {
		return err
	}
	add := &adding{Items: d.items, Block: d.job.Block, Skip: d.job.Skip}
	var p *part
	if d.job.Run == nil {
		p, err = d.here(ctx, add, state)
	} else {
		p, err = d.onBeam(ctx, add, state)
	}
	if err == nil {
		err = p.err()
	}
	if err == nil && p.Skipped > d.job.Skip {
		err = fmt.Errorf("pgsvi: %d rows cannot be read, but Job.Skip is %d; the first error: %w",
			p.Skipped, d.job.Skip, bare{p.First.err()})
	}
	if err != nil {
		return err
	}
	d.at.Skipped, d.at.Why = p.Skipped, ""
	if p.First != nil {
		d.at.Why = p.First.Text
	}
	return sum.UnmarshalBinary(p.Shard)
}
