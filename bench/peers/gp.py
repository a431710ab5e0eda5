"""Fits Gaussian processes of scikit-learn to the float64 rows of TRAIN, with the response last, and scores
them on the rows of TEST. SCALE and LENGTH are hyperparameters of the kernel SCALE² exp(−r²/(2 LENGTH²)).

    python3 gp.py classify TRAIN TEST COLUMNS REPEATS SCALE LENGTH [LEARNED]
    python3 gp.py regress TRAIN TEST COLUMNS REPEATS SCALE LENGTH NOISE

GaussianProcessClassifier makes a Laplace approximation. With LEARNED it also learns, from 1 and 1 and from
SCALE and LENGTH. It keeps the result with the larger marginal likelihood, and writes the logarithms of
scale² and length scale to that file. GaussianProcessRegressor is fitted with the noise variance NOISE,
and learns with WhiteKernel from its default start.
"""
import sys
import warnings

from peer import cpu, density, read, score, write  # first, because it sets the number of threads
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

warnings.filterwarnings("ignore")  # hyperparameters are at a bound; the table has them


def fit(variant, kernel, **options):
    """Writes a row of the table and returns the model."""
    model = GaussianProcessClassifier(kernel, **options)
    model, seconds = cpu(lambda: model.fit(x, y), repeats)
    learned = model.kernel_
    note = f"scale {learned.k1.constant_value**0.5:.4g}, length {learned.k2.length_scale:.4g}; "
    note += f"log marginal likelihood, Laplace, {model.log_marginal_likelihood_value_:.4f}"
    write("GPC", variant, seconds=seconds, note=note, **score(model, test, repeats))
    return model


def regress(variant, kernel, noise=0, **options):
    """Writes a row of the table."""
    model = GaussianProcessRegressor(kernel, **options)
    model, seconds = cpu(lambda: model.fit(x, y), repeats)
    write("GPR", variant, seconds=seconds, note=str(model.kernel_), **density(model, test, repeats, noise))


kind, train, test = sys.argv[1:4]
columns, repeats = map(int, sys.argv[4:6])
scale, length = map(float, sys.argv[6:8])
(x, y), test = read(train, columns), read(test, columns)
bounds = (1e-5, 1e7)  # the default limit is 1e5, but the paper has a larger variance for sonar
fixed = ConstantKernel(scale**2, bounds) * RBF(length)
if kind == "regress":
    noise = float(sys.argv[8])
    regress("fixed", fixed, noise, alpha=noise, optimizer=None)
    regress("learned", 1.0 * RBF(1.0) + WhiteKernel())
    sys.exit()
fit("fixed", fixed, optimizer=None)
if len(sys.argv) > 8:
    models = fit("learned", 1.0 * RBF(1.0)), fit("learned from fixed", fixed)
    best = max(models, key=lambda model: model.log_marginal_likelihood_value_)
    best.kernel_.theta.tofile(sys.argv[8])
