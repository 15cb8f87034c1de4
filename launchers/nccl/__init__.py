"""What is known about NCCL: its variables, what they exclude, what its log says, and a start-up probe."""
