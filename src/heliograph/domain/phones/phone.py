"""Phone numbers: E.164 validation, country by longest prefix, and the prefix used by velocity limits."""

import re
from functools import lru_cache

from phonenumbers import COUNTRY_CODE_TO_REGION_CODE, SUPPORTED_REGIONS

from heliograph.domain.refusals import InvalidPhone
from heliograph.domain.text import quoted

_E164 = re.compile(r"\+[1-9][0-9]{6,14}")

# Country → number prefixes within calling codes that several countries share. Listed here, because the patterns of
# phonenumbers, against which the list is tested, take 50 µs and match only numbers in service.
_SHARED_CODE_PREFIXES = {
    "AG": "1268",
    "AI": "1264",
    "AS": "1684",
    "BB": "1246",
    "BM": "1441",
    "BS": "1242",
    "CA": "1204 1226 1236 1249 1250 1257 1263 1273 1289 1306 1343 1354 1365 1367 1368 1382 1403 1416 1418"
    " 1428 1431 1437 1438 1450 1468 1474 1506 1514 1519 1548 1579 1581 1584 1587 1600 1604 1613 1622"
    " 1633 1639 1644 1647 1655 1672 1677 1683 1688 1705 1709 1742 1753 1778 1780 1782 1807 1819 1825"
    " 1867 1873 1879 1902 1905 1942",
    "DM": "1767",
    "DO": "1809 1829 1849",
    "GD": "1473",
    "GU": "1671",
    "JM": "1658 1876",
    "KN": "1869",
    "KY": "1345",
    "LC": "1758",
    "MP": "1670",
    "MS": "1664",
    "PR": "1787 1939",
    "SX": "1721",
    "TC": "1649",
    "TT": "1868",
    "VC": "1784",
    "VG": "1284",
    "VI": "1340",
    "KZ": "76 77",
    "VA": "3906698",
    "GG": "441481 447781 447839 4479111 4479117",
    "IM": "441624 4474576 447524 447624 447924",
    "JE": "441534 447509 447829 447937 4477003 4477007 4477008 447797",
    "SJ": "4779",
    "CC": "6189162 61851002 61851031 61851060 61851089 61851118 61851176 61851223 61891703",
    "CX": "6189164 61851001 61851030 61851059 61851088 61851117 61851146 61851175 61851222 61851235 61891958",
    "YT": "262269 2622689 262639 2627093 2629769",
    "TA": "2908",
    "AX": "35818",
    "BL": "59059027 59059029 59059051 59059052 59059087",
    "MF": "59059000 59059007 59059009 59059013 59059030 59059043 59059050 59059056 59059058 59059077 59059079",
    "BQ": "5993 5994 5997",
}
_COUNTRY_BY_PREFIX = {
    str(code): regions[0] for code, regions in COUNTRY_CODE_TO_REGION_CODE.items() if regions[0] != "001"
}
_COUNTRY_BY_PREFIX |= {
    prefix: country for country, prefixes in _SHARED_CODE_PREFIXES.items() for prefix in prefixes.split()
}
# Includes countries without phone numbers of their own.
COUNTRIES = SUPPORTED_REGIONS | {"AQ", "BV", "GS", "HM", "PN", "TF", "UM"}

SHORT_MAX = 7  # maximum digits of a short code


def parse_phone(text: str | None, param: str = "to") -> str:
    if text is None:
        raise InvalidPhone(f"{param} is missing. {InvalidPhone.fix}", param=param)
    if not is_phone(text):
        raise InvalidPhone(
            f"{param} {quoted(text)} is not a phone number in E.164 format. {InvalidPhone.fix}", param=param
        )
    return text


def is_phone(text: str) -> bool:
    return _E164.fullmatch(text) is not None


def country_of(phone: str) -> str | None:
    """Return a number's ISO country code, even if it is not in service; None for calling codes without a country."""
    for end in _prefix_ends(phone[1:4]):
        if country := _COUNTRY_BY_PREFIX.get(phone[1:end]):
            return country
    return None


@lru_cache(maxsize=1000)  # `start` is the first three digits of a number
def _prefix_ends(start: str) -> list[int]:
    """Return the possible end positions of the country prefix in a number that begins with `start`, longest first."""
    prefixes = (prefix for prefix in _COUNTRY_BY_PREFIX if prefix.startswith(start) or start.startswith(prefix))
    return sorted({1 + len(prefix) for prefix in prefixes}, reverse=True)


def velocity_prefix(phone: str) -> str:
    """Return the number without its last four digits, by which velocity limits group numbers."""
    return phone[:-4]


def to_e164(number: str) -> str:
    """Return a carrier's number with a plus. Short codes and alphanumeric names are unchanged."""
    digits = number.strip().removeprefix("+").removeprefix("00")
    return f"+{digits}" if digits.isascii() and digits.isdigit() and len(digits) > SHORT_MAX else number.strip()
