"""vLLM: flags, knobs, rules, read-back, counters and failure signs."""
