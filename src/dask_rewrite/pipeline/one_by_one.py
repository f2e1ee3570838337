"""The passes, one after the other; one that fails is left out."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.verify import verify
from dask_rewrite.passes.base import Pass
from dask_rewrite.passes.context import Context
from dask_rewrite.pipeline.callbacks import Callback
from dask_rewrite.pipeline.verify_facts import verify_thoroughly
from dask_rewrite.remarks import Remarks, warn


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Passes in their order, and what looks on while they run.

    Parameters
    ----------
    passes : sequence of Pass
        Run one after the other, each over what the one before returned.
    callbacks : sequence of Callback
        Told before and after each.

    Examples
    --------
    >>> graph = Graph({}, ())
    >>> Pipeline(()).run(graph, Context()) is graph
    True
    """

    passes: Sequence[Pass]
    callbacks: Sequence[Callback] = ()

    def run(self, graph: Graph, context: Context) -> Graph:
        """The graph after all passes; one that fails is left out, with a warning."""
        for each in self.passes:
            graph = self._step(each, graph, context)
        return graph

    def _step(self, each: Pass, before: Graph, context: Context) -> Graph:
        for callback in self.callbacks:
            callback.begins(each.name, before, context)
        started = perf_counter()
        try:
            graph = each.run(before, context)
            for callback in self.callbacks:
                callback.check(each.name, before, graph)
        except Exception as error:
            error = _guilty_rewrite(each, before, context, error)
            if context.options.on_error == "raise":
                raise error
            graph = before
            verify(graph, external=graph.external)  # the pass may have spoilt what it was given
            warn_of(each.name, error)
            context.remarks.failed(each.name, None, repr(error))
            for callback in self.callbacks:
                callback.failed(each.name, graph)
        seconds = perf_counter() - started
        for callback in self.callbacks:
            callback.done(each.name, before, graph, seconds)
        return graph


def _guilty_rewrite(each: Pass, before: Graph, context: Context, error: Exception) -> Exception:
    """The error, with the first single rewrite after which it comes (``rewrite.verify: rule``)."""
    if context.options.verify != "rule":
        return error

    def failure(limit: int) -> tuple[Exception | None, Remarks]:
        again = Context(Remarks(limit), context.options, fuse_text_keys=context.fuse_text_keys)
        again.declared = context.declared
        try:
            verify_thoroughly(each.run(before, again), before)
        except Exception as found:
            return found, again.remarks
        return None, again.remarks

    good, bad = 0, 1
    while failure(bad)[0] is None:
        good, bad = bad, 2 * bad
        if bad > 2 * len(before.nodes):
            return error  # it does not do the same each time
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if failure(middle)[0] is None else (good, middle)
    found, remarks = failure(bad)
    last = next((remark for remark in reversed(remarks.kept) if remark.kind == "applied"), None)
    if found is not None and last is not None and last.key is not None:
        found.add_note(f"single rewrite {bad:,} of pass {each.name!r}, of task {last.key!r}")
    return found or error


def warn_of(name: str, error: Exception) -> None:
    """Say that a pass failed, and where."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    warn(
        f"pass {name!r} failed and was left out: {error!r} "
        f"({where.name}, line {where.lineno}); the computation goes on without it"
    )
