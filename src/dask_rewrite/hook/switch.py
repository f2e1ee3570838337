"""Switching the optimizer on and off for all of dask."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, cast

import dask.config

from dask_rewrite.config import OPTIMIZER_KEYS
from dask_rewrite.hook.notes import unwatch
from dask_rewrite.hook.optimizer import check_hook, optimize
from dask_rewrite.remarks import warn

#: Who switched it on under which of these keys, and when.
switched_on: dict[str, tuple[str, datetime]] = {}


class enable:
    """Switch the optimizer on for arrays, delayed objects and bags, and all that is built on them.

    An optimizer that somebody set already is left in its place, with a warning. The setting survives
    ``dask.config.refresh()``. Used with ``with``, it ends with the block.

    Examples
    --------
    >>> import dask.array as da
    >>> import dask_rewrite
    >>> with dask_rewrite.enable():
    ...     int(da.arange(5, chunks=2).sum().compute())
    10
    """

    _by: ClassVar[str] = "dask_rewrite.enable()"

    def __init__(self) -> None:
        check_hook()
        self._set: list[str] = []
        self._switch_on()
        _warn_about_query_planning()

    def _switch_on(self) -> None:
        for key in OPTIMIZER_KEYS:
            current = dask.config.get(key, None)
            if current is optimize:
                continue
            if key in dask.config.config:
                warn(
                    f"{key} is already set to {current!r} and stays so; "
                    f"set {key} to dask_rewrite.optimize to replace it",
                )
            elif key not in self._set:
                self._set.append(key)
        wanted = [key for key in self._set if dask.config.get(key, None) is not optimize]
        if wanted:
            dask.config.update_defaults(dict.fromkeys(wanted, optimize))
            switched_on.update(dict.fromkeys(wanted, (self._by, datetime.now())))

    def __enter__(self) -> enable:
        self._switch_on()
        return self

    def __exit__(self, *error: object) -> None:
        _remove(self._set)
        if self._set:
            unwatch()

    def __repr__(self) -> str:
        return f"<dask_rewrite enabled for {', '.join(self._set) or 'nothing new'}>"


class Auto(enable):
    """``import dask_rewrite.auto``."""

    _by = "import dask_rewrite.auto"


def disable() -> None:
    """Switch the optimizer off again; other optimizers stay.

    Examples
    --------
    >>> import dask_rewrite
    >>> _ = dask_rewrite.enable()
    >>> dask_rewrite.disable()
    """
    _remove(OPTIMIZER_KEYS)
    unwatch()


def _remove(keys: Any) -> None:
    for key in keys:
        switched_on.pop(key, None)
        if dask.config.get(key, None) is optimize:
            with dask.config.config_lock:
                dask.config.config.pop(key, None)
        for defaults in cast(list[dict[str, Any]], list(dask.config.defaults)):
            if defaults.get(key) is optimize:
                del defaults[key]
                if not defaults:
                    dask.config.defaults.remove(defaults)


def _warn_about_query_planning() -> None:
    if dask.config.get("array.query-planning", None):
        warn(
            "array.query-planning is on; dask does not ask for an optimizer then, so arrays "
            "are not rewritten",
        )
