package data

import (
	"bufio"
	"bytes"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// foreignFile is a kind of file that people take for a table of text.
type foreignFile struct {
	begins string // what its bytes begin with
	name   string
	advice string
}

const saveAsCSV = "save its table as CSV"

var foreignFiles = []foreignFile{
	{"PK\x03\x04", "a zip archive, as Excel workbooks (.xlsx) are",
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
	{"BZh", "packed by bzip2", "unpack it, or pack it by gzip"},
	{"\x28\xb5\x2f\xfd", "packed by Zstandard", "unpack it, or pack it by gzip"},
	{"\xfd7zXZ\x00", "packed by xz", "unpack it, or pack it by gzip"},
	{"pgsvi ", "a file that Save of pgsvi has written", "load it as a model or a posterior"},
	{"<!DOCTYPE", "a page of HTML", "download the table itself"},
	{"<!doctype", "a page of HTML", "download the table itself"},
	{"<html", "a page of HTML", "download the table itself"},
}

// checkForeign returns an error for a file that is no table of text, known by its first bytes.
func checkForeign(br *bufio.Reader) error {
	head, _ := br.Peek(32)
	for _, f := range foreignFiles {
		if bytes.HasPrefix(head, []byte(f.begins)) {
			return sentinel.Wrap(pgsvi.ErrFile,
				"pgsvi: this is no text but %s; %s", f.name, f.advice)
		}
	}
	return nil
}
