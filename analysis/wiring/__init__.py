"""Why acceptance is low: definitions, static rules, the wiring that is served and the one that was trained."""
