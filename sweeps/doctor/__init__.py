"""`tuner doctor`: looks at definitions, processes, folders, hidden states, in this order; names a cause."""
