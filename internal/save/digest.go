package save

import (
	"encoding/binary"
	"hash/crc64"
	"math"
)

// A Digest is a checksum of the data and options of a model. It depends on all values added to
// it, their number and their order. The zero value has no values.
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

// Int adds whole numbers.
func (d *Digest) Int(xs ...int) {
	for _, x := range xs {
		d.word(uint64(x))
	}
}

// Float adds numbers.
func (d *Digest) Float(xs ...float64) {
	for _, x := range xs {
		d.word(math.Float64bits(x))
	}
}

// Floats adds a slice. A nil slice differs from an empty one.
func (d *Digest) Floats(xs []float64) {
	n := len(xs)
	if xs == nil {
		n = -1
	}
	d.Int(n)
	d.Float(xs...)
}

// Text adds a text.
func (d *Digest) Text(s string) {
	d.Int(len(s))
	d.flush()
	d.sum = crc64.Update(d.sum, table, []byte(s))
}
