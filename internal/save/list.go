package save

import (
	"encoding/json"
	"reflect"
)

// A List is a slice that is read from JSON in no more memory than it has at the end: its elements
// are counted before memory is allocated. It is written like any slice.
type List[T any] []T

const (
	// mostGrowth limits the memory of a List as a multiple of its JSON. A list of empty lists
	// takes 8 times, the most that is saved, and a list of one-digit numbers takes 4 times.
	mostGrowth = 8
	// mostNesting limits the nesting of a List. A composite takes two levels, one for its braces
	// and one for the List of its parts. The rest is for the JSON of values.
	mostNesting = 3 * mostDepth
)

// UnmarshalJSON implements json.Unmarshaler. The error is a Fault or an error of encoding/json.
func (l *List[T]) UnmarshalJSON(b []byte) error {
	commas, depth := outline(b)
	if depth > mostNesting {
		return fault("lists nested deeper than %d", mostNesting)
	}
	t := reflect.TypeFor[T]()
	size := int(t.Size())
	if t.Kind() == reflect.Pointer {
		size += int(t.Elem().Size())
	}
	if commas*size > mostGrowth*len(b) {
		return fault("a list of %d elements in %d bytes", commas+1, len(b))
	}
	*l = make([]T, 0, commas+1)
	return json.Unmarshal(b, (*[]T)(l))
}

// outline returns the number of commas between the elements of a valid JSON array, and the depth
// of its nesting.
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
