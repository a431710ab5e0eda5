package beam

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"sync"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/register"
)

func init() {
	beam.RegisterType(reflect.TypeFor[blocks]())
	register.DoFn3x1[context.Context, blocks, func(int, []byte), error](&addFn{})
	register.DoFn4x1[context.Context, int, func(*[]byte) bool, func(int, []byte), error](&mergeFn{})
	register.DoFn3x1[context.Context, int, func(*[]byte) bool, error](&writeFn{})
	register.Emitter2[int, []byte]()
	register.Iter1[[]byte]()
}

// onBeam runs a round as a Beam job:
//
//	blocks → Reshuffle → addFn → GroupByKey → mergeFn → GroupByKey → writeFn
//
// The state is a file that each process reads once, and the last step writes the sum over all
// blocks to a file. So neither has to fit into a side input or a response of the runner.
func (d *driver) onBeam(ctx context.Context, a *adding, state []byte) (*part, error) {
	from, to := d.store.ofRound(d.rounds, "state"), d.store.ofRound(d.rounds, "sums")
	defer remove(context.WithoutCancel(ctx), from, to)
	if err := writeFile(ctx, from, state); err != nil {
		return nil, err
	}
	groups := int(math.Ceil(math.Sqrt(float64(len(d.plan)))))
	p, s := beam.NewPipelineWithRoot()
	s = s.Scope(fmt.Sprintf("round %d", d.rounds))
	elements := beam.Reshuffle(s, beam.CreateList(s, d.plan))
	parts := beam.ParDo(s, &addFn{Adding: *a, State: from, Groups: groups}, elements)
	parts = beam.ParDo(s, &mergeFn{Items: a.Items}, beam.GroupByKey(s, parts))
	beam.ParDo0(s, &writeFn{Items: a.Items, Path: to}, beam.GroupByKey(s, parts))
	if err := d.job.Run(ctx, p); err != nil {
		return nil, fmt.Errorf("the job failed; to continue with this round, run the fit with "+
			"Job.Dir and Job.Resume: %w", err)
	}
	b, err := readFile(ctx, to)
	if err != nil {
		return nil, fmt.Errorf("the job ended without its output; Job.Dir must be a folder that "+
			"all machines can access: %w", err)
	}
	sums := &part{}
	return sums, unseal(b, sums, to)
}

// addFn makes one part per bundle, because shards of the first round hold samples, which take less
// space when merged.
type addFn struct {
	Adding adding
	State  string // path of the state
	Groups int    // number of groups whose parts are merged first

	bundle *merger
	group  int
}

// StartBundle begins a part.
func (f *addFn) StartBundle(_ context.Context, _ func(int, []byte)) {
	f.bundle = &merger{items: f.Adding.Items}
}

// ProcessElement adds the blocks of an element.
func (f *addFn) ProcessElement(ctx context.Context, b blocks, _ func(int, []byte)) error {
	state, err := stateAt(ctx, f.State)
	if err != nil {
		return err
	}
	f.group = b.Element % f.Groups
	return f.Adding.addTo(ctx, f.bundle, state, b)
}

// FinishBundle emits the part.
func (f *addFn) FinishBundle(_ context.Context, emit func(int, []byte)) error {
	p, err := f.bundle.whole()
	if err != nil || p.Shard == nil && p.Fault == nil { // nothing was added
		return err
	}
	b, err := seal(p)
	if err == nil {
		emit(f.group, b)
	}
	return err
}

// lastState is the state of the round on which this process works.
var lastState struct {
	sync.Mutex
	path  string
	bytes []byte
}

// stateAt returns the state at a path. Each state has its own path.
func stateAt(ctx context.Context, path string) ([]byte, error) {
	lastState.Lock()
	defer lastState.Unlock()
	if lastState.path != path {
		b, err := readFile(ctx, path)
		if err != nil {
			return nil, fmt.Errorf("the state of the round; Job.Dir must be a folder that "+
				"all machines can access: %w", err)
		}
		lastState.path, lastState.bytes = path, b
	}
	return lastState.bytes, nil
}

// mergeFn merges the parts of a group.
type mergeFn struct{ Items itemKind }

// ProcessElement merges the parts of a group into one of group 0.
func (f *mergeFn) ProcessElement(_ context.Context, _ int, parts func(*[]byte) bool,
	emit func(int, []byte)) error {
	b, err := mergeAll(f.Items, parts)
	if err == nil {
		emit(0, b)
	}
	return err
}

// writeFn merges all parts and writes the result.
type writeFn struct {
	Items itemKind
	Path  string
}

// ProcessElement merges the parts of group 0.
func (f *writeFn) ProcessElement(ctx context.Context, _ int, parts func(*[]byte) bool) error {
	b, err := mergeAll(f.Items, parts)
	if err != nil {
		return err
	}
	return writeFile(ctx, f.Path, b)
}

// mergeAll merges sealed parts into one.
func mergeAll(items itemKind, parts func(*[]byte) bool) ([]byte, error) {
	m := merger{items: items}
	for b := []byte(nil); parts(&b); {
		if err := m.add(b); err != nil {
			return nil, err
		}
	}
	p, err := m.whole()
	if err != nil {
		return nil, err
	}
	return seal(p)
}

// here runs a round in this process. It takes elements in random order and merges them in a random
// tree.
func (d *driver) here(ctx context.Context, a *adding, state []byte) (*part, error) {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		parts []*part // not yet merged
		fail  error
		next  int
	)
	order := rand.Perm(len(d.plan))
	take := func() (blocks, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == len(order) || fail != nil {
			return blocks{}, false
		}
		next++
		return d.plan[order[next-1]], true
	}
	work := func() error {
		for b, ok := take(); ok; b, ok = take() {
			p, err := a.add(ctx, state, b)
			if err != nil {
				return err
			}
			for p != nil {
				mu.Lock()
				n := len(parts)
				if n == 0 || n < mostWaiting && rand.IntN(2) == 0 {
					parts, p = append(parts, p), nil
					mu.Unlock()
					break
				}
				i := rand.IntN(n)
				q := parts[i]
				parts[i], parts = parts[n-1], parts[:n-1]
				mu.Unlock()
				if p, err = mergeTwo(a.Items, p, q); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			if err := work(); err != nil {
				mu.Lock()
				fail = errors.Join(fail, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if fail != nil {
		return nil, fail
	}
	m := merger{items: a.Items}
	for _, i := range rand.Perm(len(parts)) {
		if err := m.addPart(parts[i]); err != nil {
			return nil, err
		}
	}
	return m.whole()
}

// mostWaiting is the largest number of unmerged parts in memory.
const mostWaiting = 16

// mergeTwo merges two parts.
func mergeTwo(items itemKind, p, q *part) (*part, error) {
	m := merger{items: items}
	if err := errors.Join(m.addPart(p), m.addPart(q)); err != nil {
		return nil, err
	}
	return m.whole()
}
