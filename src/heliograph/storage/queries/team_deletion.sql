-- Deletion of a team with all its data, when the time for restoring it has passed.

-- name: end_team_messages
-- Mark a batch of the team's messages as final, whatever their state, and return their keys.
UPDATE message SET ended_at = coalesce(ended_at, created_at) WHERE key IN (
    SELECT key FROM message WHERE team = :team ORDER BY id LIMIT :limit) RETURNING key;

-- name: delete_team_outbox
-- Delete the team's queue rows.
DELETE FROM outbox WHERE team = :team;

-- name: delete_team_events
-- Delete the team's events.
DELETE FROM event WHERE team = :team;

-- name: delete_team_verifications
-- Delete the team's verifications.
DELETE FROM verification WHERE team = :team;

-- name: delete_team_batches
-- Delete the team's batches.
DELETE FROM batch WHERE team = :team;

-- name: delete_team_tags
-- Delete the tags of the team's messages and verifications.
DELETE FROM tag WHERE team = :team;

-- name: delete_team_suppressions
-- Delete the team's suppression list.
DELETE FROM suppression WHERE team = :team;

-- name: delete_team_import_batches
-- Delete the lines of the team's suppression imports.
DELETE FROM import_portion WHERE import_id IN (SELECT id FROM suppression_import WHERE team = :team);

-- name: delete_team_imports
-- Delete the team's suppression imports.
DELETE FROM suppression_import WHERE team = :team;

-- name: delete_team_opt_outs
-- Delete the team's opt-outs.
DELETE FROM opt_out WHERE team = :team;

-- name: delete_team_last_senders
-- Delete the records of phones to which this team sent last.
DELETE FROM last_writer WHERE team = :team;

-- name: delete_team_absent
-- Delete the team's records of recipient domains that were reported as absent.
DELETE FROM absent_domain WHERE team = :team;

-- name: delete_team_ledger
-- Delete the team's ledger.
DELETE FROM ledger WHERE team = :team;

-- name: delete_team_spend
-- Delete the team's charges per month.
DELETE FROM spend WHERE team = :team;

-- name: delete_team_spend_counted
-- Delete the position up to which the team's charges were summed.
DELETE FROM spend_counted WHERE team = :team;

-- name: delete_team_credit_references
-- Delete the references of the team's credit bookings.
DELETE FROM credit_reference WHERE team = :team;

-- name: delete_team_figures
-- Delete the team's statistics.
DELETE FROM figure WHERE team = :team;

-- name: delete_team_requests
-- Delete the team's request log.
DELETE FROM request_log WHERE team = :team;

-- name: delete_team_reports
-- Delete the aggregate reports about the team's domains.
DELETE FROM aggregate_report WHERE team = :team;

-- name: delete_team_dmarc
-- Delete the DMARC sources of the team's domains.
DELETE FROM dmarc_source WHERE team = :team;

-- name: delete_team_tls
-- Delete the TLS results of the team's domains.
DELETE FROM tls_result WHERE team = :team;

-- name: delete_team_unsubscribes
-- Delete the team's unsubscribes.
DELETE FROM unsubscribe WHERE team = :team;

-- name: delete_team_complaint_rates
-- Delete the team's counts of emails and complaints.
DELETE FROM complaint_rate WHERE team = :team;

-- name: delete_team_cleared
-- Delete the time at which the team last cleared its inbox.
DELETE FROM inbox_cleared WHERE team = :team;

-- name: delete_team_account
-- Empty the team's account. The row stays, so that no other team gets its number.
UPDATE account SET available = 0, held = 0, month = '', used = 0, sandbox_day = 0, sandbox_used = 0, octets_day = 0,
                   octets_used = 0, key_uses = ''
WHERE team = :team;

-- Rows that name the team by its id.

-- name: delete_team_idempotency
-- Delete stored responses of the team's API keys.
DELETE FROM idempotency WHERE key_id IN (SELECT id FROM setting WHERE kind = 'key' AND team = :team);

-- name: delete_team_key_uses
-- Delete the last uses of the team's API keys.
DELETE FROM key_use WHERE key IN (SELECT id FROM setting WHERE kind = 'key' AND team = :team);

-- name: delete_team_versions
-- Delete the versions of the team's templates and layouts.
DELETE FROM template_version WHERE template IN (
    SELECT id FROM setting WHERE kind IN ('template', 'layout') AND team = :team);

-- name: delete_team_reputation_state
-- Delete the team's reputation state.
DELETE FROM judgement WHERE team = :team;

-- name: delete_team_members
-- Delete the roles in the team.
DELETE FROM member WHERE team = :team;

-- name: delete_team_invitations
-- Delete the invitations to the team.
DELETE FROM invitation WHERE team = :team;

-- name: delete_team_notice_choices
-- Delete the users' notice settings for the team.
DELETE FROM notice_choice WHERE team = :team;

-- name: delete_team_chat_hook
-- Delete the team's chat webhook.
DELETE FROM chat_hook WHERE team = :team;

-- name: delete_team_settings
-- Delete the team's setup records, except the record of the team itself, whose deletion gets a new version, so that
-- other processes notice.
DELETE FROM setting WHERE team = :team AND kind <> 'team';
