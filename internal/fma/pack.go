package fma

// pack stores the first k rows of v as a panel, which has k rows of width numbers. If v has fewer
// columns, the rest is 0.
func pack(dst []float64, v Matrix, k, width int) {
	w := v.Cols
	if k == 0 || w == 0 {
		clear(dst[:k*width])
		return
	}
	switch {
	case v.Col == 1 && w == columns && width == columns && v.Row > 0:
		pathCopyRows(k, dst, columns, v.Data[v.Off:], v.Row)
	case v.Col == 1 && w == rows && width == rows && v.Row > 0:
		pathCopyNarrow(k, dst, v.Data[v.Off:], v.Row)
	case v.Col == 1:
		p := 0
		if width == columns && v.Row > 0 {
			p = packWide(dst, v, k)
		}
		for at := v.Off + p*v.Row; p < k; p, at = p+1, at+v.Row {
			d := dst[p*width : (p+1)*width]
			row := v.Data[at : at+w]
			for j := range d { // a loop, because calls cost more for so few numbers
				if d[j] = 0; j < w {
					d[j] = row[j]
				}
			}
		}
	case v.Row == 1 && v.Col > 0:
		j := 0
		for ; j+4 <= w; j += 4 {
			pathTranspose(k, dst[j:], width, v.Data[v.Off+j*v.Col:], v.Col)
		}
		for ; j < width; j++ {
			for p := range k {
				dst[p*width+j] = 0
			}
			if j < w {
				for p, x := range v.Data[v.Off+j*v.Col:][:k] {
					dst[p*width+j] = x
				}
			}
		}
	default:
		for p, row := 0, v.Off; p < k; p, row = p+1, row+v.Row {
			d := dst[p*width : (p+1)*width]
			for j, at := 0, row; j < w; j, at = j+1, at+v.Col {
				d[j] = v.Data[at]
			}
			clear(d[w:])
		}
	}
}

// packWide is pack for rows of less than a panel's width, except the last few. It copies a whole
// width of each row, with numbers that follow the row in memory, and then clears these. It returns
// how many rows it packed.
func packWide(dst []float64, v Matrix, k int) int {
	src := v.Data[v.Off:]
	k = min(k, (len(src)-columns)/v.Row) // a whole width after each of these is in src
	if k <= 0 {
		return 0
	}
	pathCopyRows(k, dst, columns, src, v.Row)
	for p := range k {
		d := dst[p*columns : (p+1)*columns]
		for j := v.Cols; j < columns; j++ {
			d[j] = 0
		}
	}
	return k
}

// unpack stores a panel of columns in v, the inverse of pack.
func unpack(v Matrix, src []float64) {
	k, w := v.Rows, v.Cols
	switch {
	case k == 0 || w == 0:
	case v.Col == 1 && w == columns && v.Row > 0:
		pathCopyRows(k, v.Data[v.Off:], v.Row, src, columns)
	case v.Col == 1:
		for p, at := 0, v.Off; p < k; p, at = p+1, at+v.Row {
			copy(v.Data[at:at+w], src[p*columns:])
		}
	case v.Row == 1 && v.Col > 0:
		j := 0
		for ; j+4 <= w; j += 4 {
			pathUntranspose(k, v.Data[v.Off+j*v.Col:], v.Col, src[j:], columns)
		}
		for ; j < w; j++ {
			d := v.Data[v.Off+j*v.Col:][:k]
			for p := range d {
				d[p] = src[p*columns+j]
			}
		}
	default:
		for p, row := 0, v.Off; p < k; p, row = p+1, row+v.Row {
			for j, at := 0, row; j < w; j, at = j+1, at+v.Col {
				v.Data[at] = src[p*columns+j]
			}
		}
	}
}

// packLower stores up to columns rows of a lower triangular matrix, starting at row first, as a
// panel. The panel has k rows, one for each column of the matrix. It has zeros for the part above
// the diagonal, which is not read.
func packLower(dst []float64, v Matrix, first, k int) {
	m := min(columns, v.Rows-first)
	clear(dst[:k*columns])
	if full := min(first+1, k); full > 0 {
		pack(dst, v.Slice(first, 0, m, full).T(), full, columns)
	}
	for i := 1; i < m; i++ {
		for j := first + 1; j <= min(first+i, k-1); j++ {
			dst[j*columns+i] = *v.at(first+i, j)
		}
	}
}
