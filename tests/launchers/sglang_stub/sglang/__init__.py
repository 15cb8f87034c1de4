"""A stand-in for SGLang: enough of its arguments to be asked for them."""
