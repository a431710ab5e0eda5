package data

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi"
)

// A part is one of the two parts of a table that was split at random.
type part struct {
	seed       uint64
	rows, test int  // of the table that was split, and of them in the part to test by
	tests      bool // it is that part
}

// Split returns two parts of the table, to fit a model to train and to score it by test. Each row
// is in one of them, in the order of the file. test has the given share of the rows, rounded to a
// whole number, which are chosen at random: all sets of that size have the same probability, and
// the same seed chooses the same rows on any machine. Both parts read the file of t again, rows
// and lines keep their numbers there, and each part has found out by its own rows what its columns
// look like.
//
// The error wraps ErrParam if share is not in (0, 1) or one of the parts would be empty. Other
// errors are those of reading.
func (t *Table) Split(share float64, seed uint64) (train, test *Table, err error) {
	k := int(math.Round(share * float64(t.rows)))
	if !(share > 0 && share < 1) || k == 0 || k == t.rows {
		return nil, nil, t.named(fmt.Errorf("pgsvi: a share of %v of %s to test by, want one in "+
			"(0, 1) that leaves rows in both parts: %w", share, plural(t.rows, "row"),
			pgsvi.ErrParam))
	}
	p := part{seed: seed, rows: t.rows, test: k}
	if train, err = t.part(p); err == nil {
		p.tests = true
		test, err = t.part(p)
	}
	if err != nil {
		return nil, nil, t.named(err)
	}
	return train, test, nil
}

// part reads a part of t.
func (t *Table) part(p part) (*Table, error) {
	of := &Table{Name: t.Name, src: t.src, asked: t.asked, parts: append(slices.Clone(t.parts), p)}
	if err := of.profile(t.Format); err != nil {
		return nil, err
	}
	of.settleDecimal(t.Format)
	if of.proof.text == "" {
		of.proof = t.proof
	}
	for j, p := range of.profiles {
		p.counted = t.profiles[j].counts()
	}
	return of, nil
}

// A picker reports which rows are in the parts of a table, one after the other.
type picker []picked

type picked struct {
	part
	left int // rows to come
	rand *rand.Rand
}

func newPicker(parts []part) (p picker) {
	for _, of := range parts {
		p = append(p, picked{of, of.rows, rand.New(rand.NewPCG(of.seed, uint64(of.rows)))})
	}
	return p
}

// takes reports whether the next row is in all parts. It chooses as many rows to test by as there
// shall be (Knuth, The Art of Computer Programming, vol. 2, algorithm S).
func (p picker) takes() bool {
	for k := range p {
		of := &p[k]
		tests := of.left > 0 && of.rand.IntN(of.left) < of.test
		of.left--
		of.test -= b2i(tests)
		if tests != of.tests {
			return false
		}
	}
	return true
}
