package data

import (
	"strconv"
	"strings"
)

// This file removes the markup of manual pages, which are written in roff, so that a corpus of
// pages has no words such as "fb" and "bu". A line of markup starts with a period or an apostrophe
// and the name of a request or macro. An escape within text starts with a backslash. The file
// handles the macros of both packages for pages, man and mdoc, and the blocks of the preprocessors
// tbl (tables) and eqn (formulas). See groff_man(7), mdoc(7) and groff(7).
//
// readText in folder.go calls withoutRoff for each text.

// withoutRoff returns the text of a manual page that a reader sees. It returns any other text
// unchanged.
func withoutRoff(text string) string {
	lines := strings.ReplaceAll(text, "\\\n", "") // a backslash continues a line
	if !isRoff(lines) {
		return text
	}
	r := roff{}
	for line := range strings.Lines(lines) {
		r.line(strings.TrimRight(line, "\r\n"))
	}
	return r.out.String()
}

// isRoff reports whether only markup precedes the title, .TH or .Dd, or .so, which includes another
// file.
func isRoff(text string) bool {
	defining := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, _, ok := macro(line)
		switch {
		case defining:
			defining = name != "."
		case ok && roffTitle[name]:
			return true
		case ok:
			defining = roffDefine[name]
		case line != "":
			return false
		}
	}
	return false
}

// macro splits a line of markup into a name and the rest. The name of a comment is empty.
func macro(line string) (name, rest string, ok bool) {
	if line == "" || line[0] != '.' && line[0] != '\'' {
		return "", "", false
	}
	line = strings.TrimSpace(line[1:])
	if strings.HasPrefix(line, `\`) {
		return "", "", true
	}
	end := strings.IndexAny(line, " \t\\")
	if end < 0 {
		return line, "", true
	}
	return line[:end], line[end:], true
}

// set returns the names in a text.
func set(names string) map[string]bool {
	s := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		s[name] = true
	}
	return s
}

var (
	roffTitle  = set(`TH Dd so`)
	roffDefine = set(`de de1 am am1 ig`) // ended by a line ..
	// roffSilent holds requests and macros whose arguments are not text.
	roffSilent = set(`TH Dd Dt Os so ds nr if ie el while ft fam ta in ti sp ad hy ne PP P LP br nf
		fi RS RE PD IX rm rn tr bp ev it rr na nh hw ll pl po ps vs ls ce ns rs mk rt cs ss tm ab nx ex
		als mso do cc c2 ec eo fp lg ul cu ch wh da di lc tc nm nn pc shift return break HP TP TQ DT
		UC AT TA Pp Bd Ed Bl El Bk Ek Sm Ud Rs Re Lb Db EX EE SY YS UE ME`)
	// roffJoined holds macros that change the font with each argument.
	roffJoined = set(`BR RB BI IB IR RI SB`)
	// mdocCallable holds macros that may be arguments of other macros.
	mdocCallable = set(`Ac Ad An Ao Ap Aq Ar At Bc Bo Bq Brc Bro Brq Bsx Bx Cd Cm Dc Do Dq Dv Dx Ec
		Ef Em En Eo Er Es Ev Fa Fc Fl Fn Fo Fr Ft Fx Ic In Lb Li Lk Me Ms Mt Nm No Ns Nx Oc Oo Op Ot Ox
		Pa Pc Pf Po Pq Ql Qc Qo Qq Sc So Sq St Sx Sy Ta Tn Ux Va Vt Xc Xo Xr`)
)

// roff holds the state between the lines of a page and the text so far.
type roff struct {
	out    strings.Builder
	until  string // macro that ends a block to leave out
	mdoc   bool
	table  bool
	format bool // in the lines that precede the rows of a table
}

func (r *roff) line(line string) {
	name, rest, marked := macro(line)
	switch {
	case r.until != "":
		if marked && name == r.until {
			r.until = ""
		}
	case r.format && (!marked || name == ""):
		r.format = !strings.HasSuffix(strings.TrimSpace(line), ".")
	case marked:
		r.markup(name, rest)
	case r.table:
		if line != "_" && line != "=" {
			line = strings.NewReplacer("T{", " ", "T}", " ", "\t", " ").Replace(line)
			r.text(line)
		}
	default:
		r.text(line)
	}
}

// markup writes the arguments of a request or macro that are text.
func (r *roff) markup(name, rest string) {
	switch {
	case roffDefine[name]:
		r.until = "."
		return
	case name == "EQ":
		r.until = "EN"
		return
	case name == "TS" || name == "T&":
		r.table, r.format = true, true
		return
	case name == "TE":
		r.table, r.format = false, false
		return
	case name == "Dd":
		r.mdoc = true
	}
	if name == "" || roffSilent[name] {
		return
	}
	args := roffArguments(rest)
	switch {
	case name == "IP":
		args = args[:min(1, len(args))]
	case roffJoined[name]:
		args = []string{strings.Join(args, "")}
	case r.mdoc:
		kept := args[:0]
		for _, a := range args {
			if !mdocCallable[a] {
				kept = append(kept, a)
			}
		}
		args = kept
	}
	r.text(strings.Join(args, " "))
}

// roffArguments splits the rest of a line of markup. An argument in quotes may contain spaces, and
// two quotes inside it stand for a quote.
func roffArguments(rest string) (args []string) {
	for rest = strings.TrimLeft(rest, " \t"); rest != ""; rest = strings.TrimLeft(rest, " \t") {
		var arg string
		arg, rest = roffArgument(rest)
		args = append(args, arg)
	}
	return args
}

func roffArgument(s string) (arg, after string) {
	quoted := s[0] == '"'
	if quoted {
		s = s[1:]
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			b.WriteString(s[i : i+2])
			i++
		case quoted && strings.HasPrefix(s[i:], `""`):
			b.WriteByte('"')
			i++
		case quoted && c == '"', !quoted && (c == ' ' || c == '\t'):
			return b.String(), s[i+1:]
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), ""
}

// text writes a line without its escapes.
func (r *roff) text(line string) {
	for {
		plain, rest, escaped := strings.Cut(line, `\`)
		r.out.WriteString(plain)
		if !escaped || rest == "" {
			break
		}
		var shown string
		shown, line = escape(rest)
		r.out.WriteString(shown)
	}
	r.out.WriteByte('\n')
}

// escape returns the text that an escape shows, and the rest of the line after it. rest starts
// after the backslash.
func escape(rest string) (shown, after string) {
	c, after := rest[0], rest[1:]
	switch c {
	case '"', '#': // a comment
		return "", ""
	case '(', '[':
		name, after := escapeName(rest)
		return special(name), after
	case '*':
		name, after := escapeName(after)
		switch name {
		case "Aq":
			return "'", after
		case "--":
			return " ", after
		}
		return "", after
	case 'f', 'F', 'g', 'k', 'm', 'M', 'n', 'V', 'Y':
		if c == 'n' {
			after = strings.TrimLeft(after, "+-")
		}
		_, after = escapeName(after)
		return "", after
	case 's':
		return "", afterSize(after)
	case 'h', 'v', 'w', 'l', 'L', 'D', 'o', 'b', 'x', 'X', 'Z', 'A', 'B', 'C', 'N', 'R', 'S', 'H':
		return "", afterDelimited(after)
	case ' ', '~', '0', 't', 'e', '\\':
		return " ", after
	case '-', '.', '\'', '`':
		return string(c), after
	}
	if c >= 0x80 || c == '_' { // not an escape
		return string(rest[:1]), after
	}
	return "", after // such as \& \| \% \c \{
}

// escapeName cuts off a name: one character, two characters after a parenthesis, or a text in
// brackets.
func escapeName(s string) (name, after string) {
	switch {
	case s == "":
		return "", ""
	case s[0] == '(' && len(s) >= 3:
		return s[1:3], s[3:]
	case s[0] == '[':
		name, after, _ = strings.Cut(s[1:], "]")
		return name, after
	}
	return s[:1], s[1:]
}

// afterSize returns the text after a type size: 8, 10, +2, (12, [12] or '12'.
func afterSize(s string) string {
	s = strings.TrimLeft(s, "+-")
	switch {
	case s == "":
		return ""
	case s[0] == '\'':
		return afterDelimited(s)
	case s[0] == '(' || s[0] == '[':
		_, s = escapeName(s)
		return s
	case len(s) > 1 && '1' <= s[0] && s[0] <= '3' && '0' <= s[1] && s[1] <= '9':
		return s[2:]
	}
	return s[1:]
}

// afterDelimited returns the text after an argument between two equal characters.
func afterDelimited(s string) string {
	if s == "" {
		return ""
	}
	_, after, _ := strings.Cut(s[1:], s[:1])
	return after
}

// roffAccents holds the combining marks for names of letters such as :a.
var roffAccents = map[byte]string{':': "\u0308", '\'': "\u0301", '`': "\u0300", '^': "\u0302",
	'~': "\u0303", ',': "\u0327"}

// roffSpecial holds other characters that are parts of words.
var roffSpecial = map[string]string{"aq": "'", "cq": "'", "oq": "'", "hy": "-", "ss": "ß",
	"ae": "æ",
	"AE": "Æ", "oe": "œ", "OE": "Œ", "/o": "ø", "/O": "Ø", "oa": "å", "oA": "Å", "fi": "fi",
	"fl": "fl", "ff": "ff", "Fi": "ffi", "Fl": "ffl"}

// special returns the character with the given name, or a space for characters that are not parts
// of words.
func special(name string) string {
	if s, ok := roffSpecial[name]; ok {
		return s
	}
	if len(name) == 2 {
		if mark, ok := roffAccents[name[0]]; ok {
			return name[1:] + mark
		}
	}
	if hex, ok := strings.CutPrefix(name, "u"); ok {
		if code, err := strconv.ParseUint(hex, 16, 21); err == nil && len(hex) >= 4 {
			return string(rune(code))
		}
	}
	return " "
}
