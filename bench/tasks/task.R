# Does a task like a user of R:
#
#     Rscript task.R glm FILE              reads a CSV file, fits and prints a summary
#     Rscript task.R bam FILE              the same with a smooth curve and random intercepts (mgcv)
#     Rscript task.R glmer FILE            the same with random intercepts (lme4)
#     Rscript task.R save FILE MODEL       fits a glm and saves it
#     Rscript task.R predict FILE MODEL    prints a probability and an interval for each row, as CSV
#     Rscript task.R version PACKAGE       prints a version

args <- commandArgs(trailingOnly = TRUE)

# rows reads a file, with the outcome as 0 and 1.
rows <- function() {
  d <- read.csv(args[2], stringsAsFactors = TRUE)
  if (!is.null(d$y)) d$y <- as.integer(d$y == "yes")
  d
}

switch(args[1],
  glm = print(summary(glm(y ~ ., binomial, rows()))),
  bam = {
    suppressMessages(library(mgcv))
    print(summary(bam(y ~ a + s(b) + s(g, bs = "re"), binomial, rows(), discrete = TRUE)))
  },
  glmer = {
    suppressMessages(library(lme4))
    print(summary(glmer(y ~ a + b + (1 | g), rows(), binomial)))
  },
  save = saveRDS(glm(y ~ ., binomial, rows()), args[3]),
  predict = {
    p <- predict(readRDS(args[3]), rows(), se.fit = TRUE)
    half <- qnorm(0.95) * p$se.fit
    write.csv(data.frame(p = plogis(p$fit), lo = plogis(p$fit - half), hi = plogis(p$fit + half)),
              quote = FALSE)
  },
  version = if (args[2] == "R") {
    cat("R", format(getRversion()))
  } else {
    cat(args[2], format(packageVersion(args[2])))
  },
  stop("unknown task ", args[1])
)
