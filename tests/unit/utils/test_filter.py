"""Observation filters: statistics, merging, batches, state."""

from __future__ import annotations

import copy
import json
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.utils.errors import CheckpointError, ConfigError, NonFiniteError
from rlframe.utils.filter import ConcurrentMeanStdFilter, MeanStdFilter, NoFilter, RunningStat, get_filter


@pytest.mark.parametrize("shape", [(), (3,), (3, 4)])
def test_running_stat_any_shape_equals_numpy(shape):
    rng = np.random.default_rng(0)
    stat, seen = RunningStat(shape), []
    for _ in range(20):
        x = rng.normal(3.0, 2.0, shape)
        stat.push(x)
        seen.append(x)
        want = np.square(np.mean(seen, axis=0)) if len(seen) == 1 else np.var(seen, ddof=1, axis=0)
        np.testing.assert_allclose(stat.mean, np.mean(seen, axis=0), rtol=1e-12)
        np.testing.assert_allclose(stat.var, want, rtol=1e-9)
    assert stat.n == 20
    assert stat.shape == shape


def test_running_stat_worked_by_hand_gives_mean_and_variance():
    stat = RunningStat(())
    for x in (1.0, 2.0, 6.0):
        stat.push(x)
    assert float(stat.mean) == 3.0
    assert float(stat.var) == 7.0  # (4 + 1 + 9) / 2


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.floats(-1e6, 1e6), st.integers(0, 2**31 - 1))
def test_running_stat_merged_parts_equal_whole(sizes, offset, seed):
    data = np.random.default_rng(seed).normal(offset, 1.0, (sum(sizes), 2))
    merged = RunningStat((2,))
    for part in np.split(data, np.cumsum(sizes)[:-1]):
        merged.update(RunningStat.of(part))
    assert merged.n == len(data)
    np.testing.assert_allclose(merged.mean, data.mean(axis=0), rtol=1e-12, atol=1e-12)
    if len(data) > 1:
        np.testing.assert_allclose(merged.var, data.var(axis=0, ddof=1), rtol=1e-6)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 5), st.lists(st.integers(1, 7), min_size=1, max_size=4), st.floats(-1e4, 1e4), st.integers(0, 2**31)
)
def test_filter_batch_random_sizes_equals_sequential(before, sizes, offset, seed):
    rng = np.random.default_rng(seed)
    one_by_one, batched = MeanStdFilter((3,), clip=None), MeanStdFilter((3,), clip=None)
    for x in rng.normal(offset, 2.0, (before, 3)):
        one_by_one(x)
        batched(x)
    for size in sizes:
        x = rng.normal(offset, 2.0, (size, 3))
        want = np.stack([one_by_one(row) for row in x])
        np.testing.assert_allclose(batched.filter_batch(x), want, atol=1e-6, rtol=1e-6)
    for name in ("rs", "buffer"):
        mine, other = getattr(batched, name), getattr(one_by_one, name)
        assert mine.n == other.n
        np.testing.assert_allclose(mine.mean, other.mean, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(mine.var, other.var, rtol=1e-6, atol=1e-12)


def test_running_stat_batches_with_large_mean_keep_their_digits():
    data = 1e8 + np.random.default_rng(0).normal(size=(1000, 1))
    stat = RunningStat((1,))
    for part in np.split(data, 10):
        stat.push_batch(part)
    np.testing.assert_allclose(stat.var, data.var(axis=0, ddof=1), rtol=1e-4)


def test_mean_std_filter_first_observation_gives_zero():
    np.testing.assert_array_equal(MeanStdFilter((2,))([5.0, -3.0]), [0.0, 0.0])


def test_mean_std_filter_without_update_learns_nothing():
    f = MeanStdFilter((2,), clip=None)
    f.filter_batch(np.array([[0.0, 10.0], [2.0, 30.0]]))
    result = f([1.0, 20.0], update=False)
    np.testing.assert_allclose(result, [0.0, 0.0], atol=1e-7)
    assert result.dtype == np.float32
    np.testing.assert_allclose(f.filter_batch([[2.0, 30.0]], update=False), [[1 / np.sqrt(2)] * 2], rtol=1e-6)
    assert f.rs.n == f.buffer.n == 2


@pytest.mark.parametrize("cls", [MeanStdFilter, ConcurrentMeanStdFilter])
def test_mean_std_filter_several_at_once_are_counted_each_and_normalised_alike(cls):
    f = cls((2,), clip=None)
    result = f([[0.0, 10.0], [2.0, 30.0], [4.0, 20.0]])
    np.testing.assert_allclose(result, [[-1.0, -1.0], [0.0, 1.0], [1.0, 0.0]], atol=1e-7)
    assert f(np.zeros((0, 2))).shape == (0, 2)
    assert f.rs.n == f.buffer.n == 3
    assert f.rs.shape == (2,)
    for several in (np.zeros((3, 1)), np.zeros((3, 5))):
        for count in (f, f.filter_batch):
            with pytest.raises(ValueError, match="Got observations of shape"):
                count(several)
    with pytest.raises(ValueError, match=r"Got an observation of shape \(3,\) to count; wanted \(2,\)"):
        f([1.0, 2.0, 3.0])


def test_mean_std_filter_nothing_seen_passes_observations():
    np.testing.assert_array_equal(MeanStdFilter((2,))([5.0, 7.0], update=False), [5.0, 7.0])
    np.testing.assert_array_equal(MeanStdFilter((2,)).filter_batch([[5.0, 7.0]], update=False), [[5.0, 7.0]])
    assert MeanStdFilter((2,)).filter_batch(np.zeros((0, 2))).shape == (0, 2)


def test_mean_std_filter_clip_bounds_result():
    f = MeanStdFilter((), clip=0.5)
    f.filter_batch(np.array([-1.0, 1.0]))
    assert float(f(100.0, update=False)) == 0.5


def test_mean_std_filter_demean_and_destd_are_separate():
    x = np.array([[2.0], [4.0]])
    only_mean = MeanStdFilter((1,), destd=False, clip=None)
    only_std = MeanStdFilter((1,), demean=False, clip=None)
    np.testing.assert_allclose(only_mean.filter_batch(x)[1], [1.0])
    np.testing.assert_allclose(only_std.filter_batch(x)[1], [4.0 / np.sqrt(2.0)], rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_mean_std_filter_non_finite_raises_and_keeps_statistics(bad):
    f = MeanStdFilter((2,))
    f([1.0, 2.0])
    with pytest.raises(NonFiniteError, match=r"index \(1,\)"):
        f([1.0, bad])
    with pytest.raises(NonFiniteError, match=r"index \(0, 0\)"):
        f.filter_batch([[bad, 1.0]])
    assert f.rs.n == 1


def test_synchronisation_of_two_workers_counts_everything_once():
    rng = np.random.default_rng(1)
    driver, workers, everything = MeanStdFilter((2,)), [MeanStdFilter((2,)), MeanStdFilter((2,))], []
    for _ in range(3):
        for worker in workers:
            data = rng.normal(size=(int(rng.integers(1, 6)), 2))
            worker.filter_batch(data)
            everything.append(data)
        for worker in workers:
            delta = worker.as_serializable()
            worker.clear_buffer()
            driver.apply_changes(delta)
        for worker in workers:
            worker.sync(driver.as_serializable())
    data = np.concatenate(everything)
    for f in (driver, *workers):
        assert f.rs.n == len(data)
        np.testing.assert_allclose(f.rs.mean, data.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(f.rs.var, data.var(axis=0, ddof=1), rtol=1e-9)


def test_apply_changes_with_buffer_takes_buffer_over():
    a, b = MeanStdFilter(()), MeanStdFilter(())
    a(1.0)
    a(2.0)
    b(10.0)
    a.apply_changes(b, with_buffer=False)
    assert (a.rs.n, float(a.rs.mean), a.buffer.n) == (3, pytest.approx(13 / 3), 2)
    a.apply_changes(b, with_buffer=True)
    assert (a.rs.n, a.buffer.n) == (4, 1)
    assert a.buffer is not b.buffer


@pytest.mark.parametrize("cls", [MeanStdFilter, ConcurrentMeanStdFilter])
def test_copy_and_sync_are_independent(cls):
    a = cls((1,), clip=3.0)
    a([1.0])
    b = a.copy()
    a([2.0])
    assert (type(b), b.rs.n, b.clip) == (cls, 1, 3.0)
    b.sync(a)
    a.clear_buffer()
    assert (b.rs.n, b.buffer.n, a.buffer.n) == (2, 2, 0)
    a([3.0])
    assert b.rs.n == 2


@pytest.mark.parametrize("cls", [MeanStdFilter, ConcurrentMeanStdFilter])
@pytest.mark.parametrize("through", [copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))])
def test_filter_copied_or_pickled_goes_on_equally(cls, through):
    a = cls((2,))
    a.filter_batch([[1.0, 2.0], [3.0, 5.0]])
    b = through(a)
    np.testing.assert_array_equal(a([4.0, 4.0]), b([4.0, 4.0]))


def test_state_round_trip_is_plain_and_exact():
    a = MeanStdFilter((2,), clip=None)
    a.filter_batch([[1.0, 2.0], [3.0, 5.0]])
    state = a.get_state()
    json.dumps(state, default=np.ndarray.tolist)
    b = MeanStdFilter((2,))
    b.set_state(state)
    a([9.0, 9.0])  # the state is a snapshot
    assert (b.rs.n, b.clip) == (2, None)
    np.testing.assert_array_equal(a([4.0, 4.0]), (b([9.0, 9.0]), b([4.0, 4.0]))[1])


def test_state_of_other_shape_raises_and_changes_nothing():
    a = MeanStdFilter((2,))
    a([1.0, 1.0])
    with pytest.raises(CheckpointError, match=r"\(3,\).*wanted \(2,\)"):
        a.set_state(MeanStdFilter((3,)).get_state())
    with pytest.raises(CheckpointError, match="NoFilter"):
        a.set_state(NoFilter().get_state())
    assert a.rs.n == 1


def test_concurrent_filter_many_threads_loses_nothing():
    f = ConcurrentMeanStdFilter((2,))
    threads = [threading.Thread(target=lambda: [f.filter_batch(np.ones((4, 2))) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert f.rs.n == f.buffer.n == 800
    assert type(f.as_serializable()) is MeanStdFilter
    assert f.is_concurrent
    assert not MeanStdFilter.is_concurrent


def test_no_filter_passes_the_same_object():
    x = np.ones(3)
    f = get_filter("NoFilter", (3,))
    assert f(x) is x
    assert f.filter_batch(x, update=False) is x
    f.apply_changes(f.copy())
    f.sync(f.as_serializable())
    f.set_state(f.get_state())


def test_get_filter_names_and_callables_give_filters():
    assert get_filter("MeanStdFilter", (3,)).clip is None
    assert isinstance(get_filter("ConcurrentMeanStdFilter", (3,)), ConcurrentMeanStdFilter)
    assert get_filter(lambda shape: ("mine", shape), (3,)) == ("mine", (3,))


def test_get_filter_unknown_name_raises_with_choices():
    with pytest.raises(ConfigError, match=r"'MeanStd'.*\"MeanStdFilter\""):
        get_filter("MeanStd", (3,))
