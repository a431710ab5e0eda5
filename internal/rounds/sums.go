package rounds

import (
	"encoding/binary"
	"math"

	"github.com/pgsvi/pgsvi/internal/save"
)

// Sums are sums of numbers that are the same to the last bit in whatever order and groups the
// numbers are added.
//
// A number is cut into digits of base 2⁴⁰ at places that are fixed: digit p counts 2^(40p−1074).
// Digits of a place are added as integers. Of each sum the three highest places are kept that a
// number had so far, which is 80 bits or more of the largest. Places only rise, so that what is
// left at the end are the sums of these three, of all numbers.
type Sums struct {
	top    []int8  // the highest place, −1 for none
	digits []int64 // of places top, top − 1, top − 2
	added  int     // how often numbers were added
}

const (
	digitBits = 40
	digitMask = 1<<digitBits - 1
	places    = 3
	// digits below 2⁴⁰ are added so often at most, so that an int64 holds their sum
	mostAdded = 1 << 22
)

// NewSums returns n sums of nothing.
func NewSums(n int) *Sums {
	s := &Sums{top: make([]int8, n), digits: make([]int64, places*n)}
	for i := range s.top {
		s.top[i] = -1
	}
	return s
}

// Len returns the number of sums.
func (s *Sums) Len() int { return len(s.top) }

// cut returns the digits of |x|, finite and not 0, and the place of the highest that is not zero.
func cut(x float64) (d [places]int64, top int) {
	b := math.Float64bits(x) &^ (1 << 63)
	exponent, m := int(b>>52), b&(1<<52-1)
	if exponent > 0 {
		m |= 1 << 52
		exponent--
	}
	place, shift := exponent/digitBits, uint(exponent%digitBits)
	lo, hi := m<<shift, m>>(64-shift)
	d[2] = int64(lo & digitMask)
	d[1] = int64((lo>>digitBits | hi<<(64-digitBits)) & digitMask)
	d[0] = int64(hi >> (2*digitBits - 64))
	top = place + 2
	for d[0] == 0 {
		d[0], d[1], d[2] = d[1], d[2], 0
		top--
	}
	return d, top
}

// units are 1 in the units of all places, that of none first. They are +Inf for the lowest.
var units = func() (u [2046/digitBits + 4]float64) {
	for i := range u {
		u[i] = math.Ldexp(1, 1074-digitBits*(i-1))
	}
	return u
}()

// Add adds x, finite numbers, one to each sum.
func (s *Sums) Add(x []float64) {
	s.added++
	const base = 1 << digitBits
	for i, v := range x {
		if v == 0 {
			continue
		}
		// no place above those of the sum, as of most numbers: the digits are exact in float64
		if y := v * units[s.top[i]+1]; math.Abs(y) < base {
			at := s.digits[places*i : places*i+places : places*i+places]
			d := int64(y)
			at[0] += d
			y = (y - float64(d)) * base
			d = int64(y)
			at[1] += d
			at[2] += int64((y - float64(d)) * base)
			continue
		}
		d, top := cut(v)
		if v < 0 {
			d[0], d[1], d[2] = -d[0], -d[1], -d[2]
		}
		s.add(i, d, top)
	}
}

// add adds the digits d, the first of place top, to sum i.
func (s *Sums) add(i int, d [places]int64, top int) {
	at := s.digits[places*i : places*i+places : places*i+places]
	for ; int(s.top[i]) < top; s.top[i]++ {
		if s.top[i] < 0 {
			s.top[i] = int8(top)
			break
		}
		at[0], at[1], at[2] = 0, at[0], at[1]
	}
	switch int(s.top[i]) - top {
	case 0:
		at[0] += d[0]
		at[1] += d[1]
		at[2] += d[2]
	case 1:
		at[1] += d[0]
		at[2] += d[1]
	case 2:
		at[2] += d[0]
	}
}

// Merge adds what o has, which is as long.
func (s *Sums) Merge(o *Sums) {
	s.added += o.added
	for i, top := range o.top {
		if top >= 0 {
			s.add(i, [places]int64(o.digits[places*i:places*i+places]), int(top))
		}
	}
}

// Full reports whether there is no room for as many numbers as o has, 1 if that is nil.
func (s *Sums) Full(o *Sums) bool {
	more := 1
	if o != nil {
		more = o.added
	}
	return s.added > mostAdded-more
}

// Value stores the sums in dst.
func (s *Sums) Value(dst []float64) {
	for i, top := range s.top {
		dst[i] = 0
		if top >= 0 {
			dst[i] = value([places]int64(s.digits[places*i:places*i+places]), int(top))
		}
	}
}

// value returns the number of some digits, of which the first may be of any size.
func value(d [places]int64, top int) float64 {
	carry := func() {
		for k := places - 1; k > 0; k-- {
			d[k-1] += d[k] >> digitBits
			d[k] &= digitMask
		}
	}
	sign := 1.0
	if carry(); d[0] < 0 { // with one sign no digits cancel
		sign = -1
		for k := range d {
			d[k] = -d[k]
		}
		carry()
	}
	high := float64(d[0])
	rest := float64(d[0]-int64(high))*(1<<digitBits) + float64(d[1]) + float64(d[2])/(1<<digitBits)
	return sign * math.Ldexp(high*(1<<digitBits)+rest, digitBits*(top-1)-1074)
}

// State writes or reads n sums. Those of nothing take one byte.
func (s *Sums) State(c *save.State, n int) {
	tops, digits := make([]byte, 0, len(s.top)), []byte(nil)
	if !c.Reading() {
		some := 0
		for _, t := range s.top {
			tops = append(tops, byte(t+1))
			if t >= 0 {
				some++
			}
		}
		digits = make([]byte, 0, 8*places*some)
		for i, t := range s.top {
			if t < 0 {
				continue
			}
			for _, d := range s.digits[places*i : places*i+places] {
				digits = binary.LittleEndian.AppendUint64(digits, uint64(d))
			}
		}
	}
	c.Int(&s.added)
	c.Bytes(&tops)
	c.Bytes(&digits)
	some := 0
	for _, t := range tops {
		c.Check(t <= 2046/digitBits+3, "a digit of place %d", t)
		if t > 0 {
			some++
		}
	}
	c.Check(len(tops) == n && len(digits) == 8*places*some && s.added <= mostAdded,
		"sums of %d and %d bytes, of %d numbers", len(tops), len(digits), n)
	if !c.Reading() {
		return
	}
	s.top, s.digits = make([]int8, n), make([]int64, places*n)
	for i, t := range tops {
		if s.top[i] = int8(t) - 1; t == 0 {
			continue
		}
		for k := range places {
			s.digits[places*i+k] = int64(binary.LittleEndian.Uint64(digits))
			digits = digits[8:]
		}
	}
}
