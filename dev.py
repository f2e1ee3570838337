"""Install nox in this clone, and let it do the project's jobs. Needs Python 3.11 or newer, and pip.

    python dev.py demo      what the optimizer is worth, beside stock dask, on a local cluster with real files
    python dev.py test      the tests; further words go to pytest: `python dev.py test -k bisect`
    python dev.py --help    the other jobs

The jobs are in noxfile.py. Uses the standard library only.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
MINIMUM = (3, 11)
NOX = "nox==2026.10.20"
PYTHON = ROOT / ".venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def nox() -> list[str]:
    """The command that runs nox; the first time, it is installed into .venv."""
    check = f"import importlib.metadata as m; raise SystemExit(m.version('nox') != {NOX[5:]!r})"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if not PYTHON.exists() or subprocess.run([PYTHON, "-c", check], **quiet).returncode:
        print(f"[dev] installing {NOX} into .venv", flush=True)
        # this Python's pip installs into .venv: some systems package Python without ensurepip
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", PYTHON.parents[1]], check=True)
        subprocess.run([sys.executable, "-m", "pip", "--python", PYTHON, "install", "-q", NOX], check=True)
    return [str(PYTHON), "-m", "nox", "-f", str(ROOT / "noxfile.py")]


def main(words: list[str]) -> int:
    if sys.version_info[:2] < MINIMUM:
        raise SystemExit(f"[dev] Python 3.11 or newer is needed; this is {sys.version.split()[0]}")
    if not words or words[0] in ("-h", "--help"):
        print(__doc__, flush=True)
        return subprocess.run([*nox(), "--list"]).returncode
    return subprocess.run([*nox(), "-s", words[0], "--", *words[1:]], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
