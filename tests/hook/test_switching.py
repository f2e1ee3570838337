"""Turning the optimizer on and off, in each of the three ways."""

from __future__ import annotations

import warnings
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pytest
from dask.array.optimization import optimize as stock_array

import dask_rewrite
from helpers import assert_same, distinct

NAMES = ("array_optimize", "delayed_optimize", "bag_optimize")


@pytest.fixture
def x() -> da.Array:
    return (distinct((4, 4), 2) + 1).T


# --------------------------------------------------------------------------------------
# by configuration


def test_by_configuration(x: da.Array, rewrites: Any) -> None:
    expected = x.compute()
    assert len(rewrites) == 0
    dask.config.set(array_optimize=dask_rewrite.optimize)
    assert_same(x.compute(), expected)
    rewrites.assert_once_here()


def test_by_configuration_for_a_while(x: da.Array, rewrites: Any) -> None:
    with dask.config.set(array_optimize=dask_rewrite.optimize):
        x.compute()
    assert len(rewrites) == 1
    x.compute()
    assert len(rewrites) == 1


# --------------------------------------------------------------------------------------
# enable, disable, auto


def test_enable_and_disable(x: da.Array, rewrites: Any) -> None:
    expected = x.compute()
    dask_rewrite.enable()
    for name in NAMES:
        assert dask.config.get(name) is dask_rewrite.optimize
    assert_same(x.compute(), expected)
    assert len(rewrites) == 1
    dask_rewrite.disable()
    assert_same(x.compute(), expected)
    assert len(rewrites) == 1


def test_enable_as_a_context_manager(x: da.Array, rewrites: Any) -> None:
    before = {name: dask.config.get(name, None) for name in NAMES}
    with dask_rewrite.enable():
        x.compute()
        assert len(rewrites) == 1
    assert {name: dask.config.get(name, None) for name in NAMES} == before
    x.compute()
    assert len(rewrites) == 1


def test_the_context_manager_ends_after_an_error(x: da.Array, rewrites: Any) -> None:
    with pytest.raises(KeyError), dask_rewrite.enable():
        raise KeyError
    x.compute()
    assert len(rewrites) == 0


def test_nested_context_managers(x: da.Array, rewrites: Any) -> None:
    with dask_rewrite.enable():
        with dask_rewrite.enable():
            x.compute()
        x.compute()
        assert len(rewrites) == 2
    x.compute()
    assert len(rewrites) == 2


def test_disable_is_harmless_when_nothing_was_enabled(x: da.Array, rewrites: Any) -> None:
    dask_rewrite.disable()
    dask_rewrite.disable()
    x.compute()
    assert len(rewrites) == 0


def test_enabling_twice_is_enabling_once(x: da.Array, rewrites: Any) -> None:
    dask_rewrite.enable()
    dask_rewrite.enable()
    x.compute()
    assert len(rewrites) == 1
    dask_rewrite.disable()
    x.compute()
    assert len(rewrites) == 1


def test_enable_survives_a_refresh(x: da.Array, rewrites: Any) -> None:
    dask_rewrite.enable()
    dask.config.refresh()
    dask.config.set({"rewrite.on-error": "raise"})
    x.compute()
    assert len(rewrites) == 1
    dask_rewrite.disable()
    dask.config.refresh()
    x.compute()
    assert len(rewrites) == 1


def test_enable_works_for_delayed_and_bag(rewrites: Any) -> None:
    with dask_rewrite.enable():
        assert dask.delayed(sum)([1, 2]).compute() == 3
        assert len(rewrites) == 1
        assert db.from_sequence([1, 2, 3], npartitions=2).map(str).compute(scheduler="sync") == [
            "1",
            "2",
            "3",
        ]
        assert len(rewrites) == 2


def test_the_enabled_setting_can_be_switched_off(x: da.Array) -> None:
    with dask.config.set({"rewrite.enabled": False}), dask_rewrite.enable():
        assert_same(x.compute(), x.compute(optimize_graph=False))


# --------------------------------------------------------------------------------------
# a user's own optimizer is not displaced


def test_the_users_own_optimizer_stays(x: da.Array) -> None:
    calls = []

    def mine(dsk: Any, keys: Any, **kwargs: Any) -> Any:
        calls.append(keys)
        return stock_array(dsk, keys)

    expected = x.compute()
    with dask.config.set(array_optimize=mine):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dask_rewrite.RewriteWarning)
            dask_rewrite.enable()
        assert_same(x.compute(), expected)
        assert calls, "the user's own optimizer was not called"
        calls.clear()
        dask_rewrite.disable()
        assert_same(x.compute(), expected)
        assert calls


def test_stepping_aside_is_said(x: da.Array) -> None:
    def mine(dsk: Any, keys: Any, **kwargs: Any) -> Any:
        return stock_array(dsk, keys)

    with (
        dask.config.set(array_optimize=mine),
        pytest.warns(dask_rewrite.RewriteWarning, match="array_optimize"),
    ):
        dask_rewrite.enable()
    dask_rewrite.disable()


def test_a_user_who_switched_optimization_off_keeps_it_off(x: da.Array, rewrites: Any) -> None:
    with dask.config.set(array_optimize=False):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dask_rewrite.RewriteWarning)
            dask_rewrite.enable()
        x.compute()
        assert len(rewrites) == 0
    dask_rewrite.disable()


def test_query_planning_gets_a_warning() -> None:
    with dask.config.set({"array.query-planning": True}):
        with pytest.warns(dask_rewrite.RewriteWarning, match="query-planning"):
            dask_rewrite.enable()
        dask_rewrite.disable()


# --------------------------------------------------------------------------------------
# on a collection


def test_on_an_array(x: da.Array) -> None:
    y = dask_rewrite.optimize(x)
    assert type(y) is da.Array
    assert y.name == x.name
    assert y.__dask_keys__() == x.__dask_keys__()
    assert (y.chunks, y.dtype, y.shape) == (x.chunks, x.dtype, x.shape)
    assert type(y._meta) is type(x._meta)
    assert_same(y.compute(), x.compute())


def test_on_several_collections_at_once(x: da.Array) -> None:
    d = dask.delayed(sum)([1, 2, 3])
    b = db.from_sequence(range(6), npartitions=3).map(lambda i: i * 2)
    results = dask_rewrite.optimize(x, d, b)
    assert [type(r) for r in results] == [type(x), type(d), type(b)]
    for new, old in zip(results, (x, d, b), strict=True):
        assert new.__dask_keys__() == old.__dask_keys__()
        assert_same(new.compute(scheduler="sync"), old.compute(scheduler="sync"))


def test_on_several_collections_runs_one_shared_rewrite(x: da.Array, rewrites: Any) -> None:
    dask_rewrite.optimize(x, x + 1, dask.delayed(sum)([1, 2]))
    rewrites.assert_once_here()


def test_on_delayed() -> None:
    d = dask.delayed(sum)([dask.delayed(int)("4"), 5])
    e = dask_rewrite.optimize(d)
    assert type(e) is type(d)
    assert e.key == d.key
    assert e.compute() == 9


def test_on_a_delayed_attribute_and_a_delayed_method() -> None:
    d = dask.delayed(complex)(3, 4)
    assert dask_rewrite.optimize(d.imag).compute() == 4.0
    assert dask_rewrite.optimize(d.conjugate()).compute() == 3 - 4j


def test_on_a_bag_and_an_item() -> None:
    b = db.from_sequence(range(10), npartitions=4).filter(lambda i: i % 2)
    assert dask_rewrite.optimize(b).compute(scheduler="sync") == [1, 3, 5, 7, 9]
    total = b.sum()
    result = dask_rewrite.optimize(total)
    assert type(result) is type(total)
    assert result.compute(scheduler="sync") == 25


def test_on_a_dataframe() -> None:
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    frame = dd.from_pandas(pd.DataFrame({"a": range(10), "b": 1.5}), npartitions=3)
    grown = frame.assign(c=frame.a + frame.b)
    result = dask_rewrite.optimize(grown)
    assert type(result) is type(grown)
    assert list(result.columns) == ["a", "b", "c"]
    assert result.divisions == grown.divisions
    assert_same(result.compute(), grown.compute())


@pytest.mark.parametrize("kind", ["Dataset", "DataArray", "Variable"])
def test_on_xarray(kind: str) -> None:
    xr = pytest.importorskip("xarray")
    array = xr.DataArray(distinct((4, 6), 2), dims=("a", "b"), coords={"a": range(4)}, name="t")
    original = {"Dataset": array.to_dataset(), "DataArray": array, "Variable": array.variable}[kind] * 2
    result = dask_rewrite.optimize(original)
    assert type(result) is type(original)
    assert list(result.__dask_keys__()) == list(original.__dask_keys__())
    xr.testing.assert_identical(result.compute(), original.compute())


def test_on_dask_array() -> None:
    other = pytest.importorskip("dask_array")
    x = (other.arange(12, chunks=4) + 1).sum()
    y = dask_rewrite.optimize(x)
    assert type(y) is type(x)
    assert y.__dask_keys__() == x.__dask_keys__()
    assert int(y.compute()) == 78


def test_on_nothing_changed_in_place(x: da.Array) -> None:
    before = dict(x.__dask_graph__())
    dask_rewrite.optimize(x)
    assert dict(x.__dask_graph__()).keys() == before.keys()


# --------------------------------------------------------------------------------------
# wrong use


@pytest.mark.parametrize("wrong", [3, None, "x", [1, 2], np.arange(3), object()])
def test_what_is_no_collection_is_a_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match="collection"):
        dask_rewrite.optimize(wrong)


def test_one_wrong_argument_among_good_ones(x: da.Array) -> None:
    with pytest.raises(TypeError, match="int"):
        dask_rewrite.optimize(x, 3)


def test_a_list_of_collections_says_how_to_give_them(x: da.Array) -> None:
    with pytest.raises(TypeError, match=r"got list: .* optimize\(\*\.\.\.\)"):
        dask_rewrite.optimize([x, x])


def test_no_argument_at_all() -> None:
    with pytest.raises(TypeError):
        dask_rewrite.optimize()


# --------------------------------------------------------------------------------------
# in a fresh interpreter


def test_importing_alone_changes_nothing(python: Any) -> None:
    python(
        """
        import copy, sys, dask, dask.array as da
        loaded = set(sys.modules)
        before = copy.deepcopy(dask.config.config)
        faces = da.Array.__dask_optimize__, da.Array.compute, dask.optimize, dask.compute
        import dask_rewrite
        after = dict(dask.config.config)
        after.pop("rewrite")
        assert after == before, (before, after)
        assert faces[1:] == (da.Array.compute, dask.optimize, dask.compute)
        x = da.ones(4, chunks=2)
        assert x.__dask_optimize__ is da.optimization.optimize
        for heavy in ("distributed", "xarray", "pandas", "dask.dataframe", "h5py", "zarr"):
            assert heavy in loaded or heavy not in sys.modules, heavy
        """
    )


def test_import_and_forget(python: Any) -> None:
    python(
        """
        import dask, dask.array as da, dask.bag as db
        import dask_rewrite.auto
        for name in ("array_optimize", "delayed_optimize", "bag_optimize"):
            assert dask.config.get(name) is dask_rewrite.optimize, name
        dask.config.refresh()
        for name in ("array_optimize", "delayed_optimize", "bag_optimize"):
            assert dask.config.get(name) is dask_rewrite.optimize, name
        with dask.config.set(array_optimize=None):
            assert da.ones(4, chunks=2).sum().compute() == 4
        dask.config.set({"rewrite.on-error": "raise", "scheduler": "sync"})
        a, b = da.ones(4, chunks=2), da.ones(4, chunks=2) * 2
        for _ in range(300):
            a, b = b, (a + b) * 0.5
        assert round(float(b.sum().compute()), 9) == 6.666666667
        dask_rewrite.disable()
        assert dask.config.get("array_optimize", None) is not dask_rewrite.optimize
        """
    )


def test_import_and_forget_steps_aside(python: Any) -> None:
    python(
        """
        import warnings, dask, dask.array as da
        calls = []
        def mine(dsk, keys, **kwargs):
            calls.append(keys)
            return dsk
        dask.config.set(array_optimize=mine, scheduler="sync")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            import dask_rewrite.auto
        assert any("array_optimize" in str(w.message) for w in seen), seen
        assert da.ones(4, chunks=2).sum().compute() == 4
        assert calls
        """
    )


def test_import_and_forget_under_query_planning(python: Any) -> None:
    python(
        """
        import warnings
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            import dask_rewrite.auto
        assert any("query-planning" in str(w.message) for w in seen), seen
        """,
        DASK_ARRAY__QUERY_PLANNING="True",
    )


def test_environment_variables_reach_the_configuration(python: Any) -> None:
    out = python(
        """
        import dask, dask_rewrite
        print(dask.config.get("rewrite.on-error"), dask.config.get("rewrite.lower-limit"))
        """,
        DASK_REWRITE__ON_ERROR="raise",
        DASK_REWRITE__LOWER_LIMIT="123",
    )
    assert out.split() == ["raise", "123"]
