"""Functions for all scripts. They set the number of threads (PEER_THREADS, or 1), read rows, measure CPU time, and print the table."""
import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = os.environ.get("PEER_THREADS", "1")
import csv
import statistics
import sys
import time

import numpy as np
from scipy.stats import norm
from sklearn.metrics import log_loss

COLUMNS = ["method", "variant", "seed", "pass", "logloss_bits", "seconds", "predict", "note", "threads"]
_table = csv.DictWriter(sys.stdout, COLUMNS, restval="nan")
_table.writeheader()


def read(path, columns):
    """Returns the features and responses of a file of float64 rows, with the response last."""
    rows = np.fromfile(path).reshape(-1, columns + 1)
    return np.ascontiguousarray(rows[:, :columns]), rows[:, columns]


def documents(path):
    """Returns the documents of a file in the lda-c format, as lists of words and counts."""
    with open(path) as lines:
        return [[(int(word), float(count)) for word, count in (pair.split(":") for pair in line.split()[1:])] for line in lines]


def cpu(f, repeats):
    """Returns the result of f and the median of its CPU seconds, or the larger of the two middle times."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        result = f()
        seconds.append(time.process_time() - start)
    return result, statistics.median_high(seconds)


def write(method, variant, **values):
    """Prints a row of the table. Missing values mean unknown."""
    _table.writerow({"method": method, "variant": variant, "seed": 1, "note": "", **values})
    sys.stdout.flush()


def score(model, test, repeats):
    """Returns the test log loss of a classifier, in bits, and the seconds of its predictions."""
    p, seconds = cpu(lambda: model.predict_proba(test[0]), repeats)
    return {"logloss_bits": log_loss(test[1], p) / np.log(2), "predict": seconds}


def density(model, test, repeats, noise=0):
    """Returns the same for a regression. Its density is normal, and the variance is the sum of the variances of the latent value, of the noise argument, and of the WhiteKernel."""
    (mean, sd), seconds = cpu(lambda: model.predict(test[0], return_std=True), repeats)
    return {"logloss_bits": -norm.logpdf(test[1], mean, np.sqrt(sd**2 + noise)).mean() / np.log(2), "predict": seconds}
