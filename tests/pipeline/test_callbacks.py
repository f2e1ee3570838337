"""What looks on while passes run."""

from __future__ import annotations

import dask
import dask.array as da
import pytest

import dask_rewrite


def test_printed_graphs_show_what_fused_tasks_call(capsys: pytest.CaptureFixture[str]) -> None:
    x = da.random.default_rng(1).random((8, 8), chunks=4)
    with dask.config.set({"rewrite.print-after": ["sweep"]}):
        dask_rewrite.explain(abs(x * 2 + 1).sum(axis=0))
    lines = capsys.readouterr().err.splitlines()
    assert any("mul add abs sum" in line for line in lines)
    assert not any("__call__" in line or "..." in line for line in lines)
