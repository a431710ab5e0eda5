package save

// This file replaces files safely: a file keeps its old content until the new content is whole.
// The new content goes to a temporary file in the same folder, which is then renamed.
// data.WriteFile and the command call it.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// WriteFile writes a file with the content that write produces. A new file gets the permissions
// that the umask leaves, and a replaced file keeps its own. If path is a symbolic link, WriteFile
// replaces the target. It writes directly to a device or a pipe. It returns an error of write
// unchanged; other errors name path.
func WriteFile(path string, write func(io.Writer) error) error {
	info, device, err := existing(path)
	switch {
	case err != nil:
		return err
	case device:
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	t := &temporary{path: path, old: info}
	defer t.remove()
	if err := write(t); err != nil {
		return err
	}
	return t.rename()
}

// existing describes what path holds: nil if nothing, or a device or pipe. A folder is an error.
func existing(path string) (info fs.FileInfo, device bool, err error) {
	info, err = os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case info.IsDir():
		return nil, false, isFolder(path)
	}
	return info, !info.Mode().IsRegular(), nil
}

// CheckFile returns an error if WriteFile cannot write the file. Call it before computing the
// content.
func CheckFile(path string) error {
	info, device, err := existing(path)
	if err != nil || device {
		return err
	}
	t := &temporary{path: path, old: info}
	defer t.remove()
	return t.create()
}

func isFolder(path string) error {
	return &fs.PathError{Op: "write", Path: path, Err: errors.New("is a folder")}
}

// temporary is the file that will replace path. The first write creates it, so a process that
// ends earlier leaves nothing behind.
type temporary struct {
	path string
	old  fs.FileInfo // describes the file to replace; nil if no such file exists
	to   string      // path, or the target if path is a link
	f    *os.File
}

// create creates the file on its first call.
func (t *temporary) create() (err error) {
	if t.f != nil {
		return nil
	}
	if t.old != nil { // do not replace a file that is read-only
		old, err := os.OpenFile(t.path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		old.Close()
	}
	t.to = target(t.path)
	for range 100 { // until the name is unused
		name := filepath.Join(filepath.Dir(t.to), fmt.Sprintf(".pgsvi-%d", rand.Uint32()))
		t.f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err == nil && t.old != nil {
		err = t.f.Chmod(t.old.Mode().Perm())
	}
	return t.named(err)
}

// target returns the file that a chain of links leads to. It need not exist.
func target(path string) string {
	for range 40 { // Linux also follows 40 links
		to, err := os.Readlink(path)
		if err != nil { // not a link
			return path
		}
		if !filepath.IsAbs(to) {
			to = filepath.Dir(path) + string(filepath.Separator) + to
		}
		path = to
	}
	return path
}

// named returns an error with the path of the file instead of the temporary one.
func (t *temporary) named(err error) error {
	if own := (*fs.PathError)(nil); errors.As(err, &own) {
		return &fs.PathError{Op: "write", Path: t.path, Err: own.Err}
	}
	return err
}

func (t *temporary) Write(b []byte) (int, error) {
	if err := t.create(); err != nil {
		return 0, err
	}
	n, err := t.f.Write(b)
	return n, t.named(err)
}

// rename moves the file to its final name.
func (t *temporary) rename() error {
	if err := t.create(); err != nil { // write produced nothing
		return err
	}
	if err := t.f.Close(); err != nil {
		return t.named(err)
	}
	if err := os.Rename(t.f.Name(), t.to); err != nil {
		if own := (*os.LinkError)(nil); errors.As(err, &own) {
			err = own.Err
		}
		return &fs.PathError{Op: "write", Path: t.path, Err: err}
	}
	t.f = nil
	return nil
}

// remove deletes the file unless it was renamed.
func (t *temporary) remove() {
	if t.f != nil {
		t.f.Close()
		os.Remove(t.f.Name())
	}
}
