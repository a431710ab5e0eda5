package save

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// FuzzRead reads whatever there is: what is read is the body of a file that Write writes, and what
// is wrong with any other is a Fault.
func FuzzRead(f *testing.F) {
	for _, s := range []string{"", written(f, kind, ""), written(f, kind, `{"a":1}`),
		written(f, Kind{"Thing", 1}, strings.Repeat("long\n", 2000)),
		written(f, Kind{"Other", 1}, "x"), "pgsvi Thing 2 9223372036854775807\n{}",
		"pgsvi Thing 2 -1\n"} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, in []byte, body bool) {
		if body { // a body that Write has written comes back
			file := written(t, kind, string(in))
			if got, err := kind.Read(strings.NewReader(file)); err != nil || !bytes.Equal(got, in) {
				t.Fatalf("%q comes back as %q, %v", in, got, err)
			}
			return
		}
		got, err := kind.Read(bytes.NewReader(in))
		if err == nil {
			for version := 1; version <= kind.Version; version++ {
				if written(t, Kind{kind.Name, version}, string(got)) == string(in) {
					return
				}
			}
			t.Fatalf("%q is read as %q, and is not what Write writes", in, got)
		}
		if fault := Fault(""); !errors.As(err, &fault) || got != nil {
			t.Fatalf("%q: %v, %q", in, err, got)
		}
	})
}

// FuzzUnmarshal decodes arbitrary JSON. A value that it decodes must survive another round trip.
func FuzzUnmarshal(f *testing.F) {
	var r Registry
	if err := errors.Join(r.Add("number", number{}), r.Add("pointer", &number{}),
		r.AddComposite("list", list(nil), func(v any) []any { return v.(list) },
			func(parts []any) (any, error) { return list(parts), nil })); err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{`{"type":"number","value":{"X":1.5}}`,
		`{"type":"pointer","value":null}`,
		`{"type":"list","parts":[{"type":"number","value":{}},{"type":"list"}]}`,
		`{"type":"list","parts":[{}]}`, strings.Repeat(`{"type":"list","parts":[`, 120)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var s Value
		if json.Unmarshal(in, &s) != nil {
			return
		}
		v, err := r.Unmarshal(s)
		if err != nil {
			return
		}
		again, err := r.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if w, err := r.Unmarshal(again); err != nil || !reflect.DeepEqual(v, w) {
			t.Fatalf("%v, made again %v: %v", v, w, err)
		}
	})
}
