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
	rows, test int  // rows of the split table, and of its test part
	tests      bool // whether this is the test part
}

// Split splits the table at random into a part to train a model and a part to test it. Each row
// belongs to exactly one part, and both parts keep the order of the file. The test part has the
// given share of the rows, rounded to a whole number. All sets of this size have the same
// probability, and a seed chooses the same rows on any machine. Both parts read the file of t again
// and keep its row and line numbers. Each part detects the kinds of its columns from its own rows.
//
// The error wraps ErrParam if share is not in (0, 1) or if a part would be empty. Otherwise it is
// an error of reading.
func (t *Table) Split(share float64, seed uint64) (train, test *Table, err error) {
	k := int(math.Round(share * float64(t.rows)))
	if !(share > 0 && share < 1) || k == 0 || k == t.rows {
		return nil, nil, t.named(fmt.Errorf("pgsvi: the test share is %v of %s; it must be in (0, "+
			"1) and leave rows in both parts: %w", share, plural(t.rows, "row"), pgsvi.ErrParam))
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

// A picker reports for one row after the other whether it is in the parts of a table.
type picker []picked

type picked struct {
	part
	left int // rows that follow
	rand *rand.Rand
}

func newPicker(parts []part) (p picker) {
	for _, of := range parts {
		p = append(p, picked{of, of.rows, rand.New(rand.NewPCG(of.seed, uint64(of.rows)))})
	}
	return p
}

// takes reports whether the next row is in all parts. It chooses exactly the required number of
// test rows (Knuth, The Art of Computer Programming, vol. 2, algorithm S).
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
