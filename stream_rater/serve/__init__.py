"""The read side: the API, which answers from an index of the events in `rating-changed`. `routes`
is the table of its operations, and `bodies` has the types of bodies. `questions` answers from the
index, with `predicting`; `http.beliefs` answers from the workers' whole beliefs, with `explaining`.
`door` takes rounds and corrections, `http` is the API itself, and `service` the process."""
