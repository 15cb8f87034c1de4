"""What a night means: the rule of the nightly gate, its explanation, and how it is shown."""
