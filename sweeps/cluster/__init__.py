"""A sweep over several machines: Blocks happen on nodes, records come back to the driver."""
