"""A report as one HTML page that needs nothing else: tables, bars, pictures, remarks to filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any

from dask._task_spec import convert_legacy_graph
from dask.typing import Key
from dask.utils import format_bytes, format_time, key_split

from dask_rewrite._version import __version__
from dask_rewrite.graph.labels import functions_of
from dask_rewrite.graph.pickling import size_if_pickled
from dask_rewrite.lowering.sizes import tasks_in
from dask_rewrite.tools.curves import bars
from dask_rewrite.tools.pictures import picture
from dask_rewrite.tools.tables import html_table, shorten

if TYPE_CHECKING:
    from dask.highlevelgraph import HighLevelGraph

    from dask_rewrite.graph.graph import Metrics
    from dask_rewrite.pipeline.trace import Step
    from dask_rewrite.remarks import Remark

#: Tasks of one name that are weighed, kinds of tasks that are listed, and functions that are shown of each.
_WEIGHED, _LISTED, _FUNCTIONS = 50, 15, 6
_REMARKS = ["remark", "rule", "key", "reason"]
_HEAVIEST = ["tasks", "heaviest", "name", "what its tasks call"]

_STYLE = """
:root { color-scheme: light dark; --line: #8886; }
body { font: 14px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .8rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td { overflow-wrap: anywhere; } .side { display: flex; flex-wrap: wrap; gap: 2rem; }
.wide { overflow-x: auto; } input, select { font: inherit; margin: 0 .6rem .6rem 0; }
"""
_SCRIPT = """
const text = document.getElementById("text"), kind = document.getElementById("kind");
const rows = [...document.querySelectorAll("#remarks tbody tr")], shown = document.getElementById("shown");
function filter() {
  const wanted = text.value.toLowerCase();
  let count = 0;
  for (const row of rows) {
    const cell = row.cells[0].textContent;
    row.hidden = (kind.value && cell !== kind.value) || !row.textContent.toLowerCase().includes(wanted);
    count += !row.hidden;
  }
  shown.textContent = count + " of " + rows.length;
}
text.addEventListener("input", filter);
kind.addEventListener("change", filter);
filter();
"""


def page(title: str, *parts: str) -> str:
    """The whole page, as text."""
    title = escape(f"dask_rewrite: {title}")
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            f"<title>{title}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{title}</h1>",
            *parts,
            f"<p>dask_rewrite {escape(__version__)}</p></body></html>\n",
        ]
    )


def passes_shown(before: Metrics | None, steps: Sequence[Step]) -> list[str]:
    """Bars of tasks and of seconds, pass by pass."""
    if not steps:
        return []
    tasks = [(step.name, step.after.tasks, f"{step.after.tasks:,}") for step in steps]
    if before is not None:
        tasks.insert(0, ("as built", before.tasks, f"{before.tasks:,}"))
    seconds = [(step.name, step.seconds, format_time(step.seconds)) for step in steps]
    return [
        '<h2>Passes</h2><div class="side">',
        f"<div><p>Tasks after each pass</p>{bars(tasks)}</div>",
        f"<div><p>Time of each pass</p>{bars(seconds)}</div></div>",
    ]


def graphs_shown(built: HighLevelGraph | None, graph: Mapping[Key, Any]) -> list[str]:
    """Pictures of the graph as it was built and as it is sent, and the heaviest tasks of the latter."""
    nodes = convert_legacy_graph(dict(graph))  # as dataframes have it
    return [*_pictures(built, nodes), *_heaviest(nodes)]


def _pictures(built: HighLevelGraph | None, graph: Mapping[Key, Any]) -> list[str]:
    drawn = []
    if built is not None:
        tasks = {name: tasks_in(layer) for name, layer in built.layers.items()}
        drawn.append(("The graph as it was built", picture(built.dependencies, tasks)))
    if graph:
        drawn.append(("What is sent", picture({key: task.dependencies for key, task in graph.items()})))
    parts = [f"<div class='wide'><h2>{title}</h2>{svg}</div>" for title, svg in drawn]
    return ['<div class="side">', *parts, "</div>"]


def _heaviest(graph: Mapping[Key, Any]) -> list[str]:
    """What tasks weigh when they are sent, by their names."""
    kinds: dict[str, list[Any]] = {}
    for key, task in graph.items():
        kinds.setdefault(key_split(key), []).append(task)
    weights = {name: max(map(_weight, islice(tasks, _WEIGHED))) for name, tasks in kinds.items()}
    rows = []
    for name in sorted(kinds, key=lambda name: -weights[name])[:_LISTED]:
        functions = functions_of(kinds[name][0])
        calls = " -> ".join([*functions[:_FUNCTIONS], *(["..."] if len(functions) > _FUNCTIONS else [])])
        weight = format_bytes(weights[name]) if weights[name] >= 0 else "cannot be pickled"
        rows.append([f"{len(kinds[name]):,}", weight, shorten(name, 60), calls or "-"])
    if not rows:
        return []
    return ["<h2>Heaviest tasks that are sent</h2>", html_table(_HEAVIEST, rows, left=(2, 3))]


def _weight(task: Any) -> int:
    size = size_if_pickled(task)
    return -1 if size is None else size


def remarks_shown(remarks: Sequence[Remark], count: int) -> list[str]:
    """A list of remarks, of so many in all, that can be filtered."""
    rows = [
        [remark.kind, remark.rule, "" if remark.key is None else shorten(repr(remark.key), 70), remark.reason]
        for remark in remarks
    ]
    if not rows:
        return []
    kinds = "".join(f"<option>{kind}</option>" for kind in sorted({row[0] for row in rows}))
    return [
        f"<h2>Remarks</h2><p>{count:,} in all; the first of each rule are listed.</p>",
        '<input id="text" type="search" placeholder="filter" aria-label="filter">',
        f'<select id="kind" aria-label="kind"><option value="">all</option>{kinds}</select>',
        '<span id="shown"></span><div id="remarks">',
        f"{html_table(_REMARKS, rows, left=range(4))}</div><script>{_SCRIPT}</script>",
    ]
