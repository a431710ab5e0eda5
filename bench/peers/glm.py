"""Fits LogisticRegression or PoissonRegressor of scikit-learn with the penalty ‖w‖²/2, which is the
prior N(0, I), and without an intercept.

    python3 glm.py libsvm TRAIN TEST COLUMNS REPEATS    sparse rows in LIBSVM format
    python3 glm.py rows TRAIN TEST COLUMNS REPEATS      float64 rows, with the response last
    python3 glm.py rows TRAIN "" COLUMNS REPEATS        the same without test rows, also with Newton's method, and the time of one XᵀX
    python3 glm.py counts TRAIN "" COLUMNS REPEATS      float64 rows, the exposure after the columns, then the count
"""
import sys
import warnings

from peer import cpu, read, score, write  # first, because it sets the number of threads
import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import LogisticRegression, PoissonRegressor

warnings.filterwarnings("ignore")  # max_iter was reached; the table has the iterations


def fit(variant, **options):
    """Writes a row of the table."""
    model = LogisticRegression(C=1.0, fit_intercept=False, **options)
    model, seconds = cpu(lambda: model.fit(x, y), repeats)
    scores = score(model, read_rows(test, columns), repeats) if test else {}
    iterations = {"pass": model.n_iter_[0], "note": f"point estimate, {model.n_iter_[0]} iterations"}
    write("LogisticRegression", variant, seconds=seconds, **iterations, **scores)


def read_libsvm(path, columns):
    """Returns the features and responses of a file in LIBSVM format."""
    return load_svmlight_file(path, n_features=columns)


def fit_counts(solver):
    """Writes a row of the table. PoissonRegressor minimizes the mean loss, weighted by exposure, so the penalty is divided by the sum of the exposures."""
    exposure = x[:, columns]
    model = PoissonRegressor(alpha=1 / exposure.sum(), fit_intercept=False, solver=solver)
    features, rates = np.ascontiguousarray(x[:, :columns]), y / exposure
    model, seconds = cpu(lambda: model.fit(features, rates, sample_weight=exposure), repeats)
    write("PoissonRegressor", solver, seconds=seconds, **{"pass": model.n_iter_, "note": f"point estimate, {model.n_iter_} iterations"})


kind, train, test = sys.argv[1:4]
columns, repeats = map(int, sys.argv[4:])
if kind == "counts":
    x, y = read(train, columns + 1)
    fit_counts("lbfgs")
    fit_counts("newton-cholesky")
    sys.exit()
read_rows = {"libsvm": read_libsvm, "rows": read}[kind]
x, y = read_rows(train, columns)
fit("lbfgs", solver="lbfgs")
if test:
    fit("lbfgs, until it converges", solver="lbfgs", max_iter=10000)
    fit("newton-cg", solver="newton-cg")
else:
    fit("newton-cholesky", solver="newton-cholesky")
    _, seconds = cpu(lambda: x.T @ x, repeats)
    write("XᵀX", "numpy", seconds=seconds)
