"""Room for what a test reads: there always is."""


async def room(octets: int) -> None:
    assert octets >= 0
