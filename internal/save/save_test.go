package save

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var kind = Kind{Name: "Thing", Version: 2}

func written(t testing.TB, k Kind, body string) string {
	t.Helper()
	var file strings.Builder
	if err := k.Write(&file, []byte(body)); err != nil {
		t.Fatal(err)
	}
	return file.String()
}

// The format must never change: see the package comment. The checksum is CRC-64/XZ, as in xz.
func TestFormat(t *testing.T) {
	t.Parallel()
	want := "pgsvi Thing 2 7\n{\"a\":1}\ncrc64 5debc55bda37f32f\n"
	if got := written(t, kind, `{"a":1}`); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, body := range []string{`{"a":1}`, "", "\n", strings.Repeat("long\n", 5000),
		"\ncrc64 0000000000000000\n"} {
		for version := 1; version <= 2; version++ {
			got, err := kind.Read(strings.NewReader(written(t, Kind{"Thing", version}, body)))
			if err != nil || string(got) != body {
				t.Errorf("%.40q comes back as %.40q, %v", body, got, err)
			}
		}
	}
}

// A damaged file must produce a Fault that names the damage.
func TestFaults(t *testing.T) {
	t.Parallel()
	good := written(t, kind, `{"a":1}`)
	for _, c := range []struct{ file, want string }{
		{"", "no Save method of pgsvi wrote"},
		{`{"a":1}`, "no Save method of pgsvi wrote"},
		{"pgsvi Thing 2 7", "no Save method of pgsvi wrote"},
		{"pgsvi " + strings.Repeat("x", 300) + "\n", "no Save method of pgsvi wrote"},
		{"pgsvi Thing\n", "first line"},
		{"pgsvi Thing 02 7\n", "first line"},
		{"pgsvi Thing 2 7 \n", "first line"},
		{"pgsvi Thing 2 -7\n", "first line"},
		{"pgsvi Thing 2 99999999999999999999\n", "first line"},
		{written(t, Kind{"Other", 1}, ""), `holds a "Other"`},
		{written(t, Kind{"Thing", 3}, ""), "newer release"},
		{written(t, Kind{"Thing", 0}, ""), "version 0"},
		{good[:len(good)-1], "ends after 46 bytes of 47"},
		{good + "\n", "has extra bytes after its end"},
		{strings.Replace(good, "1}", "2}", 1), "checksum"},
		{strings.ToUpper(good[len(good)-17:]), "no Save method of pgsvi wrote"},
		{good[:len(good)-17] + strings.ToUpper(good[len(good)-17:]), "checksum"},
	} {
		body, err := kind.Read(strings.NewReader(c.file))
		var fault Fault
		if !errors.As(err, &fault) || !strings.Contains(string(fault), c.want) || body != nil {
			t.Errorf("%.40q: %v, want %q", c.file, err, c.want)
		}
	}
}

type (
	number struct{ X float64 }
	list   []any
)

// A value comes back as it was, with the name of its type, parts and all.
func TestRegistry(t *testing.T) {
	t.Parallel()
	var r Registry
	if _, ok := r.Name(number{}); ok || len(r.Names()) > 0 {
		t.Error("an empty Registry knows a type")
	}
	join := func(parts []any) (any, error) { return list(parts), nil }
	if err := errors.Join(
		r.Add("number", number{}),
		r.Add("number", number{2}),
		r.AddComposite("list", list(nil), func(v any) []any { return v.(list) }, join),
	); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"no name": r.Add("", list{}), "nil": r.Add("nil", nil), "taken": r.Add("number", ""),
		"second name": r.Add("two", number{}),
		"composite":   r.AddComposite("number", "", nil, nil),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if names := r.Names(); !slices.Equal(names, []string{"list", "number"}) {
		t.Errorf("names %v", names)
	}
	want := list{number{0.1}, list{number{5e-324}, number{-1.7976931348623157e308}}}
	s, err := r.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Unmarshal(s); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := r.Marshal(list{number{1}, "text"}); err == nil ||
		!strings.Contains(err.Error(), "string is not registered") {
		t.Errorf("a part that is not known: %v", err)
	}
	if _, err := r.Unmarshal(Value{Type: "list", Parts: []Value{{Type: "word"}}}); err == nil ||
		!strings.Contains(err.Error(), "(registered types: list, number)") {
		t.Errorf("a part that is not known: %v", err)
	}
}

// A List is as any slice is, written and read.
func TestList(t *testing.T) {
	t.Parallel()
	type lists struct {
		A List[string]
		B List[List[int]] `json:",omitempty"`
		C List[Value]
	}
	for _, in := range []string{
		`{"A":null,"C":null}`,
		`{"A":[],"C":[]}`,
		`{"A":["","a,b","\",[","\\"],"B":[[],[1],null,[2,3]],"C":[{"type":"t","value":{"x":[1,2,[3]]},"parts":[{"type":"u"},{"type":"v"}]}]}`,
	} {
		var got lists
		if err := json.Unmarshal([]byte(in), &got); err != nil {
			t.Errorf("%s: %v", in, err)
		}
		if out, err := json.Marshal(got); err != nil || string(out) != in {
			t.Errorf("%s comes back as %s, %v", in, out, err)
		}
		if cap(got.A) > len(got.A)+1 {
			t.Errorf("room for %d, and there are %d", cap(got.A), len(got.A))
		}
	}
	var l List[int]
	if err := json.Unmarshal([]byte(" [ 1 , 2 ,\n3 ] "), &l); err != nil ||
		!slices.Equal(l, List[int]{1, 2, 3}) {
		t.Errorf("%v, %v", l, err)
	}
	for _, in := range []string{`{"a":1,"b":2}`, `"a,b"`, "1", `["a"]`, `[1,{}]`,
		strings.Repeat("[", 500) + strings.Repeat("]", 500)} {
		if err := json.Unmarshal([]byte(in), &l); err == nil {
			t.Errorf("%s: no error", in)
		}
	}
}

// On a system of 32 bits a time of more than 2.1 s, in nanoseconds, is no int, and numbers lose no
// bits.
func TestStateWideNumbers(t *testing.T) {
	for _, want := range []time.Duration{0, time.Second, 3 * time.Second, 5 * time.Second,
		math.MaxInt64} {
		b, err := Marshal(func(s *Coder) { s.Duration(&want) })
		if err != nil {
			t.Fatal(err)
		}
		var got time.Duration
		if err := Unmarshal(b, func(s *Coder) { s.Duration(&got) }); err != nil || got != want {
			t.Errorf("%v comes back as %v, %v", want, got, err)
		}
	}
	for _, word := range []uint64{math.MaxInt, 1<<32 + 5, 1 << 31, 1 << 63, math.MaxUint64} {
		b, err := Marshal(func(s *Coder) { s.Uint64(&word) })
		if err != nil {
			t.Fatal(err)
		}
		got := -1
		err = Unmarshal(b, func(s *Coder) { s.Int(&got) })
		if fault := Fault(""); word <= math.MaxInt && (err != nil || got != int(word)) ||
			word > math.MaxInt && (!errors.As(err, &fault) || got != -1) {
			t.Errorf("%d comes back as %d, %v", word, got, err)
		}
	}
	word := uint64(1<<32 + 1) // one byte is left if 32 bits are cut off
	b, err := Marshal(func(s *Coder) { s.Uint64(&word); var flag bool; s.Bool(&flag) })
	if err != nil {
		t.Fatal(err)
	}
	var body []byte
	if err := Unmarshal(b[:9], func(s *Coder) { s.Bytes(&body) }); err == nil {
		t.Errorf("%d bytes are read of 1: %v", word, body)
	}
	for _, negative := range []func(*Coder){
		func(s *Coder) { n := -1; s.Int(&n) },
		func(s *Coder) { d := -time.Second; s.Duration(&d) },
	} {
		if b, err := Marshal(negative); err == nil {
			t.Errorf("a negative number is written as %v", b)
		}
	}
}

// MarshalUntil stops once its context is done, and returns the cause.
func TestMarshalUntil(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cause, x := errors.New("a cause"), make([]float64, 10)
	parts := 0
	b, err := MarshalUntil(ctx, func(s *Coder) {
		for range 5 {
			if parts++; parts == 3 {
				cancel(cause)
			}
			s.Floats(len(x), &x)
		}
	})
	whole, _ := Marshal(func(s *Coder) { s.Floats(len(x), &x) })
	if err != cause || len(b) > 3*len(whole) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
