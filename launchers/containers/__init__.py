"""Servers in containers, of Docker or of Podman through its compatible socket."""
