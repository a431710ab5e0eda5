// Command layers reports the structure of the library. A unit is a file of the root package, or one
// of the folders internal, data and bench. A unit uses another unit if it refers to a name that the
// other unit declares; methods and fields count. Tests, examples and commands are left out, except to
// find the exported types that no example shows.
//
//	go run ./bench/layers             # the layers, the cycles and the counts
//	go run ./bench/layers -v          # also each use, with its names, and each call upward
//	go run ./bench/layers -packages   # a table of the packages: files, lines, names, functions
//	go run ./bench/layers -picture docs/pictures/packages.svg   # the packages and their imports
//	go run ./bench/layers -check      # fails if one of the five limited counts is too high
//
// Nothing limits lines, files and names: a change may add what it needs.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	verbose := flag.Bool("v", false, "print each use with its names, and each call upward")
	packages := flag.Bool("packages", false, "print a table of the packages")
	check := flag.Bool("check", false, "print the limited counts; fail if one is too high")
	picture := flag.String("picture", "", "write a picture of the packages to an SVG `file`")
	dir := flag.String("dir", ".", "`folder` of the module")
	flag.Parse()
	if err := run(*dir, *picture, *verbose, *packages, *check); err != nil {
		fmt.Fprintln(os.Stderr, "layers:", err)
		os.Exit(1)
	}
}

// run prints the report of the module in dir that the flags select.
func run(dir, picture string, verbose, packages, check bool) error {
	m, err := load(dir)
	switch {
	case err != nil:
		return err
	case packages:
		table, err := m.table()
		fmt.Print(table)
		return err
	case picture != "":
		return os.WriteFile(picture, []byte(m.picture()), 0o666)
	case check:
		return m.withinLimits()
	}
	g := m.graph()
	if verbose {
		for _, u := range g.sorted() {
			fmt.Printf("%s → %s: %s\n", u.from, u.to, strings.Join(g.names(u), " "))
		}
		for _, call := range m.upward() {
			fmt.Printf("calls upward: %s\n", call)
		}
		fmt.Printf("unexported interfaces: %s\n\n", strings.Join(m.private(), " "))
	}
	for i, layer := range g.layers() {
		fmt.Printf("%2d  %s\n", i+1, strings.Join(layer, " "))
	}
	for _, c := range g.cycles() {
		fmt.Printf("cycle: %s\n", strings.Join(c, " "))
	}
	for _, pos := range m.unnamed() {
		fmt.Printf("asserts an unnamed interface: %s\n", pos)
	}
	hidden, err := m.unshown()
	for _, name := range hidden {
		fmt.Printf("shown in no example: %s\n", name)
	}
	if err != nil {
		return err
	}
	counts, err := m.counts()
	for _, c := range counts {
		fmt.Printf("%5d  %s\n", c.n, c.what)
	}
	return err
}

// withinLimits prints the limited counts, and returns an error if one exceeds its limit.
func (m *module) withinLimits() error {
	counts, err := m.counts()
	if err != nil {
		return err
	}
	var over []string
	for _, c := range counts {
		if c.limit == noLimit {
			continue
		}
		fmt.Printf("%5d  %s (limit %d)\n", c.n, c.what, c.limit)
		if c.n > c.limit {
			over = append(over, c.what)
		}
	}
	if len(over) > 0 {
		return fmt.Errorf("above its limit: %s; run go run ./bench/layers -v to see which",
			strings.Join(over, ", "))
	}
	return nil
}
