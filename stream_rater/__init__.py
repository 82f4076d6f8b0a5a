"""stream_rater: a streaming rater for games, exact to the bit whatever crashes."""
