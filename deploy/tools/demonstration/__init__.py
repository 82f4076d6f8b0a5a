"""What `make demo SERVERS=1` is made of: a corner of the servers, programs, figures, the screen."""
