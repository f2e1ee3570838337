"""All tables of known functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask_rewrite.analysis.knowledge.calling import CALLING
from dask_rewrite.analysis.knowledge.creation import CREATION
from dask_rewrite.analysis.knowledge.elementwise import ELEMENTWISE
from dask_rewrite.analysis.knowledge.in_place import WRITING
from dask_rewrite.analysis.knowledge.joining import JOINING
from dask_rewrite.analysis.knowledge.known import Known
from dask_rewrite.analysis.knowledge.linear_algebra import LATE, LINEAR_ALGEBRA
from dask_rewrite.analysis.knowledge.loading import LOADING
from dask_rewrite.analysis.knowledge.movement import MOVEMENT
from dask_rewrite.analysis.knowledge.partials import PARTIALS
from dask_rewrite.analysis.knowledge.random import DRAWING
from dask_rewrite.analysis.knowledge.read_only import HARMLESS
from dask_rewrite.analysis.knowledge.reductions import REDUCTIONS
from dask_rewrite.analysis.knowledge.selecting import SELECTIONS

TABLES: tuple[dict[Callable[..., Any], Known], ...] = (
    CALLING,
    CREATION,
    DRAWING,
    ELEMENTWISE,
    HARMLESS,
    JOINING,
    LINEAR_ALGEBRA,
    LOADING,
    MOVEMENT,
    PARTIALS,
    REDUCTIONS,
    SELECTIONS,
    WRITING,
)

__all__ = ["LATE", "TABLES"]
