"""Writes docs/openapi.json: the document that a service at its default address answers at /openapi.json."""

import json
from pathlib import Path

from heliograph.api.openapi import openapi_document
from heliograph.api.routes import V1
from heliograph.settings import Settings

TARGET = Path(__file__).parents[1] / "docs" / "openapi.json"


def openapi_json() -> str:
    return json.dumps(openapi_document(V1, Settings().base_url), ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(openapi_json(), "utf-8")
