package beam

import (
	"bytes"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// written returns a Parquet file with the given lines.
func written[T any](t *testing.T, lines ...T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := parquet.Write(&b, lines); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func textsOf(t *testing.T) []byte {
	return written(t, struct {
		Name string
		Y    float64
	}{"a", 1})
}

func gapsOf(t *testing.T) []byte {
	one := 1.0
	type line struct {
		A *float64
		Y float64
	}
	return written(t, line{&one, 1}, line{nil, 1})
}
