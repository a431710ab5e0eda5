package save

import (
	"encoding/binary"
	"hash/crc64"
	"math"
)

// A Digest tells one set of data and options from another: it is a checksum of all that it is
// shown, the number of things and their order included. The zero value has seen nothing.
type Digest struct {
	sum uint64
	buf []byte
}

// Sum returns the checksum so far.
func (d *Digest) Sum() uint64 {
	d.flush()
	return d.sum
}

func (d *Digest) flush() {
	d.sum = crc64.Update(d.sum, table, d.buf)
	d.buf = d.buf[:0]
}

func (d *Digest) word(x uint64) {
	if d.buf = binary.LittleEndian.AppendUint64(d.buf, x); len(d.buf) >= 1<<12 {
		d.flush()
	}
}

// Int shows d whole numbers.
func (d *Digest) Int(xs ...int) {
	for _, x := range xs {
		d.word(uint64(x))
	}
}

// Float shows d numbers.
func (d *Digest) Float(xs ...float64) {
	for _, x := range xs {
		d.word(math.Float64bits(x))
	}
}

// Floats shows d a slice. A nil one is not an empty one.
func (d *Digest) Floats(xs []float64) {
	n := len(xs)
	if xs == nil {
		n = -1
	}
	d.Int(n)
	d.Float(xs...)
}

// Text shows d a text.
func (d *Digest) Text(s string) {
	d.Int(len(s))
	d.flush()
	d.sum = crc64.Update(d.sum, table, []byte(s))
}
