package cli

import (
	"flag"
	"fmt"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi/data"
)

// FormatFlag defines the flag -format, for tables whose format is not detected correctly.
func FormatFlag(f *flag.FlagSet) *string {
	return f.String("format", "", "table `format`, if it is not detected: 'separator=; decimal=, "+
		"no-quotes\nheader=no ragged encoding=Windows-1252 skip=2 skip-last=1 comment=#'")
}

// headers holds the values of header=….
var headers = map[string]data.Header{"yes": data.FirstLineNames, "no": data.FirstLineData}

// encodings holds the values of encoding=….
var encodings = map[string]string{"utf-8": data.UTF8, "windows-1252": data.Windows1252,
	"utf-16le": data.UTF16LE, "utf-16be": data.UTF16BE}

// formatWords lists the words of -format.
const formatWords = "separator=; (or tab, space), decimal=, (or .), header=yes (or no), " +
	"no-quotes, ragged, json, skip=2, skip-last=1 (or no), comment=#, encoding=utf-8 (or " +
	"windows-1252, utf-16le, utf-16be)"

// FormatOf returns format with the changes that words, the value of -format, make. The error wraps
// ErrUsage.
func FormatOf(format data.Format, words string) (data.Format, error) {
	var err error
	for _, word := range strings.Fields(words) {
		key, value, _ := strings.Cut(word, "=")
		switch sign := []rune(value); {
		case word == "no-quotes":
			format.NoQuotes = true
		case word == "ragged":
			format.Ragged = true
		case key == "skip":
			format.Skip, err = lines(key, value)
		case word == "skip-last=no":
			format.SkipLast = -1
		case key == "skip-last":
			format.SkipLast, err = lines(key, value)
		case word == "comment=":
			format.Comment = 0
		case key == "comment" && len(sign) == 1:
			format.Comment = sign[0]
		case word == "json":
			format.JSON = true
		case key == "separator" && value == "tab":
			format.Separator = '\t'
		case key == "separator" && value == "space":
			format.Separator = ' '
		case key == "separator" && len(sign) == 1 && sign[0] != '"':
			format.Separator = sign[0]
		case key == "decimal" && (value == "." || value == ","):
			format.Decimal = sign[0]
		case key == "header":
			format.Header, err = Choose("header", headers, value)
		case key == "encoding":
			format.Encoding, err = Choose("encoding", encodings, strings.ToLower(value))
		default:
			err = fmt.Errorf("-format has an unknown word %q; the words are %s: %w", word,
				formatWords, ErrUsage)
		}
		if err != nil {
			return format, err
		}
	}
	return format, nil
}

// lines returns the value of skip or skip-last, a number of lines.
func lines(key, value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("-format has %s=%s; set a number of lines: %w", key, value, ErrUsage)
	}
	return n, nil
}
