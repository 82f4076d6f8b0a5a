"""The work behind the commands of `stream-rater`: each command calls one function from here."""
