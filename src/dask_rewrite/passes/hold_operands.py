"""Operands that are made inside of their task, where bits depend on who holds them."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from types import MethodType
from typing import Any, ClassVar

import numpy as np
from dask._task_spec import GraphNode, NestedContainer, Task, TaskRef

from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.nesting import is_flat
from dask_rewrite.graph.nodes import NO_KWARGS, list_of, make_container, make_task, same
from dask_rewrite.graph.program import operation
from dask_rewrite.graph.templates import is_template
from dask_rewrite.passes.context import Context

#: Operators with which NumPy writes into an operand that nobody else holds.
_OF_TWO = frozenset(
    (
        *map(id, (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv)),
        *map(id, (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift)),
        id(operator.pow),
    )
)
_OF_ONE = frozenset(map(id, (operator.neg, operator.pos, operator.invert, operator.abs, builtins.abs)))
#: What may stand for a block among arguments.
_BLOCKS = (GraphNode, TaskRef, np.ndarray)


@dataclass(frozen=True, slots=True)
class HoldOperands:
    """``mul(a, conj(b))`` in one task → ``reduce(mul, [a, conj(b)])``, where it decides about bits.

    NumPy writes the result of an operator into an operand of 256 kB or more that nobody else holds
    ("temporary elision"). Dask holds each operand by its name; a list holds it as well. Legal always: the
    same operator is called with the same arguments. It is done

    - where arrays are declared complex: factors are swapped to write into the second, and products of
      complex numbers are rounded differently then;
    - where arrays are declared to be in the other byte order: results are in the machine's own, but for
      those that were written into an operand;
    - where sums may not be regrouped (``rewrite.reassociate: false``): the result lies in memory as the
      operand does, not as a new array would, and sums follow that (beside a number it lies alike);
    - for delayed values, of which nothing is declared.
    """

    name: ClassVar[str] = "hold-operands"

    def run(self, graph: Graph, context: Context) -> Graph:
        dtypes = context.declared.dtypes if context.declared is not None else ()
        swapped = not all(dtype.isnative for dtype in dtypes)
        of_delayed = _Work(True, swapped)
        others: _Work | None = of_delayed
        if not swapped and all(dtype.kind != "c" for dtype in dtypes):
            others = None if context.options.reassociate else _Work(False, False)
        made = (
            (task, work.held(task))
            for task in chain.from_iterable(context.by_function(graph).values())
            if (work := of_delayed if type(task.key) is str else others) is not None and not is_flat(task)
        )
        return context.rewritten(graph, self.name, made, "tasks that hold their operands")


class _Work:
    """Expressions written anew, templates once for all tasks that call them; nesting is bounded."""

    def __init__(self, beside_numbers: bool, of_one: bool) -> None:
        self._beside_numbers = beside_numbers
        self._of_one = _OF_ONE if of_one else frozenset()
        self._templates = ByIdentity[Any]()

    def held(self, node: Any) -> Any:
        """The same expression with operands held; the same object where there are none."""
        if isinstance(node, NestedContainer):
            args = self._each(node.args)
            return node if same(args, node.args) else make_container(node, args, node._dependencies)
        if type(node) is not Task:
            return self._templates.of(node.__self__, self._call) if is_template(node) else node
        func = self.held(node.func) if type(node.func) is MethodType else node.func
        args = self._each(node.args)
        values = self._each(node.kwargs.values()) if node.kwargs else ()
        if id(func) in _OF_TWO and len(args) == 2 and self._decides(args):
            func, args = reduce, (func, list_of(args))
        elif id(func) in self._of_one and type(args[0]) is Task:
            func, args = next, (operation(map, (func, list_of(args))),)
        elif func is node.func and same(args, node.args) and same(values, node.kwargs.values()):
            return node
        kwargs = dict(zip(node.kwargs, values)) if values else NO_KWARGS
        return make_task(node.key, func, args, kwargs, node._dependencies, node._data_producer)

    def _decides(self, args: tuple[Any, ...]) -> bool:
        """Whether an operand is made inside, beside another block if numbers do not matter."""
        both = self._beside_numbers or all(isinstance(arg, _BLOCKS) for arg in args)
        return both and Task in map(type, args)

    def _each(self, args: Iterable[Any]) -> tuple[Any, ...]:
        return tuple([self.held(arg) if isinstance(arg, (Task, MethodType)) else arg for arg in args])

    def _call(self, body: Task) -> Any:
        return self.held(body).__call__
