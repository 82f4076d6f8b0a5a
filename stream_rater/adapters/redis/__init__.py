"""Redis: the store of beliefs, its function library, its checks and its keys."""
