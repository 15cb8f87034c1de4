"""llama.cpp's own HTTP server inside a Python child process, and the small model it serves."""
