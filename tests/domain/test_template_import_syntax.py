"""Handlebars and Mustachio, converted to our syntax."""

import pytest

from heliograph.templates.policy.import_syntax import convert_template


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("Hi {{name}} {{ Order.Id }}", "Hi {{customer.name}} {{customer.order.id}}"),
        ("{{customer.name}} {{brand.name}}", "{{customer.name}} {{brand.name}}"),
        (
            "{{#each items}}{{title}} {{this.price}} {{./n}} {{../code}} {{@root.total}}{{else}}none{{/each}}",
            "{{#each customer.items}}{{item.title}} {{item.price}} {{item.n}} {{customer.code}} {{customer.total}}"
            "{{else}}none{{/each}}",
        ),
        ("{{#if name}}Hi {{name}}{{else}}Hi{{/if}}", "{{#if customer.name}}Hi {{customer.name}}{{else}}Hi{{/if}}"),
        ("{{#unless paid}}Pay{{/unless}}", "{{#if customer.paid}}{{else}}Pay{{/if}}"),
        ("{{^paid}}Pay{{/paid}}", "{{#if customer.paid}}{{else}}Pay{{/if}}"),
        ("{{#note}}<p>{{.}}</p>{{/note}}", "{{#if customer.note}}<p>{{customer.note}}</p>{{/if}}"),
        ("{{#note}}<p>{{note}}</p>{{/note}}", "{{#if customer.note}}<p>{{customer.note}}</p>{{/if}}"),
        ("{{#each items}}{{#if gift}}*{{/if}}{{/each}}", "{{#each customer.items}}{{#if item.gift}}*{{/if}}{{/each}}"),
        ("{{! a comment }}a{{!-- b --}}", "a"),
        ("{{{ @content }}}", "{{content}}"),
        ('{{insert name "default=friend"}}', "{{customer.name}}"),
    ],
)
def test_foreign_syntax_with_a_counterpart_is_converted(theirs: str, ours: str) -> None:
    result = convert_template(theirs)
    assert (result.text, result.unsupported) == (ours, [])


@pytest.mark.parametrize(
    ("theirs", "left"),
    [
        ("a\n{{#equals a b}}\nx\n{{/equals}}", ["line 2: {{#equals a b}} has no counterpart here"]),
        ("{{#if a}}\n{{/each}}{{/if}}", ["line 2: {{/each}} has no counterpart here"]),
        ("{{#each a}}\n{{.}}{{/each}}", ["line 2: {{.}} has no counterpart here"]),
        ("{{#each a}}{{#each b}}{{/each}}{{/each}}", ["line 1: {{#each b}} has no counterpart here"]),
        ("{{> footer}}", ["line 1: {{> footer}} has no counterpart here"]),
        ("{{#unless a}}x{{else}}y{{/unless}}", ["line 1: {{else}} has no counterpart here"]),
        ("{{@index}}", ["line 1: {{@index}} has no counterpart here"]),
    ],
)
def test_foreign_syntax_without_counterpart_is_reported_with_its_line(theirs: str, left: list[str]) -> None:
    assert convert_template(theirs).unsupported == left


def test_foreign_syntax_with_changed_meaning_is_reported() -> None:
    result = convert_template("{{{html}}}\n{{#person}}{{name}}{{/person}}{{#each items}}{{#if gift}}*{{/if}}{{/each}}")
    assert result.text.startswith("{{customer.html}}\n{{customer.person.name}}")
    assert [item.partition(":")[0] for item in result.changed] == ["line 1", "line 2", "line 2"]


def test_imported_optional_variables_and_fallbacks_are_listed() -> None:
    result = convert_template('{{#if a}}{{b}}{{/if}}{{#each c}}{{d}}{{/each}}{{insert e "x"}}')
    assert (result.optional, result.fallback) == ({"a", "c"}, {"e": "x"})
