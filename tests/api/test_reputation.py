"""The reputation guard in a running service: bounces pause direct sends but not templates, an operator resumes."""

from tests.api.sends import EMAIL, WELCOME, assert_refused, settled, without
from tests.service import Service, until

PATH = "/v1/emails"


def send_to_many(service: Service, recipients: list[str]) -> None:
    answers = [
        service.post(PATH, EMAIL | {"to": recipients[at : at + 50]}).json for at in range(0, len(recipients), 50)
    ]
    for answer in answers:
        settled(service, f"{PATH}/{answer['id']}")


def test_bounces_pause_direct_sends_until_resumed(service: Service) -> None:
    bad = [f"bounced+{n}@customer.example" for n in range(20)]
    send_to_many(service, bad + [f"fine{n}@customer.example" for n in range(180)])
    assert service.post(PATH, EMAIL).status == 202
    service.start("worker")  # it updates reputations when it starts; the first process reads them
    until(lambda: service.post(PATH, EMAIL).status == 403)

    refused = service.post(PATH, EMAIL)
    assert_refused(refused, 403, "direct_sends_paused")
    assert refused.json["error"]["type"] == "permission_error"
    assert "of 200 emails 10.0% bounced and 0.00% got complaints" in refused.json["error"]["message"]
    assert_refused(service.post(f"{PATH}?dry_run=true", EMAIL), 403, "direct_sends_paused")
    assert service.post(PATH, WELCOME).status == 202
    assert service.post(PATH, without(EMAIL, "from"), key="SANDBOX").status == 202  # another team

    # position in the documented order: after the attachments, before the sender
    assert_refused(service.post(PATH, EMAIL | {"attachments": [{}] * 21}), 400, "too_many_attachments")
    assert_refused(service.post(PATH, EMAIL | {"from": "nobody"}), 403, "direct_sends_paused")

    output = service.run("reputation", "team_acme").stdout
    assert output.startswith("team_acme  paused since 20")
    assert output.endswith(": of 200 emails 10.0% bounced and 0.00% got complaints\n")
    assert service.run("reputation", "resume", "team_acme").stdout == "direct sends of team_acme are resumed\n"
    until(lambda: service.post(PATH, EMAIL).status == 202)
