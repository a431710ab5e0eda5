package parallel

import (
	"runtime"
	"sync/atomic"
	"time"
)

// To wake a thread that sleeps takes from 5 to 100 µs, as long as many a loop of which there are
// hundreds in a fit. A goroutine that has done its part of a loop therefore looks for another for a
// while before it ends, and the caller for the end of the others before it sleeps. Both let every
// other goroutine go first. It is idle before the caller can know that it has ended its part:
// otherwise the next loop begins another goroutine, which finds no processor while this one looks.
const (
	linger = 200 * time.Microsecond
	looks  = 100 // about 1 µs, between which others have their turn
	// a turn of theirs as long as this says that there are more of them than processors:
	away = time.Millisecond
	rest = 50 * time.Millisecond // then so long nobody looks
)

var (
	idle    atomic.Int64           // helpers that have no loop and were not promised one
	next    = make(chan *Loop, 64) // to those that were promised one
	started atomic.Int64           // helpers so far
	crowded atomic.Int64           // until when nobody looks, in nanoseconds since epoch
	epoch   = time.Now()
)

// help makes another goroutine take part in l: one that looks for a loop where there is one, else a
// new one.
func help(l *Loop) {
	if take() {
		next <- l
		return
	}
	started.Add(1)
	go func() {
		for l := l; l != nil; l = another() {
			l.work(int(l.workers.Add(1)))
		}
	}()
}

// take takes away one of those that are idle, and reports whether there was one.
func take() bool {
	for n := idle.Load(); n > 0; n = idle.Load() {
		if idle.CompareAndSwap(n, n-1) {
			return true
		}
	}
	return false
}

// another returns a loop to take part in to a helper that is idle, or nil where none comes soon. No
// more than all processors but one look for one.
func another() (l *Loop) {
	if idle.Load() < int64(runtime.GOMAXPROCS(0)) {
		found := soon(func() bool {
			select {
			case l = <-next:
			default:
			}
			return l != nil
		})
		if found {
			return l
		}
	}
	if take() {
		return nil
	}
	return <-next // it was promised one
}

// soon calls done until it reports true or for a while, and returns what it reported. Where others
// want the processor, nobody looks for some time.
func soon(done func() bool) bool {
	begin := time.Since(epoch)
	if begin < time.Duration(crowded.Load()) {
		return false
	}
	for last := begin; last-begin < linger; {
		for range looks {
			if done() {
				return true
			}
		}
		runtime.Gosched()
		now := time.Since(epoch)
		if now-last > away {
			crowded.Store(int64(now + rest))
			return false
		}
		last = now
	}
	return false
}
