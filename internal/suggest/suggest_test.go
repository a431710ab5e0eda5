package suggest

import "testing"

func TestNearest(t *testing.T) {
	names := []string{"plan", "age", "monthly_charges", "Größe", "id", "x"}
	for name, want := range map[string]string{
		"plna":        "plan", // two letters swapped
		"PLAN":        "plan",
		"agee":        "age",
		"charges":     "monthly_charges",
		"age now":     "age",
		"Grösse":      "Größe",
		"gro\u0308ße": "Größe", // an accent that is a character of its own
		"i":           "id",
		"q":           "",
		"z":           "", // and not "x"
		"X":           "x",
		"tenure":      "",
		"":            "",
	} {
		if got := Nearest(name, names); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	if got := Nearest("x", nil); got != "" {
		t.Errorf("of no names: %q", got)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"ab", "ba", 1}, {"abc", "abd", 1}, {"abc", "xabc", 1},
		{"ca", "abc", 3}, {"ö", "o", 1}} {
		if got := distance(c.a, c.b); got != c.want || got != distance(c.b, c.a) {
			t.Errorf("%q and %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
