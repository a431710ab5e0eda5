// Package tables writes the tables of the README files, so that they are those of the stored
// measurements.
package tables

import (
	"fmt"
	"os"
	"strings"
)

// Markdown returns a table.
func Markdown(header []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(header)
	b.WriteString(strings.Repeat("|---", len(header)) + "|\n")
	for _, r := range rows {
		line(r)
	}
	return b.String()
}

// Lookup returns the block of a name in a text: the lines between
//
//	<!-- begin NAME -->
//	<!-- end NAME -->
//
// and what is before and after it.
func Lookup(text, name string) (before, block, after string, ok bool) {
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	before, rest, found := strings.Cut(text, begin)
	if !found {
		return "", "", "", false
	}
	block, after, ok = strings.Cut(rest, end)
	return before + begin, block, end + after, ok
}

// Replace replaces the blocks of a file that have a name in texts, and leaves out those that the
// file has not. It is an error if there is none.
func Replace(file string, texts map[string]string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text, found := string(old), false
	for name, table := range texts {
		if before, _, after, ok := Lookup(text, name); ok {
			text, found = before+"\n"+table+"\n"+after, true
		}
	}
	if !found {
		return fmt.Errorf("%s has no table of these", file)
	}
	return os.WriteFile(file, []byte(text), 0o666)
}
