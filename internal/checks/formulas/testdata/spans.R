# This script writes table.csv and spans.tsv, which TestSpans reads:
#
#	Rscript spans.R
#
# Each line of spans.tsv has a formula, the rank of its columns in R (fixed effects by model.matrix,
# groups by lFormula of lme4), v'Pv for the projection P on these columns and the columns v1, v2 and v3
# of the table, and v1'o for the offset o. Two spans with the same rank and the same v'Pv for random v
# are the same, except for a set of vectors v of measure 0.
suppressMessages(library(lme4))
set.seed(7)
n <- 120
pick <- function(levels) sample(rep_len(levels, n))
d <- data.frame(y = rnorm(n), x = runif(n, 0.5, 9), z = rnorm(n, 3), t = runif(n, 1, 5),
	k = pick(1:4), `a b` = rnorm(n, -2, 3), `größe` = runif(n, 150, 190),
	f = pick(c("red", "blue", "dark green")), `f 2` = pick(c("x:1", "ü=2", "log(x)", "3")),
	ok = pick(c(TRUE, FALSE)), g = pick(paste0("g", 1:6)), h = pick(paste0("h", 1:4)),
	v1 = rnorm(n), v2 = rnorm(n), v3 = rnorm(n), check.names = FALSE)
for (j in names(d)) if (is.double(d[[j]])) d[[j]] <- round(d[[j]], 3)
write.csv(d, "table.csv", row.names = FALSE, quote = FALSE, fileEncoding = "UTF-8")

one <- function(v) sample(v, 1)
numbers <- c("x", "z", "t", "k", "`a b`", "`größe`")
calls <- c("I(x^2)", "I(x * z)", "I(x/100)", "I((x - 5)^2)", "log(x)", "log1p(t)", "sqrt(x)", "exp(-z)",
	"log2(t)", "log10(x + t)", "abs(z - 3)", "I(-x^2)", "I(2^-z)", "I(x - z - t)", "I(x - (z - t))",
	"I(x/z/t)", "I(x/(z/t))", "I(`a b`^2/`größe`)", "I(t^x^0.5)", "exp(log(x)/2)", "I(1e-2 * x + .5)")
classes <- c("f", "`f 2`", "ok", "factor(k)")
operand <- function() one(list(one(numbers), one(numbers), one(calls), one(classes), one(classes)))[[1]]
term <- function() switch(one(c(1, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 7, 7, 8, 8, 9)),
	operand(),
	one(calls),
	paste(replicate(one(2:3), operand()), collapse = ":"),
	paste(replicate(one(2:3), operand()), collapse = "*"),
	sprintf("poly(%s, %d)", one(c(numbers, "log(x)", "sqrt(t)")), one(2:3)),
	sprintf("offset(%s)", one(c("t", "log(t)", "I(2 * x - z)", "x"))),
	sprintf("(%s + %s)^2", operand(), operand()),
	sprintf("%s/%s", operand(), operand()),
	one(c("1", "x^2", "scale(x)", "x:x", "f:f", "f %in% ok", "I(x > 3)", "(x + f)", "log(x, 2)")))
group <- function() {
	effects <- replicate(one(1:2), switch(one(1:4), "1", operand(), one(calls),
		paste(operand(), operand(), sep = one(c(":", "*")))))
	by <- one(c("g", "h", "g", "g:h", "h/ok", "f"))
	sprintf("(%s%s %s %s)", one(c("", "", "0 + ", "1 + ")), paste(effects, collapse = " + "),
		one(c("|", "|", "|", "||")), by)
}
formula <- function() {
	terms <- replicate(one(1:4), term())
	if (runif(1) < 0.35) terms <- c(terms, group())
	text <- paste(terms, collapse = " + ")
	paste("y ~", switch(one(1:6), text, text, text, paste("0 +", text), paste("-1 +", text),
		paste(text, "- 1")))
}
quiet <- do.call(lmerControl, c(list(check.rankX = "silent.drop.cols", check.scaleX = "ignore"),
	sapply(c("check.nobs.vs.rankZ", "check.nobs.vs.nlev", "check.nlev.gtreq.5", "check.nlev.gtr.1",
		"check.nobs.vs.nRE"), function(x) "ignore", simplify = FALSE)))
answer <- function(text) {
	f <- as.formula(text)
	if (grepl("|", text, fixed = TRUE)) {
		l <- lFormula(f, d, control = quiet)
		X <- cbind(l$X, as.matrix(t(l$reTrms$Zt)))
		o <- model.offset(l$fr)
	} else {
		l <- model.frame(f, d)
		X <- model.matrix(f, l)
		o <- model.offset(l)
	}
	norms <- sqrt(colSums(X^2))
	s <- if (ncol(X) == 0) list(d = 0, u = matrix(0, n, 1)) else
		svd(X[, norms > 0, drop = FALSE] %*% diag(1 / norms[norms > 0], sum(norms > 0)))
	ratio <- s$d / max(s$d, 1e-300)
	if (any(ratio > 1e-11 & ratio < 1e-7)) stop("the rank is not clear")
	u <- s$u[, ratio > 1e-9, drop = FALSE]
	q <- sapply(d[c("v1", "v2", "v3")], function(v) sum(crossprod(u, v)^2))
	c(ncol(u), signif(c(q, if (is.null(o)) 0 else sum(o * d$v1)), 9))
}
out <- character()
while (length(out) < 500) {
	text <- formula()
	a <- tryCatch(suppressWarnings(suppressMessages(answer(text))), error = function(e) NULL)
	if (!is.null(a) && !any(startsWith(out, paste0(text, "\t"))))
		out <- c(out, paste(c(text, sprintf("%.9g", a)), collapse = "\t"))
}
writeLines(enc2utf8(out), "spans.tsv", useBytes = TRUE)
