package data

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/memory"
	"gonum.org/v1/gonum/mat"
)

// MissingPolicy says what ReadTable does about missing values.
type MissingPolicy int

const (
	// ErrorOnMissing makes missing values an error that says how many there are
	// in which columns, and the line of the first.
	ErrorOnMissing MissingPolicy = iota
	// DropRows leaves out the rows with a missing value. Table.Kept says which are left.
	DropRows
)

// HeaderPolicy says whether the first line of a table has the names of the columns.
type HeaderPolicy int

const (
	// HeaderAuto takes a first line for names if there is a text and no number
	// in it, and for data if there is no text. Both together are an error.
	HeaderAuto HeaderPolicy = iota
	// HeaderYes takes the first line for names.
	HeaderYes
	// HeaderNo takes the first line for data.
	HeaderNo
)

// TableOptions are the choices of ReadTable. The zero value reads
// comma-separated columns, the last being the response.
type TableOptions struct {
	// Response is the name of the column of responses; "" means the last one.
	Response string
	// Positive is the response that becomes +1, the other one becoming -1, be they
	// texts or numbers. "" leaves numbers as they are and makes +1 of the second of
	// two texts in sorted order.
	Positive string
	// Comma separates the fields; 0 means a comma.
	Comma rune
	// Header says whether the first line has the names of the columns.
	Header HeaderPolicy
	// Drop has the names of columns to leave out.
	Drop []string
	// Categorical has the names of columns that are categories even if they are numbers, or
	// look like dates or identifiers.
	Categorical []string
	// MaxLevels is the largest number of categories of a column, beyond which it is
	// taken for an identifier, or for numbers with something odd among them, and is an
	// error. 0 means a quarter of the number of rows, but at least 10 and at most 1000,
	// and 1000 for columns that are named in Categorical.
	MaxLevels int
	// NA has texts that mean a missing value, besides no text at all, "NA", "N/A",
	// "?", and "NaN" and "null" in upper or lower case.
	NA []string
	// Missing says what to do about missing values.
	Missing MissingPolicy
}

// Table is a table as numbers: for each row the features and the response.
type Table struct {
	// X has a row for each row of the table and the columns of Names. It is a
	// *Sparse if at most a quarter of its values are not 0, else a *mat.Dense.
	X mat.Matrix
	// Y has the responses: numbers, or -1 and +1; see Labels. It is nil if a file
	// read by Encode has no responses.
	Y []float64
	// Names has the names of the columns of X: "age", or "colour=red" for the
	// indicator of a category.
	Names []string
	// Response is the name of the column of responses.
	Response string
	// Labels has the responses that are -1 and +1 in Y if they were texts, or
	// numbers before Signs; otherwise it is nil.
	Labels []string
	// Kept has, for each row of X, the number of its row in the file, from 0: the header and
	// blank lines are not counted. It says whose prediction is whose where rows are left out.
	Kept []int
	// Dropped is the number of rows left out for a missing value.
	Dropped int
	// Missing has the number of missing values of each column of the table, by its
	// name, that has any, be it a feature or the response.
	Missing map[string]int
	// Doubts has, for each column of numbers among the features that seem to be no quantities, by
	// its name, what they seem to be: identifiers, codes or dates. ReadTable takes them as numbers
	// all the same; see TableOptions.Drop and Categorical. It is nil if there is none, and in what
	// Encode returns.
	Doubts map[string]string

	opts     TableOptions // the header being HeaderYes or HeaderNo
	width    int          // columns of the file
	columns  []tableColumn
	sparse   bool       // X is
	signed   bool       // Signs has been called
	unsigned [2]float64 // the responses that it made -1 and +1
}

// tableColumn is a column of a file and its place in X.
type tableColumn struct {
	name   string
	at     int      // first column in X
	levels []string // sorted, the first being without a column; nil for numbers
}

// tableText is a file as it is written.
type tableText struct {
	header bool
	names  []string
	// of a name among names; files may have more columns than a search has time for
	place map[string]int
	rows  [][]string // trimmed fields
	lines []int      // of each row
	size  int        // bytes of all fields
}

// What a table takes besides its text, in bytes: a row, and a field as text, as a value of a
// sparse matrix, and as one of a dense matrix.
const (
	tableRow   = 32
	tableField = 16 + 12 + 8
)

// The names of indicators repeat that of their column. Together they may have so many bytes for a
// byte of text, once they have more than mostNames: the rest is a name that is too long.
const (
	mostNamesPart = 4
	mostNames     = 16 << 20
)

// ReadTable reads a table of comma-separated numbers and texts into the features
// and responses of a regression or classification. A nil opts means the zero
// TableOptions.
//
// The first line has the names of the columns; see HeaderPolicy. A column without
// a name is x and its number from 1, and so are all of a file without names, but
// for the last, which is y. Blank lines, spaces around fields, quoted fields,
// CRLF line ends and a UTF-8 byte order mark are accepted, and gzip, known by
// its first bytes, is unpacked.
//
// A column with a field that is neither a number nor missing is categorical. Its
// k categories, sorted as texts, become k−1 columns that are 1 in the rows of
// the second to the last category and 0 otherwise; the first is what the others
// are compared to. So a column with one category becomes no column. Rows with
// a missing value, if they are dropped, have no part in any of this. A column of texts
// that are all dates, or of so many categories that it looks like an identifier (see
// MaxLevels), would become one weight a row or nearly so, and is refused; name it in
// Drop, or in Categorical to insist. Numbers cost one weight whatever they are, and are
// never refused, but Table.Doubts names the columns that look like identifiers (10 whole numbers or
// more, each larger than the one before), codes (with a 0 in front, or more digits than a float64
// keeps) and dates (20240131, with or without the time of day).
//
// The response is a column of numbers, or of two texts, which become -1 and +1.
// Numbers stay what they are: see Signs for the likelihoods of binary responses.
//
// The errors name line and column and what was found. They wrap ErrShape where a
// line has another number of fields than the first, quotes do not match, two
// columns have the same name, or there is no column besides the response;
// ErrNotFinite where a number is not finite or a value is missing; ErrLabel where
// the responses are neither numbers nor two texts; ErrParam where an option names
// a column or response that there is not or is out of its range, names and
// numbers are mixed in the first line, and columns look like identifiers or dates; ErrMemory
// where a line, the file as a whole or the names of categories take more memory than
// there is, and gzip unpacks to more than 300 times its size; and ErrEmpty if there are
// no data. A failure of r is wrapped as it is. The memory
// that is used while reading is some times the size of the file.
func ReadTable(r io.Reader, opts *TableOptions) (*Table, error) {
	t := &Table{}
	if opts != nil {
		t.opts = *opts
		t.opts.NA = slices.Clone(opts.NA)
	}
	if err := t.checkOptions(); err != nil {
		return nil, err
	}
	text, err := t.read(r)
	if err != nil {
		return nil, err
	}
	t.opts.Header = HeaderNo
	if text.header {
		t.opts.Header = HeaderYes
	}
	t.width = len(text.names)
	t.Response = t.opts.Response
	if t.Response == "" {
		t.Response = text.names[t.width-1]
	}
	for _, list := range [][]string{{t.Response}, t.opts.Drop, t.opts.Categorical} {
		for _, name := range list {
			if _, ok := text.place[name]; !ok {
				return nil, fmt.Errorf("pgsvi: there is no column %s: %w", csvQuote(name), pgsvi.ErrParam)
			}
		}
	}
	if slices.Contains(t.opts.Drop, t.Response) {
		return nil, fmt.Errorf("pgsvi: the column %s, of the responses, is among those to drop: %w", csvQuote(t.Response), pgsvi.ErrParam)
	}
	for _, name := range text.names {
		if name != t.Response && !slices.Contains(t.opts.Drop, name) {
			t.columns = append(t.columns, tableColumn{name: name})
		}
	}
	if err := t.dropMissing(text); err != nil {
		return nil, err
	}
	if err := t.findLevels(text); err != nil {
		return nil, err
	}
	if err := t.findLabels(text); err != nil {
		return nil, err
	}
	x, err := t.encodeFeatures(text)
	if err != nil {
		return nil, err
	}
	n, d := x.Dims()
	t.sparse = 4*x.NNZ() <= n*d
	t.X = t.matrix(x)
	t.Y, err = t.encodeResponses(text)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Encode reads another table, say of test data, into the columns of t: with the
// same options, the categories and the labels of t, and Y as Signs has made it.
// Columns are found by their names, in any order, and other ones are left out;
// without names there have to be as many as there were. Without a column of
// responses, Y is nil. With DropRows there are fewer rows than in the file where values
// are missing, and Kept says which. The table returned is new; X is of the type of that
// of t, and t is as it was. Encode may be called concurrently.
//
// The errors are those of ReadTable. Besides, they wrap ErrShape if a column of
// features is not there, ErrNotFinite where there is no number in a column of
// numbers, ErrParam where a category is one that t has not seen, and ErrLabel
// where a response is one that it has not seen and has seen but two.
func (t *Table) Encode(r io.Reader) (*Table, error) {
	e := &Table{
		Names: slices.Clone(t.Names), Response: t.Response, Labels: slices.Clone(t.Labels),
		opts: t.opts, width: t.width, columns: t.columns, sparse: t.sparse, signed: t.signed, unsigned: t.unsigned,
	}
	text, err := e.read(r)
	if err != nil {
		return nil, err
	}
	if !text.header && len(text.names) != t.width {
		return nil, fmt.Errorf("pgsvi: line %d has %d fields, want %d as in the table before: %w", text.lines[0], len(text.names), t.width, pgsvi.ErrShape)
	}
	for _, c := range t.columns {
		if _, ok := text.place[c.name]; !ok {
			return nil, fmt.Errorf("pgsvi: there is no column %s: %w", csvQuote(c.name), pgsvi.ErrShape)
		}
	}
	if err := e.dropMissing(text); err != nil {
		return nil, err
	}
	x, err := e.encodeFeatures(text)
	if err != nil {
		return nil, err
	}
	e.X = e.matrix(x)
	if _, ok := text.place[t.Response]; ok {
		if e.Y, err = e.encodeResponses(text); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// Signs turns responses of two different numbers, such as 0 and 1, into -1, the
// smaller, and +1, as the likelihoods of binary responses want them. Labels says
// afterwards what was what. Encode does the same to what it reads. Responses
// that were texts are -1 and +1 already and stay as they are. The error, upon
// which nothing has changed, wraps ErrLabel if there are not two numbers.
func (t *Table) Signs() error {
	if t.Labels != nil {
		return nil
	}
	if len(t.Y) == 0 {
		return fmt.Errorf("pgsvi: Signs without responses: %w", pgsvi.ErrLabel)
	}
	low, high := slices.Min(t.Y), slices.Max(t.Y)
	for i, y := range t.Y {
		if low == high || y != low && y != high {
			return fmt.Errorf("pgsvi: the responses are %v to %v, with %v in row %d, want two different numbers: %w", low, high, y, i, pgsvi.ErrLabel)
		}
	}
	t.signed, t.unsigned = true, [2]float64{low, high}
	t.Labels = []string{fmt.Sprint(low), fmt.Sprint(high)}
	for i, y := range t.Y {
		t.Y[i] = signOf(y == high)
	}
	return nil
}

func signOf(positive bool) float64 {
	if positive {
		return 1
	}
	return -1
}

func (t *Table) checkOptions() error {
	o := &t.opts
	if o.Comma == 0 {
		o.Comma = ','
	}
	switch {
	case strings.ContainsRune("\"\r\n", o.Comma) || !utf8.ValidRune(o.Comma) || o.Comma == utf8.RuneError:
		return fmt.Errorf("pgsvi: TableOptions.Comma is %q: %w", o.Comma, pgsvi.ErrParam)
	case o.MaxLevels < 0:
		return fmt.Errorf("pgsvi: TableOptions.MaxLevels is %d: %w", o.MaxLevels, pgsvi.ErrParam)
	case o.Header < HeaderAuto || o.Header > HeaderNo:
		return fmt.Errorf("pgsvi: TableOptions.Header is %d: %w", o.Header, pgsvi.ErrParam)
	case o.Missing < ErrorOnMissing || o.Missing > DropRows:
		return fmt.Errorf("pgsvi: TableOptions.Missing is %d: %w", o.Missing, pgsvi.ErrParam)
	}
	return nil
}

// read reads a file, which has at least one row.
func (t *Table) read(r io.Reader) (*tableText, error) {
	br, err := gunzip(r)
	if err != nil {
		return nil, err
	}
	in := newRecordReader(skipBOM(br))
	cr := csv.NewReader(in)
	cr.Comma = t.opts.Comma
	cr.FieldsPerRecord = -1 // checked here, for better messages
	cr.TrimLeadingSpace = !unicode.IsSpace(t.opts.Comma)
	text := &tableText{}
	budget := memory.NewBudget("the table", textTooLarge)
	for {
		in.n = 0
		record, err := cr.Read()
		if err == io.EOF {
			break
		}
		if bad := (*csv.ParseError)(nil); errors.As(err, &bad) {
			return nil, fmt.Errorf("pgsvi: line %d, byte %d: %w: %w", bad.Line, bad.Column, bad.Err, pgsvi.ErrShape)
		}
		if err != nil {
			return nil, fmt.Errorf("pgsvi: reading a table: %w", err)
		}
		for j, field := range record {
			record[j] = strings.TrimSpace(field)
		}
		if len(record) == 1 && record[0] == "" {
			continue
		}
		line, _ := cr.FieldPos(0)
		if text.names == nil {
			if text.header, err = t.isHeader(record, line); err != nil {
				return nil, err
			}
			if text.names, text.place, err = tableNames(record, text.header, line); err != nil {
				return nil, err
			}
			if text.header {
				continue
			}
		}
		if len(record) != len(text.names) {
			return nil, fmt.Errorf("pgsvi: line %d has %d fields, want %d as in the first line: %w", line, len(record), len(text.names), pgsvi.ErrShape)
		}
		size := 0
		for _, field := range record {
			size += len(field)
		}
		text.size += size
		if err := budget.Keep(size + tableRow + tableField*len(record)); err != nil {
			return nil, fmt.Errorf("pgsvi: line %d: %w: %w", line, err, pgsvi.ErrMemory)
		}
		text.rows, text.lines = append(text.rows, record), append(text.lines, line)
	}
	if len(text.rows) == 0 {
		return nil, fmt.Errorf("pgsvi: table without a line of data: %w", pgsvi.ErrEmpty)
	}
	return text, nil
}

func (t *Table) isHeader(record []string, line int) (bool, error) {
	if t.opts.Header != HeaderAuto {
		return t.opts.Header == HeaderYes, nil
	}
	var number, name string
	for _, field := range record {
		if t.isMissing(field) {
			continue
		}
		if isNumber(field) {
			number = field
		} else {
			name = field
		}
	}
	if number != "" && name != "" {
		return false, fmt.Errorf("pgsvi: line %d has %s, as names of columns do, and the number %s, as data do; set TableOptions.Header: %w", line, csvQuote(name), csvQuote(number), pgsvi.ErrParam)
	}
	return name != "", nil
}

func isNumber(field string) bool {
	_, err := csvFloat(field)
	return err == nil
}

// tableNames returns the names of the columns.
func tableNames(record []string, header bool, line int) (names []string, place map[string]int, err error) {
	names, place = make([]string, len(record)), make(map[string]int, len(record))
	for j := range names {
		names[j] = "x" + strconv.Itoa(j+1)
		if header && record[j] != "" {
			names[j] = record[j]
		}
		if !header && j == len(names)-1 {
			names[j] = "y"
		}
		if _, twice := place[names[j]]; twice {
			return nil, nil, fmt.Errorf("pgsvi: line %d: two columns are named %s; see TableOptions.Header if these are no names: %w", line, csvQuote(names[j]), pgsvi.ErrShape)
		}
		place[names[j]] = j
	}
	return names, place, nil
}

func (t *Table) isMissing(field string) bool {
	switch field {
	case "", "NA", "N/A", "?":
		return true
	}
	return strings.EqualFold(field, "nan") || strings.EqualFold(field, "null") || slices.Contains(t.opts.NA, field)
}

// dropMissing counts the missing values and removes their rows.
func (t *Table) dropMissing(text *tableText) error {
	used := make([]bool, len(text.names))
	if j, ok := text.place[t.Response]; ok {
		used[j] = true
	}
	for _, c := range t.columns {
		used[text.place[c.name]] = true
	}
	t.Missing = map[string]int{}
	first, total, kept := 0, 0, 0
	for i, row := range text.rows {
		whole := true
		for j, field := range row {
			if used[j] && t.isMissing(field) {
				t.Missing[text.names[j]]++
				total++
				whole = false
			}
		}
		if whole {
			text.rows[kept], text.lines[kept] = row, text.lines[i]
			t.Kept = append(t.Kept, i)
			kept++
		} else if first == 0 {
			first = text.lines[i]
		}
	}
	t.Dropped = len(text.rows) - kept
	if total > 0 && t.opts.Missing == ErrorOnMissing {
		var where []string
		for _, name := range slices.SortedFunc(maps.Keys(t.Missing), func(a, b string) int {
			return text.place[a] - text.place[b]
		}) {
			if len(where) == 5 {
				where = append(where, "…")
				break
			}
			where = append(where, fmt.Sprintf("%d of %s", t.Missing[name], csvQuote(name)))
		}
		return fmt.Errorf("pgsvi: line %d has the first of %d missing values in %d columns (%s); see TableOptions.Missing: %w", first, total, len(t.Missing), strings.Join(where, ", "), pgsvi.ErrNotFinite)
	}
	text.rows, text.lines = text.rows[:kept], text.lines[:kept]
	if kept == 0 {
		return fmt.Errorf("pgsvi: table without a row that has no missing value: %w", pgsvi.ErrEmpty)
	}
	return nil
}

// odd returns the first row where column j is no number, or -1.
func (text *tableText) odd(j int) int {
	return slices.IndexFunc(text.rows, func(row []string) bool { return !isNumber(row[j]) })
}

// levels returns the different texts of column j in sorted order.
func (text *tableText) levels(j int) []string {
	seen := map[string]bool{}
	for _, row := range text.rows {
		seen[row[j]] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

const (
	mostLevels  = 1000 // categories of a column that is one for sure
	surelyFew   = 10   // categories that are no identifiers however few the rows
	rowsALevel  = 4    // rows for each category below which it is more likely an identifier
	mostRefused = 5    // columns that one error describes
)

// dateLayouts are ways to write dates, with or without the time of day.
var dateLayouts = func() (all []string) {
	for _, d := range []string{"2006-1-2", "2006/1/2", "2006.1.2", "2.1.2006", "2.1.06", "1/2/2006", "2/1/2006", "1/2/06", "2/1/06", "2-1-2006", "1-2-2006",
		"2-Jan-2006", "2-Jan-06", "2 Jan 2006", "2 January 2006", "Jan 2, 2006", "January 2, 2006", "Jan 2 2006"} {
		all = append(all, d, d+" 15:04", d+" 15:04:05", d+" 3:04 PM", d+" 3:04:05 PM")
	}
	return append(all, time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 MST",
		"2006-01", "2006/01", "01/2006", "Jan 2006", "January 2006", time.RFC1123, time.RFC1123Z, time.ANSIC, time.UnixDate)
}()

// areDates reports whether every one of levels is a date.
func areDates(levels []string) bool {
	last := 0 // a column has one layout, as a rule
	for _, level := range levels {
		if _, err := time.Parse(dateLayouts[last], level); err == nil {
			continue
		}
		if last = slices.IndexFunc(dateLayouts, func(layout string) bool { _, err := time.Parse(layout, level); return err == nil }); last < 0 {
			return false
		}
	}
	return true
}

// dateDigits are the layouts of dates that are numbers, by their number of digits.
var dateDigits = map[int]string{8: "20060102", 12: "200601021504", 14: "20060102150405"}

const (
	// of dates; few quantities are all of 8 digits and all days of these
	firstYear, lastYear = 1800, 2199
	// numbers that rise, for them to be identifiers; 9 do by chance, or by design
	fewestRising = 10
	mostDigits   = 15 // that a float64 keeps
)

// doubt returns what the numbers of column j are if they seem to be no quantities.
func (text *tableText) doubt(j int) string {
	rising, dates, last := len(text.rows) >= fewestRising, len(text.rows) > 1, int64(math.MinInt64)
	for _, row := range text.rows {
		field := row[j]
		digits := strings.Trim(field, "0123456789") == ""
		if digits && (len(field) > 1 && field[0] == '0' || len(field) > mostDigits) {
			return fmt.Sprintf("codes: %s has a 0 in front, or more digits than a float64 keeps", csvQuote(field))
		}
		n, err := strconv.ParseInt(field, 10, 64)
		rising, last = rising && err == nil && n > last, n
		if dates {
			day, err := time.Parse(dateDigits[len(field)], field)
			dates = digits && err == nil && day.Year() >= firstYear && day.Year() <= lastYear
		}
	}
	switch first := csvQuote(text.rows[0][j]); {
	case dates:
		return fmt.Sprintf("dates: they are numbers such as %s", first)
	case rising:
		return fmt.Sprintf("identifiers: they are %d whole numbers from %s on, each larger than the one before", len(text.rows), first)
	}
	return ""
}

// findLevels sets the levels and places of the columns, and the names of those of X. The
// error is of all columns that cannot be meant as categories.
func (t *Table) findLevels(text *tableText) error {
	names := 0 // bytes
	var refused []string
	for k := range t.columns {
		c := &t.columns[k]
		c.at = len(t.Names)
		j := text.place[c.name]
		odd, named := text.odd(j), slices.Contains(t.opts.Categorical, c.name)
		if odd < 0 && !named {
			t.Names = append(t.Names, c.name)
			if doubt := text.doubt(j); doubt != "" {
				if t.Doubts == nil {
					t.Doubts = map[string]string{}
				}
				t.Doubts[c.name] = doubt
			}
			continue
		}
		odd = max(odd, 0)
		levels := text.levels(j)
		most := t.opts.MaxLevels
		switch {
		case most > 0:
		case named:
			most = mostLevels
		default:
			most = min(mostLevels, max(surelyFew, len(text.rows)/rowsALevel))
		}
		found := fmt.Sprintf("line %d, column %s: found %s, so it is categorical, but", text.lines[odd], csvQuote(c.name), csvQuote(text.rows[odd][j]))
		switch {
		case len(levels) > 1 && !named && areDates(levels):
			refused = append(refused, fmt.Sprintf("%s it has dates, %d different ones in %d rows", found, len(levels), len(text.rows)))
			continue
		case len(levels) > most:
			refused = append(refused, fmt.Sprintf("%s it has %d categories in %d rows, more than %d, as identifiers have", found, len(levels), len(text.rows), most))
			continue
		}
		c.levels = levels
		for _, level := range levels[1:] {
			if names += len(c.name) + 1 + len(level); names > mostNames+mostNamesPart*text.size {
				return fmt.Errorf("pgsvi: the column %s: the names of its %d categories take more than %s; give it a shorter name, or drop it: %w", csvQuote(c.name), len(levels), memory.Size(mostNames), pgsvi.ErrMemory)
			}
			t.Names = append(t.Names, c.name+"="+level)
		}
	}
	if n := len(refused); n > 0 {
		if n > mostRefused {
			refused = append(refused[:mostRefused], fmt.Sprintf("and %d more columns", n-mostRefused))
		}
		return fmt.Errorf("pgsvi: %s; leave such columns out by TableOptions.Drop, make numbers of them, or name them in TableOptions.Categorical and set MaxLevels if they are meant: %w", strings.Join(refused, "; "), pgsvi.ErrParam)
	}
	if len(t.Names) == 0 {
		hint := ""
		if strings.ContainsAny(t.Response, ";\t|") {
			hint = "; is it several, with another separator than TableOptions.Comma?"
		}
		return fmt.Errorf("pgsvi: there is no column with different values besides %s, of the responses%s: %w", csvQuote(t.Response), hint, pgsvi.ErrShape)
	}
	return nil
}

// findLabels sets Labels if the responses are texts.
func (t *Table) findLabels(text *tableText) error {
	j := text.place[t.Response]
	odd := text.odd(j)
	if odd < 0 && t.opts.Positive == "" && !slices.Contains(t.opts.Categorical, t.Response) {
		return nil
	}
	levels := text.levels(j)
	if len(levels) != 2 {
		odd = max(odd, 0)
		return fmt.Errorf("pgsvi: line %d, column %s: found the response %s, but there are %d different ones, want numbers or two texts: %w", text.lines[odd], csvQuote(t.Response), csvQuote(text.rows[odd][j]), len(levels), pgsvi.ErrLabel)
	}
	switch t.opts.Positive {
	case "", levels[1]:
	case levels[0]:
		slices.Reverse(levels)
	default:
		return fmt.Errorf("pgsvi: TableOptions.Positive is %s, but column %s has %s and %s: %w", csvQuote(t.opts.Positive), csvQuote(t.Response), csvQuote(levels[0]), csvQuote(levels[1]), pgsvi.ErrParam)
	}
	t.Labels = levels
	return nil
}

// encodeFeatures returns the features.
func (t *Table) encodeFeatures(text *tableText) (*pgsvi.Sparse, error) {
	x := pgsvi.NewSparse(len(t.Names))
	places := make([]int, len(t.columns))
	for k, c := range t.columns {
		places[k] = text.place[c.name]
	}
	var ind []int
	var val []float64
	for i, row := range text.rows {
		ind, val = ind[:0], val[:0]
		for k, c := range t.columns {
			field := row[places[k]]
			if c.levels == nil {
				v, err := tableFloat(field, text.lines[i], c.name)
				if err != nil {
					return nil, err
				}
				ind, val = append(ind, c.at), append(val, v)
				continue
			}
			level, known := slices.BinarySearch(c.levels, field)
			if !known {
				return nil, fmt.Errorf("pgsvi: line %d, column %s: found the unknown category %s: %w", text.lines[i], csvQuote(c.name), csvQuote(field), pgsvi.ErrParam)
			}
			if level > 0 {
				ind, val = append(ind, c.at+level-1), append(val, 1)
			}
		}
		if ind == nil {
			ind = []int{} // not a dense row
		}
		if err := x.Append(ind, val); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// encodeResponses returns the responses.
func (t *Table) encodeResponses(text *tableText) ([]float64, error) {
	j := text.place[t.Response]
	y := make([]float64, len(text.rows))
	for i, row := range text.rows {
		known := true
		if t.Labels != nil && !t.signed {
			known = slices.Contains(t.Labels, row[j])
			y[i] = signOf(row[j] == t.Labels[1])
		} else {
			v, err := tableFloat(row[j], text.lines[i], t.Response)
			if err != nil {
				return nil, err
			}
			if y[i] = v; t.signed {
				known = v == t.unsigned[0] || v == t.unsigned[1]
				y[i] = signOf(v == t.unsigned[1])
			}
		}
		if !known {
			return nil, fmt.Errorf("pgsvi: line %d, column %s: found the response %s, want %s or %s: %w", text.lines[i], csvQuote(t.Response), csvQuote(row[j]), csvQuote(t.Labels[0]), csvQuote(t.Labels[1]), pgsvi.ErrLabel)
		}
	}
	return y, nil
}

func tableFloat(field string, line int, name string) (float64, error) {
	v, err := csvFloat(field)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("pgsvi: line %d, column %s: found %s, want a finite number: %w", line, csvQuote(name), csvQuote(field), pgsvi.ErrNotFinite)
	}
	return v, nil
}

// matrix returns x as what X is.
func (t *Table) matrix(x *pgsvi.Sparse) mat.Matrix {
	if t.sparse {
		return x
	}
	n, d := x.Dims()
	dense := mat.NewDense(n, d, nil)
	for i := range n {
		to := dense.RawRowView(i)
		ind, val := x.Row(i)
		for k, j := range ind {
			to[j] = val[k]
		}
	}
	return dense
}
