"""Rules of the spec as pure functions: no await, no SQL, no clock, no randomness."""
