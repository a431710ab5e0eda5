package table

// This file makes text from files visible. Such text may contain escape sequences that move the
// cursor of a terminal, or marks that reverse the order of the text after them. The command
// passes all text that it prints through AppendVisible, and Align passes each cell through
// Visible.

import (
	"strconv"
	"unicode"
	"unicode/utf8"
)

// hidden reports whether r changes how other text is shown. Such runes are control characters,
// bidirectional marks, unusual line ends, and tags, which are invisible.
func hidden(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' ||
		r == '\u2029' || r >= 0xe0000 && r < 0xe0080
}

// Visible returns text as one line, where hidden runes and invalid UTF-8 are escaped as in Go.
func Visible(text string) string {
	for i, r := range text {
		if hidden(r) || r == utf8.RuneError {
			return string(appendVisible([]byte(text[:i]), []byte(text[i:]), false))
		}
	}
	return text
}

// AppendVisible appends text to dst, where hidden runes and invalid UTF-8 are escaped as in Go.
// It keeps line feeds and tabs.
func AppendVisible(dst, text []byte) []byte { return appendVisible(dst, text, true) }

func appendVisible(dst, text []byte, lines bool) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1:
			dst = append(dst, '\\', 'x')
			if text[0] < 16 {
				dst = append(dst, '0')
			}
			dst = strconv.AppendUint(dst, uint64(text[0]), 16)
		case hidden(r) && !(lines && (r == '\n' || r == '\t')):
			quoted := strconv.QuoteRuneToASCII(r)
			dst = append(dst, quoted[1:len(quoted)-1]...)
		default:
			dst = append(dst, text[:n]...)
		}
		text = text[n:]
	}
	return dst
}
