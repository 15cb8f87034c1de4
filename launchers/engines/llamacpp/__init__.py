"""llama.cpp: the embedded server and llama-server; flags, knobs, read-back, counters, failure signs."""
