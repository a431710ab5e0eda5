package data

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

// TestWriteFileMode checks that a new file has the mode of the umask, and that a replaced file keeps
// its mode.
func TestWriteFileMode(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o027))
	path := filepath.Join(t.TempDir(), "m")
	for _, c := range []struct{ set, want os.FileMode }{{0, 0o640}, {0o600, 0o600}, {0o664, 0o664}} {
		if c.set != 0 {
			if err := os.Chmod(path, c.set); err != nil {
				t.Fatal(err)
			}
		}
		if err := WriteFile(path, text("model")); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != c.want || info.Size() != 5 {
			t.Errorf("%v after %v, want %v: %v", info.Mode(), c.set, c.want, err)
		}
	}
}

// TestWriteFileLink checks that WriteFile replaces the target of a symbolic link and keeps the
// link.
func TestWriteFileLink(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/one", "b"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"new": "a/one", "twice": "new", "a/up": "../b"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ link, target string }{
		{"twice", "a/one"}, {"new", "a/one"}, {"a/up", "b"},
	} {
		link := filepath.Join(dir, c.link)
		if err := WriteFile(link, text(c.link)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, c.target)); err != nil ||
			string(got) != c.link {
			t.Errorf("%s: %q, %v", c.link, got, err)
		}
		if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
			t.Errorf("%s is no link now: %v", c.link, err)
		}
	}
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(loop, text("x")); err == nil || !strings.Contains(err.Error(), loop) {
		t.Errorf("a link to itself: %v", err)
	}
}

// TestWriteFileErrors checks that the error of a failed write names the file, and that no temporary
// file is left.
func TestWriteFileErrors(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{"/dev/full", dir, filepath.Join(dir, "none", "m")} {
		err := WriteFile(path, text("model"))
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v are left: %v", left, err)
	}
}

// the file of the process that TestWriteFileTooLarge starts
const largeFile = "PGSVI_TEST_LARGE_FILE"

// TestWriteFileTooLarge is TestWriteFileErrors for a file that does not fit on the disk. It writes in a
// process of its own, because the limit holds for all files of a process.
func TestWriteFileTooLarge(t *testing.T) {
	if path := os.Getenv(largeFile); path != "" {
		signal.Ignore(syscall.SIGXFSZ)
		err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 100, Max: 100})
		if err != nil {
			t.Fatal(err)
		}
		err = WriteFile(path, text(strings.Repeat("model", 100)))
		if !errors.Is(err, syscall.EFBIG) || !strings.Contains(err.Error(), path+":") {
			t.Errorf("a file that is too large: %v", err)
		}
		return
	}
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestWriteFileTooLarge$")
	cmd.Env = append(os.Environ(), largeFile+"="+filepath.Join(dir, "m"), "GOCOVERDIR="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v are left: %v", left, err)
	}
}
