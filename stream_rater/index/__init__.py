"""The index of `serve` and of a standalone process. It is stored in a folder of its own."""
