"""Local rules and the one pass that drives them.

A rule is asked about one task at a time and answers with replacement nodes, with `Missed` and a reason,
or with None: not mine. It never loops over the graph, never logs, and knows no configuration: finding
candidates, counting, bisecting and remarks are done here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from dask._task_spec import Task
from dask.typing import Key

from dask_rewrite.graph.graph import Graph, producers_first
from dask_rewrite.graph.nodes import dependencies_of
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.site import Replacement, Site


@dataclass(frozen=True, slots=True)
class Missed:
    """A rule nearly applied: becomes a remark with this reason."""

    reason: str


class Rule(Protocol):
    """A local rewrite of one task; its fields are its options.

    It is offered tasks that call one of ``anchors``. A rule may also have ``fed_by``: then only those
    that use the result of a task that calls one of these. A rule with ``inputs_above`` is offered all
    tasks with more inputs than that instead, whatever they call; one with ``producers_first`` is offered
    what a task uses before that task.
    """

    name: ClassVar[str]
    anchors: ClassVar[tuple[Callable[..., Any], ...]]

    def rewrite(self, task: Task, site: Site) -> Replacement | Missed | None: ...


@dataclass(frozen=True, slots=True)
class Rules:
    """The pass that offers every task to the rules that know its function, until none applies.

    Parameters
    ----------
    name : str
        Name of the pass.
    rules : tuple of Rule
        Tried in order.
    """

    name: str
    rules: tuple[Rule, ...]

    def run(self, graph: Graph, context: Context) -> Graph:
        remarks = context.remarks
        by_function: dict[Any, list[Rule]] = {}
        wide = [rule for rule in self.rules if hasattr(rule, "inputs_above")]
        for rule in self.rules:
            for anchor in rule.anchors:
                by_function.setdefault(id(anchor), []).append(rule)
        work = self._candidates(graph, context)
        if not work:
            return graph
        if any(getattr(rule, "producers_first", False) for rule in self.rules):
            work = list(producers_first(work, graph.nodes))[::-1]
        site = Site(graph, context)
        while work:
            key = work.pop()
            task = site.graph.nodes.get(key)
            if type(task) is not Task:
                continue
            for rule in (*by_function.get(id(task.func), ()), *wide):
                found = rule.rewrite(task, site)
                if found is None:
                    continue
                if isinstance(found, Missed):
                    remarks.missed(rule.name, key, found.reason)
                elif remarks.allow(rule.name, key):
                    site.replace(key, found)
                    remarks.applied(rule.name, key)
                    work.extend(found)
                    break
        return site.graph

    def _candidates(self, graph: Graph, context: Context) -> list[Key]:
        found: dict[Key, None] = {}
        nodes = graph.nodes
        for rule in self.rules:
            if (above := getattr(rule, "inputs_above", None)) is not None:
                if max(map(len, map(dependencies_of, nodes.values())), default=0) > above:
                    found.update(dict.fromkeys([k for k, t in nodes.items() if len(t._dependencies) > above]))
                continue
            anchors = frozenset(map(id, rule.anchors))
            mine = context.calling(graph, anchors)
            fed_by = getattr(rule, "fed_by", ())
            if fed_by and mine:
                sources = mine
                if fed_by != rule.anchors:
                    sources = context.calling(graph, frozenset(map(id, fed_by)))
                feeding = {task.key for task in sources}
                mine = [task for task in mine if not feeding.isdisjoint(task._dependencies)]
            found.update(dict.fromkeys([task.key for task in mine]))
        return list(found)


class Pass(Protocol):
    """Graph in, graph out; unchanged means the same object."""

    @property
    def name(self) -> str: ...

    def run(self, graph: Graph, context: Context) -> Graph: ...
