"""Times fits of scikit-learn on one thread and on two, in turn, and prints the smallest wall times.

    python3 cores.py glm TRAIN COLUMNS REPEATS                 LogisticRegression, as in glm.py
    python3 cores.py gp TRAIN COLUMNS REPEATS SCALE LENGTH     GaussianProcessClassifier with these hyperparameters, as in gp.py
"""
import os
import sys
import time
import warnings

os.environ["PEER_THREADS"] = "2"
from peer import read, write  # first, because it sets the number of threads
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

warnings.filterwarnings("ignore")

kind, train = sys.argv[1:3]
columns, repeats = map(int, sys.argv[3:5])
x, y = read(train, columns)
if kind == "gp":
    scale, length = map(float, sys.argv[5:7])
    name, model = "GPC, fixed", GaussianProcessClassifier(ConstantKernel(scale**2, (1e-5, 1e7)) * RBF(length), optimizer=None)
else:
    name, model = "LogisticRegression, lbfgs", LogisticRegression(C=1.0, fit_intercept=False)

least = {}
for _ in range(repeats):
    for threads in 1, 2:
        with threadpool_limits(limits=threads):
            start = time.perf_counter()
            model.fit(x, y)
            least[threads] = min(time.perf_counter() - start, least.get(threads, float("inf")))
for threads, seconds in least.items():
    write(name, "", seconds=seconds, threads=threads)
