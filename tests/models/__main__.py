"""Write a model file of the present format, with rows and predictions beside it: `python -m tests.models`.

It never writes over a file: those of earlier versions are there to be read by all later ones.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from cofrnet import CoFrNetClassifier
from cofrnet.files import FORMAT

FOLDER = Path(__file__).parent


def main() -> None:
    path = FOLDER / f"format-{FORMAT}.cofrnet"
    if path.exists():
        raise SystemExit(f"{path} is there already, and must stay as it is.")
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.normal(40, 9, 300), "city": rng.choice(["Bern", "Oslo"], 300)})
    X.loc[::7, "age"] = np.nan
    y = np.select([X["age"] > 45, X["city"] == "Oslo"], ["old", "north"], "other")
    model = CoFrNetClassifier(n_ladders=2, ladders_per_feature=2, n_members=2, max_epochs=5, random_state=0).fit(X, y)
    model.save(path)
    rows = X.iloc[:20]
    kept = {
        "rows": {"age": [None if np.isnan(v) else v for v in rows["age"]], "city": rows["city"].tolist()},
        "dtypes": {"age": "float64", "city": "str"},
        "classes": model.classes_.tolist(),
        "probabilities": model.predict_proba(rows).tolist(),
    }
    path.with_suffix(".json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
