package pgsvi

import (
	"bytes"
	"context"
	"encoding"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// Checkpoint sets the file and the interval with which Solver.Run and Resume save a run, so that
// another process can continue it (Solver.LoadResult). The zero Checkpoint saves nothing.
//
// Each save writes Path with ".tmp" appended, syncs it to disk, and renames it to Path, so Path is
// always a complete checkpoint. Two runs must not share a Path. Saving does not change the run.
type Checkpoint struct {
	// Path is the name of the file. If it is empty, nothing is saved. An existing Path must be a
	// regular file.
	Path string
	// Every is the least time between two checkpoints. Zero means a minute, or no limit if Passes
	// is set. A run always saves a checkpoint when it ends, and completes that even if ctx is
	// canceled.
	Every time.Duration
	// Passes is the least number of passes between two checkpoints. Zero means no limit.
	Passes float64
}

// checkpointEvery is the interval of a Checkpoint without Every and Passes.
const checkpointEvery = time.Minute

// Validate returns an error wrapping ErrParam if a field is negative.
func (c Checkpoint) Validate() error {
	if c.Every < 0 || !(c.Passes >= 0) {
		return fmt.Errorf(
			"pgsvi: Checkpoint has Every %v and Passes %v; they must not be negative: %w", c.Every,
			c.Passes, ErrParam)
	}
	return nil
}

// checkpointWriter writes the checkpoints of a run.
type checkpointWriter struct {
	Checkpoint
	last   time.Time
	passes float64 // passes at the last checkpoint
}

// start starts the intervals at the current state of the run.
func (c *checkpointWriter) start(r *Result) { c.last, c.passes = time.Now(), r.Passes }

// due writes r if an interval has passed.
func (c *checkpointWriter) due(r *Result) error {
	every := c.Every
	if every == 0 && c.Passes == 0 {
		every = checkpointEvery
	}
	if c.Path == "" || r.Passes < c.passes+c.Passes || time.Since(c.last) < every {
		return nil
	}
	return c.write(r)
}

// write writes r, unless Path is empty.
func (c *checkpointWriter) write(r *Result) error {
	if c.Path == "" {
		return nil
	}
	var b bytes.Buffer
	err := r.Save(&b)
	if err == nil {
		err = writeFile(c.Path, b.Bytes())
	}
	if err != nil {
		return fmt.Errorf("pgsvi: checkpoint at iteration %d: %w", r.K, sentinel.Bare(err))
	}
	c.start(r)
	return nil
}

// writeFile replaces the contents of path by data. On error the old contents remain.
func writeFile(path string, data []byte) (err error) {
	if old, err := os.Stat(path); err == nil && !old.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file: %w", path, ErrParam)
	}
	tmp := path + ".tmp"
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		os.Remove(tmp)
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir syncs the directory entries to disk, if the system supports that.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// runFile is the type of file that holds a Result.
var runFile = save.Kind{Name: "Result", Version: 1}

// Save writes the run, so that Solver.LoadResult and Resume continue it bit for bit. The file holds
// a line that names its type, the state, and a checksum. It is specific to this release and machine
// architecture, so save the posterior for long-term storage. Save does not change the run.
//
// Save returns any error of w. The error wraps ErrParam if the Stepper has no MarshalBinary, if one
// of its parts cannot be saved, or if the source of randomness is not an encoding.BinaryMarshaler.
// All sources of math/rand/v2 are.
func (r *Result) Save(w io.Writer) error {
	saved, err := r.savable()
	if err != nil {
		return err
	}
	body, err := save.Marshal(saved.state)
	if err != nil {
		return prefixed(err)
	}
	return runFile.Write(w, body)
}

// savable returns r with its Stepper and source of randomness encoded.
func (r *Result) savable() (saved *savedRun, err error) {
	saved = &savedRun{Result: r}
	st, ok := r.Stepper.(snapshotter)
	if !ok {
		return nil, fmt.Errorf(
			"pgsvi: a run of a %T cannot be saved; give it MarshalBinary and UnmarshalBinary: %w",
			r.Stepper, ErrParam)
	}
	if saved.stepper, err = st.MarshalBinary(); err != nil || !r.begun {
		return saved, prefixed(err)
	}
	src, ok := r.src.(encoding.BinaryMarshaler)
	if !ok {
		return nil, fmt.Errorf(
			"pgsvi: a run with the source of randomness %T cannot be saved; use a source of "+
				"math/rand/v2: %w", r.src, ErrParam)
	}
	saved.src, err = src.MarshalBinary()
	return saved, prefixed(err)
}

// savedRun is a Result with its Stepper and source of randomness encoded.
type savedRun struct {
	*Result
	stepper, src []byte
}

func (r *savedRun) state(c *save.Coder) {
	status := int(r.Status)
	c.Int(&status)
	c.Check(status < len(statusNames), "status %d", status)
	r.Status = Status(status)
	c.Bool(&r.begun, &r.forced, &r.due, &r.owed)
	c.Int(&r.batches, &r.visited)
	for i := range r.seeds {
		c.Uint64(&r.seeds[i])
	}
	r.Iteration.save(c)
	late := r.cheaply != nil
	if c.Bool(&late); late {
		it := Iteration{}
		if !c.Reading() {
			it.Evaluation = *r.cheaply
		}
		it.save(c)
		r.cheaply = &it.Evaluation
	}
	n := len(r.Trace)
	c.Int(&n)
	for i := 0; i < n && c.Err() == nil; i++ {
		if c.Reading() {
			r.Trace = append(r.Trace, Iteration{})
		}
		r.Trace[i].save(c)
	}
	c.Check(!r.forced && !late || n > 0, "an evaluation that is not in the trace")
	c.Bytes(&r.src)
	c.Bytes(&r.stepper)
	c.Bytes(&r.before)
	if c.Reading() && len(r.before) == 0 {
		r.before = nil
	}
}

// save writes or reads the Iteration, without its State.
func (it *Iteration) save(c *save.Coder) {
	c.Int(&it.K)
	c.Duration(&it.Elapsed)
	gap := it.Gap
	if it.gapless {
		gap = math.NaN()
	}
	c.Float(&it.Passes, &it.Beta, &it.GradMap, &it.ELBO, &it.ELBOErr, &gap, &it.GapBound, &it.Goal, &it.cheap)
	c.Bool(&it.ClosedForm, &it.Random, &it.predicted)
	scope := int(it.Scope)
	c.Int(&scope)
	it.Scope = Scope(scope)
	if c.Reading() {
		it.Gap = gap
		it.settle()
	}
	c.Check(it.Passes >= 0 && !math.IsInf(it.Passes, 0), "%v passes", it.Passes)
}

// evaluatesOnly is a Stepper that may report that Evaluate changes nothing that affects later
// steps.
type evaluatesOnly interface{ constant() bool }

// slowSnapshotter is a snapshotter whose state may be large. Its snapshot does the work of
// MarshalBinary, but returns the cause of ctx once ctx is done.
type slowSnapshotter interface {
	snapshot(ctx context.Context) ([]byte, error)
}

// remember stores the state before an evaluation that is not due, if the evaluation may change it.
// It returns the cause of ctx if ctx ends before a large state is copied.
func (r *Result) remember(ctx context.Context) error {
	if c, ok := r.Stepper.(evaluatesOnly); ok && c.constant() {
		return nil
	}
	var b []byte
	var err error
	switch st := r.Stepper.(type) {
	case slowSnapshotter:
		b, err = st.snapshot(ctx)
	case snapshotter:
		b, err = st.MarshalBinary()
	default:
		return nil
	}
	if err == nil {
		r.before = b
	} else if ctx.Err() != nil {
		return err
	}
	return nil
}

// forget removes an evaluation and an estimate of the gap that were made only because the run ended
// from the history, and restores the state before them.
func (r *Result) forget() error {
	if r.cheaply != nil {
		r.Evaluation, r.Trace[len(r.Trace)-1].Evaluation, r.cheaply = *r.cheaply, *r.cheaply, nil
	}
	if r.forced {
		r.Trace, r.forced = r.Trace[:len(r.Trace)-1], false
		r.Evaluation = notEvaluated()
	}
	if r.before == nil {
		return nil
	}
	err := r.Stepper.(snapshotter).UnmarshalBinary(r.before)
	r.before = nil
	return err
}
