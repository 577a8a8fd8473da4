"""Pure: no clock, no random, no I/O."""
