"""The HTTP edge: parse, call, serialise. No framework: its routing alone would cost half of the throughput."""
