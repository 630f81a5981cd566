"""Storage of reports, inbound mail, inbound texts and opt-outs."""
