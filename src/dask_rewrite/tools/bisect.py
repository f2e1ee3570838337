"""Find the single rewrite that breaks a result: ``bisect(check)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.config
from dask.typing import Key

from dask_rewrite.pipeline.callbacks import Callback, watching
from dask_rewrite.remarks import Remark


class BisectError(RuntimeError):
    """No single rewrite can be blamed; the message says why."""


def bisect(check: Callable[[], Any]) -> Remark:
    """Find the first single rewrite after which ``check()`` fails.

    The check is run again and again, some twenty times for a million rewrites, with ever another number of
    them allowed: what ``rewrite.bisect-limit`` does by hand for one graph, over all graphs that the
    check computes. It has to do the same each time.

    Parameters
    ----------
    check : callable
        Takes nothing; returns true if the result is right and false if it is wrong. Raising counts as
        wrong, and returning None as right, so that a check can consist of assertions.

    Returns
    -------
    Remark
        The guilty rewrite: its rule, and the task that was rewritten.

    Raises
    ------
    BisectError
        If the check fails without any rewrite, or does not fail with all of them.

    Examples
    --------
    >>> import dask.array as da
    >>> import dask_rewrite
    >>> def check():
    ...     with dask_rewrite.enable():
    ...         return da.arange(10, chunks=2).sum().compute() == 45
    >>> try:
    ...     dask_rewrite.bisect(check)
    ... except BisectError as error:
    ...     print(str(error).split(",")[0])
    the check passes with all rewrites allowed
    """
    if not callable(check):
        raise TypeError(f"bisect(check): expected a function, got {check!r}")
    last = _run(check)
    if not last.wrong:
        made = f"{last.used:,} were made" if last.used else "none was made"
        raise BisectError(
            f"the check passes with all rewrites allowed, and {made}; "
            "is the optimizer switched on inside of it?"
        )
    first = _run(check, 0)
    if first.wrong:
        raise BisectError(_blame_without_rewrites(check)) from first.error
    good, bad = 0, last.used
    while bad - good > 1:
        found = _run(check, middle := (good + bad) // 2)
        if found.wrong:
            bad, last = middle, found
        else:
            good = middle
    if bad < 1 or last.used != bad or last.latest is None:
        raise BisectError("the check does not do the same each time: no rewrite can be blamed")
    how = "returns false" if last.error is None else f"raises {last.error!r}"
    rule, key = last.latest
    return Remark("applied", rule, key, f"with rewrite {bad:,} the check {how}; with those before, it passes")


class _Run(Callback):
    """One run of the check: how many single rewrites it may make and has made, and how it ended."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.used = 0
        self.latest: tuple[str, Key | None] | None = None
        self.wrong = False
        self.error: Exception | None = None

    def allow(self, rule: str, key: Key | None) -> bool:
        if self.used == self.limit:
            return False
        self.used += 1
        self.latest = rule, key
        return True


def _run(check: Callable[[], Any], limit: int | None = None, **options: Any) -> _Run:
    run = _Run(limit)
    with dask.config.set({f"rewrite.{name}": value for name, value in options.items()}), watching(run):
        try:
            result = check()
        except Exception as error:
            run.wrong, run.error = True, error
        else:
            run.wrong = result is not None and not result
    return run


def _blame_without_rewrites(check: Callable[[], Any]) -> str:
    if _run(check, 0, enabled=False).wrong:
        return "the check fails with rewriting switched off, too: look at the program, or at the check"
    return (
        "the check fails though no single rewrite is allowed, and passes with rewriting switched off: "
        "turning layers into tasks is at fault, or a pass that cannot be bisected"
    )
