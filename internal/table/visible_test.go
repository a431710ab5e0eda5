package table

import "testing"

// TestVisible checks which runes are escaped, and that letters of all scripts remain.
func TestVisible(t *testing.T) {
	for _, c := range []struct{ text, want, lines string }{
		{"plain", "plain", ""},
		{"Größe, 身長, قد, می\u200cخواهم, 👩‍👧", "Größe, 身長, قد, می\u200cخواهم, 👩‍👧", ""},
		{"\x1b[2Jred", `\x1b[2Jred`, ""}, {"a\u009bb\u0085", `a\u009bb\u0085`, ""},
		{"a\rb\x00\x7f", `a\rb\x00\x7f`, ""},
		{"\u202eevil\u2066\u200e\u061c", `\u202eevil\u2066\u200e\u061c`, ""},
		{"\xff\xc3", `\xff\xc3`, ""}, {"\ufffd", "\ufffd", ""},
		{"a\u2028b", `a\u2028b`, ""}, {"\U000e0041", `\U000e0041`, ""},
		{"two\n\tlines", `two\n\tlines`, "two\n\tlines"},
	} {
		if c.lines == "" {
			c.lines = c.want
		}
		if got := Visible(c.text); got != c.want {
			t.Errorf("%q: %s, want %s", c.text, got, c.want)
		}
		if got := string(AppendVisible([]byte(">"), []byte(c.text))); got != ">"+c.lines {
			t.Errorf("%q in lines: %s, want >%s", c.text, got, c.lines)
		}
	}
}

// TestAlignVisible checks that a name cannot break the lines of a table.
func TestAlignVisible(t *testing.T) {
	lines := [][]string{{"name", "mean"}, {"a\nb", "1.5"}, {"c\x1b[2J", "2.25"}}
	Align(lines)
	if lines[1][0] != `a\nb    ` || lines[2][0] != `c\x1b[2J` {
		t.Errorf("%q", lines)
	}
}
