"""Tables of text for terminals, and the same tables as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape


def text_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)
) -> list[str]:
    """Lines of a table; the columns in ``left`` are set flush left, the others flush right.

    Examples
    --------
    >>> print(*text_table(["pass", "tasks"], [["cull", "12 -> 3"], ["sweep", "3"]]), sep="\\n")
    pass     tasks
    -----  -------
    cull   12 -> 3
    sweep        3
    """
    if not rows:
        return []
    table = [list(map(_one_line, row)) for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    table.insert(1, ["-" * width for width in widths])
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)) -> str:
    """The same table as HTML, with every cell escaped.

    >>> "&lt;b&gt;" in html_table(["a"], [["<b>"]])
    True
    """
    if not rows:
        return ""

    def line(cells: Sequence[str], tag: str) -> str:
        sides = ["left" if i in left else "right" for i in range(len(cells))]
        marked = [
            f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>'
            for cell, side in zip(cells, sides, strict=True)
        ]
        return f"<tr>{''.join(marked)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(header, 'th')}</thead><tbody>{body}</tbody></table>"


def shorten(text: str, width: int = 60) -> str:
    """At most ``width`` characters of a text on one line, with the end kept: names differ there.

    >>> shorten("a" * 10 + "b" * 10, 11)
    'aaaa...bbbb'
    """
    text = _one_line(text)
    if len(text) <= width:
        return text
    tail = (width - 3) // 2
    return f"{text[: width - 3 - tail]}...{text[len(text) - tail :]}"


def _one_line(text: str) -> str:
    return " ".join(text.split()) if not text.isprintable() else text
