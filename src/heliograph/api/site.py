"""The docs as static files for any host: the pages of /docs with relative links and a search in the browser.

`make site` runs this module with the name of the folder. The pages load nothing from other hosts.
"""

import json
import re
import shutil
import sys
from os.path import relpath
from pathlib import Path

import heliograph
from heliograph.api.guides import FOLDER, MOVED_GUIDES, PICTURES
from heliograph.api.openapi import openapi_document
from heliograph.api.pages import Docs
from heliograph.api.routes import V1
from heliograph.web.icons import SHEET_URL, render_sheet

BASE_URL = "https://your-heliograph"  # in examples, the address of the reader's service
ASSETS = Path(heliograph.__file__).parent / "dashboard" / "static"
ASSET_NAMES = ("style.css", "page.js", "icon.svg", "inter.woff2", "inter-OFL.txt")
SEARCH_SCRIPT = Path(__file__).parent / "static" / "search.js"
REDIRECT = '<!doctype html><meta http-equiv="refresh" content="0; url={0}"><a href="{0}">This page has moved</a>\n'
LINK = re.compile(r'\b(href|src|action)="(/[^"]*)"')


def write_site(folder: Path) -> None:
    document = openapi_document(V1, BASE_URL)
    docs = Docs(V1, document, is_static=True)
    pages = {file_of(path): docs.page(path) or "" for path in docs.paths()}
    pages["search.html"] = docs.static_search_page()
    for file, html in pages.items():
        _write(folder / file, relative_links(html, file))
    for old, new in MOVED_GUIDES.items():
        _write(folder / "guides" / f"{old}.html", REDIRECT.format(f"{new}.html"))
    (folder / "static").mkdir()
    (folder / "screens").mkdir()
    for name in PICTURES:
        shutil.copyfile(FOLDER / "screens" / name, folder / "screens" / name)
    for name in ASSET_NAMES:
        shutil.copyfile(ASSETS / name, folder / file_of(f"/dashboard/static/{name}"))
    (folder / file_of(SHEET_URL)).write_bytes(render_sheet())
    shutil.copyfile(SEARCH_SCRIPT, folder / "static" / SEARCH_SCRIPT.name)
    entries = [
        [hit.kind, hit.title, hit.about, relative_url(hit.url, "search.html"), " ".join(text.split())]
        for hit, text in docs.searchable_hits()
    ]
    _write(folder / "static" / "search-index.js", f"const ENTRIES = {json.dumps(entries, ensure_ascii=False)};\n")
    _write(folder / "openapi.json", json.dumps(document, ensure_ascii=False))
    llms = re.sub(rf"\({BASE_URL}(/[^)]*)\)", lambda link: f"({relative_url(link[1], 'llms.txt')})", docs.llms_txt())
    _write(folder / "llms.txt", llms)


def file_of(path: str) -> str:
    """Return the file for a path of the service: /docs/guides/start → guides/start.html."""
    if path.startswith("/dashboard/static/"):
        return path.removeprefix("/dashboard/")
    if path.startswith("/docs/screens/"):
        return path.removeprefix("/docs/")
    if path.startswith("/docs"):
        return f"{path.removeprefix('/docs').strip('/') or 'index'}.html"
    return path.strip("/")


def relative_url(url: str, file: str) -> str:
    """Return the link from `file` to the static copy of the page or asset that the service has at `url`."""
    path, mark, rest = re.fullmatch(r"([^?#]*)([?#]?)(.*)", url, re.S).groups()  # type: ignore[union-attr]
    target = "search.html" if mark == "?" else file_of(path)
    return relpath(target, Path(file).parent) + mark + rest


def relative_links(html: str, file: str) -> str:
    def rewrite(match: re.Match[str]) -> str:
        url = f"{match[2]}?" if match[1] == "action" else match[2]  # `action` is the URL of the search form
        return f'{match[1]}="{relative_url(url, file).removesuffix("?")}"'

    return LINK.sub(rewrite, html)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


if __name__ == "__main__":
    write_site(Path(sys.argv[1]))
