package pgsvi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// savedLinear is a custom kernel with a registered type.
type savedLinear struct{ S float64 }

func (k savedLinear) Cov(x, y []float64) float64 { return k.S * k.S * x[0] * y[0] }
func (k savedLinear) Params() []Param {
	return []Param{{"S", k.S, 0, math.Inf(1)}}
}
func (k savedLinear) WithParams(v []float64) Kernel { return savedLinear{v[0]} }
func (k savedLinear) Grad(dst, x, y []float64) float64 {
	dst[0] = 2 * k.Cov(x, y)
	return k.Cov(x, y)
}

// isFileError reports whether err is the error of a file of the given type, or of a file that is
// too large.
func isFileError(err error, kind string) bool {
	if errors.Is(err, ErrMemory) {
		return !errors.Is(err, ErrFile) && prefixedOnce(err) && strings.Contains(err.Error(),
			kind) && strings.HasSuffix(err.Error(), ErrMemory.Error())
	}
	return errors.Is(err, ErrFile) && prefixedOnce(err) && strings.Contains(err.Error(), kind) &&
		strings.HasSuffix(err.Error(), ErrFile.Error())
}

// loadAny loads a value without checks.
func loadAny[T any](s save.Value) (T, error) {
	return loadValue(s, func(T) error { return nil })
}

// awkward returns p with values that need all digits of a float64.
func awkward(params []Param) []float64 {
	values := make([]float64, len(params))
	for i, p := range params {
		values[i] = math.Nextafter(1.1*p.Value, math.Inf(1))
	}
	return values
}

// craftedLists returns one JSON text of type t for each list in t. The text holds only that list,
// with about size bytes of the shortest possible elements. A form that contains itself is in the
// texts once.
func craftedLists(t reflect.Type, size int, within ...reflect.Type) (crafted []string) {
	if slices.Contains(within, t) {
		return nil
	}
	within = append(slices.Clip(within), t)
	switch t.Kind() {
	case reflect.Pointer:
		return craftedLists(t.Elem(), size, within...)
	case reflect.Slice:
		short := map[reflect.Kind]string{reflect.String: `""`, reflect.Bool: "true",
			reflect.Slice: "[]", reflect.Struct: "{}"}[t.Elem().Kind()]
		if short = cmp.Or(short, "0"); t.Elem().Kind() == reflect.Uint8 {
			return []string{`"` + strings.Repeat("A", size) + `"`}
		}
		crafted = append(crafted, "["+strings.Repeat(short+",", size/(len(short)+1))+short+"]",
			"["+strings.Repeat("null,", size/5)+"null]")
		if t.Elem() != reflect.TypeFor[save.Value]() {
			for _, c := range craftedLists(t.Elem(), size, within...) {
				crafted = append(crafted, "["+c+"]")
			}
		}
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" || !f.IsExported() || len(f.Index) > 1 {
				continue
			}
			for _, c := range craftedLists(f.Type, size, within...) {
				crafted = append(crafted, fmt.Sprintf(`{"%s":%s}`, cmp.Or(name, f.Name), c))
			}
		}
	}
	return crafted
}

// TestLoadCrafted checks that a body with one list of the shortest possible elements, or with deep
// nesting, is an error and needs at most ten times its memory.
func TestLoadCrafted(t *testing.T) {
	size := shorter(1<<17, 1<<16)
	// The numbers of a Result have as many bytes there as in memory. Shard and Rounds are not JSON,
	// so TestShardMutations checks them.
	for _, f := range []struct {
		kind save.Kind
		body any
		load func(r io.Reader) error
	}{
		{gpFile, savedGP{}, loadError[*GPPosterior]},
		{sparseGPFile, savedSparseGP{}, loadError[*SparseGPPosterior]},
		{glmFile, savedGLM{}, loadError[*GLMPosterior]},
		{ctmFile, savedCTM{}, loadError[*CTMPosterior]},
		{ldaFile, savedLDA{}, loadError[*LDAPosterior]},
		{mixtureFile, savedMixture{}, loadError[*MixturePosterior]},
		{expFile, savedExp{}, loadError[*Exp]},
		{gaussianFile, savedGaussian{}, loadError[*Gaussian]},
		{glmStreamFile, savedGLMStream{}, loadError[*Stream[Row, *GLMPosterior]]},
		{ctmStreamFile, savedCTMStream{}, loadError[*Stream[Document, *CTMPosterior]]},
	} {
		bodies := craftedLists(reflect.TypeOf(f.body), size)
		if len(bodies) < 5 {
			t.Fatalf("%s: %d lists", f.kind.Name, len(bodies))
		}
		if f.kind == gpFile {
			parts := func(n int) string { return `{"kernel":` + strings.Repeat(`{"parts":[`, n) }
			bodies = append(bodies, parts(size/10), parts(2000)+strings.Repeat("]}", 2000)+"}",
				parts(140)+`{"value":[`+strings.Repeat("0,", size/2)+"0]}"+strings.Repeat("]}",
					140)+"}")
		}
		for i, b := range append(bodies, strings.Repeat("[", size),
			`{"x":`+strings.Repeat("[", size/2)+strings.Repeat("]", size/2)+"}") {
			if testing.Short() && i%3 > 0 {
				continue
			}
			file := fileOf(t, f.kind, b)
			most := 10
			if strings.Contains(b, "[[0") || strings.Contains(b, "[[]") ||
				strings.Contains(b, "[{\"") {
				most = 25 // the buffer from which an inner list grows is freed
			}
			var err error
			if n := testkit.Allocated(func() { err = f.load(strings.NewReader(file)) }); n > uint64(
				most*len(file)+1<<18) {
				t.Errorf("%s, %.60q: %.1f times its size", f.kind.Name, b,
					float64(n)/float64(len(file)))
			}
			if err == nil || !isFileError(err, f.kind.Name) {
				t.Errorf("%s, %.60q: %v", f.kind.Name, b, err)
			}
		}
	}
}

// loadError returns the error of Load.
func loadError[T loadable[T]](r io.Reader) error {
	_, err := Load[T](r)
	return err
}

// forgetfulKernel is a custom kernel with a field that encoding/json ignores.
type forgetfulKernel struct {
	savedLinear
	s float64
}

func (k forgetfulKernel) Params() []Param { return []Param{{"s", k.s, 0, math.Inf(1)}} }

// TestSaveValueErrors checks that values are not saved if they would change on loading.
func TestSaveValueErrors(t *testing.T) {
	Register("test.forgetfulKernel", forgetfulKernel{})
	Register("test.pointerKernel", &pointerKernel{})
	deep := Kernel(SquaredExp{})
	for range 200 {
		deep = Sum{deep}
	}
	for name, c := range map[string]struct {
		v    any
		want string
	}{
		"hidden field": {forgetfulKernel{s: 2}, "does not keep its parameters"},
		"not finite":   {SquaredExp{Scale: math.Inf(1)}, "unsupported value"},
		"nested":       {deep, "nested"},
		"unknown part": {Sum{SquaredExp{}, userMatern72{}}, "see Register"},
		"nil part":     {Product{nil}, "see Register"},
		"nil":          {nil, "see Register"},
	} {
		if _, err := saveValue(c.v); !errors.Is(err, ErrParam) || !prefixedOnce(err) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s, err := saveValue(&pointerKernel{savedLinear{3}}); err != nil {
		t.Error(err)
	} else if k, err := loadAny[Kernel](s); err != nil || k.Params()[0].Value != 3 {
		t.Errorf("a pointer: %v, %v", k, err)
	}
	part := save.Value{Type: "pgsvi.SquaredExp", Value: []byte("{}")}
	nested := part
	for range 200 {
		nested = save.Value{Type: "pgsvi.Sum", Parts: []save.Value{nested}}
	}
	for name, c := range map[string]struct {
		v    save.Value
		want string
	}{
		"null pointer": {save.Value{Type: "test.pointerKernel", Value: []byte("null")},
			"nil pointer"},
		"nested": {nested, "nested"},
		"likelihood in it": {save.Value{Type: "pgsvi.Sum",
			Parts: []save.Value{part, {Type: "pgsvi.Laplace", Value: []byte("{}")}}}, "part 1"},
		"no value": {save.Value{Type: "pgsvi.SquaredExp"}, "value of pgsvi.SquaredExp"},
		"a likelihood": {save.Value{Type: "pgsvi.Laplace", Value: []byte("{}")},
			"pgsvi.Laplace is not a Kernel"},
		// The message lists the known types.
		"unknown": {save.Value{Type: "pgsvi.Cubic"}, "pgsvi.SquaredExp"},
	} {
		if _, err := loadAny[Kernel](c.v); !errors.Is(err, ErrParam) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// pointerKernel is a custom kernel whose methods have a pointer receiver.
type pointerKernel struct{ L savedLinear }

func (k *pointerKernel) Cov(x, y []float64) float64 { return k.L.Cov(x, y) }
func (k *pointerKernel) Params() []Param            { return k.L.Params() }
func (k *pointerKernel) WithParams(
	v []float64) Kernel {
	return &pointerKernel{savedLinear{v[0]}}
}
func (k *pointerKernel) Grad(dst, x, y []float64) float64 { return k.L.Grad(dst, x, y) }

type unregistered struct{ BernoulliLogit }

func TestSaveErrors(t *testing.T) {
	gp := toyGP(t, 4, SquaredExp{}, BernoulliLogit{}, 22)
	post, _ := mustFit(t, gp, nil)
	var file bytes.Buffer
	if err := post.Save(&file); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, old, new string
		want           error
	}{
		{"not JSON", `{"rows"`, `"rows"`, ErrFile},
		{"rows", `"rows":4`, `"rows":5`, ErrShape},
		{"no rows", `"rows":4`, `"rows":0`, ErrShape},
		{"cols", `"cols":2`, `"cols":3`, ErrShape},
		{"kernel", `pgsvi.SquaredExp`, `pgsvi.Cubic`, ErrParam},
		{"kernel value", `"Scale":0`, `"Scale":-1`, ErrParam},
		{"kernel is", `{"type":"pgsvi.SquaredExp","value":{"Scale":0,"Length":0,"Lengths":null}}`,
			`{"type":"pgsvi.Laplace","value":{}}`, ErrParam},
		{"no kernel", `{"type":"pgsvi.SquaredExp","value":{"Scale":0,"Length":0,"Lengths":null}}`,
			`{}`, ErrParam},
		{"empty sum", `{"type":"pgsvi.SquaredExp","value":{"Scale":0,"Length":0,"Lengths":null}}`,
			`{"type":"pgsvi.Sum"}`, ErrParam},
		{"variance", `"v":[`, `"v":[-`, ErrParam},
		{"jitter", `"jitter":0`, `"jitter":-1`, ErrParam},
		{"not definite", `"gamma":[0.`, `"gamma":[-99999990.`, ErrNotPosDef},
	} {
		text := changed(t, testkit.Kind("GPPosterior"), file.String(), c.old, c.new)
		if _, err := Load[*GPPosterior](strings.NewReader(text)); !errors.Is(err, c.want) ||
			!errors.Is(err, ErrFile) || !prefixedOnce(err) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	gp.terms.Lik = viewOf(unregistered{})
	post, _ = mustFit(t, gp, nil)
	if err := post.Save(&file); !errors.Is(err, ErrParam) ||
		!strings.Contains(err.Error(), "see Register") {
		t.Errorf("unregistered likelihood: %v", err)
	}
}

func FuzzLoadCTMStream(f *testing.F) {
	stream := must(NewCTMStream(5, 2, nil))
	if err := stream.AddAll(context.Background(), documents(smallCorpus())); err != nil {
		f.Fatal(err)
	}
	var file strings.Builder
	if err := stream.Save(&file); err != nil {
		f.Fatal(err)
	}
	f.Add(bodyOf(f, ctmStreamFile, file.String()))
	f.Fuzz(func(t *testing.T, body string) {
		s, err := Load[*Stream[Document, *CTMPosterior]](
			strings.NewReader(fileOf(t, ctmStreamFile, body)))
		if err != nil {
			if !isFileError(err, "CTMStream") {
				t.Error(err)
			}
			return
		}
		m := s.engine.(*ctmStream).m
		if m.k > 10 || m.terms > 1000 || m.opt.Samples > 100 || m.opt.Inner+m.opt.FirstInner > 100 {
			return
		}
		if _, err := s.Posterior(); err != nil && !prefixedOnce(err) {
			t.Error(err)
		}
	})
}

// saveGPs saves and loads posteriors of a GP and a sparse GP with 8 rows.
func saveGPs(t *testing.T, name string, k Kernel, lik Likelihood, x *mat.Dense, y []float64) {
	t.Helper()
	gp, err := NewGP(x, y, k, lik, &GPOptions{Jitter: 1e-3})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	post, _, err := gp.Fit(t.Context(), nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	testkit.SamePredictions(t, name, post, Load[*GPPosterior], x, y)
	sparse, err := NewSparseGP(x, y, k, lik, &SparseGPOptions{Rank: 4})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	sparsePost, _, err := sparse.Fit(t.Context(), nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	testkit.SamePredictions(t, "sparse, "+name, sparsePost, Load[*SparseGPPosterior], x, y)
}
