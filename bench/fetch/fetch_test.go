package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const text = "b 2 \na  1\n\nc 3"

// zipped returns b compressed with gzip.
func zipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// archive returns a compressed archive with the given files, which all hold the same text.
func archive(t *testing.T, names ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range names {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg,
			Size: int64(len(text)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return zipped(t, out.Bytes())
}

func sumOf(t *testing.T, s string, sorted bool) string {
	t.Helper()
	sum, err := rowSum(strings.NewReader(s), sorted)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// serve returns the address of a server for the files.
func serve(t *testing.T, files map[string][]byte) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, ok := files[strings.TrimPrefix(r.URL.Path, "/")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Write(b)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/"
}

// TestRowSum checks a known sum, and changes of the text that must not change the sum.
func TestRowSum(t *testing.T) {
	// printf 'a 1\nb 2\n' | sha256sum
	const want = "2951835de33689a441bfa61bc7af99b1f0305ca8ec0ab4dd508f14f57b27ca23"
	if got := sumOf(t, "a 1\nb 2\n", false); got != want {
		t.Errorf("sum %s, want %s", got, want)
	}
	for _, same := range []string{"a 1\nb 2", "a  1 \r\nb 2\r\n", "\ta 1\n b\t2 \n"} {
		if got := sumOf(t, same, false); got != want {
			t.Errorf("%q has the sum %s, want %s", same, got, want)
		}
	}
	for _, other := range []string{"", "b 2\na 1\n", "a1\nb 2\n", "a 1\nb 2\n\n", "a 1 b 2\n"} {
		if got := sumOf(t, other, false); got == want {
			t.Errorf("%q has the sum of another text", other)
		}
	}
	if sumOf(t, "b 2\na 1\n", true) != want {
		t.Error("a sorted sum depends on the order of the rows")
	}
	if _, err := rowSum(strings.NewReader(strings.Repeat("x", 2<<20)), false); err == nil {
		t.Error("a line of 2 MB is no error")
	}
}

// TestFetch checks plain files, compressed files and archives, in either layout.
func TestFetch(t *testing.T) {
	from := serve(t, map[string][]byte{
		"plain":  []byte(text),
		"z.gz":   zipped(t, []byte(text)),
		"ap.tgz": archive(t, "ap/README", "./ap/ap.dat", "ap/vocab.txt"),
	})
	for _, f := range []file{
		{path: "a/plain.txt", url: from + "plain"},
		{path: "a/plain.gz", url: from + "plain", sorted: true},
		{path: "b/z.gz", url: from + "z.gz"},
		{path: "b/z.txt", url: from + "z.gz"},
		{path: "ap/ap.dat.gz", url: from + "ap.tgz", member: "ap/ap.dat"},
		{path: "ap/vocab.txt", url: from + "ap.tgz", member: "ap/vocab.txt"},
	} {
		f.size, f.sum = int64(len(text)), sumOf(t, text, f.sorted)
		folder := t.TempDir()
		if err := f.check(folder); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s before it is there: %v", f.path, err)
		}
		if err := f.fetch(t.Context(), http.DefaultClient, folder); err != nil {
			t.Errorf("%s: %v", f.path, err)
			continue
		}
		if err := f.check(folder); err != nil {
			t.Errorf("%s: %v", f.path, err)
		}
		stored, err := os.ReadFile(filepath.Join(folder, f.path))
		if err != nil {
			t.Error(err)
			continue
		}
		if want := []byte(text); !strings.HasSuffix(f.path, ".gz") && !bytes.Equal(stored, want) {
			t.Errorf("%s has %q, want %q", f.path, stored, want)
		}
		if names := entries(t, folder); len(names) != 1 {
			t.Errorf("%s: the folder has %v", f.path, names)
		}
	}
}

// entries returns the files below the folder.
func entries(t *testing.T, folder string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestFetchErrors checks that a wrong, truncated, oversized or missing file is an error that names
// the file, and that no file is left behind.
func TestFetchErrors(t *testing.T) {
	packed := zipped(t, []byte(text))
	from := serve(t, map[string][]byte{
		"plain":    []byte(text),
		"z.gz":     packed,
		"short.gz": packed[:len(packed)-6],
		"bad.gz":   []byte(text),
		"long":     []byte(strings.Repeat("1 2\n", 1000)),
		"ap.tgz":   archive(t, "ap/ap.dat"),
		"ap2.tgz":  packed,
	})
	good := sumOf(t, text, false)
	wrong := strings.Repeat("0", 64)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		f    file
		ctx  context.Context
		want string
	}{
		"wrong sum": {file{path: "a/x.txt", url: from + "plain", sum: wrong}, t.Context(),
			good},
		"wrong sum, zipped": {file{path: "a/x.gz", url: from + "z.gz", sum: wrong}, t.Context(),
			wrong},
		"other order": {file{path: "a/x.txt", url: from + "plain", sum: sumOf(t, text, true)},
			t.Context(), good},
		"cut short": {file{path: "a/x.gz", url: from + "short.gz", sum: good}, t.Context(),
			"unexpected EOF"},
		"not gzip": {file{path: "a/x.gz", url: from + "bad.gz", sum: good}, t.Context(),
			"invalid header"},
		"too long": {file{path: "a/x.txt", url: from + "long", sum: good}, t.Context(),
			"more than"},
		"not there": {file{path: "a/x.txt", url: from + "none", sum: good}, t.Context(),
			"404"},
		"no member": {file{path: "a/x.txt", url: from + "ap.tgz", member: "ap/vocab.txt",
			sum: good}, t.Context(), "no file ap/vocab.txt"},
		"no archive": {file{path: "a/x.txt", url: from + "ap2.tgz", member: "ap/ap.dat",
			sum: good}, t.Context(), "EOF"},
		"no server": {file{path: "a/x.txt", url: "http://127.0.0.1:1/x", sum: good},
			t.Context(), "127.0.0.1:1"},
		"canceled": {file{path: "a/x.txt", url: from + "plain", sum: good}, canceled,
			"canceled"},
	} {
		c.f.size = int64(len(text))
		folder := t.TempDir()
		err := c.f.fetch(c.ctx, http.DefaultClient, folder)
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.HasPrefix(err.Error(), c.f.path) {
			t.Errorf("%s: %v, want %q in it and %s in front", name, err, c.want, c.f.path)
		}
		if names := entries(t, folder); len(names) > 0 {
			t.Errorf("%s left %v", name, names)
		}
	}
}

// TestFetchKeeps checks that a failed download keeps the old file.
func TestFetchKeeps(t *testing.T) {
	from, folder := serve(t, map[string][]byte{"x": []byte("other\n")}), t.TempDir()
	f := file{path: "a/x.txt", url: from + "x", size: int64(len(text)), sum: sumOf(t, text, false)}
	name := filepath.Join(folder, "a", "x.txt")
	if err := os.Mkdir(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := f.fetch(t.Context(), http.DefaultClient, folder); err == nil {
		t.Error("another text is no error")
	}
	if err := f.check(folder); err != nil {
		t.Error(err)
	}
}

// TestRun checks arguments, that files with the right sums are not downloaded, and that -check
// downloads nothing.
func TestRun(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	before := published
	t.Cleanup(func() { published = before })
	published = []file{
		{path: "a/x.txt", url: s.URL, size: int64(len(text)), sum: sumOf(t, text, false)},
		{path: "b/y.gz", url: s.URL, size: int64(len(text)), sum: sumOf(t, text, false)},
		{path: "b/z.txt", url: s.URL, size: int64(len(text)), sum: strings.Repeat("0", 64)},
	}
	folder := t.TempDir()
	for _, c := range []struct {
		args  []string
		want  []string // texts in the error; nil means no error
		asked int
	}{
		{[]string{"-to", folder, "-check"}, []string{"x.txt", "y.gz", "z.txt"}, 0},
		{[]string{"-to", folder, "-only", "a"}, nil, 1},
		{[]string{"-to", folder, "-only", "a"}, nil, 0},
		{[]string{"-to", folder, "-only", "a,b"}, []string{"b/z.txt"}, 2},
		{[]string{"-to", folder, "-only", "a", "-check"}, nil, 0},
		{[]string{"-to", folder, "-only", "c"}, []string{`"c"`, "a, b"}, 0},
		{[]string{"-to", folder, "more"}, []string{"more"}, 0},
		{[]string{"-to", ""}, []string{"-to"}, 0},
	} {
		asked = 0
		err := run(t.Context(), c.args, io.Discard)
		if (err == nil) != (c.want == nil) || asked != c.asked {
			t.Errorf("%v: %d downloads, want %d; %v", c.args, asked, c.asked, err)
		}
		for _, want := range c.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v, want %s in it", c.args, err, want)
			}
		}
	}
}

// TestPublished checks the list of files, and their sums if the data sets are present.
func TestPublished(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range published {
		if seen[f.path] || len(f.sum) != 64 || f.size <= 0 || f.set() == "." ||
			!strings.HasPrefix(f.url, "http") {
			t.Errorf("%+v", f)
		}
		if strings.HasSuffix(f.url, ".tgz") != (f.member != "") {
			t.Errorf("%s: member %q of %s", f.path, f.member, f.url)
		}
		seen[f.path] = true
	}
	folder := os.Getenv("PGSVI_DATA")
	if folder == "" {
		t.Skip("PGSVI_DATA is not set")
	}
	for _, f := range published {
		if err := f.check(folder); err != nil {
			t.Error(err)
		}
	}
}
