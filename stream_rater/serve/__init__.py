"""The read side: an index of the events in `rating-changed`, and the API that answers from it.

- `operations` is the table of all questions that HTTP can ask. `answers` has the types of their
  bodies and answers.
- `questions` answers from the index, with `predicting`. `http.beliefs` answers from the workers'
  whole beliefs, with `explaining`.
- `entries` is what the index stores. `index` writes and reads it in Redis.
- `http` is the API itself: its application, limits, stream of events and page.
- `service` is the process.
"""
