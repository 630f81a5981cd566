"""The outline check finds structural errors of a page."""

import pytest

from tests.dashboard.outline import find_faults

PAGE = '<html lang="en"><title>T</title><h1>One</h1>{}</html>'


@pytest.mark.parametrize(
    "part",
    [
        '<label>Name <input name="a"></label>',
        '<label for="a">Name</label><input id="a">',
        '<select aria-label="Kind"><option>One</option></select>',
        '<input type="hidden" name="csrf"><input type="submit">',
        "<h2>Two</h2><h3>Three</h3><h2>Two</h2>",
        '<a href="/"><img src="x" alt="Home"></a><button aria-label="Close"><svg></svg></button>',
        "<ul><li>One</ul>",
    ],
)
def test_valid_outline_has_no_faults(part: str) -> None:
    assert find_faults(PAGE.format(part)) == []


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ('<input name="a">', "has no label"),
        ('<label for="b">Name</label><input id="a">', "refers to nothing"),
        ("<textarea></textarea>", "has no label"),
        ('<a href="/"></a>', "has no name"),
        ("<button><svg></svg></button>", "has no name"),
        ("<h2> </h2>", "has no name"),
        ('<p id="a"></p><p id="a"></p>', "stands twice"),
        ('<p aria-describedby="b"></p>', "refers to nothing"),
        ('<img src="x">', "has no alt"),
        ('<iframe src="x"></iframe>', "has no title"),
        ("<div><li>One</li></div>", "is in no list"),
        ("<h3>Three</h3>", "h3 after h1"),
        ("<h1>Two</h1>", "not one h1"),
    ],
)
def test_invalid_outline_fault_is_found(part: str, wrong: str) -> None:
    assert any(wrong in fault for fault in find_faults(PAGE.format(part)))
