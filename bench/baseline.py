"""The baseline: a simple implementation with FastAPI, pydantic and aiosqlite, with one durable commit per request."""

import asyncio
import hashlib
import sys
import time
import uuid
from datetime import UTC, datetime
from typing import Annotated

import aiosqlite
from fastapi import Depends, FastAPI, Header, HTTPException
from floor import serve
from pydantic import BaseModel, ConfigDict, Field

SCHEMA = """
CREATE TABLE keys (hash TEXT PRIMARY KEY, team INTEGER NOT NULL);
CREATE TABLE teams (id INTEGER PRIMARY KEY, quota INTEGER NOT NULL, used INTEGER NOT NULL);
CREATE TABLE suppressions (team INTEGER, address TEXT, PRIMARY KEY (team, address)) WITHOUT ROWID;
CREATE TABLE messages (
    id TEXT PRIMARY KEY, team INTEGER NOT NULL, sender TEXT NOT NULL, subject TEXT NOT NULL,
    html TEXT, text TEXT, status TEXT NOT NULL, created_at INTEGER NOT NULL
);
CREATE TABLE recipients (message TEXT, address TEXT, status TEXT NOT NULL, PRIMARY KEY (message, address));
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY, message TEXT NOT NULL, address TEXT NOT NULL, due_at INTEGER NOT NULL
);
CREATE INDEX outbox_due ON outbox (due_at);
"""

Address = Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$", max_length=254)]


class Email(BaseModel):
    model_config = ConfigDict(extra="forbid")

    to: Address
    from_: Address = Field(alias="from")
    subject: str = Field(max_length=200)
    html: str | None = None
    text: str | None = None


class Accepted(BaseModel):
    id: str
    to: str
    to_addresses: list[str]
    cc: list[str] = []
    bcc: list[str] = []
    reply_to: str | None = None
    from_: str = Field(serialization_alias="from")
    subject: str
    recipient_count: int = 1
    attachments_count: int = 0
    status: str = "sending"
    sandbox: bool = False
    created_at: str


app = FastAPI()


async def caller(authorization: Annotated[str, Header()]) -> int:
    """Return the team of an API key; read on a second connection, so that lookups do not wait for commits."""
    hashed = hashlib.sha256(authorization.removeprefix("Bearer ").encode()).hexdigest()
    async with app.state.reader.execute("SELECT team FROM keys WHERE hash = ?", (hashed,)) as rows:
        row = await rows.fetchone()
    if row is None:
        raise HTTPException(401, "invalid_api_key")
    return int(row[0])


@app.post("/v1/emails", status_code=202)
async def send_email(email: Email, team: Annotated[int, Depends(caller)]) -> Accepted:
    id_, now = f"eml_{uuid.uuid4().hex}", time.time_ns() // 1_000_000
    async with app.state.lock:
        try:
            await insert(app.state.writer, team, id_, email, now)
            await app.state.writer.commit()
        except BaseException:
            await app.state.writer.rollback()
            raise
    created_at = datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="milliseconds")
    return Accepted(
        id=id_,
        to=email.to,
        to_addresses=[email.to],
        from_=email.from_,
        subject=email.subject,
        created_at=created_at,
    )


async def insert(db: aiosqlite.Connection, team: int, id_: str, email: Email, now: int) -> None:
    suppressed = "SELECT 1 FROM suppressions WHERE team = ? AND address = ?"
    async with db.execute(suppressed, (team, email.to)) as rows:
        if await rows.fetchone():
            raise HTTPException(403, "recipient_suppressed")
    counted = await db.execute("UPDATE teams SET used = used + 1 WHERE id = ? AND used < quota", (team,))
    if counted.rowcount == 0:
        raise HTTPException(403, "email_quota_exceeded")
    await db.execute(
        "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, 'sending', ?)",
        (id_, team, email.from_, email.subject, email.html, email.text, now),
    )
    await db.execute("INSERT INTO recipients VALUES (?, ?, 'sending')", (id_, email.to))
    await db.execute("INSERT INTO outbox (message, address, due_at) VALUES (?, ?, ?)", (id_, email.to, now))


async def main(port: int, path: str, token: str) -> None:
    async with aiosqlite.connect(path) as writer, aiosqlite.connect(path) as reader:
        await writer.execute("PRAGMA journal_mode=WAL")
        await writer.execute("PRAGMA synchronous=FULL")
        await writer.executescript(SCHEMA)
        await writer.execute("INSERT INTO teams VALUES (1, 1000000000, 0)")
        await writer.execute("INSERT INTO keys VALUES (?, 1)", (hashlib.sha256(token.encode()).hexdigest(),))
        await writer.commit()
        app.state.writer, app.state.reader, app.state.lock = writer, reader, asyncio.Lock()
        await serve(app, port)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
