"""All tables of known functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask_rewrite.knowledge.calling import CALLING
from dask_rewrite.knowledge.creation import CREATION
from dask_rewrite.knowledge.drawing import DRAWING
from dask_rewrite.knowledge.elementwise import ELEMENTWISE
from dask_rewrite.knowledge.harmless import HARMLESS
from dask_rewrite.knowledge.joining import JOINING
from dask_rewrite.knowledge.known import Known
from dask_rewrite.knowledge.linear_algebra import LATE, LINEAR_ALGEBRA
from dask_rewrite.knowledge.loading import LOADING
from dask_rewrite.knowledge.movement import MOVEMENT
from dask_rewrite.knowledge.partials import PARTIALS
from dask_rewrite.knowledge.reductions import REDUCTIONS
from dask_rewrite.knowledge.selections import SELECTIONS

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
)

__all__ = ["LATE", "TABLES"]
