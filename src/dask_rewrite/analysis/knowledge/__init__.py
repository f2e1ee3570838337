"""What is known of the functions that real graphs call; nothing is known of all others.

Every function in the tables returns without having written into its arguments.
"""

from __future__ import annotations

from dask_rewrite.analysis.knowledge import tables
from dask_rewrite.analysis.knowledge.fact import Fact
from dask_rewrite.analysis.knowledge.known import Known
from dask_rewrite.analysis.knowledge.lookup import KNOWN, LATE, fact_of_call, known, known_call

for _table in tables.TABLES:
    KNOWN.update(_table)
LATE.update(tables.LATE)

__all__ = ["KNOWN", "Fact", "Known", "fact_of_call", "known", "known_call"]
