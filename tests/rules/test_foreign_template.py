import pytest

from heliograph.rules.templates.foreign import own_placeholders


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
