package dense

// Index returns element i of index, or i if index is nil. A nil index stands for all terms or all
// columns in order.
func Index[T int | int32](index []T, i int) int {
	if index == nil {
		return i
	}
	return int(index[i])
}
