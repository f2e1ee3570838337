"""What people look at while a cluster computes: names, progress, profiles, errors, reports."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.diagnostics import CacheProfiler, Profiler, ProgressBar, ResourceProfiler
from dask.utils import key_split

import dask_rewrite
from dask_rewrite.graph.labels import functions_of
from distributed import (
    Client,
    KilledWorker,
    LocalCluster,
    get_task_stream,
    performance_report,
    progress,
    wait,
)
from helpers import assert_same, distinct, stock

pytestmark = [pytest.mark.usefixtures("on"), pytest.mark.timeout(120)]

#: Blocks of the diagonal wait for nothing, and keep their names; the two others go under this one.
FUSED, COUNT = "transpose-scale-add-sum", 2


def scale(block: np.ndarray) -> np.ndarray:
    return block * 2


def fails(block: np.ndarray) -> np.ndarray:
    if (block == 54).any():
        raise ValueError("bad block")
    return block


def program(step: Any = scale) -> da.Array:
    """Blocks beside the diagonal are used by two tasks, which wait for two of them."""
    x = distinct((8, 8), 4).map_blocks(scale)
    return (x + x.T.map_blocks(step, dtype="f8")).sum(axis=0)


def _prefixes(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.task_prefixes)


def test_the_scheduler_groups_fused_tasks_by_what_is_in_them(client: Client) -> None:
    expected = program().compute(scheduler="sync", optimize_graph=False)
    assert_same(program().compute(), expected)
    prefixes = client.run_on_scheduler(_prefixes)
    assert FUSED in prefixes
    assert not any("--" in prefix for prefix in prefixes)


def test_names_are_the_same_each_time(client: Client) -> None:
    first, second = (Counter(map(key_split, dask_rewrite.optimize(program()).dask)) for _ in range(2))
    assert first == second
    assert first[FUSED] == COUNT


def test_an_error_is_found_again_on_the_client(client: Client) -> None:
    """In a task that waits for nothing: distributed does not find the inputs of others."""
    x = distinct((8, 8), 4).map_blocks(fails, dtype="f8").map_blocks(scale).sum(axis=0)
    future = client.compute(x)
    assert isinstance(future.exception(), ValueError)
    with pytest.raises(ValueError, match="bad block") as here:
        client.recreate_error_locally(future)
    report = dask_rewrite.explain_error(here.value, x)
    assert {"fails", "scale", "sum"} <= set(report.origin.steps)
    assert report.origin.step == "fails"
    assert [key_split(layer) for layer in report.layers] == ["fails"]


def test_a_task_is_run_again_on_the_client(client: Client) -> None:
    x = distinct((8, 8), 4).map_blocks(scale).map_blocks(scale).sum(axis=0)
    waits_for_nothing = next(key for key, task in dask_rewrite.explain(x).graph.items() if _is_root(task))
    future = client.compute(x)
    wait(future)
    block = client.recreate_task_locally(waits_for_nothing)
    assert block.shape == (1, 4)


def _is_root(task: Any) -> bool:
    return not task.dependencies and "scale" in str(functions_of(task))


def test_an_error_of_a_cluster_is_explained(client: Client) -> None:
    with pytest.raises(ValueError, match="bad block") as caught:
        program(fails).compute()
    report = dask_rewrite.explain_error(caught.value, program(fails))
    assert report.origin.step == "fails"
    assert {"fails", "add", "sum"} <= set(report.origin.steps)


def kills(block: np.ndarray) -> np.ndarray:
    if (block == 54).any():
        os.kill(os.getpid(), signal.SIGKILL)
    return block


def test_a_task_that_takes_workers_along_is_explained() -> None:
    """The only one, as any task that the worker has may be blamed."""
    made = distinct((8, 8), 8).map_blocks(scale).map_blocks(kills, dtype="f8").sum(axis=0)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=60) as own,
        Client(own),
    ):
        with pytest.raises(KilledWorker) as caught:
            made.compute()
        report = dask_rewrite.explain_error(caught.value, made)
    assert report.origin.key == caught.value.task
    assert {"scale", "kills", "sum"} <= set(report.origin.steps)
    assert any(layer.startswith("kills-") for layer in report.layers)
    assert "rewrite.enabled" in repr(report)


def test_progress_and_profile_of_local_schedulers(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar(), Profiler() as profiler:
        program().compute(scheduler="threads")
    assert "100% Completed" in capsys.readouterr().out
    names = Counter(key_split(entry.key) for entry in profiler.results)
    assert names[FUSED] == COUNT
    with stock(), Profiler() as before:
        program().compute(scheduler="threads")
    assert len(profiler.results) < len(before.results)


def test_memory_and_cpu_of_local_schedulers() -> None:
    pytest.importorskip("psutil")
    with CacheProfiler(metric=lambda value: getattr(value, "nbytes", 0)) as held, ResourceProfiler(dt=0.01):
        assert_same(program().compute(scheduler="threads"), program().compute(optimize_graph=False))
    assert Counter(key_split(entry.key) for entry in held.results)[FUSED] == COUNT
    assert max(entry.metric for entry in held.results) > 0


def test_progress_bars_of_a_cluster(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    persisted = client.persist(program())
    progress(persisted, notebook=False)
    wait(persisted)
    progress(persisted, notebook=False)
    assert "100% Completed" in capsys.readouterr().out


def test_the_task_stream_has_one_colour_for_each_kind_of_task(client: Client) -> None:
    with get_task_stream(client) as stream:
        program().compute()
    found = Counter(key_split(entry["key"]) for entry in stream.data)
    assert found[FUSED] == COUNT
    assert {name for name in found if "scale" in name} == {"scale", FUSED}


def test_performance_report(client: Client, tmp_path: Path) -> None:
    pytest.importorskip("bokeh")
    page = tmp_path / "report.html"
    with performance_report(filename=str(page)):
        program().compute()
    assert FUSED in page.read_text()
