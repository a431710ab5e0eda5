"""Fits scikit-learn's GaussianProcessClassifier, which makes a Laplace approximation, to the float64
rows of TRAIN, the response last, and scores it on those of TEST. SCALE and LENGTH are the
hyper-parameters of the kernel SCALE² exp(−r²/(2 LENGTH²)). Those that it learns, from 1 and 1 or from
SCALE and LENGTH, whichever its own marginal likelihood prefers, are left in the file LEARNED as the
logarithms of scale² and length.

    python3 gp.py TRAIN TEST COLUMNS REPEATS SCALE LENGTH LEARNED
"""
import sys
import warnings

from peer import cpu, read, score, write  # first, as it chooses the number of threads
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

warnings.filterwarnings("ignore")  # that hyper-parameters are at a bound; they are in the table


def fit(variant, kernel, **options):
    """Writes a row of the table and returns the model."""
    model = GaussianProcessClassifier(kernel, **options)
    model, seconds = cpu(lambda: model.fit(x, y), repeats)
    learned = model.kernel_
    note = f"scale {learned.k1.constant_value**0.5:.4g}, length {learned.k2.length_scale:.4g}; "
    note += f"log marginal likelihood, Laplace, {model.log_marginal_likelihood_value_:.4f}"
    write("GPC", variant, seconds=seconds, note=note, **score(model, test, repeats))
    return model


train, test = sys.argv[1:3]
columns, repeats = map(int, sys.argv[3:5])
scale, length = map(float, sys.argv[5:7])
(x, y), test = read(train, columns), read(test, columns)
bounds = (1e-5, 1e7)  # the default ends at 1e5, below the variance that the paper has for sonar
paper = ConstantKernel(scale**2, bounds) * RBF(length)
fit("fixed", paper, optimizer=None)
models = fit("learned", 1.0 * RBF(1.0)), fit("learned from fixed", paper)
best = max(models, key=lambda model: model.log_marginal_likelihood_value_)
best.kernel_.theta.tofile(sys.argv[7])
