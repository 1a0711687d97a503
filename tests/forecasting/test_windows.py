"""Windows of series: what each holds, and that none holds the future."""

import numpy as np
import pytest

from keras_transformer.forecasting.windows import rolling_origins, rolling_windows, windows_at

SIZES = {"history_length": 4, "horizon": 3}


def test_a_window_holds_the_steps_before_its_origin_and_its_target_those_after():
    series = np.arange(40.0).reshape(20, 2)
    windows = windows_at(series, [4, 9, 17], **SIZES)
    for i, origin in enumerate((4, 9, 17)):
        np.testing.assert_array_equal(windows.inputs["history"][i], series[origin - 4 : origin])
        np.testing.assert_array_equal(windows.targets[i], series[origin : origin + 3])
    assert windows.inputs["padding_mask"].all()
    assert windows.inputs["history"].dtype == windows.targets.dtype == np.float32


def test_nothing_of_the_future_is_in_a_window():
    """Changing a series from an origin on changes no window of that origin or an earlier one."""
    rng = np.random.default_rng(0)
    series, covariates = rng.normal(size=(30, 2)), rng.normal(size=(30, 1))
    for origin in (1, 4, 20, 27):
        changed = series.copy()
        changed[origin:] = 1e6
        for one in range(origin + 1):
            if one > 27:
                continue
            old = windows_at(series, [one], **SIZES, covariates=covariates).inputs
            new = windows_at(changed, [one], **SIZES, covariates=covariates).inputs
            assert old.keys() == new.keys() == {"history", "padding_mask", "covariates"}
            assert all(np.array_equal(old[name], new[name]) for name in old)


def test_training_windows_end_before_the_first_origin_that_is_scored():
    series = np.arange(50.0)
    for first in (10, 23, 47):
        train = rolling_windows(series[:first], **SIZES)
        test = windows_at(series, rolling_origins(50, 3, first=first), **SIZES)
        assert max(train.inputs["history"].max(), train.targets.max()) == first - 1
        assert test.targets.min() == first and test.targets.max() == 49
        assert (test.inputs["history"].max(axis=(1, 2)) < test.targets.min(axis=(1, 2))).all()


def test_rolling_windows_are_all_there_are():
    windows = rolling_windows(np.arange(12.0), **SIZES)
    assert windows.targets[:, 0, 0].tolist() == list(range(4, 10))
    windows = rolling_windows(np.arange(12.0), **SIZES, stride=2)
    assert windows.targets[:, 0, 0].tolist() == [4, 6, 8]


def test_short_histories_are_padded_before():
    windows = rolling_windows(np.arange(1.0, 9.0), **SIZES, min_history=2)
    assert windows.inputs["history"][0, :, 0].tolist() == [0, 0, 1, 2]
    assert windows.inputs["padding_mask"][0].tolist() == [False, False, True, True]
    assert windows.targets[0, :, 0].tolist() == [3, 4, 5]
    assert windows.inputs["padding_mask"][2:].all()


def test_missing_steps_are_masked_and_missing_targets_left_out():
    series = np.arange(1.0, 13.0)
    series[5] = np.nan
    windows = windows_at(series, [7], **SIZES)
    assert windows.inputs["history"][0, :, 0].tolist() == [4, 5, 0, 7]
    assert windows.inputs["padding_mask"][0].tolist() == [True, True, False, True]
    assert np.isnan(windows_at(series, [4], **SIZES).targets[0, 1, 0])
    assert rolling_windows(series, **SIZES).targets[:, 0, 0].tolist() == [7, 8, 9, 10]
    both = np.stack([np.arange(12.0), series], 1)  # a step that lacks one feature is not known
    assert not windows_at(both, [7], **SIZES).inputs["padding_mask"][0, 2]


def test_infinite_steps_are_missing_steps():
    series = np.arange(20.0)
    missing, infinite = series.copy(), series.copy()
    missing[[3, 12]], infinite[[3, 12]] = np.nan, (np.inf, -np.inf)
    for make in (rolling_windows, lambda x, **sizes: windows_at(x, [5, 9, 11], **sizes)):
        expected, windows = make(missing, **SIZES), make(infinite, **SIZES)
        np.testing.assert_equal(windows.inputs, expected.inputs)
        np.testing.assert_equal(windows.targets, expected.targets)


def test_a_list_of_lists_is_a_list_of_series():
    windows = rolling_windows([[1.0] * 8, [2.0] * 9], **SIZES)
    assert windows.targets[:, 0, 0].tolist() == [1, 1, 2, 2, 2]


def test_any_iterable_of_series_is_a_list_of_them():
    series = [np.arange(8.0), np.arange(100.0, 109.0)]
    known = [np.zeros(8), np.ones(9)]
    expected = rolling_windows(series, **SIZES, covariates=known)
    objects = np.empty(2, object)
    objects[:] = series
    for given in ((x for x in series), objects, tuple(series), dict(enumerate(series)).values()):
        windows = rolling_windows(given, **SIZES, covariates=(x for x in known))
        np.testing.assert_equal(windows.inputs, expected.inputs)
        np.testing.assert_equal(windows.targets, expected.targets)


def test_the_rows_of_a_matrix_are_series_if_it_is_a_list():
    matrix = np.arange(30.0).reshape(3, 10)
    windows = rolling_windows(list(matrix), **SIZES)
    assert windows.targets[:, 0, 0].tolist() == [4, 5, 6, 7, 14, 15, 16, 17, 24, 25, 26, 27]
    numbers = rolling_windows(np.array([1, 2.5] * 5, object), **SIZES)  # one series of objects
    assert numbers.targets[:, 0, 0].tolist() == [1, 2.5, 1, 2.5]


def test_covariates_cover_history_and_horizon():
    month = np.arange(20.0) % 12
    windows = windows_at(np.arange(20.0), [2, 9], **SIZES, covariates=month)
    assert windows.inputs["covariates"][0, :, 0].tolist() == [0, 0, 0, 1, 2, 3, 4]
    assert windows.inputs["covariates"][1, :, 0].tolist() == [5, 6, 7, 8, 9, 10, 11]


def test_several_series_of_differing_length_are_one_set_of_windows():
    long, short = np.arange(12.0), np.arange(100.0, 105.0)
    covariates = [np.zeros(12), np.ones(5)]
    windows = rolling_windows([long, short], **SIZES, covariates=covariates, min_history=1)
    alone = [
        rolling_windows(one, **SIZES, covariates=known, min_history=1)
        for one, known in zip((long, short), covariates, strict=True)
    ]
    for name in ("history", "padding_mask", "covariates"):
        expected = np.concatenate([part.inputs[name] for part in alone])
        np.testing.assert_array_equal(windows.inputs[name], expected)
    np.testing.assert_array_equal(windows.targets, np.concatenate([p.targets for p in alone]))
    assert windows.targets[-2:, 0, 0].tolist() == [101, 102]


def test_rolling_origins_leave_room_for_the_horizon():
    assert rolling_origins(10, 3, first=5).tolist() == [5, 6, 7]
    assert rolling_origins(10, 3, first=1, stride=3).tolist() == [1, 4, 7]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rolling_windows(np.zeros(9), history_length=4.0, horizon=2),
            "length must be an int",
        ),
        (lambda: rolling_windows(np.zeros(9), history_length=4, horizon=2.0), "horizon must be an"),
        (lambda: rolling_origins(10, 3, first=8), r"an integer in \[1, 7\].*but is 8"),
        (lambda: rolling_origins(10, 3, first=0), r"an integer in \[1, 7\].*but is 0"),
        (lambda: windows_at(np.zeros(10), [8], **SIZES), r"origins must be in \[0, 7\].*8 to 8"),
        (lambda: windows_at(np.zeros(10), [-1], **SIZES), r"origins must be in \[0, 7\].*-1 to"),
        (lambda: windows_at(np.zeros((9, 1, 1)), [4], **SIZES), r"series must be .*\(9, 1, 1\)"),
        (
            lambda: windows_at(np.zeros(9), [4], **SIZES, covariates=np.zeros(8)),
            r"all 9 steps.*\(8, 1\) and 0 gaps",
        ),
        (
            lambda: windows_at(np.zeros(9), [4], **SIZES, covariates=np.full(9, np.nan)),
            "9 gaps",
        ),
        (lambda: rolling_windows(np.zeros(6), **SIZES), "4 steps before its origin and 3 "),
        (
            lambda: rolling_windows([np.zeros(9)] * 2, **SIZES, covariates=[np.zeros(9)]),
            "2 series, but covariates for 1",
        ),
        *(
            (
                lambda given=given: rolling_windows([np.zeros(9)] * 2, **SIZES, covariates=given),
                "2 series, but covariates for 1",
            )
            for given in ([None, np.zeros(9)], [np.zeros(9), None])
        ),
        (
            lambda: rolling_windows(
                [np.zeros(9)] * 2, **SIZES, covariates=[np.zeros(9), np.zeros((9, 2))]
            ),
            r"same covariates, but have \[1, 2\] columns",
        ),
        (
            lambda: windows_at(np.zeros(9), [4], **SIZES, covariates=np.full(9, np.inf)),
            "9 gaps",
        ),
        (lambda: windows_at(np.zeros(9), [3.7], **SIZES), r"origins must be integers.*3\.7"),
        (lambda: rolling_windows(np.zeros(9), **SIZES, stride=0), "stride must be an integer of"),
        (lambda: rolling_windows(np.zeros(9), **SIZES, min_history=-1), "min_history must be an"),
        (
            lambda: rolling_windows(np.zeros(9), history_length=4, horizon=0),
            "horizon must be an integer of at least 1, but is 0",
        ),
        (
            lambda: rolling_windows(np.zeros(9), history_length=0, horizon=3),
            "history_length must be an integer of at least 1, but is 0",
        ),
        (lambda: rolling_origins(10, 3, first=4, stride=0), "stride must be an integer of at"),
        (lambda: rolling_origins(10, 0, first=4), "horizon must be an integer of at least 1"),
        (lambda: rolling_origins(10, 3, first=4.5), r"an integer in \[1, 7\].*but is 4\.5"),
        (lambda: rolling_windows(np.zeros(0), **SIZES), "4 steps before its origin and 3 "),
        *(
            (lambda none=none: rolling_windows(none, **SIZES), "series is empty; give at least one")
            for none in ([], iter([]))
        ),
        *(
            (lambda one=one: rolling_windows(one, **SIZES), f"series must be .* but is {kind}")
            for one, kind in (
                ({"a": np.zeros(9)}, "dict; .*values"),
                (None, "NoneType"),
                (3.0, "float"),
                ("series.csv", "str"),
                ([{"a": 1.0}], "list"),
                ([np.zeros(9), "a"], "str"),
            )
        ),
        (
            lambda: rolling_windows([np.zeros(9)] * 2, **SIZES, covariates={"a": 1, "b": 2}),
            "covariates must be .* but is dict",
        ),
        *(
            (lambda make=make, x=x: make(x), "series has 2 values beyond float32.*divide")
            for x in (np.where(np.arange(12) < 10, 1.0, -1e40),)
            for make in (
                lambda x: rolling_windows(x, **SIZES),
                lambda x: windows_at(x, [4], **SIZES),
            )
        ),
        (
            lambda: rolling_windows([np.zeros(9), np.zeros((9, 2))], **SIZES),
            r"same features, but have \[1, 2\] columns",
        ),
    ],
)
def test_what_makes_no_windows_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
