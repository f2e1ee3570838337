"""Operands that are made inside of their task, where bits depend on who holds them."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from types import MethodType
from typing import Any, ClassVar

import numpy as np
from dask._task_spec import GraphNode, NestedContainer, Task, TaskRef

from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.nodes import NO_KWARGS, list_of, make_container, make_task, same
from dask_rewrite.graph.templates import is_template
from dask_rewrite.passes.context import Context

#: Operators with which NumPy writes into an operand that nobody else holds.
_ELIDING = frozenset(
    (
        *map(id, (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv)),
        *map(id, (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift)),
    )
)
#: What may stand for a block among arguments.
_BLOCKS = (GraphNode, TaskRef, np.ndarray)


@dataclass(frozen=True, slots=True)
class HoldOperands:
    """``mul(a, conj(b))`` in one task → ``reduce(mul, [a, conj(b)])``, where it decides about bits.

    NumPy writes the result of an operator into an operand of 256 kB or more that nobody else holds
    ("temporary elision"). Dask holds each operand by its name; a list holds it as well. Legal always: the
    same operator is called with the same arguments. It is done

    - for the second factor of a product, in graphs of arrays that are declared complex and for delayed
      values, of which nothing is declared: factors are swapped to write into the second, and products of
      complex numbers are rounded differently then;
    - for all operands beside other blocks where sums may not be regrouped (``rewrite.reassociate: false``):
      the result lies in memory as the operand does, not as a new array would, and sums follow that.
    """

    name: ClassVar[str] = "hold-operands"

    def run(self, graph: Graph, context: Context) -> Graph:
        declared = context.declared
        all_of_them = not context.options.reassociate
        everywhere = all_of_them or (declared is not None and declared.any_complex)
        work = _Work(all_of_them)
        made: dict[Any, Any] = {}
        for tasks in context.by_function(graph).values():
            for task in tasks:
                if everywhere or type(task.key) is str:
                    new = work.held(task)
                    if new is not task and context.remarks.allow(self.name, task.key):
                        made[task.key] = new
        if not made:
            return graph
        context.remarks.applied(self.name, None, f"tasks that hold their operands: {len(made)}")
        return graph.with_nodes({**graph.nodes, **made})


class _Work:
    """Expressions written anew, templates once for all tasks that call them; nesting is bounded."""

    def __init__(self, all_of_them: bool) -> None:
        self._all_of_them = all_of_them
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
        if id(func) in _ELIDING and self._decides(func, args):
            func, args = reduce, (func, list_of(args))
        elif func is node.func and same(args, node.args) and same(values, node.kwargs.values()):
            return node
        kwargs = dict(zip(node.kwargs, values)) if values else NO_KWARGS
        return make_task(node.key, func, args, kwargs, node._dependencies, node._data_producer)

    def _decides(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Whether bits may depend on who holds the operands of an operator."""
        if len(args) != 2:
            return False
        if self._all_of_them:
            return Task in map(type, args) and all(isinstance(arg, _BLOCKS) for arg in args)
        return func is operator.mul and type(args[1]) is Task

    def _each(self, args: Iterable[Any]) -> tuple[Any, ...]:
        return tuple([self.held(arg) if isinstance(arg, (Task, MethodType)) else arg for arg in args])

    def _call(self, body: Task) -> Any:
        return self.held(body).__call__
