package beam

import (
	"bytes"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
)

func bytesReader(text string) io.Reader { return strings.NewReader(text) }

// TestBadLines checks that unreadable lines are errors with file and line, or are skipped and
// counted, with the same result as without these lines.
func TestBadLines(t *testing.T) {
	rows := labels(1500)
	for _, c := range []struct {
		ending string
		of     func([]pgsvi.Row) []byte
		bad    string
		at     int // lines before the bad line
		is     error
	}{
		{".svm", libsvmOf, "1 3:x\n", 1100, pgsvi.ErrNotFinite},
		{".svm", libsvmOf, "1 3:1 2:1\n", 0, pgsvi.ErrShape},
		{".csv", csvOf, "1,2,x,4,5,1\n", 1100, pgsvi.ErrNotFinite},
		{".csv", csvOf, "a,b,c,d,e,label\n", 1100, pgsvi.ErrNotFinite},
		{".csv", csvOf, "1,2,3,1\n", 1100, pgsvi.ErrShape},
		{".csv", csvOf, "1,2,3,1\n", 700, pgsvi.ErrShape},
	} {
		dir := t.TempDir()
		good := c.of(rows)
		lines := bytes.SplitAfter(good, []byte("\n"))
		at := c.at
		text := bytes.Join(slices.Concat(lines[:at], [][]byte{[]byte(c.bad)}, lines[at:]), nil)
		file := func(name string, b []byte) []string {
			return []string{writeTo(t, filepath.Join(dir, name+c.ending), b)}
		}
		want, _ := glm(t, &Job{Paths: file("good", good), Block: 64})
		job := &Job{Paths: file("bad", text), Block: 64}
		wants(t, job, c.is, "bad"+c.ending, "line "+strconv.Itoa(at+1))
		job.Skip = 1
		got, res := glm(t, job)
		if got != want || res.Skipped != 1 ||
			!strings.Contains(res.Why, "line "+strconv.Itoa(at+1)) ||
			!strings.Contains(res.Why, "bad"+c.ending) {
			t.Errorf("%s: %s, want %s; %+v", c.bad, got, want, res)
		}
	}
}

// TestSkip checks that Job.Skip limits the skipped rows of all files together, and that rows that
// can be read but are wrong are errors.
func TestSkip(t *testing.T) {
	dir := t.TempDir()
	good := string(libsvmOf(labels(100)))
	writeTo(t, filepath.Join(dir, "a.svm"), []byte(good+"x\n"))
	writeTo(t, filepath.Join(dir, "b.svm"), []byte(good+"1 y\n"+good))
	job := &Job{Paths: []string{filepath.Join(dir, "*.svm")}, Skip: 1}
	wants(t, job, pgsvi.ErrNotFinite, "2 rows", "a.svm", "line 101")
	job.Skip = 2
	if _, res := glm(t, job); res.Skipped != 2 || res.Items != 300 ||
		!strings.Contains(res.Why, "a.svm") {
		t.Errorf("%+v", res)
	}
	writeTo(t, filepath.Join(dir, "c.svm"), []byte(good+"7 1:1\n"))
	wants(t, job, pgsvi.ErrLabel, "c.svm", "block 8589934592:", "row 100")
	writeTo(t, filepath.Join(dir, "c.svm"), []byte(good+"1 6:1\n"))
	wants(t, job, pgsvi.ErrShape, "c.svm", "row 100")
}

// TestDamagedFiles checks that truncated files return errors that name them, and never a fit to
// part of the rows.
func TestDamagedFiles(t *testing.T) {
	rows := labels(3000)
	for ending, b := range map[string][]byte{".rows": rowFileOf(t, rows, true),
		".dense": rowFileOf(t, rows, false),
		".gz":    gzipOf(libsvmOf(rows)), ".parquet": parquetOf(t, rows)} {
		for _, run := range []*Job{{}, {Run: onPrism}} {
			if run.Run != nil && ending != ".gz" {
				continue
			}
			job := *run
			job.Paths = []string{writeTo(t, filepath.Join(t.TempDir(), "cut"+ending),
				b[:len(b)-len(b)/3])}
			wants(t, &job, pgsvi.ErrShape, "cut"+ending)
		}
		if ending == ".parquet" {
			continue // has no checksums
		}
		c := bytes.Clone(b)
		c[len(c)/2] ^= 0x10
		wants(t, &Job{Paths: []string{writeTo(t, filepath.Join(t.TempDir(), "bent"+ending), c)}},
			pgsvi.ErrShape, "bent"+ending)
	}
}

// TestParquetErrors checks that a value that is not a number is an error with row and column.
func TestParquetErrors(t *testing.T) {
	path := writeTo(t, filepath.Join(t.TempDir(), "texts.parquet"), textsOf(t))
	wants(t, &Job{Paths: []string{path}}, pgsvi.ErrShape, "texts.parquet", "row 0", "Name")
	path = writeTo(t, filepath.Join(t.TempDir(), "gaps.parquet"), gapsOf(t))
	err := scanParquet(path, func(pgsvi.Row) error { return nil })
	wantsError(t, err, pgsvi.ErrNotFinite, "row 1", "A")
}

// TestChangedFiles checks that changing a file between rounds is an error.
func TestChangedFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.svm")
	writeTo(t, path, libsvmOf(labels(500)))
	job := &Job{Paths: []string{path}, Block: 100}
	job.Report = func(r Result) { writeTo(t, path, libsvmOf(labels(499+100*r.K))) }
	wants(t, job, pgsvi.ErrParam, "first round")
}
