"""Does a task like a user of Python:

    python3 task.py statsmodels FILE           reads a CSV file, fits and prints a summary
    python3 task.py sklearn FILE               the same, but scikit-learn has only the weights
    python3 task.py save FILE MODEL            fits by scikit-learn and saves the model
    python3 task.py predict FILE MODEL         prints a probability for each row, as CSV
    python3 task.py version MODULE             prints a version
"""

import pickle
import sys

import pandas as pd

task, name = sys.argv[1:3]


def fit():
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    rows = pd.read_csv(name)
    x = rows.drop(columns="y")
    numbers = list(x.select_dtypes("number"))
    columns = make_column_transformer(
        (StandardScaler(), numbers),
        (OneHotEncoder(drop="first"), [c for c in x if c not in numbers]))
    return make_pipeline(columns, LogisticRegression()).fit(x, rows["y"])


if task == "statsmodels":
    import statsmodels.formula.api as smf

    rows = pd.read_csv(name)
    rows["y"] = (rows["y"] == "yes").astype(int)
    print(smf.logit("y ~ a + b + c + d", rows).fit(disp=0).summary())
elif task == "sklearn":
    print(fit()[-1].coef_)
elif task == "save":
    with open(sys.argv[3], "wb") as file:
        pickle.dump(fit(), file)
elif task == "predict":
    with open(sys.argv[3], "rb") as file:
        model = pickle.load(file)
    p = model.predict_proba(pd.read_csv(name))[:, 1]
    pd.DataFrame({"p": p}).to_csv(sys.stdout)
elif task == "version":
    module = __import__(name)
    label = "scikit-learn" if name == "sklearn" else name
    print(label, module.__version__)
else:
    sys.exit("unknown task " + task)
