"""Upper bounds of templates: no allowed values exceed them, and some values come close."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.domain.mail.unsubscribe import UnsubscribeLink, link_url, sign_link
from heliograph.domain.setup.records import Layout, LocaleParts, Segmenting, Template, VariableType
from heliograph.templates.policy.bounds import Bounds, bounds_of
from heliograph.templates.policy.check import check_template
from tests.domain.template_samples import BRANDS, make_sample, measure, random_values
from tests.proof.size import drawn

TEN = VariableType(max_length=10)


def template(**fields: Any) -> Template:
    existing = {
        "id": "tpl_1",
        "team": "team_1",
        "channel": "email",
        "name": "T",
        "variables": ("x",),
        "shapes": {"x": TEN},
    }
    return Template(**existing | fields)


def bounds(item: Template, layout: Layout | None = None, segmenting: Segmenting = "spec") -> Bounds:
    assert not check_template(item)
    result = bounds_of(item, BRANDS, layout, segmenting)
    assert result
    return result


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"text": "abc"}, 3),
        ({"text": "a{{customer.x}}"}, 41),  # four octets per character
        ({"html": "a{{customer.x}}"}, 61),  # &quot;
        ({"html": "{{customer.x}}", "text": "{{customer.x}}"}, 80),  # the maxima are different characters
        ({"html": '<a href="https://a.test/{{customer.x}}">'}, 26 + 120),
        ({"html": '<a href="https://{{customer.x}}.test">'}, 24 + 10),
        ({"html": '<a href="{{customer.x}}">'}, 11 + 4 + 6 * 12),  # the scheme tel: is the longest
        (
            {"html": '<a href="https://{{customer.x}}.test"><a href="{{customer.x}}">'},
            24 + 3 + 11 + 4 + 6 * 12,  # of tel: the host has three letters
        ),
        ({"html": '<a href="mailto:{{customer.x}}@a.test">'}, 25 + 120),
        ({"html": '<a href="mailto:a@a.test{{customer.x}}">'}, 26),
        ({"html": '<a href="mailto:a%40a.test{{customer.x}}">'}, 28),
        ({"html": '<a href="mailto:?to=a@a.test{{customer.x}}">'}, 30),
        ({"html": '<a href="mailto:?to=a@{{customer.x}}.a.test">'}, 31 + 10),
        ({"html": '<a href="mailto:?{{customer.x}}">'}, 19 + 120),
        (
            {"html": '<a href="mailto:a@a.test{{customer.x|datetime}}">', "shapes": {"x": VariableType(max_length=20)}},
            26,
        ),
        ({"html": '<a href="{{customer.x|date}}">'}, 11 + 1),  # the URL is rendered as #
        ({"text": "{{#if customer.x}}yes{{else}}certainly not, no{{/if}}{{customer.x}}"}, 43),
        ({"text": "{{#if customer.x}}ab{{else}}c{{/if}}{{#if customer.x}}d{{else}}ef{{/if}}"}, 3),
        ({"text": "{{customer.x|number}}"}, 20),  # -900,000,000,000,000 of -9e14
        ({"text": "{{customer.x|date:long}}"}, 18),  # September 20, 2026
        (
            {"text": "{{customer.x|money:JPY}}", "shapes": {"x": VariableType(max_length=17)}},
            23,
        ),  # ¥1,000,000,000,000,000
        (
            {"html": '<a href="https://a.test/{{customer.x|datetime}}">', "shapes": {"x": VariableType(max_length=20)}},
            26 + 39,
        ),
        ({"html": '{{#if customer.x}}{{else}}<a href="{{customer.x}}">{{/if}}'}, 12),  # below its maximum
        ({"text": "{{brand.name}}{{brand.domain}}"}, len("Acme & Söhne") + 1 + len("acme.test")),  # the same brand
        ({"text": "{{customer.x|time}}"}, 0),  # a time needs more than ten characters
        ({"text": "{{brand.name}}"}, len("Acme & Söhne") + 1),
        ({"text": "a", "locales": {"de": LocaleParts(subject="s", text="{{customer.x}}a")}}, 41),
    ],
)
def test_template_octet_bound_is_exact(fields: dict[str, Any], most: int) -> None:
    assert bounds(template(subject="s", **fields)).octets == 1 + most


@pytest.mark.parametrize(
    ("body", "segmenting", "segments"),
    [
        ("a" * 160, "spec", 1),
        ("a" * 161, "spec", 2),
        ("a" * 50 + "{{customer.x}}", "spec", 1),
        ("a" * 51 + "{{customer.x}}", "spec", 2),  # 51 and ten of two units in UCS-2
        ("{{customer.x|number}}" + "a" * 141, "spec", 2),
        ("{{customer.x|number}}" + "a" * 140, "spec", 1),
        ("{{#if customer.x}}–{{else}}" + "a" * 160 + "{{/if}}", "spec", 1),
        ("а" * 70, "udh", 1),
        ("а" * 140, "spec", 2),
        ("а" * 140, "udh", 3),
    ],
)
def test_template_segment_and_price_bounds_are_exact(body: str, segmenting: Segmenting, segments: int) -> None:
    item = template(channel="sms", body=body, price=1000, prices={"GB": 45000, "US": 7000})
    result = bounds(item, segmenting=segmenting)
    assert (result.segments, result.price) == (segments, segments * 45000)


def test_template_bound_includes_the_layout() -> None:
    layout = Layout(id="lay_1", team="team_1", name="L", text="[{{content}}]")
    assert bounds(template(subject="s", text="abc"), layout).octets == 6


@pytest.mark.parametrize(
    ("html", "around"),
    [
        ("{{unsubscribe_url}}", 0),
        ('<a href="{{unsubscribe_url}}">', len('<a href="">')),
        ('<a href="{{unsubscribe_url}}?page=1">', len('<a href="?page=1">') + 1),  # a separator may be inserted
    ],
)
def test_template_bound_includes_the_longest_unsubscribe_url(html: str, around: int) -> None:
    item = template(subject="s", html=html, category="news", variables=(), shapes={})
    link = UnsubscribeLink(team=item.team, address=f"{'a' * 64}@{'a' * 253}", category="a" * 32, locale="en")
    url = link_url("https://a.test", sign_link(b"secret", link))
    result = bounds_of(item, BRANDS, None, "spec", base_url="https://a.test")
    assert result and result.octets == 1 + around + len(url)


def test_template_bound_includes_the_unsubscribe_url_of_the_layout() -> None:
    layout = Layout(id="lay_1", team="team_1", name="L", text="{{content}} {{unsubscribe_url}}")
    assert bounds(template(subject="s", text="abc", category="news"), layout).octets > 500


def test_template_without_lengths_has_no_bound() -> None:
    assert bounds_of(template(text="a", shapes={}), BRANDS, None, "spec") is None
    assert bounds_of(template(text="a", variables=(), shapes={}), BRANDS, None, "spec") is not None


def test_template_bound_combines_list_and_length_limits() -> None:
    items = VariableType(list=("a", "b"), max=3, max_length=2)
    text = "{{#each customer.x}}{{item.a}}{{#if item.b}}+{{else}}none{{/if}}{{else}}nothing at all here{{/each}}"
    assert bounds(template(subject="s", text=text, shapes={"x": items})).octets == 1 + 3 * (8 + 4)


@settings(max_examples=drawn(200))
@given(st.integers(0, 2**32))
def test_template_render_never_exceeds_its_bound(seed: int) -> None:
    random = Random(seed)
    world = make_sample(random)
    limits = bounds(world.template, world.layout, world.segmenting)
    for allowed in (random_values(world, random) for _ in range(20)):
        if (result := measure(world, allowed)) is not None:
            assert result[0] <= limits.octets and result[1] <= (limits.segments or 0)
