"""Names, units, the clock, the envelope, typed events, the codec, views, and the event log with its adapters."""
