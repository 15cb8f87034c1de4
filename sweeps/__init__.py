"""What to try, and in which order: the sweep file, the space, the load and the search."""
