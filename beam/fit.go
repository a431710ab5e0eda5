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

// Job says where the rows are, and how a fit goes through them.
type Job struct {
	// Paths are the part files, or patterns of their names such as "rows/part-*". Their order is
	// that of their names. Names with a scheme, as in "gs://…", need its file system to be
	// imported: _ "github.com/apache/beam/sdks/v2/go/pkg/beam/io/filesystem/gcs". That of local
	// files is.
	Paths []string
	// Block is the number of rows of a block. The result depends on it, but little. Zero means
	// 8192.
	Block int
	// Shards is the number of elements that the blocks of row files are dealt out to. The result
	// does not depend on it. Zero means one for 32 blocks, or 16 if that is more. A file that
	// can only be read from its beginning is one element.
	Shards int
	// Skip is the number of rows that may be left out as they cannot be read: lines of text that
	// are not of the format. See Result. One more is an error. Rows that can be read but are
	// wrong, such as a label that the likelihood does not have, are errors.
	Skip int

	// Rounds is the largest number of rounds, without the one that takes the sample. Zero means
	// 20, and 10 for topics.
	Rounds int
	// Goal is the gap in nats at which a fit ends: GapBound, or Gap where there are no proofs for
	// the likelihood. Zero means 0.01.
	Goal float64

	// Dir is a folder for states, sums and the checkpoint, which must be on a file system that
	// all machines see. Empty means a temporary folder, which is deleted in the end: it does for
	// workers on this machine.
	Dir string
	// Resume goes on from the checkpoint in Dir, if there is one. Without Resume it is an error
	// if there is one.
	Resume bool
	// Run runs a pipeline to its end: beamx.Run, which takes the runner from the flags, or another.
	// Nil means no Beam: this process adds up the rows, on all its cores.
	Run func(context.Context, *beam.Pipeline) error
	// Report is called after each round, the one that takes the sample included. Nil means no
	// reports.
	Report func(Result)
}

// Result says how far a fit is.
type Result struct {
	// Iteration is that of pgsvi.Rounds.Step. Its K is the number of rounds, 0 after the one that
	// takes the sample.
	pgsvi.Iteration
	Items     int    // rows or documents
	Skipped   int    // rows that could not be read
	Why       string // file, line and error of the first of these
	Converged bool   // Job.Goal is reached
}

// FitGLM fits a GLM to rows of the given number of columns. See pgsvi.NewGLMRounds for cols, lik,
// opt and their errors.
//
// The errors name the file, and its line or row. They wrap
//   - pgsvi.ErrEmpty if there is no file or no row;
//   - pgsvi.ErrParam if a number of job is negative, if Dir has the checkpoint of another fit, or
//     one without Job.Resume, or is empty with it, or if files have changed between rounds;
//   - pgsvi.ErrFile if a checkpoint or what a round has written is damaged;
//   - what the readers of package data and pgsvi.Shard.Add return for rows;
//   - the error of ctx, of a file system, or of Run.
//
// A fit that ends at Job.Rounds is no error; see Result.Converged.
func FitGLM(ctx context.Context, cols int, lik pgsvi.Likelihood, opt *pgsvi.GLMOptions,
	job *Job) (*pgsvi.GLMPosterior, Result, error) {
	r, err := pgsvi.NewGLMRounds(cols, lik, opt)
	return fit(ctx, r, err, rowItems, job)
}

// FitSparseGP fits a sparse GP to rows, at the inducing inputs that are the rows of inducing. See
// pgsvi.NewSparseGPRounds for these, k, lik, opt and their errors, and FitGLM for the others.
func FitSparseGP(ctx context.Context, inducing mat.Matrix, k pgsvi.Kernel, lik pgsvi.Likelihood,
	opt *pgsvi.SparseGPOptions, job *Job) (*pgsvi.SparseGPPosterior, Result, error) {
	r, err := pgsvi.NewSparseGPRounds(inducing, k, lik, opt)
	return fit(ctx, r, err, rowItems, job)
}

// FitCTM fits a correlated topic model to documents: lda-c, or sparse rows with words and counts
// for columns and values, whose responses are not used. It takes Job.Rounds rounds and is never
// Converged. See pgsvi.NewCTMRounds for terms, topics, opt and their errors, and FitGLM for the
// others.
func FitCTM(ctx context.Context, terms, topics int, opt *pgsvi.CTMOptions,
	job *Job) (*pgsvi.CTMPosterior, Result, error) {
	r, err := pgsvi.NewCTMRounds(terms, topics, opt)
	return fit(ctx, r, err, docItems, job)
}

// Defaults of a Job.
const (
	defaultBlock  = 8192
	defaultRounds = 20
	defaultTopics = 10 // rounds
	defaultGoal   = 0.01
)

// filled returns the job with its defaults.
func (job *Job) filled(items itemKind) (*Job, error) {
	if job == nil {
		return nil, fmt.Errorf("pgsvi: a nil Job: %w", pgsvi.ErrEmpty)
	}
	j := *job
	if j.Block < 0 || j.Block > math.MaxInt32 || j.Shards < 0 || j.Skip < 0 || j.Rounds < 0 ||
		!(j.Goal >= 0) || math.IsInf(j.Goal, 0) {
		return nil, fmt.Errorf("pgsvi: a Job with Block %d, Shards %d, Skip %d, Rounds %d, Goal "+
			"%v, want none that is negative: %w", j.Block, j.Shards, j.Skip, j.Rounds, j.Goal,
			pgsvi.ErrParam)
	}
	if j.Resume && j.Dir == "" {
		return nil, fmt.Errorf("pgsvi: a Job with Resume and without Dir, the folder that has the "+
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

// fit takes rounds of r, which there is unless err is an error, until the job is done.
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

// gap returns the bound on the gap, or its estimate where there is no bound.
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

// driver goes through the rounds of a job.
type driver struct {
	job    *Job
	items  itemKind
	plan   []blocks
	store  *store
	print  [32]byte // of the model before its first round, and of the files
	rounds int      // taken, that of the sample included
	at     Result
}

// newDriver returns the driver of a job, at the checkpoint that there is, to which it sets r.
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

// round sets sum to what all rows add to empty.
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
		err = fmt.Errorf("pgsvi: %d rows cannot be read, and Job.Skip is %d; the first: %w",
			p.Skipped,
			d.job.Skip, bare{p.First.err()})
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
