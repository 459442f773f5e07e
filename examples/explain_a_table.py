"""Fit a table, read the model, and save pictures of it: `python examples/explain_a_table.py [folder]`.

The table is the diabetes data that come with scikit-learn: how far the disease went on in a year, of 442 patients.
"""

import sys
from pathlib import Path

import matplotlib as mpl
from sklearn.datasets import load_diabetes

from cofrnet import CoFrNetRegressor, plot

mpl.use("Agg")


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "cofrnet-example")
    folder.mkdir(parents=True, exist_ok=True)
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    model = CoFrNetRegressor(random_state=0).fit(X, y)
    print(model.summary())

    patient = X.iloc[[0]]
    why = model.explain_local(patient)
    print(f"\n{why}")
    print(f"\n{model.power_series(order=2, features=['bmi', 'bp', 's5'])}")

    overall = model.explain_global(X)
    plot.curves(overall, most=6, path=folder / "curves.png")
    plot.importances(overall, path=folder / "importances.png")
    plot.waterfall(why, path=folder / "patient.png")
    plot.surface(model.surface("bmi", "bp", X), path=folder / "bmi_and_bp.png")
    (folder / "model.py").write_text(model.to_code("python"))
    (folder / "model.tex").write_text(model.to_latex())
    print(f"\npictures, code and formula are in {folder}")


if __name__ == "__main__":
    main()
