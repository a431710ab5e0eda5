// Command fetch downloads the public data sets that the benchmarks read, and checks their SHA-256.
//
//	go run ./bench/fetch -to ../data                  # about 20 MB
//	go run ./bench/fetch -to ../data -only ap,nips
//	go run ./bench/fetch -to ../data -check           # check existing files, without download
//	PGSVI_DATA=$PWD/../data go run ./bench/topics
//
// Files are stored compressed, in the layout that PGSVI_DATA expects. A file that exists with the
// right sum is not downloaded again. A file appears under its name only when it is complete and its
// sum is right. Otherwise the error names it, and no file is left behind.
//
// The sums are of the rows in the stored measurements. They do not depend on compression, line ends
// and spaces at the ends of lines, nor, for a9a, on the order of the rows. They were taken from
// copies of the data sets and not from the published addresses, so a wrong sum means that the
// published file differs from the measured file.
//
// Sonar, ionosphere, iris and CO2 are in testdata. The order of the rows of USPS,
// usps/standin_resampled_index.txt, is not published. Without it, the figures and benchmarks of
// USPS are skipped or fail with its name.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

// run runs the program with the given arguments. It continues after a file that fails, and returns
// all errors.
func run(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("fetch", flag.ContinueOnError)
	to := f.String("to", os.Getenv("PGSVI_DATA"),
		"`folder` for the data sets (default: PGSVI_DATA)")
	only := f.String("only", "", "data sets, separated by commas, of "+strings.Join(sets(published),
		", ")+" (default: all)")
	check := f.Bool("check", false, "check existing files, without a download")
	if err := f.Parse(args); err != nil {
		return err
	}
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("fetch: unexpected argument %q", f.Arg(0))
	case *to == "":
		return errors.New("fetch: there is no folder for the data sets; use -to folder")
	}
	files, err := choose(published, *only)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DisableCompression:    true, // keep .gz files as published
		DialContext:           (&net.Dialer{Timeout: 20 * time.Second}).DialContext,
		TLSHandshakeTimeout:   20 * time.Second,
		ResponseHeaderTimeout: time.Minute,
	}}
	var errs []error
	for _, file := range files {
		err := file.check(*to)
		if err != nil && !*check && ctx.Err() == nil {
			fmt.Fprintf(out, "%s from %s\n", file.path, file.url)
			err = file.fetch(ctx, client, *to)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("fetch: %w", err))
			continue
		}
		fmt.Fprintf(out, "%s: ok\n", filepath.Join(*to, file.path))
	}
	return errors.Join(errs...)
}

// sets returns the names of the data sets, which are the folders of the files.
func sets(files []file) (names []string) {
	for _, f := range files {
		if name := f.set(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// choose returns the files of the data sets in only, which means all if it is empty.
func choose(files []file, only string) (chosen []file, err error) {
	if only == "" {
		return files, nil
	}
	for name := range strings.SplitSeq(only, ",") {
		if !slices.Contains(sets(files), name) {
			return nil, fmt.Errorf("fetch: there is no data set %q; there are %s", name,
				strings.Join(sets(files), ", "))
		}
		for _, f := range files {
			if f.set() == name {
				chosen = append(chosen, f)
			}
		}
	}
	return chosen, nil
}
