"""Log and store in one file of SQLite: the adapters of a process without any server."""
