"""What we know: records, reasons, the environment fingerprint and the append-only run folder."""
