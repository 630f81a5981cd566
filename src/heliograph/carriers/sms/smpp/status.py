"""Table of command_status values, with their meaning and their effect on the message."""

from typing import Literal

# throttled: this message is deferred and all others pause; unbound: the carrier accepts no messages from us.
Verdict = Literal["accepted", "refused", "deferred", "throttled", "unbound"]

ROK = 0x00
RINVCMDLEN = 0x02
RINVCMDID = 0x03
RINVBNDSTS = 0x04
RX_T_APPN = 0x64
RX_P_APPN = 0x65

STATUS_TABLE: dict[int, tuple[str, str, Verdict]] = {
    ROK: ("ESME_ROK", "accepted", "accepted"),
    0x01: ("ESME_RINVMSGLEN", "invalid message length", "refused"),
    RINVCMDLEN: ("ESME_RINVCMDLEN", "invalid command length", "refused"),
    RINVCMDID: ("ESME_RINVCMDID", "invalid command", "unbound"),
    RINVBNDSTS: ("ESME_RINVBNDSTS", "not bound for this command", "unbound"),
    0x05: ("ESME_RALYBND", "already bound", "unbound"),
    0x06: ("ESME_RINVPRTFLG", "invalid priority flag", "refused"),
    0x07: ("ESME_RINVREGDLVFLG", "invalid registered delivery flag", "refused"),
    0x08: ("ESME_RSYSERR", "system error", "deferred"),
    0x0A: ("ESME_RINVSRCADR", "invalid source address", "refused"),
    0x0B: ("ESME_RINVDSTADR", "invalid destination address", "refused"),
    0x0C: ("ESME_RINVMSGID", "invalid message id", "refused"),
    0x0D: ("ESME_RBINDFAIL", "bind failed", "unbound"),
    0x0E: ("ESME_RINVPASWD", "invalid password", "unbound"),
    0x0F: ("ESME_RINVSYSID", "invalid system id", "unbound"),
    0x11: ("ESME_RCANCELFAIL", "cancel_sm failed", "refused"),
    0x13: ("ESME_RREPLACEFAIL", "replace_sm failed", "refused"),
    0x14: ("ESME_RMSGQFUL", "message queue full", "deferred"),
    0x15: ("ESME_RINVSERTYP", "invalid service type", "refused"),
    0x33: ("ESME_RINVNUMDESTS", "invalid number of destinations", "refused"),
    0x34: ("ESME_RINVDLNAME", "invalid distribution list", "refused"),
    0x40: ("ESME_RINVDESTFLAG", "invalid destination flag", "refused"),
    0x42: ("ESME_RINVSUBREP", "invalid submit with replace", "refused"),
    0x43: ("ESME_RINVESMCLASS", "invalid esm_class", "refused"),
    0x44: ("ESME_RCNTSUBDL", "cannot submit to a distribution list", "refused"),
    0x45: ("ESME_RSUBMITFAIL", "submit failed", "refused"),
    0x48: ("ESME_RINVSRCTON", "invalid type of the source number", "refused"),
    0x49: ("ESME_RINVSRCNPI", "invalid numbering plan of the source", "refused"),
    0x50: ("ESME_RINVDSTTON", "invalid type of the destination number", "refused"),
    0x51: ("ESME_RINVDSTNPI", "invalid numbering plan of the destination", "refused"),
    0x53: ("ESME_RINVSYSTYP", "invalid system type", "unbound"),
    0x54: ("ESME_RINVREPFLAG", "invalid replace flag", "refused"),
    0x55: ("ESME_RINVNUMMSGS", "invalid number of messages", "refused"),
    0x58: ("ESME_RTHROTTLED", "throttled: more messages than allowed", "throttled"),
    0x61: ("ESME_RINVSCHED", "invalid scheduled delivery time", "refused"),
    0x62: ("ESME_RINVEXPIRY", "invalid validity period", "refused"),
    0x63: ("ESME_RINVDFTMSGID", "no such predefined message", "refused"),
    RX_T_APPN: ("ESME_RX_T_APPN", "temporary error at the receiver", "deferred"),
    RX_P_APPN: ("ESME_RX_P_APPN", "permanent error at the receiver", "refused"),
    0x66: ("ESME_RX_R_APPN", "rejected by the receiver", "refused"),
    0x67: ("ESME_RQUERYFAIL", "query_sm failed", "refused"),
    0xC0: ("ESME_RINVOPTPARSTREAM", "error in the optional parameters", "refused"),
    0xC1: ("ESME_ROPTPARNOTALLWD", "an optional parameter is not allowed", "refused"),
    0xC2: ("ESME_RINVPARLEN", "invalid parameter length", "refused"),
    0xC3: ("ESME_RMISSINGOPTPARAM", "an optional parameter is missing", "refused"),
    0xC4: ("ESME_RINVOPTPARAMVAL", "invalid value of an optional parameter", "refused"),
    0xFE: ("ESME_RDELIVERYFAILURE", "delivery failed", "refused"),
    0xFF: ("ESME_RUNKNOWNERR", "unknown error", "deferred"),
}


def verdict_for(status: int) -> Verdict:
    """Return the verdict on a command_status. Unknown, carrier-specific ones are deferred: they may be temporary."""
    return STATUS_TABLE[status][2] if status in STATUS_TABLE else "deferred"


def describe(status: int) -> str:
    """Return the description and name of a command_status."""
    name, text, _ = STATUS_TABLE.get(status, (format_code(status), "a carrier-specific error", None))
    return f"{text} ({name})"


def format_code(status: int) -> str:
    """Format a command_status as hexadecimal, such as `0x00000045`."""
    return f"0x{status:08x}"
