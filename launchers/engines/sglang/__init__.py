"""SGLang: flags, knobs, rules, parity of the arms, read-back, counters and failure signs."""
