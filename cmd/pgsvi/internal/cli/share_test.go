package cli

import (
	"flag"
	"io"
	"strings"
	"testing"
)

// TestShareFlag checks that a share can be a number or a percentage, and that the error of any
// other text shows what to write.
func TestShareFlag(t *testing.T) {
	for text, want := range map[string]float64{
		"0.95": 0.95, "95%": 0.95, "97.5 %": 0.975, "0%": 0, "20": 20} {
		f := flag.NewFlagSet("", flag.ContinueOnError)
		got := ShareFlag(f, "level", 0.9, "probability")
		if err := f.Parse([]string{"-level", text}); err != nil || *got != want {
			t.Errorf("%q: %v, %v, want %v", text, *got, err, want)
		}
	}
	for _, text := range []string{"", "%", "ninety", "95%%", "95 per cent"} {
		f := flag.NewFlagSet("", flag.ContinueOnError)
		f.SetOutput(io.Discard)
		got := ShareFlag(f, "level", 0.9, "probability")
		err := f.Parse([]string{"-level", text})
		if err == nil || !strings.Contains(err.Error(), "0.95 or 95%") || *got != 0.9 {
			t.Errorf("%q: %v, %v", text, *got, err)
		}
	}
}
