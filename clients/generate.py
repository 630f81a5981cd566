"""Writes what the clients share with the service: `make clients`. The tests check that it is current."""

from pathlib import Path

from heliograph import receiving
from heliograph.api.errors import error_list

HERE = Path(__file__).parent
PACKAGE = HERE / "python" / "src" / "heliograph_client"
MADE = "Made by `make clients` from"


def generated() -> dict[Path, str]:
    return {PACKAGE / "codes.py": codes(), PACKAGE / "webhooks.py": webhooks()}


def codes() -> str:
    lines = [f'"""A class for each code. {MADE} what GET /v1/errors answers."""', ""]
    lines += ["from heliograph_client import errors as e", "", "", "# fmt: off"]
    kinds = {"permission_error": "PermissionDenied", "api_error": "ServerError"}
    for entry in error_list():
        kind = kinds.get(entry["type"]) or _camel(entry["type"])
        lines += [f"class {_camel(entry['code'])}(e.{kind}):", f'    """{_shortened(entry["meaning"])}"""']
    return "\n".join([*lines, ""])


def _shortened(text: str, most: int = 110) -> str:
    return text if len(text) <= most else text[: text.rindex(" ", 0, most)] + " …"


def webhooks() -> str:
    return f"# {MADE} src/heliograph/receiving.py.\n" + Path(receiving.__file__).read_text("utf-8")


def _camel(code: str) -> str:
    return "".join(map(str.capitalize, code.split("_")))


if __name__ == "__main__":
    for file, text in generated().items():
        file.write_text(text, "utf-8")
