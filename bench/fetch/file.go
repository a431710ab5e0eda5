package main

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A file is a file of a data set, as benchmarks read it and as it is published.
type file struct {
	path   string // path in the data folder, with slashes; .gz means stored compressed
	url    string // address of the published file, which may be plain, .gz or .tgz
	member string // name of the file in a .tgz
	sorted bool   // whether the sum is of the sorted rows
	size   int64  // bytes of the uncompressed text; more than twice that is an error
	sum    string // SHA-256 of the rows; see rowSum
}

const (
	libsvm = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
	esl    = "https://hastie.su.domains/ElemStatLearn/datasets/"
	blei   = "http://www.cs.columbia.edu/~blei/lda-c/"
	words  = "https://archive.ics.uci.edu/ml/machine-learning-databases/bag-of-words/"
)

// published lists the files that the benchmarks read and the repository does not have.
var published = []file{
	{path: "a9a/a9a.gz", url: libsvm + "a9a", sorted: true, size: 2297314,
		sum: "e64ae075e6bf5beb3925156c39368822099a324bc71ec7c0bc91751eba10edb5"},
	{path: "a9a/a9a.t.gz", url: libsvm + "a9a.t", sorted: true, size: 1148347,
		sum: "c25dccec39be14891c1425d959c32d809aba71ac3928fd295688b297a4e314b2"},
	{path: "usps/zip.train.gz", url: esl + "zip.train.gz", size: 7386827,
		sum: "650c830d14b68410477727891affb110537c54e14640249e926bc12183f20983"},
	{path: "usps/zip.test.gz", url: esl + "zip.test.gz", size: 2029610,
		sum: "70b81e50cecc01354ac87f1dfb003e47ec378706f5ba244f8f68e0e4c7636b70"},
	{path: "ap/ap.dat.gz", url: blei + "ap.tgz", member: "ap/ap.dat", size: 1926195,
		sum: "c9b946b6cdb2c6e876198ae227afb573df023db84fb53a9d2b31c0d59224fea1"},
	{path: "ap/vocab.txt", url: blei + "ap.tgz", member: "ap/vocab.txt", size: 85532,
		sum: "fbf0d0f836cb2b0360bd3cae0f71c2f34b140b1dd8dd0d0bdb618a64704337f6"},
	{path: "nips/docword.nips.txt.gz", url: words + "docword.nips.txt.gz", size: 8509211,
		sum: "0415ee0bd4c965d8c044ea83ab62d03f007d4cb9651e3daa5cdb7356682b571f"},
	{path: "nips/vocab.nips.txt", url: words + "vocab.nips.txt", size: 100807,
		sum: "be3f6337e3406ddc24837118e203da57c4c898ad5f6c9280908cd08a2609cf91"},
}

// set returns the name of the data set: the folder of f.
func (f file) set() string { return path.Dir(f.path) }

// check returns an error unless the file is in the folder with the right sum.
func (f file) check(folder string) error {
	stored, err := os.Open(filepath.Join(folder, filepath.FromSlash(f.path)))
	if err != nil {
		return err
	}
	defer stored.Close()
	var r io.Reader = stored
	if strings.HasSuffix(f.path, ".gz") {
		if r, err = gzip.NewReader(stored); err != nil {
			return fmt.Errorf("%s: %w", stored.Name(), err)
		}
	}
	if err := f.copy(io.Discard, r); err != nil {
		return fmt.Errorf("%s: %w", stored.Name(), err)
	}
	return nil
}

// fetch downloads the file to the folder. On error it keeps the old file, if any.
func (f file) fetch(ctx context.Context, client *http.Client, folder string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", f.path, err)
		}
	}()
	name := filepath.Join(folder, filepath.FromSlash(f.path))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err // names the address
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", f.url, response.Status)
	}
	text, err := f.unpack(response.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", f.url, err)
	}
	temp, err := os.CreateTemp(filepath.Dir(name), ".fetch-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // has no effect after the file is renamed
	defer temp.Close()
	if err := f.store(temp, text); err != nil {
		return fmt.Errorf("%s: %w", f.url, err)
	}
	if err := temp.Close(); err != nil {
		return err
	}
	return os.Rename(temp.Name(), name)
}

// unpack returns the text of the file from its published form in body.
func (f file) unpack(body io.Reader) (io.Reader, error) {
	if !strings.HasSuffix(f.url, "gz") {
		return body, nil
	}
	unzipped, err := gzip.NewReader(body)
	if err != nil || f.member == "" {
		return unzipped, err
	}
	archive := tar.NewReader(unzipped)
	for {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("it has no file %s", f.member)
		case err != nil:
			return nil, err
		case path.Clean(header.Name) == f.member && header.Typeflag == tar.TypeReg:
			return archive, nil
		}
	}
}

// store writes text to w, compressed if the name of the file ends in .gz.
func (f file) store(w io.Writer, text io.Reader) error {
	if !strings.HasSuffix(f.path, ".gz") {
		return f.copy(w, text)
	}
	z := gzip.NewWriter(w) // has no name and time, so the bytes are always the same
	if err := f.copy(z, text); err != nil {
		return err
	}
	return z.Close()
}

// copy copies text to w. It returns an error if the text is too long or its sum is wrong.
func (f file) copy(w io.Writer, text io.Reader) error {
	most := 2 * f.size
	limited := &io.LimitedReader{R: text, N: most + 1}
	sum, err := rowSum(io.TeeReader(limited, w), f.sorted)
	switch {
	case err != nil:
		return err
	case limited.N <= 0:
		return fmt.Errorf("it has more than %d bytes, about %d are expected", most, f.size)
	case sum != f.sum:
		return fmt.Errorf(
			"its rows have the SHA-256 %s, want %s: it is not the file that was measured with", sum,
			f.sum)
	}
	return nil
}

// rowSum returns the SHA-256 of the lines of text. It first removes spaces at both ends of each
// line, reduces others to single spaces, and ends each line with a line feed. If sorted, it sorts
// the lines.
func rowSum(text io.Reader, sorted bool) (string, error) {
	sum := sha256.New()
	scanner := bufio.NewScanner(text)
	scanner.Buffer(nil, 1<<20)
	var rows []string
	for scanner.Scan() {
		row := strings.Join(strings.Fields(scanner.Text()), " ")
		if sorted {
			rows = append(rows, row)
			continue
		}
		add(sum, row)
	}
	if err := scanner.Err(); err != nil {
		return "", err
	}
	slices.Sort(rows)
	for _, row := range rows {
		add(sum, row)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func add(sum hash.Hash, row string) {
	io.WriteString(sum, row) // a hash returns no error
	io.WriteString(sum, "\n")
}
