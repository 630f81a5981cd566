"""Random templates with their bounds, values that they allow, and a search for values with the largest rendering."""

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from heliograph.domain.phones.gsm import count_segments
from heliograph.domain.refusals import Refusal
from heliograph.domain.setup.records import Layout, LocaleParts, Segmenting, Template, VariableType
from heliograph.templates.policy.bounds import TIME_CHARS_MIN
from heliograph.templates.policy.locales import localize
from heliograph.templates.policy.render import octets, render
from heliograph.templates.policy.values import check_variables, read_variables

BRANDS = [{"name": "Acme & Söhne", "domain": "acme.test"}, {"name": "B", "domain": "a-longer-name.test"}]
NUMBERS = ("0", "7", "-7", "9e9", "9e14", "-9e14", "-0.01", "1e-3", "1234.56", "-99999.99", "-999999999999999.111")
DAYS = tuple(f"2026-{month:02}-{day}" for month in range(1, 13) for day in (20, 23))
TIMES = tuple(f"2026-{month:02}-23T{hour:02}:58:59Z" for month in (1, 5, 9, 11) for hour in (0, 5, 10, 14, 19, 23))
FORMATS = {
    "n": ("|number", "|percent", "|money:EUR", "|money:JPY"),
    "d": ("|date", "|date:long", "|date:short"),
    "t": ("|time", "|datetime", "|datetime:long", "|time:long", "|date"),
}
WORDS = ("a", "Hello ", "&amp;", "– ", "ж", "€", " and some more words\n", "x" * 40)
REGIONS = (("en", "UTC"), ("de", "Europe/Vienna"), ("fr-CH", "America/New_York"), ("ar", "Asia/Kolkata"))


class Sample(msgspec.Struct, frozen=True):
    template: Template
    layout: Layout | None
    segmenting: Segmenting


def make_sample(random: Random) -> Sample:
    is_mail = random.random() < 0.5
    shapes = {name: VariableType(max_length=random.randint(1, 30)) for name in "abc"}
    shapes |= {
        "n": VariableType(max_length=random.randint(1, 25)),
        "d": VariableType(max_length=random.randint(10, 30)),
    }
    shapes |= {"t": VariableType(max_length=random.randint(20, 30))}
    shapes |= {"items": VariableType(list=("e", "f"), max=random.randint(1, 4), max_length=random.randint(1, 12))}
    locale, timezone = random.choice(REGIONS)
    optional = tuple(name for name in shapes if random.random() < 0.4)
    template = Template(
        id="tpl_1",
        team="team_1",
        name="T",
        channel="email" if is_mail else "sms",
        variables=tuple(shapes),
        shapes=shapes,
        optional=optional,
        locale=locale,
        timezone=timezone,
        fallback={"c": "a fallback of some length"} if random.random() < 0.1 else {},
        **_parts(random, is_mail),
    )
    if random.random() < 0.2:
        parts = {part: getattr(template, part) for part in ("subject", "html", "text", "body")}
        variables = {
            part: source + "\nÜ" * random.randint(0, 30)
            for part, source in parts.items()
            if source and part != "subject"
        }
        template = msgspec.structs.replace(template, locales={"pl": LocaleParts(**parts | variables)})
    layout = Layout(id="lay_1", team="team_1", name="L", html="<b>{{content}}</b>{{brand.name}}", text="{{content}}--")
    return Sample(template, layout if is_mail and random.random() < 0.3 else None, random.choice(("spec", "udh")))


def _parts(random: Random, is_mail: bool) -> dict[str, Any]:
    if not is_mail:
        return {"body": _source(random, 2, False, False) or "a"}
    parts = {"subject": "s" + _source(random, 0, False, False).replace("\n", "")}
    parts["text"] = "x" + _source(random, 2, False, False)
    return parts | ({"html": _source(random, 2, False, True)} if random.random() < 0.7 else {})


def _source(random: Random, depth: int, in_list: bool, markup: bool) -> str:
    return "".join(_piece(random, depth, in_list, markup) for _ in range(random.randint(0, 5)))


def _piece(random: Random, depth: int, in_list: bool, markup: bool) -> str:
    kind = random.random()
    if kind < 0.25:
        return random.choice(WORDS)
    if depth and kind < 0.5:
        inside, other = (_source(random, depth - 1, in_list, markup) for _ in range(2))
        if not in_list and random.random() < 0.4:
            inside = _source(random, depth - 1, True, markup)
            return f"{{{{#each customer.items}}}}{inside}{{{{else}}}}{other}{{{{/each}}}}"
        name = random.choice(("customer.a", "customer.b", "customer.n", "customer.items"))
        name = random.choice(("item.e", "item.f")) if in_list and random.random() < 0.7 else name
        return f"{{{{#if {name}}}}}{inside}{{{{else}}}}{other}{{{{/if}}}}"
    slot = f"{{{{{_name(random, in_list)}}}}}"
    if markup and kind < 0.7:
        position = random.choice(('<a href="https://a.test/{}">', '<a href="https://a.test/?q={}">', '<a href="{}">'))
        position = random.choice((position, position, '<a href="https://a.test{}">', '<a href="{}{}">'))
        mailto = random.choice(("{}@a.test", "a@a.test{}", "{}", "a%40a.test{}", "?to=a@a.test{}", "?cc={}@a.test"))
        position = random.choice(
            (position, '<a href="https://{}.a.test">', '<p class="{}">', f'<a href="mailto:{mailto}">')
        )
        return position.format(slot, f"{{{{{_name(random, in_list)}}}}}")
    return slot


def _name(random: Random, in_list: bool) -> str:
    if in_list and random.random() < 0.6:
        return random.choice(("item.e", "item.f"))
    if random.random() < 0.1:
        return random.choice(("brand.name", "brand.domain"))
    name = random.choice("abcndt")
    return f"customer.{name}{random.choice(FORMATS[name]) if name in FORMATS else ''}"


def candidates(world: Sample, name: str) -> list[Any]:
    """Return values of a variable that may have the largest rendering; None means that the variable is absent."""
    template = world.template
    shape = template.shapes[name]
    maximum = shape.max_length or 0
    long = [
        "a" * maximum,
        '"' * maximum,
        "\U0001f600" * maximum,
        "€" * maximum,
        ("tel:" + "\U0001f600" * maximum)[:maximum],
        "",
        False,
    ]
    if shape.list:
        absent = [None] if name in template.optional else []
        return [[{"e": e, "f": f}] * shape.max for e in long for f in long] + [[], *absent]
    values = [item for item in {"n": NUMBERS, "d": DAYS, "t": TIMES}.get(name, ()) if len(item) <= maximum]
    if name in ("d", "t") and maximum >= TIME_CHARS_MIN:
        values += [f"{day}T08:58:59Z" for day in DAYS]
    return [
        *values,
        *(("", False) if values else long),  # formats refuse these values
        *([None] if name in template.optional or name in template.fallback else []),
    ]


def random_values(world: Sample, random: Random) -> dict[str, Any]:
    return {name: random.choice(candidates(world, name)) for name in world.template.variables}


def measure(world: Sample, arguments: dict[str, Any]) -> tuple[int, int] | None:
    """Return the maximum octets and segments of a rendering with these values; None if they are refused."""
    values = read_variables(arguments)
    sizes: list[tuple[int, int]] = []
    for tag in (None, *world.template.locales):
        item = localize(world.template, tag)
        try:
            check_variables(item, values)
        except Refusal:
            return None
        for brand in BRANDS:
            rendered = render(item, values, brand, world.layout)
            total = sum(map(octets, (rendered.subject, rendered.html, rendered.text, rendered.body)))
            sizes.append(
                (total, count_segments(rendered.body).billed(world.segmenting) if rendered.body is not None else 0)
            )
    return max(size for size, _ in sizes), max(segments for _, segments in sizes)


def search_maximum(
    world: Sample, random: Random, attempts: int, observe: Callable[[tuple[int, int], int], None]
) -> tuple[int, int]:
    """Return the largest rendering found by changing one variable at a time; `seen` counts the renders."""
    best = [0, 0]
    renders = len(BRANDS) * (1 + len(world.template.locales))
    for at in (0, 1):
        for _ in range(attempts):
            values, maximum = random_values(world, random), -1
            for name in random.sample(world.template.variables, len(world.template.variables)):
                for value in candidates(world, name):
                    result = measure(world, values | {name: value})
                    if result is None:
                        continue
                    observe(result, renders)
                    best = [max(best[0], result[0]), max(best[1], result[1])]
                    if result[at] > maximum:
                        values, maximum = values | {name: value}, result[at]
    return best[0], best[1]
