package rounds

import (
	"encoding/binary"
	"math"

	"github.com/pgsvi/pgsvi/internal/save"
)

// Sums holds sums of float64 numbers. A sum has the same bits for any order and any grouping of the
// numbers.
//
// Each number is cut into digits of base 2⁴⁰ at fixed places: digit p counts 2^(40p−1074). Digits at
// the same place are added as integers. Each sum keeps the three highest places that occurred, which
// are at least 80 bits of the largest number. The highest place only rises, so at the end these
// places hold the sums over all numbers (compare Demmel and Nguyen, 2015).
type Sums struct {
	top    []int8  // the highest place of each sum; −1 if it is empty
	digits []int64 // the digits of each sum at the places top, top − 1 and top − 2
	added  int     // how often numbers were added
}

const (
	digitBits = 40
	digitMask = 1<<digitBits - 1
	places    = 3
	mostAdded = 1 << 22 // the sum of this many digits below 2⁴⁰ fits in an int64
)

// NewSums returns n empty sums.
func NewSums(n int) *Sums {
	s := &Sums{top: make([]int8, n), digits: make([]int64, places*n)}
	for i := range s.top {
		s.top[i] = -1
	}
	return s
}

// Len returns the number of sums.
func (s *Sums) Len() int { return len(s.top) }

// cut returns the digits of |x|, and the place of the highest digit that is not zero. x must be
// finite and not 0.
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

// units[p+1] is 2^(1074−40p), which scales a number to the digit at place p. units[0] is for an empty
// sum. The lowest ones are +Inf.
var units = func() (u [2046/digitBits + 4]float64) {
	for i := range u {
		u[i] = math.Ldexp(1, 1074-digitBits*(i-1))
	}
	return u
}()

// Add adds x[i] to sum i. The numbers must be finite.
func (s *Sums) Add(x []float64) {
	s.added++
	s.addAt(0, x)
}

// addAt adds x[i] to sum first + i. A call of Add must come with all calls of addAt that add to the
// same sum once.
func (s *Sums) addAt(first int, x []float64) {
	const base = 1 << digitBits
	for k, v := range x {
		i := first + k
		if v == 0 {
			continue
		}
		// Most numbers do not raise the highest place. Their digits are exact in float64.
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

// add adds the digits d to sum i. d[0] belongs to the place top.
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

// Merge adds the sums of o, which has the same length.
func (s *Sums) Merge(o *Sums) {
	s.added += o.added
	for i, top := range o.top {
		if top >= 0 {
			s.add(i, [places]int64(o.digits[places*i:places*i+places]), int(top))
		}
	}
}

// Full reports whether the digits could overflow if o were merged. A nil o means one more number.
func (s *Sums) Full(o *Sums) bool {
	more := 1
	if o != nil {
		more = o.added
	}
	return s.added > mostAdded-more
}

// Value stores the sums in dst.
func (s *Sums) Value(dst []float64) { s.valueAt(0, dst[:len(s.top)]) }

// valueAt stores the sums from the given one on in dst.
func (s *Sums) valueAt(first int, dst []float64) {
	for k, top := range s.top[first : first+len(dst)] {
		dst[k] = 0
		if i := first + k; top >= 0 {
			dst[k] = value([places]int64(s.digits[places*i:places*i+places]), int(top))
		}
	}
}

// value returns the number with the digits d, where d[0] may have any size and belongs to top.
func value(d [places]int64, top int) float64 {
	carry := func() {
		for k := places - 1; k > 0; k-- {
			d[k-1] += d[k] >> digitBits
			d[k] &= digitMask
		}
	}
	sign := 1.0
	if carry(); d[0] < 0 { // give all digits the same sign, so that none cancel
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

// State writes or reads n sums. An empty sum takes one byte.
func (s *Sums) State(c *save.Coder, n int) {
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
