"""Which passes run, in which order, with which options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from dask_rewrite._version import __version__
from dask_rewrite.config import Options
from dask_rewrite.lowering.fusion import FuseBlockwise
from dask_rewrite.passes.align_reads import AlignReads
from dask_rewrite.passes.base import Pass, Rules
from dask_rewrite.passes.coalesce import Coalesce
from dask_rewrite.passes.contract import Contract
from dask_rewrite.passes.crumbs import Crumbs
from dask_rewrite.passes.demand import Demand
from dask_rewrite.passes.detach import Detach
from dask_rewrite.passes.fuse_chains import FuseChains
from dask_rewrite.passes.fuse_slices import FuseSlices
from dask_rewrite.passes.fuse_small import FuseSmall
from dask_rewrite.passes.halo_corners import HaloCorners
from dask_rewrite.passes.hoist import Hoist
from dask_rewrite.passes.hold_operands import HoldOperands
from dask_rewrite.passes.inline_sources import InlineSources
from dask_rewrite.passes.merge_reads import MergeReads
from dask_rewrite.passes.movement import Movement
from dask_rewrite.passes.place_blocks import PlaceBlocks
from dask_rewrite.passes.regrid import Regrid
from dask_rewrite.passes.reread import Reread
from dask_rewrite.passes.reuse_buffers import ReuseBuffers
from dask_rewrite.passes.setitem import Setitem
from dask_rewrite.passes.share import Share
from dask_rewrite.passes.siblings import Siblings
from dask_rewrite.passes.stream import Stream
from dask_rewrite.passes.sweep import Sweep
from dask_rewrite.passes.take_turns import TakeTurns
from dask_rewrite.passes.tree_sum import TreeSum

#: Passes on layers, in order; all three are one traversal (see :mod:`dask_rewrite.lowering.lower`).
LAYER_PASSES = ("cull", "fuse-blockwise", "lower")

#: Passes on tasks, in order.
TASK_PASSES: dict[str, Callable[..., Pass]] = {
    "demand": Demand,  # first: it makes blocks smaller, and slices of reads that the next pass composes
    "fuse-slices": lambda: Rules(FuseSlices.name, (FuseSlices(),)),  # before anything hides the getters
    "align-reads": AlignReads,  # on reads that are as small as can be, before rechunks of them are looked at
    "setitem": Setitem,  # after the values that it puts into tasks were cut to size
    "regrid": Regrid,  # before the joins and slices that it makes are composed
    "movement": Movement,  # on what setitem left; later passes see blocks that are equal, and fewer of them
    "tree-sum": lambda: Rules(TreeSum.name, (TreeSum(),)),  # before products are taken out of sums
    "share": Share,  # on blocks and sums that are equal, before these become parts of longer work
    "halo-corners": HaloCorners,  # on the slices that movement left, once equal ones are one
    "inline-sources": InlineSources,  # once equal work is one, and before anybody asks what sums wait for
    "reread": Reread,  # after equal work is one, or it would be one again; before reductions are taken apart
    "contract": Contract,  # on whole sums of products, before anything fuses into these
    "stream": Stream,  # on the reductions that contract leaves, before their small steps are fused
    "fuse-small": FuseSmall,  # after all that may merge or drop small tasks
    "merge-reads": MergeReads,  # on the reads that fuse-small put into one task
    "crumbs": Crumbs,  # on the slivers that regrid left, with the slices that fuse-small put into them
    "siblings": Siblings,  # on what is small once it is fused, before chains take it in
    "fuse-chains": FuseChains,  # after all that looks at single tasks
    "detach": Detach,  # on the slices that are tasks of their own in the end
    "reuse-buffers": ReuseBuffers,  # on whole tasks: what is a step of one has no other user
    "hold-operands": HoldOperands,  # once it is decided what stands inside of what
    "hoist": Hoist,  # after fusion, which wants tasks of one dependency and could put constants back
    "coalesce": Coalesce,  # on tasks as they are in the end, with constants out of the way
    "place-blocks": PlaceBlocks,  # on what makes the blocks of a result in the end
    "take-turns": TakeTurns,  # on what is scheduled: whatever changes tasks changes what they hold
    "sweep": Sweep,  # last: drops what the others left behind
}

#: All passes in their built-in order.
PASSES = (*LAYER_PASSES, *TASK_PASSES)


#: Passes that cannot be left out, and have no options.
_PLAIN = frozenset({"cull", "lower"})
#: What `print-after` takes beside the names of passes.
_MOMENTS = ("changed", "failure")


@dataclass(frozen=True, slots=True)
class Selection:
    """The passes to run: fusion of layers (or None), those on tasks in order, and a name for all that."""

    fusion: FuseBlockwise | None
    passes: tuple[Pass, ...]
    salt: str


#: The selection made last, by the identity of its options.
_selected: dict[int, tuple[tuple[str, ...], Options, Selection]] = {}


def select(options: Options) -> Selection:
    """The passes to run under these options.

    Raises
    ------
    ValueError
        For a name or option that does not exist; the message names it and the choices.
    """
    known = _selected.get(id(options))
    if known is not None and known[0] is PASSES:
        return known[2]
    names = PASSES if options.passes is None else options.passes
    for where, given in (
        ("passes", names),
        ("disable", options.disable),
        ("options", options.options),
        ("print-after", options.print_after),
    ):
        choices = (*PASSES, *_MOMENTS) if where == "print-after" else PASSES
        for name in given:
            if name not in choices:
                raise ValueError(
                    f"rewrite.{where}: no pass named {name!r}; expected one of {', '.join(choices)}"
                )
    for name in _PLAIN:
        for option in options.options.get(name, ()):
            raise ValueError(f"rewrite.options.{name}: no option {option!r}; it has: none")
    for name in options.disable & _PLAIN:
        raise ValueError(f"rewrite.disable: {name!r} is what turns layers into tasks and cannot be disabled")
    wanted = [name for name in names if name not in options.disable]
    fusion = _configured(FuseBlockwise, options) if "fuse-blockwise" in wanted else None
    passes = tuple(_configured(TASK_PASSES[name], options) for name in wanted if name in TASK_PASSES)
    selection = Selection(fusion, passes, f"{__version__} {fusion} {passes}")
    _selected.clear()
    _selected[id(options)] = (PASSES, options, selection)
    return selection


def _configured(make: Callable[..., Any], options: Options) -> Any:
    made = make()
    if isinstance(made, Rules):  # the options are those of its rules
        return replace(made, rules=tuple([_with_options(rule, options) for rule in made.rules]))
    return _with_options(made, options)


def _with_options(made: Any, options: Options) -> Any:
    given = options.options.get(made.name, {})
    values = {name.replace("-", "_"): value for name, value in given.items()}
    names = [field.name for field in fields(made)] if is_dataclass(made) else []
    known = [name for name in names if name != "reassociate"]
    for name, value in values.items():
        written = name.replace("_", "-")
        if name not in known:
            choices = ", ".join(known).replace("_", "-") or "none"
            raise ValueError(f"rewrite.options.{made.name}: no option {written!r}; it has: {choices}")
        if type(value) is not type(getattr(made, name)):
            kind = type(getattr(made, name)).__name__
            raise ValueError(f"rewrite.options.{made.name}.{written}: expected {kind}, got {value!r}")
        if type(value) is int and value < 1:
            raise ValueError(f"rewrite.options.{made.name}.{written}: expected at least 1, got {value!r}")
    if "reassociate" in names:  # passes that regroup floating-point sums ask to be told
        values["reassociate"] = options.reassociate
    return replace(made, **values) if values else made
