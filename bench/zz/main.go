package main

import (
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/mat"
)

func cpu() float64 {
	var u syscall.Rusage
	syscall.Getrusage(0, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

func main() {
	what := flag.String("what", "ap", "")
	k := flag.Int("k", 10, "")
	n := flag.Int("n", 2000, "")
	d := flag.Int("d", 100, "")
	reps := flag.Int("reps", 3, "")
	workers := flag.Int("workers", 1, "")
	prof := flag.String("prof", "", "")
	flag.Parse()
	ctx := context.Background()
	var fit func() (float64, error)
	rng := rand.New(rand.NewPCG(1, 2))
	s := &pgsvi.Solver{Workers: *workers}
	gauss := func(n, d int) (*mat.Dense, []float64) {
		x, y := mat.NewDense(n, d, nil), make([]float64, n)
		w := make([]float64, d)
		for j := range w {
			w[j] = rng.NormFloat64() / math.Sqrt(float64(d))
		}
		for i := range n {
			var e float64
			for j := range d {
				v := rng.NormFloat64()
				x.Set(i, j, v)
				e += 2 * v * w[j]
			}
			y[i] = 1
			if rng.Float64() > 1/(1+math.Exp(-e)) {
				y[i] = -1
			}
		}
		return x, y
	}
	switch *what {
	case "ap", "lda":
		z := must(gzip.NewReader(must(os.Open(filepath.Join(os.Getenv("PGSVI_DATA"), "ap", "ap.dat.gz")))))
		c, err := data.ReadLDAC(z, 0)
		if err != nil {
			log.Fatal(err)
		}
		if *what == "lda" {
			m := must(pgsvi.NewLDA(c, *k, nil))
			fit = func() (float64, error) { _, r, err := m.Fit(ctx, s); return r.ELBO, err }
			break
		}
		m := must(pgsvi.NewCTM(c, *k, nil))
		fit = func() (float64, error) {
			_, r, err := m.Fit(ctx, s)
			return r.ELBO, err
		}
	case "glm":
		x, y := gauss(*n, *d)
		fit = func() (float64, error) {
			m := must(pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{}, nil))
			_, r, err := m.Fit(ctx, s)
			return r.ELBO, err
		}
	case "gp":
		x, y := gauss(*n, *d)
		m := must(pgsvi.NewGP(x, y, pgsvi.SquaredExp{Scale: 3, Length: math.Sqrt(float64(*d))}, pgsvi.BernoulliLogit{}, nil))
		fit = func() (float64, error) { _, r, err := m.Fit(ctx, s); return r.ELBO, err }
	}
	if *prof != "" {
		f := must(os.Create(*prof))
		pprof.StartCPUProfile(f)
		defer pprof.StopCPUProfile()
	}
	for range *reps {
		t, c := time.Now(), cpu()
		e, err := fit()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s k %d n %d d %d workers %d: cpu %.3f wall %.3f elbo %.17g\n", *what, *k, *n, *d, *workers, cpu()-c, time.Since(t).Seconds(), e)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
