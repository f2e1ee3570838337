"""``rewrite.memory-limit``: what would hold more is refused or warned of, before it runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.bag
import numpy as np
import pytest

import dask_rewrite
from dask_rewrite.config import Options
from dask_rewrite.passes.contract import memory_limit
from dask_rewrite.scheduler import Machine, as_if
from helpers import switched_on


def drawn(shape: tuple[int, ...], chunks: Any) -> da.Array:
    return da.random.default_rng(1).random(shape, chunks=chunks)


def anomaly(counter: list[int] | None = None) -> da.Array:
    def seen(block: Any) -> Any:
        if counter is not None:
            counter.append(1)
        return block

    x = drawn((64, 2000), (2, 2000)).map_blocks(seen, meta=np.empty((0, 0)))
    return abs(x - x.mean(axis=0)).max()


def centred(x: da.Array) -> da.Array:
    x = x.map_blocks(lambda block: block * 1, dtype=x.dtype)  # nobody knows that it may be made again
    return abs(x - x.mean()).max()


def limited(limit: Any, on_memory: str = "raise") -> Any:
    return dask.config.set({"rewrite.memory-limit": limit, "rewrite.on-memory": on_memory, "num_workers": 2})


def test_refused_before_anything_runs() -> None:
    ran: list[int] = []
    with switched_on(), limited("200 kB"), pytest.raises(MemoryError) as caught:
        anomaly(ran).compute()
    assert type(caught.value) is dask_rewrite.MemoryLimitError
    assert not ran
    text = str(caught.value)
    assert "195.31 kiB" in text  # the limit
    assert re.search("[0-9]+ of 'seen' .* until '.*max", text)  # the tasks, and what they wait for
    assert "What would help" in text


def test_warned_of_and_computed() -> None:
    warned = pytest.warns(dask_rewrite.RewriteWarning, match="would hold")
    with switched_on(), limited("200 kB", "warn"), warned:
        found = anomaly().compute()
    assert found == anomaly().compute(scheduler="sync")


def test_nothing_is_said_below_the_limit() -> None:
    with switched_on(), limited("200 MB"):
        anomaly().compute()


def test_without_a_limit_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    import dask_rewrite.analysis.memory.graphs as graphs

    def fails(*args: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(graphs, "sized", fails)
    with switched_on():
        anomaly().compute()


@pytest.mark.parametrize("on_memory", ["warn", "raise"])
def test_of_what_nobody_can_guess_it_is_said_that_it_was_not_counted(on_memory: str) -> None:
    """No limit is exceeded without a word, and nothing is refused that may well fit."""
    made = [dask.delayed(lambda i: np.zeros(1000))(i) for i in range(10)]
    parts = [dask.delayed(func)(each) for each in made for func in (np.sort, np.max)]
    said = "cannot be told: what results weigh is not known of 10 of 'lambda', 10 of 'sort', 10 of 'max', and"
    for limit in ("1 kB", "8 GB"):
        with switched_on(), limited(limit, on_memory), pytest.warns(dask_rewrite.RewriteWarning) as warned:
            dask.compute(*parts)
        assert [said in str(each.message) for each in warned] == [True]


BAGS: dict[str, Callable[[Any], Any]] = {
    "counted": lambda bag: bag.filter(lambda n: n % 2).count(),
    "averaged": lambda bag: bag.mean(),
    "folded": lambda bag: bag.foldby(lambda n: n % 3, lambda total, n: total + n, 0),
}


@pytest.mark.parametrize("name", BAGS)
def test_what_is_made_of_data_that_stand_in_bags_weighs_as_much_as_these(name: str) -> None:
    """Each was said to be of unknown size as soon as it was made in one task with its data."""
    made = BAGS[name](dask.bag.from_sequence(range(1000), npartitions=10))
    with switched_on(), limited("1 MB"):
        made.compute()
    found = dask_rewrite.forecast(made, threads=2)
    for run in (found.before, found.after):
        assert run.uncounted == []
        assert run.least < 1000 < run.peak < run.most < 100_000


def test_a_catalog_tells_nothing_of_what_is_loaded_by_it() -> None:
    catalog = dask.delayed([f"/data/of/a/long/path/{i:05d}.nc" for i in range(100)])
    made = [dask.delayed(lambda paths, i: np.full(1000, i))(catalog, i) for i in range(10)]
    warned = pytest.warns(dask_rewrite.RewriteWarning, match="cannot be told")
    with switched_on(), limited("1 MB"), warned:
        dask.compute(made)


def test_paths_and_settings_tell_nothing_of_what_is_made_of_them() -> None:
    made = dask.bag.from_sequence(["a path", "another"], npartitions=2).filter(bool).count()
    warned = pytest.warns(dask_rewrite.RewriteWarning, match="cannot be told")
    with switched_on(), limited("1 MB", "warn"), warned:
        made.compute()


def test_values_that_stand_in_tasks_are_counted_as_they_are() -> None:
    """Coordinates come into the blocks of ``xr.map_blocks`` in tuples with their names."""
    xr = pytest.importorskip("xarray")
    labelled = xr.Dataset({"a": (("x", "y"), drawn((8, 6), (4, 6)))}, {"x": np.arange(8), "y": np.arange(6)})
    doubled = xr.map_blocks(lambda part: part * 2, labelled, template=labelled)
    with switched_on(), limited("1 MB"):
        assert bool((doubled.mean("x") > 0).all().a)
        tuples = [dask.delayed(tuple)([1, np.zeros(1000)]), dask.delayed(tuple)([2, 3])]
        dask.compute(*tuples)
    assert dask_rewrite.forecast(*tuples, threads=1).after.uncounted == []


@pytest.mark.parametrize(("limit", "tasks"), [(None, 31), ("1 MB", 11)])
def test_chains_of_delayed_tasks_are_one_under_a_limit(limit: Any, tasks: int) -> None:
    """What one task hands to the next is held by nobody then, whatever it weighs."""
    loaded = [dask.delayed(lambda i: np.arange(1000.0) * i)(i) for i in range(10)]
    total = dask.delayed(sum)([dask.delayed(np.mean)(dask.delayed(np.sort)(each)) for each in loaded])
    with (
        limited(limit, "warn"),
        nullcontext() if limit is None else pytest.warns(dask_rewrite.RewriteWarning),
    ):
        made = dask_rewrite.optimize(total)
        assert len(made.__dask_graph__()) == tasks
        with dask.config.set(delayed_optimize=None):
            assert made.compute(scheduler="sync") == total.compute(scheduler="sync")


def test_on_a_cluster_others_may_hold_what_a_chain_hands_on() -> None:
    total = dask.delayed(sum)([dask.delayed(np.sort)(dask.delayed(np.arange)(9)) for _ in range(4)])
    with limited("8 GB", "warn"), dask.config.set(as_if(1, 2)), pytest.warns(dask_rewrite.RewriteWarning):
        assert len(dask_rewrite.optimize(total).__dask_graph__()) == 9


def test_explain_says_that_sizes_are_unknown() -> None:
    parts = [dask.delayed(lambda i: np.zeros(1000))(i) for i in range(10)]
    said = "blocks of unknown size, so that more may be held: 11"  # their number is one
    for made, limit, count in ((dask.delayed(len)(parts), "1 MB", 1), (drawn((4, 10), 5).sum(), "8 GB", 0)):
        for given, expected in ((limit, count), (None, 0)):
            with limited(given):
                remarks = dask_rewrite.explain(made).remarks
            assert sum(each.reason == said and each.kind == "missed" for each in remarks) == expected


@pytest.mark.parametrize(("limit", "told"), [(60_000, True), (600_000, False)])
def test_of_what_is_unknown_what_is_likely_is_said_and_nothing_refused(limit: int, told: bool) -> None:
    """Ten blocks by a function of which nothing is known are likely to weigh what they are made of."""
    x = drawn((10, 1000), (1, 1000))
    parts = [dask.delayed(lambda block: block + 1)(block) for block in x.to_delayed().ravel()]
    said = pytest.warns(dask_rewrite.RewriteWarning, match="probably hold") if told else nullcontext()
    with switched_on(), limited(limit), said:
        assert dask.delayed(len)(parts).compute() == 10


def test_every_way_in() -> None:
    x = anomaly()
    with limited("200 kB"):
        for call in (
            lambda: dask_rewrite.optimize(x),
            lambda: dask.optimize(x),
            lambda: x.persist(),
            lambda: dask.compute([x, x + 1]),
        ):
            with switched_on(), pytest.raises(dask_rewrite.MemoryLimitError):
                call()


def test_looking_is_not_computing() -> None:
    with switched_on(), limited("200 kB"):
        assert dask_rewrite.explain(anomaly(), forecast=True).forecast.peak > 200_000
        assert dask_rewrite.forecast(anomaly()).peak > 200_000


def test_what_is_left_to_dask_is_said_not_to_be_looked_at() -> None:
    warned = pytest.warns(dask_rewrite.RewriteWarning, match="not looked at")
    with switched_on(), limited("1 kB"), dask.config.set({"rewrite.lower-limit": 1}), warned:
        anomaly().compute()


def test_looking_that_fails_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    import dask_rewrite.analysis.memory.graphs as graphs

    def fails(*args: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(graphs, "sized", fails)
    warned = pytest.warns(dask_rewrite.RewriteWarning, match="could not be looked at")
    with switched_on(), limited("1 kB"), dask.config.set({"rewrite.on-error": "warn"}), warned:
        anomaly().compute()


@pytest.mark.parametrize(
    ("program", "advice"),
    [
        (lambda: drawn((64, 2000), (2, 2000)), "storing the result"),
        (lambda: centred(drawn((64, 2000), (32, 2000))), "smaller chunks"),
        (lambda: drawn((64, 4000), (1, 4000)).rechunk((64, 100)).std(axis=0), "array.rechunk.threshold"),
        (anomaly, "on its own first"),
    ],
)
def test_it_says_what_would_help(program: Any, advice: str) -> None:
    with switched_on(), limited("600 kB"), pytest.raises(dask_rewrite.MemoryLimitError, match=advice):
        program().compute()


@pytest.mark.parametrize(
    "wrong", [{"memory-limit": "much"}, {"memory-limit": -1}, {"memory-limit": True}, {"on-memory": "stop"}]
)
def test_wrong_values_are_named(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with (
        dask.config.set({f"rewrite.{name}": wrong[name]}),
        pytest.raises(ValueError, match=rf"rewrite\.{name}"),
    ):
        Options.current()


@pytest.mark.parametrize(
    ("whole", "mine", "least"), [(None, None, 500), ("100 B", None, 100), ("100 B", 70, 70), ("50 B", 70, 50)]
)
def test_contractions_take_the_smaller_limit(whole: Any, mine: Any, least: int) -> None:
    with dask.config.set({"rewrite.memory-limit": whole, "rewrite.contraction.memory-limit": mine}):
        assert memory_limit(Machine(1, 1, 1000), Options.current()) == least


def test_what_would_help_a_rechunk_does(tmp_path: Path) -> None:
    da.from_array(np.arange(64.0 * 4000).reshape(64, 4000), chunks=(1, 4000)).to_zarr(str(tmp_path / "x"))
    held = {}
    for threshold in (4, 32):
        with dask.config.set({"array.rechunk.threshold": threshold}), limited("600 kB"):
            made = da.from_zarr(str(tmp_path / "x")).rechunk((64, 100)).std(axis=0)
            held[threshold] = dask_rewrite.forecast(made, threads=2).after.peak
    assert held[32] <= 600_000 < held[4]


@pytest.mark.parametrize("name", ["rows", "columns", "compressed"])
def test_what_a_mask_selects_along_an_axis_is_not_certain(name: str) -> None:
    """Where that is what is asked for nobody takes it to be of unknown size: it was refused."""
    x = drawn((400, 400), 50)
    mask = x[:, 0] > 0.99
    selected = {"rows": x[mask], "columns": x[:, mask], "compressed": da.compress(mask, x, axis=0)}[name]
    found = dask_rewrite.forecast(selected, threads=2).after
    assert found.least < x.nbytes / 4
    assert found.most >= x.nbytes
    with switched_on(), limited(x.nbytes, "raise"):
        warned = pytest.warns(dask_rewrite.RewriteWarning, match="would probably hold")
        with warned if found.peak > x.nbytes else nullcontext():
            selected.compute()


def test_where_sums_add_to_each_other_smaller_chunks_help() -> None:
    x = drawn((400, 200), (50, 100))
    with switched_on(), limited("100 kB"), pytest.raises(dask_rewrite.MemoryLimitError) as caught:
        (x.T @ x).sum().compute()
    assert "storing the result" not in str(caught.value)


def test_warnings_stand_at_the_line_of_the_user() -> None:
    """So that Python says them once for each."""
    with switched_on(), limited("200 kB", "warn"), pytest.warns(dask_rewrite.RewriteWarning) as warned:
        anomaly().compute()
    assert [each.filename for each in warned] == [__file__]
