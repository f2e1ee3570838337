"""Settings of the documentation; `python dev.py docs` builds it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "src" / "dask_rewrite"

project = "dask-rewrite"
author = "dask-rewrite developers"
copyright = f"2026, {author}"
release = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "_generated"]
myst_heading_anchors = 3

autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = "dask-rewrite"


def configuration_table() -> str:
    """The table of configuration keys, made from the defaults and the schema that dask reads."""
    defaults = yaml.safe_load((PACKAGE / "rewrite.yaml").read_text())["rewrite"]
    schema = yaml.safe_load((PACKAGE / "rewrite-schema.yaml").read_text())
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for key, entry in schema["properties"]["rewrite"]["properties"].items():
        meaning = " ".join(entry["description"].split())
        if "enum" in entry:
            meaning += " One of " + ", ".join(f"`{value}`" for value in entry["enum"]) + "."
        lines.append(f"| `rewrite.{key}` | `{json.dumps(defaults[key])}` | {meaning} |")
    return "\n".join(lines) + "\n"


(HERE / "_generated").mkdir(exist_ok=True)
(HERE / "_generated" / "configuration.md").write_text(configuration_table())
