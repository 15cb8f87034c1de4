"""The embedded engine: llama.cpp's HTTP server in a child process, and the small model it can serve."""
