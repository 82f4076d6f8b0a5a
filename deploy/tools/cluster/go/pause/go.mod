module stream-rater/pause

go 1.26
