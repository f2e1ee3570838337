"""Plans under a limit: which are made and simulated, and under which names they are sent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import dask_rewrite
from dask_rewrite.analysis.memory import graphs, original
from dask_rewrite.graph.names import unmarked
from dask_rewrite.passes import coalesce, reread, sweep
from helpers import switched_on

#: Blocks of 160 kB.
ROWS, LENGTH = 24, 20_000
BLOCK = 8 * LENGTH


def drawn() -> da.Array:
    return da.random.default_rng(1).random((ROWS, LENGTH), chunks=(1, LENGTH))


def anomaly() -> da.Array:
    """Reading again holds a few blocks, where otherwise all of them wait."""
    x = drawn()
    return abs(x - x.mean(axis=0)).max()


def opaque() -> da.Array:
    """All blocks wait, and nobody knows whether they may be made again."""
    x = drawn().map_blocks(lambda block: block * 1, dtype="f8")
    return abs(x - x.mean(axis=0)).max()


def gathered() -> da.Array:
    """All of it is asked for."""
    return drawn() * 2


def mirrored() -> da.Array:
    x = drawn()
    return x + x[::-1]


class Counted:
    """How often something was called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> None:
        self.calls = 0
        original = getattr(where, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(where, name, counting)


def sent(limit: int | None, *collections: Any, threads: int = 2) -> dict[Any, Any]:
    how = {"rewrite.memory-limit": limit, "num_workers": threads, "scheduler": "threads"}
    with switched_on(), dask.config.set(how):
        return dict(dask.base.collections_to_expr(collections).optimize().__dask_graph__())


@pytest.mark.parametrize(
    ("program", "blocks", "simulated", "reread_runs", "warns"),
    [
        (anomaly, 100, 1, 1, False),  # it fits: reread looks, and may do nothing
        (anomaly, 8, 2, 2, False),  # one at a time holds as much: the blocks are read again
        (opaque, 8, 1, 5, True),  # nothing is to be read again: that is no other plan
        (gathered, 12, 1, 1, True),  # every plan holds what is asked for
        (mirrored, 24.3, 1, 1, True),  # and a block or two beside it
        (mirrored, 25, 1, 5, True),
    ],
    ids=["fits", "read again", "cannot be read again", "asked for", "no room beside it", "room beside it"],
)
def test_plans_that_cannot_help_are_not_simulated(
    program: Callable[[], da.Array],
    blocks: float,
    simulated: int,
    reread_runs: int,
    warns: bool,
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
) -> None:
    sizes = Counted(monkeypatch, graphs, "sized")
    passes = Counted(monkeypatch, reread.Reread, "run")
    sent(int(blocks * BLOCK), program())
    assert (sizes.calls, passes.calls) == (simulated, reread_runs)
    assert bool(recwarn) is warns


def test_the_graph_as_it_came_is_not_looked_at_where_all_functions_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    converted = Counted(monkeypatch, original, "convert_legacy_graph")
    sent(8 * BLOCK, anomaly())
    assert not converted.calls
    with pytest.warns(dask_rewrite.RewriteWarning, match="would hold"):
        sent(8 * BLOCK, opaque())
    assert converted.calls == 1


def test_names_say_what_a_task_waits_for() -> None:
    """A scheduler may know the same tasks from another plan."""
    made = anomaly()
    plans = [sent(limit, made) for limit in (None, 8 * BLOCK, 9 * BLOCK)]
    plans += [sent(8 * BLOCK, made, threads=threads) for threads in (1, 3)]  # a cluster may grow
    for i, plan in enumerate(plans):
        for other in plans[:i]:
            shared = [key for key in plan.keys() & other.keys() if key not in made.__dask_keys__()]
            assert not any(plan[key].dependencies or other[key].dependencies for key in shared)
            names = [key[0] if type(key) is tuple else key for key in shared]
            assert all(unmarked(name) == name for name in names)
    assert plans[1].keys() == sent(8 * BLOCK, made).keys()


def test_it_is_explained_as_it_is_sent() -> None:
    made = anomaly()
    with dask.config.set({"rewrite.memory-limit": 8 * BLOCK, "num_workers": 2}):
        with switched_on():
            found = dask_rewrite.explain(made)
        names = [step.name for step in found.steps]
        assert len(names) == len(set(names))
        assert names.index("lower") < names.index("reread") < names.index("stream")
        assert [each for each in found.remarks if each.rule == "reread" and each.kind == "applied"]


def test_the_answer_is_the_same(tmp_path: Path) -> None:
    data = np.random.default_rng(0).random((ROWS, 100, 50))
    da.from_array(data, chunks=(1, -1, -1)).to_zarr(str(tmp_path / "x.zarr"))
    x = da.from_zarr(str(tmp_path / "x.zarr"))
    made = abs(x - x.mean(axis=0)).max(), (x - x.mean(axis=0)).std()
    with switched_on(), dask.config.set(num_workers=2, scheduler="threads"):
        expected = dask.compute(*made)
        with dask.config.set({"rewrite.memory-limit": x.nbytes // 3}):
            assert dask.compute(*made) == expected


@pytest.mark.once
def test_batches_of_tiny_tasks_are_given_up_for_a_limit() -> None:
    """What goes into one of them is held together."""
    x = da.map_blocks(np.random.default_rng(1).random, (50, 50), chunks=((50,) * 48, (50,) * 48), dtype="f8")
    made = abs(x - x.mean(axis=0)).max()
    free = dask_rewrite.forecast(made, threads=2)
    limit = 3 * free.before.peak
    assert limit < free.after.floor
    with dask.config.set({"rewrite.memory-limit": limit}):
        found = dask_rewrite.forecast(made, threads=2)
    assert found.after.peak <= limit
    assert found.after.tasks > free.after.tasks


def test_plans_without_batches_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is to be read again: all that go on from there are the plan without batches."""
    x = da.map_blocks(np.random.default_rng(1).random, (50, 50), chunks=((50,) * 48, (50,) * 48), dtype="f8")
    made = abs(x - x.mean(axis=0)).max()
    sizes, settled = Counted(monkeypatch, graphs, "sized"), Counted(monkeypatch, coalesce.Coalesce, "run")
    with pytest.warns(dask_rewrite.RewriteWarning, match="would hold"):
        sent(100_000, made)
    assert (sizes.calls, settled.calls) == (2, 1)


def test_the_same_tasks_go_on_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No files are read: to read them in fewer or more parts is the same plan, and it is not made again."""
    x = da.random.default_rng(0).random((12 * 64, 12 * 64), chunks=64)
    made = ((x - x.mean(axis=0)) / x.std(axis=1)[:, None]).max()
    looked, went_on = Counted(monkeypatch, reread.Reread, "run"), Counted(monkeypatch, sweep.Sweep, "run")
    with pytest.warns(dask_rewrite.RewriteWarning, match="would hold"):
        sent(200_000, made)
    assert (looked.calls, went_on.calls) == (5, 2)


def stored(path: Path, shape: tuple[int, int], chunks: tuple[int, int]) -> da.Array:
    data = np.arange(float(np.prod(shape))).reshape(shape) % 1001
    da.from_array(data, chunks=chunks).to_zarr(str(path))
    return da.from_zarr(str(path))


def product(path: Path) -> da.Array:
    """Accumulated, all blocks of the product are held; else each needs a row and a column."""
    x, y = (stored(path / name, (800, 800), (200, 200)) for name in "xy")
    return da.einsum("ij,jk->ik", x, y).sum()


def covariance(path: Path) -> da.Array:
    """What is asked for is above the least of these limits by itself."""
    return da.cov(stored(path / "x", (4000, 400), (400, 100)).T)


def resorted(path: Path) -> da.Array:
    x = stored(path / "x", (400, 2000), (40, 400))
    return (x - x.rechunk((400, 100)).map_blocks(np.sort, axis=0).rechunk((40, 400))).max()


@pytest.mark.once
@pytest.mark.parametrize("program", [product, covariance, resorted])
def test_where_the_limit_is_out_of_reach_little_is_held(
    program: Callable[[Path], da.Array], tmp_path: Path
) -> None:
    made = program(tmp_path)
    free = dask_rewrite.forecast(made, threads=2).after.peak
    held = {}
    for part in (2, 8, 16, 32):
        with dask.config.set({"rewrite.memory-limit": free // part, "num_workers": 2}):
            held[part] = dask_rewrite.forecast(made, threads=2).after.peak / free
    assert held[2] <= 1 / 2
    assert max(held.values()) <= 1 / 2
    with dask.config.set({"num_workers": 2, "scheduler": "threads"}):
        expected = made.compute()
        with (
            switched_on(),
            dask.config.set({"rewrite.memory-limit": free // 16}),
            pytest.warns(dask_rewrite.RewriteWarning, match="would hold"),
        ):
            np.testing.assert_allclose(made.compute(), expected, rtol=1e-12)


def test_what_is_refused_anyway_is_not_planned_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = product(tmp_path)
    calls = {}
    for on_memory in ("warn", "raise"):
        with monkeypatch.context() as patch, dask.config.set({"rewrite.on-memory": on_memory}):
            sizes = Counted(patch, graphs, "sized")
            with (
                pytest.warns(dask_rewrite.RewriteWarning)
                if on_memory == "warn"
                else pytest.raises(MemoryError)
            ):
                sent(200_000, made)
            calls[on_memory] = sizes.calls
    assert calls["raise"] < calls["warn"]
