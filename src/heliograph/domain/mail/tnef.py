"""winmail.dat (MS-OXTNEF): the container in which Outlook packs attachments."""

from collections.abc import Iterator

import msgspec

SIGNATURE = (0x223E9F78).to_bytes(4, "little")
HEADER_SIZE = len(SIGNATURE) + 2
FILE_START, FILE_NAME, FILE_DATA = 0x00069002, 0x00018010, 0x0006800F
FILE_LEVEL = 2


class PackedFile(msgspec.Struct):
    name: str = ""
    content: bytes = b""


def unpack_tnef(content: bytes) -> list[PackedFile]:
    """Return the packed files that have a name. If the content is truncated, files after the cut are left out."""
    files: list[PackedFile] = []
    for attribute, data in _attributes(content):
        if attribute == FILE_START:
            files.append(PackedFile())
        elif files and attribute == FILE_NAME:
            files[-1].name = data.rstrip(b"\0").decode("windows-1252", "replace")
        elif files and attribute == FILE_DATA:
            files[-1].content = data
    return [file for file in files if file.name]


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (id, data) of a file's attributes, each stored as level, id, length, data, checksum."""
    position = HEADER_SIZE if content.startswith(SIGNATURE) else len(content)
    while position + 9 <= len(content):
        level, attribute = content[position], int.from_bytes(content[position + 1 : position + 5], "little")
        end = position + 9 + int.from_bytes(content[position + 5 : position + 9], "little")
        if level == FILE_LEVEL and end <= len(content):
            yield attribute, content[position + 9 : end]
        position = end + 2
