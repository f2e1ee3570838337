"""Run a pass of a test's own at the end of the selection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from dask_rewrite.pipeline import selection


@contextmanager
def installed(make: Any) -> Iterator[None]:
    """While it lasts, the selection also has the pass that ``make`` makes, after all others."""
    name = make.name
    with (
        mock.patch.object(selection, "TASK_PASSES", {**selection.TASK_PASSES, name: make}),
        mock.patch.object(selection, "PASSES", (*selection.PASSES, name)),
    ):
        yield
