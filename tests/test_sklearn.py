"""Conformance with scikit-learn: its own checks, and its own tools around our estimators."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from cofrnet import CoFrNetClassifier, CoFrNetRegressor

# Small and quick; everything that decides conformance is the same.
SMALL = {"n_ladders": 4, "ladders_per_feature": 2, "max_epochs": 15, "random_state": 0}

_STOCHASTIC = (
    "rows are drawn into mini-batches and held out at random, so a weight of 2 is not the same draw as the row twice"
)
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": _STOCHASTIC,
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@parametrize_with_checks(
    [kind(**SMALL, n_members=members) for kind in (CoFrNetClassifier, CoFrNetRegressor) for members in (1, 2)],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
