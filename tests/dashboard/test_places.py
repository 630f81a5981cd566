"""Places: the menu and the search lead to pages that are there, under the need that the page has."""

import pytest

from heliograph.dashboard.pages import PAGES, TEAM
from heliograph.dashboard.places import FORMS, MENU, OPERATORS, OTHERS, MenuPlace, searched
from heliograph.words.places import OF_INSTANCE, OF_TEAM, OPERATOR, OWN, of_instance, of_team

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
