"""After a change of the master secret, pages explain the consequences and none fails."""

import base64

from heliograph.dashboard.totp import code_at
from tests.dashboard.conftest import Site, sync_api
from tests.dashboard.test_sign_in import _totp_step, sign_in
from tests.people import PASSWORD

expect = sync_api.expect
HOOK = {"url": "http://127.0.0.1:9/hook", "events": ["sms.*"]}


def test_pages_work_after_master_secret_changed(site: Site) -> None:
    service = site.service
    hook = service.post("/v1/webhooks", HOOK).json["id"]
    page = site.open("lost@example.com", "--operator", path="/dashboard/account/totp")
    secret = base64.b32decode(page.locator(".form .copyable code").inner_text().replace(" ", ""))
    page.get_by_label("Code").fill(code_at(secret, _totp_step()))
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_role("button", name="Turn on").click()
    recovery = page.locator("pre").inner_text().split()

    service.stop()
    (service.data / "secret").unlink()
    assert service.run("secret", "replace").returncode == 0
    service.start(port=service.ports[-1])

    page = site.page()
    sign_in(page, "lost@example.com")
    page.get_by_label("Code").fill(code_at(secret, _totp_step() + 1))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("the service's secret was changed. Use a recovery code")
    page.get_by_label("Code").fill(recovery[0])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("lost@example.com")).to_be_visible()
    page.goto(f"/dashboard/teams/team_acme/webhooks/{hook}")
    page.get_by_role("button", name="Rotate").click()
    expect(page.locator(".once code")).to_contain_text("whsec_")
    rotated = service.post(f"/v1/webhooks/{hook}/rotate", {})
    assert (rotated.status, rotated.json["secret"][:6]) == (200, "whsec_")
    assert rotated.json["secret_rotates_until"]  # the previous secret can be decrypted again
