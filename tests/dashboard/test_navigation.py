"""Places: the menu and the search lead to pages that are there, under the need that the page has."""

import re
from pathlib import Path

import pytest

from heliograph import dashboard
from heliograph.dashboard.navigation import FORMS, MENU, OPERATORS, OTHERS, MenuPlace, searched
from heliograph.dashboard.pages import PAGES, TEAM
from heliograph.texts.dashboard_links import OF_INSTANCE, OF_TEAM, OPERATOR, OWN, of_instance, of_team

NEEDS = {page.path: page.need for page in PAGES if page.method == "GET"}
MENU_PLACES = [place for group in MENU.values() for place in group]


@pytest.mark.parametrize("place", [*MENU_PLACES, *OPERATORS, *OTHERS, *FORMS], ids=lambda place: place.name)
def test_a_place_has_a_page_for_the_same_people(place: MenuPlace) -> None:
    assert NEEDS[place.address(TEAM)] == place.need


def test_the_search_has_all_that_the_menu_has() -> None:
    found = {place.path for place in searched()}
    assert [place.name for place in (*MENU_PLACES, *OPERATORS) if place.path not in found] == []


def test_every_subject_has_a_page() -> None:
    lists = [of_team("{team}", kind).partition("?")[0] for kind in ("", *OF_TEAM)]
    assert [path for path in (*lists, *map(of_instance, OF_INSTANCE)) if path not in NEEDS] == []
    bare = {path.rpartition("/{")[0] for path in NEEDS if path.endswith("}")}
    assert [kind for kind in OWN if of_team("{team}", kind, "x").rpartition("/")[0] not in bare] == []


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
def test_a_team_s_place_is_marked(name: str, path: str, is_here: bool) -> None:
    base = of_team("team_a")
    (place,) = (one for one in MENU_PLACES if one.name == name)
    assert place.is_here(base + path, base) == is_here


@pytest.mark.parametrize(
    ("path", "name"),
    [("", "Health"), ("/teams/team_a", "Health"), ("/people/usr_a", "People"), ("/notices", "Platform")],
)
def test_one_of_the_operator_s_places_is_marked(path: str, name: str) -> None:
    assert [place.name for place in OPERATORS if place.is_here(OPERATOR + path, OPERATOR)] == [name]


def written(text: str) -> set[str]:
    """The pages that a template writes by their address, a part that it fills in as {}."""
    text = text.replace("{{ visit.base }}", TEAM)
    found = re.findall(r'(?:href|action|src)="(/dashboard(?:\{\{.*?\}\}|[^"?#{]|\{(?!\{))*)', text)
    return {re.sub(r"\{\{.*?\}\}", "{}", one) for one in found if "{%" not in one}


def is_page(path: str) -> bool:
    def fits(page: list[str]) -> bool:
        return len(parts) == len(page) and all("{" in a + b or a == b for a, b in zip(parts, page, strict=True))

    parts = path.rstrip("/").split("/")
    return any(fits(route.path.split("/")) for route in PAGES)


def test_templates_lead_to_pages_that_are_there() -> None:
    templates = (Path(dashboard.__file__).parent / "templates").glob("*.html")
    found = {path.name: [one for one in written(path.read_text("utf-8")) if not is_page(one)] for path in templates}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_an_address_that_leads_nowhere_is_seen() -> None:
    found = written('<a href="{{ visit.base }}/nowhere/{{ line.id }}"></a><a href="/dashboard/operator/queues?x=1">')
    assert [one for one in found if not is_page(one)] == [f"{TEAM}/nowhere/{{}}"]
