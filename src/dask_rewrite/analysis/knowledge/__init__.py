"""What is known of the functions that real graphs call; nothing is known of all others.

Every function in the tables returns without having written into its arguments.
"""

from __future__ import annotations

from dask_rewrite.analysis.knowledge.calling import CALLING
from dask_rewrite.analysis.knowledge.creation import CREATION
from dask_rewrite.analysis.knowledge.elementwise import ELEMENTWISE
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.knowledge.in_place import WRITING
from dask_rewrite.analysis.knowledge.joining import JOINING
from dask_rewrite.analysis.knowledge.known import Known
from dask_rewrite.analysis.knowledge.linear_algebra import LATE_LINEAR_ALGEBRA, LINEAR_ALGEBRA
from dask_rewrite.analysis.knowledge.loading import LOADING
from dask_rewrite.analysis.knowledge.lookup import KNOWN, LATE, fact_of_call, known, known_call
from dask_rewrite.analysis.knowledge.movement import MOVEMENT
from dask_rewrite.analysis.knowledge.other_libraries import OTHER_LIBRARIES
from dask_rewrite.analysis.knowledge.partials import PARTIALS
from dask_rewrite.analysis.knowledge.random import DRAWING
from dask_rewrite.analysis.knowledge.read_only import HARMLESS
from dask_rewrite.analysis.knowledge.reductions import REDUCTIONS
from dask_rewrite.analysis.knowledge.selecting import SELECTIONS

for _table in (
    *(CALLING, CREATION, DRAWING, ELEMENTWISE, HARMLESS, JOINING, LINEAR_ALGEBRA),
    *(LOADING, MOVEMENT, PARTIALS, REDUCTIONS, SELECTIONS, WRITING),
):
    KNOWN.update(_table)
for (_module, _name), _make in {**LATE_LINEAR_ALGEBRA, **OTHER_LIBRARIES}.items():
    LATE.setdefault(_name, []).append((_module, _make))

__all__ = ["KNOWN", "Fact", "Known", "fact_of_call", "known", "known_call"]
