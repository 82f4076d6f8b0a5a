"""The sequential replay: it rates a log's rounds one after the other, in memory."""
