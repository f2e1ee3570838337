"""What looks on while passes run."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest

import dask_rewrite
from helpers import switched_on


def test_printed_graphs_show_what_fused_tasks_call(capsys: pytest.CaptureFixture[str]) -> None:
    x = da.random.default_rng(1).random((8, 8), chunks=4)
    with dask.config.set({"rewrite.print-after": ["sweep"]}):
        dask_rewrite.explain(abs(x * 2 + 1).sum(axis=0))
    lines = capsys.readouterr().err.splitlines()
    assert any("mul add abs sum" in line for line in lines)
    assert not any("__call__" in line or "..." in line for line in lines)


def test_what_dask_fused_before_is_verified_where_templates_are_given_it() -> None:
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    table = pd.DataFrame({"a": range(30), "b": [1.5] * 30})  # of two types: one column is cast
    frame = dd.from_pandas(table, npartitions=4)
    x = da.stack([frame.a.values, frame.b.values], axis=1, allow_unknown_chunksizes=True).sum(axis=0)
    with switched_on(), dask.config.set({"rewrite.verify": "each", "rewrite.on-error": "raise"}):
        assert np.array_equal(x.compute(), [435, 45])
