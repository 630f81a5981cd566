"""/v1/domains: required DNS records, for keys with `manage`."""

from typing import Any

import pytest

from tests.api.sends import assert_refused
from tests.service import Service

PURPOSES = ["ownership", "dkim", "dkim", "return_path", "spf", "dmarc", "tls_reports"]


def record_set(domain: dict[str, Any]) -> tuple[str, list[tuple[str, str, str]]]:
    """Create the DNS records. The service checks automatically, so its results change."""
    return domain["id"], [(record["type"], record["name"], record["value"]) for record in domain["records"]]


def test_a_new_domain_returns_its_records_and_is_unverified(shared_service: Service) -> None:
    created = shared_service.post("/v1/domains", {"name": "Shop.Acme.test"})
    assert created.status == 201
    domain = created.json
    assert (domain["name"], domain["brand"]) == ("shop.acme.test", "Acme")
    assert (domain["verified"], domain["approved"], domain["checked_at"]) == (False, False, None)
    assert [record["purpose"] for record in domain["records"]] == PURPOSES
    assert {record["ok"] for record in domain["records"]} == {None}
    assert record_set(shared_service.get(f"/v1/domains/{domain['id']}").json) == record_set(domain)
    assert record_set(domain) in map(record_set, shared_service.get("/v1/domains").json["data"])
    assert shared_service.post("/v1/domains", {"name": "shop.acme.test"}).json["id"] == domain["id"]


def test_dkim_keys_do_not_change_between_reads(shared_service: Service) -> None:
    first, second = (shared_service.get("/v1/domains/dom_acme").json["records"] for _ in range(2))
    assert first == second
    ed25519, rsa = sorted(record["value"] for record in first if record["purpose"] == "dkim")
    assert rsa.startswith("v=DKIM1; k=rsa; p=")
    assert ed25519.startswith("v=DKIM1; k=ed25519; p=")


def test_a_check_without_dns_keeps_the_operators_approval(shared_service: Service) -> None:
    checked = shared_service.post("/v1/domains/dom_acme/check", None)
    assert checked.status == 200
    assert checked.json["verified"] is True
    assert checked.json["checked_at"] is not None
    assert all(record["fix"] and "mend" not in record for record in checked.json["records"])
    assert checked.json["alignment"]["passes"] is False  # without records, no verification is possible
    stored = shared_service.get("/v1/domains/dom_acme").json
    assert {record["fix"] for record in stored["records"]} == {record["fix"] for record in checked.json["records"]}
    assert stored["checked_at"] == checked.json["checked_at"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "name"),
        ({"name": "not a domain"}, "name"),
        ({"name": "localhost"}, "name"),
        ({"name": "x.test", "brand": "two\nlines"}, "brand"),
        ({"name": "x.test", "brand": "x" * 201}, "brand"),
        ({"name": "poor.test"}, "name"),  # belongs to another team
    ],
)
def test_invalid_domains_are_refused(shared_service: Service, body: dict[str, str], param: str) -> None:
    answer = shared_service.post("/v1/domains", body)
    assert_refused(answer, 400, "invalid_request")
    assert answer.json["error"]["param"] == param


def test_owner_actions_have_no_route(shared_service: Service) -> None:
    """A key with `manage`, which any developer can create, must not suffice."""
    for method in ("PATCH", "DELETE"):
        assert shared_service.ask(method, "/v1/domains/dom_acme").status == 405


def test_keys_are_rotated(shared_service: Service) -> None:
    id_ = shared_service.post("/v1/domains", {"name": "turned.acme.test"}).json["id"]
    records = shared_service.post(f"/v1/domains/{id_}/rotate", {}).json["records"]
    assert [record["purpose"] for record in records].count("dkim") == 4


def test_unknown_domains_return_404(shared_service: Service) -> None:
    for method, path in (("GET", "/v1/domains/dom_never"), ("POST", "/v1/domains/dom_never/check")):
        assert_refused(shared_service.ask(method, path), 404, "brand_domain_not_found")
