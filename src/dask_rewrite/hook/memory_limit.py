"""``rewrite.memory-limit``: a computation that would hold more is planned anew, refused, or warned of."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import dask.config
from dask.typing import Key
from dask.utils import format_bytes

from dask_rewrite.config import Options
from dask_rewrite.graph.graph import Graph
from dask_rewrite.remarks import MemoryLimitError, RewriteWarning

#: Kinds of results that are named.
_NAMED = 3


def within_limit(
    raw: Any,
    graph: Graph | None,
    outputs: Iterable[Key],
    sparing: Callable[[], Graph | None] | None = None,
    *,
    quiet: bool = False,
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
    sparing : callable, optional
        Makes a plan that reads more than once what would be held, and costs more time.
    quiet : bool
        Only choose, and say nothing: nobody is going to compute.

    Returns
    -------
    Graph or None
        The plan: the sparing one if the first holds too much and the second less.

    Raises
    ------
    MemoryLimitError
        If it still holds more, with ``rewrite.on-memory: raise``.
    """
    if dask.config.get("rewrite.memory-limit", None) is None:
        return graph
    options = Options.current()
    if options.memory_limit is None:
        return graph
    if graph is None:
        if not quiet:
            _warn("rewrite.memory-limit was not looked at: the graph is left to dask's own optimizer")
        return None
    try:
        graph, run = _chosen(
            raw, graph, list(outputs), None if options.reread else sparing, options.memory_limit
        )
        # of unknown blocks nobody knows that they are too large
        found = _exceeding(run, options.memory_limit) if run.least > options.memory_limit else ""
    except Exception as error:
        if options.on_error == "raise":
            raise
        _warn(f"rewrite.memory-limit could not be looked at: {error!r}")
        return graph
    if found and not quiet:
        if options.on_memory == "raise":
            raise MemoryLimitError(found)
        _warn(found)
    return graph


def _chosen(
    raw: Any, graph: Graph, outputs: list[Key], sparing: Callable[[], Graph | None] | None, limit: int
) -> tuple[Graph, Any]:
    """The plan that is taken, and its simulated run."""
    run = _run(raw, graph, outputs)
    other = sparing() if sparing is not None and run.least > limit else None
    if other is not None and (again := _run(raw, other, outputs)).least < run.least:
        return other, again
    return graph, run


def _run(raw: Any, graph: Graph, outputs: Iterable[Key]) -> Any:
    """The simulated run of a graph on the scheduler in use."""
    # Imported where a limit is set, so that importing the package costs little.
    from dask_rewrite.analysis.memory.graphs import sized
    from dask_rewrite.analysis.memory.original import Original
    from dask_rewrite.analysis.memory.runs import simulate
    from dask_rewrite.scheduler import machine

    threads, workers = machine().layout
    results = Original(raw).rewritten(graph.nodes)
    return simulate(sized(graph.nodes, outputs, results.of, threads * max(1, workers)), threads, workers)


def _exceeding(run: Any, limit: int) -> str:
    """What there is to say of a graph that holds more than the limit."""
    held = ", ".join(
        f"{each.tasks:,} of {each.name!r} ({format_bytes(each.nbytes)}) until {each.waits_for or 'the end'!r}"
        for each in run.standing[:_NAMED]
    )
    return (
        f"this computation would hold {format_bytes(run.least)} at one time, and rewrite.memory-limit is "
        f"{format_bytes(limit)}; at its peak, {run.at:.0%} through: {held}. "
        f"What would help: {_advice(run, limit)}"
    )


def _advice(run: Any, limit: int) -> str:
    """What to do about what is held."""
    largest = run.standing[0]
    if largest.waits_for in ("", largest.name) or largest.waits_for.startswith("finalize"):
        return "storing the result (to_zarr, store) instead of gathering it, or asking for less of it"
    each = largest.nbytes // largest.tasks
    if each * 4 > limit:
        return f"smaller chunks: each {largest.name!r} is {format_bytes(each)}"
    if "rechunk" in largest.name or "rechunk" in largest.waits_for:
        return "storing the array with the new chunks first (to_zarr), or chunks nearer to those that it has"
    return (
        f"computing what {largest.waits_for!r} waits for on its own first, or storing {largest.name!r} in "
        "between (to_zarr) and reading it again; or chunks along another axis, so that fewer blocks wait for "
        "each other"
    )


def _warn(text: str) -> None:
    warnings.warn(f"dask_rewrite: {text}", RewriteWarning, stacklevel=3)


__all__ = ["within_limit"]
