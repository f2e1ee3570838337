"""Whether the optimizer is on, for what, by whom, and what is in its way: ``status()``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import dask.config

from dask_rewrite._version import __version__
from dask_rewrite.config import OPTIMIZER_KEYS, Options
from dask_rewrite.hook.optimizer import Optimizer, asks_on_the_client
from dask_rewrite.hook.switch import switched_on
from dask_rewrite.tools.tables import text_table

_KINDS = tuple(key.removesuffix("_optimize") for key in OPTIMIZER_KEYS)

_BY_HAND = "dask_rewrite.optimize(x) rewrites them"
_LATE = "graphs are rewritten where dask optimizes them, after they were sent"


@dataclass(frozen=True, slots=True, repr=False)
class Status:
    """Whether collections that are computed now are rewritten. True if any are.

    Parameters
    ----------
    array, delayed, bag : str or None
        What switched the optimizer on for these collections; None where it is not on.
    since : datetime or None
        When that was; None where it was set in dask's configuration.
    obstacles : tuple of str
        What keeps graphs from being rewritten although it may be on, and what to do about it.
    """

    array: str | None
    delayed: str | None
    bag: str | None
    since: datetime | None
    obstacles: tuple[str, ...]

    def __bool__(self) -> bool:
        return Options.current().enabled and any((self.array, self.delayed, self.bag))

    def __repr__(self) -> str:
        lines = [f"dask_rewrite {__version__} is {'on' if self else 'off'}"]
        if self.since is not None:
            lines[0] += f", since {self.since:%Y-%m-%d %H:%M:%S}"
        by = {kind: getattr(self, kind) for kind in _KINDS}
        rows = [[kind, f"by {name}" if name else "not rewritten"] for kind, name in by.items()]
        lines += text_table(["", ""], rows, left=(0, 1))[2:]
        return "\n".join([*lines, *(f"in the way: {text}" for text in self.obstacles)])


def status() -> Status:
    """Is the optimizer on, for which collections, since when, and what would stop it?

    Returns
    -------
    Status
        Shows itself as text; is true if anything is rewritten at all.

    Examples
    --------
    >>> import dask_rewrite
    >>> with dask_rewrite.enable():
    ...     dask_rewrite.status().array
    'dask_rewrite.enable()'
    >>> import dask
    >>> with dask.config.set({"rewrite.enabled": False}):
    ...     dask_rewrite.status().obstacles[0]
    'rewrite.enabled is false: every graph is left to dask; set it to true'
    """
    by: dict[str, str | None] = {}
    since = None
    for kind, key in zip(_KINDS, OPTIMIZER_KEYS):
        by[kind] = None
        if isinstance(dask.config.get(key, None), Optimizer):
            by[kind], when = switched_on.get(key, ("dask's configuration", None))
            since = since or when
    return Status(**by, since=since, obstacles=tuple(_obstacles()))


def _obstacles() -> Iterator[str]:
    if not Options.current().enabled:
        yield "rewrite.enabled is false: every graph is left to dask; set it to true"
    for key in OPTIMIZER_KEYS:
        value = dask.config.get(key, None)
        if value is not None and not isinstance(value, Optimizer):
            yield f"{key} is {value!r}, which stays; set it to dask_rewrite.optimize to replace it"
    if dask.config.get("array.query-planning", None):
        yield f"array.query-planning is true: dask asks no optimizer for arrays; {_BY_HAND}"
    if "dask_array" in sys.modules:
        yield f"dask_array is imported: no optimizer is asked for its arrays; {_BY_HAND}"
    if not asks_on_the_client():
        yield f"this version of dask asks no optimizer on the client: {_LATE}"
    elif not dask.config.get("optimization.tune.active", True):
        yield f"optimization.tune.active is false: {_LATE}"
