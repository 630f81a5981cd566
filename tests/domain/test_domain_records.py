"""Each common mistake in a domain's DNS records, and the text that explains how to fix it."""

import pytest

from heliograph.domain.setup.domain_records import (
    FOUND_CHARS_MAX,
    Record,
    Verdict,
    alignment,
    all_correct,
    check_record,
    expected_records,
    join_txt,
    next_verification_state,
    ownership_token,
    unanswered_verdict,
)

RSA, ED = "MIIBIjANBgkqhkiG9w0BAQEF+/AA", "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
RECORDS = expected_records(
    "acme.test",
    domain_id="dom_acme",
    ownership="c0ffee",
    dkim=[("h1", f"v=DKIM1; k=rsa; p={RSA}"), ("h2", f"v=DKIM1; k=ed25519; p={ED}")],
    return_path_host="bounce.acme.test",
    bounce_host="mx.heliograph.test",
)
OWNERSHIP, DKIM_RSA, DKIM_ED, RETURN_PATH, SPF, DMARC, TLS_REPORTS = RECORDS
TERM = "a:mx.heliograph.test"


def test_domain_records_to_publish_are_complete() -> None:
    assert [(record.purpose, record.type, record.name, record.value) for record in RECORDS] == [
        ("ownership", "TXT", "_heliograph.acme.test", "heliograph=dom_acme c0ffee"),
        ("dkim", "TXT", "h1._domainkey.acme.test", f"v=DKIM1; k=rsa; p={RSA}"),
        ("dkim", "TXT", "h2._domainkey.acme.test", f"v=DKIM1; k=ed25519; p={ED}"),
        ("return_path", "MX", "bounce.acme.test", "10 mx.heliograph.test"),
        ("spf", "TXT", "bounce.acme.test", f"v=spf1 {TERM} ~all"),
        ("dmarc", "TXT", "_dmarc.acme.test", "v=DMARC1; p=none; rua=mailto:dmarc@mx.heliograph.test"),
        ("tls_reports", "TXT", "_smtp._tls.acme.test", "v=TLSRPTv1; rua=mailto:tlsrpt@mx.heliograph.test"),
    ]


def test_a_token_belongs_to_one_domain_and_one_secret() -> None:
    tokens = {ownership_token(key, id) for key in (b"k" * 32, b"l" * 32) for id in ("dom_a", "dom_b")}
    assert len(tokens) == 4 and all(len(token) == 32 for token in tokens)
    assert ownership_token(b"k" * 32, "dom_a") in tokens


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"{record.purpose} {record.name}")
def test_domain_record_as_requested_is_correct(record: Record) -> None:
    assert check_record(record, [record.value]) == Verdict(ok=True, found=(record.value,))
    missing = check_record(record, [])
    assert not missing.ok and missing.answered
    assert missing.fix.startswith(f"There is no {record.type} record at {record.name}. ")
    assert missing.fix.endswith(f": {record.value}")


@pytest.mark.parametrize(
    ("record", "found"),
    [
        (OWNERSHIP, ["heliograph=dom_other beef", " heliograph=dom_acme c0ffee"]),
        (DKIM_RSA, [f"k=rsa;p={RSA};"]),
        (DKIM_RSA, [f"p={RSA[:9]} {RSA[9:]}"]),  # rsa is the default; white space in a key means nothing
        (DKIM_RSA, [f"v=DKIM1; h=sha1:sha256; s=email; t=s; n=a note; p={RSA}"]),
        (DKIM_ED, [f"v = DKIM1 ; p = {ED} ; k = ed25519 ; "]),
        (RETURN_PATH, ["5 MX.Heliograph.Test."]),
        (RETURN_PATH, ["5 mx.heliograph.test", "20 mx.heliograph.test."]),
        (SPF, [f"v=spf1 {TERM} -all"]),
        (SPF, [f"V=SPF1 mx {TERM.upper()} include:other.test ?all", "google-site-verification=x"]),
        (SPF, [f"v=spf1 {TERM}"]),
        (SPF, ["v=spf1 ip4:192.0.2.0/24 +a:mx.heliograph.test. ~all"]),
        (SPF, ["v=spf1 a:mx.heliograph.test/28 ~all"]),
        (DMARC, ["v=DMARC1; p=reject; sp=quarantine; adkim=s; aspf=R; pct=100; fo=1:d; x=unknown;"]),
        (DMARC, ["v=DMARC1;p=Quarantine;rua=mailto:a@acme.test!10m, mailto:b@acme.test", "v=spf1 -all"]),
    ],
)  # fmt: skip
def test_equivalent_forms_of_a_record_are_correct(record: Record, found: list[str]) -> None:
    assert check_record(record, found).fix == ""


@pytest.mark.parametrize(
    ("record", "found", "words"),
    [
        (OWNERSHIP, ["heliograph=dom_acme C0FFEE"], "Add another one with the value: heliograph=dom_acme c0ffee"),
        (OWNERSHIP, ['"heliograph=dom_acme c0ffee"'], "quotation marks"),
        (DKIM_RSA, [f"v=DKIM1; p={RSA}", f"v=DKIM1; k=rsa; p={RSA}"], "2 TXT records"),
        (DKIM_RSA, ["some text"], "not a list of tags"),
        (DKIM_RSA, ["v=DKIM1; k=rsa"], "not a list of tags"),
        (DKIM_RSA, [f"v=DKIM1; p={RSA}; p={RSA}"], "not a list of tags"),
        (DKIM_RSA, ["v=DKIM1; p="], "revokes the key"),
        (DKIM_RSA, [f"v=DKIM1; p={ED}"], "a different key. Set the TXT record at h1._domainkey.acme.test to: v=DKIM1;"),
        (DKIM_RSA, [f"v=DKIM1; p={RSA.lower()}"], "a different key"),
        (DKIM_RSA, [f"v=DKIM1; p={RSA[:20]}"], f"cut off after 20 of {len(RSA)} characters"),
        (DKIM_RSA, [f'"v=DKIM1; k=rsa; p={RSA}"'], "quotation marks"),
        (DKIM_RSA, [f'v=DKIM1; p={RSA[:9]}" "{RSA[9:]}'], "quotation marks"),
        (DKIM_RSA, [f"v=DKIM1\\; k=rsa\\; p={RSA}"], "backslashes"),
        (DKIM_RSA, [f"v=dkim1; p={RSA}"], "v=DKIM1 must be the first tag"),
        (DKIM_RSA, [f"p={RSA}; v=DKIM1"], "v=DKIM1 must be the first tag"),
        (DKIM_RSA, [f"v=DKIM1; k=ed25519; p={RSA}"], "k=ed25519 is wrong"),
        (DKIM_ED, [f"v=DKIM1; p={ED}"], "k=rsa is wrong; the key needs k=ed25519"),
        (DKIM_RSA, [f"h=sha1; p={RSA}"], "h=sha1 does not allow sha256"),
        (DKIM_RSA, [f"s=tlsrpt; p={RSA}"], "does not allow the key for email"),
        (DKIM_RSA, [f"t=s:y; p={RSA}"], "t=y"),
        (RETURN_PATH, ["10 mail.other.test"], "points to another host: 10 mail.other.test. Set the MX record"),
        (RETURN_PATH, ["0 ."], "points to another host"),
        (RETURN_PATH, ["10 mx.heliograph.test", "20 mail.other.test"], "Remove the other MX records"),
        (SPF, ["google-site-verification=x"], "There is no SPF policy among"),
        (SPF, [f"v=spf10 {TERM} ~all"], "There is no SPF policy among"),
        (SPF, [f"v=spf1 {TERM} ~all", "v=spf1 -all"], "2 SPF policies, a permanent error"),
        (SPF, ["v=spf1 -all"], f"does not allow {TERM}. Add {TERM} before its all"),
        (SPF, [f"v=spf1 -all {TERM}"], "does not allow a:mx.heliograph.test."),  # terms after `all` are ignored
        (SPF, [f"v=spf1 ~{TERM} ~all"], "does not allow a:mx.heliograph.test. Add"),  # a soft fail is not a pass
        (SPF, ["v=spf1 a:out.heliograph.test ip4:192.0.2.7 ~all"], "does not allow a:mx.heliograph.test. Add"),
        (SPF, [f"v=spf1 {TERM} all"], "all allows any server to send"),
        (SPF, [f"v=spf1 {TERM} +ALL"], "+all allows any server to send"),
        (SPF, [f"v=spf1 {TERM} mx a ptr exists:%{{i}}.x mx a ptr include:a include:b redirect=d"], "11 DNS lookups"),
        (DMARC, ["v=spf1 -all"], "There is no DMARC policy"),
        (TLS_REPORTS, ["v=TLSRPTv1"], "no rua= tag"),
        (TLS_REPORTS, ["v=TLSRPTv1; rua=mailto:a@b.test", "v=TLSRPTv1; rua=mailto:c@d.test"], "There are 2 TLS"),
        (DMARC, ["v=dmarc1; p=none"], "v=DMARC1; in upper case"),
        (DMARC, ["p=none; v=DMARC1"], "There is no DMARC policy"),
        (DMARC, ["v=DMARC10; p=none"], "There is no DMARC policy"),
        (DMARC, ["v=DMARC1; p=none", "v=DMARC1; p=reject"], "2 DMARC policies at _dmarc.acme.test, so"),
        (DMARC, ["v=DMARC1; none"], "not a list of distinct tags"),
        (DMARC, ["v=DMARC1; p=none; p=reject"], "not a list of distinct tags"),
        (DMARC, ["v=DMARC1"], "has no p="),
        (DMARC, ["v=DMARC1; p=nothing; pct=101"], "invalid tags: p=nothing, pct=101. Set"),
        (DMARC, ["v=DMARC1; p=none; rua=me@acme.test"], "invalid tags: rua=me@acme.test"),
        (DMARC, ["v=DMARC1; p=none; adkim=strict"], "invalid tags: adkim=strict"),
        (DMARC, ['"v=DMARC1; p=none"'], "quotation marks"),
    ],
)  # fmt: skip
def test_domain_record_error_has_a_fix(record: Record, found: list[str], words: str) -> None:
    verdict = check_record(record, found)
    assert not verdict.ok and verdict.answered and verdict.found == tuple(found)
    assert words in verdict.fix


def test_spf_with_ten_lookups_is_accepted() -> None:
    record = Record(type="TXT", name="b.acme.test", value="v=spf1 a:mx.test ~all", purpose="spf")
    assert check_record(record, ["v=spf1 a:mx.test " + "include:x.test " * 9 + "ip4:192.0.2.1 exp=e.test ~all"]).ok
    assert not check_record(record, ["v=spf1 a:mx.test " + "include:x.test " * 10 + "~all"]).ok


def test_an_alias_is_judged_by_its_target() -> None:
    record = Record(type="CNAME", name="b.acme.test", value="bounce.heliograph.test", purpose="return_path")
    assert check_record(record, ["Bounce.Heliograph.test."]).ok
    assert "points to another host" in check_record(record, ["other.test"]).fix


def test_a_texts_strings_are_joined_and_safe_to_show() -> None:
    assert join_txt([b"v=DKIM1; p=AB", b"", b"CD"]) == "v=DKIM1; p=ABCD"
    assert join_txt([b"\x1b[31m", "ü\n".encode()]) == r"\x1b[31m\xc3\xbc\x0a"


def test_domain_record_verdict_has_a_bounded_size() -> None:
    verdict = check_record(OWNERSHIP, ["x" * 60_000] * 50)
    assert [len(text) for text in verdict.found] == [FOUND_CHARS_MAX] * 10
    assert len(check_record(RETURN_PATH, [f"10 {'x' * 250}.test"] * 1000).fix) < 2 * FOUND_CHARS_MAX


@pytest.mark.parametrize(
    ("proven", "dmarc", "relaxed", "policy"),
    [
        ("acme.test", None, True, None),
        ("bounce.acme.test", None, True, None),
        ("a.b.acme.test", "v=DMARC1; p=reject", True, "reject"),
        ("other.test", "v=DMARC1; p=none", False, "none"),
        ("notacme.test", "v=DMARC1; p=none", False, "none"),  # another domain with the same ending
        ("test", "v=DMARC1; p=none", False, "none"),
        ("bounce.acme.test", "v=DMARC1; p=Reject; adkim=S; aspf=s", False, "reject"),
        ("acme.test", "v=DMARC1; p=reject; adkim=s; aspf=s", True, "reject"),
        ("bounce.acme.test", "not a policy; adkim=s", True, None),
    ],
)
def test_dmarc_alignment_by_one_mechanism(proven: str, dmarc: str | None, relaxed: bool, policy: str | None) -> None:
    by_dkim = alignment("acme.test", proven, "other.test", dmarc)
    by_spf = alignment("acme.test", "other.test", proven, dmarc)
    assert (by_dkim.dkim, by_dkim.spf, by_dkim.passes, by_dkim.policy) == (relaxed, False, relaxed, policy)
    assert (by_spf.dkim, by_spf.spf, by_spf.passes, by_spf.policy) == (False, relaxed, relaxed, policy)


def test_strictness_is_read_for_each_proof_by_itself() -> None:
    mixed = alignment("acme.test", "acme.test", "bounce.acme.test", "v=DMARC1; p=none; aspf=s")
    assert (mixed.dkim, mixed.spf, mixed.passes, mixed.adkim, mixed.aspf) == (True, False, True, "relaxed", "strict")


@pytest.mark.parametrize(
    ("verdicts", "sum"),
    [
        ([Verdict(ok=True), Verdict(ok=True)], True),
        ([Verdict(ok=True), Verdict(ok=False)], False),
        ([Verdict(ok=True), unanswered_verdict("silence")], None),
        ([Verdict(ok=False), unanswered_verdict("silence")], False),
    ],
)
def test_domain_is_correct_when_all_required_records_are(verdicts: list[Verdict], sum: bool | None) -> None:
    assert all_correct(verdicts) is sum


@pytest.mark.parametrize(
    ("checks", "verified"),
    [
        ("+", "1"),
        ("-", "0"),
        ("+---", "1110"),  # three in a row
        ("+--+--+", "1111111"),
        ("+---+", "11101"),  # found again, so verified again
        ("+--?-", "11110"),  # a check without DNS response neither counts nor resets the count
        ("+?????", "111111"),
        ("????", "0000"),
    ],
)
def test_verified_domain_is_lost_only_after_repeated_failures(checks: str, verified: str) -> None:
    state, observed = (False, 0), ""
    for check in checks:
        state = next_verification_state(*state, {"+": True, "-": False, "?": None}[check])
        observed += str(int(state[0]))
    assert observed == verified
