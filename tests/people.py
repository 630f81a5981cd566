"""Writes dashboard users with a password and a session into the database."""

import functools
import secrets
import time

from heliograph.storage.people import hash_token
from tests.fast_crypto import HASHER
from tests.journeys.load import ask_database

PASSWORD = "correct horse battery"

LET_IN = (
    "UPDATE person SET password = '{password}', proven = 1, operator = CASE WHEN EXISTS (SELECT 1 FROM invitation i"
    " WHERE i.person = person.id AND i.team = '') THEN 1 ELSE 0 END WHERE email = '{email}'",
    "INSERT INTO member (person, team, role) SELECT i.person, i.team, i.role FROM invitation i"
    " JOIN person p ON p.id = i.person WHERE p.email = '{email}' AND i.team <> ''",
    "DELETE FROM invitation WHERE person IN (SELECT id FROM person WHERE email = '{email}')",
    "INSERT INTO session (hash, id, person, csrf, address, agent, created_at, seen_at, expires_at)"
    " SELECT '{hash}', 'ses_{csrf}', id, '{csrf}', '127.0.0.1', 'a test', {now}, {now}, {now} + 86400000"
    " FROM person WHERE email = '{email}'",
)


@functools.cache
def hashed_password() -> str:
    return HASHER.hash(PASSWORD)


def let_in(database: str, email: str) -> str:
    """Write the result of following the link, choosing the password and signing in; return the session cookie."""
    token, csrf, now = secrets.token_hex(), secrets.token_hex(16), time.time_ns() // 1_000_000
    for statement in LET_IN:
        given = statement.format(email=email, password=hashed_password(), hash=hash_token(token), csrf=csrf, now=now)
        ask_database(database, given)
    return token
