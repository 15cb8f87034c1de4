"""What it means: pure functions over records; no clock, no network."""
