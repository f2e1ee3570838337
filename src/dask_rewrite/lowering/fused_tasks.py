"""One task per block of a cluster, in the form that is cheapest to send and to run.

Three forms, all of dask's, toolz' and the standard library's functions:

- *nested*: up to three layers, each value used once: a task in a task in a task;
- *called template*: ``Task(key, T.__call__, Task(None, dict, x0=..., x1=...))``, where the one task
  ``T`` over placeholder names is shared by all blocks, so that neither instantiation nor the pickled
  graph grows with the number of layers;
- *program*: where values are used twice, the expression is deep, evaluation in argument order would
  hold more blocks than need be, or a call may raise ``StopIteration``, which dask's evaluation of
  arguments would take for their end; see :mod:`dask_rewrite.graph.program`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias

from dask._task_spec import DataNode, GraphNode, Task, TaskRef
from dask.array.optimization import GETTERS
from dask.typing import Key

from dask_rewrite.analysis.effects import Effects
from dask_rewrite.graph.nodes import (
    NO_DEPS,
    NO_KWARGS,
    Deps,
    call_with_dict,
    children,
    list_of,
    make_task,
    nameless,
)
from dask_rewrite.graph.program import straight_line
from dask_rewrite.graph.substitute import with_values
from dask_rewrite.lowering.blockwise import Arg, CoordMap, Plan
from dask_rewrite.lowering.fusion import BlockMap, Cluster, compose

#: Layers in a nested task; deeper towers become templates, whose size does not grow with the blocks.
NESTED_LAYERS = 3
#: Nesting inside a template or one step of a program.
TEMPLATE_DEPTH = 8


class Column(NamedTuple):
    """The values of one input over all blocks, with the keys that each depends on."""

    values: Iterable[Any]
    deps: Sequence[Deps] | None


Source: TypeAlias = tuple[str, Any]


class Recipe:
    """How to make the tasks of a cluster: its inputs, and where each member's arguments come from."""

    def __init__(self, cluster: Cluster, plans: Mapping[str, Plan]) -> None:
        self.plans = [plans[name] for name in cluster.members]  # consumers first
        self.root = self.plans[0]
        self.producer = any(plan.producer for plan in self.plans)
        self.inputs: list[Arg] = []
        self.sources: dict[str, dict[Any, Source]] = {}
        self.shared: set[str] = set()
        self.kids: dict[str, list[str]] = {}
        index: dict[Any, int] = {}
        users: dict[str, int] = {}
        for plan in self.plans:
            block_map = cluster.members[plan.name]
            sources = self.sources[plan.name] = {}
            kids = self.kids[plan.name] = []
            for token, arg in plan.args.items():
                source = self._source(arg, block_map, cluster, index)
                sources[token] = source
                if source[0] == "member":
                    kids.append(source[1])
            for key, ref in plan.others.items():
                sources[key] = self._source(Arg("node", ref), block_map, cluster, index)
            for kid, count in _reference_counts(plan, sources):
                users[kid] = users.get(kid, 0) + count
        self.shared = {name for name, count in users.items() if count > 1}
        self.simple = all(plan.simple for plan in self.plans)
        effects = Effects()
        #: Members that call what nobody knows.
        self.unknown = {plan.name for plan in self.plans if effects.unknown(plan.task)}

    def _source(self, arg: Arg, block_map: BlockMap, cluster: Cluster, index: dict[Any, int]) -> Source:
        if arg.kind == "literal":
            return ("literal", arg.value)
        if arg.kind == "block" and arg.value in cluster.members:
            if compose(block_map, arg.coord_map) == cluster.members[arg.value]:
                return ("member", arg.value)
        where: CoordMap = tuple(
            [p if isinstance(p, list) or p == -1 else block_map[p] for p in arg.coord_map]
        )
        identity: Any = arg.value if isinstance(arg.value, str) else id(arg.value)
        if type(arg.value) is TaskRef:
            identity = (arg.value.key,)
        key = (arg.kind, identity, tuple([tuple(p) if isinstance(p, list) else p for p in where]), arg.axes)
        i = index.get(key)
        if i is None:
            i = index[key] = len(self.inputs)
            self.inputs.append(Arg(arg.kind, arg.value, where, arg.axes))
        return ("input", i)

    def tasks(self, keys: Sequence[Key], columns: Sequence[Column]) -> Iterable[Task]:
        """The tasks for all blocks, from a column per input."""
        if self.root.fold is not None:
            return self._folded(self.root.fold, keys, columns)
        plan = evaluation_plan(self)
        if len(self.plans) <= NESTED_LAYERS and self.simple and not plan.named:
            return self._nested(keys, columns)
        values = [f"x{i}" for i in range(len(self.inputs))]
        functions = _template(self) if not plan.named else _program(self, plan, values)
        deps = _union([column.deps for column in columns])
        producer = self.producer
        rows = zip(*[column.values for column in columns]) if columns else repeat(())
        return [
            call_with_dict(key, functions, dict(zip(values, row)), dep, producer)
            for key, row, dep in zip(keys, rows, deps)
        ]

    def _folded(
        self, fold: Callable[..., Any], keys: Sequence[Key], columns: Sequence[Column]
    ) -> Iterable[Task]:
        """``reduce(operation, [term, term, ...])``, as the passes on tasks expect it."""
        terms = [columns[value] for _, value in self.sources[self.root.name].values()]
        rows = zip(*[column.values for column in terms])
        deps = _union([column.deps for column in columns])
        return [
            make_task(key, reduce, (fold, list_of(row)), NO_KWARGS, dep, self.producer)
            for key, row, dep in zip(keys, rows, deps)
        ]

    def _nested(self, keys: Sequence[Key], columns: Sequence[Column]) -> Iterable[Task]:
        made: dict[str, Column] = {}
        for plan in reversed(self.plans):  # producers first
            outermost = plan is self.root
            sources = self.sources[plan.name]
            parts: list[Iterable[Any]] = []
            depending: list[Sequence[Deps] | None] = []
            for arg in plan.task.args:
                if type(arg) is not TaskRef:
                    parts.append(repeat(arg))
                    continue
                kind, value = sources[arg.key]
                if kind == "literal":
                    if not parts and plan.task.func in GETTERS and not isinstance(value, GraphNode):
                        value = DataNode("source", value)  # dask's rewriting of getters expects a node
                    parts.append(repeat(value))
                    continue
                column = columns[value] if kind == "input" else made[value]
                parts.append(column.values)
                depending.append(column.deps)
            deps = _union(depending)
            rows = zip(*parts) if parts else repeat(())
            func, kwargs = plan.task.func, plan.task.kwargs or NO_KWARGS
            producer = self.producer if outermost else False
            names: Iterable[Any] = keys if outermost else repeat(None, len(keys))
            tasks = [make_task(k, func, row, kwargs, dep, producer) for k, row, dep in zip(names, rows, deps)]
            if outermost:
                return tasks
            made[plan.name] = Column(tasks, deps if isinstance(deps, list) else None)
        raise AssertionError("a cluster has a root")


def _reference_counts(plan: Plan, sources: dict[Any, Source]) -> Iterable[tuple[str, int]]:
    stack: list[Any] = [plan.task]
    while stack:
        for child in children(stack.pop()):
            if isinstance(child, TaskRef):
                kind, value = sources.get(child.key, ("", None))
                if kind == "member":
                    yield value, 1
            elif isinstance(child, Task) and child.dependencies:
                stack.append(child)


def _union(columns: Sequence[Sequence[Deps] | None]) -> Iterable[Deps]:
    present = [column for column in columns if column is not None]
    if not present:
        return repeat(NO_DEPS)
    if len(present) == 1:
        return present[0]
    if len(present) == 2:
        return [a | b for a, b in zip(*present)]
    return [NO_DEPS.union(*row) for row in zip(*present)]


class Evaluation(NamedTuple):
    """In which order the members of a cluster are computed, and which of them need a name."""

    order: list[str]  # members to be named, then the root; each after all that it uses
    named: set[str]


def evaluation_plan(recipe: Recipe) -> Evaluation:
    """Order the members of a cluster so that few blocks are held at a time.

    The need of a member is the number of blocks held while it is computed. Sethi and Ullman's rule
    ("The generation of optimal code for arithmetic expressions", 1970) computes the neediest argument
    first; where argument order is as good, nothing needs a name.
    """
    kids, shared = recipe.kids, recipe.shared
    need: dict[str, int] = {}
    depth: dict[str, int] = {}
    named: set[str] = set(shared)
    best: dict[str, list[str]] = {}
    for plan in reversed(recipe.plans):
        mine = list(dict.fromkeys(kids[plan.name]))
        ranked = sorted(mine, key=need.__getitem__, reverse=True)
        as_written, as_ranked = _peak(mine, need), _peak(ranked, need)
        if as_ranked < as_written:
            named.update(mine)
        else:
            ranked = mine
            if not recipe.unknown.isdisjoint(mine):
                named.update(mine)  # all of them, so that they are computed in this order
        best[plan.name] = ranked
        need[plan.name] = as_ranked
        inline = [kid for kid in mine if kid not in named]
        deepest = max((depth[kid] for kid in inline), default=0)
        if deepest >= TEMPLATE_DEPTH:
            named.update(kid for kid in inline if depth[kid] >= TEMPLATE_DEPTH)
            deepest = max((depth[kid] for kid in inline if kid not in named), default=0)
        depth[plan.name] = deepest + 1
    order: list[str] = []
    seen: set[str] = set()
    stack: list[tuple[str, bool]] = [(recipe.root.name, False)]
    while stack:
        name, done = stack.pop()
        if done:
            order.append(name)
        elif name not in seen:
            seen.add(name)
            stack.append((name, True))
            stack.extend((kid, False) for kid in reversed(best[name]))
    named.discard(recipe.root.name)
    return Evaluation([name for name in order if name in named or name == recipe.root.name], named)


def _peak(order: Sequence[str], need: dict[str, int]) -> int:
    peak = 1
    for held, name in enumerate(order):
        peak = max(peak, held + need[name])
    return peak


def _template(recipe: Recipe) -> tuple[Any, ...]:
    made: dict[str, Task] = {}
    for plan in reversed(recipe.plans):
        made[plan.name] = _filled(plan, recipe.sources[plan.name], made, set())
    return (made[recipe.root.name].__call__,)


def _program(recipe: Recipe, evaluation: Evaluation, inputs: Sequence[str]) -> tuple[Any, ...]:
    plans = {plan.name: plan for plan in recipe.plans}
    made: dict[str, Task] = {}
    steps = []
    for name in evaluation.order:
        for member in _inlined(recipe, name, evaluation.named):
            made[member] = _filled(plans[member], recipe.sources[member], made, evaluation.named)
        steps.append(((name,), made[name]))
    return straight_line(steps, {name: name for name in inputs})


def _inlined(recipe: Recipe, name: str, named: set[str]) -> list[str]:
    """The members that one step computes: those below it that have no name, then itself."""
    inside: list[str] = []
    stack = [name]
    while stack:
        member = stack.pop()
        inside.append(member)
        stack.extend(kid for kid in recipe.kids[member] if kid not in named)
    return inside[::-1]


def _filled(plan: Plan, sources: dict[Any, Source], made: Mapping[str, Task], named: set[str]) -> Task:
    """The task of a member, over inputs, members that have a name, and those that are computed in it."""

    def resolve(source: Source) -> Any:
        kind, value = source
        if kind == "member":
            return TaskRef((value,)) if value in named else made[value]
        return TaskRef(f"x{value}") if kind == "input" else value

    return nameless(with_values(plan.task, {token: resolve(source) for token, source in sources.items()}))
