"""Fields of a webhook, and the rotation of its secrets."""

import pytest
from msgspec.structs import replace

from heliograph.domain.events import SUBSCRIPTION_NAMES
from heliograph.domain.limits import DAY_MS
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Webhook
from heliograph.encryption import Cipher
from heliograph.webhooks.policy.webhook import (
    check_description,
    check_secret,
    encrypt_secret,
    rotate_secret,
    secret_size,
    to_new_record,
    to_record,
    validate_events,
)

NOW = 1_794_724_665_047
VAULT = Cipher(bytes(32))
FIRST, SECOND, THIRD = ("whsec_" + letter * 32 for letter in "ABC")
HOOK = Webhook(
    id="whk_1", team="team_a", url="http://a.test", secret=encrypt_secret(VAULT, "whk_1", FIRST), created_at=NOW
)


@pytest.mark.parametrize(
    ("secret", "size"),
    [
        ("whsec_" + "A" * 32, 24),
        ("whsec_YQ==", 1),
        ("whsec_", 0),
        ("whsec_YQ", None),  # no padding
        ("whsec_YR==", None),  # unused bits are not zero
        ("whsec_YQ==\n", None),
        ("whsec_Y Q==", None),
        ("whsec_-_-_", None),
        ("whsec_ä", None),
        ("YQ==", None),
        ("WHSEC_YQ==", None),
    ],
)
def test_webhook_secret_size_is_checked(secret: str, size: int | None) -> None:
    assert secret_size(secret) == size


@pytest.mark.parametrize(("letters", "good"), [(28, False), (32, True), (84, True), (88, False)])
def test_a_callers_secret_has_24_to_64_bytes(letters: int, good: bool) -> None:
    secret = "whsec_" + "A" * letters
    if good:
        check_secret(secret)
    else:
        with pytest.raises(InvalidRequest) as refused:
            check_secret(secret)
        assert refused.value.param == "secret"
        assert "AAAA" not in refused.value.message


def test_events_are_known_and_named_once() -> None:
    assert validate_events(SUBSCRIPTION_NAMES) == SUBSCRIPTION_NAMES
    assert validate_events(["sms.sent", "email.*", "sms.sent"]) == ("sms.sent", "email.*")
    for error in ([], ["email"], ["email.opened"], ["*", "Email.sent"]):
        with pytest.raises(InvalidRequest) as refused:
            validate_events(error)
        assert refused.value.param == "events"


@pytest.mark.parametrize(("text", "good"), [("", True), ("ü" * 500, True), ("x" * 501, False), ("a\nb", False)])
def test_webhook_description_is_validated(text: str, good: bool) -> None:
    if good:
        check_description(text)
    else:
        with pytest.raises(InvalidRequest):
            check_description(text)


def secrets_of(hook: Webhook) -> list[bytes]:
    old = [VAULT.decrypt(hook.old_secret, "webhook/whk_1/old")] if hook.old_secret else []
    return [VAULT.decrypt(hook.secret, "webhook/whk_1"), *old]


def test_rotation_keeps_only_the_previous_secret_for_a_day() -> None:
    once = rotate_secret(HOOK, SECOND, NOW, VAULT)
    assert (secrets_of(once), once.old_until) == ([SECOND.encode(), FIRST.encode()], NOW + DAY_MS)
    twice = rotate_secret(once, THIRD, NOW + 1, VAULT)
    assert (secrets_of(twice), twice.old_until) == ([THIRD.encode(), SECOND.encode()], NOW + 1 + DAY_MS)
    assert rotate_secret(twice, THIRD, NOW + 2, VAULT) is twice


def test_webhook_record_contains_no_secret() -> None:
    record = to_record(HOOK, NOW)
    assert (record.description, record.disabled_reason, record.secret_rotates_until) == (None, None, None)
    assert record.created_at == "2026-11-15T06:37:45.047Z"
    rotating = rotate_secret(replace(HOOK, description="d", disabled_reason="r"), SECOND, NOW, VAULT)
    record = to_record(rotating, NOW)
    assert (record.description, record.disabled_reason) == ("d", "r")
    assert record.secret_rotates_until == "2026-11-16T06:37:45.047Z"
    assert to_record(rotating, NOW + DAY_MS).secret_rotates_until is None
    assert "whsec" not in str(record)
    assert to_new_record(rotating, SECOND, NOW).secret == SECOND
