// Package topics tests topic models:
//
//	ctm_test.go		correlated topics (CTM)
//	ctm_corpora_test.go	CTM on corpora, and the steps of the paper
//	lda_test.go		latent Dirichlet allocation (LDA), and measures of topics
//	starts_test.go		the default start of LDA
package topics
