"""What one task needs of its blocks for a box of its result, and how it is then written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from dask._task_spec import GraphNode, List, TaskRef
from dask.array import chunk, core
from dask.typing import Key
from toolz.functoolz import Compose

from dask_rewrite.analysis.fact_cache import fact_of_array
from dask_rewrite.analysis.facts import UNKNOWN, Facts
from dask_rewrite.analysis.knowledge import Fact
from dask_rewrite.analysis.knowledge.dask_names import of_dask
from dask_rewrite.graph.nodes import list_of
from dask_rewrite.graph.program import operation
from dask_rewrite.graph.templates import calls_frame
from dask_rewrite.passes.demand import creation, elementwise, moves, products, reductions
from dask_rewrite.passes.demand.boxes import Box, lengths, whole, widen
from dask_rewrite.passes.demand.calls import Call, Narrowed, Part, Rule, Unreadable, call_of
from dask_rewrite.passes.steps import Step, Values, references, references_of, steps_of

_SUMMING: dict[Any, Rule] = {**reductions.TABLE, **products.TABLE}
RULES: dict[Any, Rule] = {**elementwise.TABLE, **_SUMMING, **creation.TABLE, **moves.TABLE}


def _passed(call: Call, box: Box) -> Narrowed | None:
    """``core._pass_extra_kwargs(func, names, *values, *args)``: the first arguments become keywords."""
    func, names, *args = call.args
    values = args[: len(names)]
    kwargs = {**call.kwargs, **dict(zip(names, values))}
    inner = Call.through(func, args[len(names) :], kwargs, call.shape, call.values)
    rule = RULES.get(inner.func)
    made = None if rule is None else rule(inner, box)
    if made is None or made.func is not None:
        return made  # where it calls something else, it is called with nothing else
    return None if made.kwargs is not None else made._replace(args=[func, names, *values, *made.args])


RULES[of_dask(core, "_pass_extra_kwargs")] = _passed

#: What a rule runs into where the call is not as it expects.
UNUSUAL = (Unreadable, TypeError, ValueError, IndexError, KeyError, AttributeError)


def has_rule(func: Any) -> bool:
    """Whether there is a rule for the last thing that a task with this function calls.

    >>> import operator
    >>> import numpy as np
    >>> has_rule(operator.add), has_rule(partial(np.sum, dtype="f8")), has_rule(print)
    (True, True, False)
    """
    while type(func) in (partial, Compose):
        func = func.func if type(func) is partial else func.funcs[-1]
    return calls_frame(func) or func in RULES


class Plan:
    """The calls of a task, made for a box of its result.

    Parameters
    ----------
    node : GraphNode
        The task.
    facts : Facts
        What is known of blocks.
    reassociate : bool
        Whether sums of floats may be grouped differently.
    box : Box or None
        What is wanted of the result; None for all of it.
    """

    def __init__(self, node: GraphNode, facts: Facts, reassociate: bool, box: Box | None) -> None:
        self.node = node
        self.steps = steps_of(node, facts)
        self.boxes: dict[Step, Box | None] = {self.steps[-1]: box}  # None: all of it, whatever it is
        self.made: dict[Step, Narrowed] = {}
        self.needs: dict[Key, Box | None] = {}
        self._facts = facts
        self._reassociate = reassociate
        self.values = Values(facts)
        self._work_out()
        # Dask's own slice copies a small part of a block.
        self.slices = any((made.func or step.task.func) is chunk.getitem for step, made in self.made.items())

    @property
    def box(self) -> Box | None:
        """What the task gives; None for all of it."""
        return self.boxes[self.steps[-1]]

    def _work_out(self) -> None:
        """What is needed for the box of the result, from the last step to the first."""
        for step in reversed(self.steps):
            if step not in self.boxes:
                continue  # nobody needs it any more
            wanted = self.boxes[step]
            made = self._narrowed(step, wanted)
            if made is None:
                self.boxes[step] = None
                for ref in references_of(step.task):
                    self._need(ref, None)
                continue
            self.boxes[step] = None if wanted is None else made.box
            self.made[step] = made
            for part in parts_of([*made.args]):
                self._need(part.of, part.box)
            for ref in chain.from_iterable(map(references, made.args)):
                self._need(ref, None)

    def _narrowed(self, step: Step, box: Box | None) -> Narrowed | None:
        call = call_of(step, self.values)
        if call is None:
            return None
        table = moves.SELECTING if box is None else RULES
        try:
            rule = table.get(call.func)
            if rule is None:
                return None
            made = rule(call, whole(call.shape) if box is None else box)
            if made is None or not self._is_right(step, call, made):
                return None
        except UNUSUAL:
            return None
        return made

    def _is_right(self, step: Step, call: Call, made: Narrowed) -> bool:
        """The call, made so, is known to give a block of just the shape and dtype that is expected."""
        if not self._reassociate and call.func in _SUMMING and reductions.regroups(call, step.value):
            return False
        sizes = _Sizes(self.values)
        args = [sizes.stand_in(arg) for arg in made.args]
        kwargs = call.kwargs if made.kwargs is None else dict(made.kwargs)
        task = operation(made.func or call.func, args, kwargs)
        return _agree(self._facts.within(task, sizes), step.value, lengths(made.box))

    def _need(self, of: Any, box: Box | None) -> None:
        if type(of) is not TaskRef:
            return
        name: Any = of.key
        widen(self.boxes if type(name) is Step else self.needs, name, box)


def _agree(value: Any, old: Any, shape: tuple[int, ...]) -> bool:
    """Whether a value is the old one, of another shape."""
    if type(old) is dict:
        if type(value) is not dict or value.keys() != old.keys():
            return False
        common = len(shape)
        return all(_agree(value[name], fact, (*shape, *fact.shape[common:])) for name, fact in old.items())
    return (
        type(value) is Fact
        and value.shape == shape
        and value.dtype == old.dtype
        and value.scalar == old.scalar
    )


class _Sizes:
    """What is known of the arguments once they are cut to size."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self._parts: dict[object, Any] = {}

    def stand_in(self, arg: Any) -> Any:
        if type(arg) is Part:
            value = self.values.get(arg.of.key) if type(arg.of) is TaskRef else fact_of_array(arg.of)
            name: Any = object()  # looked up below only
            self._parts[name] = resized(value, arg.box)
            return TaskRef(name)
        if type(arg) is List:
            return list_of([self.stand_in(each) for each in arg.args])
        return arg

    def get(self, key: Any, default: Any = None) -> Any:
        return self._parts[key] if key in self._parts else self.values.get(key, default)


def resized(value: Any, box: Box) -> Any:
    """What is known of a box of a block, from what is known of the block."""
    if type(value) is dict:
        return {name: resized(each, box) for name, each in value.items()}
    if type(value) is not Fact or value.scalar:
        return UNKNOWN
    return Fact((*lengths(box), *value.shape[len(box) :]), value.dtype, value.fill)


def parts_of(args: Sequence[Any]) -> Iterator[Part]:
    for arg in args:
        if type(arg) is Part:
            yield arg
        elif type(arg) is List:
            yield from parts_of(arg.args)
