package cli

// This file replaces the names of Go options in messages of the library with flags of the command.
// It removes advice that only a Go program can follow.

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// A translation replaces every match of pattern in a message with text.
type translation struct {
	pattern *regexp.Regexp
	text    string
}

// translations holds the translations in the order in which translate applies them.
var translations = func() (all []translation) {
	add := func(pattern, text string) {
		all = append(all, translation{regexp.MustCompile(pattern), text})
	}
	add(`set GLMOptions\{Autoscale: true\}`, "use -standardize")
	add(`change PriorSD or, with Autoscale, rescale`, "change -prior-sd, or rescale")
	add(`one PriorSD\b`, "one -prior-sd")
	add(`use pgsvi\.Sum\{[^}]*\}, k\}, or `, "")
	add(`raise `+optionTypes+`\.MaxMemory`, "raise the limit (GOMEMLIMIT)")
	for option, flag := range map[string]string{
		"GLMOptions.InterceptSD": "intercept-sd", "GLMOptions.PriorSD": "prior-sd",
		"Solver.Goal": "goal", "LearnOptions.Tol": "tol", "LearnOptions.NoPrior": "no-prior",
		"LearnOptions.Integrate": "integrate",
		"Format.Separator":       "format separator", "Format.Decimal": "format decimal",
		"Format.Header": "format header", "Format.Encoding": "format encoding",
		"Format.NoQuotes": "format no-quotes"} {
		add(`\b`+regexp.QuoteMeta(option)+`\b`, "-"+flag)
	}
	for name, flag := range likelihoodNames() {
		pattern := `\b(pgsvi\.)?` + name
		if strings.IndexFunc(name[1:], unicode.IsUpper) < 0 {
			pattern += `\{\}` // without the braces it may be an ordinary word
		} else {
			pattern += `(\{\}|\b)`
		}
		add(pattern, flag)
	}
	add(`\(-likelihood [^)]*\)`, "(-likelihood)") // the message now has the flags
	add(` \((`+optionTypes+`|Solver|Format)\.[A-Z]\w*\)`, "")
	return all
}()

// likelihoodNames maps the type name of each likelihood to its flag.
func likelihoodNames() map[string]string {
	names := map[string]string{}
	for _, flag := range slices.Backward(slices.Sorted(maps.Keys(Likelihoods))) {
		name := strings.TrimPrefix(fmt.Sprintf("%T", Likelihoods[flag]), "pgsvi.")
		if before, ok := names[name]; !ok || len(flag) < len(before) {
			names[name] = flag
		}
	}
	return names
}

// optionTypes matches the names of the option types.
const optionTypes = `(?:GLM|GP|SparseGP|CTM|LDA|Learn|Row|Effect|HeldOut|Mixture)Options`

// formatAdvice matches advice that names a Format field, with the flag in brackets after it.
var formatAdvice = regexp.MustCompile(
	`\b(set|by) (?:Format\.|SkipLast\b)\w*(?: to -1)? \((-format [^)]*)\)`)

// Flags replaces advice about Format fields in text with advice about the flag -format.
func Flags(text string) string {
	return formatAdvice.ReplaceAllStringFunc(text, func(advice string) string {
		m := formatAdvice.FindStringSubmatch(advice)
		return map[string]string{"set": "set ", "by": "by "}[m[1]] + m[2]
	})
}

var (
	quoted = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`")
	// between matches the separators of the clauses of a message.
	between = regexp.MustCompile(`; |, or |, and |: `)
	option  = regexp.MustCompile(`\b(?:` + optionTypes + `|Solver|Format)\.[A-Z]\w*`)
	// goOnly matches a clause that only a Go program can follow.
	goOnly = regexp.MustCompile(option.String() + `|\b(` + optionTypes + `)\b|\bof the Solver\b|` +
		`\bpgsvi\.[A-Z]|\bNew(GLM|GP|SparseGP)|\b(Full|Diagonal|LowRank)Covariance\b`)
)

// Plain returns a message of the library in words for people who do not write Go.
func Plain(message string) string {
	var b strings.Builder
	for line := range strings.Lines(message) {
		at := 0
		for _, span := range quoted.FindAllStringIndex(line, -1) {
			b.WriteString(translate(line[at:span[0]]) + line[span[0]:span[1]])
			at = span[1]
		}
		b.WriteString(translate(line[at:]))
	}
	return b.String()
}

// PlainError returns the message of err like Plain, without the texts of its sentinels.
func PlainError(err error) string { return Plain(sentinel.Plain(err, ErrUsage)) }

// translate translates a message, or a part of a message without quotes. It keeps the first clause
// and removes every other clause that only a Go program can follow. A clause that follows a removed
// clause takes over its separator.
func translate(text string) string {
	text, ended := strings.CutSuffix(Flags(text), "\n")

	for _, t := range translations {
		text = t.pattern.ReplaceAllString(text, t.text)
	}
	ends := append(between.FindAllStringIndex(text, -1), []int{len(text), len(text)})
	var b strings.Builder
	at, sign := 0, ""
	for i, end := range ends {
		if clause := text[at:end[0]]; i == 0 || !goOnly.MatchString(clause) {
			b.WriteString(sign + clause)
			sign = text[end[0]:end[1]]
		}
		at = end[1]
	}
	if ended {
		b.WriteByte('\n')
	}
	return option.ReplaceAllStringFunc(b.String(), words)
}

// words returns the name of an option in words: "GPOptions.MaxRows" becomes "the max rows".
func words(name string) string {
	var b strings.Builder
	b.WriteString("the")
	before := ' '
	for _, r := range name[strings.IndexByte(name, '.')+1:] {
		if unicode.IsUpper(r) && !unicode.IsUpper(before) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
		before = r
	}
	return b.String()
}
