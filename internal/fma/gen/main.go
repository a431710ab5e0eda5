// Command gen writes the assembly of package fma.
//
//	go generate ./internal/fma
package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A tile is rows × columns numbers, as tile.go of the package has it.
const (
	lanes   = 4 // numbers of a vector
	bytes   = 8 * lanes
	rows    = 4
	vectors = 3
	columns = vectors * lanes
)

func main() {
	ConstraintExpr("amd64,!purego")
	gemm()
	trsm()
	dot()
	axpy()
	axpyRows("axpy4", 4)
	axpyRows("axpy8", 8)
	copyPanel()
	weighPanel()
	transpose()
	untranspose()
	weighRows()
	squares()
	ratios()
	scale()
	divide()
	addSquares("addSquaresAVX2", false)
	addSquares("addSquaresOverAVX2", true)
	exp()
	log1p()
	softplus()
	geometric()
	Generate()
}

func begin(name, signature, doc string) {
	TEXT(name, NOSPLIT|NOPTR, signature)
	Pragma("noescape")
	Doc(name + " " + doc)
}

func end() {
	VZEROUPPER()
	RET()
}

func load(name string) reg.Register { return Load(Param(name), GP64()) }

func scalar(name string) reg.VecVirtual {
	v := YMM()
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSD(p.Addr, v)
	return v
}

func zero() reg.VecVirtual {
	v := YMM()
	VXORPD(v, v, v)
	return v
}

// repeat makes body as often as n holds count, which it takes from n.
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

// product returns the sums over k of the products of the rows of a and the columns of b, panels of rows × k and k × columns.
func product(k, a, b reg.Register) [rows][vectors]reg.VecVirtual {
	var sum [rows][vectors]reg.VecVirtual
	for i := range rows {
		for j := range vectors {
			sum[i][j] = zero()
		}
	}
	var y [vectors]reg.VecVirtual
	for j := range y {
		y[j] = YMM()
	}
	x := YMM()
	for _, unroll := range []int{4, 1} {
		repeat(fmt.Sprintf("product%d", unroll), k, unroll, func() {
			for u := range unroll {
				for j := range y {
					VMOVUPD(Mem{Base: b, Disp: (u*vectors + j) * bytes}, y[j])
				}
				for i := range sum {
					VBROADCASTSD(Mem{Base: a, Disp: (u*rows + i) * 8}, x)
					for j := range y {
						VFMADD231PD(y[j], x, sum[i][j])
					}
				}
			}
			advance(a, unroll*rows*8)
			advance(b, unroll*columns*8)
		})
	}
	return sum
}

func gemm() {
	begin("gemmAVX2", "func(k int, a, b, c *float64, ldc int, alpha float64)", "is gemmTile.")
	k, a, b, c, ldc := load("k"), load("a"), load("b"), load("c"), load("ldc")
	SHLQ(Imm(3), ldc)
	row := GP64()
	MOVQ(c, row)
	for i := range rows {
		PREFETCHT0(Mem{Base: row})
		PREFETCHT0(Mem{Base: row, Disp: columns*8 - 8})
		if i < rows-1 {
			ADDQ(ldc, row)
		}
	}
	sum := product(k, a, b)
	alpha := scalar("alpha")
	for i := range sum {
		for j, s := range sum[i] {
			m, x := Mem{Base: c, Disp: j * bytes}, YMM()
			VMOVUPD(m, x)
			VFMADD231PD(s, alpha, x)
			VMOVUPD(x, m)
		}
		if i < rows-1 {
			ADDQ(ldc, c)
		}
	}
	end()
}

func trsm() {
	begin("trsmAVX2", "func(k int, a, b, x, t *float64)", "is trsmTile.")
	k, a, b, x, t := load("k"), load("a"), load("b"), load("x"), load("t")
	sum := product(k, a, b)
	l := YMM()
	for i := range sum {
		for s := range i { // rows before i of sum hold what is solved
			VBROADCASTSD(Mem{Base: t, Disp: (i*rows + s) * 8}, l)
			for j := range sum[i] {
				VFMADD231PD(sum[s][j], l, sum[i][j])
			}
		}
		VBROADCASTSD(Mem{Base: t, Disp: (i*rows + i) * 8}, l)
		for j, y := range sum[i] {
			m, r := Mem{Base: x, Disp: (i*vectors + j) * bytes}, YMM()
			VMOVUPD(m, r)
			VSUBPD(y, r, y)
			VDIVPD(l, y, y)
			VMOVUPD(y, m)
		}
	}
	end()
}

func dot() {
	begin("dotAVX2", "func(n int, x, y *float64) float64", "is dot.")
	n, x, y := load("n"), load("x"), load("y")
	var sum [4]reg.VecVirtual
	for i := range sum {
		sum[i] = zero()
	}
	for _, unroll := range []int{4, 1} {
		repeat(fmt.Sprintf("vectors%d", unroll), n, unroll*lanes, func() {
			for u := range unroll {
				v := YMM()
				VMOVUPD(Mem{Base: x, Disp: u * bytes}, v)
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
		VFMADD231SD(Mem{Base: y}, v, s)
		advance(x, 8)
		advance(y, 8)
	})
	Store(s, ReturnIndex(0))
	end()
}

func axpy() {
	begin("axpyAVX2", "func(n int, a float64, x, y *float64)", "is axpy.")
	n, x, y := load("n"), load("x"), load("y")
	a := scalar("a")
	for _, unroll := range []int{4, 1} {
		repeat(fmt.Sprintf("vectors%d", unroll), n, unroll*lanes, func() {
			for u := range unroll {
				v := YMM()
				VMOVUPD(Mem{Base: y, Disp: u * bytes}, v)
				VFMADD231PD(Mem{Base: x, Disp: u * bytes}, a, v)
				VMOVUPD(v, Mem{Base: y, Disp: u * bytes})
			}
			advance(x, unroll*bytes)
			advance(y, unroll*bytes)
		})
	}
	repeat("rest", n, 1, func() {
		v := XMM()
		VMOVSD(Mem{Base: y}, v)
		VFMADD231SD(Mem{Base: x}, a.AsX(), v)
		VMOVSD(v, Mem{Base: y})
		advance(x, 8)
		advance(y, 8)
	})
	end()
}

// axpyRows is axpy for so many rows.
func axpyRows(name string, count int) {
	begin(name+"AVX2", fmt.Sprintf("func(n int, a *[%d]float64, x *float64, ld int, y *float64)", count), "is "+name+".")
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
		a[i] = YMM()
		VBROADCASTSD(Mem{Base: at, Disp: 8 * i}, a[i])
	}
	for _, unroll := range []int{2, 1} {
		repeat(fmt.Sprintf("vectors%d", unroll), n, unroll*lanes, func() {
			for u := range unroll {
				v := YMM()
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
	begin("copyAVX2", "func(k int, dst *float64, ldd int, src *float64, ld int)", "copies k rows of a panel, which are ldd apart in dst and ld apart in src.")
	k, dst, ldd, src, ld := load("k"), load("dst"), load("ldd"), load("src"), load("ld")
	SHLQ(Imm(3), ld)
	SHLQ(Imm(3), ldd)
	repeat("row", k, 1, func() {
		for j := range vectors {
			v := YMM()
			VMOVUPD(Mem{Base: src, Disp: j * bytes}, v)
			VMOVUPD(v, Mem{Base: dst, Disp: j * bytes})
		}
		ADDQ(ld, src)
		ADDQ(ldd, dst)
	})
	end()
}

func weighPanel() {
	begin("weighAVX2", "func(k int, panel, w *float64)", "multiplies the k rows of a panel by w.")
	k, panel, w := load("k"), load("panel"), load("w")
	repeat("row", k, 1, func() {
		x := YMM()
		VBROADCASTSD(Mem{Base: w}, x)
		for j := range vectors {
			v := YMM()
			VMULPD(Mem{Base: panel, Disp: j * bytes}, x, v)
			VMOVUPD(v, Mem{Base: panel, Disp: j * bytes})
		}
		advance(w, 8)
		advance(panel, columns*8)
	})
	end()
}

// four returns p and the three pointers that follow it, ld bytes apart.
func four(p, ld reg.Register) [4]reg.Register {
	r := [4]reg.Register{p}
	for i := 1; i < 4; i++ {
		next := GP64()
		LEAQ(Mem{Base: r[i-1], Index: ld, Scale: 1}, next)
		r[i] = next
	}
	return r
}

// square transposes 4×4 numbers.
func square(v [4]reg.VecVirtual) [4]reg.VecVirtual {
	e, f, g, h := YMM(), YMM(), YMM(), YMM()
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
	begin("transposeAVX2", "func(k int, dst *float64, ldd int, src *float64, ld int)",
		"stores four rows of src, of which it takes the first k, a multiple of 4, as the first columns of k rows of dst.")
	k, dst, ldd, src, ld := load("k"), load("dst"), load("ldd"), load("src"), load("ld")
	SHLQ(Imm(3), ld)
	SHLQ(Imm(3), ldd)
	row := four(src, ld)
	to := four(dst, ldd)
	SHLQ(Imm(2), ldd)
	repeat("square", k, 4, func() {
		var v [4]reg.VecVirtual
		for i := range v {
			v[i] = YMM()
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
	begin("untransposeAVX2", "func(k int, dst *float64, ldd int, src *float64, ld int)",
		"is the inverse of transposeAVX2: it stores the first columns of k rows of src, k a multiple of 4, as four rows of dst.")
	k, dst, ldd, src, ld := load("k"), load("dst"), load("ldd"), load("src"), load("ld")
	SHLQ(Imm(3), ld)
	SHLQ(Imm(3), ldd)
	row := four(src, ld)
	to := four(dst, ldd)
	SHLQ(Imm(2), ld)
	repeat("square", k, 4, func() {
		var v [4]reg.VecVirtual
		for i := range v {
			v[i] = YMM()
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
	begin("weighRowsAVX2", "func(k int, dst, src, w *float64)", "is weighRows.")
	k, dst, src, w := load("k"), load("dst"), load("src"), load("w")
	for _, unroll := range []int{4, 1} {
		repeat(fmt.Sprintf("row%d", unroll), k, unroll, func() {
			for u := range unroll {
				v := YMM()
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
	begin("ratiosAVX2", "func(n int, t, u, y, s *float64, w, least float64)", "is ratios, n being a multiple of 4.")
	n, t, u, y, s := load("n"), load("t"), load("u"), load("y"), load("s")
	w, least := scalar("w"), scalar("least")
	one := register(number("one", 1))
	repeat("vector", n, lanes, func() {
		r, x := YMM(), YMM()
		VMOVUPD(Mem{Base: s}, r)
		VMAXPD(r, least, r) // the second operand where one is NaN
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
	begin("squaresAVX2", "func(k int, panel, dst *float64)", "is squares.")
	k, panel, dst := load("k"), load("panel"), load("dst")
	var sum [vectors]reg.VecVirtual
	for j := range sum {
		sum[j] = zero()
	}
	repeat("row", k, 1, func() {
		for j := range sum {
			v := YMM()
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
	begin("scaleAVX2", "func(n int, a float64, x *float64)", "is scale, n being a multiple of 4.")
	n, x, a := load("n"), load("x"), scalar("a")
	repeat("vector", n, lanes, func() {
		v := YMM()
		VMULPD(Mem{Base: x}, a, v)
		VMOVUPD(v, Mem{Base: x})
		advance(x, bytes)
	})
	end()
}

func divide() {
	begin("divideAVX2", "func(n int, x *float64, a float64)", "is divide, n being a multiple of 4.")
	n, x, a := load("n"), load("x"), scalar("a")
	repeat("vector", n, lanes, func() {
		v := YMM()
		VMOVUPD(Mem{Base: x}, v)
		VDIVPD(a, v, v)
		VMOVUPD(v, Mem{Base: x})
		advance(x, bytes)
	})
	end()
}

// addSquares makes the sums of squares of differences, which are divided by s where over.
func addSquares(name string, over bool) {
	of := map[bool]string{false: "addSquares", true: "addSquaresOver"}[over]
	signature := "func(n int, dst *float64, a float64, y *float64)"
	if over {
		signature = "func(n int, dst *float64, a float64, y *float64, s float64)"
	}
	begin(name, signature, "is "+of+", n being a multiple of 4.")
	n, dst, y, a := load("n"), load("dst"), load("y"), scalar("a")
	var s reg.VecVirtual
	if over {
		s = scalar("s")
	}
	repeat("vector", n, lanes, func() {
		v := YMM()
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

// number is memory that holds v in each lane.
func number(name string, v float64) Mem { return word(name, math.Float64bits(v)) }

// words are what word has made.
var words = map[string]Mem{}

// word is memory that holds the bits v in each lane.
func word(name string, v uint64) Mem {
	if m, ok := words[name]; ok {
		return m
	}
	m := GLOBL(name, RODATA|NOPTR)
	words[name] = m
	for i := range lanes {
		DATA(8*i, U64(v))
	}
	return m
}

func register(m Mem) reg.VecVirtual {
	v := YMM()
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

// Comparisons of VCMPPD, which are false for NaN but for the last.
const (
	equal    = 0x00
	below    = 0x11
	above    = 0x1e
	notAbove = 0x1a
)

// These numbers are those of exp.go of the package.

// expOf returns e^x, and makes x something else. Of x it takes what is between least and most.
func expOf(x reg.VecVirtual, least, most, one reg.VecVirtual) reg.VecVirtual {
	VMAXPD(x, least, x) // the second operand where one is NaN
	VMINPD(x, most, x)
	t, f := YMM(), YMM()
	VMOVUPD(number("logE", math.Log2E), t)
	VFMADD213PD(number("expMagic", 0x1.8p52), x, t)
	VSUBPD(number("expMagic", 0x1.8p52), t, f)
	VFNMADD231PD(number("logTwo", math.Ln2), f, x)
	VFNMADD231PD(number("logTwoLow", 0x1.abc9e3b39803fp-56), f, x)
	p := polynomial("exp", x, 0x1.000000000000ap-1, 0x1.55555555554fap-3, 0x1.555555555087cp-5, 0x1.1111111127be6p-7, 0x1.6c16c1842a109p-10,
		0x1.a01a012a57804p-13, 0x1.a0199a0c6a6efp-16, 0x1.71df2552b5058p-19, 0x1.28ad72c9d4e2cp-22, 0x1.ad7f6e40e0c63p-26)
	square := YMM()
	VMULPD(x, x, square)
	VFMADD213PD(x, square, p)
	VADDPD(p, one, p)
	half := YMM()
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
	begin("expAVX2", "func(n int, x *float64)", "is exp, n being a multiple of 4.")
	n, at := load("n"), load("x")
	least, most, one := register(number("expLeast", -746)), register(number("expMost", 710)), register(number("one", 1))
	repeat("vector", n, lanes, func() {
		x := YMM()
		VMOVUPD(Mem{Base: at}, x)
		VMOVUPD(expOf(x, least, most, one), Mem{Base: at})
		advance(at, bytes)
	})
	end()
}

// log1pOf returns log(1+x) for 0 ≤ x < ∞.
func log1pOf(x, ones reg.VecVirtual) reg.VecVirtual {
	const one, belowOne = uint64(0x3ff) << 52, uint64(0x3fe6a09e) << 32
	u, c, back := YMM(), YMM(), YMM()
	VADDPD(x, ones, u)
	VSUBPD(ones, u, back)
	VSUBPD(back, u, c)
	VSUBPD(c, ones, c)
	VSUBPD(back, x, back)
	VADDPD(back, c, c)
	VDIVPD(u, c, c)
	bits, k, f := YMM(), YMM(), YMM()
	VPADDQ(word("log1pShift", one-belowOne), u, bits)
	VPSRLQ(Imm(52), bits, k)
	VPOR(number("integers", 0x1p52), k, k)
	VSUBPD(number("log1pBias", 0x1p52+1023), k, k)
	VPAND(word("log1pMantissa", 1<<52-1), bits, f)
	VPADDQ(word("log1pBelowOne", belowOne), f, f)
	VSUBPD(ones, f, f)
	zero, none := YMM(), YMM()
	VXORPD(zero, zero, zero)
	VCMPPD(Imm(equal), zero, k, none)
	VBLENDVPD(none, x, f, f)
	VANDNPD(c, none, c)
	s, z, w := YMM(), YMM(), YMM()
	VADDPD(number("two", 2), f, s)
	VDIVPD(s, f, s)
	VMULPD(s, s, z)
	VMULPD(z, z, w)
	odd := polynomial("log1pOdd", w, 6.666666666666735130e-01, 2.857142874366239149e-01, 1.818357216161805012e-01, 1.479819860511658591e-01)
	even := polynomial("log1pEven", w, 3.999999999940941908e-01, 2.222219843214978396e-01, 1.531383769920937332e-01)
	VMULPD(odd, z, odd)
	VFMADD213PD(odd, w, even)
	half := YMM()
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
	begin("log1pAVX2", "func(n int, x *float64)", "is log1p, n being a multiple of 4.")
	n, at := load("n"), load("x")
	ones := register(number("one", 1))
	repeat("vector", n, lanes, func() {
		x, size, mask := YMM(), YMM(), YMM()
		VMOVUPD(Mem{Base: at}, x)
		y := log1pOf(x, ones)
		VANDPD(word("log1pSize", 1<<63-1), x, size)
		VCMPPD(Imm(below), number("log1pTiny", 0x1p-54), size, mask)
		VBLENDVPD(mask, x, y, y)
		VCMPPD(Imm(above), number("log1pMost", math.MaxFloat64), x, mask)
		VBLENDVPD(mask, x, y, y)
		edge := register(number("log1pMinusOne", -1))
		VCMPPD(Imm(notAbove), edge, x, mask)
		VBLENDVPD(mask, register(number("log1pNaN", math.NaN())), y, y)
		VCMPPD(Imm(equal), edge, x, mask)
		VBLENDVPD(mask, register(number("log1pMinusInf", math.Inf(-1))), y, y)
		VMOVUPD(y, Mem{Base: at})
		advance(at, bytes)
	})
	end()
}

func softplus() {
	begin("softplusAVX2", "func(n, nodes int, rule, f0, f1, f2, m, s *float64)", "is softplus, n being a multiple of 4.")
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
			at := [2]reg.VecVirtual{YMM(), YMM()} // m − sx and m + sx
			x := YMM()
			VBROADCASTSD(Mem{Base: node}, x)
			VMULPD(Mem{Base: s}, x, x)
			VMOVUPD(Mem{Base: m}, at[1])
			VSUBPD(x, at[1], at[0])
			VADDPD(x, at[1], at[1])
			least, most := register(number("expLeast", -746)), register(number("expMost", 710))
			var e, below, r [2]reg.VecVirtual
			for i, a := range at {
				e[i], below[i] = YMM(), YMM()
				VORPD(word("sign", 1<<63), a, e[i])
				e[i] = expOf(e[i], least, most, one)
			}
			sum, product := YMM(), YMM()
			VADDPD(e[1], e[0], sum)
			VMULPD(e[1], e[0], product)
			VADDPD(product, sum, sum)
			f := log1pOf(sum, one)
			for i, a := range at {
				VMINPD(number("zero", 0), a, below[i])
				VSUBPD(below[i], f, f)
				r[i] = YMM()
				VADDPD(e[1-i], one, r[i])
			}
			d := YMM()
			VMULPD(r[0], r[1], d)
			VDIVPD(d, one, d)
			curve, slope := YMM(), YMM()
			for i, a := range at {
				VMULPD(d, r[i], r[i]) // 1/(1+e)
				VMULPD(e[i], r[i], e[i])
				g := YMM()
				VMULPD(e[i], r[i], g)
				VBLENDVPD(a, r[i], e[i], e[i])
				if i == 0 {
					curve, slope = g, e[i]
				} else {
					VADDPD(g, curve, curve)
					VADDPD(e[i], slope, slope)
				}
			}
			w := YMM()
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
	begin("geometricAVX2", "func(n int, w, r *[8]float64, q float64, up, down *float64, wide int, sums *[3]float64)", "is geometric, up and down being where the first row of the table is read, and the rows wide apart.")
	n, wAt, rAt, q := load("n"), load("w"), load("r"), scalar("q")
	up, down, wide, sums := load("up"), load("down"), load("wide"), load("sums")
	SHLQ(Imm(3), wide)
	var sum [2][3]reg.VecVirtual
	var w, r [2]reg.VecVirtual
	for i := range sum {
		w[i], r[i] = YMM(), YMM()
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
