"""Deletes teams with all their data, once the time in which they can be restored has passed."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from heliograph.domain.audit.actor import SERVICE
from heliograph.domain.setup.records import Team
from heliograph.domain.setup.snapshot import to_row
from heliograph.runtime.clock import CLOCK_ERROR_MAX_MS, Clock
from heliograph.storage import audit
from heliograph.storage.engine.database import Database, Tx
from heliograph.storage.purge import BATCH, CONTENT_QUERIES, MESSAGE_QUERIES, delete_team_data, purge_final
from heliograph.storage.setup import SetupStore, lock_and_read, save_rows

# Queries that delete a team's rows, by its number and by its id. The first queries by id read the team's setup records.
QUERIES_BY_REF = (
    *("delete_team_outbox", "delete_team_events", "delete_team_verifications", "delete_team_batches"),
    *("delete_team_tags", "delete_team_suppressions", "delete_team_import_batches", "delete_team_imports"),
    *("delete_team_opt_outs", "delete_team_last_senders", "delete_team_absent", "delete_team_ledger"),
    *("delete_team_spend", "delete_team_spend_counted", "delete_team_credit_references", "delete_team_figures"),
    *("delete_reputation", "delete_team_requests", "delete_team_reports", "delete_team_dmarc"),
    *("delete_team_tls", "delete_team_cleared", "delete_team_account", "delete_team_unsubscribes"),
    *("delete_team_complaint_rates", "delete_team_approvals"),
)
QUERIES_BY_ID = (
    *("delete_team_idempotency", "delete_team_key_uses", "delete_team_versions", "delete_team_reputation_state"),
    *("delete_team_members", "delete_team_invitations", "delete_team_notice_choices", "delete_team_chat_hook"),
    "delete_team_settings",
)


class TeamDeletion:
    def __init__(self, database: Database, clock: Clock, setup: SetupStore) -> None:
        self._database = database
        self._clock = clock
        self._setup = setup

    async def delete_due(self) -> None:
        """Delete the teams whose `deletes_at` has passed, with a margin for processes whose clocks are behind."""
        due_before = self._clock.now() - 2 * CLOCK_ERROR_MAX_MS
        teams = [team for team in self._setup.current.teams.values() if 0 < team.record.deletes_at <= due_before]
        for team in teams:
            while await self._database.write(partial(_delete_messages, team=team.record.ref)):
                continue
            delete_rest = partial(self._delete_team, id_=team.record.id, due_before=due_before)
            await self._setup.write_and_refresh(team.record.id, delete_rest)

    async def _delete_team(self, tx: Tx, id_: str, due_before: int) -> None:
        """Delete the team and its remaining data, unless it was already deleted or was restored."""
        current = await lock_and_read(tx, self._setup.current)
        team: Team | None = current.teams.get(id_)
        if team is None or not 0 < team.record.deletes_at <= due_before:
            return
        while await _delete_messages(tx, team.record.ref):
            continue
        await delete_team_data(tx, team)
        for query in QUERIES_BY_REF:
            await tx.run(query, team=team.record.ref)
        await tx.run("delete_links_of_teams", teams=[(id_,)])
        for query in QUERIES_BY_ID:
            await tx.run(query, team=id_)
        await save_rows(tx, [to_row("team", id_, None, id_)], current.version)
        await audit.write(tx, SERVICE.audit_entry(self._clock.now(), "team.erase", id_, team.record.name, team=id_))


async def _delete_messages(tx: Tx, team: int) -> Sequence[Any]:
    """Delete a batch of the team's messages, final or not, and return their keys."""
    messages = [tuple(row) for row in await tx.run("end_team_messages", team=team, limit=BATCH)]
    for queries in (CONTENT_QUERIES, MESSAGE_QUERIES) if messages else ():
        await purge_final(tx, messages, queries)
    return messages
