package main

import "small"

func main() { _ = small.ErrGP }
