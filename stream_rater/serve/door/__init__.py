"""The door for rounds and corrections that clients send by HTTP, and what became of them."""
