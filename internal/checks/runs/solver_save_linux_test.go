package runs

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// the checkpoint of the process that TestCheckpointFullDisk starts
const fullDiskFile = "PGSVI_TEST_FULL_DISK"

// TestCheckpointFullDisk checks a run whose checkpoint does not fit on the disk. It must end with
// the error of the system, keep the previous checkpoint and leave no other file, and continue
// once there is space.
func TestCheckpointFullDisk(t *testing.T) {
	r := interruptedRuns(t)[1]
	ctx, s := context.Background(), r.solver
	// This part runs in a process of its own, because a limit holds for the whole process.
	if path := os.Getenv(fullDiskFile); path != "" {
		signal.Ignore(syscall.SIGXFSZ)
		s.Checkpoint = Checkpoint{Path: path, Passes: 1e-9}
		s.Record = func(it Iteration) {
			if it.K == 9 {
				if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE,
					&syscall.Rlimit{Cur: 3000, Max: 3000}); err != nil {
					t.Error(err)
				}
			}
		}
		res, err := s.Run(ctx, r.model)
		if !errors.Is(err, syscall.EFBIG) || !testkit.PrefixedOnce(err) || res.Status != Failed ||
			res.K != 9 {
			t.Errorf("after %d iterations: %v, %v", res.K, res.Status, err)
		}
		return
	}
	t.Parallel()
	path := filepath.Join(t.TempDir(), "run")
	cmd := exec.Command(os.Args[0], "-test.run=^TestCheckpointFullDisk$")
	cmd.Env = append(os.Environ(), fullDiskFile+"="+path, "GOCOVERDIR="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		skipEmulated(t, err)
		t.Fatalf("%v\n%s", err, out)
	}
	if files, err := filepath.Glob(path + "*"); err != nil || len(files) != 1 {
		t.Errorf("left are %v, %v", files, err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	res, err := s.LoadResult(ctx, file, r.model)
	if err != nil {
		t.Fatal(err)
	}
	if res.K != 8 {
		t.Errorf("the checkpoint is of iteration %d, want 8", res.K)
	}
	if res, err = s.Resume(ctx, res); err != nil {
		t.Fatal(err)
	}
	if want, _ := r.uninterrupted(t); bitsOf(t, res) != want {
		t.Error("another end")
	}
}
