"""Fixtures that several tests of a pass share."""

from __future__ import annotations

from collections.abc import Iterator

import dask
import pytest


@pytest.fixture
def tiny_products() -> Iterator[None]:
    """Two threads, and products of blocks that are as small as those of the tests."""
    with dask.config.set(
        scheduler="threads", num_workers=2, **{"rewrite.options": {"contract": {"min-bytes": 1}}}
    ):
        yield
