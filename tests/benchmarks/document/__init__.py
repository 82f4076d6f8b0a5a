"""Benchmarks write their figures into `docs/benchmarks.md` and the README: nobody types them.

- `rows`: one row for each JSON object that a benchmark printed, with when and where it was taken.
  All rows are kept in `docs/benchmarks.jsonl`. A new row replaces the one of the same name.
- `origins`: the date, commit, command and machine of a run.
- `tables`: how rows become a Markdown table, with a sentence on each column.
- `kernels`: the tables of `make bench`; `stream`: those of `make bench-stream`; `faults`: those of
  `make chaos` and `make soak`; `reading`: that of `make bench-serve`; `platform`: those of
  `make image`, `make compose` and `make kubernetes`; `summary`: the README's table.
- `pages`: puts the tables between the markers of the pages, and leaves the rest of a page alone.
- `writing`: what the benchmarks call; `__main__`: `make tables`.
"""
