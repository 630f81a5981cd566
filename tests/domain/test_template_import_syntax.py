"""Handlebars and Mustachio, carried over into our words."""

import pytest

from heliograph.templates.policy.import_syntax import carry


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
def test_what_is_carried_over(theirs: str, ours: str) -> None:
    found = carry(theirs)
    assert (found.text, found.left) == (ours, [])


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
def test_what_has_no_counterpart_is_named_with_its_line(theirs: str, left: list[str]) -> None:
    assert carry(theirs).left == left


def test_what_means_something_else_is_told() -> None:
    found = carry("{{{html}}}\n{{#person}}{{name}}{{/person}}{{#each items}}{{#if gift}}*{{/if}}{{/each}}")
    assert found.text.startswith("{{customer.html}}\n{{customer.person.name}}")
    assert [one.partition(":")[0] for one in found.changed] == ["line 1", "line 2", "line 2"]


def test_what_a_caller_may_leave_out() -> None:
    found = carry('{{#if a}}{{b}}{{/if}}{{#each c}}{{d}}{{/each}}{{insert e "x"}}')
    assert (found.optional, found.fallback) == ({"a", "c"}, {"e": "x"})
