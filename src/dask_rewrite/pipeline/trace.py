"""A record of one rewrite: what each pass did, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dask_rewrite.graph.graph import Metrics
from dask_rewrite.remarks import Remarks


@dataclass(frozen=True, slots=True)
class Step:
    """What one pass did to the size and shape of the graph, and how long it took in seconds."""

    name: str
    before: Metrics | None
    after: Metrics
    seconds: float


@dataclass(slots=True)
class Trace:
    """A record of one rewrite, filled in while it runs."""

    steps: list[Step] = field(default_factory=list)
    remarks: Remarks = field(default_factory=Remarks)
    seconds: float = 0.0
    form: Literal["tasks", "stock"] = "tasks"
    nbytes: bool = False
