"""What collections say of their blocks: sizes, dtypes, and that all blocks of one array are alike.

None of it is proven. Dask itself slices and rechunks by the declared sizes, and so may a rewrite that calls
the functions that dask would have called; declared dtypes are good for estimates only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from math import inf, prod
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import Alias, GraphNode
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.typing import Key
from dask.utils import key_split

from dask_rewrite.analysis.knowledge import Fact, known
from dask_rewrite.analysis.layers import NUMPYS, is_unknown, keeps_axes, reduced_axes, said_of
from dask_rewrite.graph.by_identity import ByIdentity

_INT = {int}
#: What dask calls blocks of which other blocks say what is taken.
_SELECTED = "getitem_variadic"


class Symbol:
    """Stands for the type and dtype of the blocks of an array, whatever these are.

    It equals itself and nothing else: blocks with one symbol are taken to be of one type and dtype.

    Parameters
    ----------
    name : object
        Of the array.
    stated : numpy.dtype
        The declared dtype, for estimates. (An attribute ``dtype`` would make it equal to that dtype.)

    Examples
    --------
    >>> Symbol("x", np.dtype("f8")) == Symbol("x", np.dtype("f8"))
    False
    """

    __slots__ = ("name", "stated")

    def __init__(self, name: object, stated: np.dtype[Any]) -> None:
        self.name = name
        self.stated = stated

    @property
    def itemsize(self) -> int:
        """Declared bytes of an element, for estimates."""
        return self.stated.itemsize

    def __repr__(self) -> str:
        return f"Symbol({self.name!r})"


class Assumed(NamedTuple):
    """What is taken for granted of a block, as dask itself does."""

    shape: tuple[int, ...]
    symbol: Symbol


class _Array(NamedTuple):
    """What one layer says of its blocks."""

    chunks: tuple[tuple[Any, ...], ...]
    symbol: Symbol
    alike: tuple[Any, ...]  # declared dtype and type
    trusted: bool  # the sizes may be assumed, not only used for estimates
    exact: bool  # all sizes are integers
    beliefs: dict[tuple[int, ...], Fact]  # what is believed of blocks of a shape
    inner: tuple[Any, ...]  # the lengths of axes that keys do not count


class Declared:
    """The declarations of a graph's layers, read when first asked for.

    Parameters
    ----------
    hlg : HighLevelGraph
        The raw graph.
    names : mapping
        From names in the raw graph to the new names of its blocks.
    aliases : mapping
        From keys that blocks of an array only name, as delayed values, to the keys of these blocks.
    assume : bool
        Whether declarations may be relied on; else they are good for estimates only.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.ones((4, 6), chunks=3).map_blocks(lambda block: block, name="x")
    >>> Declared(x.dask, {}, {}).of(("x", 1, 0))
    Assumed(shape=(1, 3), symbol=Symbol('x'))
    """

    def __init__(
        self,
        hlg: HighLevelGraph,
        names: Mapping[Any, Any],
        aliases: Mapping[Key, tuple[Any, ...]],
        assume: bool = True,
    ) -> None:
        self.assume = assume
        self._hlg = hlg
        self._names = names
        self._aliases = aliases
        self._arrays: dict[Any, _Array | None] = {}
        self._makers: dict[Any, Symbol] = {}
        self._lists: dict[Key, Sequence[Key]] = {}

    def of(self, key: Key, node: GraphNode | None = None) -> Assumed | None:
        """The declaration of a block, where it may be relied on as far as dask does."""
        found = self._find(key) if self.assume else None
        if found is None or not found[0].trusted:
            return None
        array, shape = found
        return Assumed(shape, array.symbol if type(key) is tuple else self._maker(array, node))

    def belief(self, key: Key, trusted: bool = False) -> Fact | None:
        """What would be known of a block if all that is said of it were true: for estimates only."""
        found = self._find(key)
        if found is None or (trusted and not found[0].trusted):
            return None
        array, shape = found
        fact = array.beliefs.get(shape)
        if fact is None:
            fact = array.beliefs[shape] = Fact(shape, array.symbol.stated)
        return fact

    def is_foreign(self, key: Key) -> bool:
        """Whether a block is said to be of another array type than NumPy's."""
        return self._names_foreign and self._type(key) not in NUMPYS

    def is_masked(self, key: Key) -> bool:
        """Whether a block is said to be masked."""
        return self.is_foreign(key) and str(self._type(key)).endswith(".MaskedArray")

    def _type(self, key: Key) -> str | None:
        array = self._array(key[0]) if type(key) is tuple and key else None
        return None if array is None else array.alike[-1]

    def is_corrected(self, name: Any) -> bool:
        """Whether sizes of an array are unknown after all: what is declared is the most they can be."""
        return name in self._doubtful

    @cached_property
    def _said(self) -> Sequence[Mapping[str, Any]]:
        """What is said of all arrays."""
        return list(filter(None, map(said_of, self._hlg.layers.values())))

    @cached_property
    def _names_foreign(self) -> bool:
        """Whether any array is."""
        return any(said.get("chunk_type") not in NUMPYS for said in self._said)

    @cached_property
    def most_bytes(self) -> float:
        """What the largest block of all arrays weighs, as far as it is said; infinite where that is not."""
        longest = ByIdentity[float]()
        sizes: list[float] = []
        for said in self._said:
            lengths = [longest.of(lengths, _longest) for lengths in said["chunks"]]
            sizes.append(0 if 0 in lengths else prod(lengths) * np.dtype(said["dtype"]).itemsize)
        return max(sizes, default=inf)

    @cached_property
    def dtypes(self) -> frozenset[np.dtype[Any]]:
        """The dtypes of all arrays, as far as they are said."""
        return frozenset([np.dtype(said["dtype"]) for said in self._said])

    def _find(self, key: Key) -> tuple[_Array, tuple[int, ...]] | None:
        """The array that a block is of, and the shape that it is said to have."""
        block: Any = key if type(key) is tuple else self._aliases.get(key)
        if not block:
            return None
        array = self._array(block[0])
        if array is None or len(block) != len(array.chunks) + 1:
            return None
        try:
            shape = tuple([sizes[at] for sizes, at in zip(array.chunks, block[1:])] + [*array.inner])
        except (IndexError, TypeError):  # no block of this array
            return None
        if not array.exact and not set(map(type, shape)) <= _INT:
            return None
        return array, shape

    def _array(self, name: Any) -> _Array | None:
        """What is said of an array, by the name of its blocks."""
        if name not in self._arrays:
            self._arrays[name] = self._read(self._original.get(name, name))
        return self._arrays[name]

    def tell(self, name: Any, chunks: tuple[tuple[int, ...], ...], symbol: Symbol) -> None:
        """The sizes of blocks that a rewrite makes, and what they are."""
        self._arrays[name] = _Array(chunks, symbol, (symbol, None), True, True, {}, ())

    def tell_list(self, key: Key, parts: Sequence[Key]) -> None:
        """A rewrite makes a list of blocks."""
        self._lists[key] = parts

    def belief_of_list(self, key: Key, trusted: bool = False) -> list[Any] | None:
        """What is believed of the blocks of a list that a rewrite makes, None for anything else."""
        found = [self.belief(part, trusted) for part in self._lists.get(key, ())]
        return found if found and None not in found else None

    def _maker(self, array: _Array, node: GraphNode | None) -> Symbol:
        """What one function of the user's makes for arrays that are declared alike is alike."""
        func = getattr(node, "func", None)
        if type(func) is not FunctionType or known(func) is not None or func.__module__[:5] == "dask.":
            return array.symbol
        return self._makers.setdefault((func, array.alike), array.symbol)

    @cached_property
    def _original(self) -> dict[Any, Any]:
        return {new: name for name, new in self._names.items()}

    def _read(self, name: Any) -> _Array | None:
        layer = self._hlg.layers.get(name)
        said = said_of(layer)
        if layer is None or said is None:
            return None
        chunks = said["chunks"]
        axes = reduced_axes(layer)
        if axes:  # the first stage of a reduction, whose sizes dask corrects afterwards
            chunks = tuple([(1,) * len(c) if i in axes else c for i, c in enumerate(chunks)])
        inner = self._inner_axes.get(name, ())
        symbol = Symbol(name, np.dtype(said["dtype"]))
        alike = (said["dtype"], said.get("chunk_type"))
        trusted = not axes and not inner and not keeps_axes(layer) and name not in self._doubtful
        exact = set(map(type, chain.from_iterable((*chunks, inner)))) <= _INT
        return _Array(chunks, symbol, alike, trusted, exact, {}, inner)

    @cached_property
    def _inner_axes(self) -> dict[Any, tuple[Any, ...]]:
        """By array the lengths of axes that its keys do not count: core axes, in ``apply_gufunc``.

        What names these blocks anew has longer keys, and declares all.
        """
        found: dict[Any, tuple[Any, ...]] = {}
        for layer in self._hlg.layers.values():
            if (
                not isinstance(layer, MaterializedLayer)
                or (said := said_of(layer)) is None
                or not layer.mapping
            ):
                continue
            key, block = next(iter(layer.mapping.items()))
            block = block.target if type(block) is Alias else block
            if type(key) is tuple is type(block) and len(block) < len(key) == len(said["chunks"]) + 1:
                inner, name = said["chunks"][len(block) - 1 :], next(iter(block), None)
                if type(name) is str and name in self._hlg.layers and all(len(n) == 1 for n in inner):
                    found[name] = tuple([sizes[0] for sizes in inner])
        return found

    @cached_property
    def _doubtful(self) -> set[Any]:
        """Arrays of which sizes were corrected after they were declared.

        So it is with what a mask selects along an axis, and with what others take to be of unknown sizes.
        """
        unknown = ByIdentity[bool]()
        found: set[Any] = {name for name in self._hlg.layers if key_split(name) == _SELECTED}
        for name, layer in self._hlg.layers.items():
            said = said_of(layer)
            for sizes in () if said is None else said["chunks"]:
                if unknown.of(sizes, is_unknown):
                    found.update(self._hlg.dependencies.get(name, ()))
                    break
        return found


def _longest(lengths: tuple[Any, ...]) -> float:
    return inf if is_unknown(lengths) else max(lengths, default=0)
