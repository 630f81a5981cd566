"""`make check-release`: say what is missing before the files of `make release` may be published.

Uses only the standard library: it also runs before `.venv` exists.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACEHOLDER = "heliograph.example"  # host of addresses that the publisher has to set


def main() -> None:
    problems = [*missing(ROOT), *unclean(ROOT)]
    for problem in problems:
        print(f"not for publication: {problem}")
    sys.exit(bool(problems))


def missing(root: Path) -> Iterator[str]:
    """Yield what the files of a checkout lack."""
    version = next(iter(re.findall(r'^__version__ = "(.*)"', read(root, "src/heliograph/__init__.py"), re.M)))
    if PLACEHOLDER in read(root, "SECURITY.md"):
        yield "SECURITY.md has a placeholder instead of the address for reports"
    urls = tomllib.loads(read(root, "pyproject.toml"))["project"].get("urls", {})
    if not urls or any(PLACEHOLDER in url for url in urls.values()):
        yield "pyproject.toml has no [project.urls], or placeholders in it"
    if ".dev" in version:
        yield f"{version} is the version of a development build"
    elif not re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", read(root, "CHANGELOG.md"), re.M):
        yield f"CHANGELOG.md has no section for {version} with a date"
    if re.search(r"^## Unreleased\n\s*^(?!## )\S", read(root, "CHANGELOG.md"), re.M):
        yield "CHANGELOG.md lists unreleased changes"


def unclean(root: Path) -> Iterator[str]:
    """Yield what distinguishes the checkout from its commit."""
    if not (root / ".git").exists():
        return
    git = ["git", "-C", str(root), "status", "--porcelain"]
    if subprocess.run(git, check=True, capture_output=True).stdout:
        yield "files differ from the commit"


def read(root: Path, name: str) -> str:
    return (root / name).read_text("utf-8")


if __name__ == "__main__":
    main()
