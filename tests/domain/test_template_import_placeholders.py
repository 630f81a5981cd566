import pytest

from heliograph.templates.policy.import_placeholders import (
    from_foreign_placeholders,
    original_spellings,
    to_foreign_placeholders,
)


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ("Hi {{{FIRST_NAME}}}", "Hi {{customer.first_name}}"),
        ("{{ name }} and {{order.id}}", "{{customer.name}} and {{customer.order.id}}"),
        ("{{customer.name}} of {{brand.name}}", "{{customer.name}} of {{brand.name}}"),
        ("{{#if name}}x{{/if}} {{1}} {name}", "{{#if name}}x{{/if}} {{1}} {name}"),
    ],
)
def test_foreign_placeholders_are_converted(given: str, own: str) -> None:
    assert from_foreign_placeholders(given) == own


@pytest.mark.parametrize(
    "given", ["Hi {{{FIRST_NAME}}} of {{brand.name}}", "{{{firstName}}} {{{LAST}}}", "{{{order_id}}}", "No {name}"]
)
def test_foreign_placeholders_round_trip(given: str) -> None:
    assert to_foreign_placeholders(from_foreign_placeholders(given), original_spellings([given], [])) == given
