"""The carrier `smpp` with an independent SMSC: the npm package `smpp` on Node."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from heliograph.domain.delivery.outcome import Accepted, Deferred
from tests.carriers.test_smpp_carrier import Reports, carrier_of, outbound_message, until
from tests.npm import install

pytestmark = pytest.mark.anyio

PROGRAM = Path(__file__).parent / "smsc.js"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = install(tmp_path_factory.mktemp("smpp"), "SMPP is not judged by the npm package smpp")
    shutil.copy(PROGRAM, folder)
    return folder


class Node:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.output: list[dict[str, Any]] = []

    async def read(self) -> None:
        assert self._process.stdout
        async for line in self._process.stdout:
            self.output.append(json.loads(line))

    def of(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.output if name in event]


@pytest.fixture
async def node(package: Path, request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    program = ("node", PROGRAM.name, getattr(request, "param", ""))
    process = await asyncio.create_subprocess_exec(*program, cwd=package, stdout=asyncio.subprocess.PIPE)
    node = Node(process)
    reading = asyncio.create_task(node.read())
    try:
        await until(lambda: node.of("port"))
        yield node
    finally:
        process.kill()
        await process.wait()
        await reading


LONG = "[" * 80 + "b" * 150
WIDE = "Grüße 😀 ж" * 12


async def test_node_smsc_receives_texts_and_returns_ids_and_receipts(node: Node) -> None:
    reports = Reports()
    async with carrier_of(node.of("port")[0]["port"], reports) as carrier:
        outcomes = [
            await carrier.send_message(outbound_message(text)) for text in ("Hi @ € _ {x}", "Grüße 😀 ж", LONG, WIDE)
        ]
        accepted = [outcome for outcome in outcomes if isinstance(outcome, Accepted)]
        assert accepted == outcomes
        ids = [id_ for item in accepted for id_ in (item.parts or [item.carrier_id])]
        await until(lambda: len(node.of("receipt")) == len(ids))
    assert ids == [f"node-{n}" for n in range(1, 8)]
    assert sorted(reports.states()) == [(id_, "delivered") for id_ in ids]
    read = node.of("text")
    assert {(*event["from"], *event["to"], event["registered"]) for event in read} == {
        (5, 0, "ACME", 1, 1, "447700900123", 1)
    }
    assert [(event["coding"], event["text"]) for event in read[:2]] == [(0, "Hi @ € _ {x}"), (8, "Grüße 😀 ж")]
    assert "".join(event["text"] for event in read[2:5]) == LONG
    assert "".join(event["text"] for event in read[5:]) == WIDE
    assert [event["udh"][0][-4:] for event in read[2:]] == ["0301", "0302", "0303", "0201", "0202"]
    assert node.of("bind") == [{"bind": True, "version": 0x34}]
    assert node.of("alive") == [{"alive": "enquire_link_resp"}]
    await until(lambda: node.of("unbind"))


async def test_node_smsc_receives_a_message_payload(node: Node) -> None:
    async with carrier_of(node.of("port")[0]["port"], long="payload") as carrier:
        assert isinstance(await carrier.send_message(outbound_message(WIDE)), Accepted)
    assert [event["text"] for event in node.of("text")] == [WIDE]


async def test_node_smsc_refuses_a_wrong_password(node: Node) -> None:
    async with carrier_of(node.of("port")[0]["port"], password="guess") as carrier:
        outcome = await carrier.send_message(outbound_message())
    assert isinstance(outcome, Deferred) and outcome.unreachable
    assert outcome.detail["text"] == "127.0.0.1 refused the bind: invalid password (ESME_RINVPASWD)"


@pytest.mark.parametrize("node", ["unbind"], indirect=True)
async def test_unbind_before_a_submit_is_answered_sends_nothing_twice(node: Node) -> None:
    async with carrier_of(node.of("port")[0]["port"]) as carrier:
        outcome = await carrier.send_message(outbound_message("one"))
        assert isinstance(outcome, Accepted) and outcome.carrier_id == "node-1"
        await until(lambda: node.of("unbound") and len(node.of("bind")) == 2)
    assert [event["text"] for event in node.of("text")] == ["one"]
    assert node.of("unbound") == [{"unbound": "unbind_resp"}]
