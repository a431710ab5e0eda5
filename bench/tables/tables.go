// Package tables writes the tables in README files from stored measurements.
package tables

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Markdown returns a table in Markdown.
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

// ReadCSV reads the rows below the header of a CSV file of stored measurements. It returns no rows if
// the file does not exist, and an error if the file has another header.
func ReadCSV(file string, header []string) ([][]string, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(lines) == 0 || !slices.Equal(lines[0], header) {
		return nil, fmt.Errorf("%s has other columns; measure again into an empty folder", file)
	}
	return lines[1:], nil
}

// Lookup returns the block with the given name in a text, and the text before and after it. A block
// is the lines between
//
//	<!-- begin NAME -->
//	<!-- end NAME -->
func Lookup(text, name string) (before, block, after string, ok bool) {
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	before, rest, found := strings.Cut(text, begin)
	if !found {
		return "", "", "", false
	}
	block, after, ok = strings.Cut(rest, end)
	return before + begin, block, end + after, ok
}

// Replace replaces the blocks of a file whose names are in texts. It ignores names without a block,
// but returns an error if no name has one.
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
