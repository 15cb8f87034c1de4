"""How a server comes to be: launchers, engines and what they read from the machine."""
