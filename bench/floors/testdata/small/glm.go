package small

type GLM struct{}

type Names = []string

func Fit(f Fitter) error {
	if _, ok := f.(interface{ hide() }); !ok {
		return ErrGP
	}
	return nil
}
