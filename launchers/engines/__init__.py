"""One module per engine: its knobs, rules, flags, read-back, counters and failure signs."""
