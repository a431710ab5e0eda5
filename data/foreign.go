package data

import (
	"bufio"
	"bytes"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// A foreignFile is a kind of file that people confuse with a table.
type foreignFile struct {
	begins string // first bytes of such files
	name   string
	advice string
}

const saveAsCSV = "save its table as CSV"

var foreignFiles = []foreignFile{
	{"PK\x03\x04", "a zip archive, such as an Excel workbook (.xlsx)",
		"save the sheet as CSV, or unpack the archive"},
	{"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel workbook (.xls)", "save the sheet as CSV"},
	{"PAR1", "a Parquet file", saveAsCSV},
	{"ARROW1", "an Arrow file", saveAsCSV},
	{"SQLite format 3\x00", "an SQLite database", saveAsCSV},
	{"\x89HDF\r\n", "an HDF5 file", saveAsCSV},
	{"\x93NUMPY", "a NumPy array", saveAsCSV},
	{"\x89PNG", "a picture", saveAsCSV},
	{"\xff\xd8\xff", "a picture", saveAsCSV},
	{"GIF8", "a picture", saveAsCSV},
	{"%PDF-", "a PDF file", saveAsCSV},
	{"BZh", "packed by bzip2", "unpack it, or pack it with gzip"},
	{"\x28\xb5\x2f\xfd", "packed by Zstandard", "unpack it, or pack it with gzip"},
	{"\xfd7zXZ\x00", "packed by xz", "unpack it, or pack it with gzip"},
	{"pgsvi ", "a model or posterior saved by pgsvi", "load it instead"},
	{"<!DOCTYPE", "an HTML page", "download the table itself"},
	{"<!doctype", "an HTML page", "download the table itself"},
	{"<html", "an HTML page", "download the table itself"},
}

// checkForeign returns an error if the first bytes show that a file is not a text table.
func checkForeign(br *bufio.Reader) error {
	head, _ := br.Peek(32)
	for _, f := range foreignFiles {
		if bytes.HasPrefix(head, []byte(f.begins)) {
			return sentinel.Wrap(pgsvi.ErrFile,
				"pgsvi: the file is not text but %s; %s", f.name, f.advice)
		}
	}
	return nil
}
