package tables

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "README.md")
	const text = "a\n\n<!-- begin one -->\nold\n<!-- end one -->\n\nb\n<!-- begin two -->\n<!-- " +
		"end two -->\n"
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	one := Markdown([]string{"", "x"}, [][]string{{"r", "1"}})
	for range 2 { // replacing again must not change the file
		if err := Replace(file, map[string]string{"one": one, "three": "left out"}); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if want := "a\n\n<!-- begin one -->\n\n|  | x |\n|---|---|\n| r | 1 |\n\n<!-- end one " +
			"-->\n\nb\n<!-- begin two -->\n<!-- end two -->\n"; string(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if err := Replace(file, map[string]string{"three": "x"}); err == nil {
		t.Error("a file without the table gives no error")
	}
}
