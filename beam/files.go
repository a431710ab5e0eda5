package beam

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/io/filesystem"
	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
)

// blocks is a range of blocks in a file. It is the element type of the jobs.
type blocks struct {
	Element  int
	Path     string
	File     int // number of the file
	From, To int // range of blocks in a row file; To is wholeFile for other files
}

// wholeFile marks a file that is read from beginning to end.
const wholeFile = -1

// number returns the number of block k in the file. It does not depend on the elements.
func (b blocks) number(k int) uint64 { return uint64(b.File)<<32 | uint64(k) }

// Defaults for Job.Shards:
const (
	blocksOfShard = 32
	fewestShards  = 16
)

// plan returns the elements, and a description of the files.
func (j *Job) plan(ctx context.Context) (all []blocks, files string, err error) {
	paths, err := j.paths(ctx)
	if err != nil {
		return nil, "", err
	}
	var (
		split []blocks // files that can be read in parts
		total int
		text  strings.Builder
	)
	fmt.Fprintf(&text, "blocks of %d", j.Block)
	for i, p := range paths {
		size, err := sizeOf(ctx, p)
		if err != nil {
			return nil, "", err
		}
		fmt.Fprintf(&text, "; %s of %d bytes", path.Base(p), size)
		b := blocks{Path: p, File: i, To: wholeFile}
		if n, ok, err := j.blocksOf(p); err != nil {
			return nil, "", err
		} else if ok {
			b.To = n
			total += n
			split = append(split, b)
			continue
		}
		all = append(all, b)
	}
	shards := j.Shards
	if shards == 0 {
		shards = max(total/blocksOfShard, fewestShards)
	}
	all = append(all, deal(split, total, min(shards, total))...)
	for i := range all {
		all[i].Element = i
	}
	return all, text.String(), nil
}

// deal distributes total blocks of files over shards. Each element has blocks of one file only.
func deal(files []blocks, total, shards int) (all []blocks) {
	done, shard := 0, 0 // blocks before the file; complete shards
	for _, f := range files {
		for from := 0; from < f.To; {
			end := (shard + 1) * total / shards // end of the shard, counted over all files
			b := f
			b.From, b.To = from, min(f.To, end-done)
			if done+b.To == end {
				shard++
			}
			if from = b.To; b.From < b.To {
				all = append(all, b)
			}
		}
		done += f.To
	}
	return all
}

// paths returns the files of a job in order.
func (j *Job) paths(ctx context.Context) (all []string, err error) {
	for _, pattern := range j.Paths {
		found, err := list(ctx, pattern)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("pgsvi: no file matches %s: %w", pattern, pgsvi.ErrEmpty)
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("pgsvi: Job has no Paths: %w", pgsvi.ErrEmpty)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func sizeOf(ctx context.Context, path string) (n int64, err error) {
	err = on(ctx, path, func(fs filesystem.Interface) error {
		n, err = fs.Size(ctx, path)
		return err
	})
	return n, err
}

// blocksOf returns the number of blocks in a local row file, or false for any other file.
func (j *Job) blocksOf(path string) (n int, ok bool, err error) {
	if !local(path) {
		return 0, false, nil
	}
	in, err := os.Open(path)
	if err != nil {
		return 0, false, fmt.Errorf("pgsvi: %w", err)
	}
	head := make([]byte, len(rowMagic))
	_, err = io.ReadFull(in, head)
	in.Close()
	if err != nil || string(head) != rowMagic {
		return 0, false, nil
	}
	f, err := data.OpenRows(path)
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	return (f.Len() + j.Block - 1) / j.Block, true, nil
}

// local reports whether the operating system can open the path.
func local(path string) bool { return !strings.Contains(path, "://") }

// The first bytes of files:
const (
	rowMagic     = "pgsvirow"
	parquetMagic = "PAR1"
	gzipMagic    = "\x1f\x8b"
)

// read calls add for each block, with rows that are valid until the next call. It counts skipped
// rows in p.
func (a *adding) read(ctx context.Context, b blocks, p *part,
	add func(k int, rows iter.Seq2[pgsvi.Row, error]) error) error {
	if b.To != wholeFile {
		return a.readRows(b.Path, b.From, b.To, add)
	}
	return on(ctx, b.Path, func(fs filesystem.Interface) (err error) {
		in, err := fs.OpenRead(ctx, b.Path)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		r := bufio.NewReaderSize(in, 1<<16)
		head, _ := r.Peek(len(rowMagic))
		switch {
		case string(head) == rowMagic:
			return a.withCopy(r, func(path string) error {
				return a.readRows(path, 0, wholeFile, add)
			})
		case strings.HasPrefix(string(head), parquetMagic):
			return a.withCopy(r, func(path string) error { return a.cut(parquetRows(path), add) })
		case strings.HasPrefix(string(head), gzipMagic):
			z, err := gzip.NewReader(r)
			if err != nil {
				return fmt.Errorf("unpacking gzip: %w: %w", err, pgsvi.ErrShape)
			}
			r = bufio.NewReaderSize(damaged{z}, 1<<16)
		}
		t := &textReader{in: r, parse: a.parser(b.Path), add: a, block: b, part: p,
			most: linesOfChunk}
		return a.cut(t.rows, add)
	})
}

// damaged marks the errors of a gzip file as errors of the data.
type damaged struct{ z *gzip.Reader }

func (d damaged) Read(b []byte) (int, error) {
	n, err := d.z.Read(b)
	if errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) ||
		errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("unpacking gzip: %w: %w", err, pgsvi.ErrShape)
	}
	return n, err
}

// withCopy copies r to a temporary file and calls do with its path.
func (a *adding) withCopy(r io.Reader, do func(path string) error) (err error) {
	f, err := os.CreateTemp("", "pgsvi-rows-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return do(f.Name())
}

// readRows reads blocks of a row file, up to the last block if to is wholeFile.
func (a *adding) readRows(path string, from, to int,
	add func(int, iter.Seq2[pgsvi.Row, error]) error) error {
	f, err := openRows(path)
	if err != nil {
		return err
	}
	if to == wholeFile {
		to = (f.Len() + a.Block - 1) / a.Block
	}
	return a.cut(f.Range(min(from*a.Block, f.Len()), min(to*a.Block, f.Len())),
		func(k int, rows iter.Seq2[pgsvi.Row, error]) error { return add(from+k, rows) })
}

// cut splits rows into blocks of a.Block rows and calls add for each.
func (a *adding) cut(rows iter.Seq2[pgsvi.Row, error],
	add func(int, iter.Seq2[pgsvi.Row, error]) error) error {
	next, stop := iter.Pull2(rows)
	defer stop()
	row, err, ok := next()
	for k := 0; ok; k++ {
		fail := add(k, func(yield func(pgsvi.Row, error) bool) {
			for n := 0; ok && n < a.Block; n++ {
				if !yield(row, err) || err != nil {
					return
				}
				row, err, ok = next()
			}
		})
		if fail != nil {
			return fail
		}
	}
	return nil
}
