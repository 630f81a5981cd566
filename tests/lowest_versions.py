"""Prints the oldest version of every runtime dependency that pyproject.toml permits, as arguments for pip."""

import tomllib
from pathlib import Path

EXTRAS = ("oidc", "mjml", "otel", "passkeys", "s3")


def lowest_versions() -> list[str]:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *(item for extra in EXTRAS for item in extras[extra])]
    return [item.replace(">=", "==") for item in needed]


if __name__ == "__main__":
    print(*lowest_versions())
