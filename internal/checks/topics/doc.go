// Package topics tests topic models: correlated topics (CTM) and latent Dirichlet allocation (LDA).
package topics
