"""A memory budget without a limit, for tests that read bodies."""


async def room(octets: int) -> None:
    assert octets >= 0
