// Package suggest finds the name that a user probably meant, for the messages about unknown
// columns, options and functions. Packages data and formula and the command call it.
package suggest

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Nearest returns the name in names that is most similar to name, or "" if no name is similar. It
// ignores case and the encoding of accents. Names may differ by at most a third of the runes of
// name, or by one rune if name is shorter. They may not differ in all runes: z does not match x.
// If one name contains the other and both have more than two bytes, they differ by one.
func Nearest(name string, names []string) string {
	best, least := "", max(1, utf8.RuneCountInString(name)/3)
	a := fold(name)
	for _, n := range names {
		b := fold(n)
		d := distance(a, b)
		if d > 1 && min(len(a), len(b)) > 2 && (strings.Contains(a, b) || strings.Contains(b, a)) {
			d = 1
		}
		longer := max(utf8.RuneCountInString(a), utf8.RuneCountInString(b))
		if d <= least && d < longer && (best == "" || d < least) {
			best, least = n, d
		}
	}
	return best
}

// fold returns s in lower case with composed accents.
func fold(s string) string { return strings.ToLower(norm.NFC.String(s)) }

// distance returns the number of edits that turn a into b. An edit inserts, deletes or replaces a
// rune, or swaps it with the next rune (optimal string alignment; Damerau 1964).
func distance(a, b string) int {
	from, to := []rune(a), []rune(b)
	d := make([][]int, len(from)+1)
	for i := range d {
		d[i] = make([]int, len(to)+1)
		d[i][0] = i
	}
	for j := range to {
		d[0][j+1] = j + 1
	}
	for i, r := range from {
		for j, s := range to {
			replace := d[i][j]
			if r != s {
				replace++
			}
			d[i+1][j+1] = min(replace, d[i][j+1]+1, d[i+1][j]+1)
			if i > 0 && j > 0 && r == to[j-1] && s == from[i-1] {
				d[i+1][j+1] = min(d[i+1][j+1], d[i-1][j-1]+1)
			}
		}
	}
	return d[len(from)][len(to)]
}
