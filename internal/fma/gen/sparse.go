package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// For rows of ones, the code neither reads the values nor multiplies by them.

// sparse emits the loops of products with sparse rows, for rows with values and for rows of ones.
func sparse() {
	for _, ones := range []bool{false, true} {
		suffix = "AVX2"
		if ones {
			suffix = "OnesAVX2"
		}
		sparseMul(ones)
		sparseMulT(ones)
		sparseQuad(ones)
		sparseOuter(ones)
	}
	suffix = "AVX2"
}

// column loads the column of the element at index k + off of a row in ind.
func column(ind, k reg.Register, off int) reg.Register {
	c := GP64()
	MOVLQSX(Mem{Base: ind, Index: k, Scale: 4, Disp: 4 * off}, c)
	return c
}

// element loads the value of the element at index k + off.
func element(val, k reg.Register, off int) reg.VecVirtual {
	x := XMM()
	VMOVSD(Mem{Base: val, Index: k, Scale: 8, Disp: 8 * off}, x)
	return x
}

// upTo emits a loop over body that starts at the present k and runs while k + count ≤ n. It adds
// count to k each time.
func upTo(label string, k, n reg.Register, count int, body func()) {
	last := n
	if count > 1 {
		last = GP64()
		LEAQ(Mem{Base: n, Disp: 1 - count}, last)
	}
	CMPQ(k, last)
	JGE(LabelRef(label + "_end"))
	Label(label)
	body()
	ADDQ(U32(uint32(count)), k)
	CMPQ(k, last)
	JL(LabelRef(label))
	Label(label + "_end")
}

// between loads the addresses in ind and in val at which the row at ptr begins, and its number of
// elements. There is no address in val for rows of ones.
func between(ptr, ind, val reg.Register) (at, values, n reg.Register) {
	lo, end := GP64(), GP64()
	MOVQ(Mem{Base: ptr}, lo)
	MOVQ(Mem{Base: ptr, Disp: 8}, end)
	SUBQ(lo, end)
	at = GP64()
	LEAQ(Mem{Base: ind, Index: lo, Scale: 4}, at)
	if val != nil {
		values = GP64()
		LEAQ(Mem{Base: val, Index: lo, Scale: 8}, values)
	}
	return at, values, end
}

func sparseMul(ones bool) {
	begin("sparseMul", "func(rows int, ptr *int, ind *int32, val, w, dst *float64)", "implements sparseMul.")
	rows, ptr, ind, w, dst := load("rows"), load("ptr"), load("ind"), load("w"), load("dst")
	var val reg.Register
	if !ones {
		val = load("val")
	}
	repeat("row", rows, 1, func() {
		at, values, n := between(ptr, ind, val)
		var s [4]reg.VecVirtual
		for i := range s {
			s[i] = XMM()
			VXORPD(s[i], s[i], s[i])
		}
		k := GP64()
		XORQ(k, k)
		add := func(i int) {
			c := column(at, k, i)
			if ones {
				VADDSD(Mem{Base: w, Index: c, Scale: 8}, s[i], s[i])
			} else {
				VFMADD231SD(Mem{Base: w, Index: c, Scale: 8}, element(values, k, i), s[i])
			}
		}
		upTo("four", k, n, 4, func() {
			for i := range s {
				add(i)
			}
		})
		for i := range 3 {
			next := GP64()
			LEAQ(Mem{Base: k, Disp: i}, next)
			CMPQ(next, n)
			JGE(LabelRef("added"))
			add(i)
		}
		Label("added")
		VADDSD(s[2], s[0], s[0])
		VADDSD(s[3], s[1], s[1])
		VADDSD(s[1], s[0], s[0])
		VMOVSD(s[0], Mem{Base: dst})
		advance(ptr, 8)
		advance(dst, 8)
	})
	end()
}

// zeroAt emits a jump to label if the number at m is 0.
func zeroAt(m Mem, label string) {
	bits := GP64()
	MOVQ(m, bits)
	SHLQ(Imm(1), bits)
	JZ(LabelRef(label))
}

func sparseMulT(ones bool) {
	begin("sparseMulT", "func(rows int, ptr *int, ind *int32, val, u, dst *float64)", "implements sparseMulT.")
	rows, ptr, ind, u, dst := load("rows"), load("ptr"), load("ind"), load("u"), load("dst")
	var val reg.Register
	if !ones {
		val = load("val")
	}
	repeat("row", rows, 1, func() {
		zeroAt(Mem{Base: u}, "next")
		x := XMM()
		VMOVSD(Mem{Base: u}, x)
		at, values, n := between(ptr, ind, val)
		k := GP64()
		XORQ(k, k)
		add := func(i int) {
			to := Mem{Base: dst, Index: column(at, k, i), Scale: 8}
			y := XMM()
			if ones {
				VADDSD(to, x, y)
			} else {
				VMOVSD(to, y)
				VFMADD231SD(Mem{Base: values, Index: k, Scale: 8, Disp: 8 * i}, x, y)
			}
			VMOVSD(y, to)
		}
		upTo("four", k, n, 4, func() {
			for i := range 4 {
				add(i)
			}
		})
		upTo("one", k, n, 1, func() { add(0) })
		Label("next")
		advance(ptr, 8)
		advance(u, 8)
	})
	end()
}

// rowsOf loads the addresses of count rows of a matrix. The rows belong to the elements from k on
// of a sparse row.
func rowsOf(ind, k, a reg.Register, count int) []reg.Register {
	step := load("d")
	SHLQ(Imm(3), step)
	var r []reg.Register
	for i := range count {
		c := column(ind, k, i)
		IMULQ(step, c)
		ADDQ(a, c)
		r = append(r, c)
	}
	return r
}

// triangle emits body for the rows of the lower triangle of a matrix that belong to the elements
// of a sparse row. It emits a loop over four rows at a time from rowsOf, and then a loop over
// single rows.
func triangle(n, ind, a reg.Register, body func(label string, k reg.Register, r []reg.Register)) {
	k := GP64()
	XORQ(k, k)
	upTo("rows", k, n, 4, func() { body("left", k, rowsOf(ind, k, a, 4)) })
	upTo("row", k, n, 1, func() { body("tail", k, rowsOf(ind, k, a, 1)) })
}

func sparseQuad(ones bool) {
	begin("sparseQuad", "func(n int, ind *int32, val, a *float64, d int, sums *[2]float64)", "implements sparseQuad.")
	n, ind, a := load("n"), load("ind"), load("a")
	var val reg.Register
	if !ones {
		val = load("val")
	}
	v, diag := XMM(), XMM()
	VXORPD(v, v, v)
	VXORPD(diag, diag, diag)
	triangle(n, ind, a, func(label string, k reg.Register, r []reg.Register) {
		s := make([]reg.VecVirtual, len(r))
		for i := range s {
			s[i] = XMM()
			VXORPD(s[i], s[i], s[i])
		}
		// add adds the products of the element at k + off to the sums of the rows from first on.
		add := func(k reg.Register, off, first int, x reg.VecVirtual) (c reg.Register) {
			c = column(ind, k, off)
			for i := first; i < len(r); i++ {
				if at := (Mem{Base: r[i], Index: c, Scale: 8}); ones {
					VADDSD(at, s[i], s[i])
				} else {
					VFMADD231SD(at, x, s[i])
				}
			}
			return c
		}
		value := func(k reg.Register, off int) (x reg.VecVirtual) {
			if !ones {
				x = element(val, k, off)
			}
			return x
		}
		l := GP64()
		XORQ(l, l)
		upTo(label, l, k, 1, func() { add(l, 0, 0, value(l, 0)) })
		for i := range r {
			x, own := value(k, i), XMM()
			VMOVSD(Mem{Base: r[i], Index: add(k, i, i+1, x), Scale: 8}, own)
			if ones {
				VADDSD(s[i], s[i], s[i])
				VADDSD(own, s[i], s[i])
				VADDSD(s[i], v, v)
				VADDSD(own, diag, diag)
				continue
			}
			VMULSD(x, own, own)
			VFMADD132SD(number("two", 2), own, s[i])
			VFMADD231SD(s[i], x, v)
			VFMADD231SD(own, x, diag)
		}
	})
	sums := load("sums")
	VMOVSD(v, Mem{Base: sums})
	VMOVSD(diag, Mem{Base: sums, Disp: 8})
	end()
}

func sparseOuter(ones bool) {
	begin("sparseOuter", "func(n int, ind *int32, val, p *float64, d int, w float64)", "implements sparseOuter.")
	n, ind, p := load("n"), load("ind"), load("p")
	var val reg.Register
	if !ones {
		val = load("val")
	}
	w := XMM()
	Load(Param("w"), w)
	triangle(n, ind, p, func(label string, k reg.Register, r []reg.Register) {
		x := make([]reg.VecVirtual, len(r))
		for i := range r {
			x[i] = w
			if !ones {
				x[i] = element(val, k, i)
				VMULSD(w, x[i], x[i])
			}
		}
		add := func(k reg.Register, off, from int) {
			c := column(ind, k, off)
			var z reg.VecVirtual
			if !ones {
				z = element(val, k, off)
			}
			for i := from; i < len(r); i++ {
				to, y := Mem{Base: r[i], Index: c, Scale: 8}, XMM()
				if ones {
					VADDSD(to, w, y)
				} else {
					VMOVSD(to, y)
					VFMADD231SD(z, x[i], y)
				}
				VMOVSD(y, to)
			}
		}
		l := GP64()
		XORQ(l, l)
		upTo(label, l, k, 1, func() { add(l, 0, 0) })
		for i := range r {
			add(k, i, i)
		}
	})
	end()
}
