package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/table"
)

// A Table describes a file of rows and named columns: its format, and what each column looks like.
// Print it to see both. One pass over the file collects the description. A Table does not keep the
// rows of a file, but reads them again when they are needed. It does not change and may be used
// concurrently.
type Table struct {
	// Name is the name of the file, for messages.
	Name string
	// Format is the format of the file, as detected or set.
	Format Format

	src      source
	asked    Format // format set by the caller
	parts    []part // parts that the rows belong to
	rows     int
	profiles []*profile
	place    map[string]int
	computed int   // number of computed columns of a formula, which have the last profiles
	proof    proof // value that shows the decimal sign
	conflict bool  // whether columns have different decimal signs
}

// source is the origin of a table: a file, or bytes.
type source struct {
	ctx  context.Context // every pass ends when it is done
	path string
	size int64
	mod  time.Time
	raw  []byte
	in   *recorder // reads raw until it is complete
}

// ReadFile reads a table with a line of names and one line per row: CSV with a comma, semicolon,
// tab or '|' as the separator, or JSON objects, one per line. The encoding is UTF-8, with or
// without a byte order mark, UTF-16 or Windows-1252, and the file may be packed by gzip. Blank
// lines, spaces around fields, quoted fields and CRLF are allowed. A column without a name gets the
// name x followed by its number from 1, such as x3. If the table has no line of names, every column
// gets such a name, except the last, which is y. A first line such as "sep=;" sets the separator.
//
// The file must not change while the Table is in use, because Encoder and Data read it again.
//
// The errors name the line and the problem. They wrap ErrShape if a line has not as many fields as
// the first line, a title precedes the names, the last line is a total, quotes do not match, two
// columns have the same name, or a text does not have the encoding of the file. They wrap ErrParam
// if the first line mixes names and numbers, ErrMemory if a line is too long or gzip unpacks to
// more than 300 times its size, and ErrEmpty if the file has no rows. They wrap the errors of the
// file.
func ReadFile(path string) (*Table, error) { return Format{}.ReadFile(path) }

// Read reads a table like ReadFile. It keeps the bytes of r, still packed if they are packed. The
// name becomes Table.Name. The error wraps ErrMemory if r does not fit in memory.
func Read(r io.Reader, name string) (*Table, error) { return Format{}.Read(r, name) }

// ReadFile reads a table in the given format, like the function ReadFile.
func (f Format) ReadFile(path string) (*Table, error) {
	return f.ReadFileContext(context.Background(), path)
}

// Read reads a table in the given format, like the function Read.
func (f Format) Read(r io.Reader, name string) (*Table, error) {
	return f.ReadContext(context.Background(), r, name)
}

// ReadFileContext is like ReadFile with a context, which the Table keeps. When the context is done,
// the current pass over the rows ends, even inside a line. Every later pass ends as well, because
// Table.Model, Encoder.Data and Predictor.Table read the rows again. The error then wraps ctx.Err()
// and context.Cause(ctx).
func (f Format) ReadFileContext(ctx context.Context, path string) (*Table, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("pgsvi: %w", err)
	}
	if !info.Mode().IsRegular() && !info.IsDir() { // a pipe, which can be read only once
		file, err := openContext(ctx, path)
		if err != nil {
			return nil, fmt.Errorf("pgsvi: %w", err)
		}
		defer file.Close()
		return f.ReadContext(ctx, file, filepath.Base(path))
	}
	t := &Table{Name: filepath.Base(path), src: source{ctx: ctx, path: path, size: info.Size(),
		mod: info.ModTime()}}
	return t, t.read(f)
}

// ReadContext is like Read with a context, which the Table keeps; see ReadFileContext. When the
// context is done, ReadContext returns without waiting for a blocked read. That read continues in
// the background, so do not use r again.
func (f Format) ReadContext(ctx context.Context, r io.Reader, name string) (*Table, error) {
	in := &recorder{in: waiting(ctx, r), budget: memory.NewBudget("the table", textTooLarge)}
	t := &Table{Name: name, src: source{ctx: ctx, in: in}}
	if err := t.read(f); err != nil {
		return nil, err
	}
	t.src.raw, t.src.in = in.raw.Bytes(), nil
	return t, nil
}

// open returns a reader of the source from its beginning.
func (s *source) open() (io.ReadCloser, error) {
	if s.in != nil {
		return io.NopCloser(io.MultiReader(bytes.NewReader(s.in.raw.Bytes()), s.in)), nil
	}
	if s.path == "" {
		return io.NopCloser(&contextReader{s.ctx, bytes.NewReader(s.raw)}), nil
	}
	f, err := os.Open(s.path)
	if err != nil {
		return nil, fmt.Errorf("pgsvi: %w", err)
	}
	info, err := f.Stat()
	if err == nil && (info.Size() != s.size || !info.ModTime().Equal(s.mod)) {
		err = sentinel.Wrap(pgsvi.ErrFile,
			"pgsvi: %s has changed since it was first read; read it again", s.path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{&contextReader{s.ctx, f}, f}, nil
}

// read makes the profiles of the columns.
func (t *Table) read(f Format) error {
	if err := f.check(); err != nil {
		return err
	}
	t.asked = f
	err := t.profile(f)
	if errors.Is(err, errNotUTF8) && f.Encoding == "" {
		f.Encoding = Windows1252
		err = t.profile(f)
	}
	if err != nil {
		return t.named(settled(err))
	}
	t.settleDecimal(f)
	return nil
}

// named adds the name of the table to an error.
func (t *Table) named(err error) error { return named(t.Name, err) }

func named(name string, err error) error {
	if err == nil || name == "" {
		return err
	}
	return &namedError{name, err}
}

type namedError struct {
	name string
	err  error
}

func (e *namedError) Error() string {
	return "pgsvi: " + table.Visible(e.name) + ": " + strings.TrimPrefix(e.err.Error(), "pgsvi: ")
}

func (e *namedError) Unwrap() error { return e.err }

// profile reads the table once.
func (t *Table) profile(f Format) error {
	t.Format, t.rows, t.profiles = f, 0, nil
	in, err := t.src.open()
	if err != nil {
		return err
	}
	defer in.Close()
	s, err := newScanner(in, f)
	if err != nil {
		return err
	}
	most := mostTexts
	var last tail
	meet := func() { // make profiles of new columns
		for len(t.profiles) < len(s.names) {
			most = min(mostTexts, max(fewestTexts, allTexts/len(s.names)))
			j := len(t.profiles)
			p := newProfile(s.names[j], most)
			p.nameless = j < len(s.bare) && s.bare[j]
			p.skip(t.rows)
			t.profiles = append(t.profiles, p)
		}
	}
	pick := newPicker(t.parts)
	for {
		rec, err := t.next(s)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if !pick.takes() {
			continue
		}
		meet()
		for j, c := range rec.cells {
			t.profiles[j].add(c, rec.line)
		}
		last.add(rec)
		t.rows++
	}
	if t.rows == 0 {
		return sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: the table has no rows")
	}
	if meet(); len(t.profiles) == 0 {
		return fmt.Errorf("pgsvi: the table has %s but no columns: %w", plural(t.rows, "object"),
			pgsvi.ErrEmpty)
	}
	t.Format, t.place = s.format, s.place
	if t.parts != nil {
		return nil
	}
	return t.checkTail(&last)
}

// settleDecimal finds the decimal sign of the file from the columns of numbers.
func (t *Table) settleDecimal(f Format) {
	var votes [2]int
	var proofs [2]proof
	for _, p := range t.profiles {
		for k, n := range []int{p.points, p.commas} {
			if 10*max(p.numbers[0], p.numbers[1]) < 8*p.values || n == 0 {
				continue
			}
			votes[k] += n
			if proofs[k].text == "" || p.proof[k].line < proofs[k].line {
				proofs[k] = p.proof[k]
			}
		}
	}
	if f.Decimal != 0 {
		return
	}
	switch {
	case votes[0] > 0 && votes[1] > 0:
		t.conflict = true
	case votes[0] > 0:
		t.Format.Decimal, t.proof = '.', proofs[0]
	case votes[1] > 0:
		t.Format.Decimal, t.proof = ',', proofs[1]
	case t.Format.JSON:
		t.Format.Decimal = '.'
	}
}

// Len returns the number of rows.
func (t *Table) Len() int { return t.rows }

// Columns returns the names of the columns in the order of the file, in a new slice.
func (t *Table) Columns() []string {
	names := make([]string, len(t.profiles))
	for j, p := range t.profiles {
		names[j] = p.name
	}
	return names
}

// scan calls each for every row with all its cells, until each returns an error. Texts in a column
// whose decimal sign is known carry the sign.
func (t *Table) scan(each func(rec *record) error) error {
	in, err := t.src.open()
	if err != nil {
		return err
	}
	defer in.Close()
	s, err := newScanner(in, t.Format)
	if err != nil {
		return t.named(err)
	}
	signs := make([]byte, len(t.profiles))
	for j, p := range t.profiles {
		if sign, settled := p.decimal(t.Format.Decimal); settled &&
			(p.points+p.commas > 0 || t.Format.Decimal != 0) {
			signs[j] = sign
		}
	}
	pick := newPicker(t.parts)
	var wide record
	for {
		rec, err := t.next(s)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return t.named(err)
		}
		if !pick.takes() {
			continue
		}
		for len(rec.cells) < len(signs)-t.computed { // JSON rows may lack the last columns
			s.setMissing(t.profiles[len(rec.cells)].name)
			rec = &s.rec
		}
		for j := range rec.cells {
			rec.cells[j].decimal = signs[j]
		}
		if err := each(rec.widen(t.computed, &wide)); err != nil {
			return err
		}
	}
}

// next returns the next record of a scanner, or an error if the context is done.
func (t *Table) next(s *scanner) (*record, error) {
	if err := t.canceled(); err != nil {
		return nil, err
	}
	return s.next()
}

// canceled returns an error if the context of the table is done.
func (t *Table) canceled() error {
	if err := canceled(t.src.ctx); err != nil {
		return fmt.Errorf("pgsvi: reading a table: %w", err)
	}
	return nil
}

// setMissing adds a column without values.
func (s *scanner) setMissing(name string) {
	s.place[name] = len(s.names)
	s.names = append(s.names, name)
	s.rec.cells = append(s.rec.cells, cell{kind: absentCell})
}

// String describes the format of the table, and what each column looks like and why.
func (t *Table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s\n%s\n\n", table.Visible(t.Name), plural(t.rows, "row"),
		plural(len(t.profiles), "column"), t.formatText())
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "column\tlooks like\tbecause\tmissing\tfor example")
	var undecided []string
	for j, p := range t.profiles {
		s := &spec{Name: p.name}
		why, d := t.review(j, s)
		if d != nil {
			undecided = append(undecided, p.name)
		}
		kind := string(s.Kind)
		if strings.HasPrefix(why, "an identifier") {
			kind, why = "identifier", strings.TrimPrefix(why, "an identifier: ")
		}
		missing := "-"
		if n := p.missing(); n > 0 {
			missing = fmt.Sprint(n)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", shorten(p.name, 40), kind, why, missing,
			strings.Join(quoteAll(p.examples(2), 2), ", "))
	}
	w.Flush()
	if len(t.profiles) == 1 && strings.ContainsAny(t.profiles[0].name, " \t:^~") {
		b.WriteString("\nif the table has more than one column, its separator was not detected;\n" +
			"set Format.Separator (-format separator=…), or use a comma, semicolon, tab or |\n")
	}
	if len(undecided) > 0 {
		fmt.Fprintf(&b, "\ncolumns that need a decision: %s\n",
			strings.Join(quoteAll(undecided, fewNamed), ", "))
	}
	return trimLines(b.String())
}

// fewNamed is the number of columns that a message names.
const fewNamed = 12

// trimLines removes the spaces at the ends of lines.
func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// shorten returns a text on one line, cut if it is too long.
func shorten(s string, most int) string {
	s = table.Visible(s)
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// formatText describes the format of the table.
func (t *Table) formatText() string {
	f := t.Format
	text := f.Encoding
	if f.Mark {
		text += " with a byte order mark"
	}
	if f.JSON {
		return text + ", JSON objects"
	}
	if t.profiles != nil {
		text += fmt.Sprintf(", separator %q", f.Separator)
	}
	if f.Skip > 0 {
		text += ", without " + plural(f.Skip, "line") + " above the names"
	}
	if f.SkipLast > 0 {
		text += ", without " + plural(f.SkipLast, "line") + " at the end"
	}
	if t.parts != nil {
		text += fmt.Sprintf(", a random part of %s", plural(t.parts[0].rows, "row"))
	}
	if f.Comment != 0 {
		text += fmt.Sprintf(", without lines that begin with %q", f.Comment)
	}
	if f.Header == FirstLineData {
		text += ", no line of names"
	}
	switch {
	case t.proof.text != "":
		text += fmt.Sprintf(", decimal sign %q (line %d has %s)", f.Decimal, t.proof.line,
			csvQuote(t.proof.text))
	case f.Decimal != 0:
		text += fmt.Sprintf(", decimal sign %q", f.Decimal)
	case t.conflict:
		text += ", different decimal signs in different columns"
	case slices.ContainsFunc(t.profiles, func(p *profile) bool { return p.ambiguous > 0 }):
		text += ", unknown decimal sign"
	default:
		text += ", no decimals"
	}
	return text
}
