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

// savedTypes are the kernels and likelihoods that can be saved. Each is registered
// where it is declared.
var savedTypes save.Registry

// loadable is what Load reads.
type loadable[T any] interface{ load(r io.Reader) (T, error) }

// Load reads a posterior or stream that its method Save has written:
//
//	post, err := pgsvi.Load[*pgsvi.GPPosterior](file)
//
// T is a pointer to a posterior, a GLMStream or a CTMStream. Predictions are those of the saved
// posterior, and a stream continues as the saved one would, to the last bit. All of r must be the
// file. Load factorises the covariance again: about D³/3 operations for a full one of D weights,
// N³/3 for a GP of N rows and M³/3 for a SparseGP of rank M.
//
// The error wraps ErrFile if r is not such a file, is damaged or of a newer release, or has
// invalid values. It also wraps ErrParam if the type of the kernel or likelihood is not
// registered. It wraps ErrMemory, and not ErrFile, if the rows are too many for the limit. A
// failure of r is wrapped unchanged.
func Load[T loadable[T]](r io.Reader) (T, error) {
	var t T
	return t.load(r)
}

// Register makes a Kernel or Likelihood of your own known to Save and Load, under the given name.
// v is any value of the type, which encoding/json must be able to write and read. Types of this
// package are registered.
//
// The part of the name after the last dot also names a Kernel in messages and parameters, such as
// Matern72 for "example.com/kernels.Matern72". Do not change a name later: files contain it.
// Register panics if v is nil, if the name is empty or belongs to another type, or if the type
// has another name. It is safe for concurrent use.
func Register(name string, v any) {
	if err := savedTypes.Add(name, v); err != nil {
		panic("pgsvi: " + err.Error())
	}
}

// builtin are types of the package by name. Each file registers its own as it is initialised.
type builtin map[string]any

func (b builtin) register() struct{} {
	for name, v := range b {
		Register(name, v)
	}
	return struct{}{}
}

// registerComposite is Register of a list of values that are registered; see save.Registry.
func registerComposite(name string, v any, parts func(v any) []any,
	join func(parts []any) (any, error)) {
	if err := savedTypes.AddComposite(name, v, parts, join); err != nil {
		panic("pgsvi: " + err.Error())
	}
}

// saveValue returns a Kernel or Likelihood as it is saved. The error wraps ErrParam.
func saveValue(v any) (save.Value, error) {
	s, err := savedTypes.Marshal(v)
	if err != nil {
		return s, fmt.Errorf("pgsvi: a %T cannot be saved: %w: %w", v, err, ErrParam)
	}
	// What encoding/json does not see, such as a field that is not exported, must not be lost.
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

// parametrised is what a Kernel and a Parametric have in common.
type parametrised interface{ Params() []Param }

// paramsOf returns the parameters of a Kernel or Likelihood.
func paramsOf(v any) []Param {
	if p, ok := v.(parametrised); ok {
		return p.Params()
	}
	return nil
}

// loadValue returns what saveValue was given, which must be a T that check has nothing to say
// of. The error wraps ErrParam where the type is not known.
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

// checkText returns an error unless texts are UTF-8, which JSON is.
func checkText(what string, texts []string) error {
	for i, s := range texts {
		if !utf8.ValidString(s) {
			return fmt.Errorf("pgsvi: %s %d, %q, is not UTF-8 and cannot be saved: %w", what, i, s,
				ErrParam)
		}
	}
	return nil
}

// saveTo writes a file with v as JSON. The error of w is returned as it is.
func saveTo(w io.Writer, kind save.Kind, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("pgsvi: saving a %s: %w: %w", kind.Name, err, ErrNotFinite)
	}
	return kind.Write(w, body)
}

// loadFrom reads a file that saveTo has written from an S, in which every number is finite, as
// encoding/json has it. All errors but those of r wrap ErrFile, or else ErrMemory: with a file that
// is only too large nothing is wrong.
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

// readBody returns the body of a file of the given kind. All errors but those of r wrap ErrFile.
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

// fileError is an ErrFile: err is what is wrong with a file or with what it holds, and may have the
// name of the package already.
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

// unmarshalState is save.Unmarshal with an error that wraps ErrFile.
func unmarshalState(b []byte, state func(*save.State)) error {
	if err := save.Unmarshal(b, state); err != nil {
		return fmt.Errorf("pgsvi: state of a run: %w: %w", sentinel.Bare(err), ErrFile)
	}
	return nil
}

// fingerprint is the digest of a model, of data and options alike, once it has been computed.
type fingerprint struct {
	sum   uint64
	known bool
}

// state writes the digest that digest makes, or makes another one a fault.
func (f *fingerprint) state(c *save.State, digest func(*save.Digest)) {
	sum := f.of(digest)
	c.Uint64(&sum)
	c.Check(sum == f.sum,
		"it is of another model (other data, options or divergence) or of another release: run "+
			"it again")
}

// of returns the digest that digest makes.
func (f *fingerprint) of(digest func(*save.Digest)) uint64 {
	if !f.known {
		var d save.Digest
		digest(&d)
		f.sum, f.known = d.Sum(), true
	}
	return f.sum
}

// digestValue shows d a Kernel or Likelihood: as it is saved, or by type and parameters.
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
