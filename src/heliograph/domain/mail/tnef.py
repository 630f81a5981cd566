"""winmail.dat (MS-OXTNEF): the container in which Outlook packs attachments."""

from collections.abc import Iterator

import msgspec

SIGNATURE = (0x223E9F78).to_bytes(4, "little")
HEAD = len(SIGNATURE) + 2
FILE_BEGINS, FILE_NAME, FILE_DATA = 0x00069002, 0x00018010, 0x0006800F
FILE_LEVEL = 2


class Packed(msgspec.Struct):
    name: str = ""
    content: bytes = b""


def unpacked(whole: bytes) -> list[Packed]:
    """Return the files that have a name; of truncated content, those before the end."""
    files: list[Packed] = []
    for attribute, data in _attributes(whole):
        if attribute == FILE_BEGINS:
            files.append(Packed())
        elif files and attribute == FILE_NAME:
            files[-1].name = data.rstrip(b"\0").decode("windows-1252", "replace")
        elif files and attribute == FILE_DATA:
            files[-1].content = data
    return [file for file in files if file.name]


def _attributes(whole: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (id, data) of file attributes, stored as level, id, length, data, checksum."""
    at = HEAD if whole.startswith(SIGNATURE) else len(whole)
    while at + 9 <= len(whole):
        level, attribute = whole[at], int.from_bytes(whole[at + 1 : at + 5], "little")
        end = at + 9 + int.from_bytes(whole[at + 5 : at + 9], "little")
        if level == FILE_LEVEL and end <= len(whole):
            yield attribute, whole[at + 9 : end]
        at = end + 2
