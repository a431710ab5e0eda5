package pgsvi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// savedTypes holds the kernels, likelihoods and families that can be saved. Each type is
// registered next to its declaration.
var savedTypes save.Registry

// loadable is a type that Load can read.
type loadable[T any] interface{ load(r io.Reader) (T, error) }

// Load reads a posterior or stream that its Save method has written:
//
//	post, err := pgsvi.Load[*pgsvi.GPPosterior](file)
//
// T is a pointer to a posterior or a Stream. The posterior of your own model is an
// Exp or a Gaussian. A loaded posterior makes the same predictions, and a loaded stream continues
// like the saved one, bit for bit. Nothing may follow the file in r. Load factorizes the covariance
// again. This takes about D³/3 operations with the full covariance of D weights, N³/3 with a GP of
// N rows, and M³/3 with a SparseGP of rank M.
//
// Load wraps errors of r unchanged. The error wraps ErrFile if r is not such a file, is damaged,
// was written by a newer release, or holds invalid values. It also wraps ErrParam if the type of
// the kernel, likelihood or family is not registered. It wraps ErrMemory instead of ErrFile if the
// file has too many rows for the memory limit.
func Load[T loadable[T]](r io.Reader) (T, error) {
	var t T
	return t.load(r)
}

// Register makes a custom Kernel, Likelihood or Family available to Save and Load under the given
// name. The value v is any value of the type, which encoding/json must be able to write and read.
// The types of this package are registered already.
//
// The part of the name after the last dot also names a Kernel in messages and parameters, such as
// Matern72 for "example.com/kernels.Matern72". Do not change a name later, because files contain
// it. Register panics if v is nil, if the name is empty or belongs to another type, or if the type
// has another name. It is safe for concurrent use.
func Register(name string, v any) {
	if err := savedTypes.Add(name, v); err != nil {
		panic("pgsvi: " + err.Error())
	}
}

// builtinTypes is the set of all types in builtin lists. Only the initialization changes it.
var builtinTypes = make(map[reflect.Type]bool)

// builtin holds types of the package by name. Each file registers its types during initialization.
type builtin map[string]any

func (b builtin) register() struct{} {
	for name, v := range b {
		Register(name, v)
		builtinTypes[reflect.TypeOf(v)] = true
	}
	return struct{}{}
}

// registerComposite registers a list of registered values; see save.Registry.
func registerComposite(name string, v any, parts func(v any) []any,
	join func(parts []any) (any, error)) {
	if err := savedTypes.AddComposite(name, v, parts, join); err != nil {
		panic("pgsvi: " + err.Error())
	}
}

// saveValue returns the saved form of a Kernel or Likelihood. The error wraps ErrParam.
func saveValue(v any) (save.Value, error) {
	s, err := savedTypes.Marshal(v)
	if err != nil {
		return s, fmt.Errorf("pgsvi: a %T cannot be saved: %w: %w", v, err, ErrParam)
	}
	// A field that encoding/json ignores, such as an unexported field, must not be lost.
	back, err := savedTypes.Unmarshal(s)
	if err == nil && !slices.Equal(paramsOf(back), paramsOf(v)) {
		err = errors.New(
			"encoding/json does not keep its parameters; export its fields, or give it " +
				"MarshalJSON and UnmarshalJSON")
	}
	if err != nil {
		return s, fmt.Errorf("pgsvi: a %T cannot be saved: %w: %w", v, err, ErrParam)
	}
	return s, nil
}

// parametrized holds the method that Kernel and Parametric have in common.
type parametrized interface{ Params() []Param }

// paramsOf returns the parameters of a Kernel or Likelihood.
func paramsOf(v any) []Param {
	if p, ok := v.(parametrized); ok {
		return p.Params()
	}
	return nil
}

// loadValue returns the value that saveValue was given. The value must be a T for which check
// returns nil. The error wraps ErrParam if the type is not registered.
func loadValue[T any](s save.Value, check func(T) error) (value T, err error) {
	v, err := savedTypes.Unmarshal(s)
	if err != nil {
		return value, fmt.Errorf("%w: %w", err, ErrParam)
	}
	value, ok := v.(T)
	if !ok {
		return value, fmt.Errorf("%s is not a %s: %w", s.Type, reflect.TypeFor[T]().Name(),
			ErrParam)
	}
	return value, check(value)
}

// checkText returns an error unless all texts are UTF-8, because JSON is.
func checkText(what string, texts []string) error {
	for i, s := range texts {
		if !utf8.ValidString(s) {
			return fmt.Errorf("pgsvi: %s %d, %q, is not UTF-8 and cannot be saved: %w", what, i, s,
				ErrParam)
		}
	}
	return nil
}

// saveTo writes a file with v as JSON. It returns errors of w unchanged.
func saveTo(w io.Writer, kind save.Kind, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("pgsvi: saving a %s: %w: %w", kind.Name, err, ErrNotFinite)
	}
	return kind.Write(w, body)
}

// loadFrom reads a file that saveTo has written from an S. All numbers in it are finite, because
// encoding/json accepts no others. The error wraps ErrFile, unless r fails or the file is sound but
// too large, which is an ErrMemory.
func loadFrom[S, P any](r io.Reader, kind save.Kind, load func(*S) (P, error)) (none P, err error) {
	body, err := readBody(r, kind)
	if err != nil {
		return none, err
	}
	s := new(S)
	if err := json.Unmarshal(body, s); err != nil {
		return none, &fileError{kind, err}
	}
	p, err := load(s)
	if errors.Is(err, ErrMemory) {
		return none, fmt.Errorf("pgsvi: saved %s: %w", kind.Name, sentinel.Bare(err))
	}
	if err != nil {
		return none, &fileError{kind, err}
	}
	return p, nil
}

// readBody returns the body of a file of the given type. The error wraps ErrFile unless r fails.
func readBody(r io.Reader, kind save.Kind) ([]byte, error) {
	body, err := kind.Read(r)
	var fault save.Fault
	switch {
	case errors.As(err, &fault):
		return nil, &fileError{kind, err}
	case err != nil:
		return nil, fmt.Errorf("pgsvi: reading a saved %s: %w", kind.Name, err)
	}
	return body, nil
}

// fileError is an ErrFile. Its err is the fault of the file or of its contents, and may already
// have the prefix "pgsvi: ".
type fileError struct {
	kind save.Kind
	err  error
}

func (e *fileError) Error() string {
	what := strings.TrimSuffix(strings.ReplaceAll(e.err.Error(), "pgsvi: ", ""),
		": "+ErrFile.Error())
	return fmt.Sprintf("pgsvi: saved %s: %s: %v", e.kind.Name, what, ErrFile)
}

func (e *fileError) Unwrap() []error { return []error{e.err, ErrFile} }

// unmarshalState is save.Unmarshal with an error that wraps ErrFile. The error names the remedy,
// because the checksum of the file is correct and the state is therefore one of another release.
func unmarshalState(b []byte, state func(*save.Coder)) error {
	err := save.Unmarshal(b, state)
	if err == nil {
		return nil
	}
	advice := ""
	if !strings.Contains(err.Error(), repeatRun) {
		advice = " and is probably from another release; " + repeatRun
	}
	return fmt.Errorf("pgsvi: state of a run: %w%s: %w", sentinel.Bare(err), advice, ErrFile)
}

// repeatRun is the remedy for a saved run that cannot be continued.
const repeatRun = "repeat the run"

// fingerprint is the digest of the data and options of a model, computed once.
type fingerprint struct {
	sum   uint64
	known bool
}

// state writes the digest, or reports a fault if c holds another digest.
func (f *fingerprint) state(c *save.Coder, digest func(*save.Digest)) {
	sum := f.of(digest)
	c.Uint64(&sum)
	c.Check(sum == f.sum,
		"it belongs to another model (other data, options or divergence) or another release; "+
			repeatRun)
}

// of returns the digest that the function digest computes.
func (f *fingerprint) of(digest func(*save.Digest)) uint64 {
	if !f.known {
		var d save.Digest
		digest(&d)
		f.sum, f.known = d.Sum(), true
	}
	return f.sum
}

// digestValue adds a Kernel or Likelihood to d, in its saved form or else by type and parameters.
func digestValue(d *save.Digest, v any) {
	s, err := savedTypes.Marshal(v)
	if err != nil {
		d.Text(fmt.Sprintf("%T %v", v, paramsOf(v)))
		return
	}
	digestSaved(d, s)
}

func digestSaved(d *save.Digest, s save.Value) {
	d.Text(s.Type)
	d.Text(string(s.Value))
	d.Int(len(s.Parts))
	for _, p := range s.Parts {
		digestSaved(d, p)
	}
}
