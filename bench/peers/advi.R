# Fits the logistic regression of rstanarm with ADVI, the prior N(0, I) and no intercept. It fits the
# float64 rows of TRAIN, with the response last, with the seeds 1 to SEEDS, and scores the draws on the
# rows of TEST. It writes the mean and covariance of q, the approximation, to MOMENTS-variant-seed.
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

# quietly returns the value of an expression and its output. It suppresses warnings, because the table
# has their contents: Pareto's k, and dropped columns.
quietly <- function(expr) {
  printed <- capture.output(value <- suppressMessages(suppressWarnings(expr)))
  list(value = value, printed = printed)
}

# moments returns the mean and covariance of all weights under q. The mean is exact, and the rest comes
# from the draws. A column that is 0 in every row was dropped, so its weight keeps its prior.
moments <- function(fit, draws, kept, variant) {
  mean <- numeric(columns)
  mean[kept] <- fit@sim$est$beta
  cov <- diag(columns)
  cov[kept, kept] <- if (variant == "fullrank") cov(draws) else diag(apply(draws, 2, var))
  c(mean, cov)
}

# failure returns the error of a run that found no step size, and stops on any other error.
failure <- function(e) {
  if (grepl("step-sizes failed", conditionMessage(e), fixed = TRUE)) e else stop(e)
}

# fit returns a row of the table. The draws come from q. If resample is true, which is the default of
# rstanarm, they are resampled by importance weights.
fit <- function(variant, resample, seed) {
  # stan_glm rejects a constant column, but stan_glm.fit does not.
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
  # Progress lines begin with the number of iterations and an estimate of the ELBO.
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
