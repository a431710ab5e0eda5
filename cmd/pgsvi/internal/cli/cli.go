// Package cli reads the command line of pgsvi: flags, files and names. Its errors suggest what the
// user may have meant.
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

// Errors about the command line wrap ErrUsage.
var ErrUsage = errors.New("usage")

// Meant returns advice for a name that is not in names, to end a message with. It suggests the most
// similar name, or lists all names if no name is similar.
func Meant(name string, names []string) string {
	if best := suggest.Nearest(name, names); best != "" {
		return "did you mean " + best + "?"
	}
	return "use one of " + strings.Join(names, ", ")
}

// Parse parses the flags of f, which may come before, between or after the files, and returns the
// files.
func Parse(f *flag.FlagSet, args []string) (files []string, err error) {
	for len(args) > 0 {
		if err := f.Parse(args); err != nil {
			name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
			if !unknown {
				return nil, err
			}
			var names []string
			f.VisitAll(func(f *flag.Flag) { names = append(names, "-"+f.Name) })
			return nil, fmt.Errorf("unknown flag -%s; %s", name, Meant("-"+name, names))
		}
		if args = f.Args(); len(args) > 0 {
			files, args = append(files, args[0]), args[1:]
		}
	}
	return files, nil
}

// Files returns an error unless files has count entries. The error quotes the usage of the verb,
// whose arguments are args. It wraps ErrUsage.
func Files(f *flag.FlagSet, verb, args string, count int, files []string) error {
	found := fmt.Sprintf("too many files: %s", strings.Join(files, ", "))
	switch left := count - len(files); {
	case left == 0:
		return nil
	case left == 1:
		found = last(args, 1)[0] + " is missing"
	case left > 1:
		found = strings.Join(last(args, left), " and ") + " are missing"
	}
	want := fmt.Sprintf("run pgsvi %s %s", verb, args)
	if given := f.Lookup("formula"); given != nil && len(files) > count {
		want += ", with the formula in quotes, as in -formula 'y ~ x'"
	}
	return fmt.Errorf("%s; %s: %w", found, want, ErrUsage)
}

// last returns the last n words of text.
func last(text string, n int) []string {
	words := strings.Fields(text)
	return words[len(words)-n:]
}

// Output checks the flags of files to write before anything is fitted. It returns an error if a file
// cannot be written or is one of the files to read.
func Output(f *flag.FlagSet, files []string) error {
	for _, name := range []string{"columns", "vocab"} {
		if from := f.Lookup(name); from != nil {
			files = append(files, from.Value.String())
		}
	}
	for _, name := range []string{"o", "effects"} {
		out := f.Lookup(name)
		if out == nil || out.Value.String() == "" || name != "o" && out.Value.String() == "-" {
			continue
		}
		if err := writable(name, out.Value.String(), files); err != nil {
			return err
		}
	}
	return nil
}

// writable checks one file to write. The name of its flag is in errors.
func writable(name, path string, files []string) error {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return fmt.Errorf("-%s %s is a folder; choose a file name: %w", name, path, ErrUsage)
	}
	for _, from := range files {
		if own, missing := os.Stat(from); err == nil && missing == nil && os.SameFile(info, own) {
			return fmt.Errorf("-%s %s is an input file; choose another name: %w", name, path, ErrUsage)
		}
	}
	err = save.CheckFile(path)
	if own := (*fs.PathError)(nil); errors.As(err, &own) {
		return fmt.Errorf("-%s %s cannot be written: %w", name, path, own.Err)
	}
	return err
}

// PrintFlags prints the flags of f, one per line.
func PrintFlags(w io.Writer, f *flag.FlagSet) {
	f.VisitAll(func(f *flag.Flag) {
		kind, text := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "0" && f.DefValue != "false" {
			text += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(w, "  -%-21s %s\n", strings.TrimSpace(f.Name+" "+kind), strings.ReplaceAll(text,
			"\n", "\n"+strings.Repeat(" ", 25)))
	})
}

// AtLeast0 returns an error that wraps ErrUsage unless v, the value of flag name, is finite and at
// least 0.
func AtLeast0(name string, v float64) error {
	if v >= 0 && !math.IsInf(v, 0) {
		return nil
	}
	return fmt.Errorf("-%s is %v; set a positive number, or 0 for the default: %w", name, v,
		ErrUsage)
}
