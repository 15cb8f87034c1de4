"""The nightly gate: pin a configuration, measure it every night, compare two images, find the first bad one."""
