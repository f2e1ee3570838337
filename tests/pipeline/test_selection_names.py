"""Names and values of options as they come out of files and of the environment."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import pytest

import dask_rewrite
from dask_rewrite.config import Options


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rewrite.memory-limit": ""}, r"rewrite\.memory-limit: expected bytes"),
        ({"rewrite.options": {"cull": {"x": 1}}}, r"rewrite\.options\.cull: no option 'x'; it has: none"),
        ({"rewrite.options": {"lower": {"a": 2}}}, r"rewrite\.options\.lower: no option 'a'"),
        ({"rewrite.print-after": ["chagned"]}, r"rewrite\.print-after: .* changed, failure"),
        ({"rewrite.lower-limit": 1.5}, r"rewrite\.lower-limit: expected a number"),
    ],
)
def test_wrong_values_name_their_option(given: dict[str, Any], message: str) -> None:
    with dask.config.set(given), pytest.raises(ValueError, match=message):
        dask_rewrite.optimize(da.ones(4, chunks=2) + 1)


def test_whole_numbers_may_be_written_as_powers_of_ten() -> None:
    with dask.config.set({"rewrite.lower-limit": 1e6}):
        assert Options.current().lower_limit == 1_000_000


def test_passes_may_be_written_as_in_the_environment() -> None:
    """``DASK_REWRITE__OPTIONS__FUSE_CHAINS__MAX_LENGTH=3``."""
    with dask.config.set({"rewrite.options": {"fuse_chains": {"max_length": 3}}}):
        assert Options.current().options == {"fuse-chains": {"max_length": 3}}
        assert float(dask_rewrite.optimize(da.ones(4, chunks=2) + 1).sum().compute()) == 8.0
