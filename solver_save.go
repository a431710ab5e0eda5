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

// Checkpoint says where and how often Solver.Run and Resume save a run, to continue it in another
// process (Solver.LoadResult). The zero Checkpoint saves nothing.
//
// Each save writes Path with ".tmp" appended, syncs it to disk, and renames it to Path. Path is
// therefore always a complete checkpoint. Two runs must not share a Path. Saving does not change
// the run.
type Checkpoint struct {
	// Path is the name of the file. Empty means none. An existing Path must be a regular file.
	Path string
	// Every is the least time between two checkpoints. Zero means a minute, or no limit if Passes
	// is set. The end of a run always makes a checkpoint, also after ctx is canceled; that write
	// is completed.
	Every time.Duration
	// Passes is the least number of passes between two checkpoints. Zero means none.
	Passes float64
}

// checkpointEvery is what a Checkpoint without Every and Passes means.
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

// checkpointWriter writes those of a run.
type checkpointWriter struct {
	Checkpoint
	last   time.Time
	passes float64 // at the last
}

// start begins with the run as it stands.
func (c *checkpointWriter) start(r *Result) { c.last, c.passes = time.Now(), r.Passes }

// due writes r if it is time to.
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

// write writes r, if there is a Path.
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

// writeFile makes path a file with the data: all of them, or on an error those that it had.
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

// syncDir hands the names in dir to the disk, where the system can.
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

// runFile is the file of a Result.
var runFile = save.Kind{Name: "Result", Version: 1}

// Save writes the run, so that Solver.LoadResult and Resume continue it to the same bits. The
// format is a line that names the kind of file, the state, and a checksum. It is specific to this
// release and kind of machine; for long-term storage save the posterior. Save does not change the
// run.
//
// The error is that of w. It wraps ErrParam if the Stepper has no MarshalBinary, if one of its
// parts cannot be saved, or if the source of randomness is not an encoding.BinaryMarshaler. Those
// of math/rand/v2 are.
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

// savable returns r as it is saved.
func (r *Result) savable() (saved *savedRun, err error) {
	saved = &savedRun{Result: r}
	st, ok := r.Stepper.(snapshotter)
	if !ok {
		return nil, fmt.Errorf(
			"pgsvi: a run of a %T cannot be saved, as it has no MarshalBinary and "+
				"UnmarshalBinary: %w", r.Stepper, ErrParam)
	}
	if saved.stepper, err = st.MarshalBinary(); err != nil || !r.begun {
		return saved, prefixed(err)
	}
	src, ok := r.src.(encoding.BinaryMarshaler)
	if !ok {
		return nil, fmt.Errorf(
			"pgsvi: a run with the source of randomness %T cannot be saved, as it has no "+
				"MarshalBinary: %w", r.src, ErrParam)
	}
	saved.src, err = src.MarshalBinary()
	return saved, prefixed(err)
}

// savedRun is a Result as it is saved.
type savedRun struct {
	*Result
	stepper, src []byte
}

func (r *savedRun) state(c *save.State) {
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
	n := len(r.Trace)
	c.Int(&n)
	for i := 0; i < n && c.Err() == nil; i++ {
		if c.Reading() {
			r.Trace = append(r.Trace, Iteration{})
		}
		r.Trace[i].save(c)
	}
	c.Check(!r.forced || n > 0, "an evaluation that is not in the trace")
	c.Bytes(&r.src)
	c.Bytes(&r.stepper)
	c.Bytes(&r.before)
	if c.Reading() && len(r.before) == 0 {
		r.before = nil
	}
}

// save writes or reads it, without its State.
func (it *Iteration) save(c *save.State) {
	c.Int(&it.K)
	c.Duration(&it.Elapsed)
	gap := it.Gap
	if it.gapless {
		gap = math.NaN()
	}
	c.Float(&it.Passes, &it.Beta, &it.GradMap, &it.ELBO, &it.ELBOErr, &gap, &it.GapBound, &it.Goal)
	c.Bool(&it.ClosedForm, &it.Random)
	scope := int(it.Scope)
	c.Int(&scope)
	it.Scope = Scope(scope)
	if c.Reading() {
		it.Gap = gap
		it.settle()
	}
	c.Check(it.Passes >= 0 && !math.IsInf(it.Passes, 0), "%v passes", it.Passes)
}

// evaluatesOnly is a Stepper that may know that Evaluate would change nothing which later steps
// depend on.
type evaluatesOnly interface{ constant() bool }

// slowSnapshotter is a snapshotter whose state may be large: snapshot is its MarshalBinary, and ends
// with the cause of ctx once that is done.
type slowSnapshotter interface {
	snapshot(ctx context.Context) ([]byte, error)
}

// remember keeps the state before an evaluation that the run as such does not make, if it may
// change it. The error is the cause of ctx if the state is too large to be copied before ctx is done.
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

// forget takes an evaluation that was made only because the run ended out of its history, and puts
// the state back to that before it.
func (r *Result) forget() error {
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
