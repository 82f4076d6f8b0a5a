"""Benchmarks write their figures into the documents: nobody types them.

- `rows`: one row for each JSON object that a benchmark printed, with when and where it was taken.
  All rows are kept in `docs/benchmarks.jsonl`. A new row replaces the one of the same name.
- `origins`: the date, commit, command and machine of a run.
- `tables.toml`: the tables, with a sentence on each column; `tables`: how rows become Markdown;
  `lines`: rows that make several lines; `summary`: the README's table.
- `writing`: what the benchmarks call; `__main__`: `make tables`.
"""
