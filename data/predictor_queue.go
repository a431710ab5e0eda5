package data

import (
	"runtime"

	"github.com/pgsvi/pgsvi/internal/parallel"
)

// This file predicts the rows of a table a block at a time, so that all processors share the work.
// Predictor.Table calls it. Each answer depends on its row alone, so the answers are the same for any
// number of processors.

const (
	queueRows  = 512     // rows per block; waking a goroutine takes as long as predicting 20 rows
	queueCells = 1 << 16 // cells per block; a block of many columns has fewer rows
)

// A queue holds the rows of a table that are not yet predicted.
type queue struct {
	p     *Predictor
	t     *Table
	level float64
	yield func(*Answer, error) bool

	rows  []queued
	n     int // number of rows in use
	loop  parallel.Loop
	works []scratch // one per worker
}

// queued is a row of a queue, and its answer after flush.
type queued struct {
	rec    record
	answer *Answer
	err    error
}

// add appends a record, whose cells are valid until the next call. It returns the error of flush.
func (q *queue) add(rec *record) error {
	if q.n == len(q.rows) {
		q.rows = append(q.rows, queued{})
	}
	row := &q.rows[q.n]
	cells := append(row.rec.cells[:0], rec.cells...)
	row.rec = *rec
	row.rec.cells = cells
	if q.n++; q.n < queueRows && q.n*len(cells) < queueCells {
		return nil
	}
	return q.flush()
}

// flush predicts the rows and yields the answers in order. It returns errStop if the caller needs
// no more answers, or an error if the context of the table is done.
func (q *queue) flush() error {
	n := q.n
	q.n = 0
	workers := runtime.GOMAXPROCS(0)
	for len(q.works) < workers {
		q.works = append(q.works, scratch{})
	}
	q.loop.Run(n, queueRows/16, workers, q)
	for i := range q.rows[:n] {
		if err := q.t.canceled(); err != nil {
			return q.t.named(err)
		}
		if row := &q.rows[i]; !q.yield(row.answer, row.err) {
			return errStop
		}
	}
	return nil
}

// Do predicts the rows from lo to hi.
func (q *queue) Do(worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		row := &q.rows[i]
		a, err := (*Answer)(nil), row.rec.fault
		if err == nil {
			if a, err = q.p.answer(&q.works[worker], row.rec.cells, q.level); err != nil {
				err = atLine(row.rec.line, err)
			}
		}
		if err != nil {
			a, err = noAnswer(), q.t.named(err)
		}
		a.Row, a.Line = row.rec.row, row.rec.line
		row.answer, row.err = a, err
	}
}
