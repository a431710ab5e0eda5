"""Learns the hyperparameters of GaussianProcessClassifier or GaussianProcessRegressor of scikit-learn on
the float64 rows of PREFIX.1.train, PREFIX.2.train, …, with the response last, and scores them on the rows
of PREFIX.1.test, …. It uses their own optimizers and default start, with one length scale on all SPLITS,
and with one length scale per column on the first ARD splits.

    python3 learn.py classify|regress PREFIX COLUMNS SPLITS ARD
    python3 learn.py NAME FILE          # writes a data set of scikit-learn, with the response last
"""
import sys
import warnings

import numpy as np
from peer import cpu, density, read, score, write  # first, because it sets the number of threads
from sklearn import datasets
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

warnings.filterwarnings("ignore")  # hyperparameters are at a bound

if len(sys.argv) == 3:
    x, y = getattr(datasets, "load_" + sys.argv[1])(return_X_y=True)
    np.column_stack([x, y]).tofile(sys.argv[2])
    sys.exit()

kind, prefix = sys.argv[1:3]
columns, splits, ard = map(int, sys.argv[3:])
for variant, lengths, count in ("one length", 1.0, splits), ("one length per column", np.ones(columns), ard):
    for k in range(1, count + 1):
        (x, y), test = read(f"{prefix}.{k}.train", columns), read(f"{prefix}.{k}.test", columns)
        if kind == "classify":
            model, seconds = cpu(lambda: GaussianProcessClassifier(1.0 * RBF(lengths)).fit(x, y), 1)
            write("scikit-learn", variant, seed=k, seconds=seconds, **score(model, test, 1))
            continue
        kernel = 1.0 * RBF(lengths) + WhiteKernel()
        model, seconds = cpu(lambda: GaussianProcessRegressor(kernel).fit(x, y), 1)
        write("scikit-learn", variant, seed=k, seconds=seconds, **density(model, test, 1))
