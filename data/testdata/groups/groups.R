# This program writes table.csv and lme4.json: the random-effects matrices that lme4 makes of the
# table for some formulas. TestGroupsLme4 of package data reads both. Run it in its folder with
#
#	LC_ALL=C.UTF-8 Rscript groups.R
#
# For each term, the file has the levels, the effects of each level, and for each row its level and
# the entries of its row of Z at the effects of this level. All other entries are 0, which is checked.

suppressMessages(library(lme4))
library(jsonlite)

set.seed(7)
n <- 48
d <- data.frame(
  y = round(rnorm(n), 2),
  x = round(rnorm(n, 3), 2),
  z = round(runif(n, -2, 2), 2),
  u = round(rexp(n), 2) + 0.1,
  c = sample(c("lo", "mid", "hi"), n, TRUE),
  f = sample(c("no", "yes"), n, TRUE),
  n = sample(c(2, 9, 10), n, TRUE),
  g = sample(c("ann", "bob", "cid", "dan"), n, TRUE),
  a = sample(c("north", "south", "west"), n, TRUE),
  b = sample(c(2, 9, 10), n, TRUE)
)
d$g[1] <- "once"                # a level with one row
d$g[2:4] <- "gone"              # a level without rows if x is used
d$x[c(2:4, 11, 30)] <- NA
d$c[c(7, 30, 41)] <- NA
d <- d[!(d$c %in% "lo" & d$f == "yes"), ] # an empty cell of c:f
write.csv(d, "table.csv", row.names = FALSE, na = "", quote = FALSE)

formulas <- c(
  "(1 | g)", "(x | g)", "(0 + x | g)", "(x - 1 | g)", "(x || g)", "(1 | g) + (0 + x | g)",
  "(x | g) + (0 + z | g)", "(c | g)", "(0 + c | g)", "(c || g)", "(c + x || g)", "(1 | a/b)",
  "(1 | a:b)", "(1 | b:a)", "(1 | a) + (1 | n)", "(x | a/b)", "(x || a:b)", "(x*z | g)",
  "(x*z || g)", "(x:z | g)", "(x:c | g)", "(x*c | g)", "(c:f | a)", "(0 + f:c | a)", "(f*c | a)",
  "(log(u) | g)", "(poly(u, 2) | g)", "(0 + log(u) + f | n)", "(poly(u, 2) + f || n)",
  "(factor(n) | g)", "(x | n) + (c | a)", "(x + f | a) + (1 | a:n)", "(0 + c + x | g)", "(0 + f + log(u) | n)"
)

terms <- function(text) {
  f <- as.formula(paste("y ~ 1 +", text))
  own <- lFormula(f, d, control = lmerControl(
    check.nobs.vs.rankZ = "ignore", check.nobs.vs.nlev = "ignore", check.nobs.vs.nRE = "ignore",
    check.nlev.gtr.1 = "ignore"))
  re <- own$reTrms
  lapply(seq_along(re$Ztlist), function(i) {
    by <- re$flist[[attr(re$flist, "assign")[i]]]
    q <- length(re$cnms[[i]])
    z <- as.matrix(re$Ztlist[[i]])
    level <- as.integer(by)
    values <- t(sapply(seq_along(level), function(r) z[(level[r] - 1) * q + 1:q, r]))
    values <- matrix(values, length(level), q)
    stopifnot(isTRUE(all.equal(sum(abs(z)), sum(abs(values)))))
    list(group = names(re$cnms)[i], levels = levels(by), effects = re$cnms[[i]],
      level = level - 1, values = values)
  })
}

answers <- lapply(formulas, function(text) {
  own <- terms(text)
  used <- all.vars(as.formula(paste("y ~", gsub("[|]+", "+", text))))
  list(formula = text, kept = which(complete.cases(d[used])) - 1, terms = own)
})
out <- toJSON(answers, digits = 12, auto_unbox = TRUE)
# Scalars that stand for lists of one element are lists again.
out <- gsub('"(levels|effects)":("[^"]*")', '"\\1":[\\2]', out)
writeLines(gsub('(\\{"(formula|group)")', '\n\\1', out), "lme4.json")

# slopes.csv and fits.json: a table with known slopes, and the standard deviations, correlations and
# coefficients that lmer finds by restricted maximum likelihood (REML).
g <- rep(1:12, each = 10)
h <- rep(1:8, 15)
x <- round(runif(120, 0, 10), 2)
s <- data.frame(
  y = round(20 + 2 * x + rnorm(12, 0, 5)[g] + rnorm(12)[g] * x + rnorm(8, 0, 3)[h] + rnorm(120), 3),
  x = x, g = paste0("g", g), h = paste0("h", h)
)
write.csv(s, "slopes.csv", row.names = FALSE, quote = FALSE)
fits <- lapply(c("(1 | g)", "(x || g)", "(x | g)", "(x | g) + (1 | h)"), function(text) {
  m <- lmer(as.formula(paste("y ~ x +", text)), s,
    control = lmerControl(optCtrl = list(xtol_abs = 1e-10, ftol_abs = 1e-12)))
  v <- as.data.frame(VarCorr(m))
  v$name <- ifelse(is.na(v$var2), paste0(sub("[.]1$", "", v$grp), " ", v$var1), paste(v$grp, "corr"))
  list(formula = paste("y ~ x +", text), sd = setNames(as.list(v$sdcor), v$name),
    mean = as.vector(fixef(m)), se = as.vector(sqrt(diag(as.matrix(vcov(m))))))
})
writeLines(gsub('(\\{"formula")', '\n\\1', toJSON(fits, digits = 9, auto_unbox = TRUE)), "fits.json")
