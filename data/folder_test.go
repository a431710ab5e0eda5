package data

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
)

// TestReadCorpusByName checks that every kind of corpus is read by its name, to the same counts.
func TestReadCorpusByName(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	texts := []string{"apple pear apple", "apple plum", "pear apple plum", "pear plum plum",
		"sun moon", "sun moon", "moon sun", "stars"}
	for i, text := range texts {
		write(filepath.Join("folder", string(rune('a'+i))+".txt"), text)
	}
	write("folder/.hidden", "hidden hidden")
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if _, err := io.WriteString(zip, texts[0]); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	write("folder/a.txt", packed.String())
	for _, path := range []string{filepath.Join(dir, "folder"),
		write("lines.txt", strings.Join(texts, "\n")+"\n\n")} {
		c, err := ReadCorpus(path, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(c.Vocab, " "); len(c.Docs) != 8 ||
			got != "apple moon pear plum sun" {
			t.Errorf("%s: %d documents of %s", path, len(c.Docs), got)
		}
	}
	vocab := write("vocab", "apple\npear\nplum\n")
	for _, path := range []string{
		write("corpus.ldac", "2 0:2 1:1\n1 1:3\n"),
		write("docword.small.txt", "2\n3\n3\n1 1 2\n1 2 1\n2 2 3\n"),
		write("corpus.mtx",
			"%%MatrixMarket matrix coordinate integer general\n2 3 3\n1 1 2\n1 2 1\n2 2 3\n"),
	} {
		c, err := ReadCorpus(path, vocab)
		if err != nil {
			t.Fatal(err)
		}
		if c.Terms != 3 || len(c.Docs) != 2 || c.Word(0) != "apple" {
			t.Errorf("%s: %d documents of %d words, %q", path, len(c.Docs), c.Terms, c.Vocab)
		}
	}
	if _, err := ReadCorpus(write("large.ldac", "1 7:1\n"), vocab); !errors.Is(err,
		pgsvi.ErrShape) {
		t.Error(err)
	}
	if _, err := ReadCorpus(write("empty.txt", "\n"), ""); !errors.Is(err, pgsvi.ErrEmpty) {
		t.Error(err)
	}
	if _, err := ReadCorpus(filepath.Join(dir, "none"), ""); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
