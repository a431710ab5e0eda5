// Package suggest finds the name that somebody meant.
package suggest

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Nearest returns the one of names that is most like name, or "" if none is. Case, and how accents
// are written, do not count. A name that contains the other one, of more than two bytes, is one
// step away; otherwise at most a third of the runes may differ, or one, but not all: z is no x.
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

// fold returns what names that differ in case or in how accents are written have in common.
func fold(s string) string { return strings.ToLower(norm.NFC.String(s)) }

// distance returns the number of runes to insert, delete, replace or swap with the next one to make
// b of a (optimal string alignment; Damerau 1964).
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
