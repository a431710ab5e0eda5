// Command gen generates the assembly of package fma for amd64, and its Go declarations.
//
//	go generate ./internal/fma
//
// The functions implement the loops of tile.go, exp.go, softplus.go, gumbel.go, geometric.go and
// sparse.go in package fma, with the same bits.
package main

import (
	"fmt"
	"math"
	"math/bits"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A panel has rows numbers of a column or columns numbers of a row, as in tile.go of package fma.
const (
	rows    = 4
	columns = 12
)

// These variables describe the vectors: their number of float64 and of bytes, a function that
// allocates a register, and the suffix of function names.
var (
	lanes  = 4
	bytes  = 8 * lanes
	vector = YMM
	suffix = "AVX2"
)

func main() {
	ConstraintExpr("amd64,!purego")
	gemm("gemm", 1, 1)
	trsm(1)
	dot("dot", false)
	dot("dotSquares", true)
	dotRows("dotRows", false)
	dotRows("dotSquaresRows", true)
	axpy("axpy", false)
	axpy("axpySquares", true)
	axpyRows("axpy4", 4)
	axpyRows("axpy8", 8)
	copyPanel()
	copyNarrow()
	weighPanel()
	transpose()
	untranspose()
	weighRows()
	squares()
	ratios()
	scale()
	divide()
	addSquares("addSquares", false)
	addSquares("addSquaresOver", true)
	exp()
	log1p()
	softplus()
	geometric()
	gumbel()
	bell()
	quotients()
	addNormal()
	sparse()

	lanes, bytes, vector, suffix = 8, 64, ZMM, "AVX512"
	gemm("gemm", 2, 2)
	gemm("gemmPair", 1, 2)
	trsm(2)
	exp()
	log1p()
	softplus()
	gumbel()
	bell()
	quotients()
	addNormal()
	Generate()
}

func begin(name, signature, doc string) {
	TEXT(name+suffix, NOSPLIT|NOPTR, signature)
	Pragma("noescape")
	Doc(name + suffix + " " + doc)
}

func end() {
	VZEROUPPER()
	RET()
}

func load(name string) reg.Register { return Load(Param(name), GP64()) }

func scalar(name string) reg.VecVirtual {
	v := vector()
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSD(p.Addr, v)
	return v
}

func zero() reg.VecVirtual {
	v := vector()
	VXORPD(v, v, v)
	return v
}

// repeat emits a loop over body that runs while n is at least count, and subtracts count from n
// each time.
func repeat(label string, n reg.Register, count int, body func()) {
	Label(label)
	CMPQ(n, U32(uint32(count)))
	JL(LabelRef(label + "_end"))
	body()
	SUBQ(U32(uint32(count)), n)
	JMP(LabelRef(label))
	Label(label + "_end")
}

func advance(r reg.Register, by int) { ADDQ(U32(uint32(by)), r) }

// several returns the names of n parameters.
func several(name string, n int) []string {
	if n == 1 {
		return []string{name}
	}
	var s []string
	for i := range n {
		s = append(s, fmt.Sprintf("%s%d", name, i))
	}
	return s
}

func loads(names []string) []reg.Register {
	var r []reg.Register
	for _, name := range names {
		r = append(r, load(name))
	}
	return r
}

func advances(r []reg.Register, by int) {
	for _, r := range r {
		advance(r, by)
	}
}

// A row is a row of adjacent panels of columns, given by its address in each panel.
type row []Mem

func rowAt(panels []reg.Register, disp int) row {
	var r row
	for _, p := range panels {
		r = append(r, Mem{Base: p, Disp: disp})
	}
	return r
}

// vectors returns the number of vectors in a row of the given number of panels.
func vectors(panels int) int { return panels * columns / lanes }

// at returns the address of vector j of r. If its upper half belongs to the next panel, it also
// returns the address of that half.
func (r row) at(j int) (low Mem, high *Mem) {
	p, first := j*lanes/columns, j*lanes%columns
	if first+lanes > columns {
		high = &r[p+1]
	}
	return r[p].Offset(8 * first), high
}

func (r row) load(j int, v reg.VecVirtual) {
	low, high := r.at(j)
	if high == nil {
		VMOVUPD(low, v)
		return
	}
	VBROADCASTF64X4(low, v)
	VINSERTF64X4(Imm(1), *high, v, v)
}

func (r row) store(j int, v reg.VecVirtual) {
	low, high := r.at(j)
	if high == nil {
		VMOVUPD(v, low)
		return
	}
	VMOVUPD(v.AsY(), low)
	VEXTRACTF64X4(Imm(1), v, *high)
}

// product returns the sums over k of the products of the rows of a and the columns of b, which
// are panels of rows × k and k × columns. If c is not nil, product also prefetches one row of c
// for each sum. The rows are ldc bytes apart. It prefetches one row at a time, because many
// misses at once would delay the loads of a and b.
func product(k reg.Register, a, b, c []reg.Register, ldc reg.Register) [][]reg.VecVirtual {
	sum := make([][]reg.VecVirtual, len(a)*rows)
	for i := range sum {
		sum[i] = make([]reg.VecVirtual, vectors(len(b)))
		for j := range sum[i] {
			sum[i][j] = zero()
		}
	}
	y := make([]reg.VecVirtual, vectors(len(b)))
	for j := range y {
		y[j] = vector()
	}
	x := vector()
	steps := func(label string, n reg.Register, unroll int) {
		repeat(fmt.Sprintf("%s%d", label, unroll), n, unroll, func() {
			for u := range unroll {
				for j := range y {
					rowAt(b, u*columns*8).load(j, y[j])
				}
				for i := range sum {
					VBROADCASTSD(Mem{Base: a[i/rows], Disp: (u*rows + i%rows) * 8}, x)
					for j := range y {
						VFMADD231PD(y[j], x, sum[i][j])
					}
				}
			}
			advances(a, unroll*rows*8)
			advances(b, unroll*columns*8)
		})
	}
	const unroll = 4
	if c != nil {
		left, part, n := GP64(), GP64(), GP64()
		MOVQ(k, part)
		SHRQ(Imm(uint64(bits.Len(uint(len(sum))-1))), part) // divides by a power of two
		ANDQ(I8(-unroll), part)
		var at []reg.Register
		for _, c := range c {
			r := GP64()
			MOVQ(c, r)
			at = append(at, r)
		}
		MOVQ(U32(uint32(len(sum))), left)
		repeat("row", left, 1, func() {
			for _, r := range at {
				PREFETCHT0(Mem{Base: r})
				PREFETCHT0(Mem{Base: r, Disp: columns*8 - 8})
				ADDQ(ldc, r)
			}
			SUBQ(part, k)
			MOVQ(part, n)
			steps("fetching", n, unroll)
		})
	}
	steps("product", k, unroll)
	steps("product", k, 1)
	return sum
}

// gemm emits gemmTile for tall panels of rows and wide panels of columns.
func gemm(name string, tall, wide int) {
	as, bs, cs := several("a", tall), several("b", wide), several("c", wide)
	doc := "implements gemmTile."
	if wide > 1 {
		doc = "applies gemmTile to both panels of b, whose tiles are at c0 and c1"
		if tall > 1 {
			doc += ", and to both panels of a, whose tiles are one below the other"
		}
		doc += "."
	}
	begin(name, fmt.Sprintf("func(k int, %s, %s, %s *float64, ldc int, alpha float64)", strings.Join(as, ", "), strings.Join(bs, ", "), strings.Join(cs, ", ")), doc)
	k, a, b, c, ldc := load("k"), loads(as), loads(bs), loads(cs), load("ldc")
	SHLQ(Imm(3), ldc)
	sum := product(k, a, b, c, ldc)
	alpha := scalar("alpha")
	for i := range sum {
		for j, s := range sum[i] {
			x := vector()
			rowAt(c, 0).load(j, x)
			VFMADD231PD(s, alpha, x)
			rowAt(c, 0).store(j, x)
		}
		if i < len(sum)-1 {
			for _, c := range c {
				ADDQ(ldc, c)
			}
		}
	}
	end()
}

// trsm emits trsmTile for the given number of panels of columns.
func trsm(wide int) {
	bs, xs := several("b", wide), several("x", wide)
	doc := "implements trsmTile."
	if wide > 1 {
		doc = "applies trsmTile to both panels of b. The pointers x0 and x1 point into them."
	}
	begin("trsm", fmt.Sprintf("func(k int, a, %s, %s, t *float64)", strings.Join(bs, ", "), strings.Join(xs, ", ")), doc)
	k, a, b, x, t := load("k"), load("a"), loads(bs), loads(xs), load("t")
	sum := product(k, []reg.Register{a}, b, nil, nil)
	l := vector()
	for i := range sum {
		for s := range i { // rows of sum before i hold solved rows
			VBROADCASTSD(Mem{Base: t, Disp: (i*rows + s) * 8}, l)
			for j := range sum[i] {
				VFMADD231PD(sum[s][j], l, sum[i][j])
			}
		}
		VBROADCASTSD(Mem{Base: t, Disp: (i*rows + i) * 8}, l)
		for j, y := range sum[i] {
			m, r := rowAt(x, i*columns*8), vector()
			m.load(j, r)
			VSUBPD(y, r, y)
			VDIVPD(l, y, y)
			m.store(j, y)
		}
	}
	end()
}

// dot emits the inner product of x, or of its squares, and y.
func dot(name string, squared bool) {
	begin(name, "func(n int, x, y *float64) float64", "is "+name+".")
	Store(dotLoop(load("n"), load("x"), load("y"), squared), ReturnIndex(0))
	end()
}

// dotRows writes the inner products of rows, which are ld apart, and y.
func dotRows(name string, squared bool) {
	begin(name, "func(rows, n int, x *float64, ld int, y, dst *float64)", "is "+name+".")
	n, x, ld, y, dst := load("n"), load("x"), load("ld"), load("y"), load("dst")
	SHLQ(Imm(3), ld)
	repeat("row", load("rows"), 1, func() {
		k, u, v := GP64(), GP64(), GP64()
		MOVQ(n, k)
		MOVQ(x, u)
		MOVQ(y, v)
		VMOVSD(dotLoop(k, u, v, squared), Mem{Base: dst})
		ADDQ(ld, x)
		advance(dst, 8)
	})
	end()
}

// dotLoop writes an inner product of n numbers, and returns where it is. It changes n, x and y.
func dotLoop(n, x, y reg.Register, squared bool) reg.VecVirtual {
	var sum [4]reg.VecVirtual
	for i := range sum {
		sum[i] = zero()
	}
	for _, unroll := range []int{4, 1} {
		repeat(fmt.Sprintf("vectors%d", unroll), n, unroll*lanes, func() {
			for u := range unroll {
				v := vector()
				VMOVUPD(Mem{Base: x, Disp: u * bytes}, v)
				if squared {
					VMULPD(v, v, v)
				}
				VFMADD231PD(Mem{Base: y, Disp: u * bytes}, v, sum[u])
			}
			advance(x, unroll*bytes)
			advance(y, unroll*bytes)
		})
	}
	VADDPD(sum[1], sum[0], sum[0])
	VADDPD(sum[3], sum[2], sum[2])
	VADDPD(sum[2], sum[0], sum[0])
	s, high := XMM(), XMM()
	VEXTRACTF128(Imm(1), sum[0], s)
	VADDPD(s, sum[0].AsX(), s)
	VPERMILPD(Imm(1), s, high)
	VADDSD(high, s, s)
	repeat("rest", n, 1, func() {
		v := XMM()
		VMOVSD(Mem{Base: x}, v)
		if squared {
			VMULSD(v, v, v)
		}
		VFMADD231SD(Mem{Base: y}, v, s)
		advance(x, 8)
		advance(y, 8)
	})
	return s
}

// axpy emits the addition of a multiple of x, or of its squares, to y.
func axpy(name string, squared bool) {
	begin(name, "func(n int, a float64, x, y *float64)", "implements "+name+".")
	n, x, y := load("n"), load("x"), load("y")
	a := scalar("a")
	for _, unroll := range []int{4, 1} {
		repeat(fmt.Sprintf("vectors%d", unroll), n, unroll*lanes, func() {
			for u := range unroll {
				v := vector()
				VMOVUPD(Mem{Base: y, Disp: u * bytes}, v)
				if squared {
					z := vector()
					VMOVUPD(Mem{Base: x, Disp: u * bytes}, z)
					VMULPD(z, z, z)
					VFMADD231PD(z, a, v)
				} else {
					VFMADD231PD(Mem{Base: x, Disp: u * bytes}, a, v)
				}
				VMOVUPD(v, Mem{Base: y, Disp: u * bytes})
			}
			advance(x, unroll*bytes)
			advance(y, unroll*bytes)
		})
	}
	repeat("rest", n, 1, func() {
		v := XMM()
		VMOVSD(Mem{Base: y}, v)
		if squared {
			z := XMM()
			VMOVSD(Mem{Base: x}, z)
			VMULSD(z, z, z)
			VFMADD231SD(z, a.AsX(), v)
		} else {
			VFMADD231SD(Mem{Base: x}, a.AsX(), v)
		}
		VMOVSD(v, Mem{Base: y})
		advance(x, 8)
		advance(y, 8)
	})
	end()
}

// axpyRows emits axpy for count rows.
func axpyRows(name string, count int) {
	begin(name, fmt.Sprintf("func(n int, a *[%d]float64, x *float64, ld int, y *float64)", count), "implements "+name+".")
	n, at, x, ld, y := load("n"), load("a"), load("x"), load("ld"), load("y")
	SHLQ(Imm(3), ld)
	row := make([]reg.Register, count)
	row[0] = x
	for i := 1; i < count; i++ {
		r := GP64()
		LEAQ(Mem{Base: row[i-1], Index: ld, Scale: 1}, r)
		row[i] = r
	}
	a := make([]reg.VecVirtual, count)
	for i := range a {
		a[i] = vector()
		VBROADCASTSD(Mem{Base: at, Disp: 8 * i}, a[i])
	}
	for _, unroll := range []int{2, 1} {
		repeat(fmt.Sprintf("vectors%d", unroll), n, unroll*lanes, func() {
			for u := range unroll {
				v := vector()
				VMOVUPD(Mem{Base: y, Disp: u * bytes}, v)
				for i, r := range row {
					VFMADD231PD(Mem{Base: r, Disp: u * bytes}, a[i], v)
				}
				VMOVUPD(v, Mem{Base: y, Disp: u * bytes})
			}
			for _, r := range row {
				advance(r, unroll*bytes)
			}
			advance(y, unroll*bytes)
		})
	}
	repeat("rest", n, 1, func() {
		v := XMM()
		VMOVSD(Mem{Base: y}, v)
		for i, r := range row {
			VFMADD231SD(Mem{Base: r}, a[i].AsX(), v)
			advance(r, 8)
		}
		VMOVSD(v, Mem{Base: y})
		advance(y, 8)
	})
	end()
}

func copyPanel() {
	begin("copy", "func(k int, dst *float64, ldd int, src *float64, ld int)", "copies k rows of a panel, which are ldd apart in dst and ld apart in src.")
	k, dst, ldd, src, ld := load("k"), load("dst"), load("ldd"), load("src"), load("ld")
	SHLQ(Imm(3), ld)
	SHLQ(Imm(3), ldd)
	repeat("row", k, 1, func() {
		for j := range vectors(1) {
			v := vector()
			VMOVUPD(Mem{Base: src, Disp: j * bytes}, v)
			VMOVUPD(v, Mem{Base: dst, Disp: j * bytes})
		}
		// prefetch the cache lines of the next panel
		for _, next := range []int{columns*8 + 32, 2*columns*8 - 1} {
			PREFETCHT0(Mem{Base: src, Disp: next})
		}
		ADDQ(ld, src)
		ADDQ(ldd, dst)
	})
	end()
}

func copyNarrow() {
	begin("copyNarrow", "func(k int, dst, src *float64, ld int)", "implements copyNarrow.")
	k, dst, src, ld := load("k"), load("dst"), load("src"), load("ld")
	SHLQ(Imm(3), ld)
	for _, unroll := range []int{4, 1} {
		repeat(fmt.Sprintf("row%d", unroll), k, unroll, func() {
			for u := range unroll {
				v := vector()
				VMOVUPD(Mem{Base: src}, v)
				VMOVUPD(v, Mem{Base: dst, Disp: u * bytes})
				ADDQ(ld, src)
			}
			advance(dst, unroll*bytes)
		})
	}
	end()
}

func weighPanel() {
	begin("weigh", "func(k int, panel, w *float64)", "multiplies the k rows of a panel by w.")
	k, panel, w := load("k"), load("panel"), load("w")
	repeat("row", k, 1, func() {
		x := vector()
		VBROADCASTSD(Mem{Base: w}, x)
		for j := range vectors(1) {
			v := vector()
			VMULPD(Mem{Base: panel, Disp: j * bytes}, x, v)
			VMOVUPD(v, Mem{Base: panel, Disp: j * bytes})
		}
		advance(w, 8)
		advance(panel, columns*8)
	})
	end()
}

// four returns p and the next three pointers, which are ld bytes apart.
func four(p, ld reg.Register) [4]reg.Register {
	r := [4]reg.Register{p}
	for i := 1; i < 4; i++ {
		next := GP64()
		LEAQ(Mem{Base: r[i-1], Index: ld, Scale: 1}, next)
		r[i] = next
	}
	return r
}

// square transposes a 4×4 block.
func square(v [4]reg.VecVirtual) [4]reg.VecVirtual {
	e, f, g, h := vector(), vector(), vector(), vector()
	VUNPCKLPD(v[1], v[0], e) // 00 10 02 12
	VUNPCKHPD(v[1], v[0], f) // 01 11 03 13
	VUNPCKLPD(v[3], v[2], g)
	VUNPCKHPD(v[3], v[2], h)
	VPERM2F128(Imm(0x20), g, e, v[0]) // 00 10 20 30
	VPERM2F128(Imm(0x20), h, f, v[1])
	VPERM2F128(Imm(0x31), g, e, v[2])
	VPERM2F128(Imm(0x31), h, f, v[3])
	return v
}

func transpose() {
	begin("transpose", "func(k int, dst *float64, ldd int, src *float64, ld int)",
		"stores the first k numbers of four rows of src as the first columns of k rows of dst. The number k is a multiple of 4.")
	k, dst, ldd, src, ld := load("k"), load("dst"), load("ldd"), load("src"), load("ld")
	SHLQ(Imm(3), ld)
	SHLQ(Imm(3), ldd)
	row := four(src, ld)
	to := four(dst, ldd)
	SHLQ(Imm(2), ldd)
	repeat("square", k, 4, func() {
		var v [4]reg.VecVirtual
		for i := range v {
			v[i] = vector()
			VMOVUPD(Mem{Base: row[i]}, v[i])
			advance(row[i], bytes)
		}
		for i, x := range square(v) {
			VMOVUPD(x, Mem{Base: to[i]})
			ADDQ(ldd, to[i])
		}
	})
	end()
}

func untranspose() {
	begin("untranspose", "func(k int, dst *float64, ldd int, src *float64, ld int)",
		"is the inverse of transposeAVX2. It stores the first columns of k rows of src as four rows of dst. The number k is a multiple of 4.")
	k, dst, ldd, src, ld := load("k"), load("dst"), load("ldd"), load("src"), load("ld")
	SHLQ(Imm(3), ld)
	SHLQ(Imm(3), ldd)
	row := four(src, ld)
	to := four(dst, ldd)
	SHLQ(Imm(2), ld)
	repeat("square", k, 4, func() {
		var v [4]reg.VecVirtual
		for i := range v {
			v[i] = vector()
			VMOVUPD(Mem{Base: row[i]}, v[i])
			ADDQ(ld, row[i])
		}
		for i, x := range square(v) {
			VMOVUPD(x, Mem{Base: to[i]})
			advance(to[i], bytes)
		}
	})
	end()
}

func weighRows() {
	begin("weighRows", "func(k int, dst, src, w *float64)", "implements weighRows.")
	k, dst, src, w := load("k"), load("dst"), load("src"), load("w")
	for _, unroll := range []int{4, 1} {
		repeat(fmt.Sprintf("row%d", unroll), k, unroll, func() {
			for u := range unroll {
				v := vector()
				VBROADCASTSD(Mem{Base: w, Disp: 8 * u}, v)
				VMULPD(Mem{Base: src, Disp: u * columns * 8}, v, v)
				VMOVUPD(v, Mem{Base: dst, Disp: u * bytes})
			}
			advance(w, unroll*8)
			advance(src, unroll*columns*8)
			advance(dst, unroll*bytes)
		})
	}
	end()
}

func ratios() {
	begin("ratios", "func(n int, t, u, y, s *float64, w, least float64)", "implements ratios if n is a multiple of 4.")
	n, t, u, y, s := load("n"), load("t"), load("u"), load("y"), load("s")
	w, least := scalar("w"), scalar("least")
	one := register(number("one", 1))
	repeat("vector", n, lanes, func() {
		r, x := vector(), vector()
		VMOVUPD(Mem{Base: s}, r)
		VMAXPD(r, least, r) // the second operand if either is NaN
		VDIVPD(r, one, r)
		VMULPD(Mem{Base: y}, w, x)
		VMULPD(r, x, x)
		VMOVUPD(x, Mem{Base: t})
		VMULPD(r, x, x)
		VMOVUPD(x, Mem{Base: u})
		for _, p := range []reg.Register{t, u, y, s} {
			advance(p, bytes)
		}
	})
	end()
}

func squares() {
	begin("squares", "func(k int, panel, dst *float64)", "implements squares.")
	k, panel, dst := load("k"), load("panel"), load("dst")
	sum := make([]reg.VecVirtual, vectors(1))
	for j := range sum {
		sum[j] = zero()
	}
	repeat("row", k, 1, func() {
		for j := range sum {
			v := vector()
			VMOVUPD(Mem{Base: panel, Disp: j * bytes}, v)
			VFMADD231PD(v, v, sum[j])
		}
		advance(panel, columns*8)
	})
	for j, s := range sum {
		VMOVUPD(s, Mem{Base: dst, Disp: j * bytes})
	}
	end()
}

func scale() {
	begin("scale", "func(n int, a float64, x *float64)", "implements scale if n is a multiple of 4.")
	n, x, a := load("n"), load("x"), scalar("a")
	repeat("vector", n, lanes, func() {
		v := vector()
		VMULPD(Mem{Base: x}, a, v)
		VMOVUPD(v, Mem{Base: x})
		advance(x, bytes)
	})
	end()
}

func divide() {
	begin("divide", "func(n int, x *float64, a float64)", "implements divide if n is a multiple of 4.")
	n, x, a := load("n"), load("x"), scalar("a")
	repeat("vector", n, lanes, func() {
		v := vector()
		VMOVUPD(Mem{Base: x}, v)
		VDIVPD(a, v, v)
		VMOVUPD(v, Mem{Base: x})
		advance(x, bytes)
	})
	end()
}

// addSquares emits the sums of squares of differences, which are divided by s if over is true.
func addSquares(name string, over bool) {
	signature := "func(n int, dst *float64, a float64, y *float64)"
	if over {
		signature = "func(n int, dst *float64, a float64, y *float64, s float64)"
	}
	begin(name, signature, "implements "+name+" if n is a multiple of 4.")
	n, dst, y, a := load("n"), load("dst"), load("y"), scalar("a")
	var s reg.VecVirtual
	if over {
		s = scalar("s")
	}
	repeat("vector", n, lanes, func() {
		v := vector()
		VSUBPD(Mem{Base: y}, a, v)
		if over {
			VDIVPD(s, v, v)
		}
		VMULPD(v, v, v)
		VADDPD(Mem{Base: dst}, v, v)
		VMOVUPD(v, Mem{Base: dst})
		advance(dst, bytes)
		advance(y, bytes)
	})
	end()
}

// number returns a memory operand that holds v in each lane of the longest vectors.
func number(name string, v float64) Mem { return word(name, math.Float64bits(v)) }

// words holds the memory operands that word has created.
var words = map[string]Mem{}

// word returns a memory operand that holds the bits v in each lane.
func word(name string, v uint64) Mem {
	if m, ok := words[name]; ok {
		return m
	}
	m := GLOBL(name, RODATA|NOPTR)
	words[name] = m
	for i := range 8 {
		DATA(8*i, U64(v))
	}
	return m
}

func register(m Mem) reg.VecVirtual {
	v := vector()
	VMOVUPD(m, v)
	return v
}

// polynomial returns Σ_i p_i xⁱ by Horner's rule.
func polynomial(name string, x reg.VecVirtual, p ...float64) reg.VecVirtual {
	last := len(p) - 1
	s := register(number(fmt.Sprintf("%s%d", name, last), p[last]))
	for i := last - 1; i >= 0; i-- {
		VFMADD213PD(number(fmt.Sprintf("%s%d", name, i), p[i]), x, s)
	}
	return s
}

// mask returns a mask of the lanes for which a comparison of VCMPPD holds.
func mask(comparison uint8, y Op, x reg.VecVirtual) reg.Register {
	m := newMask()
	VCMPPD(Imm(uint64(comparison)), y, x, m)
	return m
}

func newMask() reg.Register {
	if lanes == 8 {
		return K()
	}
	return vector()
}

// negative returns a mask of the lanes in which x has a negative sign.
func negative(x reg.VecVirtual) reg.Register {
	if lanes < 8 {
		return x
	}
	m := newMask()
	VPMOVQ2M(x, m)
	return m
}

// choose copies x to y in the lanes of the mask.
func choose(mask reg.Register, x, y reg.VecVirtual) {
	if lanes == 8 {
		VMOVAPD(x, mask, y)
		return
	}
	VBLENDVPD(mask, x, y, y)
}

// These are comparisons of VCMPPD. All but the last are false for NaN.
const (
	equal    = 0x00
	below    = 0x11
	above    = 0x1e
	notAbove = 0x1a
)

// The numbers below repeat the constants in exp.go of package fma.

// expOf returns e^x for x clamped to the range from least to most. It overwrites x.
func expOf(x reg.VecVirtual, least, most, one reg.VecVirtual) reg.VecVirtual {
	VMAXPD(x, least, x) // the second operand if either is NaN
	VMINPD(x, most, x)
	t, f := vector(), vector()
	VMOVUPD(number("logE", math.Log2E), t)
	VFMADD213PD(number("expMagic", 0x1.8p52), x, t)
	VSUBPD(number("expMagic", 0x1.8p52), t, f)
	VFNMADD231PD(number("logTwo", math.Ln2), f, x)
	VFNMADD231PD(number("logTwoLow", 0x1.abc9e3b39803fp-56), f, x)
	p := polynomial("exp", x, 0x1.000000000000ap-1, 0x1.55555555554fap-3, 0x1.555555555087cp-5, 0x1.1111111127be6p-7, 0x1.6c16c1842a109p-10,
		0x1.a01a012a57804p-13, 0x1.a0199a0c6a6efp-16, 0x1.71df2552b5058p-19, 0x1.28ad72c9d4e2cp-22, 0x1.ad7f6e40e0c63p-26)
	square := vector()
	VMULPD(x, x, square)
	VFMADD213PD(x, square, p)
	VADDPD(p, one, p)
	half := vector()
	VPSRAD(Imm(1), t, half)
	VPSUBD(half, t, t)
	for _, n := range []reg.VecVirtual{half, t} {
		VPADDD(word("exponentAt", 1023), n, n)
		VPSLLQ(Imm(52), n, n)
		VMULPD(n, p, p)
	}
	return p
}

func exp() {
	begin("exp", "func(n int, x *float64)", fmt.Sprintf("implements exp if n is a multiple of %d.", lanes))
	n, at := load("n"), load("x")
	least, most, one := register(number("expLeast", -746)), register(number("expMost", 710)), register(number("one", 1))
	repeat("vector", n, lanes, func() {
		x := vector()
		VMOVUPD(Mem{Base: at}, x)
		VMOVUPD(expOf(x, least, most, one), Mem{Base: at})
		advance(at, bytes)
	})
	end()
}

// log1pOf returns log(1+x) for 0 ≤ x < ∞.
func log1pOf(x, ones reg.VecVirtual) reg.VecVirtual {
	const one, belowOne = uint64(0x3ff) << 52, uint64(0x3fe6a09e) << 32
	u, c, back := vector(), vector(), vector()
	VADDPD(x, ones, u)
	VSUBPD(ones, u, back)
	VSUBPD(back, u, c)
	VSUBPD(c, ones, c)
	VSUBPD(back, x, back)
	VADDPD(back, c, c)
	VDIVPD(u, c, c)
	bits, k, f := vector(), vector(), vector()
	VPADDQ(word("log1pShift", one-belowOne), u, bits)
	VPSRLQ(Imm(52), bits, k)
	VORPD(number("integers", 0x1p52), k, k)
	VSUBPD(number("log1pBias", 0x1p52+1023), k, k)
	VANDPD(word("log1pMantissa", 1<<52-1), bits, f)
	VPADDQ(word("log1pBelowOne", belowOne), f, f)
	VSUBPD(ones, f, f)
	nothing := zero()
	none := mask(equal, nothing, k)
	choose(none, x, f)
	choose(none, nothing, c)
	s, z, w := vector(), vector(), vector()
	VADDPD(number("two", 2), f, s)
	VDIVPD(s, f, s)
	VMULPD(s, s, z)
	VMULPD(z, z, w)
	odd := polynomial("log1pOdd", w, 6.666666666666735130e-01, 2.857142874366239149e-01, 1.818357216161805012e-01, 1.479819860511658591e-01)
	even := polynomial("log1pEven", w, 3.999999999940941908e-01, 2.222219843214978396e-01, 1.531383769920937332e-01)
	VMULPD(odd, z, odd)
	VFMADD213PD(odd, w, even)
	half := vector()
	VMULPD(number("log1pHalf", 0.5), f, half)
	VMULPD(f, half, half)
	VADDPD(even, half, even)
	VFMADD231PD(number("log1pLow", 0x1.a39ef35793c76p-33), k, c)
	VFMADD213PD(c, s, even)
	VSUBPD(half, even, even)
	VADDPD(f, even, even)
	VFMADD231PD(number("log1pHigh", 0x1.62e42feep-1), k, even)
	return even
}

func log1p() {
	begin("log1p", "func(n int, x *float64)", fmt.Sprintf("implements log1p if n is a multiple of %d.", lanes))
	n, at := load("n"), load("x")
	ones := register(number("one", 1))
	repeat("vector", n, lanes, func() {
		x, size := vector(), vector()
		VMOVUPD(Mem{Base: at}, x)
		y := log1pOf(x, ones)
		VANDPD(word("log1pSize", 1<<63-1), x, size)
		choose(mask(below, number("log1pTiny", 0x1p-54), size), x, y)
		choose(mask(above, number("log1pMost", math.MaxFloat64), x), x, y)
		edge := register(number("log1pMinusOne", -1))
		choose(mask(notAbove, edge, x), register(number("log1pNaN", math.NaN())), y)
		choose(mask(equal, edge, x), register(number("log1pMinusInf", math.Inf(-1))), y)
		VMOVUPD(y, Mem{Base: at})
		advance(at, bytes)
	})
	end()
}

func softplus() {
	begin("softplus", "func(n, nodes int, rule, f0, f1, f2, m, s *float64)", fmt.Sprintf("implements softplus if n is a multiple of %d.", lanes))
	n, nodes, rule := load("n"), load("nodes"), load("rule")
	f0, f1, f2, m, s := load("f0"), load("f1"), load("f2"), load("m"), load("s")
	one := register(number("one", 1))
	left, node := GP64(), GP64()
	repeat("vector", n, lanes, func() {
		for _, p := range []reg.Register{f0, f1, f2} {
			VMOVUPD(zero(), Mem{Base: p})
		}
		MOVQ(nodes, left)
		MOVQ(rule, node)
		repeat("node", left, 1, func() {
			at := [2]reg.VecVirtual{vector(), vector()} // m − sx and m + sx
			x := vector()
			VBROADCASTSD(Mem{Base: node}, x)
			VMULPD(Mem{Base: s}, x, x)
			VMOVUPD(Mem{Base: m}, at[1])
			VSUBPD(x, at[1], at[0])
			VADDPD(x, at[1], at[1])
			least, most := register(number("expLeast", -746)), register(number("expMost", 710))
			var e, below, r [2]reg.VecVirtual
			for i, a := range at {
				e[i], below[i] = vector(), vector()
				VORPD(word("sign", 1<<63), a, e[i])
				e[i] = expOf(e[i], least, most, one)
			}
			sum, product := vector(), vector()
			VADDPD(e[1], e[0], sum)
			VMULPD(e[1], e[0], product)
			VADDPD(product, sum, sum)
			f := log1pOf(sum, one)
			for i, a := range at {
				VMINPD(number("zero", 0), a, below[i])
				VSUBPD(below[i], f, f)
				r[i] = vector()
				VADDPD(e[1-i], one, r[i])
			}
			d := vector()
			VMULPD(r[0], r[1], d)
			VDIVPD(d, one, d)
			curve, slope := vector(), vector()
			for i, a := range at {
				VMULPD(d, r[i], r[i]) // 1/(1+e)
				VMULPD(e[i], r[i], e[i])
				g := vector()
				VMULPD(e[i], r[i], g)
				choose(negative(a), r[i], e[i])
				if i == 0 {
					curve, slope = g, e[i]
				} else {
					VADDPD(g, curve, curve)
					VADDPD(e[i], slope, slope)
				}
			}
			w := vector()
			VBROADCASTSD(Mem{Base: node, Disp: 8}, w)
			for i, y := range []reg.VecVirtual{f, slope, curve} {
				to := Mem{Base: []reg.Register{f0, f1, f2}[i]}
				VMULPD(y, w, y)
				VADDPD(to, y, y)
				VMOVUPD(y, to)
			}
			advance(node, 16)
		})
		for _, p := range []reg.Register{f0, f1, f2, m, s} {
			advance(p, bytes)
		}
	})
	end()
}

func geometric() {
	begin("geometric", "func(n int, w, r *[8]float64, q float64, up, down *float64, wide int, sums *[3]float64)", "implements geometric. The pointers up and down point to the first row of the table, and the rows are wide numbers apart.")
	n, wAt, rAt, q := load("n"), load("w"), load("r"), scalar("q")
	up, down, wide, sums := load("up"), load("down"), load("wide"), load("sums")
	SHLQ(Imm(3), wide)
	var sum [2][3]reg.VecVirtual
	var w, r [2]reg.VecVirtual
	for i := range sum {
		w[i], r[i] = vector(), vector()
		VMOVUPD(Mem{Base: wAt, Disp: i * bytes}, w[i])
		VMOVUPD(Mem{Base: rAt, Disp: i * bytes}, r[i])
		for k := range sum[i] {
			sum[i][k] = zero()
		}
	}
	repeat("four", n, 1, func() {
		for i, at := range []reg.Register{up, down} {
			VFMADD231PD(Mem{Base: at}, w[i], sum[i][0])
			VFMADD231PD(Mem{Base: at, Index: wide, Scale: 1}, w[i], sum[i][1])
			VFMADD231PD(Mem{Base: at, Index: wide, Scale: 2}, w[i], sum[i][2])
			VMULPD(r[i], w[i], w[i])
			VMULPD(q, r[i], r[i])
			advance(at, bytes)
		}
	})
	for k, s := range sum[0] {
		if k == 1 {
			VSUBPD(sum[1][k], s, s)
		} else {
			VADDPD(sum[1][k], s, s)
		}
		x, high := XMM(), XMM()
		VEXTRACTF128(Imm(1), s, x)
		VADDPD(x, s.AsX(), x)
		VPERMILPD(Imm(1), x, high)
		VADDSD(high, x, x)
		VMOVSD(x, Mem{Base: sums, Disp: 8 * k})
	}
	end()
}
