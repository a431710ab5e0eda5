package save

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"
)

// A Coder writes a state to bytes or reads it from bytes, by one function that names the parts.
// Each method writes its argument, or stores there what was written. Numbers keep every bit. When
// reading, memory is limited by the number of bytes left, and nothing is stored after the first
// fault.
type Coder struct {
	b       []byte // written so far, or not yet read
	reading bool
	err     error
	ctx     context.Context // cancels writing; nil means never
}

// Marshal returns the bytes of the parts that f names. The error is the argument of Fail.
func Marshal(f func(*Coder)) ([]byte, error) {
	s := &Coder{}
	f(s)
	return s.b, s.err
}

// MarshalUntil is like Marshal. It returns the cause of ctx soon after ctx is done.
func MarshalUntil(ctx context.Context, f func(*Coder)) ([]byte, error) {
	s := &Coder{ctx: ctx}
	f(s)
	return s.b, s.err
}

// Append is like Marshal, but appends to b.
func Append(b []byte, f func(*Coder)) ([]byte, error) {
	s := &Coder{b: b}
	f(s)
	return s.b, s.err
}

// Unmarshal stores bytes that Marshal has written in the parts that f names. The error is a Fault
// or the argument of Fail.
func Unmarshal(b []byte, f func(*Coder)) error {
	s := &Coder{b: b, reading: true}
	f(s)
	if s.err == nil && len(s.b) > 0 {
		s.err = fault("%d bytes of the state are left over", len(s.b))
	}
	return s.err
}

// Reading reports whether c reads and has not met a fault.
func (s *Coder) Reading() bool { return s.reading && s.err == nil }

// Err returns the first fault.
func (s *Coder) Err() error { return s.err }

// Fail records err as the fault, unless it is nil or there is a fault already.
func (s *Coder) Fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// Check records a fault with the given message unless ok is true.
func (s *Coder) Check(ok bool, format string, args ...any) {
	if !ok && s.err == nil {
		s.err = fault(format, args...)
	}
}

// Holds reports whether the remaining bytes can hold times·n numbers. If not, it records a fault,
// before the caller allocates memory.
func (s *Coder) Holds(times, n int) bool {
	if s.Reading() && n > 0 && times > len(s.b)/8/n {
		s.err = fault("the state ends too early")
	}
	return s.err == nil
}

// take returns the next n bytes, or nil if there are fewer.
func (s *Coder) take(n int) []byte {
	if s.err != nil {
		return nil
	}
	if n < 0 || n > len(s.b) {
		s.err = fault("the state ends too early")
		return nil
	}
	b := s.b[:n]
	s.b = s.b[n:]
	return b
}

func (s *Coder) word(x uint64) uint64 {
	if !s.reading {
		s.b = binary.LittleEndian.AppendUint64(s.b, x)
		return x
	}
	if b := s.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return x
}

// Uint64 writes or reads bits that are not a number, such as seeds.
func (s *Coder) Uint64(xs ...*uint64) {
	for _, x := range xs {
		*x = s.word(*x)
	}
}

// Int writes or reads numbers that are not negative. A number that does not fit in an int is a
// fault.
func (s *Coder) Int(xs ...*int) {
	for _, x := range xs {
		n := s.word(uint64(*x))
		s.Check(n <= math.MaxInt, "a number of the state is negative or above %d", math.MaxInt)
		if s.Reading() {
			*x = int(n)
		}
	}
}

// Duration writes or reads times that are not negative. They take 64 bits on every system.
func (s *Coder) Duration(x *time.Duration) {
	n := s.word(uint64(*x))
	s.Check(n <= math.MaxInt64, "a time of the state is negative")
	if s.Reading() {
		*x = time.Duration(n)
	}
}

// Bool writes or reads flags.
func (s *Coder) Bool(xs ...*bool) {
	for _, x := range xs {
		var n uint64
		if *x {
			n = 1
		}
		n = s.word(n)
		s.Check(n <= 1, "a flag of the state is %d", n)
		if s.Reading() {
			*x = n == 1
		}
	}
}

// Float writes or reads any numbers, including NaN.
func (s *Coder) Float(xs ...*float64) {
	for _, x := range xs {
		*x = math.Float64frombits(s.word(math.Float64bits(*x)))
	}
}

// Bytes writes or reads byte slices of any length.
func (s *Coder) Bytes(x *[]byte) {
	n := len(*x)
	s.Int(&n)
	if !s.reading {
		s.b = append(s.b, *x...)
		return
	}
	if b := s.take(n); b != nil {
		*x = slices.Clone(b)
	}
}

// Text writes or reads names.
func (s *Coder) Text(x *string) {
	b := []byte(*x)
	s.Bytes(&b)
	if s.Reading() {
		*x = string(b)
	}
}

// Floats writes or reads slices of n elements each. A nil slice stays nil.
func (s *Coder) Floats(n int, xs ...*[]float64) {
	for _, x := range xs {
		has := *x != nil
		if s.Bool(&has); !has {
			if s.Reading() {
				*x = nil
			}
			continue
		}
		if s.reading {
			if n > len(s.b)/8 {
				s.take(len(s.b) + 1)
				return
			}
			*x = slices.Grow((*x)[:0], n)[:n]
		} else {
			s.Check(len(*x) == n, "a part of the state has %d numbers, not %d", len(*x), n)
		}
		s.row(*x)
	}
}

// Lower writes or reads the lower triangle of an n×n matrix, row by row, into memory of the
// caller. It does nothing after a fault.
func (s *Coder) Lower(n int, a []float64) {
	if s.err != nil {
		return
	}
	if !s.reading {
		// Grow once, because growing with each row copies everything again.
		s.b = slices.Grow(s.b, 8*(n*(n+1)/2))
	}
	for i := range n {
		s.row(a[i*n : i*n+i+1])
	}
}

func (s *Coder) row(x []float64) {
	if !s.reading {
		if s.ctx != nil && s.ctx.Err() != nil {
			s.Fail(context.Cause(s.ctx))
		}
		if s.err != nil {
			return
		}
		at := len(s.b)
		s.b = slices.Grow(s.b, 8*len(x))[:at+8*len(x)]
		for i, v := range x {
			binary.LittleEndian.PutUint64(s.b[at+8*i:], math.Float64bits(v))
		}
		return
	}
	if b := s.take(8 * len(x)); b != nil {
		for i := range x {
			x[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}
	}
}
