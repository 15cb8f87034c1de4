"""Why acceptance is low: definitions, static rules, the wiring served and the wiring trained."""
