package pgsvi

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Summary is a table of the weights of a GLMPosterior. Its rows may be sorted,
// changed or removed before it is printed.
type Summary struct {
	// Rows has a row for each weight, in the order of the columns of the data,
	// that of the intercept first.
	Rows []SummaryRow
	// Likelihood is the name of the likelihood, with its parameters if it was given any.
	Likelihood string
	// Data is the number of rows of data, GLMPosterior.Len.
	Data int
	// Weights is the number of weights, that of the intercept included.
	Weights int
	// Covariance is the family of the covariance of the weights.
	Covariance Covariance
}

// SummaryRow is what is known of a weight: the marginal N(Mean, SD²) of the
// approximation. A weight is in units of the linear predictor per unit of its feature.
type SummaryRow struct {
	Name     string
	Mean, SD float64
	Lo, Hi   float64 // quantiles at 2.5% and 97.5%: 95% of the probability lie between
}

// sure reports whether the interval from Lo to Hi does not contain 0, so that the
// sign of the weight is known.
func (r SummaryRow) sure() bool { return r.Lo > 0 || r.Hi < 0 }

// likelihoodName returns the type of l, with its fields if they are not all zero.
func likelihoodName(l Likelihood) string {
	name := typeName(l)
	if v := reflect.ValueOf(l); v.Kind() == reflect.Struct && !v.IsZero() {
		name += fmt.Sprintf("%+v", l)
	}
	return name
}

// String returns the table as text: a line on the model, the names of the
// columns, a line for each row, with a star at the end where zero is outside of the
// interval from Lo to Hi, and what the
// star means. All numbers of a row have the decimals that give its standard
// deviation four significant digits.
func (s *Summary) String() string {
	lines := [][]string{{"", "mean", "sd", "2.5%", "97.5%"}}
	sure := make([]bool, 1, len(s.Rows)+1)
	for _, r := range s.Rows {
		line := []string{r.Name}
		for _, v := range []float64{r.Mean, r.SD, r.Lo, r.Hi} {
			line = append(line, summaryNumber(v, r.SD))
		}
		lines, sure = append(lines, line), append(sure, r.sure())
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d rows, %d weights, %v covariance\n", s.Likelihood, s.Data, s.Weights, s.Covariance)
	alignPoints(lines)
	for i, line := range lines {
		text := strings.Join(line, "  ")
		if sure[i] {
			text += " *"
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	b.WriteString("* zero is outside the interval from 2.5% to 97.5%\n")
	return b.String()
}

// summaryNumber formats x to four significant digits of sd.
func summaryNumber(x, sd float64) string {
	if !(sd > 0) || math.IsInf(sd, 0) || math.IsNaN(x) || math.IsInf(x, 0) {
		return strconv.FormatFloat(x, 'g', 6, 64)
	}
	decimals := 3 - int(math.Floor(math.Log10(sd)))
	if decimals > 9 || math.Abs(x) >= 1e9 {
		return strconv.FormatFloat(x, 'e', 4, 64)
	}
	return strconv.FormatFloat(x, 'f', max(0, decimals), 64)
}

// alignPoints pads the cells of each column to the same width: names to the left,
// numbers with their points below each other, and what is above them to the right.
func alignPoints(lines [][]string) {
	for j := range lines[0] {
		whole, part := 0, 0 // widest, before the point and from it on
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

// splitPoint returns the widths of a cell before its point, if it is a number, and from it on.
func splitPoint(cell string, number bool) (whole, part int) {
	n := utf8.RuneCountInString(cell)
	if at := strings.IndexByte(cell, '.'); number && at >= 0 {
		return at, n - at
	}
	return n, 0
}
