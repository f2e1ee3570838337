"""What looks on while passes run: verifying, timing and printing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from dask._task_spec import GraphNode, Task
from dask.typing import Key
from dask.utils import funcname

from dask_rewrite.graph.graph import Graph, Metrics
from dask_rewrite.graph.labels import functions_of
from dask_rewrite.passes.context import Context
from dask_rewrite.pipeline.trace import Step, Trace
from dask_rewrite.pipeline.verify_facts import verify_thoroughly


class Callback:
    """Told what a pipeline does. A subclass overrides what it cares about.

    Examples
    --------
    >>> class Names(Callback):
    ...     def done(self, name, before, after, seconds):
    ...         print(name)
    """

    def allow(self, rule: str, key: Key | None) -> bool:
        """Asked before a single rewrite."""
        return True

    def begins(self, name: str, graph: Graph, context: Context) -> None:
        """Called before a pass."""

    def check(self, name: str, before: Graph | None, after: Graph) -> None:
        """Called with what a pass made of a graph. What raises here has the pass left out."""

    def done(self, name: str, before: Graph | None, after: Graph, seconds: float) -> None:
        """Called after a pass, with the graph that goes on."""

    def failed(self, name: str, graph: Graph) -> None:
        """Called when a pass was left out, with the graph that goes on."""


class Verifying(Callback):
    """All checks that there are, after lowering and after each pass that changed something."""

    def check(self, name: str, before: Graph | None, after: Graph) -> None:
        if after is not before:
            verify_thoroughly(after, before)


@dataclass
class Tracing(Callback):
    """Writes size, shape and seconds of each pass into a trace."""

    trace: Trace

    def done(self, name: str, before: Graph | None, after: Graph, seconds: float) -> None:
        steps = self.trace.steps
        last = steps[-1].after if steps else None
        now = last if before is after and last is not None else self._measured(after)
        steps.append(Step(name, last, now, seconds))

    def _measured(self, graph: Graph) -> Metrics:
        metrics = graph.metrics()
        if self.trace.nbytes:
            from dask_rewrite.graph.pickling import size_if_pickled

            metrics = replace(metrics, nbytes=size_if_pickled(graph.nodes))
        return metrics


@dataclass
class Printing(Callback):
    """Prints the graph after passes of these names, after ``changed`` ones, after each ``failure``."""

    wanted: frozenset[str]

    def done(self, name: str, before: Graph | None, after: Graph, seconds: float) -> None:
        if name in self.wanted or ("changed" in self.wanted and after is not before):
            self._print(name, after)

    def failed(self, name: str, graph: Graph) -> None:
        if "failure" in self.wanted:
            self._print(name, graph)

    @staticmethod
    def _print(name: str, graph: Graph) -> None:
        lines = [f"-- after {name}: {len(graph.nodes)} tasks"]
        lines += [f"{key!r}: {_shown(node)}" for key, node in graph.nodes.items()]
        print("\n".join(lines), file=sys.stderr)


def _shown(node: GraphNode) -> str:
    """A task as the functions that it calls and what it needs; anything else as it shows itself."""
    if type(node) is not Task:
        return repr(node)
    needs = ", ".join(map(repr, sorted(node.dependencies, key=repr)))
    return f"{' '.join(functions_of(node)) or funcname(node.func)}({needs})"


@dataclass
class Checkpoint(Callback):
    """The graph as one pass found it, and what was known then, to go on from there in another way."""

    name: str
    graph: Graph | None = None
    context: Context | None = None
    #: What went on to later passes, and which of these were disabled.
    seen: list[tuple[frozenset[str], Graph]] = field(default_factory=list)

    def begins(self, name: str, graph: Graph, context: Context) -> None:
        if name == self.name:
            self.graph, self.context = graph, context.forked(context.options)
            self.seen.append((context.options.disable, graph))

    def is_new(self, graph: Graph, context: Context) -> bool:
        """Whether no such graph went on with the same passes; it is remembered."""
        disabled = context.options.disable
        if any(disabled == without and _alike(graph, each) for without, each in self.seen):
            return False
        self.seen.append((disabled, graph))
        return True


def _alike(graph: Graph, other: Graph) -> bool:
    """Tasks of the same names need the same tasks: what a pass makes of one graph is told by these."""
    if graph is other:
        return True
    nodes, others = graph.nodes, other.nodes
    return nodes.keys() == others.keys() and all(
        node is others[key] or node._dependencies == others[key]._dependencies for key, node in nodes.items()
    )


#: Callbacks that every rewrite of this process has, for as long as a block of :func:`watching` runs.
_watching: list[Callback] = []


@contextmanager
def watching(callback: Callback) -> Iterator[None]:
    """Have a callback in every rewrite of this process: a program may well compute more than one graph."""
    _watching.append(callback)
    try:
        yield
    finally:
        _watching.remove(callback)


def watchers() -> tuple[Callback, ...]:
    """The callbacks that every rewrite has now."""
    return tuple(_watching)
