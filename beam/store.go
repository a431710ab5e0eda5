package beam

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/io/filesystem"
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/io/filesystem/local" // for paths without a scheme
	"github.com/pgsvi/pgsvi"
)

// A store holds the files of a fit.
type store struct {
	dir  string
	id   string // part of the file names of this process
	temp bool
}

// checkpointName is the name of the checkpoint. Files of rounds begin with roundPrefix.
const (
	checkpointName = "checkpoint.pgsvi"
	roundPrefix    = "round-"
)

// newStore returns the store in dir. It makes a temporary folder if dir is empty.
func newStore(ctx context.Context, dir string) (*store, error) {
	s := &store{dir: strings.TrimSuffix(dir, "/"), id: rand.Text()}
	if dir != "" {
		return s, nil
	}
	var err error
	s.temp = true
	if s.dir, err = os.MkdirTemp("", "pgsvi-rounds-*"); err != nil {
		return nil, fmt.Errorf("pgsvi: %w", err)
	}
	return s, nil
}

// close deletes the temporary folder, if any.
func (s *store) close() error {
	if !s.temp {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// path returns the path of a file.
func (s *store) path(name string) string { return s.dir + "/" + name }

// ofRound returns a path for a file of a round. No other process uses the same path.
func (s *store) ofRound(round int, what string) string {
	return s.path(fmt.Sprintf("%s%d-%s.%s", roundPrefix, round, s.id, what))
}

// on opens the file system of a path, calls do, and closes it. The error names the path.
func on(ctx context.Context, path string, do func(filesystem.Interface) error) error {
	fs, err := filesystem.New(ctx, path)
	if err == nil {
		err = errors.Join(do(fs), fs.Close())
	}
	return named(path, err)
}

// named prefixes a non-nil error with "pgsvi: " and a name.
func named(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pgsvi: %s: %w", name, bare{err})
}

// bare removes the prefix "pgsvi: " from an error, because the outer error has it.
type bare struct{ error }

func (e bare) Error() string { return strings.TrimPrefix(e.error.Error(), "pgsvi: ") }

func (e bare) Unwrap() error { return e.error }

// readFile returns the contents of a file.
func readFile(ctx context.Context, path string) (b []byte, err error) {
	err = on(ctx, path, func(fs filesystem.Interface) error {
		b, err = filesystem.Read(ctx, fs, path)
		return err
	})
	return b, err
}

// writeFile writes a file under a temporary name and renames it, so that readers see the whole
// file.
func writeFile(ctx context.Context, path string, b []byte) error {
	return on(ctx, path, func(fs filesystem.Interface) error {
		next := path + "-" + rand.Text()
		if err := filesystem.Write(ctx, fs, next, b); err != nil {
			return err
		}
		return filesystem.Rename(ctx, fs, next, path)
	})
}

// remove deletes files if the file system supports it. Files that remain are never read.
func remove(ctx context.Context, paths ...string) {
	for _, path := range paths {
		_ = on(ctx, path, func(fs filesystem.Interface) error {
			if r, ok := fs.(filesystem.Remover); ok {
				return r.Remove(ctx, path)
			}
			return nil
		})
	}
}

// list returns the files that match a pattern.
func list(ctx context.Context, pattern string) (paths []string, err error) {
	err = on(ctx, pattern, func(fs filesystem.Interface) error {
		paths, err = fs.List(ctx, pattern)
		return err
	})
	return paths, err
}

// A checkpoint holds all that a fit needs to continue.
type checkpoint struct {
	Print   []byte
	Rounds  int
	State   []byte
	K       int
	Passes  float64
	At      pgsvi.Evaluation
	Items   int
	Skipped int
	Why     string
	Reached float64 // gap in nats
}

// printOf returns the fingerprint of a fit.
func printOf(model []byte, files string) [32]byte {
	return sha256.Sum256(fmt.Appendf(model[:len(model):len(model)], "\x00%s", files))
}

// save writes the checkpoint.
func (d *driver) save(ctx context.Context, r saver) error {
	if d.store.temp {
		return nil
	}
	state, err := r.MarshalBinary()
	if err != nil {
		return err
	}
	b, err := seal(&checkpoint{d.print[:], d.rounds, state, d.at.K, d.at.Passes, d.at.Evaluation,
		d.at.Items, d.at.Skipped, d.at.Why, d.at.gap()})
	if err != nil {
		return err
	}
	return writeFile(ctx, d.store.path(checkpointName), b)
}

// load reads the checkpoint, if there is one, into r and d.
func (d *driver) load(ctx context.Context, r saver) error {
	path := d.store.path(checkpointName)
	found, err := list(ctx, path)
	if err != nil || len(found) == 0 {
		return err
	}
	if !d.job.Resume {
		return fmt.Errorf("pgsvi: %s is the checkpoint of a fit; set Job.Resume to continue it, "+
			"or delete the file: %w", path, pgsvi.ErrParam)
	}
	b, err := readFile(ctx, path)
	if err != nil {
		return err
	}
	var c checkpoint
	if err := unseal(b, &c, path); err != nil {
		return err
	}
	if string(c.Print) != string(d.print[:]) {
		return fmt.Errorf("pgsvi: %s is the checkpoint of another fit, whose model, options, "+
			"files or Job.Block differ; use another Job.Dir: %w", path, pgsvi.ErrParam)
	}
	if err := r.UnmarshalBinary(c.State); err != nil {
		return named(path, err)
	}
	d.rounds = c.Rounds
	d.at = Result{Items: c.Items, Skipped: c.Skipped, Why: c.Why,
		Converged: c.Reached <= d.job.Goal}
	d.at.K, d.at.Passes, d.at.Evaluation = c.K, c.Passes, c.At
	if old, err := list(ctx, d.store.path(roundPrefix+"*")); err == nil {
		remove(ctx, old...)
	}
	return nil
}
