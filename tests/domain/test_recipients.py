import pytest

from heliograph.domain.mail.recipients import Recipients, check_allowed, read_recipients, split_suppressed
from heliograph.domain.refusals import (
    InvalidEmail,
    RecipientNotAllowed,
    RecipientSuppressed,
    Refusal,
    TooManyRecipients,
)
from heliograph.domain.setup.records import Mode, Team, TeamRecord


def many(count: int, name: str = "r") -> list[str]:
    return [f"{name}{i}@example.com" for i in range(count)]


def read(
    to: str | list[str] = "ada@example.com",
    cc: list[str] | None = None,
    bcc: list[str] | None = None,
    reply_to: str | list[str] | None = None,
) -> Recipients:
    return read_recipients(to, cc, bcc, reply_to)


def given(recipients: Recipients) -> tuple[list[str], list[str], list[str]]:
    to, cc, bcc = ([a.given for a in field] for field in (recipients.to, recipients.cc, recipients.bcc))
    return to, cc, bcc


def test_read() -> None:
    recipients = read("Ada@Example.com", ["b@x.io"], ["c@x.io", "c@x.io"], "r@x.io")
    assert given(recipients) == (["Ada@Example.com"], ["b@x.io"], ["c@x.io", "c@x.io"])
    assert [a.given for a in recipients.reply_to] == ["r@x.io"]
    assert recipients.count == 4


def test_absent_lists_are_empty() -> None:
    assert given(read(["a@x.io"], [], None)) == (["a@x.io"], [], [])
    assert read().reply_to == ()


def test_several_reply_tos() -> None:
    ten = [f"r{i}@x.io" for i in range(10)]
    assert [a.given for a in read("a@x.io", None, None, ten).reply_to] == ten
    for bad in ([], [*ten, "r@x.io"], ["nobody"]):
        with pytest.raises(InvalidEmail) as caught:
            read("a@x.io", None, None, bad)
        assert caught.value.param == "reply_to"


def test_each_distinct_address_once_where_it_first_occurs() -> None:
    recipients = read(["a@x.io", "A@X.io"], ["b@x.io", "a@x.io"], ["B@x.io", "c@x.io"])
    assert recipients.count == 6
    assert [(a.given, kind) for a, kind in recipients.distinct] == [
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
        (many(51), [BAD], None, None, "cc"),
        (many(51), None, None, BAD, "reply_to"),
        ([*many(500), BAD], None, None, None, "to"),
    ],
)
def test_invalid_email(
    to: str | list[str], cc: list[str] | None, bcc: list[str] | None, reply_to: str | None, param: str
) -> None:
    with pytest.raises(InvalidEmail) as refused:
        read_recipients(to, cc, bcc, reply_to)
    assert refused.value.param == param
    assert "\n" not in refused.value.message


def test_the_message_quotes_the_value_clipped() -> None:
    with pytest.raises(InvalidEmail, match="cc 'x y@z.io' is not"):
        read(cc=["x y@z.io"])
    with pytest.raises(InvalidEmail) as refused:
        read("x" * 5000)
    assert "x" * 79 + "…" in refused.value.message
    assert "x" * 80 not in refused.value.message


def test_the_message_never_quotes_a_bcc_value() -> None:
    with pytest.raises(InvalidEmail) as refused:
        read(bcc=["hidden@x"])
    assert "hidden" not in refused.value.message


@pytest.mark.parametrize(
    ("to", "cc", "bcc"),
    [(50, 0, 0), (1, 49, 0), (1, 0, 49), (20, 20, 10)],
)
def test_fifty_recipients(to: int, cc: int, bcc: int) -> None:
    assert read(many(to), many(cc), many(bcc)).count == 50


@pytest.mark.parametrize(
    ("to", "cc", "bcc", "param"),
    [
        (many(51), [], [], "to"),
        (["a@x.io"] * 51, [], [], "to"),  # repeated addresses count
        (many(1), many(51), [], "cc"),
        (many(1), [], many(51), "bcc"),
        (many(20), many(20), many(11), "to"),
        (many(50), [], many(1), "to"),
        (many(100_000, "x"), [], [], "to"),
    ],
)
def test_too_many(to: list[str], cc: list[str], bcc: list[str], param: str) -> None:
    with pytest.raises(TooManyRecipients) as refused:
        read(to, cc, bcc)
    assert refused.value.param == param
    assert str(len(to + cc + bcc)) in refused.value.message or str(len(cc + bcc)) in refused.value.message


def team(mode: Mode, *recipients: str) -> Team:
    return Team(record=TeamRecord(ref=1, id="team_a", name="A", mode=mode), recipients=frozenset(recipients))


SANDBOX = team("sandbox", "ada@example.com", "a@xn--bcher-kva.example")


@pytest.mark.parametrize(
    ("team", "recipients"),
    [
        (SANDBOX, read("Ada@Example.com")),
        (SANDBOX, read("a@bücher.example")),
        (SANDBOX, read("bounced+1@simulator.test", ["delivered@simulator.test"], ["ada@example.com"])),
        (SANDBOX, read(reply_to="anyone@example.org")),
        (team("live"), read("anyone@example.org")),
    ],
)
def test_allowed(team: Team, recipients: Recipients) -> None:
    check_allowed(recipients, team)


@pytest.mark.parametrize(
    ("recipients", "param", "named"),
    [
        (read("bob@example.com"), "to", "bob@example.com"),
        (read("ada+x@example.com"), "to", "ada+x@example.com"),  # no plus folding
        (read("ada@simulator.test"), "to", "ada@simulator.test"),
        (read(["ada@example.com", "Bob@x.io"], ["c@x.io", "bob@x.io"]), "to", "Bob@x.io, c@x.io"),
        (read(cc=["c@x.io"], bcc=["hidden@x.io"]), "cc", "c@x.io, a bcc recipient"),
        (read(bcc=["hidden@x.io", "hidden2@x.io"]), "bcc", "a bcc recipient"),
    ],
)
def test_not_allowed(recipients: Recipients, param: str, named: str) -> None:
    with pytest.raises(RecipientNotAllowed) as refused:
        check_allowed(recipients, SANDBOX)
    assert refused.value.param == param
    assert f"sandbox team: {named}. " in refused.value.message
    assert "hidden" not in refused.value.message


GONE = {"bad@example.com", "old@example.org", "hidden@x.io"}


@pytest.mark.parametrize("suppressed", [set(), {"else@x.io"}, GONE])
def test_nothing_suppressed(suppressed: set[str]) -> None:
    recipients = read("ada@example.com", ["b@x.io"], ["c@x.io"], "bad@example.com")
    assert split_suppressed(recipients, suppressed) == recipients


@pytest.mark.parametrize(
    ("recipients", "param", "addresses"),
    [
        (read("bad@example.com"), "to", ["bad@example.com"]),
        (read("BAD@Example.com"), "to", ["BAD@Example.com"]),
        (read(["bad@example.com", "old@example.org"]), "to", ["bad@example.com", "old@example.org"]),
        (
            read(["a@x.io", "old@example.org"], ["bad@example.com"]),
            "to",
            ["old@example.org", "bad@example.com"],
        ),
        (read(cc=["bad@example.com", "BAD@example.com"]), "cc", ["bad@example.com"]),
        (read("bad@example.com", bcc=["hidden@x.io", "bad@example.com"]), "to", ["bad@example.com"]),
        (read("suppressed@simulator.test"), "to", ["suppressed@simulator.test"]),
        (read(cc=["Suppressed+x@simulator.test"]), "cc", ["Suppressed+x@simulator.test"]),
    ],
)
def test_suppressed(recipients: Recipients, param: str, addresses: list[str]) -> None:
    with pytest.raises(RecipientSuppressed) as refused:
        split_suppressed(recipients, GONE)
    assert refused.value.message == "Suppressed recipients: " + ", ".join(addresses)
    assert (refused.value.param, refused.value.details) == (param, {"addresses": addresses})


def test_suppressed_bcc_is_dropped() -> None:
    recipients = read(bcc=["hidden@x.io", "c@x.io", "Hidden@x.io", "suppressed+1@simulator.test"], reply_to="r@x.io")
    left = split_suppressed(recipients, GONE)
    assert given(left) == (["ada@example.com"], [], ["c@x.io"])
    assert left.count == 2
    assert left.reply_to == recipients.reply_to


@pytest.mark.parametrize(
    ("recipients", "left"),
    [
        (read(["bad@example.com", "a@x.io"]), (["a@x.io"], [], [])),
        (read(["a@x.io"], ["bad@example.com", "c@x.io"], ["hidden@x.io"]), (["a@x.io"], ["c@x.io"], [])),
        (read("bad@example.com", ["c@x.io", "d@x.io"]), (["c@x.io"], ["d@x.io"], [])),
        (read("bad@example.com", bcc=["e@x.io", "f@x.io"]), (["e@x.io"], [], ["f@x.io"])),
        (read(["bad@example.com", "old@example.org"], ["bad@example.com"], ["hidden@x.io"]), None),
    ],
)
def test_dropped_until_nobody_is_left(recipients: Recipients, left: tuple[list[str], ...] | None) -> None:
    """A record names somebody in `to`, whoever that is."""
    if left is None:
        with pytest.raises(RecipientSuppressed, match=r"bad@example\.com, old@example\.org$"):
            split_suppressed(recipients, GONE, drop=True)
    else:
        assert given(split_suppressed(recipients, GONE, drop=True)) == left


def test_magic_suppression_needs_no_list_and_its_domain() -> None:
    with pytest.raises(Refusal):
        split_suppressed(read("suppressed@simulator.test"), frozenset())
    elsewhere = read("suppressed@example.com")
    assert split_suppressed(elsewhere, frozenset()) is elsewhere
