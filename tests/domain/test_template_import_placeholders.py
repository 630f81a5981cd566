import pytest

from heliograph.templates.policy.import_placeholders import foreign_placeholders, own_placeholders, spelled


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ("Hi {{{FIRST_NAME}}}", "Hi {{customer.first_name}}"),
        ("{{ name }} and {{order.id}}", "{{customer.name}} and {{customer.order.id}}"),
        ("{{customer.name}} of {{brand.name}}", "{{customer.name}} of {{brand.name}}"),
        ("{{#if name}}x{{/if}} {{1}} {name}", "{{#if name}}x{{/if}} {{1}} {name}"),
    ],
)
def test_placeholders(given: str, own: str) -> None:
    assert own_placeholders(given) == own


@pytest.mark.parametrize(
    "given", ["Hi {{{FIRST_NAME}}} of {{brand.name}}", "{{{firstName}}} {{{LAST}}}", "{{{order_id}}}", "No {name}"]
)
def test_placeholders_come_back_as_they_were(given: str) -> None:
    assert foreign_placeholders(own_placeholders(given), spelled([given], [])) == given
