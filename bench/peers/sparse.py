"""Fits HistGradientBoostingClassifier of scikit-learn, which stops early by rows that it holds out, to float64
rows, the response last.

    python3 sparse.py TRAIN TEST COLUMNS REPEATS
"""
import sys

from peer import cpu, read, score, write  # first, because it sets the number of threads
from sklearn.ensemble import HistGradientBoostingClassifier

train, test = sys.argv[1:3]
columns, repeats = map(int, sys.argv[3:])
x, y = read(train, columns)
model = HistGradientBoostingClassifier(early_stopping=True, max_iter=2000, random_state=1)
model, seconds = cpu(lambda: model.fit(x, y), repeats)
write("HistGradientBoosting", "early stopping", seconds=seconds, note=f"{model.n_iter_} iterations", **score(model, read(test, columns), repeats))
