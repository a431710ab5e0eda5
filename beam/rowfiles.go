package beam

import (
	"fmt"
	"os"
	"sync"

	"github.com/pgsvi/pgsvi/data"
)

// open caches the row files that this process has read, because each holds an index of its blocks.
var open struct {
	sync.Mutex
	files map[string]*openFile
}

type openFile struct {
	once sync.Once
	file *data.RowFile
	err  error
}

// mostOpen is the largest number of cached row files. They hold little memory, and no descriptor
// unless they are being read.
const mostOpen = 1024

// openRows returns a row file, from the cache if the file has not changed.
func openRows(path string) (*data.RowFile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("pgsvi: %w", err)
	}
	key := fmt.Sprintf("%s %d %d", path, info.Size(), info.ModTime().UnixNano())
	open.Lock()
	f := open.files[key]
	if f == nil {
		if len(open.files) >= mostOpen || open.files == nil {
			open.files = map[string]*openFile{}
		}
		f = &openFile{}
		open.files[key] = f
	}
	open.Unlock()
	f.once.Do(func() { f.file, f.err = data.OpenRows(path) })
	return f.file, f.err
}
