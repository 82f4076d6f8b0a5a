"""The read side: an index of the events in `rating-changed`, and the API that answers from it.

- `routes` is the table of all questions that HTTP can ask. `bodies` has the types of the
  bodies of requests and answers.
- `questions` answers from the index, with `predicting`. `http.beliefs` answers from the workers'
  whole beliefs, with `explaining`.
- `entries` is what the index stores. `index` writes and reads it in Redis.
- `http` is the API itself: its application, limits, stream of events and page.
- `service` is the process.
"""
