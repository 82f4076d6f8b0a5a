"""What `make demo` is made of: a corner of the servers, the programs, the figures, the screen."""
