"""The nightly gate: pin a configuration, measure it every night, find the first version that is worse."""
