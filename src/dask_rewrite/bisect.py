"""Find the single rewrite that breaks a result: ``bisect(check)``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask.config

from dask_rewrite.remarks import Remark

__all__ = ["BisectError", "bisect"]

#: More single rewrites than any graph has.
_ENDLESS = 2**40


class BisectError(RuntimeError):
    """No single rewrite can be blamed; the message says why."""


def bisect(check: Callable[[], Any]) -> Remark:
    """Find the first single rewrite after which ``check()`` fails.

    The check is run some thirty times, each time with another number of rewrites allowed
    (``rewrite.bisect-limit``). It should build and compute one thing, and always the same.

    Parameters
    ----------
    check : callable
        Takes nothing; returns true if the result is right and false if it is wrong. Raising counts as wrong, and
        returning None as right, so that a check can consist of assertions.

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
    >>> dask_rewrite.bisect(check)
    Traceback (most recent call last):
        ...
    dask_rewrite.bisect.BisectError: the check does not fail: all rewrites are allowed, and it still passes. ...
    """
    _need_failure(check)
    _need_success(check)
    good, bad = 0, 1
    error: Exception | None = None
    while True:
        failed, failure = _fails(check, bad)
        if failed:
            error = failure
            break
        good, bad = bad, 2 * bad
        if bad > _ENDLESS:
            raise BisectError(
                "the check fails with all rewrites but with no number of them: it is not repeatable"
            )
    while bad - good > 1:
        middle = (good + bad) // 2
        failed, failure = _fails(check, middle)
        if failed:
            bad, error = middle, failure
        else:
            good = middle
    how = "returns false" if error is None else f"raises {error!r}"
    rule, key = _first_left_out(check, good)
    return Remark("applied", rule, key, f"after rewrite {bad} the check {how}; before it, it passes")


def _need_failure(check: Callable[[], Any]) -> None:
    if not _fails(check, -1)[0]:
        raise BisectError(
            "the check does not fail: all rewrites are allowed, and it still passes. "
            "Is the optimizer switched on inside of it?"
        )


def _need_success(check: Callable[[], Any]) -> None:
    failed, error = _fails(check, 0)
    if not failed:
        return
    if _fails(check, 0, enabled=False)[0]:
        message = "the check fails with rewriting switched off, too: look at the program, or at the check"
    else:
        message = (
            "the check fails though no single rewrite is allowed, and passes with rewriting switched off: "
            "turning layers into tasks is at fault, or a pass that cannot be bisected"
        )
    raise BisectError(message) from error


def _fails(check: Callable[[], Any], limit: int, **options: Any) -> tuple[bool, Exception | None]:
    with dask.config.set({"rewrite.bisect-limit": limit, **{f"rewrite.{k}": v for k, v in options.items()}}):
        try:
            result = check()
        except Exception as error:
            return True, error
    return result is not None and not result, None


def _first_left_out(check: Callable[[], Any], limit: int) -> tuple[str, Any]:
    """The rewrite that comes next after ``limit`` of them, as the optimizer itself reports it."""
    with _missed() as remarks:
        _fails(check, limit, remarks=["missed"])
    for remark in remarks:
        if "bisect-limit" in remark.reason:
            return remark.rule, remark.key
    return "unknown", None  # more was missed before it than is kept


@contextmanager
def _missed() -> Iterator[list[Remark]]:
    """Collect the remarks that are logged, and keep them from the user's log."""
    found: list[Remark] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.extend(arg for arg in record.args or () if isinstance(arg, Remark))

    logger = logging.getLogger("dask_rewrite")
    collector = Collector()
    before = logger.level, logger.propagate, logger.disabled
    logger.addHandler(collector)
    logger.setLevel(logging.INFO)
    logger.propagate, logger.disabled = False, False
    try:
        yield found
    finally:
        logger.removeHandler(collector)
        logger.setLevel(before[0])
        _, logger.propagate, logger.disabled = before
