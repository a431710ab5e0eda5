package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gumbelPoly repeats the numbers in gumbel.go of package fma.
var gumbelPoly = []float64{
	0x1.fffffffff13c3p-2, 0x1.5555555589fb1p-3, 0x1.5555557df57a8p-5, 0x1.1111108e18dd2p-7,
	0x1.6c163bdae7f73p-10, 0x1.a01b73a6fce4bp-13, 0x1.a16e44c113d04p-16, 0x1.71017b7eda279p-19,
}

var normalPoly = []float64{
	0x1.f1b89c231e2a9p-4, -0x1.a6b669a31552cp-3, 0x1.f8bab9bb5cd7cp-4, -0x1.7a94a500d052ap-5,
	0x1.91f4b5a6408cep-8, 0x1.7ce24abed16f2p-9, -0x1.03beba13cea2ap-10, -0x1.6a61219161a73p-12,
	0x1.13e9d95522a12p-13, 0x1.1ffab74547209p-14, -0x1.9fabd16dd9e98p-17, -0x1.03df27bc5d12bp-16,
	-0x1.0397f35c67138p-19, 0x1.1e2a4aaa68f23p-19, 0x1.1e9c359ac0500p-20, 0x1.666a04d511a25p-23,
}

func addNormal() {
	begin("addNormal", "func(n int, f, x *float64)", "implements addNormal if n is a multiple of 8.")
	n, f, at := load("n"), load("f"), load("x")
	one, least := register(number("one", 1)), register(number("gumbelLeast", -690))
	centre := register(number("normalCentre", 3))
	repeat("vector", n, lanes, func() {
		a, t, w, below := vector(), vector(), vector(), vector()
		VMOVUPD(Mem{Base: at}, a)
		VANDPD(word("log1pSize", 1<<63-1), a, t)
		VSUBPD(centre, t, w)
		VADDPD(centre, t, below)
		VDIVPD(below, w, w)
		p := polynomial("normal", w, normalPoly...)
		square := vector()
		VMULPD(number("minusHalf", -0.5), t, square)
		VMULPD(t, square, square)
		VMULPD(expFast(square, least, one), p, p)
		up := vector()
		VSUBPD(p, one, up)
		choose(negative(a), p, up)
		VADDPD(Mem{Base: f}, up, up)
		VMAXPD(number("zero", 0), up, up)
		VMOVUPD(up, Mem{Base: f})
		advance(f, bytes)
		advance(at, bytes)
	})
	end()
}

func gumbel() {
	begin("gumbel", "func(n, nodes int, rule, e, f0, f1, f2 *float64)",
		"implements gumbel if n is a multiple of 8.")
	n, nodes, rule := load("n"), load("nodes"), load("rule")
	e, f0, f1, f2 := load("e"), load("f0"), load("f1"), load("f2")
	one, least := register(number("one", 1)), register(number("gumbelLeast", -690))
	left, node := GP64(), GP64()
	repeat("vector", n, lanes, func() {
		a, y0, y1, y2 := vector(), zero(), zero(), zero()
		VXORPD(word("sign", 1<<63), register(Mem{Base: e}), a)
		MOVQ(nodes, left)
		MOVQ(rule, node)
		repeat("node", left, 1, func() {
			x, w := vector(), vector()
			VBROADCASTSD(Mem{Base: node}, x)
			VMULPD(a, x, x)
			p := expFast(x, least, one)
			VBROADCASTSD(Mem{Base: node, Disp: 8}, w)
			VMULPD(p, w, p)
			VADDPD(p, y0, y0)
			VMULPD(x, p, p)
			VSUBPD(p, y1, y1)
			VFMADD231PD(x, p, y2)
			advance(node, 16)
		})
		for i, p := range []reg.Register{f0, f1, f2} {
			VMOVUPD([]reg.VecVirtual{y0, y1, y2}[i], Mem{Base: p})
			advance(p, bytes)
		}
		advance(e, bytes)
	})
	end()
}

// expFast returns e^x for x ≤ 0, or e^least if that is larger.
func expFast(x, least, one reg.VecVirtual) reg.VecVirtual {
	r, t, f, square := vector(), vector(), vector(), vector()
	VMAXPD(x, least, r)
	VMOVUPD(number("logE", math.Log2E), t)
	VFMADD213PD(number("expMagic", 0x1.8p52), r, t)
	VSUBPD(number("expMagic", 0x1.8p52), t, f)
	VFNMADD231PD(number("logTwo", math.Ln2), f, r)
	p := polynomial("gumbel", r, gumbelPoly...)
	VMULPD(r, r, square)
	VFMADD213PD(r, square, p)
	VADDPD(p, one, p)
	VPSLLQ(Imm(52), t, t)
	VPADDQ(t, p, p)
	return p
}

func bell() {
	begin("bell",
		"func(n int, table *float64, w, r *[8]float64, q float64, f0, f1, f2 *[8]float64)",
		"implements bell for a table of n rows.")
	table, wAt, rAt := load("table"), load("w"), load("r")
	f := []reg.Register{load("f0"), load("f1"), load("f2")}
	left := GP64()
	for i := range 8 / lanes {
		n, row, q, four := load("n"), GP64(), scalar("q"), vector()
		MOVQ(n, left)
		MOVQ(table, row)
		var w, r [2]reg.VecVirtual // weights of even and odd rows, and ratios
		var sum [2][3]reg.VecVirtual
		for c := range w {
			w[c], r[c] = vector(), vector()
			for k := range sum[c] {
				sum[c][k] = zero()
			}
		}
		VMOVUPD(Mem{Base: wAt, Disp: i * bytes}, w[0])
		VMOVUPD(Mem{Base: rAt, Disp: i * bytes}, r[0])
		VMULPD(w[0], r[0], w[1])
		VMULPD(r[0], r[0], r[0])
		VMULPD(r[0], q, r[0])
		VMULPD(q, q, q)
		VMULPD(r[0], q, r[1])
		VMULPD(q, q, four)
		repeat(fmt.Sprintf("rows%d", i), left, 2, func() {
			for c := range w {
				for k := range f {
					if lanes == 8 {
						VFMADD231PD_BCST(Mem{Base: row, Disp: 24*c + 8*k}, w[c], sum[c][k])
						continue
					}
					t := vector()
					VBROADCASTSD(Mem{Base: row, Disp: 24*c + 8*k}, t)
					VFMADD231PD(t, w[c], sum[c][k])
				}
			}
			for c := range w {
				VMULPD(r[c], w[c], w[c])
			}
			for c := range w {
				VMULPD(four, r[c], r[c])
			}
			advance(row, 48)
		})
		for k, p := range f {
			VADDPD(sum[1][k], sum[0][k], sum[0][k])
			VMOVUPD(sum[0][k], Mem{Base: p, Disp: i * bytes})
		}
	}
	end()
}

func quotients() {
	begin("quotients", "func(n int, p, f0, f1, f2 *float64)",
		"implements quotients if n is a multiple of 8.")
	n, p, f0, f1, f2 := load("n"), load("p"), load("f0"), load("f1"), load("f2")
	one, least := register(number("one", 1)), register(number("quotientLeast", 0x1p-960))
	repeat("vector", n, lanes, func() {
		y, r := vector(), vector()
		VMAXPD(Mem{Base: f0}, least, y)
		VDIVPD(y, one, r)
		for i, at := range []reg.Register{p, f1, f2} {
			x := vector()
			VMULPD(Mem{Base: at}, []reg.VecVirtual{y, r, r}[i], x)
			VMOVUPD(x, Mem{Base: at})
			advance(at, bytes)
		}
		advance(f0, bytes)
	})
	end()
}
