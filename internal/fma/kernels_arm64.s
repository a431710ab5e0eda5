//go:build !purego

#include "textflag.h"

// Rows of a tile are six vectors of two numbers. The sums of row i are V8 … V13, V14 … V19, V20 … V25 and V26 … V31.

#define ADDROW(x, s0, s1, s2, s3, s4, s5) \
	VFMLA x.D2, V0.D2, s0.D2 \
	VFMLA x.D2, V1.D2, s1.D2 \
	VFMLA x.D2, V2.D2, s2.D2 \
	VFMLA x.D2, V3.D2, s3.D2 \
	VFMLA x.D2, V4.D2, s4.D2 \
	VFMLA x.D2, V5.D2, s5.D2

#define ZERO6(s0, s1, s2, s3, s4, s5) \
	VEOR s0.B16, s0.B16, s0.B16 \
	VEOR s1.B16, s1.B16, s1.B16 \
	VEOR s2.B16, s2.B16, s2.B16 \
	VEOR s3.B16, s3.B16, s3.B16 \
	VEOR s4.B16, s4.B16, s4.B16 \
	VEOR s5.B16, s5.B16, s5.B16

// STOREROW adds alpha, in V6, times the sums of a row to the six vectors at R3, and goes R4 bytes on.
#define STOREROW(s0, s1, s2, s3, s4, s5) \
	MOVD R3, R5 \
	VLD1.P 64(R5), [V0.D2, V1.D2, V2.D2, V3.D2] \
	VLD1 (R5), [V4.D2, V5.D2] \
	VFMLA V6.D2, s0.D2, V0.D2 \
	VFMLA V6.D2, s1.D2, V1.D2 \
	VFMLA V6.D2, s2.D2, V2.D2 \
	VFMLA V6.D2, s3.D2, V3.D2 \
	VFMLA V6.D2, s4.D2, V4.D2 \
	VFMLA V6.D2, s5.D2, V5.D2 \
	MOVD R3, R5 \
	VST1.P [V0.D2, V1.D2, V2.D2, V3.D2], 64(R5) \
	VST1 [V4.D2, V5.D2], (R5) \
	ADD R4, R3

// func gemmNEON(k int, a, b, c *float64, ldc int, alpha float64)
TEXT ·gemmNEON(SB), NOSPLIT, $0-48
	MOVD k+0(FP), R0
	MOVD a+8(FP), R1
	MOVD b+16(FP), R2
	MOVD c+24(FP), R3
	MOVD ldc+32(FP), R4
	LSL  $3, R4
	ZERO6(V8, V9, V10, V11, V12, V13)
	ZERO6(V14, V15, V16, V17, V18, V19)
	ZERO6(V20, V21, V22, V23, V24, V25)
	ZERO6(V26, V27, V28, V29, V30, V31)
	CBZ  R0, store

product:
	VLD1.P  64(R2), [V0.D2, V1.D2, V2.D2, V3.D2]
	VLD1.P  32(R2), [V4.D2, V5.D2]
	VLD1R.P 8(R1), [V6.D2]
	VLD1R.P 8(R1), [V7.D2]
	ADDROW(V6, V8, V9, V10, V11, V12, V13)
	VLD1R.P 8(R1), [V6.D2]
	ADDROW(V7, V14, V15, V16, V17, V18, V19)
	VLD1R.P 8(R1), [V7.D2]
	ADDROW(V6, V20, V21, V22, V23, V24, V25)
	ADDROW(V7, V26, V27, V28, V29, V30, V31)
	SUB     $1, R0
	CBNZ    R0, product

store:
	FMOVD alpha+40(FP), F6
	VDUP  V6.D[0], V6.D2
	STOREROW(V8, V9, V10, V11, V12, V13)
	STOREROW(V14, V15, V16, V17, V18, V19)
	STOREROW(V20, V21, V22, V23, V24, V25)
	STOREROW(V26, V27, V28, V29, V30, V31)
	RET

// func dotNEON(n int, x, y *float64, sum *[16]float64)
TEXT ·dotNEON(SB), NOSPLIT, $0-32
	MOVD n+0(FP), R0
	MOVD x+8(FP), R1
	MOVD y+16(FP), R2
	MOVD sum+24(FP), R3
	VEOR V16.B16, V16.B16, V16.B16
	VEOR V17.B16, V17.B16, V17.B16
	VEOR V18.B16, V18.B16, V18.B16
	VEOR V19.B16, V19.B16, V19.B16
	VEOR V20.B16, V20.B16, V20.B16
	VEOR V21.B16, V21.B16, V21.B16
	VEOR V22.B16, V22.B16, V22.B16
	VEOR V23.B16, V23.B16, V23.B16

dot16:
	CMP    $16, R0
	BLT    dot4
	VLD1.P 64(R1), [V0.D2, V1.D2, V2.D2, V3.D2]
	VLD1.P 64(R1), [V4.D2, V5.D2, V6.D2, V7.D2]
	VLD1.P 64(R2), [V8.D2, V9.D2, V10.D2, V11.D2]
	VLD1.P 64(R2), [V12.D2, V13.D2, V14.D2, V15.D2]
	VFMLA  V0.D2, V8.D2, V16.D2
	VFMLA  V1.D2, V9.D2, V17.D2
	VFMLA  V2.D2, V10.D2, V18.D2
	VFMLA  V3.D2, V11.D2, V19.D2
	VFMLA  V4.D2, V12.D2, V20.D2
	VFMLA  V5.D2, V13.D2, V21.D2
	VFMLA  V6.D2, V14.D2, V22.D2
	VFMLA  V7.D2, V15.D2, V23.D2
	SUB    $16, R0
	B      dot16

dot4:
	CMP    $4, R0
	BLT    dotend
	VLD1.P 32(R1), [V0.D2, V1.D2]
	VLD1.P 32(R2), [V8.D2, V9.D2]
	VFMLA  V0.D2, V8.D2, V16.D2
	VFMLA  V1.D2, V9.D2, V17.D2
	SUB    $4, R0
	B      dot4

dotend:
	VST1.P [V16.D2, V17.D2, V18.D2, V19.D2], 64(R3)
	VST1   [V20.D2, V21.D2, V22.D2, V23.D2], (R3)
	RET

// func axpyNEON(n int, a float64, x, y *float64)
TEXT ·axpyNEON(SB), NOSPLIT, $0-32
	MOVD  n+0(FP), R0
	FMOVD a+8(FP), F31
	MOVD  x+16(FP), R1
	MOVD  y+24(FP), R2
	VDUP  V31.D[0], V31.D2

axpy8:
	CMP    $8, R0
	BLT    axpy2
	VLD1.P 64(R1), [V0.D2, V1.D2, V2.D2, V3.D2]
	VLD1   (R2), [V4.D2, V5.D2, V6.D2, V7.D2]
	VFMLA  V31.D2, V0.D2, V4.D2
	VFMLA  V31.D2, V1.D2, V5.D2
	VFMLA  V31.D2, V2.D2, V6.D2
	VFMLA  V31.D2, V3.D2, V7.D2
	VST1.P [V4.D2, V5.D2, V6.D2, V7.D2], 64(R2)
	SUB    $8, R0
	B      axpy8

axpy2:
	CMP    $2, R0
	BLT    axpyend
	VLD1.P 16(R1), [V0.D2]
	VLD1   (R2), [V4.D2]
	VFMLA  V31.D2, V0.D2, V4.D2
	VST1.P [V4.D2], 16(R2)
	SUB    $2, R0
	B      axpy2

axpyend:
	RET

// func axpy4NEON(n int, a *[4]float64, x *float64, ld int, y *float64)
TEXT ·axpy4NEON(SB), NOSPLIT, $0-40
	MOVD n+0(FP), R0
	MOVD a+8(FP), R1
	MOVD x+16(FP), R2
	MOVD ld+24(FP), R3
	MOVD y+32(FP), R6
	ADD  R3<<3, R2, R4
	ADD  R3<<3, R4, R5
	ADD  R3<<3, R5, R7
	VLD1R.P 8(R1), [V28.D2]
	VLD1R.P 8(R1), [V29.D2]
	VLD1R.P 8(R1), [V30.D2]
	VLD1R.P 8(R1), [V31.D2]

axpy44:
	CMP    $4, R0
	BLT    axpy42
	VLD1   (R6), [V0.D2, V1.D2]
	VLD1.P 32(R2), [V2.D2, V3.D2]
	VLD1.P 32(R4), [V4.D2, V5.D2]
	VLD1.P 32(R5), [V6.D2, V7.D2]
	VLD1.P 32(R7), [V8.D2, V9.D2]
	VFMLA  V28.D2, V2.D2, V0.D2
	VFMLA  V28.D2, V3.D2, V1.D2
	VFMLA  V29.D2, V4.D2, V0.D2
	VFMLA  V29.D2, V5.D2, V1.D2
	VFMLA  V30.D2, V6.D2, V0.D2
	VFMLA  V30.D2, V7.D2, V1.D2
	VFMLA  V31.D2, V8.D2, V0.D2
	VFMLA  V31.D2, V9.D2, V1.D2
	VST1.P [V0.D2, V1.D2], 32(R6)
	SUB    $4, R0
	B      axpy44

axpy42:
	CMP    $2, R0
	BLT    axpy4end
	VLD1   (R6), [V0.D2]
	VLD1.P 16(R2), [V2.D2]
	VLD1.P 16(R4), [V4.D2]
	VLD1.P 16(R5), [V6.D2]
	VLD1.P 16(R7), [V8.D2]
	VFMLA  V28.D2, V2.D2, V0.D2
	VFMLA  V29.D2, V4.D2, V0.D2
	VFMLA  V30.D2, V6.D2, V0.D2
	VFMLA  V31.D2, V8.D2, V0.D2
	VST1.P [V0.D2], 16(R6)
	SUB    $2, R0
	B      axpy42

axpy4end:
	RET
