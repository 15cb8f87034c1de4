"""`tuner doctor`: looks at definitions, processes, folders and hidden states, in this order, and names a cause."""
