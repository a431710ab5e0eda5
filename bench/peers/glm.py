"""Fits scikit-learn's LogisticRegression to the data that its arguments name and prints, for each
fit, a line of CSV: name, seconds of CPU, iterations, test log loss in nats.

    python3 glm.py a9a FOLDER REPEATS     sparse rows of FOLDER/a9a.gz, scored on FOLDER/a9a.t.gz
    python3 glm.py dense FILE REPEATS     float64 rows of 50 features and a response in FILE
"""
import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
import sys
import time
import warnings

import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

warnings.filterwarnings("ignore")  # that max_iter was reached; the iterations are printed


def fit(name, repeats, x, y, test, **options):
    for _ in range(repeats):
        start = time.process_time()
        # C = 1 is the penalty ‖w‖²/2: the prior N(0, I).
        model = LogisticRegression(C=1.0, fit_intercept=False, **options).fit(x, y)
        seconds = time.process_time() - start
        nats = log_loss(test[1], model.predict_proba(test[0])) if test else float("nan")
        print(f"{name},{seconds:.6f},{model.n_iter_[0]},{nats:.6f}", flush=True)


kind, path, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3])
if kind == "a9a":
    x, y = load_svmlight_file(os.path.join(path, "a9a.gz"), n_features=123)
    test = load_svmlight_file(os.path.join(path, "a9a.t.gz"), n_features=123)
    fit("lbfgs", repeats, x, y, test, solver="lbfgs")
    fit("lbfgs, until it converges", repeats, x, y, test, solver="lbfgs", max_iter=10000)
    fit("newton-cg", repeats, x, y, test, solver="newton-cg")
else:
    rows = np.fromfile(path).reshape(-1, 51)
    x, y = np.ascontiguousarray(rows[:, :50]), rows[:, 50]
    fit("lbfgs", repeats, x, y, None, solver="lbfgs")
    for _ in range(repeats):
        start = time.process_time()
        x.T @ x
        print(f"XᵀX with OpenBLAS,{time.process_time() - start:.6f},1,nan", flush=True)
