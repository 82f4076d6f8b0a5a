"""The sequential replay: rates a log's rounds one after the other, in memory."""
