# Fits rstanarm's logistic regression by ADVI, with the prior N(0, I) and without intercept, to the
# float64 rows of TRAIN, the response last, with the seeds 1 to SEEDS, and scores its draws on the rows
# of TEST. The mean and the covariance of q, the approximation, are left in MOMENTS-variant-seed.
#
#     Rscript advi.R TRAIN TEST COLUMNS SEEDS MOMENTS

suppressMessages(library(rstanarm))
args <- commandArgs(trailingOnly = TRUE)
columns <- as.integer(args[3])

read <- function(path) {
  rows <- matrix(readBin(path, "double", file.size(path) / 8), ncol = columns + 1, byrow = TRUE)
  x <- rows[, 1:columns, drop = FALSE]
  colnames(x) <- paste0("x", 1:columns)
  list(x = x, y = as.integer(rows[, columns + 1] > 0))
}

# quietly returns the value of an expression, and what it prints. It warns of what is in the table:
# the k of Pareto, and columns that were dropped.
quietly <- function(expr) {
  printed <- capture.output(value <- suppressMessages(suppressWarnings(expr)))
  list(value = value, printed = printed)
}

# moments returns mean and covariance of all weights under q: the mean is known, and the rest is from
# the draws. A column that is 0 in every row has been dropped, and its weight is left with its prior.
moments <- function(fit, draws, kept, variant) {
  mean <- numeric(columns)
  mean[kept] <- fit@sim$est$beta
  cov <- diag(columns)
  cov[kept, kept] <- if (variant == "fullrank") cov(draws) else diag(apply(draws, 2, var))
  c(mean, cov)
}

# failure returns the error of a run that found no step size, which is a result; any other is none.
failure <- function(e) {
  if (grepl("step-sizes failed", conditionMessage(e), fixed = TRUE)) e else stop(e)
}

# fit returns a row of the table. The draws are those of q or, if it is to resample, those that
# importance weights have chosen among them, which is what rstanarm does if it is not told.
fit <- function(variant, resample, seed) {
  # stan_glm itself refuses a column that does not vary.
  time <- system.time(run <- quietly(tryCatch(stan_glm.fit(train$x, train$y, family = binomial(),
    prior = normal(0, 1, autoscale = FALSE), prior_intercept = NULL, algorithm = variant,
    QR = FALSE, seed = seed, importance_resampling = resample), error = failure)))
  row <- data.frame(method = "ADVI", variant = paste0(variant, if (resample) ", resampled"), seed = seed,
    pass = NA, logloss_bits = NA, seconds = sum(time[1:2]), predict = NA, note = "",
    pareto_k = NA, distinct = NA, converged = NA)
  if (inherits(run$value, "error")) {
    row$note <- conditionMessage(run$value)
    message(row$method, ", ", row$variant, ", seed ", seed, ": ", row$note)
    return(row)
  }
  all <- as.matrix(run$value)
  kept <- which(colnames(train$x) %in% colnames(all))
  draws <- all[, colnames(train$x)[kept]]
  if (!resample) {
    writeBin(moments(run$value, draws, kept, variant), paste(args[5], variant, seed, sep = "-"))
  }
  predict <- system.time(p <- rowMeans(plogis(test$x[, kept] %*% t(draws))))
  row$predict <- sum(predict[1:2])
  row$logloss_bits <- -mean(log2(ifelse(test$y == 1, p, 1 - p)))
  # A line of its progress begins with the number of iterations and an estimate of the ELBO.
  progress <- "^Chain 1: +([0-9]+) +-?[0-9.e+]+ .*"
  row$pass <- as.integer(sub(progress, "\\1", tail(grep(progress, run$printed, value = TRUE), 1)))
  row$pareto_k <- run$value@sim$diagnostics$psis$pareto_k
  row$distinct <- nrow(unique(draws))
  row$converged <- as.integer(any(grepl("ELBO CONVERGED", run$printed)))
  row
}

train <- read(args[1])
test <- read(args[2])
for (variant in c("meanfield", "fullrank")) {
  for (resample in c(FALSE, TRUE)) {
    for (seed in seq_len(as.integer(args[4]))) {
      write.table(fit(variant, resample, seed), sep = ",", row.names = FALSE,
        col.names = variant == "meanfield" && !resample && seed == 1)
    }
  }
}
