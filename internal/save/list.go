package save

import (
	"encoding/json"
	"reflect"
)

// A List is a slice that is read from JSON in no more memory than it has at the end: its elements
// are counted before there is room for them. It is written as any slice.
type List[T any] []T

const (
	// mostGrowth is how many times its JSON a List may be in memory. The most that is saved is 8
	// times, a list of empty lists; numbers are 4 times, if each is one digit.
	mostGrowth = 8
	// mostNesting is how deep a List may be nested. A composite takes two levels, its braces and
	// the List of its parts; what is left is for the JSON of a value.
	mostNesting = 3 * mostDepth
)

// UnmarshalJSON implements json.Unmarshaler. The error is a Fault, or that of encoding/json.
func (l *List[T]) UnmarshalJSON(b []byte) error {
	commas, depth := outline(b)
	if depth > mostNesting {
		return fault("lists nested deeper than %d", mostNesting)
	}
	if size := int(reflect.TypeFor[T]().Size()); commas*size > mostGrowth*len(b) {
		return fault("a list of %d elements in %d bytes", commas+1, len(b))
	}
	*l = make([]T, 0, commas+1)
	return json.Unmarshal(b, (*[]T)(l))
}

// outline returns how many commas there are between the elements of an array of valid JSON, and how
// deep it is nested.
func outline(b []byte) (commas, depth int) {
	level := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '[', '{':
			level++
			depth = max(depth, level)
		case ']', '}':
			level--
		case ',':
			if level == 1 {
				commas++
			}
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		}
	}
	return commas, depth
}
