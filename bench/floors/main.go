// Command floors reports the structure of the library. A room is a file of the root, or one of
// the folders internal, data and bench. A room that uses a name of another one has an arrow to
// it. A room is one floor above the highest room that it uses; rooms in a circle count as one.
//
//	go run ./bench/floors             # the floors, the circles and the counts
//	go run ./bench/floors -v          # each arrow with the names that make it
//	go run ./bench/floors -packages   # for each package: files, lines, doors, functions, wide lines
//	go run ./bench/floors -write CONTRIBUTING.md   # writes that as the table of a file
//
// Uses are those that the type checker resolves, fields and methods included. Tests, examples and
// commands are left out. The test of this package compares the counts with their limits.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/pgsvi/pgsvi/bench/tables"
)

func main() {
	verbose := flag.Bool("v", false, "print each arrow and the names that make it")
	packages := flag.Bool("packages", false, "print a table of the packages")
	write := flag.String("write", "", "write the table of the packages to a `file` that has one")
	dir := flag.String("dir", ".", "`folder` of the module")
	flag.Parse()
	m, err := load(*dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "floors:", err)
		os.Exit(1)
	}
	if *packages || *write != "" {
		table, err := m.table()
		if err == nil && *write != "" {
			err = tables.Replace(*write, map[string]string{"packages": table})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "floors:", err)
			os.Exit(1)
		}
		if *packages {
			fmt.Print(table)
		}
		return
	}
	h := m.house()
	if *verbose {
		for _, a := range h.sorted() {
			fmt.Printf("%s → %s: %s\n", a.from, a.to, strings.Join(h.names(a), " "))
		}
		fmt.Println()
	}
	for i, floor := range h.floors() {
		fmt.Printf("%2d  %s\n", i+1, strings.Join(floor, " "))
	}
	for _, c := range h.circles() {
		fmt.Printf("circle: %s\n", strings.Join(c, " "))
	}
	for _, a := range h.between() {
		fmt.Printf("from model to model: %s → %s: %s\n", a.from, a.to,
			strings.Join(h.names(a), " "))
	}
	for _, pos := range m.unnamed() {
		fmt.Printf("asserts an unnamed interface: %s\n", pos)
	}
	for _, c := range m.counts() {
		fmt.Printf("%5d  %s\n", c.n, c.what)
	}
}
