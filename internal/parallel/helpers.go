package parallel

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Waking a thread that sleeps takes 5 to 100 µs, as long as many of the loops, and a fit runs
// hundreds of loops. A goroutine that has finished its part of a loop therefore looks for another
// loop for a while before it ends, and the caller looks for the end of the others before it
// sleeps. Both yield to every other goroutine first. A helper is marked idle before the caller
// can see that it has finished; otherwise the next loop would start another goroutine, which
// would find no free processor.
const (
	linger = 200 * time.Microsecond
	looks  = 100 // yields of about 1 µs each
	// A yield this long means that there are more goroutines than processors.
	away = time.Millisecond
	rest = 50 * time.Millisecond // nobody looks for this long afterward
)

var (
	idle    atomic.Int64           // idle helpers that no loop has claimed
	next    = make(chan *Loop, 64) // loops for helpers that were claimed
	started atomic.Int64           // number of helpers started
	crowded atomic.Int64           // nobody looks until this time, in nanoseconds since epoch
	epoch   = time.Now()
)

// help adds another goroutine to l: an idle helper if there is one, and a new goroutine
// otherwise.
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

// take claims an idle helper. It returns false if no helper is idle.
func take() bool {
	for n := idle.Load(); n > 0; n = idle.Load() {
		if idle.CompareAndSwap(n, n-1) {
			return true
		}
	}
	return false
}

// another returns the next loop for an idle helper, or nil if none comes soon. At most one helper
// less than there are processors waits.
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
	return <-next // a loop has claimed this helper
}

// soon calls done for a while until it returns true, and returns the last result. If other
// goroutines need the processor, nobody waits for some time.
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
