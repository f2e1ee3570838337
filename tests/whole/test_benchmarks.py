"""The benchmark can be trusted: it measures what it says, and what is printed can be read."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest

import dask_rewrite

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("xarray")
pytest.importorskip("h5py")
pytest.importorskip("zarr")

from benchmarks import run, simulate, targets  # noqa: E402  # after what may be missing
from benchmarks.harness import (  # noqa: E402  # after what may be missing
    figures,
    memory,
    rows,
    sides,
    simulated_work,
    simulation,
    table,
)
from benchmarks.workloads import WORKLOADS  # noqa: E402  # after what may be missing

pytestmark = pytest.mark.once


def test_a_workload_may_be_measured_again():
    workload = WORKLOADS["ones-sum"]
    x = workload.build(da, 4)
    prepared = sides.PREPARE["stock"](workload, 4, (x,))
    prepared.reset()
    first, _ = prepared()
    prepared.reset()
    second, _ = prepared()
    assert first.keys() == second.keys()
    assert not any(hasattr(layer, "_cached_dict") for layer in sides.fresh(x.dask).layers.values())


def test_depth_and_fan_in():
    graph = {"a": 1, "b": (abs, "a"), "c": (abs, "b"), "d": (sum, ["a", "b", "c"])}
    assert figures.depth_and_fan_in(graph, ["d"]) == (4, 3)
    assert figures.depth_and_fan_in({}, []) == (0, 0)


def test_same_tells_equal_from_close_from_different():
    one = [np.array([1.0, np.nan]), 3]
    assert figures.same(one, [np.array([1.0, np.nan]), 3]) == "yes"
    assert figures.same(one, [np.array([1.0 + 1e-15, np.nan]), 3]) == "close"
    assert figures.same(one, [np.array([1.0, 2.0]), 3]) == "NO"
    assert figures.same(one, [np.array([1, 2]), 3]) == "NO"
    assert figures.same(one, one[:1]) == "NO"


def test_held_bytes_counts_a_buffer_once():
    graph = {"a": (np.ones, 1000), "b": (np.transpose, "a"), "c": (np.add, "a", "b")}
    assert memory.held_bytes(graph, "c") == 16_000


def test_held_bytes_sees_into_containers_and_forgets_what_is_released():
    def pair(x):
        return [x, {"view": x[:10]}]

    graph = {"a": (np.ones, 1000), "b": (pair, "a"), "c": (len, "b"), "d": (np.full, 500, "c")}
    assert memory.held_bytes(graph, "d") == 8_000
    assert (
        memory.held_bytes({"a": (np.ones, 1000), "b": (np.add, "a", 1), "c": (np.add, "b", 1)}, "c") == 16_000
    )


def test_end_to_end_on_threads_and_processes():
    row = rows.collect("einsum-gram", 4, sides="stock,ours", repeat=1, limit=60, more=["--on", "2"])
    assert row.note == ""
    assert row["stock", "loads 2"] == 2 * 4 * 16
    assert row["ours", "loads 2"] == 16
    assert row["ours", "held 2"] > 0
    assert row["ours", "same"] == "yes"
    row = rows.collect("gram-of-processes", 4, sides="stock,ours", repeat=1, limit=60, more=["--on", "2x1"])
    assert row.note == ""
    assert row["ours", "managed 2x1"] > 0
    assert row["ours", "seconds 2x1"] > 0
    assert "2x1" in table.schedulers([row])


def test_programs_are_computed_at_size(capsys, monkeypatch):
    at_size = pytest.importorskip("benchmarks.at_size")
    monkeypatch.setattr(sys, "argv", ["at_size", "standardized", "bag", "--scale", "0.05"])
    at_size.main()
    shown = capsys.readouterr().out
    assert shown.count(" yes") == 2
    assert "geometric mean" in shown


def test_a_persisted_object_beside_scatter():
    row = rows.collect("persisted-closure", 8, sides="stock", repeat=1, limit=60)
    assert row.note == ""
    for side in ("stock", "scatter"):
        assert isinstance(row[side, "growth 2x1"], int), row.figures
        assert isinstance(row[side, "after 2x1"], int), row.figures


def test_heavy_rows_are_measured_for_targets_or_by_name_only():
    heavy = {name for name, workload in WORKLOADS.items() if workload.heavy}
    assert not heavy & {name for name, _ in run.plan(run.parse([]))}
    assert ("gram", 80) in run.plan(run.parse(["--targets"]))
    assert {("fancy-index", 40), ("adds", 4000)} <= set(run.plan(run.parse(["--targets", "foundation"])))
    group = run.plan(run.parse(["--targets", "memory"]))
    assert ("gram", 80) in group
    assert ("adds", 4000) not in group
    assert set(run.plan(run.parse(["--only", "gram"]))) == {("gram", 80)}
    assert set(run.plan(run.parse(["--only", "append-block", "--targets"]))) == {
        ("append-block", n) for n in (500, 1000, 2000)
    }


def test_the_simulation_agrees_with_what_was_measured():
    stock = simulation.on_threads(simulated_work.products(4, 80, 500, 500), 2, simulation.Rates())
    assert 540e6 < stock.peak < 580e6  # measured: 560 to 562 MB
    slabs = simulated_work.accumulated(4, 80, 500, 500, width=2, look=1)
    ours = simulation.on_threads(slabs, 2, simulation.Rates())
    assert ours.tasks == 999
    assert 46e6 < ours.peak < 52e6  # measured: 48 MB
    stock = simulation.on_cluster(simulated_work.products(4, 60, 500, 500), 2, 1, simulate.CLUSTER)
    assert 650e6 < stock.peak < 800e6  # measured: 682 and 728 MB
    slabs = simulated_work.accumulated(4, 60, 500, 500, look=2, every=2, notes=True)
    ours = simulation.on_cluster(slabs, 2, 1, simulate.CLUSTER)
    assert 70e6 < ours.peak < 110e6  # measured: 78 to 106 MB


def test_bounds_are_below_what_algorithms_move():
    for q, c in ((10, 1), (5, 4), (2, 25), (1, 100)):
        held, moved = simulate.split_25d(simulate.LARGE, q, c)
        assert simulate.irony_toledo_tiskin(simulate.LARGE, 100, held) < moved
        assert simulate.memory_independent(simulate.LARGE, 100) < moved


def test_a_workload_measured_in_its_own_process_gives_rows_that_tables_show(capfd):
    row = rows.collect("interactive", 2, sides="stock,ours", repeat=1, limit=20)
    assert row.note == ""
    assert row["raw", "tasks"] > row["stock", "tasks"] == 5
    assert row["ours", "same"] == "yes"
    assert row.ratio("optimize") > 0
    assert row.ratio("compute") > 0
    for show in (table.seconds, table.sizes, table.computes):
        widths = {line.count("  ") > 0 for line in show([row]).splitlines()}
        assert "interactive" in show([row])
        assert widths == {True}


def test_a_failure_is_a_figure():
    row = rows.collect("one-tile", 250, sides="stock", repeat=1, limit=0.001, more=["--no-run"])
    assert row["stock", "optimize"] == "> 0 s"
    assert row.ratio("optimize") is None
    assert "> 0 s" in table.seconds([row])


def test_the_command_line(capsys, tmp_path, monkeypatch):
    row = rows.Row(
        "interactive", 2, {"raw": {"tasks": 13}, "stock": {"optimize": 2.0}, "ours": {"optimize": 1.0}}
    )
    monkeypatch.setattr(run, "collect", lambda *args, **kwargs: row)
    assert run.main(["--only", "interactive", "--json", str(tmp_path / "rows.json")]) == 0
    assert "0.500" in capsys.readouterr().out
    assert json.loads((tmp_path / "rows.json").read_text())[0]["figures"]["ours"] == {"optimize": 1.0}
    assert run.main(["--list"]) == 0
    assert "leapfrog" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run.main(["--only", "nothing"])


def test_the_passes_of_the_foundation_exist():
    with dask.config.set({"rewrite.passes": list(run.FOUNDATION_PASSES)}):
        assert dask_rewrite.optimize(da.ones(4, chunks=2) + 1).sum().compute() == 8


def test_targets_judge():
    def row(name, n, stock, ours):
        return rows.Row(name, n, {"raw": {"tasks": 5000}, "stock": stock, "ours": ours})

    measured = {
        ("adds", n): row(
            "adds", n, {"optimize": 1e-6 * n * n, "run": 1.0}, {"optimize": 1e-5 * n, "run": 0.1}
        )
        for n in (1000, 2000, 4000, 10000)
    }
    verdicts = {
        t.says: t.judge(measured) for t in targets.TARGETS if all(need in measured for need in t.needs)
    }
    assert len(verdicts) >= 6
    assert all(reached is not False for _, reached in verdicts.values())
    measured["adds", 4000] = row("adds", 4000, {"optimize": 0.1, "run": 1.0}, {"optimize": 1.0, "run": 0.2})
    assert [t.judge(measured)[1] for t in targets.TARGETS if "1/20" in t.says] == [False]
    hangs = {("adds", 4000): row("adds", 4000, {"optimize": "> 30 s"}, {"optimize": 0.2})}
    assert [t.judge(hangs)[1] for t in targets.TARGETS if "1/20" in t.says] == [True]


def test_every_target_names_a_workload():
    assert {name for target in targets.TARGETS for name, _ in target.needs} <= set(WORKLOADS)
    assert len(WORKLOADS) >= 30


def test_what_is_compared_with_cubed_gives_the_same_on_our_sides(monkeypatch):
    from benchmarks import beside_cubed

    monkeypatch.setattr(beside_cubed, "SIZE", 300)
    monkeypatch.setattr(beside_cubed, "SIDES", dict(list(beside_cubed.SIDES.items())[:2]))
    table = beside_cubed.table()
    assert list(table.columns) == [
        "stock dask",
        "dask-rewrite",
        "tasks: stock dask",
        "tasks: dask-rewrite",
    ]
    page = (ROOT / "docs/comparison.md").read_text()
    assert all(f"| {name} |" in page for name in table.index)
