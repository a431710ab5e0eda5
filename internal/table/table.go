// Package table prints numbers in columns, and escapes text that could change how a terminal
// shows it. The summaries of the root package, package data and the command use it.
package table

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Align pads the cells of each column to the same width. The first column is flush left, the
// numbers of other columns are aligned at their decimal points, and column headings are flush
// right. Align also passes each cell through Visible.
func Align(lines [][]string) {
	for _, line := range lines {
		for j, cell := range line {
			line[j] = Visible(cell)
		}
	}
	for j := range lines[0] {
		whole, part := 0, 0 // largest widths before the point and from the point on
		for _, line := range lines[1:] {
			w, p := splitPoint(line[j], j > 0)
			whole, part = max(whole, w), max(part, p)
		}
		head := utf8.RuneCountInString(lines[0][j])
		whole = max(whole, head-part)
		for i, line := range lines {
			w, p := splitPoint(line[j], i > 0 && j > 0)
			left, right := whole-w, part-p
			switch {
			case j == 0:
				left, right = 0, left+right
			case i == 0:
				left, right = left+right, 0
			}
			line[j] = strings.Repeat(" ", left) + line[j] + strings.Repeat(" ", right)
		}
	}
}

// splitPoint returns the widths of a cell before its decimal point and from there on. If the cell
// is not a number or has no point, all of it comes before the point.
func splitPoint(cell string, number bool) (whole, part int) {
	n := utf8.RuneCountInString(cell)
	if at := strings.IndexByte(cell, '.'); number && at >= 0 {
		at = utf8.RuneCountInString(cell[:at])
		return at, n - at
	}
	return n, 0
}

// Precise formats x with a precision of four significant digits of sd.
func Precise(x, sd float64) string {
	if !(sd > 0) || math.IsInf(sd, 0) || math.IsNaN(x) || math.IsInf(x, 0) {
		return strconv.FormatFloat(x, 'g', 6, 64)
	}
	decimals := 3 - int(math.Floor(math.Log10(sd)))
	if decimals > 9 || math.Abs(x) >= 1e9 || sd >= 1e7 {
		digits := 3
		if x != 0 {
			digits = min(max(digits, int(math.Floor(math.Log10(math.Abs(x))))+decimals), 15)
		}
		return strconv.FormatFloat(x, 'e', digits, 64)
	}
	return strconv.FormatFloat(x, 'f', max(0, decimals), 64)
}

// Rounded formats x with a precision of one significant digit of sd, or two digits if the first
// digit is 1.
func Rounded(format string, x, sd float64) string {
	decimals := 2
	if sd > 0 && !math.IsInf(sd, 0) {
		e := math.Floor(math.Log10(sd))
		if decimals = -int(e); sd/math.Pow(10, e) < 2 {
			decimals++
		}
	}
	if decimals > 9 || math.Abs(x) >= 1e9 {
		return Minus(strconv.FormatFloat(x, 'g', 3, 64))
	}
	return Minus(fmt.Sprintf(format, max(0, decimals), x))
}

// Minus replaces hyphens by minus signs.
func Minus(number string) string { return strings.ReplaceAll(number, "-", "−") }
