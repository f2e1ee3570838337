"""A report's page in a browser: its script runs there, filters remarks, and nothing is fetched."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import dask_rewrite
from tools.test_page import program

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
#: What a reader does: types a word, and takes one kind of remarks.
TYPED = """<script>
text.value = "%s"; text.dispatchEvent(new Event("input"));
kind.value = "%s"; kind.dispatchEvent(new Event("change"));
</script></body>"""


def shown(folder: Path, html: str) -> str:
    """The page as the browser has it after all scripts."""
    file = folder / "report.html"
    file.write_text(html, encoding="utf-8")
    words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    words += ["--disable-dev-shm-usage", "--virtual-time-budget=2000", "--dump-dom", file.as_uri()]
    return subprocess.run(words, capture_output=True, text=True, timeout=100, check=True).stdout


@pytest.mark.once
@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.timeout(240)
def test_remarks_are_filtered_in_a_browser(tmp_path: Path) -> None:
    html = dask_rewrite.explain(program(), forecast=True).to_html()
    page = shown(tmp_path, html)
    count = re.search(r'id="shown"[^>]*>(\d+) of (\d+)<', page)
    assert count is not None
    assert count[1] == count[2] != "0"
    assert page.count("<svg") == html.count("<svg") > 2
    filtered = shown(tmp_path, html.replace("</body>", TYPED % ("no such word", "")))
    assert f">0 of {count[2]}<" in filtered
    applied = shown(tmp_path, html.replace("</body>", TYPED % ("", "applied")))
    rows = html.count("<td>applied</td>") or len(re.findall(r"<td[^>]*>applied<", html))
    assert f">{rows} of {count[2]}<" in applied
