"""The read side: the API that answers from an index of the events in `rating-changed`.

`routes` is the table of its operations, and `bodies` has their types. `questions` answers from the
index, with `predicting`; `http.beliefs` from the workers' whole beliefs, with `explaining`. `door`
takes rounds and corrections, `http` is the API itself, and `service` the process.
"""
