// Package cli reads the command line of pgsvi: flags, files and names, with errors that say what
// was meant.
package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"

	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/suggest"
)

// ErrUsage is in errors of the command line.
var ErrUsage = errors.New("usage")

// Meant returns the one of names that is most like name, or all of them, as the end of a message.
func Meant(name string, names []string) string {
	if best := suggest.Nearest(name, names); best != "" {
		return "did you mean " + best + "?"
	}
	return "there are " + strings.Join(names, ", ")
}

// Parse parses flags, which may also stand behind files, and returns the files.
func Parse(f *flag.FlagSet, args []string) (files []string, err error) {
	for len(args) > 0 {
		if err := f.Parse(args); err != nil {
			name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
			if !unknown {
				return nil, err
			}
			var names []string
			f.VisitAll(func(f *flag.Flag) { names = append(names, "-"+f.Name) })
			return nil, fmt.Errorf("there is no flag -%s; %s", name, Meant("-"+name, names))
		}
		if args = f.Args(); len(args) > 0 {
			files, args = append(files, args[0]), args[1:]
		}
	}
	return files, nil
}

// Files returns an error unless there are as many files as a verb wants, whose arguments are args.
func Files(f *flag.FlagSet, verb, args string, count int, files []string) error {
	found := fmt.Sprintf("found %d files, %s", len(files), strings.Join(files, ", "))
	switch {
	case len(files) == count:
		return nil
	case len(files) == 0:
		found = "a file is missing"
	case len(files) < count:
		found = "a second file is missing"
	}
	want := fmt.Sprintf("want pgsvi %s %s", verb, args)
	if given := f.Lookup("formula"); given != nil && len(files) > count {
		want += "; a formula stands between quotes, as in -formula 'y ~ x'"
	}
	return fmt.Errorf("%s; %s: %w", found, want, ErrUsage)
}

// Output returns an error, before anything is fitted, if the file of -o cannot be written, or if it
// is one of the files that are read.
func Output(f *flag.FlagSet, files []string) error {
	out := f.Lookup("o")
	if out == nil || out.Value.String() == "" {
		return nil
	}
	path := out.Value.String()
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return fmt.Errorf("-o %s is a folder, want the name of a file: %w", path, ErrUsage)
	}
	for _, name := range []string{"columns", "vocab"} {
		if from := f.Lookup(name); from != nil {
			files = append(files, from.Value.String())
		}
	}
	for _, from := range files {
		if own, missing := os.Stat(from); err == nil && missing == nil && os.SameFile(info, own) {
			return fmt.Errorf("-o %s is a file to read, want another name: %w", path, ErrUsage)
		}
	}
	err = save.CheckFile(path)
	if own := (*fs.PathError)(nil); errors.As(err, &own) {
		return fmt.Errorf("-o %s cannot be written: %w", path, own.Err)
	}
	return err
}

// PrintFlags prints the flags of f, each in a line.
func PrintFlags(w io.Writer, f *flag.FlagSet) {
	f.VisitAll(func(f *flag.Flag) {
		kind, text := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "0" {
			text += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(w, "  -%-21s %s\n", strings.TrimSpace(f.Name+" "+kind), strings.ReplaceAll(text,
			"\n", "\n"+strings.Repeat(" ", 25)))
	})
}

// AtLeast0 returns an error unless a number of a flag is 0 or more, and finite.
func AtLeast0(name string, v float64) error {
	if v >= 0 && !math.IsInf(v, 0) {
		return nil
	}
	return fmt.Errorf("-%s is %v, want a number above 0, or 0 for the default: %w", name, v,
		ErrUsage)
}
