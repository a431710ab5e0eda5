package dense

// Index returns the index of the i-th term of batch. A nil batch stands for all terms in order.
func Index(batch []int, i int) int {
	if batch == nil {
		return i
	}
	return batch[i]
}
