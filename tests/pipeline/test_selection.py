"""Which passes run, with which options: what is wrong is said in the words of the configuration."""

from __future__ import annotations

import dask
import pytest

from dask_rewrite.config import Options
from dask_rewrite.pipeline.selection import select


@pytest.mark.parametrize("fan_in", ["fan-in", "fan_in"])
def test_options_of_passes_are_named_as_they_are_written(fan_in: str) -> None:
    for given, message in (
        ({fan_in: "a"}, r"tree-sum\.fan-in: expected int"),
        ({fan_in: 0}, r"tree-sum\.fan-in: expected at least 1"),
        ({"fan_inn": 1}, "no option 'fan-inn'; it has: fan-in, delayed"),
    ):
        with (
            dask.config.set({"rewrite.options": {"tree-sum": given}}),
            pytest.raises(ValueError, match=message),
        ):
            select(Options.current())
