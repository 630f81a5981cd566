import pytest

from heliograph.domain.mail.recipients import Recipients, check_allowed, parse_recipients, remove_suppressed
from heliograph.domain.refusals import (
    InvalidEmail,
    RecipientNotAllowed,
    RecipientSuppressed,
    Refusal,
    TooManyRecipients,
)
from heliograph.domain.setup.records import Mode, Team, TeamRecord


def addresses(count: int, name: str = "r") -> list[str]:
    return [f"{name}{i}@example.com" for i in range(count)]


def parse(
    to: str | list[str] = "ada@example.com",
    cc: list[str] | None = None,
    bcc: list[str] | None = None,
    reply_to: str | list[str] | None = None,
) -> Recipients:
    return parse_recipients(to, cc, bcc, reply_to)


def written_addresses(recipients: Recipients) -> tuple[list[str], list[str], list[str]]:
    to, cc, bcc = ([address.original for address in field] for field in (recipients.to, recipients.cc, recipients.bcc))
    return to, cc, bcc


def test_recipients_are_parsed_from_to_cc_and_bcc() -> None:
    recipients = parse("Ada@Example.com", ["b@x.io"], ["c@x.io", "c@x.io"], "r@x.io")
    assert written_addresses(recipients) == (["Ada@Example.com"], ["b@x.io"], ["c@x.io", "c@x.io"])
    assert [a.original for a in recipients.reply_to] == ["r@x.io"]
    assert recipients.count == 4


def test_recipients_absent_lists_are_empty() -> None:
    assert written_addresses(parse(["a@x.io"], [], None)) == (["a@x.io"], [], [])
    assert parse().reply_to == ()


def test_recipients_allow_ten_reply_to_addresses() -> None:
    ten = [f"r{i}@x.io" for i in range(10)]
    assert [a.original for a in parse("a@x.io", None, None, ten).reply_to] == ten
    for bad in ([], [*ten, "r@x.io"], ["nobody"]):
        with pytest.raises(InvalidEmail) as caught:
            parse("a@x.io", None, None, bad)
        assert caught.value.param == "reply_to"


def test_duplicate_address_counts_once_at_its_first_position() -> None:
    recipients = parse(["a@x.io", "A@X.io"], ["b@x.io", "a@x.io"], ["B@x.io", "c@x.io"])
    assert recipients.count == 6
    assert [(a.original, kind) for a, kind in recipients.distinct] == [
        ("a@x.io", "to"),
        ("b@x.io", "cc"),
        ("c@x.io", "bcc"),
    ]


BAD = "no\naddress"


@pytest.mark.parametrize(
    ("to", "cc", "bcc", "reply_to", "param"),
    [
        ([], None, None, None, "to"),
        ("", None, None, None, "to"),
        (BAD, None, None, None, "to"),
        (["a@x.io", BAD], None, None, None, "to"),
        ("Ada <a@x.io>", None, None, None, "to"),
        ("a@x.io", [BAD], None, None, "cc"),
        ("a@x.io", None, [BAD], None, "bcc"),
        ("a@x.io", None, None, BAD, "reply_to"),
        ("a@x.io", None, None, "", "reply_to"),
        # the order of the fields, and before any count
        (BAD, [BAD], [BAD], BAD, "to"),
        ("a@x.io", [BAD], [BAD], BAD, "cc"),
        ("a@x.io", None, [BAD], BAD, "bcc"),
        (addresses(51), [BAD], None, None, "cc"),
        (addresses(51), None, None, BAD, "reply_to"),
        ([*addresses(500), BAD], None, None, None, "to"),
    ],
)
def test_recipients_invalid_email_is_refused(
    to: str | list[str], cc: list[str] | None, bcc: list[str] | None, reply_to: str | None, param: str
) -> None:
    with pytest.raises(InvalidEmail) as refused:
        parse_recipients(to, cc, bcc, reply_to)
    assert refused.value.param == param
    assert "\n" not in refused.value.message


def test_the_message_quotes_the_value_clipped() -> None:
    with pytest.raises(InvalidEmail, match="cc 'x y@z.io' is not"):
        parse(cc=["x y@z.io"])
    with pytest.raises(InvalidEmail) as refused:
        parse("x" * 5000)
    assert "x" * 79 + "…" in refused.value.message
    assert "x" * 80 not in refused.value.message


def test_the_message_never_quotes_a_bcc_value() -> None:
    with pytest.raises(InvalidEmail) as refused:
        parse(bcc=["hidden@x"])
    assert "hidden" not in refused.value.message


@pytest.mark.parametrize(
    ("to", "cc", "bcc"),
    [(50, 0, 0), (1, 49, 0), (1, 0, 49), (20, 20, 10)],
)
def test_recipients_limit_of_fifty_is_inclusive(to: int, cc: int, bcc: int) -> None:
    assert parse(addresses(to), addresses(cc), addresses(bcc)).count == 50


@pytest.mark.parametrize(
    ("to", "cc", "bcc", "param"),
    [
        (addresses(51), [], [], "to"),
        (["a@x.io"] * 51, [], [], "to"),  # repeated addresses count
        (addresses(1), addresses(51), [], "cc"),
        (addresses(1), [], addresses(51), "bcc"),
        (addresses(20), addresses(20), addresses(11), "to"),
        (addresses(50), [], addresses(1), "to"),
        (addresses(100_000, "x"), [], [], "to"),
    ],
)
def test_recipients_above_the_limit_are_refused(to: list[str], cc: list[str], bcc: list[str], param: str) -> None:
    with pytest.raises(TooManyRecipients) as refused:
        parse(to, cc, bcc)
    assert refused.value.param == param
    assert str(len(to + cc + bcc)) in refused.value.message or str(len(cc + bcc)) in refused.value.message


def team(mode: Mode, *recipients: str) -> Team:
    return Team(record=TeamRecord(ref=1, id="team_a", name="A", mode=mode), recipients=frozenset(recipients))


SANDBOX = team("sandbox", "ada@example.com", "a@xn--bcher-kva.example")


@pytest.mark.parametrize(
    ("team", "recipients"),
    [
        (SANDBOX, parse("Ada@Example.com")),
        (SANDBOX, parse("a@bücher.example")),
        (SANDBOX, parse("bounced+1@simulator.test", ["delivered@simulator.test"], ["ada@example.com"])),
        (SANDBOX, parse(reply_to="anyone@example.org")),
        (team("live"), parse("anyone@example.org")),
    ],
)
def test_recipients_allowed_for_the_team_pass(team: Team, recipients: Recipients) -> None:
    check_allowed(recipients, team)


@pytest.mark.parametrize(
    ("recipients", "param", "named"),
    [
        (parse("bob@example.com"), "to", "bob@example.com"),
        (parse("ada+x@example.com"), "to", "ada+x@example.com"),  # no plus folding
        (parse("ada@simulator.test"), "to", "ada@simulator.test"),
        (parse(["ada@example.com", "Bob@x.io"], ["c@x.io", "bob@x.io"]), "to", "Bob@x.io, c@x.io"),
        (parse(cc=["c@x.io"], bcc=["hidden@x.io"]), "cc", "c@x.io, a bcc recipient"),
        (parse(bcc=["hidden@x.io", "hidden2@x.io"]), "bcc", "a bcc recipient"),
    ],
)
def test_recipients_not_allowed_in_sandbox_are_refused(recipients: Recipients, param: str, named: str) -> None:
    with pytest.raises(RecipientNotAllowed) as refused:
        check_allowed(recipients, SANDBOX)
    assert refused.value.param == param
    assert f"sandbox team: {named}. " in refused.value.message
    assert "hidden" not in refused.value.message


GONE = {"bad@example.com", "old@example.org", "hidden@x.io"}


@pytest.mark.parametrize("suppressed", [set(), {"else@x.io"}, GONE])
def test_recipients_without_suppression_are_unchanged(suppressed: set[str]) -> None:
    recipients = parse("ada@example.com", ["b@x.io"], ["c@x.io"], "bad@example.com")
    assert remove_suppressed(recipients, suppressed) == recipients


@pytest.mark.parametrize(
    ("recipients", "param", "addresses"),
    [
        (parse("bad@example.com"), "to", ["bad@example.com"]),
        (parse("BAD@Example.com"), "to", ["BAD@Example.com"]),
        (parse(["bad@example.com", "old@example.org"]), "to", ["bad@example.com", "old@example.org"]),
        (
            parse(["a@x.io", "old@example.org"], ["bad@example.com"]),
            "to",
            ["old@example.org", "bad@example.com"],
        ),
        (parse(cc=["bad@example.com", "BAD@example.com"]), "cc", ["bad@example.com"]),
        (parse("bad@example.com", bcc=["hidden@x.io", "bad@example.com"]), "to", ["bad@example.com"]),
        (parse("suppressed@simulator.test"), "to", ["suppressed@simulator.test"]),
        (parse(cc=["Suppressed+x@simulator.test"]), "cc", ["Suppressed+x@simulator.test"]),
    ],
)
def test_recipients_suppressed_are_refused(recipients: Recipients, param: str, addresses: list[str]) -> None:
    with pytest.raises(RecipientSuppressed) as refused:
        remove_suppressed(recipients, GONE)
    assert refused.value.message == "Suppressed recipients: " + ", ".join(addresses)
    assert (refused.value.param, refused.value.details) == (param, {"addresses": addresses})


def test_recipients_suppressed_in_bcc_are_dropped() -> None:
    recipients = parse(bcc=["hidden@x.io", "c@x.io", "Hidden@x.io", "suppressed+1@simulator.test"], reply_to="r@x.io")
    left = remove_suppressed(recipients, GONE)
    assert written_addresses(left) == (["ada@example.com"], [], ["c@x.io"])
    assert left.count == 2
    assert left.reply_to == recipients.reply_to


@pytest.mark.parametrize(
    ("recipients", "left"),
    [
        (parse(["bad@example.com", "a@x.io"]), (["a@x.io"], [], [])),
        (parse(["a@x.io"], ["bad@example.com", "c@x.io"], ["hidden@x.io"]), (["a@x.io"], ["c@x.io"], [])),
        (parse("bad@example.com", ["c@x.io", "d@x.io"]), (["c@x.io"], ["d@x.io"], [])),
        (parse("bad@example.com", bcc=["e@x.io", "f@x.io"]), (["e@x.io"], [], ["f@x.io"])),
        (parse(["bad@example.com", "old@example.org"], ["bad@example.com"], ["hidden@x.io"]), None),
    ],
)
def test_recipients_all_dropped_are_refused(recipients: Recipients, left: tuple[list[str], ...] | None) -> None:
    """A record must have a recipient in `to`."""
    if left is None:
        with pytest.raises(RecipientSuppressed, match=r"bad@example\.com, old@example\.org$"):
            remove_suppressed(recipients, GONE, drop=True)
    else:
        assert written_addresses(remove_suppressed(recipients, GONE, drop=True)) == left


def test_magic_suppression_needs_no_list_and_its_domain() -> None:
    with pytest.raises(Refusal):
        remove_suppressed(parse("suppressed@simulator.test"), frozenset())
    elsewhere = parse("suppressed@example.com")
    assert remove_suppressed(elsewhere, frozenset()) is elsewhere
