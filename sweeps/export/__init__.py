"""The answer of a run, ready to deploy: each form a module, all made from one recorded server."""
