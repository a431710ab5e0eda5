// Package save is the one file format of the library and its registry of types.
//
// A file is a line that names what is in it, a body, and a checksum of both:
//
//	pgsvi GLMPosterior 1 5341
//	{"likelihood":{"type":"pgsvi.StudentT","value":{"DF":4,"Scale":0}},…}
//	crc64 9a0c74e3b1d5f286
//
// The first line has the kind, its version, and the number of bytes of the body. The body is
// JSON, in which numbers round-trip to the last bit, or the bytes of a Coder for a run that has
// not ended.
//
// Registry saves values of interface types, such as kernels, by name. Coder writes and reads a
// running fit. Digest identifies the data of a model. WriteFile replaces files safely.
package save

import (
	"bufio"
	"bytes"
	"fmt"
	"hash/crc64"
	"io"
	"math"
	"strings"
)

// A Fault is an error whose text states the fault of a file and the remedy.
type Fault string

func (f Fault) Error() string { return string(f) }

// A Kind names the content of a file, such as a GLMPosterior, and the newest version that this
// release reads and writes. A name must never change.
type Kind struct {
	Name    string
	Version int
}

// Most is the largest number of rows, documents or steps that is read from a file. Below it a
// float64 and an int of 32 bits can both count by one.
const Most = min(1<<53, math.MaxInt)

const (
	magic     = "pgsvi "
	mostLine  = 200 // longest first line, in bytes
	lastBytes = len("\ncrc64 ") + 16 + len("\n")
)

// table is for CRC-64/XZ, which detects every burst of up to 64 bits.
var table = crc64.MakeTable(crc64.ECMA)

func firstLine(name string, version, size int) string {
	return fmt.Sprintf("%s%s %d %d\n", magic, name, version, size)
}

// lastLine returns the last line of a file, with the checksum of the lines before it.
func lastLine(first string, body []byte) string {
	sum := crc64.Update(crc64.Checksum([]byte(first), table), table, body)
	return fmt.Sprintf("\ncrc64 %016x\n", sum)
}

// Write writes a file of the kind. It returns an error of w unchanged.
func (k Kind) Write(w io.Writer, body []byte) error {
	first := firstLine(k.Name, k.Version, len(body))
	for _, part := range [][]byte{[]byte(first), body, []byte(lastLine(first, body))} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// Read returns the body of a file of the kind. All of r must be that file. It uses memory for a
// few times the bytes that r returns, whatever the first line claims. The error is a Fault or an
// error of r.
func (k Kind) Read(r io.Reader) ([]byte, error) {
	b := bufio.NewReaderSize(r, 4096)
	head, err := b.Peek(mostLine)
	if err != nil && err != io.EOF {
		return nil, err
	}
	end := bytes.IndexByte(head, '\n') + 1
	if end == 0 || !bytes.HasPrefix(head, []byte(magic)) {
		return nil, fault("no Save method of pgsvi wrote this file; check its name")
	}
	var name string
	var version, size int
	first := string(head[:end])
	if n, err := fmt.Sscanf(first[len(magic):], "%s %d %d\n", &name, &version, &size); n != 3 ||
		err != nil || first != firstLine(name, version, size) || size < 0 {
		return nil, fault("its first line is %q; save it again", first)
	}
	if name != k.Name {
		return nil, fault("it holds a %q; use the Load function of that type", name)
	}
	b.Discard(end)
	all, err := readMost(b, size+min(lastBytes+1, math.MaxInt-size))
	if err != nil {
		return nil, err
	}
	switch n := len(all); {
	case n < size || n-size < lastBytes:
		return nil, fault("it ends after %d bytes of %d; copy or save it again", end+n,
			uint64(end)+uint64(size)+uint64(lastBytes))
	case n-size > lastBytes:
		return nil, fault("it has extra bytes after its end; copy or save it again")
	}
	body := all[:size]
	if has, want := string(all[size:]), lastLine(first, body); has != want {
		return nil, fault("its checksum is %q, but its content has %q; copy or save it again",
			strings.TrimSpace(has), strings.TrimSpace(want))
	}
	if version < 1 || version > k.Version {
		return nil, fault(
			"it has version %d, and this release reads versions up to %d; use a newer release",
			version, k.Version)
	}
	return body, nil
}

// mostIdle limits how often in a row a reader may return neither bytes nor an error.
const mostIdle = 100

// readMost reads at most the given number of bytes from r. Its buffer has at most four times the
// size of the bytes read.
func readMost(r io.Reader, most int) (all []byte, err error) {
	for idle := 0; err == nil && len(all) < most; {
		if len(all) == cap(all) {
			room := make([]byte, len(all), min(most, max(4096, 4*len(all))))
			copy(room, all)
			all = room
		}
		var n int
		n, err = r.Read(all[len(all):cap(all)])
		all = all[:len(all)+n]
		if idle++; n > 0 {
			idle = 0
		}
		if idle == mostIdle && err == nil {
			err = io.ErrNoProgress
		}
	}
	if err == io.EOF {
		err = nil
	}
	return all, err
}

func fault(format string, args ...any) Fault { return Fault(fmt.Sprintf(format, args...)) }
