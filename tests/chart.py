"""Renders the Helm chart of deploy/helm with the few functions that it uses, because Helm is not always available.

`make manifests` uses this module to write the plain manifests of deploy/kubernetes.
"""

import re
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[1] / "deploy"
CHART = DEPLOY / "helm"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
ALL = VALUES | {"podMonitor": True, "worker": VALUES["worker"] | {"scaleByOldestSeconds": True}}
HOOK = "migrate.yaml"  # run before an upgrade: by Helm, or manually
HEAD = "# Generated from deploy/helm by `make manifests`: see docs/deploy.md.\n"


def texts(values: dict[str, Any]) -> dict[str, str]:
    """Return file name → content of the rendered chart."""

    def value(path: str) -> Any:
        found: Any = {"Values": values, "Release": {"Name": "heliograph"}}
        for name in path.strip(".").split("."):
            found = found[name]
        return found

    def filled(found: re.Match[str]) -> str:
        match found[1].split():
            case ["toYaml", path, "|", "indent", width]:
                return "\n".join(" " * int(width) + line for line in yaml.safe_dump(value(path)).splitlines())
            case [path, "|", "quote"]:
                return f'"{value(path)}"'
            case [path]:
                return str(value(path))
        raise AssertionError(f"{found[0]} is not understood")

    def made(text: str) -> str:
        chosen = re.sub(
            r"\s*\{\{- if (\S+) \}\}(.*?)\s*\{\{- end \}\}",
            lambda found: found[2] if value(found[1]) else "",
            text,
            flags=re.S,
        )
        return re.sub(r"\{\{ (.*?) \}\}", filled, chosen)

    return {file.name: made(file.read_text("utf-8")) for file in sorted((CHART / "templates").iterdir())}


def rendered(values: dict[str, Any]) -> list[Any]:
    return [one for text in texts(values).values() for one in yaml.safe_load_all(text)]


def manifests() -> dict[str, str]:
    """Return the files of deploy/kubernetes: the manifests to apply, and those to apply before an upgrade."""
    made = texts(VALUES)
    migrate = re.sub(r"^  annotations:\n(?:    helm\.sh/.*\n)+", "", made.pop(HOOK), flags=re.M)
    return {"heliograph.yaml": HEAD + "---\n".join(made.values()), HOOK: HEAD + migrate}


if __name__ == "__main__":
    for name, text in manifests().items():
        (DEPLOY / "kubernetes" / name).write_text(text, "utf-8")
