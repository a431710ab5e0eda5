package data

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestPipes checks that a table can be read from a pipe, and that WriteFile writes to a pipe
// instead of replacing it.
func TestPipes(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	got := make(chan string)
	go func() {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		got <- string(b)
	}()
	if err := WriteFile(path,
		func(w io.Writer) error { _, err := io.WriteString(w, "model"); return err }); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		t.Fatalf("the pipe has become %v, %v", info, err)
	}
	if text := <-got; text != "model" {
		t.Errorf("read %q", text)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%d files, %v", len(left), err)
	}
	go func() {
		if err := os.WriteFile(path, []byte("x,y\n1,2.5\n2,3.5\n3,4\n"), 0); err != nil {
			t.Error(err)
		}
	}()
	table, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := table.Model("y ~ x"); err != nil || len(m.Y) != 3 || m.Y[1] != 3.5 {
		t.Errorf("%v, %v", m, err)
	}
}
