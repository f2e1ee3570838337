"""``rewrite.memory-limit``: a computation that would hold more is planned anew, refused, or warned of."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import dask.config
from dask.typing import Key
from dask.utils import format_bytes

from dask_rewrite.config import Options
from dask_rewrite.graph.graph import Graph
from dask_rewrite.remarks import MemoryLimitError, warn

if TYPE_CHECKING:
    from dask_rewrite.pipeline.callbacks import Checkpoint
    from dask_rewrite.pipeline.trace import Trace

#: Kinds of results that are named.
_NAMED = 3


def checkpoint() -> Checkpoint | None:
    """Where other plans go on from the first one; None if there is no limit."""
    if dask.config.get("rewrite.memory-limit", None) is None:
        return None
    # imported where a limit is set, so that importing the package costs little
    from dask_rewrite.passes.reread import Reread
    from dask_rewrite.pipeline.callbacks import Checkpoint

    return Checkpoint(Reread.name)


def within_limit(
    raw: Any,
    graph: Graph | None,
    outputs: Iterable[Key],
    start: Checkpoint | None = None,
    trace: Trace | None = None,
) -> Graph | None:
    """Forecast what a rewritten graph holds; if it is more than the limit, take a plan that holds less.

    No limit, no work.

    Parameters
    ----------
    raw : HighLevelGraph or mapping
        The graph as it came.
    graph : Graph or None
        The rewritten one, None if it is left to dask's own optimizer.
    outputs : iterable of Key
        What is asked of it.
    start : Checkpoint, optional
        From where other plans are made.
    trace : Trace, optional
        Nobody is going to compute: it becomes that of the plan that is taken, and nothing is said.

    Returns
    -------
    Graph or None
        The plan: the first that holds no more than the limit, or else the one that holds least.

    Raises
    ------
    MemoryLimitError
        If it still holds more, with ``rewrite.on-memory: raise``.
    """
    given = dask.config.get("rewrite.memory-limit", None)
    if given is None or (options := Options.current()).memory_limit is None:
        return graph
    quiet = trace is not None
    if graph is None:
        if not quiet:
            warn("rewrite.memory-limit was not looked at: the graph is left to dask's own optimizer")
        return None
    try:
        from dask_rewrite.hook.plans import chosen
        from dask_rewrite.passes.context import Context
        from dask_rewrite.pipeline.run import resumed

        again = None if start is None else partial(resumed, start)
        known = Context() if start is None or start.context is None else start.context
        graph, run = chosen(raw, graph, list(outputs), again, known.forked(options), trace)
        found = [_exceeding(run, options.memory_limit), _uncounted(run, options.memory_limit)]
    except Exception as error:
        if options.on_error == "raise":
            raise
        warn(f"rewrite.memory-limit could not be looked at: {error!r}")
        return graph
    if not quiet:
        # of unknown blocks nobody knows that they are too large
        _tell(found, options.on_memory == "raise" and run.least > options.memory_limit)
    return graph


def _tell(found: Iterable[str], refuse: bool) -> None:
    for said in filter(None, found):
        if refuse:
            raise MemoryLimitError(said)
        warn(said)


def _uncounted(run: Any, limit: int) -> str:
    """What there is to say of results of whose size nobody has an idea."""
    if not run.uncounted:
        return ""
    made = ", ".join(f"{count:,} of {kind!r}" for kind, count in run.uncounted[:_NAMED])
    return (
        f"whether rewrite.memory-limit, {format_bytes(limit)}, is kept cannot be told: what results weigh is "
        f"not known of {made}, and nothing was counted for them. What would help: collections that state "
        "shapes and dtypes (da.from_delayed)"
    )


def _exceeding(run: Any, limit: int) -> str:
    """What there is to say of a graph that holds more than the limit."""
    if run.peak <= limit:
        return ""
    held = ", ".join(
        f"{each.tasks:,} of {each.name!r} ({format_bytes(each.nbytes)}) until {each.waits_for or 'the end'!r}"
        for each in run.standing[:_NAMED]
    )
    certain = run.least > limit
    held_most = format_bytes(run.least if certain else run.peak)
    return (
        f"this computation would {'' if certain else 'probably '}hold {held_most} at one time, and "
        f"rewrite.memory-limit is {format_bytes(limit)}; at its peak, {run.at:.0%} through: {held}. "
        f"{_alone(run, limit)}What would help: {_advice(run, limit)}"
    )


def _alone(run: Any, limit: int) -> str:
    """That no other order would do."""
    if run.floor <= limit:
        return ""
    return f"One task alone needs and makes {format_bytes(run.floor)}. "


def _advice(run: Any, limit: int) -> str:
    """What to do about what is held."""
    largest = run.standing[0]
    if largest.waits_for in ("", largest.name) or largest.waits_for.startswith("finalize"):
        return "storing the result (to_zarr, store) instead of gathering it, or asking for less of it"
    each = largest.nbytes // largest.tasks
    if "rechunk" in largest.name or "rechunk" in largest.waits_for:
        return (
            "chunks nearer to those that the array has, or array.rechunk.threshold at 32 or more where "
            "it is made, so that it goes through no larger blocks"
        )
    if each * 4 > limit:
        return f"smaller chunks: each {largest.name!r} is {format_bytes(each)}"
    return (
        f"computing what {largest.waits_for!r} waits for on its own first, or storing {largest.name!r} in "
        "between (to_zarr) and reading it again; or chunks along another axis, so that fewer blocks wait for "
        "each other"
    )
