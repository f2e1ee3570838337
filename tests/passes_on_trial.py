"""Run a pass of a test's own at the end of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from dask_rewrite import pipeline


@contextmanager
def installed(make: Any) -> Iterator[None]:
    """While it lasts, the pipeline also has the pass that ``make`` makes, after all others."""
    name = make.name
    with (
        mock.patch.object(pipeline, "TASK_PASSES", {**pipeline.TASK_PASSES, name: make}),
        mock.patch.object(pipeline, "PASSES", (*pipeline.PASSES, name)),
    ):
        yield
