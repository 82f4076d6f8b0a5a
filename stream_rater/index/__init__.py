"""The index of `serve` and of a standalone process, in a folder of its own."""
