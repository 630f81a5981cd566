"""Phone rules: numbers, segments, inbound texts, opt-outs."""
