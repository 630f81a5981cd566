"""Attachments (spec 2.2 and 8): limits, types, strict base64, and storage of large ones."""

import base64
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from tests.api.sends import EMAIL, assert_refused
from tests.s3 import S3Server
from tests.service import Answer, Service

MIB = 1024 * 1024
FILE = {"filename": "a.txt", "content": "YQ==", "content_type": "text/plain"}
_OFFICE = "application/vnd.openxmlformats-officedocument."
TYPES = (
    *("application/pdf", "application/msword", f"{_OFFICE}wordprocessingml.document", "application/vnd.ms-excel"),
    *(f"{_OFFICE}spreadsheetml.sheet", "application/vnd.ms-powerpoint", f"{_OFFICE}presentationml.presentation"),
    *("application/json", "text/csv", "text/plain", "text/calendar", "application/zip"),
    *("application/x-zip-compressed", "image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"),
)


def post(service: Service, *files: Any) -> Answer:
    return service.post("/v1/emails", EMAIL | {"attachments": list(files)})


def sized(size: int) -> dict[str, str]:
    return FILE | {"content": base64.b64encode(bytes(size)).decode()}


@pytest.mark.parametrize("given", [*TYPES, "TEXT/Plain", "text/plain; charset=utf-8", " text/csv ;header=present"])
def test_allowed_types_are_accepted(shared_service: Service, given: str) -> None:
    answer = post(shared_service, FILE | {"content_type": given})
    assert (answer.status, answer.json.get("attachments_count")) == (202, 1)


@pytest.mark.parametrize(
    "given",
    ["text/html", "application/octet-stream", "application/x-msdownload", "image/bmp", "pdf", "text/plain, text/csv"],
)
def test_other_types_are_refused(shared_service: Service, given: str) -> None:
    answer = post(shared_service, FILE, FILE | {"content_type": given})
    assert_refused(answer, 400, "unsupported_attachment_type", "attachments[1].content_type")


@pytest.mark.parametrize(
    "content", ["YQ", "YQ=", "YQ===", "YQ==\n", " YQ==", "Y Q==", "YR==", "YWJ=", "_-8=", "Y*==", "====", "YQ==YQ=="]
)
def test_invalid_base64_is_refused(shared_service: Service, content: str) -> None:
    answer = post(shared_service, FILE | {"content": content})
    assert_refused(answer, 400, "invalid_attachment", "attachments[0].content")


@pytest.mark.parametrize("content", ["", "YQ==", "YWI=", "YWJj", "/+8="])
def test_valid_base64_is_accepted(shared_service: Service, content: str) -> None:
    assert post(shared_service, FILE | {"content": content}).status == 202


@pytest.mark.parametrize("field", FILE)
@pytest.mark.parametrize("value", [1, [], {}])
def test_a_field_that_is_not_a_string_is_refused(shared_service: Service, field: str, value: Any) -> None:
    assert_refused(post(shared_service, FILE | {field: value}), 400, "invalid_request", f"attachments[0].{field}")


@pytest.mark.parametrize("field", ["filename", "content"])
def test_a_missing_field_is_refused(shared_service: Service, field: str) -> None:
    assert_refused(post(shared_service, FILE | {field: None}), 400, "invalid_attachment", f"attachments[0].{field}")
    incomplete = {name: text for name, text in FILE.items() if name != field}
    assert_refused(post(shared_service, incomplete), 400, "invalid_attachment", f"attachments[0].{field}")


def test_at_most_20_attachments(shared_service: Service) -> None:
    answer = post(shared_service, *[FILE] * 20)
    assert (answer.status, answer.json["attachments_count"]) == (202, 20)
    assert_refused(post(shared_service, *[FILE] * 21), 400, "too_many_attachments", "attachments")


def test_an_attachment_has_at_most_10_mib(shared_service: Service) -> None:
    assert post(shared_service, sized(10 * MIB)).status == 202
    answer = post(shared_service, FILE, sized(10 * MIB + 1))
    assert_refused(answer, 400, "attachment_too_large", "attachments[1].content")


def test_attachments_have_at_most_25_mib_together(shared_service: Service) -> None:
    assert post(shared_service, sized(10 * MIB), sized(10 * MIB), sized(5 * MIB)).status == 202
    answer = post(shared_service, sized(10 * MIB), sized(10 * MIB), sized(5 * MIB), sized(1))
    assert_refused(answer, 400, "attachments_too_large", "attachments")


@pytest.mark.parametrize(("size", "kept"), [(300_000, True), (256 * 1024 + 1, True), (256 * 1024, False)])
def test_a_large_attachment_becomes_a_file(shared_service: Service, size: int, kept: bool) -> None:
    content = os.urandom(size)
    answer = post(shared_service, FILE | {"content": base64.b64encode(content).decode()})
    assert answer.status == 202
    digest = hashlib.sha256(content).hexdigest()
    files = [path for path in shared_service.data.rglob("*") if path.is_file() and path.stat().st_size == size]
    matching = [path for path in files if hashlib.sha256(path.read_bytes()).hexdigest() == digest]
    assert len(matching) == kept


def test_a_refused_send_leaves_no_referenced_file(shared_service: Service) -> None:
    """A file of 300 KB is not written if the send is refused without the database."""
    content = os.urandom(300_000)
    file = FILE | {"content": base64.b64encode(content).decode()}
    body = EMAIL | {"attachments": [file], "from": "a@example.com"}
    assert_refused(shared_service.post("/v1/emails", body), 403, "from_domain_unverified")
    files = [path for path in shared_service.data.rglob("*") if path.is_file() and path.stat().st_size == 300_000]
    assert content not in [path.read_bytes() for path in files]


def test_a_missing_attachments_folder_is_an_outage(shared_service: Service) -> None:
    folder, key = shared_service.data / "blobs", os.urandom(8).hex()
    body = EMAIL | {"attachments": [sized(300_000)]}
    elsewhere = folder.rename(folder.with_name("elsewhere"))
    answer = shared_service.post("/v1/emails", body, headers={"Idempotency-Key": key})
    elsewhere.rename(folder)
    assert_refused(answer, 503, "service_unavailable")
    assert answer.headers["retry-after"] == "2"
    assert shared_service.post("/v1/emails", body, headers={"Idempotency-Key": key}).status == 202


def test_an_unreachable_object_store_is_an_outage(database_url: str, tmp_path: Path) -> None:
    """The outage is reported before the 202; sends without a large file are not affected."""
    server = S3Server()
    body = EMAIL | {"attachments": [sized(300_000)]}
    with Service(database_url, tmp_path / "data", **server.settings) as service:
        service.apply()
        service.start()
        server.stop()
        answer = service.post("/v1/emails", body, headers={"Idempotency-Key": "k"})
        assert_refused(answer, 503, "service_unavailable")
        assert post(service, FILE).status == 202
        assert service.get("/readyz", key=None).status == 200
        server.start()
        assert service.post("/v1/emails", body, headers={"Idempotency-Key": "k"}).status == 202
        assert {name.partition("/")[0] for name in server.names()} == {"blobs"}
    server.stop()
