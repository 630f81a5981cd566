"""Navigation: menu and search link to existing pages and require the same role as the page."""

import re
from pathlib import Path

import pytest

from heliograph import dashboard
from heliograph.dashboard.navigation import (
    FORM_PAGES,
    MENU,
    OPERATOR_FORM_PAGES,
    OPERATOR_MENU,
    SEARCH_ONLY_PAGES,
    NavItem,
    iter_searchable_pages,
)
from heliograph.dashboard.pages import PAGES, TEAM_PATH
from heliograph.texts.dashboard_links import (
    OPERATOR,
    OPERATOR_PATHS,
    TEAM_LIST_PATHS,
    TEAM_OBJECT_PATHS,
    operator_page,
    team_page,
)

NEEDS = {page.path: page.required_role for page in PAGES if page.method == "GET"}
MENU_PLACES = [place for group in MENU.values() for place in group]


@pytest.mark.parametrize(
    "place",
    [*MENU_PLACES, *OPERATOR_MENU, *SEARCH_ONLY_PAGES, *FORM_PAGES, *OPERATOR_FORM_PAGES],
    ids=lambda place: place.name,
)
def test_menu_item_and_its_page_require_same_role(place: NavItem) -> None:
    assert NEEDS[place.url(TEAM_PATH)] == place.required_role


def test_search_contains_every_menu_item() -> None:
    searchable_paths = {item.path for item in iter_searchable_pages()}
    assert [item.name for item in (*MENU_PLACES, *OPERATOR_MENU) if item.path not in searchable_paths] == []


def test_every_link_subject_has_a_page() -> None:
    lists = [team_page("{team}", kind).partition("?")[0] for kind in ("", *TEAM_LIST_PATHS)]
    assert [path for path in (*lists, *map(operator_page, OPERATOR_PATHS)) if path not in NEEDS] == []
    bare = {path.rpartition("/{")[0] for path in NEEDS if path.endswith("}")}
    assert [kind for kind in TEAM_OBJECT_PATHS if team_page("{team}", kind, "x").rpartition("/")[0] not in bare] == []


@pytest.mark.parametrize(
    ("name", "path", "is_here"),
    [
        ("Overview", "", True),
        ("Overview", "/messages", False),
        ("Messages", "/messages", True),
        ("Messages", "/messages/em_1", True),
        ("Messages", "/messages.csv", False),
        ("Settings", "/notices", True),
    ],
)
def test_current_team_menu_item_is_marked(name: str, path: str, is_here: bool) -> None:
    base = team_page("team_a")
    (place,) = (candidate for candidate in MENU_PLACES if candidate.name == name)
    assert place.is_current(base + path, base) == is_here


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("", "Teams & health"),
        ("/teams/team_a", "Teams & health"),
        ("/people/usr_a", "People"),
        ("/notices", "Platform"),
    ],
)
def test_current_operator_menu_item_is_marked(path: str, name: str) -> None:
    assert [place.name for place in OPERATOR_MENU if place.is_current(OPERATOR + path, OPERATOR)] == [name]


def linked_paths(text: str) -> set[str]:
    """Return the dashboard paths that a template links to, with {} for each inserted value."""
    text = text.replace("{{ request.team_path }}", TEAM_PATH)
    paths = re.findall(r'(?:href|action|src)="(/dashboard(?:\{\{.*?\}\}|[^"?#{]|\{(?!\{))*)', text)
    return {re.sub(r"\{\{.*?\}\}", "{}", path) for path in paths if "{%" not in path}


def is_page_path(path: str) -> bool:
    def fits(route_segments: list[str]) -> bool:
        return len(segments) == len(route_segments) and all(
            "{" in a + b or a == b for a, b in zip(segments, route_segments, strict=True)
        )

    segments = path.rstrip("/").split("/")
    return any(fits(route.path.split("/")) for route in PAGES)


def test_links_in_templates_lead_to_existing_pages() -> None:
    templates = (Path(dashboard.__file__).parent / "templates").glob("*.html")
    wrong_by_template = {
        path.name: [target for target in linked_paths(path.read_text("utf-8")) if not is_page_path(target)]
        for path in templates
    }
    assert {name: targets for name, targets in wrong_by_template.items() if targets} == {}


def test_checker_finds_link_to_missing_page() -> None:
    paths = linked_paths(
        '<a href="{{ request.team_path }}/nowhere/{{ line.id }}"></a><a href="/dashboard/operator/queues?x=1">'
    )
    assert [path for path in paths if not is_page_path(path)] == [f"{TEAM_PATH}/nowhere/{{}}"]
