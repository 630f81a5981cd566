"""Each rule of deploy/alerts.yaml fires if its condition occurs, and not before; evaluated by promtool."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.npm import miss

RULES = Path(__file__).parents[1] / "deploy" / "alerts.yaml"
ALERTS = [rule["alert"] for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"] for rule in group["rules"]]
INSTANCE = 'instance="mail:8700"'
HTTP = "heliograph_http_request_duration_seconds_count"
HANDED = 'heliograph_time_to_handover_seconds_{}{{channel="email"{}}}'
REPLIES = 'heliograph_smtp_replies_total{{provider="google",class="{}"}}'
MAILS = 'heliograph_handovers_total{channel="email",outcome="accepted"}'
COMPLAINTS = 'heliograph_complaints_total{provider="google"}'

# Alert → its series per minute, without and with the fault, in promtool's notation.
WELL_AND_ILL: dict[str, dict[str, tuple[str, str]]] = {
    "HeliographDown": {f'up{{job="heliograph",{INSTANCE}}}': ("1x60", "0x60")},
    "HeliographNotReady": {f"heliograph_ready{{{INSTANCE}}}": ("1x60", "0x60")},
    # All processes are replaced once; or one crashes every two minutes.
    "HeliographRestarts": {
        f"heliograph_start_timestamp_seconds{{{INSTANCE}}}": (
            "0x20 1 2 3 4 4x40",
            "1 1 2 2 3 3 4 4 5 5 6 6 7 7 8 8 " * 4,
        )
    },
    "HeliographClockWrong": {f"heliograph_clock_offset_seconds{{{INSTANCE}}}": ("0.2x60", "-7x60")},
    "HeliographCertificateEnds": {f"heliograph_certificate_expiry_seconds{{{INSTANCE}}}": ("5000000x60", "-60-60x60")},
    "HeliographBackupOld": {f"heliograph_backup_age_seconds{{{INSTANCE}}}": ("0+60x60", "200000+60x60")},
    "HeliographMessagesWait": {'heliograph_outbox_oldest_seconds{lane="email"}': ("5x60", "200+60x60")},
    "HeliographSlowHandover": {
        HANDED.format("bucket", ',le="60.0"'): ("0+100x60", "0+90x60"),
        HANDED.format("count", ""): ("0+100x60", "0+100x60"),
    },
    "HeliographErrors": {
        f'{HTTP}{{status="202"}}': ("0+100x60", "0+100x60"),
        f'{HTTP}{{status="503"}}': ("0x60", "0+5x60"),
    },
    "HeliographCarrierUnreachable": {
        'heliograph_carrier_reachable{carrier="relay",channel="email"}': ("1x60", "0x60"),
    },
    # The last callback was two minutes ago, or over a day ago, while messages were sent continuously.
    "HeliographCarrierSilent": {
        'heliograph_carrier_last_callback_seconds{carrier="relay",channel="email"}': ("120x200", "100000+60x200"),
        'heliograph_handovers_total{carrier="relay",channel="email",outcome="accepted"}': ("0+5x200", "0+5x200"),
    },
    "HeliographWorkerStuck": {
        f"heliograph_worker_progress_timestamp_seconds{{{INSTANCE}}}": ("0+60x60", "60x60"),
    },
    "HeliographQuarantine": {"heliograph_quarantined_messages": ("0x60", "1x60")},
    "HeliographPaused": {'heliograph_held_messages{reason="circuit"}': ("0x60", "3x60")},
    "HeliographWebhooksBehind": {"heliograph_webhook_lag_seconds": ("2x60", "300+60x60")},
    "HeliographLoopBlocked": {f"heliograph_event_loop_lag_seconds{{{INSTANCE}}}": ("0.01x60", "2x60")},
    "HeliographDiskFull": {f"heliograph_disk_free_bytes{{{INSTANCE}}}": ("9e9x60", "1e9x60")},
    "HeliographLedgerDiffers": {"heliograph_ledger_difference": ("0x60", "1x60")},
    "HeliographRefusedByProvider": {
        REPLIES.format("2xx"): ("0+100x120", "0+50x120"),
        REPLIES.format("4xx"): ("0+1x120", "0+50x120"),
    },
    "HeliographComplaints": {MAILS: ("0+100x200", "0+100x200"), COMPLAINTS: ("0x200", "0+1x200")},
}
# Time at which the alert is evaluated; the others are evaluated after an hour
AT = {"HeliographCarrierSilent": "150m", "HeliographRefusedByProvider": "90m", "HeliographComplaints": "150m"}


def test_every_alert_has_a_test_case() -> None:
    assert list(WELL_AND_ILL) == ALERTS


@pytest.mark.parametrize("ill", [False, True], ids=["well", "ill"])
def test_alert_fires_only_when_its_condition_holds(tmp_path: Path, ill: bool) -> None:
    promtool = shutil.which("promtool") or miss("alerts are not judged", "promtool is not installed")
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": series, "values": both[ill].strip()} for series, both in cases.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
                    "eval_time": AT.get(alert, "45m"),
                    "exp_samples": [{"labels": "{}", "value": int(ill)}],
                }
            ],
        }
        for alert, cases in WELL_AND_ILL.items()
    ]
    file = tmp_path / "test.yaml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
