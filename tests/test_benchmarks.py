"""The benchmark can be trusted: every workload builds, both sides agree, and what is printed can be read."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

pytest.importorskip("xarray")
pytest.importorskip("h5py")
pytest.importorskip("zarr")

from benchmarks import figures, memory, rows, run, sides, table, targets  # noqa: E402
from benchmarks.workloads import WORKLOADS  # noqa: E402


def both_sides(name: str) -> dict[str, tuple[dict, list]]:
    workload = WORKLOADS[name]
    built = workload.build(da, workload.small)
    collections = built if isinstance(built, tuple) else (built,)
    result = {}
    for side in ("stock", "ours"):
        prepared = sides.PREPARE[side](workload, workload.small, collections)
        prepared.reset()
        result[side] = prepared()
    return result


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_stock_and_ours_give_the_same_answer(name):
    graphs = both_sides(name)
    answers = {side: dask.get(graph, keys) for side, (graph, keys) in graphs.items()}
    expected = "yes" if WORKLOADS[name].exact else ("yes", "close")
    assert figures.same(answers["stock"], answers["ours"]) in expected


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
