package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
)

// A line is a line of a CSV file. Its fields are pointers to a string, an int or a float64 for each
// column of the header.
type line[T any] interface {
	*T
	header() []string
	fields() []any
}

// writeTable writes lines to a CSV file.
func writeTable[T any, P line[T]](file string, lines []T) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	records := [][]string{P(new(T)).header()}
	for i := range lines {
		var r []string
		for _, field := range P(&lines[i]).fields() {
			switch v := field.(type) {
			case *string:
				r = append(r, *v)
			case *int:
				r = append(r, strconv.Itoa(*v))
			case *float64:
				r = append(r, strconv.FormatFloat(*v, 'g', 8, 64))
			}
		}
		records = append(records, r)
	}
	return csv.NewWriter(f).WriteAll(records)
}

// readTable reads a file of writeTable.
func readTable[T any, P line[T]](file string) ([]T, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	records, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(records) < 2 || !slices.Equal(records[0], P(new(T)).header()) {
		return nil, fmt.Errorf("%s has other columns; measure it again", file)
	}
	lines := make([]T, len(records)-1)
	for i, r := range records[1:] {
		for j, field := range P(&lines[i]).fields() {
			var e error
			switch v := field.(type) {
			case *string:
				*v = r[j]
			case *int:
				*v, e = strconv.Atoi(r[j])
			case *float64:
				*v, e = strconv.ParseFloat(r[j], 64)
			}
			err = errors.Join(err, e)
		}
	}
	return lines, err
}
