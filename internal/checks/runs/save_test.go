package runs

import (
	"bytes"
	"context"
	"encoding"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// isFileError reports whether err is an error of a file of the given kind, or of a file that is
// too large.
func isFileError(err error, kind string) bool {
	if errors.Is(err, ErrMemory) {
		return !errors.Is(err, ErrFile) && testkit.PrefixedOnce(err) &&
			strings.Contains(err.Error(), kind) && strings.HasSuffix(err.Error(), ErrMemory.Error())
	}
	return errors.Is(err, ErrFile) && testkit.PrefixedOnce(err) && strings.Contains(err.Error(),
		kind) && strings.HasSuffix(err.Error(), ErrFile.Error())
}

// savedFile is a small file and how to load it.
type savedFile struct {
	kind save.Kind
	data []byte
	load func(r io.Reader) (testkit.Saver, error)
}

func savedFileOf[P testkit.Saver, Q testkit.Saver](t testing.TB, kind save.Kind, p P,
	load func(io.Reader) (Q, error)) savedFile {
	t.Helper()
	var file bytes.Buffer
	if err := p.Save(&file); err != nil {
		t.Fatal(err)
	}
	return savedFile{kind, file.Bytes(),
		func(r io.Reader) (testkit.Saver, error) { return load(r) }}
}

// savedFiles returns a file of every kind.
func savedFiles(t testing.TB) []savedFile {
	t.Helper()
	ctx := context.Background()
	x, y := kit.SavedData(3, 2, BernoulliLogit{}, 1)
	gp, err := NewGP(x, y, Sum{SquaredExp{}, White{}}, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	post, _ := kit.MustFit(t, gp, nil)
	sparse, err := NewSparseGP(x, y, SquaredExp{}, BernoulliLogit{}, &SparseGPOptions{Rank: 2})
	if err != nil {
		t.Fatal(err)
	}
	sparsePost, _ := kit.FitSparse(t, sparse, nil)
	glm, err := NewGLM(x, y, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	glmPost, _ := kit.FitGLM(t, glm, nil)
	ctmPost, _ := kit.FitCTM(t, kit.SmallCorpus(), 2, nil, &Solver{MaxPasses: 1})
	rows, err := NewGLMStream(2, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := NewCTMStream(5, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(rows.AddAll(ctx, Rows(x, y)),
		docs.AddAll(ctx, kit.Documents(kit.SmallCorpus()))); err != nil {
		t.Fatal(err)
	}
	lda, err := NewLDA(kit.SmallCorpus(), 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	ldaPost, _, err := lda.Fit(ctx, &Solver{MaxPasses: 1})
	if err != nil {
		t.Fatal(err)
	}
	mixture, err := NewMixture(mat.NewDense(4, 2, []float64{0, 1, 2, -1, 5, 0.5, 4, 4}), 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	mixturePost, _, err := mixture.Fit(ctx, &Solver{MaxPasses: 1})
	if err != nil {
		t.Fatal(err)
	}
	loadRun := func(r io.Reader) (*Result, error) { return new(Solver).LoadResult(ctx, r, glm) }
	started, err := new(Solver).Run(ctx, glm)
	if err != nil {
		t.Fatal(err)
	}
	began, err := NewGLMRounds(2, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	product, err := ProductOf(NewIsotropic(2, 1), testkit.Must(NewGamma(2, 3)),
		testkit.Must(NewGamma(4, 5)))
	if err != nil {
		t.Fatal(err)
	}
	return []savedFile{
		savedFileOf(t, testkit.Kind("Result"), started, loadRun),
		savedFileOf(t, testkit.Kind("Exp"), product, Load[*Exp]),
		savedFileOf(t, testkit.Kind("Gaussian"), NewIsotropic(2, 0.3), Load[*Gaussian]),
		savedFileOf(t, testkit.Kind("GPPosterior"), post, Load[*GPPosterior]),
		savedFileOf(t, testkit.Kind("SparseGPPosterior"), sparsePost, Load[*SparseGPPosterior]),
		savedFileOf(t, testkit.Kind("GLMPosterior"), glmPost, Load[*GLMPosterior]),
		savedFileOf(t, testkit.Kind("CTMPosterior"), ctmPost, Load[*CTMPosterior]),
		savedFileOf(t, testkit.Kind("LDAPosterior"), ldaPost, Load[*LDAPosterior]),
		savedFileOf(t, testkit.Kind("MixturePosterior"), mixturePost, Load[*MixturePosterior]),
		savedFileOf(t, testkit.Kind("GLMStream"), rows, Load[*Stream[Row, *GLMPosterior]]),
		savedFileOf(t, testkit.Kind("CTMStream"), docs, Load[*Stream[Document, *CTMPosterior]]),
		savedFileOf(t, testkit.Kind("Rounds"), binarySaver{began},
			func(r io.Reader) (testkit.Saver, error) {
				return unmarshaled(r, new(Rounds[Row, *GLMPosterior]))
			}),
		savedFileOf(t, testkit.Kind("Shard"), binarySaver{began.Shard()},
			func(r io.Reader) (testkit.Saver, error) {
				return unmarshaled(r, new(Shard[Row]))
			}),
	}
}

// binarySaver saves what MarshalBinary returns.
type binarySaver struct{ encoding.BinaryMarshaler }

func (b binarySaver) Save(w io.Writer) error {
	file, err := b.MarshalBinary()
	if err == nil {
		_, err = w.Write(file)
	}
	return err
}

// unmarshaled returns v, which UnmarshalBinary makes of a file.
func unmarshaled(r io.Reader, v interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}) (testkit.Saver, error) {
	file, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return binarySaver{v}, v.UnmarshalBinary(file)
}

// TestSavedKinds checks that savedFiles has every kind of file that the sources declare.
func TestSavedKinds(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	files, err := filepath.Glob(kit.Root("*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`save\.Kind\{Name: "(\w+)"`).FindAllSubmatch(text,
			-1) {
			names[string(m[1])] = true
		}
	}
	if len(names) < 13 {
		t.Errorf("found only %v", names)
	}
	for _, f := range savedFiles(t) {
		delete(names, f.kind.Name)
		if _, err := f.load(bytes.NewReader(f.data)); err != nil {
			t.Error(err)
		}
		if want := fmt.Sprintf("pgsvi %s %d ", f.kind.Name, f.kind.Version); !bytes.HasPrefix(
			f.data, []byte(want)) {
			t.Errorf("the file begins with %.30q, want %q", f.data, want)
		}
	}
	if len(names) > 0 {
		t.Errorf("savedFiles has no %v", names)
	}
}

// TestSaveDamage checks that a file which is cut short, too long, of another kind or version, or
// has one wrong bit produces an error that names the kind.
func TestSaveDamage(t *testing.T) {
	t.Parallel()
	all := savedFiles(t)
	for _, f := range all {
		name := f.kind.Name
		bad := func(what string, data []byte) {
			t.Helper()
			if p, err := f.load(bytes.NewReader(data)); err == nil || !isFileError(err, name) {
				t.Errorf("%s, %s: %v, %v", name, what, p, err)
			}
		}
		for n := range f.data {
			bad(fmt.Sprintf("%d of %d bytes", n, len(f.data)), f.data[:n])
		}
		bad("a byte more", append(bytes.Clone(f.data), 'x'))
		first, last := bytes.IndexByte(f.data, '\n')+1,
			len(f.data)-len("\ncrc64 0123456789abcdef\n")
		// Every changed bit must be noticed. All bodies have the same checksum, so one bit in 29
		// is enough for a short test.
		for i := range 8 * len(f.data) {
			if testing.Short() && i >= 8*first && i < 8*last && i%29 > 0 {
				continue
			}
			f.data[i/8] ^= 1 << (i % 8)
			bad(fmt.Sprintf("bit %d of byte %d", i%8, i/8), f.data)
			f.data[i/8] ^= 1 << (i % 8)
		}
		for _, o := range all {
			if o.kind != f.kind {
				bad("a "+o.kind.Name, o.data)
				if _, err := f.load(bytes.NewReader(o.data)); !strings.Contains(err.Error(),
					o.kind.Name) {
					t.Errorf("%v does not say that it is a %s", err, o.kind.Name)
				}
			}
		}
		body := testkit.BodyOf(t, f.kind, string(f.data))
		newer := save.Kind{Name: name, Version: f.kind.Version + 1}
		bad("a newer version", []byte(testkit.FileOf(t, newer, body)))
		if _, err := f.load(strings.NewReader(testkit.FileOf(t, newer, body))); !strings.Contains(
			err.Error(), "newer release") {
			t.Errorf("%v does not say what to do", err)
		}
		bad("no version", []byte(testkit.FileOf(t, save.Kind{Name: name}, body)))
		bad("no body", []byte(testkit.FileOf(t, f.kind, "")))
		bad("null", []byte(testkit.FileOf(t, f.kind, "null")))
		failure := errors.New("broken pipe")
		for _, n := range []int{0, first, len(f.data) - 1} {
			if f.kind == testkit.Kind("Shard") || f.kind == testkit.Kind("Rounds") {
				break // which are read from bytes
			}
			_, err := f.load(io.MultiReader(bytes.NewReader(f.data[:n]), iotest.ErrReader(failure)))
			if !errors.Is(err, failure) || errors.Is(err, ErrFile) || !testkit.PrefixedOnce(err) {
				t.Errorf("%s, a reader that fails after %d bytes: %v", name, n, err)
			}
		}
		if _, err := f.load(iotest.OneByteReader(bytes.NewReader(f.data))); err != nil {
			t.Errorf("byte by byte: %v", err)
		}
		for _, room := range []int{0, first, last} {
			p, err := f.load(bytes.NewReader(f.data))
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Save(&fixedRoom{room}); err != errFullDisk {
				t.Errorf("%s, a disk with room for %d bytes: %v", name, room, err)
			}
		}
	}
}

// TestSaveLength checks that a wrong length in a file is an error and allocates nothing. It does
// not run in parallel, because the memory of other tests would count.
func TestSaveLength(t *testing.T) {
	for _, f := range savedFiles(t) {
		body := testkit.BodyOf(t, f.kind, string(f.data))
		for _, size := range []string{"1", "99999999999", "9223372036854775807",
			"9223372036854775808", "-1", "007"} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := f.load(
				strings.NewReader(fmt.Sprintf("pgsvi %s 1 %s\n%s", f.kind.Name, size, body)))
			if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 1<<18 {
				t.Errorf("%s, length %s: %d bytes allocated", f.kind.Name, size,
					after.TotalAlloc-before.TotalAlloc)
			}
			if err == nil || !isFileError(err, f.kind.Name) {
				t.Errorf("%s, length %s: %v", f.kind.Name, size, err)
			}
		}
	}
}

// mutated returns bytes that differ from good ones in a few places: bits, parts that are gone or
// doubled, and what replace puts at a place.
func mutated(rng *rand.Rand, good []byte, replace func(b []byte, at int) []byte) []byte {
	b := slices.Clone(good)
	for range 1 + rng.IntN(3) {
		at := rng.IntN(len(b) + 1)
		end := min(len(b), at+rng.IntN(20))
		switch rng.IntN(6) {
		case 0:
			if at < len(b) {
				b[at] ^= 1 << rng.IntN(8)
			}
		case 1:
			b = slices.Delete(b, at, end)
		case 2:
			b = slices.Insert(b, at, slices.Clone(b[at:end])...)
		case 3:
			b = b[:at]
		default:
			b = replace(b, at)
		}
	}
	return b
}

// mutate is mutated for text: a number becomes an odd one, or something odd is put in.
func mutate(rng *rand.Rand, good []byte) []byte {
	odd := []string{"-1", "0", "1e999", "null", "[]", "{}", "true", `""`, "NaN", "2147483648",
		"9223372036854775807", "18446744073709551616", "1e308", "-1e-320", "\x00", "\xff", `"`, "[",
		"}", ",", strings.Repeat("9", 400), strings.Repeat("[", 400)}
	return mutated(rng, good, func(b []byte, at int) []byte {
		lo, hi := at, at
		if rng.IntN(3) > 0 {
			for lo > 0 && strings.IndexByte("0123456789.e-", b[lo-1]) >= 0 {
				lo--
			}
			for hi < len(b) && strings.IndexByte("0123456789.e-", b[hi]) >= 0 {
				hi++
			}
		}
		return slices.Replace(b, lo, hi, []byte(odd[rng.IntN(len(odd))])...)
	})
}

// TestSaveMutated checks 10,000 files of each kind that differ from a good one in a few places.
// All must be errors. If the checksum is corrected, they may also be valid. None may use more
// memory than 64 MB and ten times its size.
func TestSaveMutated(t *testing.T) {
	files := 10000
	if !testkit.IsLong() {
		files = testkit.Shorter(500, 150)
	}
	for i, f := range savedFiles(t) {
		if f.kind == testkit.Kind("Shard") || f.kind == testkit.Kind("Rounds") {
			continue // TestShardMutations has them
		}
		rng := testkit.Rand(uint64(200 + i))
		body := []byte(testkit.BodyOf(t, f.kind, string(f.data)))
		try := func(what string, data []byte) error {
			var err error
			if n := testkit.Allocated(func() {
				_,
					err = f.load(bytes.NewReader(data))
			}); n > uint64(
				10*len(data)+64<<20) {
				t.Errorf("%s, %s: %d MB allocated for %d bytes: %q", f.kind.Name, what, n>>20,
					len(data), data)
			}
			if err != nil && !isFileError(err, f.kind.Name) {
				t.Errorf("%s, %s: %v", f.kind.Name, what, err)
			}
			return err
		}
		refused := 0
		for range files {
			if data := mutate(rng, f.data); !bytes.Equal(data, f.data) &&
				try("a file", data) == nil {
				t.Errorf("%s is read: %q", f.kind.Name, data)
			}
			if try("a body", []byte(testkit.FileOf(t, f.kind, string(mutate(rng, body))))) != nil {
				refused++
			}
		}
		if refused < files/4 {
			t.Errorf("%s: of %d bodies %d are refused", f.kind.Name, files, refused)
		}
	}
}

// fixedRoom is a writer that fails after the given number of bytes.
type fixedRoom struct{ left int }

func (w *fixedRoom) Write(b []byte) (int, error) {
	if len(b) > w.left {
		return w.left, errFullDisk
	}
	w.left -= len(b)
	return len(b), nil
}

// fuzzLoad loads the input, as a file and as the body of a file, and passes the result to use.
func fuzzLoad[P testkit.Saver](f *testing.F, kind save.Kind, load func(io.Reader) (P, error),
	use func(t *testing.T, p P), bodies ...string) {
	for _, s := range savedFiles(f) {
		if s.kind == kind {
			f.Add(string(s.data), false)
			bodies = append(bodies, testkit.BodyOf(f, kind, string(s.data)))
		}
	}
	for _, b := range bodies {
		f.Add(b, true)
	}
	f.Fuzz(func(t *testing.T, s string, isBody bool) {
		if isBody {
			s = testkit.FileOf(t, kind, s)
		}
		p, err := load(strings.NewReader(s))
		if err == nil {
			use(t, p)
		} else if !isFileError(err, kind.Name) {
			t.Errorf("error %v", err)
		}
	})
}

func FuzzLoadGPPosterior(f *testing.F) {
	fuzzLoad(f, testkit.Kind("GPPosterior"), Load[*GPPosterior],
		func(t *testing.T, p *GPPosterior) { checkVariances(t, p, p.Cols()) })
}

func FuzzLoadSparseGPPosterior(f *testing.F) {
	fuzzLoad(f, testkit.Kind("SparseGPPosterior"), Load[*SparseGPPosterior], func(t *testing.T,
		p *SparseGPPosterior) {
		checkVariances(t, p, p.Cols())
	})
}

// checkVariances fails unless the variances at some rows are not negative.
func checkVariances(t *testing.T, p testkit.Predictor[*Prediction], cols int) {
	if cols == 0 {
		return
	}
	x := mat.NewDense(4, cols, nil)
	for i := range 4 {
		x.Set(i, i%cols, float64(i*i)-2.5)
	}
	m, v := p.At(x).Latent(nil, nil)
	for i := range m {
		if !(v[i] >= 0) {
			t.Errorf("row %d: N(%v, %v)", i, m[i], v[i])
		}
	}
}

func FuzzLoadGLMPosterior(f *testing.F) {
	var bodies []string
	for _, s := range []string{
		`"names":["a","(Intercept)"],"intercept":true,"mean":[1,2],"covariance":{"precision":[2,0.5,1]},"prior":{"mean":[0,0],"diagonal":[1,0.01]}`,
		`"names":["a","b"],"mean":[1,2],"covariance":{"variances":[2,0.5]},"prior":{"mean":[0,0],"precision":[1,-0.5,2]}`,
		`"names":["a","b"],"mean":[1,2],"covariance":{"lowrank":{"rank":1,"d":[1,2],"u":[3,4]}},"prior":{"mean":[0,0],"diagonal":[1,1]}`,
		`"names":["a","b"],"mean":[1,2],"covariance":{"dual":{"dense":[1,2,3,4],"gamma":[1,-0.01]}},"prior":{"mean":[0,0],"diagonal":[1,1]}`,
		`"names":["a","b"],"mean":[1,2],"covariance":{"dual":{"ptr":[0,1,3],"ind":[0,0,1],"val":[1,2,1],"gamma":[1,2]}},"prior":{"mean":[0,0],"precision":[1,0,1]}`,
	} {
		body := `{"likelihood":{"type":"pgsvi.StudentT","value":{"DF":3}},"rows":9,` + s + "}"
		if _, err := Load[*GLMPosterior](
			strings.NewReader(testkit.FileOf(f, testkit.Kind("GLMPosterior"), body))); err != nil {
			f.Fatal(err)
		}
		bodies = append(bodies, body)
	}
	fuzzLoad(f, testkit.Kind("GLMPosterior"), Load[*GLMPosterior],
		func(t *testing.T, p *GLMPosterior) {
			x := mat.NewDense(1, max(1, p.Cols()), nil)
			for j := range p.Cols() {
				x.Set(0, j, float64(j%3)-0.7)
			}
			if p.Cols() > 0 {
				m, v := p.At(x).Latent(nil, nil)
				if v[0] < 0 || math.IsNaN(m[0]) != math.IsNaN(v[0]) {
					t.Errorf("N(%v, %v)", m[0], v[0])
				}
			}
			if text := p.Summary().String(); text == "" {
				t.Error("no summary")
			}
			p.Cov()
			p.RandWeights(mat.NewDense(1, p.Dim(), nil), testkit.Rand(1))
			if q, err := p.Update(context.Background(), Rows(x, []float64{1})); err == nil &&
				p.Cols() > 0 {
				q.SD(nil)
			}
		}, bodies...)
}

func FuzzLoadCTMPosterior(f *testing.F) {
	fuzzLoad(f, testkit.Kind("CTMPosterior"), Load[*CTMPosterior],
		func(t *testing.T, p *CTMPosterior) {
			if topicsOf(p) > 10 {
				return
			}
			if _, err := p.Infer(Document{Words: []int{0}, Counts: []float64{2}}); err != nil &&
				!errors.Is(err, ErrNotPosDef) && !errors.Is(err, ErrNotFinite) {
				t.Error(err)
			}
		})
}

func FuzzLoadLDAPosterior(f *testing.F) {
	fuzzLoad(f, testkit.Kind("LDAPosterior"), Load[*LDAPosterior],
		func(t *testing.T, p *LDAPosterior) {
			if !testkit.AllFinite(p.Lambda()) {
				t.Errorf("topics %v", p.Lambda())
			}
		})
}

func FuzzLoadMixturePosterior(f *testing.F) {
	fuzzLoad(f, testkit.Kind("MixturePosterior"), Load[*MixturePosterior],
		func(t *testing.T, p *MixturePosterior) {
			if !testkit.AllFinite(p.Means()) {
				t.Errorf("means %v", p.Means())
			}
			for k, w := range p.Weights(nil) {
				if !(w >= 0) || !(p.Cov(k).At(0, 0) >= 0) {
					t.Errorf("component %d: weight %v, covariance %v", k, w, p.Cov(k))
				}
			}
		})
}

func FuzzLoadExp(f *testing.F) {
	fuzzLoad(f, testkit.Kind("Exp"), Load[*Exp], func(t *testing.T, q *Exp) {
		if q.Dim() > 100 {
			return
		}
		if !testkit.AllFinite(mat.NewDense(1, q.NumParams(), q.MeanParams(nil))) {
			t.Errorf("mean parameters %v", q.MeanParams(nil))
		}
		testkit.Again(t, "Exp", q, Load[*Exp])
		q.Rand(nil, testkit.Rand(1))
		q.Factors()
	}, `{"family":{"type":"pgsvi.DirichletFamily","value":{"K":3}},"coordinates":2,"natural":[1,2,3]}`,
		`{"family":{"type":"pgsvi.NormalWishartFamily","value":{"Wishart":{"D":1}}},"natural":[2,-1,1,-1]}`)
}

func FuzzLoadGaussian(f *testing.F) {
	fuzzLoad(f, testkit.Kind("Gaussian"), Load[*Gaussian], func(t *testing.T, q *Gaussian) {
		for i, v := range q.Var(nil) {
			if !(v > 0) {
				t.Errorf("variance %d is %v", i, v)
			}
		}
		testkit.Again(t, "Gaussian", q, Load[*Gaussian])
		q.Rand(nil, testkit.Rand(1))
		q.Natural(nil)
	}, `{"coordinates":3,"numbers":{"mean":[1,2],"variance":[3,4]}}`,
		`{"numbers":{"mean":[1],"factor":[2],"logdet":1.4}}`)
}

func FuzzLoadGLMStream(f *testing.F) {
	type stream = Stream[Row, *GLMPosterior]
	fuzzLoad(f, testkit.Kind("GLMStream"), Load[*stream], func(t *testing.T, s *stream) {
		if p, err := s.Posterior(); err == nil {
			p.SD(nil)
		} else if !testkit.PrefixedOnce(err) {
			t.Error(err)
		}
	})
}

// mutateBits is mutated for bytes: a word becomes an odd one.
func mutateBits(rng *rand.Rand, good []byte) []byte {
	odd := []uint64{0, 1, 2, 1 << 31, 1<<63 - 1, 1 << 63, math.MaxUint64,
		math.Float64bits(math.NaN()), math.Float64bits(math.Inf(-1)), math.Float64bits(-1),
		math.Float64bits(1e300), uint64(len(good))}
	return mutated(rng, good, func(b []byte, at int) []byte {
		if at = at / 8 * 8; at+8 <= len(b) {
			binary.LittleEndian.PutUint64(b[at:], odd[rng.IntN(len(odd))])
		}
		return b
	})
}

// isRunError reports whether err is an error that LoadResult returns for an invalid state: the
// error of a file, or of a random source that differs from the Solver's.
func isRunError(err error) bool {
	return isFileError(err, testkit.Kind("Result").Name) || errors.Is(err, ErrParam) &&
		testkit.PrefixedOnce(err) && strings.Contains(err.Error(), "Solver.Src")
}

// FuzzLoadResult loads whatever is read as the state of one of the runs.
func FuzzLoadResult(f *testing.F) {
	ctx := context.Background()
	runs := interruptedRuns(f)
	for i, r := range runs {
		s := r.solver
		s.MaxIter = 2
		res, err := s.Run(ctx, r.model)
		if err != nil {
			f.Fatal(err)
		}
		var file bytes.Buffer
		if err := res.Save(&file); err != nil {
			f.Fatal(err)
		}
		f.Add(uint(i), []byte(testkit.BodyOf(f, testkit.Kind("Result"), file.String())))
	}
	f.Fuzz(func(t *testing.T, i uint, state []byte) {
		r := runs[i%uint(len(runs))]
		s := r.solver
		res, err := s.LoadResult(ctx,
			strings.NewReader(testkit.FileOf(t, testkit.Kind("Result"), string(state))), r.model)
		if err != nil {
			if !isRunError(err) {
				t.Errorf("%s: %v", r.name, err)
			}
			return
		}
		var file bytes.Buffer
		if err := res.Save(&file); err != nil && !testkit.PrefixedOnce(err) {
			t.Errorf("%s: %v", r.name, err)
		}
	})
}
