"""Writes what heliograph-client shares with the service: a class for each error code, and the check of webhooks."""

import json
from pathlib import Path

from heliograph.web.errors import error_list
from heliograph.webhooks import verification as receiving

PACKAGE = Path(__file__).parent / "python" / "src" / "heliograph_client"
MADE = "Made by `make clients` from"


def generated() -> dict[Path, str]:
    return {PACKAGE / "codes.py": codes(), PACKAGE / "webhooks.py": webhooks()}


def codes() -> str:
    lines = [f'"""A class for each code. {MADE} what GET /v1/errors answers."""', ""]
    lines += ["from heliograph_client import errors as e", "", "", "# fmt: off", "# ruff: noqa: E501, E701"]
    kinds = {"permission_error": "PermissionDenied", "api_error": "ServerError"}
    for entry in error_list():
        kind = kinds.get(entry["type"]) or _camel(entry["type"])
        lines.append(f"""class {_camel(entry["code"])}(e.{kind}): {json.dumps(entry["meaning"], ensure_ascii=False)}""")
    return "\n".join([*lines, ""])


def webhooks() -> str:
    return f"# {MADE} src/heliograph/webhooks/verification.py.\n" + Path(receiving.__file__).read_text("utf-8")


def _camel(code: str) -> str:
    return "".join(map(str.capitalize, code.split("_")))


if __name__ == "__main__":
    for file, text in generated().items():
        file.write_text(text, "utf-8")
