"""CPU time of rendering a receipt of 20 lines, compared with a flat template of the same length.

Writes results/templates.md. Both have the same number of values and octets. Run with `.venv/bin/python
bench/templates.py`.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from heliograph.domain.setup.records import Template, VariableType
from heliograph.templates.policy.formats import _format_cached
from heliograph.templates.policy.render import octets, render
from heliograph.templates.policy.values import Values, check_variables, read_variables

LINES = 20
ROW = '<tr><td style="padding:8px 0">{}</td><td align="right">{}</td><td align="right">{}</td></tr>\n'
HEAD = '<!doctype html><html lang="en"><body><h1>Thank you, {{customer.name}}</h1><table width="100%">\n'
FOOT = "</table><p>Total {{customer.total}}. Questions? Write to {{brand.name}}.</p></body></html>\n"
ITEMS = [{"title": f"Green tea & more, no. {at}", "quantity": str(at), "price": f"{at}.50"} for at in range(LINES)]
BRAND = {"name": "Acme", "domain": "acme.test"}
MONEY, COLD = "a list, prices as money", "… where no price came before"
RESULTS = Path(__file__).parent / "results" / "templates.md"


def receipt(formats: str = "") -> tuple[Template, Values]:
    """Return a template with a list; with `formats`, its prices are formatted as money."""
    row = ROW.format("{{item.title}}", "{{item.quantity}}", f"{{{{item.price{formats}}}}}")
    options = {"name": "Grace", "total": "42.50", "items": ITEMS}
    shapes = {"items": VariableType(list=("title", "quantity", "price"))}
    source = f"{HEAD}{{{{#each customer.items}}}}{row}{{{{/each}}}}{FOOT}"
    return _template(source, ("name", "total", "items"), shapes), read_variables(options)


def flat() -> tuple[Template, Values]:
    """Return a template without a list: each line has its own variables."""
    names = [f"{name}_{at}" for at in range(LINES) for name in ("title", "quantity", "price")]
    rows = (ROW.format(*(f"{{{{customer.{name}}}}}" for name in names[at * 3 : at * 3 + 3])) for at in range(LINES))
    options = {f"{name}_{at}": value for at, item in enumerate(ITEMS) for name, value in item.items()}
    return _template(HEAD + "".join(rows) + FOOT, ("name", "total", *names), {}), read_variables(
        {"name": "Grace", "total": "42.50", **options}
    )


def _template(source: str, variables: tuple[str, ...], shapes: dict[str, VariableType]) -> Template:
    return Template(
        id="tpl_1", team="team_1", channel="email", name="T", subject="Order", html=source, variables=variables,
        shapes=shapes,
    )  # fmt: skip


def sent(made: tuple[Template, Values]) -> str:
    template, values = made
    check_variables(template, values)
    return render(template, values, BRAND).html or ""


def calls(work: Callable[[], object]) -> int:
    """Count the Python functions that `work` calls."""
    count = 0

    def called(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(called)
    work()
    sys.setprofile(None)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--renders", type=int, default=300)
    options = parser.parse_args()
    made = {"flat": flat(), "a list": receipt(), MONEY: receipt("|money:EUR"), COLD: receipt("|money:EUR")}
    times: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(options.rounds):
        for name, one in made.items():
            began = time.process_time()
            for _ in range(options.renders):
                if name == COLD:
                    _format_cached.cache_clear()
                sent(one)
            times[name].append((time.process_time() - began) / options.renders * 1e6)
    base = median(times["flat"])
    lines = [
        f"| {name} | {octets(sent(one)):,} | {median(times[name]):.0f} | {median(times[name]) / base:.2f} "
        f"| {calls(lambda one=one: sent(one))} |\n"  # type: ignore[misc]
        for name, one in made.items()
    ]
    head = "| template | octets | CPU, µs | ratio | calls |\n|---|---|---|---|---|\n"
    told = f"# Rendering {LINES} lines\n\nValues checked and rendered, median of rounds.\n\n"
    RESULTS.write_text(told + head + "".join(lines))
    print(RESULTS.read_text())


if __name__ == "__main__":
    main()
