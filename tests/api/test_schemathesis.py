"""Generated requests to a running service: responses match /openapi.json, and none is a 500 (P18)."""

import json
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from heliograph.api.openapi import openapi_document
from heliograph.api.routes import V1
from tests.proof.size import FULL, size
from tests.service import PATIENCE_S, TOKENS, Service

CONFORMANCE: list[Callable[..., Any]] = [
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
EXAMPLES = {route.path: route.example for route in V1 if route.method == "POST" and route.example}
EXAMPLES_EACH = size("P18 requests")
DOCUMENTED = (503,)  # no_carrier_available
SCHEMA = schemathesis.openapi.from_dict(openapi_document(V1, "http://127.0.0.1"))
OPERATIONS: list[Any] = [cast(Any, result).ok() for result in SCHEMA.get_all_operations()]
MODES = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]


def label(operation: Any) -> str:
    return str(operation.label)


def has_parameters(operation: Any) -> bool:
    """An operation without parameters and body accepts every request."""
    return bool(list(operation.iter_parameters()))


def test_the_served_document_is_the_tested_one(shared_service: Service) -> None:
    served = shared_service.get("/openapi.json", key=None).json
    base = f"http://127.0.0.1:{shared_service.ports[-1]}"
    assert served == json.loads(msgspec.json.encode(openapi_document(V1, base)))


def assert_as_described(service: Service, case: Any) -> None:
    headers = {"Authorization": f"Bearer {TOKENS['ACME']}"}
    base_url = f"http://127.0.0.1:{service.ports[-1]}"
    response = case.call(base_url=base_url, headers=headers, timeout=PATIENCE_S)
    broken_rule_is_ours = response.status_code not in DOCUMENTED
    checks = [not_a_server_error] * broken_rule_is_ours + CONFORMANCE
    # A permissive batch reports refusals per message. Some generated requests are invalid only by their Authorization
    # header, which is replaced here, or by a parameter that is not sent because it is empty.
    if FULL or (isinstance(case.body, dict) and case.body.get("mode") == "permissive"):
        checks.remove(negative_data_rejection)
    case.validate_response(response, checks=checks)


@pytest.mark.parametrize(
    "operation",
    [operation for operation in OPERATIONS if operation.path in EXAMPLES and operation.method == "post"],
    ids=label,
)
def test_document_examples_get_responses_as_documented(shared_service: Service, operation: Any) -> None:
    names = {"id": "vrf_none" if "verify" in operation.path else "tpl_sms"}
    names = {name: value for name, value in names.items() if f"{{{name}}}" in operation.path}
    body = EXAMPLES[operation.path]
    assert_as_described(shared_service, operation.Case(path_parameters=names, body=body, media_type="application/json"))


RUNS = [
    (operation, mode)
    for operation in OPERATIONS
    for mode in MODES
    if mode is MODES[0] or operation.body or has_parameters(operation)
]
# existing names, so that generated requests pass the first lookups; the rest is generated
EXISTING_IDS = {
    "/v1/emails": {"to": "delivered@simulator.test", "from": "a@acme.test", "from_display_id": None},
    "/v1/sms": {"to": "+15005550006", "template_id": "tpl_short", "brand_domain_id": None, "variables": None},
    "/v1/whatsapp": {"to": "+15005550006", "template_id": "tpl_offer", "brand_domain_id": None, "variables": None},
    "/v1/templates/{id}/render": {"to": "+14155550123"},
}


def generated(operation: Any, mode: Any, run: Callable[[Any], None]) -> None:
    strategy = operation.as_strategy(generation_mode=mode)
    settings(
        max_examples=EXAMPLES_EACH,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(given(case=strategy)(run))()


@pytest.mark.parametrize(
    ("operation", "mode"), RUNS, ids=[f"{label(operation)}, {mode.value}" for operation, mode in RUNS]
)
def test_generated_requests_get_responses_as_documented(shared_service: Service, operation: Any, mode: Any) -> None:
    def run(case: Any) -> None:
        assert_as_described(shared_service, case)

    generated(operation, mode, run)


@pytest.mark.parametrize("path", EXISTING_IDS)
def test_generated_requests_with_existing_ids_get_responses_as_documented(shared_service: Service, path: str) -> None:
    def run(case: Any) -> None:
        case.body = case.body | EXISTING_IDS[path]
        if path == "/v1/emails" and case.body.get("subject") is not None:
            case.body |= {"template_id": None, "variables": None}
        if "id" in case.path_parameters:
            case.path_parameters["id"] = "tpl_sms"
        assert_as_described(shared_service, case)

    generated(
        next(operation for operation in OPERATIONS if operation.path == path and operation.method == "post"),
        MODES[0],
        run,
    )
