import datetime as dt
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.stats import norm

from cofrnet.core import backend
from cofrnet.estimators.column_inputs import CategoricalColumn, NumericColumn
from cofrnet.estimators.columns import as_columns, dictionary, is_categorical, labels, numbers
from cofrnet.estimators.encoding import MOST_HATS, TableEncoder


def learn(X, **options):
    columns = as_columns(X)
    categorical = [is_categorical(column) for column in columns]
    names = [str(c) for c in (X.columns if hasattr(X, "columns") else range(X.shape[1]))]
    return TableEncoder.learn(columns, names, categorical, **options), columns


def test_quantile_scaling_makes_a_normal_distribution_of_any_other():
    rng = np.random.default_rng(0)
    for x in (rng.lognormal(0, 3, 5000), rng.standard_cauchy(5000), rng.random(5000) ** 4):
        encoder, columns = learn(pd.DataFrame({"a": x}))
        z = encoder.encode(columns)[:, 0]
        assert z.mean() == pytest.approx(0, abs=0.02)
        assert z.std() == pytest.approx(1, abs=0.02)
        assert np.quantile(z, [0.1, 0.25, 0.75, 0.9]) == pytest.approx(norm.ppf([0.1, 0.25, 0.75, 0.9]), abs=0.05)
        assert np.all(np.diff(z[np.argsort(x)]) >= 0), "the order is kept"
        assert len(encoder.columns[0].knots) <= 259


def test_values_beyond_the_training_range_count_as_its_ends():
    encoder, _ = learn(pd.DataFrame({"a": np.arange(100.0)}))
    z = encoder.encode([np.array([-1e300, 0.0, 99.0, 1e300])])[:, 0]
    assert z[0] == z[1]
    assert z[2] == z[3]


def test_few_distinct_values_keep_their_weight():
    encoder, columns = learn(pd.DataFrame({"a": [0] * 90 + [1] * 9 + [7]}))
    z = encoder.encode(columns)[:, 0]
    assert len(np.unique(z)) == 3
    assert z.mean() == pytest.approx(0, abs=1e-6)
    assert z.std() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("scaling", "low", "high"), [("minmax", 0, 1), ("standard", -math.sqrt(3), math.sqrt(3))])
def test_straight_scalings(scaling, low, high):
    encoder, columns = learn(pd.DataFrame({"a": np.linspace(2, 8, 10_001)}), scaling=scaling)
    z = encoder.encode(columns)[:, 0]
    assert (z.min(), z.max()) == pytest.approx((low, high), abs=1e-3)
    beyond = encoder.encode([np.array([5.0, 14.0])])[:, 0]
    assert beyond[1] == pytest.approx(beyond[0] + 1.5 * (high - low), abs=1e-2)


def test_levels_called_missing_or_other_are_levels():
    """What is missing, and levels never seen, have names of their own beside them."""
    words = np.array(["missing", "other", "missing'", "u", None] * 60 + ["rare"], dtype=object)
    column = learn(pd.DataFrame({"c": words}))[0].columns[0]
    assert column.levels == ("missing", "missing'", "other", "u", "other'", "missing''")
    assert column.known == ["missing", "missing'", "other", "u"]
    given = np.array(["missing", "other", None, "never seen", "rare", "u"], dtype=object)
    assert column.places(given).tolist() == [0, 2, 5, 4, 4, 3]
    plain = learn(pd.DataFrame({"c": np.array(["u", "v", None] * 80, dtype=object)}))[0].columns[0]
    assert plain.levels == ("u", "v", "missing")


def test_columns_that_never_vary_say_nothing_later():
    same = np.array(["u"] * 300, dtype=object)
    encoder, _ = learn(pd.DataFrame({"n": [np.nan] * 300, "c": same, "m": np.array([None] * 300, dtype=object)}))
    later = encoder.encode(as_columns(pd.DataFrame({"n": [np.nan, 7.0], "c": ["v", None], "m": ["v", None]})))
    np.testing.assert_array_equal(later, encoder.encode(as_columns(pd.DataFrame({"n": [0.0] * 2, "c": "u", "m": "u"}))))


def test_missing_numbers_get_an_input_of_their_own():
    encoder, columns = learn(pd.DataFrame({"a": [1.0, np.nan, 3.0, 4.0], "b": [1.0, 2.0, 3.0, 4.0]}))
    assert [column.inputs for column in encoder.columns] == [["a", "a=missing"], ["b"]]
    x = encoder.encode(columns)
    assert x[:, 1].tolist() == [0, 1, 0, 0]
    assert x[1, 0] == 0
    assert encoder.curved_inputs == (0, 2)
    assert encoder.encode([[2.0], [np.nan]])[0, 2] == 0, "missing only later: the mean"


def test_constant_and_empty_columns_carry_nothing():
    frame = pd.DataFrame({"same": [5.0] * 10, "none": [np.nan] * 10, "x": np.arange(10.0)})
    encoder, columns = learn(frame)
    x = encoder.encode(columns)
    assert np.all(x[:, [0, 1]] == 0)
    assert np.isfinite(x).all()
    assert encoder.curved_inputs == (2,)


def test_categories_rare_unseen_and_missing_levels():
    values = ["b"] * 150 + ["a"] * 95 + ["c", "d", "e"] + [None] * 10
    encoder, columns = learn(pd.DataFrame({"k": values}))
    assert encoder.columns[0].inputs == ["k=a", "k=b", "k=other", "k=missing"]
    x = encoder.encode(columns)
    assert x.sum(0).tolist() == [95, 150, 3, 10]
    assert encoder.encode([["never seen"]])[0].tolist() == [0, 0, 1, 0]
    without, _ = learn(pd.DataFrame({"k": ["a", "b"] * 10}))
    assert without.encode([["never seen", None]]).tolist() == [[0, 0], [0, 0]]


def test_many_levels_do_not_grow_without_bound():
    encoder, columns = learn(pd.DataFrame({"k": [f"user {i % 5000}" for i in range(50_000)]}))
    assert encoder.n_inputs == 65
    assert encoder.encode(columns).shape == (50_000, 65)


def test_pandas_polars_and_arrays_of_objects_are_read_alike():
    data = {
        "number": [1.5, None, 3.0, 4.0],
        "text": ["a", "b", None, "a"],
        "flag": [True, False, True, None],
        "int": [1, 2, 3, 4],
    }
    frames = [
        pd.DataFrame(data),
        pd.DataFrame(data).convert_dtypes(),
        pd.DataFrame(data).astype({"text": "category"}),
        pl.DataFrame(data),
        pl.DataFrame(data).with_columns(pl.col("text").cast(pl.Categorical)),
        np.array([[None if v is None else v for v in row] for row in zip(*data.values(), strict=True)], dtype=object),
    ]
    encoded = []
    for frame in frames:
        columns = as_columns(frame)
        categorical = [is_categorical(column) for column in columns]
        assert categorical == [False, True, True, False]
        encoder = TableEncoder.learn(columns, list(data), categorical)
        encoded.append(encoder.encode(columns))
    for other in encoded[1:]:
        np.testing.assert_array_equal(encoded[0], other)


def test_dates_are_days():
    days = pd.date_range("2020-01-01", periods=50)
    for frame in (pd.DataFrame({"t": days}), pl.DataFrame({"t": days.to_pydatetime().tolist()})):
        encoder, columns = learn(frame)
        knots = encoder.columns[0].knots
        assert knots[1] - knots[0] == pytest.approx(1)
        assert encoder.encode(columns).shape == (50, 1)


def test_infinity_names_the_column_and_the_row():
    with pytest.raises(
        ValueError, match=r"column 'speed' must hold finite numbers or missing values; got inf in row 2"
    ):
        learn(pd.DataFrame({"speed": [1.0, 2.0, np.inf]}))


def test_objects_that_are_no_labels_name_the_column():
    with pytest.raises(TypeError, match=r"column 'k' must hold strings, numbers or bools .*got \[1\] of type list"):
        learn(pd.DataFrame({"k": ["a", [1], "b"]}))


def test_text_in_a_numeric_column_names_the_column():
    encoder, _ = learn(pd.DataFrame({"age": [1.0, 2.0, 3.0]}))
    with pytest.raises(ValueError, match="column 'age' must hold numbers, as it did in training; got 'old'"):
        encoder.encode([np.array(["old"], dtype=object)])


def test_huge_values():
    encoder, columns = learn(pd.DataFrame({"a": [1e300, -1e300, 0.0, 5.0]}))
    assert np.isfinite(encoder.encode(columns)).all()
    with pytest.raises(
        ValueError, match="column 'a' must have a mean and spread in reach of numbers for scaling='standard'"
    ):
        learn(pd.DataFrame({"a": [1e300, -1e300, 0.0, 5.0]}), scaling="standard")


def test_columns_are_data():
    numeric = NumericColumn("a", (0.0, 1.0, 3.0), (-1.0, 0.0, 2.0))
    assert numeric.scaled(np.array([0.5, 2.0, -9.0, np.nan]))[:3].tolist() == [-0.5, 1.0, -1.0]
    assert CategoricalColumn("k", ("x", "y")).inputs == ["k=x", "k=y"]


@pytest.mark.parametrize("scaling", ["quantile", "standard", "minmax"])
def test_scaled_values_go_back_to_the_units_of_the_column_with_their_slopes(scaling):
    x = np.random.default_rng(0).lognormal(size=2000)
    (column,) = learn(pd.DataFrame({"a": x}), scaling=scaling)[0].columns
    np.testing.assert_allclose(column.inverse(column.scaled(x)), x, rtol=1e-9)
    knots = np.asarray(column.knots)
    between, half = (knots[1:] + knots[:-1]) / 2, np.diff(knots) / 4
    differences = (column.scaled(between + half) - column.scaled(between - half)) / (2 * half)
    np.testing.assert_allclose(column.slopes(between)[:, 0], differences, rtol=1e-6)
    beyond = np.array([-1.0, 2 * x.max(), np.nan])
    expected = [0.0, 0.0] if scaling == "quantile" else [column.slopes(between)[0, 0]] * 2
    np.testing.assert_allclose(column.slopes(beyond)[:, 0], [*expected, np.nan])


def test_values_have_hats_where_they_are_few():
    rng = np.random.default_rng(0)
    n = 2000
    frame = pd.DataFrame(
        {
            "code": rng.choice([1, 2, 5, 9], n, p=[0.3, 0.4, 0.299, 0.001]),
            "gaps": np.where(rng.random(n) < 0.1, np.nan, rng.integers(0, 3, n) / 2),
            "many": rng.integers(0, 33, n),
            "two": rng.integers(0, 2, n),
            "date": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 5, n), unit="D"),
        }
    )
    plain, columns = learn(frame)
    hats = plain.possible_hats(columns)
    assert list(hats) == [0, 1]
    encoder = plain.with_hats(hats)
    code, gaps, *others = encoder.columns
    assert code.inputs == ["code", "code=1", "code=2", "code=5"], "9 is rare"
    assert gaps.inputs == ["gaps", "gaps=missing", "gaps=0", "gaps=0.5", "gaps=1"]
    assert not any(column.hats for column in others)
    x = encoder.encode(columns)
    for value, place in ((1, 1), (2, 2), (5, 3)):
        np.testing.assert_array_equal(x[:, place] > 0, frame["code"] == value)
    np.testing.assert_array_equal(x[frame["gaps"].isna(), 4:9], [[0, 1, 0, 0, 0]] * int(frame["gaps"].isna().sum()))
    for scaling in ("standard", "minmax"):
        assert not learn(frame, scaling=scaling)[0].possible_hats(columns)


def test_hats_are_linear_between_values_with_their_slopes():
    column = NumericColumn("a", (0.0, 1.0, 3.0, 4.0), (-1.0, 0.0, 1.0, 2.0), has_missing=True, hats=(0, 2, 3))
    at = np.array([0.0, 0.25, 1.0, 2.5, 3.0, 3.9, 4.0, -7.0, 9.0, np.nan])
    corners = np.eye(4)[:, [0, 2, 3]] * column.height
    expected = np.stack([np.interp(at, column.knots, corner) for corner in corners.T], axis=1)
    expected[-1] = 0
    np.testing.assert_allclose(column.at(at, np.float64)[:, 2:], expected)
    within = np.array([0.5, 2.0, 3.5, -2.0, 6.0])
    moved = [column.at(within + step, np.float64) for step in (-1e-3, 1e-3)]
    np.testing.assert_allclose(column.slopes(within), (moved[1] - moved[0]) / 2e-3, atol=1e-9)
    np.testing.assert_allclose(column.slopes(np.array([1.0])), column.slopes(np.array([1.5])), err_msg="to the right")
    np.testing.assert_allclose(column.slopes(np.array([4.0])), column.slopes(np.array([3.5])), err_msg="to the left")
    assert np.isnan(column.slopes(np.array([np.nan]))).all()


def test_hats_are_few_in_all():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{j}": rng.integers(0, 4 + j % 20, 1000) for j in range(100)})
    plain, columns = learn(frame)
    hats = [len(column.hats) for column in plain.with_hats(plain.possible_hats(columns)).columns]
    assert MOST_HATS - 20 < sum(hats) <= MOST_HATS
    assert max(size for size in hats if size) <= min(4 + j % 20 for j, size in enumerate(hats) if not size)


def test_the_fused_map_is_the_plain_one():
    rng = np.random.default_rng(0)
    for size in (2, 3, 50, 5000):
        x = rng.standard_t(2, size=size)
        (column,) = learn(pd.DataFrame({"a": x}))[0].columns
        values = np.concatenate([x, column.knots, rng.standard_t(1, size=500), [np.nan, -1e300, 1e300]])
        with backend("reference"):
            plain = column.scaled(values)
        np.testing.assert_allclose(column.scaled(values), plain, rtol=0, atol=1e-12)


def test_values_whose_sum_overflows_are_finite_all_the_same():
    assert np.isfinite(learn(pd.DataFrame({"a": [1.7e308, 1.7e308, -1.7e308]}))[0].columns[0].values).all()


def test_columns_of_one_name_are_refused():
    with pytest.raises(ValueError, match="different names; got 'a' twice"):
        as_columns(pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"]))


def test_labels_of_mixed_objects_keep_their_kind():
    assert labels([1, True, 1.0, "1", None, math.nan], "a") == ["1", "True", "1", "1", None, None]
    assert labels([True, False, None], "a") == ["True", "False", None]
    assert labels([2.0, 2.5, math.nan], "a") == ["2", "2.5", None]


def test_integers_beyond_the_exact_ones_are_numbers():
    import pyarrow as pa

    table = pa.table({"n": [2**62 + 7, 5, None], "x": [1.0, 2.0, 3.0]})
    (column, _) = as_columns(table)
    np.testing.assert_array_equal(numbers(column, "n"), [float(2**62), 5.0, np.nan])


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e300, 1e-5])
@pytest.mark.parametrize("offset", [0.0, 1e12, -1e12])
def test_many_values_are_scaled_as_few_are(scale, offset):
    """By numpy alone: each by the line of its cell, or by a search where there is a knot in the cell."""
    rng = np.random.default_rng(3)
    for knots in (rng.normal(size=100), rng.lognormal(0, 3, 200), np.array([0.0, 1.0]), rng.integers(0, 9, 99) / 8):
        knots = np.unique(knots * scale + (offset if scale > 1e-6 else 0))
        if not np.isfinite(knots).all() or len(knots) < 2:
            continue
        column = NumericColumn("x", tuple(knots), tuple(np.linspace(-3, 3, len(knots))))
        inside = rng.uniform(0, 1, 20_000) * (knots[-1] / 2 - knots[0] / 2) * 2 + knots[0]
        x = np.concatenate([knots, inside, [np.nan, -1e308, 1e308], np.nextafter(knots, -np.inf)])
        found = column.scaled(x, compiled=False)
        np.testing.assert_allclose(found, np.interp(x, column.knots, column.values), atol=1e-9)
        assert (np.diff(found[np.argsort(x)][:-1]) >= -1e-12).all()


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 511, 514, 20_001])
def test_compiled_scaling_is_that_of_numpy(n):
    rng = np.random.default_rng(n)
    knots = np.unique(rng.normal(size=150))
    column = NumericColumn("x", tuple(knots), tuple(np.cumsum(rng.random(len(knots)))))
    x = np.where(
        rng.random(n) < 0.2, rng.choice([np.nan, -9.0, 9.0, knots[0], knots[7], knots[-1]], n), rng.normal(size=n)
    )
    np.testing.assert_allclose(column.scaled(x), np.interp(x, column.knots, column.values), rtol=1e-12)


def test_arrow_columns_are_read_as_they_are():
    moments = [dt.datetime(2024, 5, 6, 7, 8, 9), None, dt.datetime(1960, 1, 1), dt.datetime(9999, 12, 31)]
    days = [19849 + (7 * 3600 + 8 * 60 + 9) / 86_400, np.nan, -3653.0, 2_932_896.0]
    for unit in ("s", "ms", "us"):
        for zone in (None, "Europe/Rome"):
            column = pa.chunked_array([pa.array(moments[:2], pa.timestamp(unit, zone)), moments[2:]])
            np.testing.assert_array_equal(numbers(column, "t"), days)
    for kind in (pa.date32(), pa.date64()):
        column = pa.chunked_array([pa.array([None if m is None else m.date() for m in moments], kind)])
        np.testing.assert_array_equal(numbers(column, "t"), np.floor(days))
    lengths = pa.chunked_array([pa.array([dt.timedelta(days=1, milliseconds=5), None])])
    np.testing.assert_array_equal(numbers(lengths, "t"), [86_400.005, np.nan])
    codes, levels = dictionary(pa.chunked_array([["a", None], ["b", "a"]]))
    assert codes.tolist() == [0, -1, 1, 0]
    assert levels == ["a", "b"]


@pytest.mark.parametrize("dtype", [">f8", ">i4", "f2", "u1", np.longdouble])
def test_numbers_of_pandas_are_numbers_however_they_are_stored(dtype):
    import pandas as pd

    (column,) = as_columns(pd.DataFrame({"a": np.arange(5).astype(dtype)}))
    assert not is_categorical(column)
    found = numbers(column, "a")
    assert found.dtype == np.float64
    assert found.tolist() == [0, 1, 2, 3, 4]
