package pgsvi

import (
	"fmt"
	"io"
	"reflect"

	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/normal"
	"github.com/pgsvi/pgsvi/internal/save"
)

// expFile and gaussianFile are the file types of an Exp and of a Gaussian.
var (
	expFile      = save.Kind{Name: "Exp", Version: 1}
	gaussianFile = save.Kind{Name: "Gaussian", Version: 1}
)

var _ = builtin{
	"pgsvi.GammaFamily":         expfam.GammaFamily{},
	"pgsvi.InverseGammaFamily":  expfam.InverseGammaFamily{},
	"pgsvi.BetaFamily":          expfam.BetaFamily{},
	"pgsvi.DirichletFamily":     expfam.DirichletFamily{},
	"pgsvi.CategoricalFamily":   expfam.CategoricalFamily{},
	"pgsvi.PoissonFamily":       expfam.PoissonFamily{},
	"pgsvi.WishartFamily":       expfam.WishartFamily{},
	"pgsvi.NormalWishartFamily": expfam.NormalWishartFamily{},
	"pgsvi.GaussianFamily":      normal.Family{},
	"pgsvi.copies":              familyCopies(0),
}.register()

func init() {
	registerComposite("pgsvi.ProductOf", familyList(nil),
		func(v any) []any { return v.(familyList) },
		func(parts []any) (any, error) { return familyList(parts), nil })
}

// familyList is the saved form of a product of families. Its elements are families, lists of them,
// and familyCopies.
type familyList []any

// familyCopies is the number of parts that the next element of a familyList stands for. A product
// with 100,000 equal parts is thus saved in a few bytes.
type familyCopies int

// familyForm returns the form in which f is saved: f itself, or a familyList if f is a product.
func familyForm(f expfam.Family) any {
	var list familyList
	var last any
	run := 0
	end := func() {
		if run > 1 {
			list = append(list, familyCopies(run))
		}
		if run > 0 {
			list = append(list, last)
		}
	}
	if !expfam.EachPart(f, func(_ int, g expfam.Family, _, _, _ int) {
		form := familyForm(g)
		if run > 0 && reflect.DeepEqual(form, last) {
			run++
			return
		}
		end()
		last, run = form, 1
	}) {
		return f
	}
	end()
	return list
}

// familyFrom returns the family that familyForm was given. The family may have at most the given
// number of parameters, so that a short file cannot describe a large one.
func familyFrom(form any, most int) (expfam.Family, error) {
	list, ok := form.(familyList)
	if !ok {
		f, ok := form.(Family)
		if !ok {
			return nil, fmt.Errorf("a %T is not a Family: %w", form, ErrParam)
		}
		if !familyFits(f, most) {
			return nil, fmt.Errorf("%s does not have %d natural parameters: %w", expfam.Name(f),
				most, ErrShape)
		}
		return f, nil
	}
	var parts []expfam.Family
	copies := 1
	for i, x := range list {
		if n, ok := x.(familyCopies); ok && copies == 1 && n > 1 && i+1 < len(list) {
			copies = int(n)
			continue
		}
		part, err := familyFrom(x, most)
		if err != nil {
			return nil, fmt.Errorf("part %d: %w", i, err)
		}
		size := part.NumParams()
		if copies > most/size {
			return nil, fmt.Errorf("%d parts of %s have more natural parameters than the %d that "+
				"are left: %w", copies, expfam.Name(part), most, ErrShape)
		}
		for most -= copies * size; copies > 0; copies-- {
			parts = append(parts, part)
		}
		copies = 1
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("a product without parts: %w", ErrEmpty)
	}
	return expfam.Product(parts), nil
}

// familyFits reports whether f is valid and has at most the given number of parameters.
func familyFits(f expfam.Family, most int) bool {
	size, least := 1, 1
	switch f := f.(type) {
	case normal.Family:
		size = f.D
	case expfam.BetaFamily:
		least = 1 + f.K // K must be 0
	case expfam.DirichletFamily:
		size, least = f.K, 2
	case expfam.CategoricalFamily:
		size, least = f.K-1, 1
	case expfam.WishartFamily:
		size = f.D
	case expfam.NormalWishartFamily:
		size = f.Wishart.D
	}
	// The number of parameters may overflow if size is not checked first.
	if size < least || size > most {
		return false
	}
	n := f.NumParams()
	return n >= 1 && n <= most && f.Dim() >= 1
}

// savedExp is the JSON form of an Exp.
type savedExp struct {
	Family      save.Value         `json:"family"`
	Coordinates Coordinates        `json:"coordinates"`
	Natural     save.List[float64] `json:"natural"`
}

// Save writes q, and Load restores it bit for bit. A custom Family, also as a part of a product,
// must be registered (see Register). The error wraps ErrParam if it is not, or if encoding/json
// does not keep all of its fields. Save returns any error of w unchanged.
func (q *Exp) Save(w io.Writer) error {
	form := familyForm(q.at.F)
	family, err := savedTypes.Marshal(form)
	if err == nil {
		var back any
		if back, err = savedTypes.Unmarshal(family); err == nil && !reflect.DeepEqual(back, form) {
			err = fmt.Errorf("encoding/json does not keep its fields; export them, or give it " +
				"MarshalJSON and UnmarshalJSON")
		}
	}
	if err != nil {
		return fmt.Errorf("pgsvi: the family %.200s cannot be saved: %w: %w",
			expfam.Name(q.at.F), err, ErrParam)
	}
	return saveTo(w, expFile, &savedExp{family, q.coords, q.at.Eta})
}

func (*Exp) load(r io.Reader) (*Exp, error) { return loadFrom(r, expFile, (*savedExp).load) }

func (s *savedExp) load() (*Exp, error) {
	form, err := savedTypes.Unmarshal(s.Family)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrParam)
	}
	f, err := familyFrom(form, len(s.Natural))
	if err != nil {
		return nil, err
	}
	if s.Coordinates != MeanParams && s.Coordinates != Natural {
		return nil, fmt.Errorf("an Exp has no coordinates %d: %w", int(s.Coordinates), ErrParam)
	}
	q, err := NewExp(f, s.Natural)
	if err != nil {
		return nil, err
	}
	q.coords = s.Coordinates
	return q, nil
}

// savedGaussian is the JSON form of a Gaussian.
type savedGaussian struct {
	Coordinates Coordinates   `json:"coordinates"`
	Numbers     *normal.Saved `json:"numbers"`
}

// Save writes g, and Load restores it bit for bit. It returns any error of w.
func (g *Gaussian) Save(w io.Writer) error {
	return saveTo(w, gaussianFile, &savedGaussian{g.Coordinates(), normal.SavedOf(g.form)})
}

func (*Gaussian) load(r io.Reader) (*Gaussian, error) {
	return loadFrom(r, gaussianFile, (*savedGaussian).load)
}

func (s *savedGaussian) load() (*Gaussian, error) {
	if s.Numbers == nil {
		return nil, fmt.Errorf("it has no numbers: %w", ErrEmpty)
	}
	if s.Coordinates < MeanParams || s.Coordinates > LogCholesky {
		return nil, fmt.Errorf("a Gaussian has no coordinates %d: %w", int(s.Coordinates), ErrParam)
	}
	if len(s.Numbers.Factor) > 0 {
		if err := checkFull(len(s.Numbers.Mean)); err != nil {
			return nil, err
		}
	}
	form, err := s.Numbers.Form(normal.Coords(s.Coordinates))
	if err != nil {
		return nil, err
	}
	return &Gaussian{form}, nil
}
