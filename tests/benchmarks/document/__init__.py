"""Writes the figures of benchmarks into the documents. All rows are kept in
`docs/benchmarks.jsonl`; a new row replaces the one of the same name. `tables.toml` says which
tables there are."""
