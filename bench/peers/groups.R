# Fits a mixed model with lme4 to the float64 rows of FILE: x, the level of g, and the response. SLOPE
# is true if the slope of x differs between levels. FITS has names of fits, separated by semicolons:
# glmer (the default, Laplace's approximation), nAGQ = 25 (quadrature) or lmer (REML).
#
#     Rscript groups.R FILE SLOPE FITS

suppressMessages(library(lme4))
args <- commandArgs(trailingOnly = TRUE)
rows <- matrix(readBin(args[1], "double", file.size(args[1]) / 8), ncol = 3, byrow = TRUE)
d <- data.frame(x = rows[, 1], g = factor(rows[, 2]), y = rows[, 3])
formula <- if (args[2] == "true") y ~ x + (1 + x | g) else y ~ x + (1 | g)
if (!grepl("lmer", args[3], fixed = TRUE) || grepl("glmer", args[3], fixed = TRUE)) {
  d$y <- as.integer(d$y > 0)
}

for (name in strsplit(args[3], ";")[[1]]) {
  time <- system.time(m <- suppressMessages(suppressWarnings(switch(name,
    lmer = lmer(formula, d),
    glmer = glmer(formula, d, binomial),
    glmer(formula, d, binomial, nAGQ = 25)))))
  v <- VarCorr(m)$g
  found <- c(attr(v, "stddev"), attr(v, "correlation")[lower.tri(v)])
  write.table(data.frame(method = "lme4", variant = name, seed = 1, pass = NA, logloss_bits = NA,
    seconds = sum(time[1:2]), predict = NA, note = paste(sprintf("%.4f", found), collapse = ", ")),
    sep = ",", row.names = FALSE, col.names = name == strsplit(args[3], ";")[[1]][1])
}
