package runs

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"golang.org/x/sys/cpu"
)

// fitsOfPaths is the environment variable that makes TestPathsSameBits print its fits instead of
// running other processes and comparing their fits.
const fitsOfPaths = "PGSVI_TEST_FITS"

// TestPathsSameBits checks that fits have the same bits with and without AVX2 and AVX-512. It runs
// a process for each, because a process reads GODEBUG only at its start.
func TestPathsSameBits(t *testing.T) {
	if os.Getenv(fitsOfPaths) != "" {
		printFits(t)
		return
	}
	if testkit.Race || runtime.GOARCH != "amd64" || testing.Short() {
		t.Skip("no other paths, or too slow ones")
	}
	t.Parallel()
	var want string
	for _, debug := range []string{"", "cpu.avx512f=off", "cpu.avx2=off"} {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPathsSameBits$")
		c.Env = append(os.Environ(), fitsOfPaths+"=yes", "GODEBUG="+debug)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("GODEBUG=%s: %v\n%s", debug, err, out)
		}
		vectors, fits, _ := strings.Cut(string(out), "\n")
		fits, _, _ = strings.Cut(fits, "PASS")
		t.Logf("GODEBUG=%s: %s", debug, vectors)
		switch has512 := strings.Contains(vectors, "AVX-512 true"); {
		case debug != "" && has512,
			debug == "cpu.avx2=off" && strings.Contains(vectors, "AVX2 true"):
			t.Errorf("GODEBUG=%s leaves %s", debug, vectors)
		case want == "":
			want = fits
		case fits != want:
			a, b := strings.Split(want, "\n"), strings.Split(fits, "\n")
			for i := range min(len(a), len(b)) {
				if a[i] != b[i] {
					t.Errorf("GODEBUG=%s: %.200s, want %.200s", debug, b[i], a[i])
				}
			}
			t.Errorf("GODEBUG=%s gives other bits", debug)
		}
	}
	if n := strings.Count(want, "\n"); n != 10 {
		t.Errorf("%d lines of fits:\n%.1000s", n, want)
	}
}

// printFits prints the vector instructions in use, and one line with the bits of each fit.
func printFits(t *testing.T) {
	fmt.Printf("AVX2 %v, AVX-512 %v\n", cpu.X86.HasAVX2, cpu.X86.HasAVX2 && cpu.X86.HasAVX512F)
	for _, lik := range []Likelihood{BernoulliLogit{}, Poisson{}} {
		gp := kit.ToyGP(t, 300, SquaredExp{Scale: 3, Length: 1}, lik, 10)
		post, res := kit.MustFit(t, gp, nil)
		data, _ := kit.ToyRows(300, lik, 10)
		m, v := post.At(data).Latent(nil, nil)
		fmt.Printf("GP %x %x %x\n", res.ELBO, m, v)
	}
	data, _ := kit.ToyRows(300, BernoulliLogit{}, 12)
	sparse, err := NewSparseGP(data, signs(300),
		SquaredExp{}, BernoulliLogit{}, &SparseGPOptions{Rank: 40})
	if err != nil {
		t.Fatal(err)
	}
	_, res, err := sparse.Fit(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("SparseGP %x\n", res.ELBO)
	for _, c := range []kit.GlmCase{
		kit.ToyGLM("", 2000, 7, BernoulliLogit{}, 81, nil),
		kit.ToyGLM("", 300, 90, BernoulliLogit{}, 82, nil), kit.ToyGLM("", 200, 30, Poisson{}, 83, nil),
		kit.ToyGLM("", 40, 120, BernoulliLogit{}, 84, nil),
	} {
		p, res := kit.FitGLM(t, c.Glm(t, c.X), nil)
		fmt.Printf("GLM %x %x %x\n", res.ELBO, p.Mean(nil), p.SD(nil))
	}
	few := kit.ToyGLM("", 900, 40, BernoulliLogit{}, 85, nil)
	for _, ones := range []bool{false, true} {
		rows := testkit.RandomSparse(rand.New(rand.NewPCG(86, 7)), 900, 40, 0.3)
		if ones {
			rows.Apply(func(_, _ int,
				v float64) float64 {
				return math.Ceil(math.Abs(math.Tanh(v)))
			}, rows)
		}
		p, res := kit.FitGLM(t, few.Glm(t, SparseOf(rows)), nil)
		fmt.Printf("GLM, sparse %x %x %x\n", res.ELBO, p.Mean(nil), p.SD(nil))
	}
	ctm, res := kit.FitCTM(t, kit.ToyCorpus(70, 4), 9, nil,
		&Solver{MaxPasses: 3, Src: rand.NewPCG(1, 2), Converger: Never()})
	fmt.Printf("CTM %x %x\n", res.ELBO, testkit.Saved(t, ctm))
}

// signs returns n alternating labels.
func signs(n int) []float64 {
	y := make([]float64, n)
	for i := range y {
		y[i] = testkit.PlusMinus(i%2 == 0)
	}
	return y
}
