package data

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/memory"
	"golang.org/x/exp/mmap"
)

// A row file has the following format. All numbers are little-endian.
//
//	header   "pgsvirow", version uint32, flags uint32
//	blocks   length uint64, rows uint32, CRC-32C uint32 of length, rows and
//	         content, and the content
//	trailer  columns, rows, length of the file uint64, CRC-32C uint32 of the
//	         header and these numbers, "end." uint32
//
// A row consists of y, then the offset and the weight if the file has them, each as a float64, and
// its values, as float64 or float32. A dense row has one value for each column, and a block has as
// many dense rows as fit rowBlock, but at least one, so the place of each row can be computed. A
// sparse row consists of 2·(number of values), plus 1 if all values are 1, the differences of its
// columns less 1 (the first from -1), all as uvarints, and the values, unless all are 1.
const (
	rowMagic       = "pgsvirow"
	rowEnd         = "end."
	rowVersion     = 1
	rowHeader      = 16
	rowTrailer     = 32
	rowBlock       = 256 << 10 // approximate size of a block in bytes
	rowBlockHeader = 16

	rowFloat32, rowSparse, rowOffset, rowWeight = 1, 2, 4, 8
)

var rowCRC = crc32.MakeTable(crc32.Castagnoli)

// RowOptions holds options for NewRowWriter. The zero value means dense rows of float64 without
// offsets or weights.
type RowOptions struct {
	Sparse  bool // store the columns and values of each row, not a value for each column
	Float32 bool // round the values, but not responses, offsets or weights
	Offset  bool // store offsets; otherwise they must be 0
	// Weight stores weights. Otherwise they must be 0 or 1, and are read as 0, which means 1.
	Weight bool
}

func (o RowOptions) flags() (f uint32) {
	for k, set := range []bool{o.Float32, o.Sparse, o.Offset, o.Weight} {
		if set {
			f |= 1 << k
		}
	}
	return f
}

// stride returns the number of bytes in a dense row.
func (o RowOptions) stride(cols int) int64 {
	size := int64(8)
	if o.Float32 {
		size = 4
	}
	return o.fixed() + size*int64(cols)
}

// fixed returns the number of bytes of a row before its values.
func (o RowOptions) fixed() int64 {
	n := int64(8)
	if o.Offset {
		n += 8
	}
	if o.Weight {
		n += 8
	}
	return n
}

// rowsPerBlock returns the number of dense rows in each block except the last.
func rowsPerBlock(stride int64) int64 { return max(1, rowBlock/stride) }

// A RowWriter writes a binary file of rows, with checksums, for OpenRows. It works in one pass and
// keeps only a few hundred rows in memory, so the data can be larger than memory. It is not safe
// for concurrent use.
type RowWriter struct {
	w       io.Writer
	opts    RowOptions
	cols    int
	widen   bool   // whether cols is the largest number so far
	buf     []byte // the current block, including its header
	inBlock int
	rows    int
	size    int64 // bytes written
	err     error // the error that ended the writing
}

// NewRowWriter returns a writer of rows with the given number of columns. For sparse rows, cols may
// be 0 to use as many columns as the rows turn out to have. A nil opts means the zero RowOptions.
// The writer writes whole blocks, so w need not be buffered. If a block of dense rows needs more
// memory than the limit, Write and Close return an error that wraps ErrMemory. NewRowWriter panics
// if cols is negative or above math.MaxInt32.
func NewRowWriter(w io.Writer, cols int, opts *RowOptions) *RowWriter {
	if cols < 0 || cols > math.MaxInt32 {
		panic(fmt.Sprintf("pgsvi: NewRowWriter: the number of columns is %d", cols))
	}
	rw := &RowWriter{w: w, cols: cols, buf: make([]byte, rowBlockHeader, rowBlock+rowBlock/8)}
	if opts != nil {
		rw.opts = *opts
	}
	rw.widen = rw.opts.Sparse && cols == 0
	if !rw.opts.Sparse {
		if err := memory.Check(0, float64(rw.opts.stride(cols)),
			fmt.Sprintf("a dense row of %d columns", cols), "set RowOptions.Sparse"); err != nil {
			rw.err = fmt.Errorf("pgsvi: RowWriter: %w", err)
		}
	}
	return rw
}

// Write adds a row and retains none of its slices. Sparse and dense rows can be written to either
// kind of file. A file of sparse rows stores only the nonzero values of a dense row.
//
// An error names the row, counted from 0. It wraps ErrShape if lengths do not match each other or
// the number of columns, or if columns do not increase strictly from 0. It wraps ErrNotFinite if a
// number is NaN or infinite, or becomes infinite as a float32. It wraps ErrParam if a weight is
// negative, or if the options exclude an offset or weight. After such an error the row is not
// added, and the writer can still be used. An error of w is wrapped and is final. After Close the
// error wraps os.ErrClosed.
func (w *RowWriter) Write(row pgsvi.Row) error {
	if w.err != nil {
		return w.err
	}
	width, err := w.check(row)
	if err != nil {
		return err
	}
	if w.widen {
		w.cols = max(w.cols, width)
	}
	b := w.buf
	b = rowPut(b, row.Y)
	if w.opts.Offset {
		b = rowPut(b, row.Offset)
	}
	if w.opts.Weight {
		b = rowPut(b, row.Weight)
	}
	if w.opts.Sparse {
		w.buf = w.putSparse(b, row)
	} else {
		w.buf = w.putDense(b, row)
	}
	w.rows++
	w.inBlock++
	full := len(w.buf)-rowBlockHeader >= rowBlock
	if !w.opts.Sparse {
		full = int64(w.inBlock) == rowsPerBlock(w.opts.stride(w.cols))
	}
	if full {
		w.flush()
	}
	return w.err
}

// check returns the number of columns that a row needs, or an error if the row is invalid.
func (w *RowWriter) check(row pgsvi.Row) (width int, err error) {
	width = len(row.Val)
	switch {
	case row.Ind != nil && len(row.Ind) != len(row.Val):
		return 0, fmt.Errorf("pgsvi: row %d has %d columns but %d values: %w", w.rows, len(row.Ind),
			len(row.Val), pgsvi.ErrShape)
	case row.Ind == nil && len(row.Val) != w.cols && !w.widen || width > math.MaxInt32:
		return 0, fmt.Errorf("pgsvi: dense row %d has %d values instead of %d: %w", w.rows,
			len(row.Val), w.cols, pgsvi.ErrShape)
	}
	if row.Ind != nil {
		most := w.cols
		if w.widen {
			most = math.MaxInt32
		}
		width = 0
		for _, j := range row.Ind {
			if j < width || j >= most {
				return 0, fmt.Errorf("pgsvi: row %d has column %d; columns must increase strictly "+
					"and be from 0 to %d: %w", w.rows, j, most-1, pgsvi.ErrShape)
			}
			width = j + 1
		}
	}
	for k, v := range row.Val {
		if w.opts.Float32 {
			v = float64(float32(v))
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, fmt.Errorf("pgsvi: row %d, column %d is %v: %w", w.rows, dense.Index(row.Ind, k),
				row.Val[k], pgsvi.ErrNotFinite)
		}
	}
	if _, ok := dense.AllFinite([]float64{row.Y, row.Offset, row.Weight}); !ok {
		return 0, fmt.Errorf("pgsvi: row %d has response %v, offset %v and weight %v; all must be "+
			"finite: %w", w.rows, row.Y, row.Offset, row.Weight, pgsvi.ErrNotFinite)
	}
	if row.Weight < 0 || row.Weight != 0 && row.Weight != 1 && !w.opts.Weight {
		return 0, fmt.Errorf("pgsvi: row %d has the weight %v; weights must not be negative, and "+
			"need RowOptions.Weight: %w", w.rows, row.Weight, pgsvi.ErrParam)
	}
	if row.Offset != 0 && !w.opts.Offset {
		return 0, fmt.Errorf("pgsvi: row %d has the offset %v; offsets need RowOptions.Offset: %w",
			w.rows, row.Offset, pgsvi.ErrParam)
	}
	return width, nil
}

func rowPut(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
}

func (w *RowWriter) putDense(b []byte, row pgsvi.Row) []byte {
	n := len(b)
	end := n + int(w.opts.stride(w.cols)-w.opts.fixed())
	b = slices.Grow(b, end-n)[:end]
	to := b[n:]
	if row.Ind != nil {
		clear(to)
	}
	for k, v := range row.Val {
		j := dense.Index(row.Ind, k)
		if w.opts.Float32 {
			binary.LittleEndian.PutUint32(to[4*j:], math.Float32bits(float32(v)))
		} else {
			binary.LittleEndian.PutUint64(to[8*j:], math.Float64bits(v))
		}
	}
	return b
}

func (w *RowWriter) putSparse(b []byte, row pgsvi.Row) []byte {
	keep := func(v float64) bool { return row.Ind != nil || v != 0 }
	n, ones := uint64(0), uint64(1)
	for _, v := range row.Val {
		if keep(v) {
			n++
			if v != 1 {
				ones = 0
			}
		}
	}
	b = binary.AppendUvarint(b, 2*n+ones)
	next := 0
	for k, v := range row.Val {
		if keep(v) {
			j := dense.Index(row.Ind, k)
			b = binary.AppendUvarint(b, uint64(j-next))
			next = j + 1
		}
	}
	if ones == 1 {
		return b
	}
	for _, v := range row.Val {
		switch {
		case !keep(v):
		case w.opts.Float32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
		default:
			b = rowPut(b, v)
		}
	}
	return b
}

// flush writes the block, preceded by the header if it is the first block.
func (w *RowWriter) flush() {
	if w.size == 0 {
		w.write(w.header())
	}
	if w.inBlock == 0 {
		return
	}
	binary.LittleEndian.PutUint64(w.buf, uint64(len(w.buf)-rowBlockHeader))
	binary.LittleEndian.PutUint32(w.buf[8:], uint32(w.inBlock))
	binary.LittleEndian.PutUint32(w.buf[12:], rowBlockSum(w.buf))
	w.write(w.buf)
	w.buf, w.inBlock = w.buf[:rowBlockHeader], 0
}

// rowBlockSum returns the checksum of a block.
func rowBlockSum(block []byte) uint32 {
	return crc32.Update(crc32.Checksum(block[:12], rowCRC), rowCRC, block[rowBlockHeader:])
}

func (w *RowWriter) header() []byte {
	b := binary.LittleEndian.AppendUint32([]byte(rowMagic), rowVersion)
	return binary.LittleEndian.AppendUint32(b, w.opts.flags())
}

func (w *RowWriter) write(b []byte) {
	if w.err != nil {
		return
	}
	n, err := w.w.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.err = fmt.Errorf("pgsvi: writing row file, row %d: %w", w.rows, err)
	}
	w.size += int64(len(b))
}

// Close writes the remaining rows and the trailer, which shows OpenRows that the file is complete.
// It does not close the underlying writer, but returns its error if there was one. A second Close
// returns an error that wraps os.ErrClosed.
func (w *RowWriter) Close() error {
	if w.err != nil {
		return w.err
	}
	w.flush()
	var b []byte
	for _, v := range []int64{int64(w.cols), int64(w.rows), w.size + rowTrailer} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	b = binary.LittleEndian.AppendUint32(b, rowFileSum(w.header(), b))
	w.write(append(b, rowEnd...))
	if w.err != nil {
		return w.err
	}
	w.err = fmt.Errorf("pgsvi: RowWriter: %w", os.ErrClosed)
	return nil
}

// rowFileSum returns the checksum of a header and a trailer.
func rowFileSum(header, trailer []byte) uint32 {
	return crc32.Update(crc32.Checksum(header, rowCRC), rowCRC, trailer[:24])
}

// CopyRows writes the rows to w and returns their number. It does not close w. It stops at the
// first error of rows or Write and returns it.
func CopyRows(w *RowWriter, rows iter.Seq2[pgsvi.Row, error]) (n int, err error) {
	for row, err := range rows {
		if err == nil {
			err = w.Write(row)
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// A RowFile is a file of rows that a RowWriter wrote. It is safe for concurrent use. The file must
// not change while it is open.
//
// A RowFile maps a part of the file into memory at a time, so that at most about 64 MB of it are
// resident, however large it is.
type RowFile struct {
	path   string
	opts   RowOptions
	cols   int
	rows   int
	size   int64
	closed atomic.Bool

	mu     sync.Mutex // for RowAt
	window rowWindow
	buf    []byte
}

// OpenRows opens a file of rows and checks its header and its trailer. The errors name the file.
// They wrap ErrParam if it is not a file of rows or has another version, and ErrShape if it is
// truncated, damaged, or written by a RowWriter that was not closed. They wrap the error of opening
// or reading the file.
func OpenRows(path string) (*RowFile, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("pgsvi: row file: %w", err)
	}
	m, err := mmap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("pgsvi: row file: %w", err)
	}
	defer m.Close()
	f := &RowFile{path: path, size: int64(m.Len())}
	header, trailer := make([]byte, rowHeader), make([]byte, rowTrailer)
	if f.size >= rowHeader {
		if _, err := m.ReadAt(header, 0); err != nil {
			return nil, fmt.Errorf("pgsvi: row file %s: %w", path, err)
		}
	}
	version, flags := binary.LittleEndian.Uint32(header[8:]),
		binary.LittleEndian.Uint32(header[12:])
	switch {
	case string(header[:8]) != rowMagic:
		return nil, fmt.Errorf("pgsvi: %s is not a row file: %w", path, pgsvi.ErrParam)
	case version != rowVersion:
		return nil, fmt.Errorf("pgsvi: row file %s has version %d, but this release reads version "+
			"%d: %w", path, version, rowVersion, pgsvi.ErrParam)
	case flags >= 2*rowWeight:
		return nil, fmt.Errorf("pgsvi: row file %s has the unknown flags %#x: %w", path, flags,
			pgsvi.ErrParam)
	case f.size < rowHeader+rowTrailer:
		return nil, f.truncated()
	}
	f.opts = RowOptions{Float32: flags&rowFloat32 != 0, Sparse: flags&rowSparse != 0,
		Offset: flags&rowOffset != 0, Weight: flags&rowWeight != 0}
	if _, err := m.ReadAt(trailer, f.size-rowTrailer); err != nil {
		return nil, fmt.Errorf("pgsvi: row file %s: %w", path, err)
	}
	cols, rows, size := binary.LittleEndian.Uint64(trailer),
		binary.LittleEndian.Uint64(trailer[8:]), binary.LittleEndian.Uint64(trailer[16:])
	if string(trailer[28:]) != rowEnd || rowFileSum(header,
		trailer) != binary.LittleEndian.Uint32(trailer[24:]) {
		return nil, f.truncated()
	}
	if size != uint64(f.size) || cols > math.MaxInt32 || !f.holds(int(cols), rows) {
		return nil, fmt.Errorf("pgsvi: row file %s has %d bytes, but its trailer declares %d "+
			"bytes, %d rows and %d columns: %w", path, f.size, size, rows, cols, pgsvi.ErrShape)
	}
	f.cols, f.rows = int(cols), int(rows)
	f.window.file = f
	return f, nil
}

func (f *RowFile) truncated() error {
	return fmt.Errorf("pgsvi: row file %s is truncated, or its RowWriter was not closed: %w",
		f.path, pgsvi.ErrShape)
}

// holds reports whether the file is large enough for this number of rows.
func (f *RowFile) holds(cols int, rows uint64) bool {
	inside := uint64(f.size) - rowHeader - rowTrailer
	if f.opts.Sparse {
		return rows <= inside/uint64(f.opts.fixed()+1)
	}
	stride := uint64(f.opts.stride(cols))
	if rows > inside/stride {
		return false
	}
	per := uint64(rowsPerBlock(int64(stride)))
	return inside == rows*stride+(rows+per-1)/per*rowBlockHeader
}

// Len returns the number of rows.
func (f *RowFile) Len() int { return f.rows }

// Cols returns the number of columns.
func (f *RowFile) Cols() int { return f.cols }

// Options returns the options that the file was written with.
func (f *RowFile) Options() RowOptions { return f.opts }

// Close closes the file and returns nil. After that, All, Range and RowAt return errors that wrap
// os.ErrClosed. Iterations that are in progress return such an error at the next block.
func (f *RowFile) Close() error {
	f.closed.Store(true)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.window.close()
	return nil
}

// All returns the rows in order. The sequence can be used any number of times, also concurrently.
// The slices of a row belong to the iteration and are valid until the next row. An error ends the
// sequence. It wraps ErrShape and names the rows if a block does not match its checksum or does not
// contain valid rows. If the checksum is wrong, no row of the block is yielded.
func (f *RowFile) All() iter.Seq2[pgsvi.Row, error] { return f.Range(0, f.rows) }

// Range returns the rows with numbers from ≤ i < to, like All. It reads only the blocks with these
// rows, and, in a file of sparse rows, the headers of the blocks before them. The error wraps
// ErrParam if the range is not valid.
func (f *RowFile) Range(from, to int) iter.Seq2[pgsvi.Row, error] {
	return func(yield func(pgsvi.Row, error) bool) {
		if from < 0 || to < from || to > f.rows {
			yield(pgsvi.Row{}, fmt.Errorf("pgsvi: row file %s: the range from %d to %d is not "+
				"within its %d rows: %w", f.path, from, to, f.rows, pgsvi.ErrParam))
			return
		}
		window := rowWindow{file: f}
		defer window.close()
		row := pgsvi.Row{Val: []float64{}}
		if f.opts.Sparse {
			row.Ind = []int{}
		}
		off, first, err := f.seek(&window, from)
		if err != nil {
			yield(pgsvi.Row{}, err)
			return
		}
		var block []byte
		for first < to {
			var count int
			block, count, err = f.readBlock(&window, block, off, first)
			if err != nil {
				yield(pgsvi.Row{}, err)
				return
			}
			off += int64(len(block))
			b := block[rowBlockHeader:]
			for i := range min(count, to-first) {
				var ok bool
				b, ok = f.decode(b, &row)
				if !ok || i == count-1 && len(b) > 0 {
					yield(pgsvi.Row{}, fmt.Errorf("pgsvi: row file %s: row %d is damaged: %w",
						f.path, first+i, pgsvi.ErrShape))
					return
				}
				if first+i >= from && !yield(row, nil) {
					return
				}
			}
			first += count
		}
		if to == f.rows && first == to && off != f.size-rowTrailer {
			yield(pgsvi.Row{}, fmt.Errorf("pgsvi: row file %s has %d bytes after its %d rows: %w",
				f.path, f.size-rowTrailer-off, f.rows, pgsvi.ErrShape))
		}
	}
}

// seek returns the place of the block with row i, and the first row of that block. For the number
// of rows it returns the end.
func (f *RowFile) seek(window *rowWindow, i int) (off int64, first int, err error) {
	if !f.opts.Sparse {
		stride := f.opts.stride(f.cols)
		per := rowsPerBlock(stride)
		block := int64(i) / per
		if i == f.rows { // the last block may have fewer rows
			return f.size - rowTrailer, i, nil
		}
		return rowHeader + block*(per*stride+rowBlockHeader), int(block * per), nil
	}
	off = rowHeader
	buf := make([]byte, rowBlockHeader)
	for first < f.rows {
		if f.size-rowTrailer-off < rowBlockHeader {
			break // readBlock reports the error
		}
		if err := window.read(buf, off); err != nil {
			return 0, 0, err
		}
		size, count := binary.LittleEndian.Uint64(buf), int64(binary.LittleEndian.Uint32(buf[8:]))
		rest := uint64(f.size - rowTrailer - off - rowBlockHeader)
		if int64(first)+count > int64(i) || count == 0 || size > rest {
			break
		}
		off += rowBlockHeader + int64(size)
		first += int(count)
	}
	return off, first, nil
}

// readBlock reads the block at off, whose first row has number first. It returns buf with the
// block, and the number of its rows.
func (f *RowFile) readBlock(window *rowWindow, buf []byte, off int64, first int,
) ([]byte, int, error) {
	rest := f.size - rowTrailer - off - rowBlockHeader
	if rest < 0 {
		return nil, 0, fmt.Errorf("pgsvi: row file %s ends after %d rows instead of %d: %w", f.path,
			first, f.rows, pgsvi.ErrShape)
	}
	buf = slices.Grow(buf[:0], rowBlockHeader)[:rowBlockHeader]
	if err := window.read(buf, off); err != nil {
		return nil, 0, err
	}
	size, count := binary.LittleEndian.Uint64(buf), int64(binary.LittleEndian.Uint32(buf[8:]))
	if size > uint64(rest) || count == 0 || count > int64(f.rows-first) || !f.opts.Sparse &&
		int64(size) != count*f.opts.stride(f.cols) {
		return nil, 0, fmt.Errorf("pgsvi: row file %s: the block from row %d on is damaged: %w",
			f.path, first, pgsvi.ErrShape)
	}
	buf = slices.Grow(buf, int(size))[:rowBlockHeader+int(size)]
	if err := window.read(buf[rowBlockHeader:], off+rowBlockHeader); err != nil {
		return nil, 0, err
	}
	if rowBlockSum(buf) != binary.LittleEndian.Uint32(buf[12:]) {
		return nil, 0, fmt.Errorf("pgsvi: row file %s: rows %d to %d do not match their checksum: "+
			"%w", f.path, first, int64(first)+count-1, pgsvi.ErrShape)
	}
	return buf, int(count), nil
}

// RowAt sets dst to row i of a file of dense rows, and reuses dst.Val if it is large enough. It
// does not verify the checksum. The error wraps ErrParam if the file has no row i or has sparse
// rows.
func (f *RowFile) RowAt(i int, dst *pgsvi.Row) error {
	if f.opts.Sparse {
		return fmt.Errorf("pgsvi: row file %s has sparse rows, which RowAt does not support; use "+
			"Range: %w", f.path, pgsvi.ErrParam)
	}
	if i < 0 || i >= f.rows {
		return fmt.Errorf("pgsvi: row file %s has no row %d; its rows are 0 to %d: %w", f.path, i,
			f.rows-1, pgsvi.ErrParam)
	}
	stride := f.opts.stride(f.cols)
	off := rowHeader + int64(i)*stride + (int64(i)/rowsPerBlock(stride)+1)*rowBlockHeader
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buf = dense.Resize(f.buf, int(stride))
	if err := f.window.read(f.buf, off); err != nil {
		return err
	}
	f.decode(f.buf, dst)
	return nil
}

// decode sets row to the first row in b and returns the bytes after it. It returns false if b does
// not begin with a valid row.
func (f *RowFile) decode(b []byte, row *pgsvi.Row) ([]byte, bool) {
	if int64(len(b)) < f.opts.fixed() {
		return b, false
	}
	row.Y, row.Offset, row.Weight = rowGet(b), 0, 0
	b = b[8:]
	if f.opts.Offset {
		row.Offset, b = rowGet(b), b[8:]
	}
	if f.opts.Weight {
		row.Weight, b = rowGet(b), b[8:]
	}
	n, ones := f.cols, false
	if f.opts.Sparse {
		var ok bool
		if row.Ind, ones, b, ok = decodeColumns(row.Ind, b, f.cols); !ok {
			return b, false
		}
		n = len(row.Ind)
	} else {
		row.Ind = nil
	}
	size := 8
	if f.opts.Float32 {
		size = 4
	}
	if !ones && len(b)/size < n {
		return b, false
	}
	val := slices.Grow(row.Val[:0], n)[:n]
	row.Val = val
	switch {
	case ones:
		for k := range val {
			val[k] = 1
		}
		return b, true
	case f.opts.Float32:
		from := b[:4*n]
		for k := range val {
			val[k] = float64(math.Float32frombits(binary.LittleEndian.Uint32(from[4*k:])))
		}
	default:
		from := b[:8*n]
		for k := range val {
			val[k] = math.Float64frombits(binary.LittleEndian.Uint64(from[8*k:]))
		}
	}
	return b[size*n:], true
}

func rowGet(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }

// decodeColumns reads the columns of a sparse row into ind, and whether all its values are 1. It
// returns the bytes after the columns, and false if the columns are not valid.
func decodeColumns(ind []int, b []byte, cols int) (_ []int, ones bool, rest []byte, ok bool) {
	head, used := binary.Uvarint(b)
	if used <= 0 || head/2 > uint64(len(b)-used) { // a column takes at least one byte
		return ind, false, b, false
	}
	b = b[used:]
	ind = slices.Grow(ind[:0], int(head/2))[:head/2]
	next := 0
	for k := range ind {
		var skip uint64
		if len(b) > 0 && b[0] < 0x80 {
			skip, b = uint64(b[0]), b[1:]
		} else {
			skip, used = binary.Uvarint(b)
			if used <= 0 {
				return ind, false, b, false
			}
			b = b[used:]
		}
		if skip >= uint64(cols-next) {
			return ind, false, b, false
		}
		ind[k] = next + int(skip)
		next = ind[k] + 1
	}
	return ind, head%2 == 1, b, true
}

// A rowWindow reads a file through a mapping. Pages that were touched count as resident until the
// mapping ends, so rowWindow makes a new mapping when it has touched enough of the current mapping.
type rowWindow struct {
	file    *RowFile
	m       *mmap.ReaderAt
	touched int   // approximate number of bytes
	end     int64 // end of the last read
}

const (
	rowResident = 48 << 20  // most bytes to touch in a mapping
	rowAround   = 128 << 10 // most bytes that systems map around a page fault
)

// read fills b from offset off, which must be within the file.
func (w *rowWindow) read(b []byte, off int64) error {
	if w.file.closed.Load() {
		return fmt.Errorf("pgsvi: row file %s: %w", w.file.path, os.ErrClosed)
	}
	if off != w.end {
		w.touched += rowAround
	}
	w.end = off + int64(len(b))
	for len(b) > 0 {
		if w.m == nil || w.touched >= rowResident {
			if err := w.open(); err != nil {
				return err
			}
		}
		n := min(len(b), max(rowAround, rowResident-w.touched))
		if _, err := w.m.ReadAt(b[:n], off); err != nil {
			return fmt.Errorf("pgsvi: row file %s: %w", w.file.path, err)
		}
		b, off = b[n:], off+int64(n)
		w.touched += n
	}
	return nil
}

func (w *rowWindow) open() error {
	w.close()
	m, err := mmap.Open(w.file.path)
	if err != nil {
		return fmt.Errorf("pgsvi: row file: %w", err)
	}
	if int64(m.Len()) != w.file.size {
		defer m.Close()
		return fmt.Errorf("pgsvi: row file %s had %d bytes when it was opened and has %d now: %w",
			w.file.path, w.file.size, m.Len(), pgsvi.ErrShape)
	}
	w.m, w.touched = m, 0
	return nil
}

func (w *rowWindow) close() {
	if w.m != nil {
		w.m.Close()
		w.m = nil
	}
}
