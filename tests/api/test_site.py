"""The static docs: every page exists, and all links are relative and have a target."""

import re
from html import unescape
from pathlib import Path

import pytest

from heliograph.api.guides import GUIDE_NAMES, MOVED_GUIDES, PICTURES
from heliograph.api.openapi import operation_id
from heliograph.api.routes import V1
from heliograph.api.site import relative_url, write_site
from heliograph.domain.refusals import all_refusals


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    write_site(folder)
    return folder


@pytest.mark.parametrize(
    ("url", "file", "expected"),
    [
        ("/docs", "guides/start.html", "../index.html"),
        ("/docs#send", "index.html", "index.html#send"),
        ("/docs/guides/start", "guides/webhooks.html", "start.html"),
        ("/docs/errors#not_found", "errors/invalid_phone.html", "../errors.html#not_found"),
        ("/docs?q=bounce", "api/post_sms.html", "../search.html?q=bounce"),
        ("/dashboard/static/style.css", "api/post_sms.html", "../static/style.css"),
        ("/docs/screens/template-editor.png", "guides/templates.html", "../screens/template-editor.png"),
        ("/openapi.json", "index.html", "openapi.json"),
    ],
)
def test_url_of_the_service_becomes_a_relative_file(url: str, file: str, expected: str) -> None:
    assert relative_url(url, file) == expected


def test_site_has_every_page(site: Path) -> None:
    expected = {"index.html", "errors.html", "search.html", "openapi.json", "llms.txt", "static/search-index.js"}
    expected |= {f"guides/{name}.html" for name in GUIDE_NAMES} | {f"api/{operation_id(route)}.html" for route in V1}
    expected |= {f"screens/{name}" for name in PICTURES}
    expected |= {f"errors/{refusal.code}.html" for refusal in all_refusals()}
    assert expected - {path.relative_to(site).as_posix() for path in site.rglob("*")} == set()


def test_moved_guides_lead_to_their_new_pages(site: Path) -> None:
    for old, new in MOVED_GUIDES.items():
        assert old not in GUIDE_NAMES and new in GUIDE_NAMES
        assert f'url={new}.html"' in (site / "guides" / f"{old}.html").read_text("utf-8")


@pytest.mark.slow
def test_every_link_of_the_site_leads_to_a_file_in_it(site: Path) -> None:
    """Only links that readers click may lead elsewhere: pages load nothing from other hosts."""
    texts = {path.resolve(): path.read_text("utf-8") for path in [*site.rglob("*.html"), *site.rglob("*.svg")]}
    for page, text in texts.items():
        for attribute, target in re.findall(r'\b(href|src|action)="([^"]*)"', text):
            if re.match("https?://", target):
                assert attribute == "href" and f'<a href="{target}"' in text, (page, target)
                continue
            name, _, anchor = unescape(target).partition("#")
            file = (page.parent / name.partition("?")[0]).resolve() if name else page
            assert file.is_file(), (page, target)
            assert not anchor or f'id="{anchor}"' in texts[file], (page, target)


def test_llms_txt_of_the_site_names_files_in_it(site: Path) -> None:
    text = (site / "llms.txt").read_text("utf-8")
    assert text.startswith("# Heliograph\n\n> ")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > len(GUIDE_NAMES) + len(V1)
    assert [link for link in links if not (site / link).is_file()] == []
